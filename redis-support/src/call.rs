//! Operations as calls of scripts.

mod member;

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::backend::{Claim, Lease, Patience, Share, Tenure};
use leasehold_core::{Description, LockKey, LockOptions};

use crate::layout::{Layout, Place, Places};
use crate::script::Script;

/// A script with its keys and arguments. `Debug` leaves the arguments out: they hold lease ids.
/// Clones share them, and so do calls that are made together.
#[derive(Clone)]
pub struct Call {
    shape: Shape,
    words: Arc<Words>,
}

/// What a call is made of.
#[derive(Clone)]
struct Shape {
    script: Script,
    /// Whether the server is to tell from then on what others do to the keys.
    wants_news: bool,
    /// Which words are its keys.
    keys: Range<usize>,
    /// How many of them it cannot do without: the first.
    essential: usize,
    /// Which words are its arguments.
    args: Range<usize>,
}

/// Keys and then arguments, of one call after the other.
#[derive(Default)]
struct Words {
    text: String,
    /// Where each of them ends.
    ends: Vec<usize>,
    /// Which are the keys of the last call.
    keys: Range<usize>,
}

/// What every claim looks at; the first of them tell whether anybody else is about.
const WANTED: [Place<'_>; 7] = [
    Place::Lock,
    Place::Fence,
    Place::Held,
    Place::Queue,
    Place::Revoke,
    Place::Places,
    Place::News,
];

impl Call {
    /// As many locks as one call acquires: each is work for which the server keeps all others waiting.
    pub const MAX_TOGETHER: usize = 64;

    /// The call that attempts to acquire.
    ///
    /// A client that waits for a mutex and listens to `channel` is told there once the key is kept for it.
    pub fn acquire(layout: &Layout, claim: &Claim, channel: Option<&str>) -> Self {
        let (of, lease) = (layout.places(claim.key()), claim.lease());
        let id = lease.id().secret();
        let (place, patience) = match claim.patience() {
            Patience::Waits => (LockOptions::PLACE_TTL.min(lease.ttl()), Patience::RESERVATION),
            _ => (claim.place().unwrap_or_default(), Duration::ZERO),
        };
        match lease.share() {
            Share::Whole => {
                let charter = claim.charter().map(|charter| (charter, layout.member()));
                let words = Words::of(&of, &WANTED).keys(&of, &[Place::NewsFor(&id)]);
                let words = match &charter {
                    Some((_, member)) => words.key(&member.record),
                    None => words,
                };
                let words = words
                    .value(lease)
                    .millis(lease.ttl())
                    .number(claim.spare_tokens())
                    .word(&id)
                    .millis(place)
                    .millis(patience)
                    .word(channel.unwrap_or("-"));
                if let Some((charter, member)) = &charter {
                    let words = words.word(charter.as_str()).number(claim.least_token());
                    let words = words.word(&member.floor);
                    return Self::new(words.shape(Script::AcquireUnderCharter), words);
                }
                // One that is renewed asks for news then.
                let is_told = lease.tenure() == Tenure::Fixed;
                let shape = Shape { wants_news: is_told, ..words.shape(Script::Acquire) };
                Self::new(shape, words)
            }
            Share::Units { units, limit } => {
                let words = Words::of(&of, &WANTED)
                    .keys(&of, &[Place::Units, Place::NewsFor(&id)])
                    .word(&id)
                    .millis(lease.ttl())
                    .number(units)
                    .number(limit)
                    .description(lease)
                    .millis(place)
                    .millis(patience);
                Self::new(words.shape(Script::AcquireUnits), words)
            }
        }
    }

    /// The call that attempts to acquire all of several locks. `None` for claims of units, and for more than
    /// [`MAX_TOGETHER`](Self::MAX_TOGETHER).
    ///
    /// The locks are in any hash slots: a cluster does not take it.
    pub fn acquire_all(layout: &Layout, claims: &[Claim]) -> Option<Self> {
        let whole = claims.iter().all(|claim| claim.share().is_whole());
        if !whole || claims.len() > Self::MAX_TOGETHER {
            return None;
        }
        let with_keys =
            |words: Words, claim: &Claim| words.keys(&layout.places(claim.key()), &WANTED);
        let with_args = |words: Words, claim: &Claim| {
            let lease = claim.lease();
            words.value(lease).millis(lease.ttl()).id(lease)
        };
        let words = claims.iter().fold(Words::default(), with_keys);
        let words = claims.iter().fold(words, with_args);
        Some(Self::new(words.shape(Script::AcquireAll), words))
    }

    /// The call that renews.
    pub fn renew(layout: &Layout, lease: &Lease) -> Self {
        let (shape, words) = Words::default().renewal(layout, lease);
        Self::new(shape, words)
    }

    /// The calls that renew many. All of them are one text, since there may be many of them for as long as anything is held.
    pub fn renew_all(layout: &Layout, leases: &[Lease]) -> Vec<Self> {
        let mut words = Words::default();
        let mut shapes = Vec::with_capacity(leases.len());
        for lease in leases {
            let (shape, more) = words.renewal(layout, lease);
            words = more;
            shapes.push(shape);
        }
        let words = Arc::new(words);
        shapes.into_iter().map(|shape| Self { shape, words: Arc::clone(&words) }).collect()
    }

    /// The call that releases.
    pub fn release(layout: &Layout, lease: &Lease) -> Self {
        let of = layout.places(lease.key());
        match lease.share() {
            Share::Whole => {
                let keys = [Place::Lock, Place::Queue, Place::Places, Place::News];
                let words = Words::of(&of, &keys).value(lease).id(lease);
                let shape = words.shape(Script::Release).with_essential(1);
                Self::new(Shape { wants_news: false, ..shape }, words)
            }
            Share::Units { .. } => {
                let keys = [Place::Held, Place::Units, Place::Queue, Place::Places, Place::News];
                let words = Words::of(&of, &keys).id(lease);
                Self::new(words.shape(Script::ReleaseUnits).with_essential(2), words)
            }
        }
    }

    /// The call that inspects.
    pub fn inspect(layout: &Layout, key: &LockKey) -> Self {
        let keys = [
            Place::Lock,
            Place::Fence,
            Place::Held,
            Place::Units,
            Place::News,
            Place::Queue,
            Place::Places,
        ];
        Self::on(layout, key, &keys, Script::Inspect)
    }

    /// The call that ends others' leases.
    pub fn force_release(layout: &Layout, key: &LockKey) -> Self {
        let keys = [
            Place::Lock,
            Place::Fence,
            Place::Held,
            Place::Units,
            Place::News,
            Place::Revoke,
            Place::Queue,
            Place::Places,
        ];
        Self::on(layout, key, &keys, Script::ForceRelease)
    }

    /// The call that asks holders to finish.
    pub fn request_revocation(layout: &Layout, key: &LockKey) -> Self {
        let keys = [Place::Lock, Place::Held, Place::Revoke];
        Self::on(layout, key, &keys, Script::Revoke)
    }

    /// A call that takes nothing but keys.
    fn on(layout: &Layout, key: &LockKey, keys: &[Place<'_>], script: Script) -> Self {
        let words = Words::of(&layout.places(key), keys);
        Self::new(words.shape(script), words)
    }

    fn new(shape: Shape, words: Words) -> Self {
        Self { shape, words: Arc::new(words) }
    }

    /// The same with only those keys that are there as long as the lease is in force, if there are others: what it does for them
    /// is not done then. A server of which a slot is on its way to another one runs no script that names keys which are not there.
    pub(crate) fn with_essential_keys(&self) -> Option<Self> {
        let Shape { keys, essential, .. } = &self.shape;
        let kept = keys.start..keys.start + essential;
        (kept != *keys).then(|| Self {
            shape: Shape { keys: kept, ..self.shape.clone() },
            words: Arc::clone(&self.words),
        })
    }

    /// Whether the server is to tell from then on what others do to the keys.
    pub(crate) fn wants_news(&self) -> bool {
        self.shape.wants_news
    }

    /// How many bytes it has, nearly.
    pub(crate) fn size(&self) -> usize {
        self.words.start(self.shape.args.end) - self.words.start(self.shape.keys.start)
    }

    /// The script.
    pub fn script(&self) -> Script {
        self.shape.script
    }

    /// All keys that the script touches, those of one lock in one hash slot.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.shape.keys.clone().map(|index| self.words.get(index))
    }

    /// The arguments after the keys. They may hold a lease id.
    pub fn args(&self) -> impl ExactSizeIterator<Item = &str> {
        self.shape.args.clone().map(|index| self.words.get(index))
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What is for one claim alone has its id in its name.
        let keys: Vec<_> = self.keys().filter_map(|key| key.split('#').next()).collect();
        f.debug_struct("Call")
            .field("script", &self.script())
            .field("keys", &keys)
            .finish_non_exhaustive()
    }
}

impl Words {
    /// Most calls have no more arguments than that, of so many bytes.
    const ARGS: (usize, usize) = (8, 256);

    fn of(of: &Places<'_>, keys: &[Place<'_>]) -> Self {
        Self::default().next(of, keys)
    }

    /// Begins a call.
    fn next(mut self, of: &Places<'_>, keys: &[Place<'_>]) -> Self {
        let (args, bytes) = Self::ARGS;
        self.text.reserve(keys.len() * of.len() + bytes);
        self.ends.reserve(keys.len() + args);
        self.keys = self.ends.len()..self.ends.len();
        self.keys(of, keys)
    }

    /// Adds a call that renews.
    fn renewal(self, layout: &Layout, lease: &Lease) -> (Shape, Self) {
        let of = layout.places(lease.key());
        match lease.share() {
            Share::Whole if lease.floor() > 0 => {
                let words = self.next(&of, &[Place::Lock, Place::Revoke, Place::Fence]);
                let words = words.value(lease).millis(lease.ttl()).number(lease.floor());
                let words = words.word(&layout.member().floor);
                (words.shape(Script::RaiseFloor), words)
            }
            Share::Whole => {
                let words = self.next(&of, &[Place::Lock, Place::Revoke]);
                let words = words.value(lease).millis(lease.ttl());
                (words.shape(Script::Renew).with_essential(1), words)
            }
            Share::Units { units, .. } => {
                let keys = [
                    Place::Held,
                    Place::Units,
                    Place::Queue,
                    Place::Places,
                    Place::News,
                    Place::Revoke,
                ];
                let words = self
                    .next(&of, &keys)
                    .id(lease)
                    .millis(lease.ttl())
                    .number(units)
                    .description(lease);
                (words.shape(Script::RenewUnits).with_essential(2), words)
            }
        }
    }

    /// That of the last call. All keys are essential.
    fn shape(&self, script: Script) -> Shape {
        let (keys, args) = (self.keys.clone(), self.keys.end..self.ends.len());
        Shape { script, wants_news: true, essential: keys.len(), keys, args }
    }

    fn keys(mut self, of: &Places<'_>, keys: &[Place<'_>]) -> Self {
        for key in keys {
            of.write(*key, &mut self.text);
            self.ends.push(self.text.len());
        }
        self.keys.end = self.ends.len();
        self
    }

    /// Adds a key that belongs to no lock.
    fn key(mut self, name: &str) -> Self {
        self = self.word(name);
        self.keys.end = self.ends.len();
        self
    }

    fn word(mut self, word: &str) -> Self {
        self.text.push_str(word);
        self.ends.push(self.text.len());
        self
    }

    fn number(mut self, number: impl fmt::Display) -> Self {
        write!(self.text, "{number}").expect("a string takes whatever is written");
        self.word("")
    }

    /// A time as the server takes it: in whole milliseconds, rounded up.
    fn millis(self, time: Duration) -> Self {
        self.number(time.as_nanos().div_ceil(1_000_000))
    }

    /// The id of a lease.
    fn id(mut self, lease: &Lease) -> Self {
        lease.id().write_secret(&mut self.text);
        self.word("")
    }

    /// What lies under the key of a lock.
    fn value(mut self, lease: &Lease) -> Self {
        lease.id().write_secret(&mut self.text);
        match lease.description() {
            Some(description) => {
                self.text.push(' ');
                self.word(description.as_str())
            }
            None => self.word(""),
        }
    }

    /// Who holds a lease, in words; nothing if it does not say.
    fn description(self, lease: &Lease) -> Self {
        self.word(lease.description().map(Description::as_str).unwrap_or_default())
    }

    /// Where a word begins.
    fn start(&self, index: usize) -> usize {
        index.checked_sub(1).map_or(0, |before| self.ends[before])
    }

    fn get(&self, index: usize) -> &str {
        &self.text[self.start(index)..self.ends[index]]
    }
}

impl Shape {
    fn with_essential(self, essential: usize) -> Self {
        Self { essential, ..self }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::backend::Charter;

    use super::*;

    fn lease() -> Lease {
        Lease::new(&LockKey::new("k").unwrap(), Duration::from_micros(1_500))
    }

    fn arg(call: &Call, index: usize) -> String {
        call.args().nth(index).unwrap().to_owned()
    }

    #[test]
    fn the_value_is_the_id_and_who_it_is() {
        let bare = lease();
        let described = lease().with_description(Some(Description::new("web-1/42").unwrap()));
        let value = |lease: &Lease| arg(&Call::renew(&Layout::default(), lease), 0);

        assert_eq!(value(&bare), bare.id().secret());
        assert_eq!(value(&described), format!("{} web-1/42", described.id().secret()));
    }

    #[test]
    fn ttls_are_rounded_up() {
        assert_eq!(arg(&Call::renew(&Layout::default(), &lease()), 1), "2");
    }

    #[test]
    fn without_the_keys_that_may_be_missing_the_arguments_are_the_same() {
        let call = Call::release(&Layout::default(), &lease());
        let less = call.with_essential_keys().unwrap();

        assert!(less.keys().eq(["lock:k"]) && call.keys().len() == 4);
        assert!(less.args().eq(call.args()));
        assert!(less.with_essential_keys().is_none());
    }

    #[test]
    fn a_charter_takes_a_script_and_words_of_its_own() {
        let (layout, charter) = (Layout::default(), Charter::new(["a"], Duration::from_secs(1)));
        let plain = Claim::new(lease()).with_least_token(7);
        let under = plain.clone().with_charter(charter.clone());
        let [plain, under] = [plain, under].map(|claim| Call::acquire(&layout, &claim, None));

        assert_eq!(under.script(), Script::AcquireUnderCharter);
        assert!(under.keys().eq(plain.keys().chain(["lock:~member"])));
        assert!(under.args().skip(7).eq([charter.as_str(), "7", "lock:~floor"]));
        assert_eq!((plain.script(), plain.args().len()), (Script::Acquire, 7));
    }

    #[test]
    fn a_floor_takes_a_script_of_its_own() {
        let renew = |lease: &Lease| Call::renew(&Layout::default(), lease);
        let (plain, raised) = (renew(&lease()), renew(&lease().with_floor(9)));

        assert_eq!((plain.script(), raised.script()), (Script::Renew, Script::RaiseFloor));
        assert!(raised.keys().take(2).eq(plain.keys()) && raised.keys().len() == 3);
        assert!(raised.args().skip(2).eq(["9", "lock:~floor"]));
    }

    #[test]
    fn joint_renewals_are_the_same_as_single_ones() {
        let units = lease().with_share(Share::Units { units: 2, limit: 3 });
        let (layout, leases) = (Layout::default(), [lease(), units, lease()]);
        let together = Call::renew_all(&layout, &leases);

        for (call, lease) in together.iter().zip(&leases) {
            let alone = Call::renew(&layout, lease);
            assert_eq!((call.script(), call.size()), (alone.script(), alone.size()));
            assert!(call.keys().eq(alone.keys()) && call.args().eq(alone.args()));
            let (less, of_one) = (call.with_essential_keys(), alone.with_essential_keys());
            assert!(less.unwrap().keys().eq(of_one.unwrap().keys()));
        }
        assert_eq!(together.len(), leases.len());
    }

    #[test]
    fn debug_keeps_the_id_to_itself() {
        let (layout, claim) = (Layout::default(), Claim::new(lease()));
        let calls = [Call::renew(&layout, claim.lease()), Call::acquire(&layout, &claim, None)];
        let shown = format!("{calls:?}");

        assert!(!shown.contains(&claim.id().secret()), "{shown}");
    }
}
