//! The Lua scripts.

use std::sync::LazyLock;

use leasehold_core::flaw;
use sha1_smol::Sha1;

/// A Lua script, which the server runs as one atomic step.
///
/// ```
/// use leasehold_redis_support::Script;
///
/// assert_eq!(Script::Acquire.hash().len(), 40);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Script {
    /// Acquires a lock.
    Acquire,
    /// Acquires either all or none of several locks.
    AcquireAll,
    /// Acquires permits of a lock.
    AcquireUnits,
    /// Releases and acquires many locks that have neither a queue nor permits.
    Exchange,
    /// Releases and acquires many locks on a server of a cluster, in hash slots without queues and
    /// without permits.
    ExchangeBySlot,
    /// Revokes all leases of a key.
    ForceRelease,
    /// Returns the holders and waiters of a key.
    Inspect,
    /// Makes the server a member of a quorum.
    Join,
    /// Checks whether the server accepts the writes that an acquisition needs.
    Ping,
    /// Renews this client's lease of a lock and raises the minimum for later tokens.
    Raise,
    /// Releases this client's lease of a lock.
    Release,
    /// Releases permits of this client.
    ReleaseUnits,
    /// Renews this client's lease of a lock.
    Renew,
    /// Renews many locks that have neither a queue nor permits.
    RenewAll,
    /// Renews permits of this client.
    RenewUnits,
    /// Requests the revocation of a key's leases.
    Revoke,
    /// Returns the membership status of the server.
    Status,
    /// Acquires a lock on a server that is a member of a quorum.
    Vote,
}

/// Includes the files of a directory, by name.
macro_rules! files {
    ($folder:literal: $($name:literal),*) => {
        [$(($name, include_str!(concat!($folder, $name, ".lua")))),*]
    };
}

/// The functions that scripts include.
const PARTS: [(&str, &str); 21] = files!(
    "scripts/parts/": "acquire_in_turn", "back_of_queue", "contended", "grant_free", "grant_next", "lease", "list", "meant",
    "member", "member_status", "news", "place", "queue", "refuse", "renew_mutex", "time", "token", "turn", "units", "vote",
    "yield_to_foreign_client"
);

/// The scripts, in the order of [`Script`].
const SCRIPTS: [(&str, &str); 18] = files!(
    "scripts/": "acquire", "acquire_all", "acquire_units", "exchange", "exchange_by_slot", "force_release", "inspect",
    "join", "ping", "raise", "release", "release_units", "renew", "renew_all", "renew_units", "revoke", "status", "vote"
);

impl Script {
    /// All scripts.
    pub const ALL: [Self; 18] = [
        Self::Acquire,
        Self::AcquireAll,
        Self::AcquireUnits,
        Self::Exchange,
        Self::ExchangeBySlot,
        Self::ForceRelease,
        Self::Inspect,
        Self::Join,
        Self::Ping,
        Self::Raise,
        Self::Release,
        Self::ReleaseUnits,
        Self::Renew,
        Self::RenewAll,
        Self::RenewUnits,
        Self::Revoke,
        Self::Status,
        Self::Vote,
    ];

    /// Returns the source of the script, which does not depend on the call or the server.
    pub fn source(self) -> &'static str {
        &TEXTS[self as usize].source
    }

    /// Returns the SHA-1 of the source, by which servers identify the script.
    pub fn hash(self) -> &'static str {
        &TEXTS[self as usize].hash
    }
}

struct Text {
    source: String,
    hash: String,
}

static TEXTS: LazyLock<Vec<Text>> = LazyLock::new(|| {
    let text = |(_name, text): &(&str, &str)| {
        let mut source = String::new();
        include(text, &mut Vec::new(), &mut source);
        let source = with_flaw(source);
        let hash = Sha1::from(&source).hexdigest();
        Text { source, hash }
    };
    SCRIPTS.iter().map(text).collect()
});

/// Appends `text` to `source`. Each part replaces the first line that includes it.
fn include(text: &str, included: &mut Vec<&'static str>, source: &mut String) {
    for line in text.lines() {
        let Some(name) = included_part(line) else {
            source.push_str(line);
            source.push('\n');
            continue;
        };
        let (name, part) =
            PARTS.iter().find(|(part, _)| *part == name).expect("each part is listed");
        if !included.contains(name) {
            included.push(name);
            include(part, included, source);
        }
    }
}

/// Adds the selected flaw of `lab/flaws.md` to the script that contains its statement.
fn with_flaw(source: String) -> String {
    let flaws = flaws().into_iter().filter(|(is_selected, ..)| *is_selected);
    flaws.fold(source, |source, (_, correct, flawed)| source.replace(correct, flawed))
}

/// For each flaw: whether it is selected, the correct code, and the code with the flaw.
fn flaws() -> [(bool, &'static str, &'static str); 3] {
    [
        (
            flaw!("redis-release-ignores-id"),
            "is_held = redis.call('GET', lock) == value",
            "is_held = redis.call('EXISTS', lock) == 1",
        ),
        (flaw!("redis-permits-returned-twice"), "digits(-freed)", "digits(-2 * freed)"),
        (
            flaw!("redis-writer-joins-readers"),
            "room = limit - used - wants",
            "room = limit - used - (wants > 1000000 and 1 or wants)",
        ),
    ]
}

fn included_part(line: &str) -> Option<&str> {
    line.strip_prefix("--- @include \"")?.strip_suffix('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_is_included_once_and_before_its_use() {
        for script in Script::ALL {
            let source = script.source();
            assert!(!source.contains("@include"), "{script:?}");
            for function in source.lines().filter_map(|line| line.strip_prefix("local function ")) {
                let (name, _) = function.split_once('(').unwrap();
                let call = format!("{name}(");
                let is_whole = |at: &usize| {
                    let before = source[..*at].chars().next_back().unwrap();
                    !before.is_alphanumeric() && before != '_'
                };
                let mut uses = source.match_indices(&call).map(|(at, _)| at).filter(is_whole);
                assert!(
                    source[..uses.next().unwrap()].ends_with("local function "),
                    "{script:?}: {name}"
                );
                assert!(
                    !uses.any(|at| source[..at].ends_with("local function ")),
                    "{script:?}: {name}"
                );
            }
        }
    }

    #[test]
    fn each_flaw_changes_a_script() {
        for (_, correct, _) in flaws() {
            let contains = |script: &Script| script.source().contains(correct);
            assert!(Script::ALL.iter().any(contains), "no script contains {correct}");
        }
    }

    #[test]
    fn a_part_returns_from_no_script_and_reads_neither_keys_nor_arguments() {
        for (name, part) in PARTS {
            assert!(!part.contains("KEYS[") && !part.contains("ARGV["), "{name}");
            assert!(!part.contains("(KEYS") && !part.contains("(ARGV"), "{name}");
            assert!(!part.lines().any(|line| line.starts_with("return")), "{name}");
        }
    }

    #[test]
    fn each_script_names_its_keys_arguments_and_reply() {
        for (name, text) in SCRIPTS {
            for heading in ["-- KEYS  ", "-- ARGV  ", "-- Returns  "] {
                assert!(text.contains(heading), "{name}: {heading}");
            }
            let by_number =
                text.lines().filter(|line| line.contains("KEYS[") || line.contains("ARGV["));
            assert!(by_number.into_iter().all(|line| line.starts_with("local ")), "{name}");
        }
    }
}
