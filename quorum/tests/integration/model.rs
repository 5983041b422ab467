//! The model of ordered tokens: every interleaving of a small quorum, searched breadth first.
//!
//! Members grant leases, lose leases early (because a clock jumps or an operator ends them), lose
//! their data, and adopt the minimum tokens of other members. Acquisitions send requests, choose
//! their token, raise minimum tokens, return a guard, have members repaired, and end. A lease may
//! end early at any time. Because of its deadline, a guard is returned only if a majority holds the
//! lease. In each state, the tokens of returned guards must strictly increase.
//!
//! The rules of [`SOUND`] are correct in all reachable states. A trace refutes each weaker rule.

use std::collections::{HashMap, VecDeque};
use std::fmt;

const MEMBERS: usize = 3;
const MAJORITY: usize = MEMBERS / 2 + 1;
const ACQUISITIONS: usize = 2;

/// The rules that the model follows.
#[derive(Clone, Copy)]
struct Rules {
    /// Chooses the token of an acquisition from the sorted numbers that the members granted.
    choose: fn(&[u8]) -> u8,
    min_token: MinToken,
    recovery: Recovery,
    /// How many times a member may lose its data.
    wipes: u8,
    /// Whether members that lost a lease early grant it again while a majority has it.
    repairs: bool,
}

/// The condition under which a member adopts the token of an acquisition as its minimum token.
#[derive(Clone, Copy, Eq, PartialEq)]
enum MinToken {
    /// The acquisition's lease is in force on the member.
    UnderLease,
    /// The member granted the acquisition earlier.
    Blindly,
    /// No member adopts the token before the guard is returned.
    Never,
}

/// The condition under which a member that lost its data votes again.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Recovery {
    /// All leases that the member may have granted have ended. After that, the member has adopted
    /// the minimum token of a majority of the other members with a vote.
    LearnsAfterQuarantine,
    /// All leases that the member may have granted have ended.
    QuarantineAlone,
}

const SOUND: Rules = Rules {
    choose: largest,
    min_token: MinToken::UnderLease,
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
    /// The minimum token of a majority of the other members.
    learnt: Option<u8>,
}

#[derive(Clone, Copy, Eq, Hash, PartialEq)]
struct Acquisition {
    phase: Phase,
    /// The number that each member granted, or 0.
    granted: [u8; MEMBERS],
    token: u8,
    /// Whether each member has adopted the token as its minimum token.
    min_tokens: [bool; MEMBERS],
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
            Self::Learns(m) => write!(f, "member {m} reads minimum tokens"),
            Self::Raises(m, a) => write!(f, "member {m} adopts the token of {a} as its minimum"),
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
            min_tokens: [false; MEMBERS],
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
        for min_token in self.min_tokens_of_others(m) {
            let learns = self.with(|it| it.members[m].learnt = Some(min_token));
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
    fn min_tokens_of_others(&self, m: usize) -> Vec<u8> {
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
            let min_tokens = it.granted.map(|number| number >= token);
            let chosen = Acquisition { phase: Phase::Raises, token, min_tokens, ..it };
            successors.push((Event::Chooses(a), self.with(|it| it.acquisitions[a] = chosen)));
        }
        let min_tokens = it.min_tokens.iter().filter(|has| **has).count();
        let has_min_token = min_tokens >= MAJORITY || rules.min_token == MinToken::Never;
        if it.phase == Phase::Raises && has_min_token && self.votes_for(a) >= MAJORITY {
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
            Phase::Raises if !it.min_tokens[m] => {
                let may = match rules.min_token {
                    MinToken::UnderLease => member.holder == Some(a),
                    MinToken::Blindly => it.granted[m] > 0,
                    MinToken::Never => false,
                };
                if may {
                    let raises = self.with(|state| {
                        state.members[m].counter = member.counter.max(it.token);
                        state.acquisitions[a].min_tokens[m] = true;
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
fn largest_number_with_min_token_holds() {
    assert_holds(SOUND);
}

#[test]
fn min_tokens_hold_though_leases_are_repaired() {
    assert_holds(Rules { repairs: true, ..SOUND });
}

#[test]
fn wiped_member_that_reads_min_tokens_holds() {
    assert_holds(Rules { wipes: 1, ..SOUND });
}

#[test]
fn second_wiped_member_that_reads_min_tokens_holds() {
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
fn largest_number_without_min_token_is_refuted() {
    assert_refuted(Rules { min_token: MinToken::Never, ..SOUND });
}

#[test]
fn min_token_without_lease_is_refuted() {
    assert_refuted(Rules { min_token: MinToken::Blindly, ..SOUND });
}

#[test]
fn quarantine_alone_is_refuted() {
    assert_refuted(Rules { recovery: Recovery::QuarantineAlone, wipes: 1, ..SOUND });
}
