//! The testbed's own MariaDB servers.

use leasehold_testbed::{MariaDb as Server, MariaDbOptions as Options};
use tokio::process::Command;

mod database;

/// A row, as the client prints it.
const ROW: &str = "1\tx";

const SLEEP: &str = "SELECT SLEEP(60)";

const INSERT: &str =
    "INSERT INTO t WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 1000)
    SELECT REPEAT('x', 1000) FROM n";

const DISK_FULL: &str = "ERROR 1114";

const MAX_CONNECTIONS: &str = "SELECT @@max_connections";

fn url(address: &str) -> String {
    format!("mysql://leasehold@{address}/leasehold")
}

#[tokio::test]
async fn a_read_only_server_refuses_writes_of_its_user() {
    let mariadb = Server::start().await;

    mariadb.set_read_only(true).await;
    let refused = as_user(&mariadb, &["-uleasehold"], "CREATE TABLE t (a INT)").await.unwrap_err();
    mariadb.set_read_only(false).await;

    assert!(refused.contains("ERROR 1290"), "{refused}");
    as_user(&mariadb, &["-uleasehold"], "CREATE TABLE t (a INT)").await.unwrap();
}

#[tokio::test]
async fn passwords_and_tls_are_asked_for() {
    let mariadb = Options::new().tls().start().await;
    mariadb.sql("CREATE USER locker IDENTIFIED BY 'secret' REQUIRE SSL").await;
    let authority = mariadb.certificates().authority();
    let authority = format!("--ssl-ca={}", authority.display());
    let login = async |args: &[&str]| as_user(&mariadb, args, "SELECT USER()").await;

    let verified = ["-ulocker", "-psecret", &authority, "--ssl-verify-server-cert"];
    assert_eq!(login(&verified).await.unwrap(), "locker@127.0.0.1\n");
    login(&["-ulocker", "-pguess", &authority]).await.unwrap_err();
    login(&["-ulocker", "-psecret", "--skip-ssl"]).await.unwrap_err();
}

/// Runs SQL over TCP.
async fn as_user(mariadb: &Server, args: &[&str], sql: &str) -> Result<String, String> {
    let database = if args.contains(&"-uleasehold") { "leasehold" } else { "" };
    let mut client = Command::new("mariadb");
    client.args(["--no-defaults", "-NB", "-h", "localhost", "--protocol=tcp", "-e", sql]);
    client.args(["-P", &mariadb.port().to_string(), "-D", database]).args(args);
    let output = client.output().await.unwrap();
    if output.status.success() {
        return Ok(String::from_utf8(output.stdout).unwrap());
    }
    Err(String::from_utf8(output.stderr).unwrap())
}
