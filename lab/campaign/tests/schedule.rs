//! The seed decides the schedule, and each kind of fault has its turn.

use std::collections::HashSet;

use leasehold_campaign::class::Class;
use leasehold_campaign::fault::{CATALOGUE, Fault};
use leasehold_campaign::schedule::Schedule;

fn drawn(seed: u64, class: Class, slots: usize) -> Vec<String> {
    let slots = Schedule::new(seed, Fault::fitting(class, true)).take(slots);
    let text = |(fault, time): &(&Fault, _)| format!("{} {time:?}", fault.kind);
    slots.map(|slot| slot.faults.iter().map(text).collect::<Vec<_>>().join(" and ")).collect()
}

#[test]
fn a_seed_decides_the_schedule() {
    assert_eq!(drawn(7, Class::Redis, 50), drawn(7, Class::Redis, 50));
    assert_ne!(drawn(7, Class::Redis, 50), drawn(8, Class::Redis, 50));
}

#[test]
fn each_kind_comes_before_any_comes_again() {
    for class in Class::REAL {
        let kinds = Fault::fitting(class, true);
        let slots: Vec<_> = Schedule::new(1, kinds.clone()).take(kinds.len()).collect();
        let all = slots.iter().flat_map(|slot| &slot.faults).take(kinds.len());

        let different: HashSet<_> = all.map(|(fault, _)| fault.kind).collect();
        assert_eq!(different.len(), kinds.len(), "{class:?}");
    }
}

#[test]
fn faults_at_the_same_time_are_of_different_parts() {
    let slots = Schedule::new(1, Fault::fitting(Class::Sentinel, true)).take(500);
    let mut doubles = slots.filter(|slot| slot.faults.len() > 1).peekable();

    assert!(doubles.peek().is_some());
    assert!(doubles.all(|slot| slot.faults[0].0.part.is_beside(slot.faults[1].0.part)));
}

#[test]
fn the_page_on_reliability_names_each_kind() {
    let page = include_str!("../../../docs/reliability.md");

    for fault in CATALOGUE {
        assert!(page.contains(&format!("`{}`", fault.kind)), "{}", fault.kind);
    }
}

#[test]
fn a_class_has_one_fault_of_each_kind() {
    for class in Class::REAL {
        let kinds: Vec<_> = Fault::fitting(class, true).iter().map(|fault| fault.kind).collect();
        let different: HashSet<_> = kinds.iter().collect();

        assert_eq!(different.len(), kinds.len(), "{class:?}: {kinds:?}");
    }
    let kinds: HashSet<_> = CATALOGUE.iter().map(|fault| fault.kind).collect();
    assert!(kinds.len() >= 30, "{}", kinds.len());
}
