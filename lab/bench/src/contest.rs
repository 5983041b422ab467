//! Contestants that take turns, so that other load on the machine strikes all of them alike.

use std::time::Duration;

use async_trait::async_trait;

use crate::args::Args;
use crate::outcome::Outcome;
use crate::round::Round;
use crate::target::Target;

/// One way to do something.
#[async_trait]
pub(crate) trait Contestant: Send {
    fn name(&self) -> String;

    /// Works for as long as `turn` says or takes, and returns its figures.
    async fn round(&mut self, turn: Turn) -> Round;
}

/// How often a turn without figures is taken again, four times as long each time.
const REPEATS: u32 = 3;

/// A contestant's turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    /// From 1; 0 is for connections, caches and sessions, and its figures are not used.
    pub(crate) round: u32,
    /// For how long.
    pub(crate) time: Duration,
    /// The contestant's number.
    contestant: usize,
    /// How often this turn was taken before.
    repeat: u32,
}

impl Turn {
    pub(crate) fn is_warm_up(&self) -> bool {
        self.round == 0
    }

    /// A prefix of keys that is new on its server.
    pub(crate) fn prefix(&self) -> String {
        format!("bench/{:02}/{:02}/{}", self.round, self.contestant, self.repeat)
    }

    /// The same turn once more, with more time.
    fn again(self) -> Self {
        Self { time: self.time * 4, repeat: self.repeat + 1, ..self }
    }
}

/// A contest over some measures.
pub(crate) struct Contest {
    pub(crate) name: String,
    pub(crate) title: String,
    /// The others are compared with the first one.
    pub(crate) contestants: Vec<Box<dyn Contestant>>,
    pub(crate) targets: Vec<Target>,
    /// Not where every turn is a fresh process that takes minutes.
    pub(crate) warms_up: bool,
}

impl Contest {
    pub(crate) fn new(name: impl Into<String>, title: impl Into<String>) -> Self {
        let (name, title) = (name.into(), title.into());
        Self { name, title, contestants: Vec::new(), targets: Vec::new(), warms_up: true }
    }

    /// Adds a contestant, if the arguments ask for it.
    pub(crate) fn add(&mut self, args: &Args, contestant: impl Contestant + 'static) {
        if contestant.name().contains(&args.only) {
            self.contestants.push(Box::new(contestant));
        }
    }

    /// Lets the contestants take turns.
    pub(crate) async fn run(mut self, args: &Args) -> Outcome {
        let mut rounds = vec![Vec::new(); self.contestants.len()];
        for round in u32::from(!self.warms_up)..=args.rounds {
            eprintln!("{}: round {round} of {}", self.name, args.rounds);
            let time = if round == 0 { args.time() / 3 } else { args.time() };
            for (i, contestant) in self.contestants.iter_mut().enumerate() {
                let mut turn = Turn { round, time, contestant: i, repeat: 0 };
                let mut figures = contestant.round(turn).await;
                while figures.is_void() && turn.repeat < REPEATS && round > 0 {
                    turn = turn.again();
                    figures = contestant.round(turn).await;
                }
                if round > 0 {
                    rounds[i].push(figures);
                }
            }
        }
        let names = self.contestants.iter().map(|contestant| contestant.name());
        Outcome::new(self.name, self.title, names.zip(rounds).collect(), &self.targets)
    }
}
