//! Generates the documentation page about the suite, and checks that the page is up to date.

use std::fmt::Write;

use crate::case::Case;
use crate::harness::{Groups, Harness};
use crate::list;
use crate::need::Need;
use crate::pool::Sharing;
use crate::profile::Profile;
use crate::scene::Scene;
use crate::subject::Subject;

/// A row of the table of stores on the documentation page.
///
/// [`assert_documented`] compares this row with the page.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Store {
    name: String,
    has: Vec<Need>,
    /// The names of the groups that run on the store. The list is empty if all groups run.
    groups: Vec<String>,
    /// The subjects whose cases run on the store.
    subjects: Vec<Subject>,
}

impl Store {
    /// Returns the row for the harness `H`, with its backend's features and facets, and its hooks.
    pub fn of<H: Harness>() -> Self {
        let store = Profile::of::<H>();
        let supported: Vec<Need> = store.runtime().block_on(async {
            let scene = Scene::start(store, Sharing::Now).await;
            let backend = scene.backend().await;
            scene.give_back();
            Need::ALL.into_iter().filter(|need| need.is_met_by(&backend)).collect()
        });
        let has = |need: &Need| match need {
            Need::VirtualTime => store.subjects.contains(&Subject::Layers),
            hook if hook.is_hook() => store.offers(*hook),
            need => supported.contains(need),
        };
        let groups = match store.groups {
            Groups::All => Vec::new(),
            Groups::Named(names) => names.iter().map(ToString::to_string).collect(),
        };
        let has_all_the_same = store.lacks.iter().find(|need| has(need));
        assert_eq!(
            has_all_the_same, None,
            "the LACKS list of {} contains a feature that its backend supports",
            store.name
        );
        let has = Need::ALL.into_iter().filter(has).collect();
        Self { name: store.name.to_owned(), has, groups, subjects: store.subjects.to_vec() }
    }

    /// Returns the row as text.
    pub fn row(&self, cases: &[Case]) -> String {
        let runs = cases.iter().filter(|case| self.runs(case)).count();
        let (hooks, features): (Vec<Need>, Vec<Need>) =
            self.has.iter().partition(|need| need.is_hook());
        let groups = if self.groups.is_empty() { "all".to_owned() } else { self.groups.join(", ") };
        format!(
            "| {} | {} | {} | {groups} | {} | {runs} | {} |",
            self.name,
            join(&features),
            join(&hooks),
            join(&self.subjects),
            cases.len() - runs
        )
    }

    /// Parses a row.
    pub fn parse(row: &str) -> Option<Self> {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let [_, name, features, hooks, groups, subjects, runs, _, _] = cells.as_slice() else {
            return None;
        };
        runs.parse::<usize>().ok()?;
        let named = format!("{features}, {hooks}");
        let has = Need::ALL
            .into_iter()
            .filter(|need| named.split(", ").any(|name| name == need.to_string()));
        let groups = groups.split(", ").filter(|name| *name != "all").map(ToOwned::to_owned);
        let subjects = Subject::ALL
            .into_iter()
            .filter(|subject| subjects.split(", ").any(|name| name == subject.to_string()));
        Some(Self {
            name: (*name).to_owned(),
            has: has.collect(),
            groups: groups.collect(),
            subjects: subjects.collect(),
        })
    }

    fn runs(&self, case: &Case) -> bool {
        let in_group = self.groups.is_empty() || self.groups.iter().any(|name| name == case.group);
        in_group
            && self.subjects.contains(&case.subject)
            && case.needs.iter().all(|need| self.has.contains(need))
    }
}

/// Checks that `page` contains the row for the harness `H`.
///
/// [`Suites::documented_in`](crate::Suites::documented_in) adds a test that calls this function.
///
/// # Panics
///
/// Panics with the expected row if the page does not contain it.
pub fn assert_documented<H: Harness>(page: &str) {
    let row = Store::of::<H>().row(&list::cases::<H>());
    assert!(
        page.lines().any(|line| line == row),
        "the page does not contain the expected row:\n{row}"
    );
}

/// Returns a table that shows which cases run on which store.
///
/// The page `docs/conformance.md` in the repository contains this table.
pub fn case_table(cases: &[Case], stores: &[Store]) -> String {
    let mut table = String::from("| number | case | subject | needs |");
    for store in stores {
        write!(table, " {} |", store.name).expect("writing to a String never fails");
    }
    table += "\n| --- | --- | --- | --- |";
    table += &" --- |".repeat(stores.len());
    for case in cases {
        let numbers: Vec<_> = case.numbers.iter().map(ToString::to_string).collect();
        let (path, needs) = (case.path(), join(case.needs));
        let (numbers, subject) = (numbers.join(", "), case.subject);
        write!(table, "\n| {numbers} | `{path}` | {subject} | {needs} |").expect("as above");
        for store in stores {
            table += if store.runs(case) { " ✓ |" } else { " – |" };
        }
    }
    table
}

fn join(words: &[impl ToString]) -> String {
    if words.is_empty() {
        return "–".to_owned();
    }
    words.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
