//! The help and the manual pages.

use std::fs;

use crate::support::{Home, code, text};

const SUBCOMMANDS: [&str; 14] = [
    "acl",
    "completions",
    "doctor",
    "elect",
    "hold",
    "list",
    "man",
    "release",
    "run",
    "status",
    "tables",
    "top",
    "verify",
    "watch",
];

fn help(home: &Home, args: &[&str]) -> String {
    let output = home.leasehold().args(args).output().unwrap();
    assert_eq!(code(&output), 0, "{args:?}");
    text(&output.stdout)
}

#[test]
fn no_line_is_wider_than_80_columns() {
    let home = Home::new();
    let mut helps = vec![help(&home, &["--help"]), help(&home, &["-h"])];
    for subcommand in SUBCOMMANDS {
        helps.push(help(&home, &[subcommand, "--help"]));
        helps.push(help(&home, &[subcommand, "-h"]));
    }

    for line in helps.iter().flat_map(|help| help.lines()) {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

#[test]
fn arguments_come_first_in_the_order_of_the_command_line() {
    let home = Home::new();
    let run = help(&home, &["run", "--help"]);
    let at = |part: &str| run.find(part).unwrap_or_else(|| panic!("{part}: {run}"));

    assert!(at("Arguments:\n  <KEY>") < at("  <COMMAND>..."));
    assert!(at("  <COMMAND>...") < at("Store:"));
    assert!(at("Output:") < at("Exit status:") && at("Exit status:") < at("Examples:"));
    for part in ["[env: LEASEHOLD_TTL]", "[env: LEASEHOLD_PREFIX]", "[default: 0s]"] {
        at(part);
    }
}

#[test]
fn every_subcommand_explains_its_exit_codes() {
    let home = Home::new();
    for subcommand in SUBCOMMANDS {
        let help = help(&home, &[subcommand, "--help"]);
        assert!(help.contains("Exit status:\n"), "{subcommand}");
        assert!(help.contains("  64   usage error\n"), "{subcommand}");
        assert!(help.contains("Examples:\n"), "{subcommand}");
    }
}

#[test]
fn exit_codes_mean_the_same_in_the_help_and_in_the_documentation() {
    let page = include_str!("../../../docs/operating.md");
    let (_, page) = page.split_once("### Exit codes").unwrap();
    let rows = page.lines().skip_while(|line| !line.starts_with("| --- ")).skip(1);
    let help = help(&Home::new(), &["run", "--help"]);
    let (_, help) = help.split_once("Exit status:").unwrap();

    for row in rows.take_while(|line| line.starts_with('|')) {
        let (codes, meaning) = row.trim_matches(['|', ' ']).split_once(" | ").unwrap();
        for code in codes.split(", ").filter(|code| code.len() > 1) {
            assert!(help.contains(&format!("\n  {code:<4} ")), "{code}: {meaning}");
        }
    }
}

#[test]
fn manual_pages_have_all_sections_and_fit_into_80_columns() {
    let home = Home::new();
    let directory = home.0.path().join("man1");
    help(&home, &["man", directory.to_str().unwrap()]);

    for subcommand in SUBCOMMANDS {
        let page = fs::read_to_string(directory.join(format!("leasehold-{subcommand}.1"))).unwrap();
        let sections: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix(".SH ")).collect();
        for section in [
            "NAME",
            "SYNOPSIS",
            "DESCRIPTION",
            "OPTIONS",
            "EXIT STATUS",
            "ENVIRONMENT",
            "FILES",
            "EXAMPLES",
            "SEE ALSO",
        ] {
            assert!(sections.contains(&section), "{subcommand}: {section}: {sections:?}");
        }
        let literal = page.split(".nf\n").skip(1).flat_map(|text| text.split(".fi").next());
        for line in literal.flat_map(str::lines) {
            let line = line.replace("\\-", "-").replace("\\(aq", "'").replace("\\(ga", "`");
            // A page is indented by 7 columns.
            assert!(line.chars().count() <= 73, "{subcommand}: {line}");
        }
    }
}
