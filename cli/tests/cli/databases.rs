//! The command on databases, with the tables that `leasehold tables` prints and the rights that `leasehold acl` prints.

use leasehold_testbed::{DatabaseKind, DatabaseServer, MariaDb, Postgres};

use crate::support::{block_on, code, leasehold_on, text};

fn sql<K: DatabaseKind>(server: &DatabaseServer<K>, statement: &str) {
    block_on(server.sql(statement));
}

fn acl(url: &str) -> Vec<String> {
    let output = leasehold_on(url).arg("acl").output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let (comments, statements): (Vec<_>, _) =
        printed.lines().map(str::to_owned).partition(|line| line.starts_with("-- "));
    assert_eq!(comments.len(), 1, "it says where to run the statements");
    statements
}

/// Applies the printed statements to a server where `locker` may only connect, and takes back one right after the other.
fn rights_are_enough_and_each_is_needed<K: DatabaseKind>(server: &DatabaseServer<K>) {
    // The database is empty.
    let tables = leasehold_on(&server.url()).arg("tables").output().unwrap();
    assert_eq!(code(&tables), 0, "{}", text(&tables.stderr));
    sql(server, &text(&tables.stdout));
    let url = server.url_as("locker:PASSWORD");
    is_refused(&url);

    let grants = acl(&url);
    grants.iter().for_each(|grant| sql(server, grant));

    for options in [&[][..], &["--permits", "2"], &["--read"], &["--write"], &["--fair"]] {
        let mut command = leasehold_on(&url);
        command.arg("run").args(options).args([&format!("k{}", options.join("")), "true"]);
        let output = command.output().unwrap();
        assert_eq!(code(&output), 0, "{options:?}: {}", text(&output.stderr));
    }
    let output = leasehold_on(&url).arg("doctor").output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let output = leasehold_on(&url).arg("list").output().unwrap();
    assert_eq!((code(&output), text(&output.stderr).as_str()), (1, ""), "none is in use");
    for (right, place) in grants.iter().flat_map(|grant| rights(grant)) {
        sql(server, &format!("REVOKE {right} ON {place} FROM locker"));
        is_refused(&url);
        sql(server, &format!("GRANT {right} ON {place} TO locker"));
    }
    let output = leasehold_on(&url).args(["run", "job", "true"]).output().unwrap();
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
}

/// Runs nothing, and says which right lacks.
fn is_refused(url: &str) {
    let output = leasehold_on(url).args(["run", "job", "true"]).output().unwrap();
    let said = text(&output.stderr);
    let is_told = said.contains("has no permission") || said.contains("lacks a permission");
    assert!(is_told && code(&output) == 77, "{said}");
}

/// The rights of a statement, with the table or the schema that they are for.
fn rights(grant: &str) -> impl Iterator<Item = (&str, &str)> {
    let (rights, rest) = grant.strip_prefix("GRANT ").unwrap().split_once(" ON ").unwrap();
    let (place, _user) = rest.split_once(" TO ").unwrap();
    rights.split(", ").map(move |right| (right, place))
}

#[test]
fn postgres_rights_are_enough_and_each_is_needed() {
    let server = block_on(Postgres::start());
    sql(&server, "CREATE ROLE locker LOGIN PASSWORD 'PASSWORD'");
    sql(&server, "REVOKE USAGE ON SCHEMA public FROM PUBLIC");

    rights_are_enough_and_each_is_needed(&server);
}

#[test]
fn mysql_rights_are_enough_and_each_is_needed() {
    let server = block_on(MariaDb::start());
    sql(&server, "CREATE USER locker IDENTIFIED BY 'PASSWORD'");

    rights_are_enough_and_each_is_needed(&server);
}
