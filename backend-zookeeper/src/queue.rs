//! A lock's queue, and the rule that admits the next claim. The rule applies to all lock types.

use leasehold_core::backend::Mode;
use leasehold_core::backend::rules::{fits, grantable, is_same_type};
use zookeeper_client::Stat;

use crate::layout::REVOCATION;
use crate::name::{Name, State};

/// The holders and waiters of a lock, as listed by a single request.
///
/// The node with the lowest number holds the lock. An outdated list may contain deleted nodes. If a
/// node is in the list, the list also contains all nodes that were created earlier and still exist,
/// because numbers follow the order of changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queue {
    /// The entries in order.
    entries: Vec<Name>,
    /// Whether a revocation request to all holders applies.
    pub(crate) is_asked: bool,
    /// The data version of the lock's node, which grants of permits compare.
    pub(crate) version: i32,
    /// The zxid of the last change.
    pub(crate) changed: i64,
    /// The number that the next node gets.
    pub(crate) next: u32,
    /// The zxid that created the lock's node, or 0 if there is no node. The numbering restarts with
    /// each new lock node.
    pub(crate) made: i64,
}

/// The decision about a claim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Verdict {
    /// The claim is compatible with all holders of the lock and with all waiters before it.
    Admitted,
    Refused,
    /// The lock is held as a different lock type.
    OtherKind,
}

impl Queue {
    pub(crate) fn new(children: &[String], stat: &Stat) -> Self {
        let entries = children.iter().filter_map(|name| Name::read(name)).collect();
        let is_asked = children.iter().any(|name| name == REVOCATION);
        let (version, changed, made) = (stat.version, stat.pzxid, stat.czxid);
        Self { is_asked, version, changed, next: next_number(stat), made, ..Self::of(entries) }
    }

    fn of(mut entries: Vec<Name>) -> Self {
        entries.sort_by(|one, other| one.order().cmp(&other.order()));
        Self { entries, ..Self::default() }
    }

    pub(crate) fn all(&self) -> &[Name] {
        &self.entries
    }

    /// Returns the first entry of the lease with this tag. A claim that was created twice may have
    /// two entries.
    pub(crate) fn entry(&self, tag: &str) -> Option<&Name> {
        self.entries.iter().find(|entry| entry.tag == tag)
    }

    /// Returns the holders of the lock, according to their order and their names.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &Name> {
        let by_order = self.entries.iter().filter(|entry| entry.state.is_none());
        let mut left = grantable([], by_order.map(|entry| entry.mode));
        self.entries.iter().filter(move |entry| match entry.state {
            Some(state) => state == State::Held,
            None => {
                let is_held = left > 0;
                left = left.saturating_sub(1);
                is_held
            }
        })
    }

    /// Decides about a claim whose entry is `own`.
    pub(crate) fn verdict(&self, own: &Name) -> Verdict {
        let holder = self.holders().find(|holder| holder.text != own.text);
        if holder.is_some_and(|it| !is_same_type(own.mode, it.mode) && it.order() < own.order()) {
            return Verdict::OtherKind;
        }
        let in_the_way = self.entries.iter().filter(|it| is_in_the_way(it, own));
        let fits = fits(own.mode, in_the_way.map(|entry| entry.mode));
        if fits { Verdict::Admitted } else { Verdict::Refused }
    }

    /// Returns whether later claims may have been granted before a claim for `mode`, because they
    /// set a different limit.
    pub(crate) fn has_other_limits(&self, mode: Mode) -> bool {
        self.entries.iter().any(|entry| entry.mode.limit() != mode.limit())
    }

    /// Returns the entry that blocks `own`, or `None` if a combination of several entries blocks
    /// `own`.
    pub(crate) fn predecessor(&self, own: &Name) -> Option<&Name> {
        let mut before = self.entries.iter().filter(|entry| entry.order() < own.order());
        match own.mode {
            Mode::Exclusive | Mode::WRITER => before.next_back(),
            Mode::READER => before.rfind(|entry| !entry.is_reader()),
            Mode::Units { .. } => None,
        }
    }
}

/// Returns the number that the next child of this node gets, which is the total number of children
/// created so far.
///
/// `cversion` counts each creation and each deletion of a child once.
fn next_number(stat: &Stat) -> u32 {
    stat.cversion.wrapping_add(stat.num_children).cast_unsigned() / 2
}

/// Returns whether `own` must be compatible with `other`. The result is `true` for earlier entries,
/// and for later entries that hold permits under a larger limit.
fn is_in_the_way(other: &Name, own: &Name) -> bool {
    let holds_past = own.state.is_some()
        && other.state == Some(State::Held)
        && other.mode.limit() > own.mode.limit();
    other.text != own.text && (other.order() < own.order() || holds_past)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNITS: fn(u32, u32) -> Mode = |units, limit| Mode::Units { units, limit };

    fn name(number: u32, mode: Mode, state: State) -> Name {
        let tag = format!("{number:036}");
        Name::read(&format!("{}{number:010}", Name::head(&tag, mode, state))).unwrap()
    }

    fn queue(entries: &[(Mode, State)]) -> Queue {
        let numbered = entries.iter().enumerate();
        let names =
            numbered.map(|(i, (mode, state))| name(u32::try_from(i).unwrap(), *mode, *state));
        Queue::of(names.rev().collect())
    }

    fn verdicts(queue: &Queue) -> Vec<Verdict> {
        queue.all().iter().map(|own| queue.verdict(own)).collect()
    }

    #[test]
    fn the_lowest_number_holds_a_mutex() {
        let queue = queue(&[(Mode::Exclusive, State::Held); 3]);

        assert_eq!(verdicts(&queue), [Verdict::Admitted, Verdict::Refused, Verdict::Refused]);
        assert_eq!(queue.holders().count(), 1);
        assert_eq!(queue.predecessor(&queue.all()[2]), Some(&queue.all()[1]));
    }

    #[test]
    fn readers_pass_readers_and_no_writer() {
        let [reader, writer] = [Mode::READER, Mode::WRITER].map(|mode| (mode, State::Queued));
        let queue = queue(&[reader, reader, writer, reader]);

        let [yes, no] = [Verdict::Admitted, Verdict::Refused];
        assert_eq!(verdicts(&queue), [yes, yes, no, no]);
        assert_eq!(queue.holders().count(), 2);
        assert_eq!(queue.predecessor(&queue.all()[2]), Some(&queue.all()[1]));
        assert_eq!(queue.predecessor(&queue.all()[3]), Some(&queue.all()[2]));
    }

    #[test]
    fn units_fit_beside_those_before_and_those_who_hold_by_a_larger_limit() {
        let held = |units, limit| (UNITS(units, limit), State::Held);
        let queued = |units, limit| (UNITS(units, limit), State::Queued);

        let [yes, no] = [Verdict::Admitted, Verdict::Refused];
        assert_eq!(verdicts(&queue(&[held(1, 3), held(2, 3), queued(1, 3)])), [yes, yes, no]);
        assert_eq!(verdicts(&queue(&[queued(2, 3), held(2, 9)])), [no, yes]);
        assert!(queue(&[held(1, 3), held(1, 9)]).has_other_limits(UNITS(1, 3)));
    }

    #[test]
    fn a_lock_is_not_held_in_two_kinds() {
        let queue = queue(&[(Mode::Exclusive, State::Held), (UNITS(1, 3), State::Held)]);

        assert_eq!(verdicts(&queue), [Verdict::Admitted, Verdict::OtherKind]);
    }
}
