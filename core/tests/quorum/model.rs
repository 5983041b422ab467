//! The model of ordered tokens: every interleaving of a small quorum, searched breadth first.
//!
//! Members grant, lose leases early (a clock that jumps, an operator), lose their data, and learn the floors of others. Acquisitions
//! ask, choose their token, raise floors, return a guard, have members repaired, and end. Early ends may come at any time, but a guard is
//! returned only while a majority has its lease: that is the part of the deadline. The property: tokens of returned guards strictly
//! increase.
//!
//! The rules of [`SOUND`] hold in all states that there are. Each shortcut is refuted by a trace.

use std::collections::{HashMap, VecDeque};
use std::fmt;

const MEMBERS: usize = 3;
const MAJORITY: usize = MEMBERS / 2 + 1;
const ACQUISITIONS: usize = 2;

/// The rules that the model follows.
#[derive(Clone, Copy)]
struct Rules {
    /// The token of an acquisition, of the numbers that members granted, in order.
    choose: fn(&[u8]) -> u8,
    floor: Floor,
    recovery: Recovery,
    /// Members that may lose their data, one after the other.
    wipes: u8,
    /// Whether members that lost a lease early grant it again while a majority has it.
    repairs: bool,
}

/// The condition under which a member takes the token of an acquisition as its floor.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Floor {
    /// The acquisition's lease is in force there.
    UnderLease,
    /// The acquisition was granted there once.
    Blindly,
    /// None: a guard is returned without a floor.
    Never,
}

/// The conditions under which a member that lost its data votes again.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Recovery {
    /// All leases that it may have granted are over. It has then learnt the floors of a majority of voting others.
    LearnsAfterQuarantine,
    /// All leases that it may have granted are over.
    QuarantineAlone,
}

const SOUND: Rules = Rules {
    choose: largest,
    floor: Floor::UnderLease,
    recovery: Recovery::LearnsAfterQuarantine,
    wipes: 0,
    repairs: false,
};

fn largest(granted: &[u8]) -> u8 {
    granted[granted.len() - 1]
}

fn smallest(granted: &[u8]) -> u8 {
    granted[0]
}

fn majority_agrees(granted: &[u8]) -> u8 {
    granted[MAJORITY - 1]
}

#[derive(Clone, Copy, Eq, Hash, PartialEq)]
struct State {
    members: [Member; MEMBERS],
    acquisitions: [Acquisition; ACQUISITIONS],
    /// The token of the last guard.
    last: u8,
    wipes: u8,
    is_broken: bool,
}

#[derive(Clone, Copy, Eq, Hash, PartialEq)]
struct Member {
    holder: Option<usize>,
    counter: u8,
    votes: bool,
    /// The floor of a majority of others.
    learnt: Option<u8>,
}

#[derive(Clone, Copy, Eq, Hash, PartialEq)]
struct Acquisition {
    phase: Phase,
    /// The number that each member granted, or 0.
    granted: [u8; MEMBERS],
    token: u8,
    /// Whether a member has the token as a floor.
    floors: [bool; MEMBERS],
    repaired: [bool; MEMBERS],
}

#[derive(Clone, Copy, Eq, Hash, PartialEq)]
enum Phase {
    Asks,
    Raises,
    Returned,
    Over,
}

#[derive(Clone, Copy)]
enum Event {
    Chooses(usize),
    Ends(usize),
    Grants(usize, usize),
    LeaseEnds(usize),
    Learns(usize),
    Raises(usize, usize),
    Repairs(usize, usize),
    Returns(usize),
    Votes(usize),
    Wiped(usize),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chooses(a) => write!(f, "{a} chooses its token"),
            Self::Ends(a) => write!(f, "{a} ends"),
            Self::Grants(m, a) => write!(f, "member {m} grants to {a}"),
            Self::LeaseEnds(m) => write!(f, "the lease on member {m} ends"),
            Self::Learns(m) => write!(f, "member {m} learns floors"),
            Self::Raises(m, a) => write!(f, "member {m} takes the floor of {a}"),
            Self::Repairs(m, a) => write!(f, "member {m} grants to {a} again"),
            Self::Returns(a) => write!(f, "{a} returns its guard"),
            Self::Votes(m) => write!(f, "member {m} votes again"),
            Self::Wiped(m) => write!(f, "member {m} loses its data"),
        }
    }
}

/// The number of all states that there are, or the events that lead to two guards out of order.
fn search(rules: Rules) -> Result<usize, Vec<Event>> {
    let start = State::new(rules.wipes);
    let mut seen = HashMap::from([(start, None)]);
    let mut todo = VecDeque::from([start]);
    while let Some(state) = todo.pop_front() {
        for (event, next) in state.successors(rules) {
            if seen.contains_key(&next) {
                continue;
            }
            seen.insert(next, Some((state, event)));
            if next.is_broken {
                return Err(trace(&seen, next));
            }
            todo.push_back(next);
        }
    }
    Ok(seen.len())
}

fn trace(seen: &HashMap<State, Option<(State, Event)>>, mut state: State) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some((before, event)) = seen[&state] {
        events.push(event);
        state = before;
    }
    events.reverse();
    events
}

impl State {
    fn new(wipes: u8) -> Self {
        let member = Member { holder: None, counter: 0, votes: true, learnt: None };
        let acquisition = Acquisition {
            phase: Phase::Asks,
            granted: [0; MEMBERS],
            token: 0,
            floors: [false; MEMBERS],
            repaired: [false; MEMBERS],
        };
        Self {
            members: [member; MEMBERS],
            acquisitions: [acquisition; ACQUISITIONS],
            last: 0,
            wipes,
            is_broken: false,
        }
    }

    fn successors(self, rules: Rules) -> Vec<(Event, Self)> {
        let mut successors = Vec::new();
        for member in 0..MEMBERS {
            self.member_steps(member, rules, &mut successors);
        }
        for acquisition in 0..ACQUISITIONS {
            self.acquisition_steps(acquisition, rules, &mut successors);
        }
        successors
    }

    fn member_steps(self, m: usize, rules: Rules, successors: &mut Vec<(Event, Self)>) {
        let member = self.members[m];
        if member.holder.is_some() {
            successors.push((Event::LeaseEnds(m), self.with(|it| it.members[m].holder = None)));
        }
        if self.wipes > 0 {
            let wiped = self.with(|it| {
                it.members[m] = Member { holder: None, counter: 0, votes: false, learnt: None };
                it.wipes -= 1;
            });
            successors.push((Event::Wiped(m), wiped));
        }
        if member.votes {
            return;
        }
        if !self.is_quarantine_over(m) {
            return;
        }
        for floor in self.floors_of_others(m) {
            let learns = self.with(|it| it.members[m].learnt = Some(floor));
            successors.push((Event::Learns(m), learns));
        }
        let counter = match rules.recovery {
            Recovery::LearnsAfterQuarantine => member.learnt,
            Recovery::QuarantineAlone => Some(0),
        };
        if let Some(counter) = counter {
            let votes = Member { holder: None, counter, votes: true, learnt: None };
            successors.push((Event::Votes(m), self.with(|it| it.members[m] = votes)));
        }
    }

    /// No acquisition relies on grants that the member made before it lost its data.
    fn is_quarantine_over(&self, m: usize) -> bool {
        self.acquisitions.iter().all(|it| match it.phase {
            Phase::Asks => it.granted[m] == 0,
            Phase::Raises | Phase::Returned => false,
            Phase::Over => true,
        })
    }

    /// The largest counter of each majority of the members that vote, other than this one.
    fn floors_of_others(&self, m: usize) -> Vec<u8> {
        let others = (0..MEMBERS).filter(|other| *other != m && self.members[*other].votes);
        let mut counters: Vec<u8> = others.map(|other| self.members[other].counter).collect();
        counters.sort_unstable();
        counters.split_off(counters.len().min(MAJORITY - 1))
    }

    fn acquisition_steps(self, a: usize, rules: Rules, successors: &mut Vec<(Event, Self)>) {
        let it = self.acquisitions[a];
        for m in 0..MEMBERS {
            self.votes_of(m, a, rules, successors);
        }
        let mut granted: Vec<u8> = it.granted.into_iter().filter(|number| *number > 0).collect();
        if it.phase == Phase::Asks && granted.len() >= MAJORITY {
            granted.sort_unstable();
            let token = (rules.choose)(&granted);
            let floors = it.granted.map(|number| number >= token);
            let chosen = Acquisition { phase: Phase::Raises, token, floors, ..it };
            successors.push((Event::Chooses(a), self.with(|it| it.acquisitions[a] = chosen)));
        }
        let floors = it.floors.iter().filter(|has| **has).count();
        let has_floor = floors >= MAJORITY || rules.floor == Floor::Never;
        if it.phase == Phase::Raises && has_floor && self.votes_for(a) >= MAJORITY {
            let returned = self.with(|state| {
                state.acquisitions[a].phase = Phase::Returned;
                state.is_broken = it.token <= state.last;
                state.last = it.token;
            });
            successors.push((Event::Returns(a), returned));
        }
        if it.phase != Phase::Over && it.granted != [0; MEMBERS] {
            // A member that does not hear of it keeps the lease.
            let over = Acquisition { phase: Phase::Over, ..Self::new(0).acquisitions[a] };
            successors.push((Event::Ends(a), self.with(|it| it.acquisitions[a] = over)));
        }
    }

    fn votes_of(self, m: usize, a: usize, rules: Rules, successors: &mut Vec<(Event, Self)>) {
        let (it, member) = (self.acquisitions[a], self.members[m]);
        let is_free = member.votes && member.holder.is_none();
        match it.phase {
            Phase::Asks if is_free && it.granted[m] == 0 => {
                let grants = self.with(|state| {
                    state.acquisitions[a].granted[m] = state.grant(m, a);
                });
                successors.push((Event::Grants(m, a), grants));
            }
            Phase::Raises if !it.floors[m] => {
                let may = match rules.floor {
                    Floor::UnderLease => member.holder == Some(a),
                    Floor::Blindly => it.granted[m] > 0,
                    Floor::Never => false,
                };
                if may {
                    let raises = self.with(|state| {
                        state.members[m].counter = member.counter.max(it.token);
                        state.acquisitions[a].floors[m] = true;
                    });
                    successors.push((Event::Raises(m, a), raises));
                }
            }
            Phase::Returned
                if rules.repairs && is_free && !it.repaired[m] && self.votes_for(a) >= MAJORITY =>
            {
                let repairs = self.with(|state| {
                    state.grant(m, a);
                    state.acquisitions[a].repaired[m] = true;
                });
                successors.push((Event::Repairs(m, a), repairs));
            }
            _ => {}
        }
    }

    fn grant(&mut self, m: usize, a: usize) -> u8 {
        let member = &mut self.members[m];
        member.holder = Some(a);
        member.counter += 1;
        member.counter
    }

    /// Members that have its lease.
    fn votes_for(&self, a: usize) -> usize {
        self.members.iter().filter(|member| member.holder == Some(a)).count()
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

#[track_caller]
fn assert_holds(rules: Rules) {
    if let Err(trace) = search(rules) {
        let trace: Vec<String> = trace.iter().map(ToString::to_string).collect();
        panic!("two guards are out of order: {}", trace.join(" · "));
    }
}

#[track_caller]
fn assert_refuted(rules: Rules) {
    if let Ok(states) = search(rules) {
        panic!("no trace refutes it in {states} states");
    }
}

#[test]
fn largest_number_with_floor_holds() {
    assert_holds(SOUND);
}

#[test]
fn floors_hold_though_leases_are_repaired() {
    assert_holds(Rules { repairs: true, ..SOUND });
}

#[test]
fn wiped_member_that_learns_floors_holds() {
    assert_holds(Rules { wipes: 1, ..SOUND });
}

#[test]
fn second_wiped_member_that_learns_floors_holds() {
    assert_holds(Rules { wipes: 2, ..SOUND });
}

#[test]
fn smallest_number_is_refuted() {
    assert_refuted(Rules { choose: smallest, ..SOUND });
}

#[test]
fn number_that_majority_agrees_on_is_refuted() {
    assert_refuted(Rules { choose: majority_agrees, ..SOUND });
}

#[test]
fn largest_number_without_floor_is_refuted() {
    assert_refuted(Rules { floor: Floor::Never, ..SOUND });
}

#[test]
fn floor_without_lease_is_refuted() {
    assert_refuted(Rules { floor: Floor::Blindly, ..SOUND });
}

#[test]
fn quarantine_alone_is_refuted() {
    assert_refuted(Rules { recovery: Recovery::QuarantineAlone, wipes: 1, ..SOUND });
}
