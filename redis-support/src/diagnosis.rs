//! Checks whether a server's settings or state can endanger locks.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use leasehold_core::backend::Finding;

use crate::driver::{Driver, Request};
use crate::error::{ServerError, only_asked};
use crate::node::Node;
use crate::reply::{Received, Reply};

/// The oldest supported version.
const OLDEST: (u32, u32) = (6, 2);

/// The sections of `INFO` that are checked. Each section needs a separate command, because several
/// sections in one command need Redis 7.0.
const SECTIONS: [&str; 4] = ["server", "replication", "memory", "persistence"];

/// The fields of `INFO` by name.
type Info = HashMap<String, String>;

/// Checks one server.
pub(crate) async fn of<D: Driver>(node: &Node<D>) -> Vec<Finding> {
    let [server, replication, memory, persistence] = SECTIONS.map(|section| ["INFO", section]);
    let questions = [
        &server[..],
        &replication,
        &memory,
        &persistence,
        &["CONFIG", "GET", "appendfsync"],
        &["TIME"],
    ];
    match node.ask(questions.map(Request::Words)).await {
        Ok([a, b, c, d, sync, time]) => judge([a, b, c, d], &sync, time),
        Err(error) => {
            let error = only_asked(error, "the server did not return its settings");
            vec![Finding::warning("settings", error.to_string())]
        }
    }
}

fn judge(about: [Received; 4], sync: &Received, time: Received) -> Vec<Finding> {
    let mut findings = match about.into_iter().collect::<Result<Vec<_>, _>>() {
        Ok(sections) => judge_info(&read(&sections), sync),
        Err(refusal) => vec![refused("settings", &refusal)],
    };
    findings.push(match time {
        Ok(time) => clock(&time),
        Err(refusal) => refused("clock", &refusal),
    });
    findings
}

fn refused(check: &'static str, refusal: &ServerError) -> Finding {
    let code = refusal.code();
    let message = format!(
        "{code}; to check the settings, connect as a user with +info, +config|get and +time"
    );
    Finding::warning(check, message)
}

fn judge_info(info: &Info, sync: &Received) -> Vec<Finding> {
    vec![version(info), role(info), eviction(info), persistence(info, sync)]
}

fn version(info: &Info) -> Finding {
    let (product, version) = match field(info, "valkey_version") {
        "" => ("Redis", field(info, "redis_version")),
        version => ("Valkey", version),
    };
    let mut numbers = version.split('.').map(|it| it.parse::<u32>().unwrap_or(0));
    let number = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if number >= OLDEST {
        return Finding::ok("version", format!("{product} {version}"));
    }
    Finding::failed("version", format!("{product} {version}; version 6.2 or newer is required"))
}

fn role(info: &Info) -> Finding {
    match field(info, "role") {
        "master" => Finding::ok("role", "primary"),
        role => {
            let message = format!("{role}, which does not grant locks; use the URL of the primary");
            Finding::failed("role", message)
        }
    }
}

fn eviction(info: &Info) -> Finding {
    match field(info, "maxmemory_policy") {
        "noeviction" => Finding::ok("eviction", "none"),
        policy if field(info, "maxmemory") == "0" => {
            let message =
                format!("none, because maxmemory is 0; with a limit, {policy} may evict locks");
            Finding::ok("eviction", message)
        }
        policy => {
            let message =
                format!("{policy} may evict locks; run CONFIG SET maxmemory-policy noeviction");
            Finding::warning("eviction", message)
        }
    }
}

fn persistence(info: &Info, sync: &Received) -> Finding {
    const CHECK: &str = "persistence";
    if field(info, "aof_enabled") != "1" {
        let message = "a restart frees all locks; to keep them, set appendonly to yes and appendfsync to always";
        return Finding::warning(CHECK, message);
    }
    match sync.as_ref().map(setting) {
        Ok(Some("always")) => Finding::ok(CHECK, "a restart keeps all locks"),
        Ok(Some(sync)) => {
            let message = format!(
                "appendfsync is {sync}, so a crash may free held locks; to keep them, set it to always"
            );
            Finding::warning(CHECK, message)
        }
        Ok(None) => Finding::ok(CHECK, "appendonly yes"),
        Err(refusal) => {
            let code = refusal.code();
            let message = format!(
                "appendonly is yes, but appendfsync cannot be read ({code}); unless it is always, a crash may free held locks; to check it, connect as a user with +config|get"
            );
            Finding::warning(CHECK, message)
        }
    }
}

fn clock(time: &Reply) -> Finding {
    let number = |reply: &Reply| text(reply)?.parse::<u64>().ok();
    let theirs = match time {
        Reply::Array(parts) => match parts.as_slice() {
            [seconds, micros] => number(seconds).zip(number(micros)),
            _ => None,
        },
        _ => None,
    };
    match theirs {
        Some((seconds, micros)) => Finding::clock(
            SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_micros(micros),
        ),
        None => Finding::warning("clock", "the server sent a malformed reply to TIME"),
    }
}

fn read(sections: &[Reply]) -> Info {
    let lines = sections.iter().filter_map(text).flat_map(str::lines);
    let fields = lines.filter_map(|line| line.split_once(':'));
    fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

fn field<'a>(info: &'a Info, name: &str) -> &'a str {
    info.get(name).map_or("", String::as_str)
}

/// Returns the value in a reply to `CONFIG GET` for one setting.
fn setting(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Array(parts) => parts.get(1).and_then(text),
        _ => None,
    }
}

fn text(reply: &Reply) -> Option<&str> {
    match reply {
        Reply::Bytes(bytes) => str::from_utf8(bytes).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_core::backend::Verdict;

    use super::*;

    fn bytes(text: &str) -> Reply {
        Reply::Bytes(text.as_bytes().to_vec())
    }

    /// Returns the findings for a server with this `INFO` whose remaining settings are correct.
    fn found(info: &str, sync: &Received) -> Vec<(String, Verdict, String)> {
        let good = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n";
        let about = [good, info, "", ""].map(|section| Ok(bytes(section)));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let time = [now.as_secs().to_string(), now.subsec_micros().to_string()];
        let time = Reply::Array(time.iter().map(|number| bytes(number)).collect());
        let found = judge(about, sync, Ok(time));
        let parts = |it: Finding| (it.check().to_owned(), it.verdict(), it.message().to_owned());
        found.into_iter().map(parts).collect()
    }

    fn appendfsync(value: &str) -> Received {
        Ok(Reply::Array(vec![bytes("appendfsync"), bytes(value)]))
    }

    #[test]
    fn server_as_it_should_be_has_no_risk() {
        let found = found("", &appendfsync("always"));

        assert_eq!(found.len(), 5);
        assert!(found.iter().all(|(_, verdict, _)| *verdict == Verdict::Ok), "{found:?}");
    }

    #[test]
    fn each_risk_is_found() {
        use Verdict::{Failed, Ok, Warning};
        let denied = Err(ServerError::new("NOPERM", "no rights to 'config|get'"));
        for (info, sync, check, verdict, says) in [
            ("redis_version:6.0.9", appendfsync("always"), "version", Failed, "6.2 or newer"),
            ("valkey_version:8.0.1", appendfsync("always"), "version", Ok, "Valkey 8.0.1"),
            ("role:slave", appendfsync("always"), "role", Failed, "use the URL of the primary"),
            (
                "maxmemory_policy:allkeys-lru",
                appendfsync("always"),
                "eviction",
                Ok,
                "maxmemory is 0",
            ),
            (
                "maxmemory:9\r\nmaxmemory_policy:allkeys-lru",
                appendfsync("always"),
                "eviction",
                Warning,
                "may evict locks",
            ),
            ("aof_enabled:0", appendfsync("always"), "persistence", Warning, "frees all locks"),
            ("", appendfsync("everysec"), "persistence", Warning, "appendfsync is everysec"),
            ("", denied, "persistence", Warning, "+config|get"),
        ] {
            let found = found(info, &sync);
            let told = found.iter().find(|it| it.0 == check).unwrap();
            assert!(told.1 == verdict && told.2.contains(says), "{info}: {told:?}");
        }
    }

    #[test]
    fn refusal_names_the_rights() {
        let denied = || Err(ServerError::new("NOPERM", "no rights to 'info'"));
        let about = [denied(), denied(), denied(), denied()];

        let found = judge(about, &denied(), denied());

        let checks: Vec<_> = found.iter().map(Finding::check).collect();
        assert_eq!(checks, ["settings", "clock"]);
        assert!(
            found[0]
                .message()
                .starts_with("NOPERM; to check the settings, connect as a user with +info")
        );
    }
}
