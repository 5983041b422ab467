//! Queries the unique ID of a server's current process, and whether data that the server has
//! acknowledged survives a restart of the server.

use std::collections::HashMap;

use leasehold_core::Error;

use crate::driver::Request;
use crate::error::ServerError;
use crate::reply::{Received, Reply, unexpected};

/// The process of a server, as reported by the server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Process {
    /// The unique ID of the process.
    pub(crate) run: String,
    /// Whether acknowledged data is on the disk, so that the next process also has it.
    pub(crate) is_durable: bool,
}

/// The settings with which a server writes data to the disk before it replies. The last setting
/// keeps these writes enabled while the file is rewritten.
const DURABLE: [(&str, &str); 3] =
    [("appendonly", "yes"), ("appendfsync", "always"), ("no-appendfsync-on-rewrite", "no")];

/// Checks whether the default user may write a key. At startup, Redis 7.0 and later run the
/// transactions in their file as this user, and scripts are also transactions. Servers silently
/// skip transactions that the user may not run.
const MAY_DEFAULT_WRITE: [&str; 4] = ["ACL", "DRYRUN", "default", "SET"];

impl Process {
    /// Queries which process a server with the key `key` runs as. The queries are sent one at a
    /// time.
    ///
    /// A server that does not report its settings counts as not durable.
    ///
    /// # Errors
    ///
    /// Returns the errors of `ask`, and the server's error if the server does not identify its
    /// process. Returns [`ErrorKind::Unexpected`](leasehold_core::ErrorKind::Unexpected) if the
    /// reply that identifies the process cannot be read.
    pub(crate) async fn ask(
        key: &str,
        ask: impl AsyncFnOnce([Request<'_>; 3]) -> Result<[Received; 3], Error>,
    ) -> Result<Self, Error> {
        let [acl, dry_run, user, set] = MAY_DEFAULT_WRITE;
        let may_write = [acl, dry_run, user, set, key, "0"];
        let questions = [&["CONFIG", "GET", "*append*"][..], &may_write, &["INFO", "server"]];
        let [settings, may_write, about] = ask(questions.map(Request::Words)).await?;
        Self::decode(settings, may_write, about)
    }

    fn decode(settings: Received, may_write: Received, about: Received) -> Result<Self, Error> {
        let Reply::Bytes(about) = about.map_err(ServerError::into_error)? else {
            return Err(unexpected());
        };
        let about = String::from_utf8_lossy(&about);
        let told = |field: &str| about.lines().find_map(|line| line.strip_prefix(field));
        let run = told("run_id:").ok_or_else(unexpected)?.trim_end().to_owned();
        let loads_all = told("redis_version:6.").is_some()
            || may_write.is_ok_and(|reply| reply == Reply::Bytes(b"OK".to_vec()));
        Ok(Self { run, is_durable: loads_all && settings.is_ok_and(|it| saves_all(&it)) })
    }
}

fn saves_all(settings: &Reply) -> bool {
    let Reply::Array(parts) = settings else { return false };
    let text = |part: &Reply| match part {
        Reply::Bytes(text) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    let pairs = parts.chunks_exact(2).filter_map(|pair| Some((text(&pair[0])?, text(&pair[1])?)));
    let settings: HashMap<String, String> = pairs.collect();
    DURABLE.iter().all(|(name, value)| settings.get(*name).is_some_and(|is| is == value))
}

#[cfg(test)]
mod tests {
    use leasehold_core::ErrorKind;

    use super::*;

    const ABOUT: &str =
        "# Server\r\nredis_version:7.0.15\r\nrun_id:e107a7641f7e\r\ntcp_port:6379\r\n";

    const DURABLE: [&str; 8] = [
        "appendfilename",
        "x",
        "appendonly",
        "yes",
        "appendfsync",
        "always",
        "no-appendfsync-on-rewrite",
        "no",
    ];

    fn bytes(text: &str) -> Reply {
        Reply::Bytes(text.as_bytes().to_vec())
    }

    fn settings(of: &[&str]) -> Received {
        Ok(Reply::Array(of.iter().map(|word| bytes(word)).collect()))
    }

    #[test]
    fn only_a_file_that_is_flushed_always_is_durable() {
        let is_durable = |settings: Received| {
            let process = Process::decode(settings, Ok(bytes("OK")), Ok(bytes(ABOUT))).unwrap();
            assert_eq!(process.run, "e107a7641f7e");
            process.is_durable
        };

        assert!(is_durable(settings(&DURABLE)));
        for (position, value) in [(3, "no"), (5, "everysec"), (7, "yes")] {
            let mut weaker = DURABLE;
            weaker[position] = value;
            assert!(!is_durable(settings(&weaker)), "{weaker:?}");
        }
        assert!(!is_durable(settings(&DURABLE[..6])));
        assert!(!is_durable(Ok(Reply::Nil)));
        assert!(!is_durable(Err(ServerError::new("NOPERM", "no rights to 'config|get'"))));
    }

    #[test]
    fn only_a_file_that_is_read_as_a_whole_is_durable() {
        let unknown = || Err(ServerError::new("ERR", "Unknown subcommand"));
        let old = ABOUT.replace(":7.0.15", ":6.2.14");
        for (about, may_write, expected) in [
            (ABOUT, Ok(bytes("OK")), true),
            (ABOUT, Ok(bytes("User default has no permissions to run the 'set' command")), false),
            (ABOUT, unknown(), false),
            (&old, unknown(), true),
        ] {
            let process = Process::decode(settings(&DURABLE), may_write.clone(), Ok(bytes(about)));
            assert_eq!(process.unwrap().is_durable, expected, "{may_write:?}");
        }
    }

    #[test]
    fn a_server_without_a_run_is_an_error() {
        let denied = Err(ServerError::new("NOPERM", "no rights to 'info'"));
        for (about, kind) in [
            (denied, ErrorKind::Denied),
            (Ok(bytes("# Server\r\n")), ErrorKind::Unexpected),
            (Ok(Reply::Nil), ErrorKind::Unexpected),
        ] {
            let error = Process::decode(settings(&[]), Ok(bytes("OK")), about).unwrap_err();
            assert_eq!(error.kind(), kind, "{error}");
        }
    }
}
