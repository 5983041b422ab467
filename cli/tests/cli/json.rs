//! The fields of JSON objects are those that `docs/operating.md` lists.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::support::{Home, Running, text};

/// Fields that are present only in some cases.
const OPTIONAL: [&str; 3] = ["key_bytes", "members", "key"];

/// The documented fields of the output with this title.
fn documented(title: &str) -> BTreeSet<String> {
    let page = include_str!("../../../docs/operating.md");
    let (_, page) = page.split_once("### JSON output").unwrap();
    let row = page.lines().find(|line| line.starts_with(&format!("| {title} | ")));
    let row = row.unwrap_or_else(|| panic!("there is no row for {title}"));
    let fields = row.rsplit(" | ").next().unwrap().trim_end_matches(" |");
    fields.split(", ").map(|field| field.trim_matches('`').to_owned()).collect()
}

fn fields(object: &Value) -> BTreeSet<String> {
    object.as_object().unwrap().keys().cloned().collect()
}

/// Compares each line of `output` with the rows of these titles: the first lines with the first title, and the last lines with the
/// following titles.
fn matches_documentation(output: &[u8], titles: &[&str]) {
    let output = text(output);
    let lines: Vec<Value> =
        output.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() >= titles.len(), "{titles:?}: {output}");
    let first = lines.len() - titles.len() + 1;
    let titles = std::iter::repeat_n(&titles[0], first).chain(&titles[1..]);
    for (line, title) in lines.iter().zip(titles) {
        let (printed, documented) = (fields(line), documented(title));
        let differing: Vec<_> = printed
            .symmetric_difference(&documented)
            .filter(|field| !OPTIONAL.contains(&field.as_str()) || documented.contains(*field))
            .collect();
        assert!(differing.is_empty(), "{title}: {differing:?}: {line}");
    }
}

#[test]
fn results_have_the_documented_fields() {
    let home = Home::new();
    let mut holder = Running::start(home.leasehold().args(["hold", "--json", "job"]));
    matches_documentation(holder.line().as_bytes(), &["`hold`, for each lock"]);
    let mut watch = Running::start(home.leasehold().args(["watch", "--json", "job"]));
    matches_documentation(watch.line().as_bytes(), &["`watch`, for each change"]);
    let lock = "`status`, and `list` and `top` for each lock";

    for (args, titles) in [
        (&["status", "job"][..], &[lock][..]),
        (&["list"], &[lock]),
        (&["top"], &[lock]),
        (&["release", "--ask", "other"], &["`release --ask`"]),
        (&["release", "--force", "job"], &["`release --force`"]),
        (&["doctor"], &["`doctor`, for each check"]),
        (&["acl", "--backend", "redis://h"], &["`acl`"]),
        (&["tables", "--backend", "postgres://h"], &["`tables`"]),
        (
            &["verify", "--only", "a_held_lock_is_refused_at_once", "--histories", "2s"],
            &[
                "`verify`, for each case",
                "`verify`, at the end",
                "`verify --histories`, at the end",
            ],
        ),
    ] {
        let output = home.leasehold().args(args).arg("--json").output().unwrap();
        assert!(!output.stdout.is_empty(), "{args:?}: {}", text(&output.stderr));
        matches_documentation(&output.stdout, titles);
    }
}

#[test]
fn holders_and_messages_have_the_documented_fields() {
    let page = include_str!("../../../docs/operating.md");
    let home = Home::new();
    let mut holder = Running::start(home.leasehold().args(["hold", "job"]));
    holder.line();

    let busy = home.leasehold().args(["run", "--json", "-n", "job", "true"]).output().unwrap();
    let busy: Value = serde_json::from_slice(&busy.stderr).unwrap();
    for field in fields(&busy["holders"][0]) {
        assert!(page.contains(&format!("`{field}`")), "{field}");
    }
    let expected = documented("an error");
    assert!(fields(&busy).is_superset(&expected), "{busy}");
    assert_eq!(busy["exit_code"], 75);

    let mut told = home.leasehold();
    told.args(["run", "--json", "other", "true"]).env_remove("LEASEHOLD_BACKEND");
    let note = told.output().unwrap().stderr;
    matches_documentation(&note, &["another message"]);
}
