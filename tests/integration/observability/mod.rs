//! The page on observability lists all events and metrics, and nothing else; none of them has secrets.

mod capture;
mod documents;
mod redis;
mod scenario;
mod service;
mod spans;

use std::collections::BTreeSet;

/// A row of a table: the cells between the bars, without backquotes.
type Row = Vec<String>;

/// The rows of the table under a heading of the page.
fn rows(heading: &str) -> Vec<Row> {
    let page = include_str!("../../../docs/observability.md");
    let (_, part) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let (part, _) = part.split_once("\n## ").unwrap_or((part, ""));
    let cells = |line: &str| -> Row {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.replace('`', "").trim().to_owned()).collect()
    };
    let table = part.lines().filter(|line| line.starts_with('|'));
    let rows: Vec<Row> = table.skip(2).map(cells).collect();
    assert!(rows.len() > 3, "no table under {heading}");
    rows
}

/// The parts of a list, in no order.
fn set(list: &str) -> BTreeSet<String> {
    list.split(", ").map(|part| part.trim_matches('*').to_owned()).collect()
}
