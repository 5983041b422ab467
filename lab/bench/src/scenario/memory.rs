//! One task with one key in memory: the cost of our own code.

use super::cycle::{self, Keys};
use crate::args::Args;
use crate::contest::Contest;
use crate::lockers::LockerKind;
use crate::measure::Measure;
use crate::outcome::Outcome;
use crate::target::{Bound, Target};

pub(super) async fn run(args: &Args) -> Outcome {
    let title = "In memory, one task, one key: lock and release";
    let mut contest = Contest::new("memory", title);
    let kind = [LockerKind::Tokio, LockerKind::Memory];
    cycle::add(&mut contest, args, &kind, (1, Keys::OwnAndUntimed), || (String::new(), None)).await;
    let target = Target::new(LockerKind::Memory.name(), Measure::TIME, Bound::AtMost(1.5));
    contest.targets = vec![target];
    contest.run(args).await
}
