//! Checks that the documentation matches the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use async_trait::async_trait;
use leasehold_conformance::document::{Store, case_table};
use leasehold_conformance::{Case, Harness, cases};
use leasehold_core::memory::MemoryBackend;
use leasehold_core::{Holder, LockKey};

/// The page whose tables this test writes.
const CASES: &str = "docs/conformance-cases.md";

/// The list of cases does not depend on the store that it is made for.
struct AnyStore;

#[async_trait]
impl Harness for AnyStore {
    type Backend = MemoryBackend;

    const NAME: &str = "any";

    async fn start() -> Self {
        Self
    }

    async fn connect(&self) -> MemoryBackend {
        MemoryBackend::new()
    }

    async fn probe(&self, _key: &LockKey) -> Option<Holder> {
        None
    }
}

fn all_cases() -> Vec<Case> {
    cases::<AnyStore>()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page() -> String {
    fs::read_to_string(root().join(CASES)).unwrap()
}

/// The text between two headings.
fn section<'a>(page: &'a str, heading: &str) -> &'a str {
    let start = page.find(&format!("## {heading}\n")).unwrap();
    let rest = &page[start..];
    rest[3..].find("\n## ").map_or(rest, |end| &rest[..end + 3])
}

/// The page with the counts and the table of cases that follow from its table of stores.
fn up_to_date(page: &str) -> String {
    let cases = all_cases();
    let mut stores = Vec::new();
    let row = |line: &str| match Store::parse(line) {
        Some(store) => {
            let row = store.row(&cases);
            stores.push(store);
            row
        }
        None => line.to_owned(),
    };
    let old = section(page, "Stores");
    let rows: Vec<String> = old.lines().map(row).collect();
    assert!(!stores.is_empty());
    let page = page.replace(old, &format!("{}\n", rows.join("\n")));
    let old = section(&page, "Cases");
    let intro = old.split("\n| ").next().unwrap().trim_end();
    page.replace(old, &format!("{intro}\n\n{}\n", case_table(&cases, &stores)))
}

#[test]
fn the_tables_are_true() {
    let page = page();
    let expected = up_to_date(&page);
    if page == expected {
        return;
    }
    assert!(
        std::env::var_os("LEASEHOLD_BLESS").is_some(),
        "{CASES} is stale: run `LEASEHOLD_BLESS=1 cargo test -p leasehold-conformance`"
    );
    fs::write(root().join(CASES), expected).unwrap();
}

#[test]
fn every_group_has_a_row_on_the_page_for_people() {
    let page = fs::read_to_string(root().join("docs/conformance.md")).unwrap();
    for case in all_cases() {
        let row = format!("| `{}` |", case.group);
        assert!(page.contains(&row), "docs/conformance.md has no row {row}");
    }
}

/// A row of the catalogue of hazards: its number, and the cell that tells where it is tested.
fn hazard(line: &str) -> Option<(u16, &str)> {
    let mut cells = line.split('|').skip(1);
    let number = cells.next()?.trim().parse().ok()?;
    Some((number, cells.nth(1)?.trim()))
}

/// Fails unless the cell names exactly the cases of that number, and otherwise files and tests in the file before them.
fn assert_tested(number: u16, cell: &str, cases: &[Case]) {
    let mut source = String::new();
    let mut named = BTreeSet::new();
    for name in cell.split('`').skip(1).step_by(2) {
        let path = root().join(name);
        if name.contains("::") {
            named.insert(name.to_owned());
        } else if path.exists() {
            source = fs::read_to_string(&path).unwrap_or_default();
        } else {
            assert!(source.contains(&format!("fn {name}(")), "{number}: there is no {name}");
        }
    }
    let of_number = cases.iter().filter(|case| case.numbers.contains(&number));
    assert_eq!(named, of_number.map(Case::path).collect(), "cases of {number}");
    assert!(
        cell.contains('`') || cell.starts_with("No test: "),
        "{number} has neither test nor reason"
    );
}

#[test]
fn every_hazard_names_its_tests() {
    let page = fs::read_to_string(root().join("docs/hazards.md")).unwrap();
    let cases = all_cases();
    let rows: Vec<(u16, &str)> = page.lines().filter_map(hazard).collect();

    let numbers: Vec<u16> = rows.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, (1..=218).collect::<Vec<u16>>());
    for (number, cell) in rows {
        assert_tested(number, cell, &cases);
    }
}

#[test]
fn every_case_that_the_documentation_names_exists_and_every_promise_has_one() {
    let paths: BTreeSet<String> = all_cases().iter().map(Case::path).collect();
    let contract = fs::read_to_string(root().join("core/src/contract/backend.rs")).unwrap();
    let promises: Vec<&str> =
        contract.lines().filter_map(|line| line.strip_prefix("/// | P")).collect();
    assert_eq!(promises.len(), 8);
    for promise in promises {
        let named: Vec<&str> =
            promise.split('`').skip(1).step_by(2).filter(|name| name.contains("::")).collect();
        assert!(!named.is_empty(), "no case shows P{promise}");
        for name in named {
            assert!(paths.contains(name), "there is no case {name}");
        }
    }
}

/// Returns the names of the methods that a trait of the contract declares.
fn methods(file: &str, name: &str) -> Vec<String> {
    let contract = fs::read_to_string(root().join("core/src/contract").join(file)).unwrap();
    let (_, methods) = contract.split_once(&format!("pub trait {name}")).unwrap();
    let (methods, _) = methods.split_once("\n}\n").unwrap();
    let names = methods.lines().filter_map(|line| {
        let line = line.strip_prefix("    ")?;
        let line = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
        Some(line.split('(').next()?.to_owned())
    });
    names.collect()
}

/// Returns the name of the request for a method: `renew_all` is sent as `RenewAll`.
fn request(method: &str) -> String {
    let capital = |word: &str| word[..1].to_uppercase() + &word[1..];
    method.split('_').map(capital).collect()
}

#[test]
fn the_check_of_decorators_covers_every_method() {
    let check = fs::read_to_string(root().join("conformance/src/decorator.rs")).unwrap();
    let (backend, admin, member) = (
        methods("backend.rs", "LockBackend"),
        methods("backend/admin.rs", "StoreAdmin"),
        methods("backend/member.rs", "Member"),
    );

    assert_eq!((backend.len(), admin.len(), member.len()), (12, 5, 4));
    // `capabilities` is a required method, and each request to a facet calls `admin` or `member`.
    let others = ["capabilities", "admin", "member"];
    for method in backend.iter().chain(&admin).chain(&member) {
        assert!(
            others.contains(&method.as_str())
                || check.contains(&format!("        Request::{}", request(method)))
                || check.contains(&format!("decorator.{method}(")),
            "no call of {method}"
        );
    }
}
