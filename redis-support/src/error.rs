//! The meaning of the server's errors, one by one.

use leasehold_core::{Error, ErrorKind};

use crate::address::Address;

/// An error that the server replied.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerError {
    code: String,
    detail: String,
}

/// To another server of a cluster.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Redirection {
    /// It has the slot.
    Moved(Address),
    /// It is getting the slot, and may have the keys already.
    Ask(Address),
}

impl ServerError {
    /// Creates it from the first word of the reply and the rest.
    pub fn new(code: impl Into<String>, detail: impl Into<String>) -> Self {
        let (code, detail) = (code.into(), detail.into());
        let (code, detail) = unwrap(&code, &detail).unwrap_or((code, detail));
        // From inside a script, it ends in a reference to that script, which helps no reader.
        let detail = match detail.rsplit_once(" script: ") {
            Some((said, reference)) if reference.contains(", on ") => said.to_owned(),
            _ => detail,
        };
        // A server that does not know a command repeats it, and AUTH has the password in it.
        let detail = match detail.split_once(", with args beginning with") {
            Some((said, _)) => said.to_owned(),
            None => detail,
        };
        Self { code, detail }
    }

    /// The first word of the reply, such as `NOPERM`.
    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    /// Whether the server does not know the script: nothing ran, and the caller sends the source.
    pub fn is_no_script(&self) -> bool {
        self.code == "NOSCRIPT"
    }

    /// Whether this server is a replica: nothing was applied.
    pub(crate) fn is_replica(&self) -> bool {
        matches!(self.code.as_str(), "READONLY" | "MASTERDOWN")
    }

    /// Whether another server may be the primary by now, which a new connection may lead to: nothing was applied.
    ///
    /// A primary that was demoted loads its data anew (`LOADING`) and is a replica then. One that is cut off from its replicas may have been
    /// replaced. `BUSY`, `MISCONF` and `OOM` say nothing about that, and `CLUSTERDOWN` nothing about this server.
    pub(crate) fn is_no_primary(&self) -> bool {
        self.is_replica() || matches!(self.code.as_str(), "LOADING" | "NOREPLICAS")
    }

    /// Whether this sentinel does not know the name it was asked for.
    pub(crate) fn is_no_such_master(&self) -> bool {
        self.code == "ERR" && self.detail.starts_with("No such master")
    }

    /// Whether this sentinel does not know the question. Old ones say so in words of their own.
    pub(crate) fn is_unknown_to_a_sentinel(&self) -> bool {
        let text = self.detail.to_ascii_lowercase();
        self.code == "ERR"
            && text.starts_with("unknown")
            && ["command", "subcommand"].iter().any(|word| text.contains(word))
    }

    /// Whether this server of a cluster knows that something is being moved or replaced: nothing was applied.
    pub(crate) fn is_of_a_cluster_in_motion(&self) -> bool {
        matches!(self.code.as_str(), "CLUSTERDOWN" | "READONLY" | "MASTERDOWN" | "LOADING")
    }

    /// Whether not all keys are on one side yet, of a slot that is moving: nothing was applied.
    pub(crate) fn is_half_moved(&self) -> bool {
        self.code == "TRYAGAIN"
    }

    /// Whether it is only for now, and passes without anybody's help: nothing was applied.
    pub(crate) fn is_retryable(&self) -> bool {
        self.classify().0 == ErrorKind::Unavailable
    }

    /// Which server is to be asked instead, as the one that was `asked` says: nothing was applied.
    pub(crate) fn redirection(&self, asked: &Address) -> Option<Redirection> {
        let (_slot, address) = self.detail.split_once(' ')?;
        let address = Address::read(address.trim_end(), asked)?;
        match self.code.as_str() {
            "MOVED" => Some(Redirection::Moved(address)),
            "ASK" => Some(Redirection::Ask(address)),
            _ => None,
        }
    }

    /// The meaning of the error for the caller.
    pub fn into_error(self) -> Error {
        let (kind, advice) = self.classify();
        let Self { code, detail } = self;
        if code == "NOAUTH" {
            // Here the server explains its protocol, which does not help the caller.
            return Error::new(kind, format!("{advice} ({code})"));
        }
        if code == "WRONGTYPE" && detail.starts_with("it is held") {
            // The words are those of our scripts.
            return Error::new(kind, format!("{detail}; {advice}"));
        }
        let dash = if advice.is_empty() { "" } else { "; " };
        Error::new(kind, format!("{code} {}{dash}{advice}", detail.trim_end()))
    }

    fn classify(&self) -> (ErrorKind, &'static str) {
        match self.code.as_str() {
            // Not now: nothing was applied, and it passes without anybody's help.
            "BUSY" => (ErrorKind::Unavailable, "another client's script keeps the server busy"),
            "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "NOMEMBER" | "NOREPLICAS" | "NOSCRIPT"
            | "TRYAGAIN" => (ErrorKind::Unavailable, ""),
            "READONLY" => {
                (ErrorKind::Unavailable, "this server is a replica; connect to the primary")
            }

            // Not until an operator acts.
            "MISCONF" => (ErrorKind::Refused, "the server cannot save to disk and takes no writes"),
            "OOM" => (ErrorKind::Refused, "the server's memory is full: see its maxmemory"),

            // Not with these rights.
            "NOAUTH" => (ErrorKind::Denied, "the server wants a user or password in the URL"),
            "NOPERM" => (ErrorKind::Denied, self.advice_on_rights()),
            "WRONGPASS" => (ErrorKind::Denied, ""),

            // Not on this server.
            "ASK" | "CROSSSLOT" | "MOVED" => (
                ErrorKind::Unsupported,
                "this server is part of a cluster, which redis-cluster:// connects to",
            ),
            "NOPROTO" => (ErrorKind::Unsupported, ""),

            "WRONGTYPE" if self.detail.contains("it is held") => {
                (ErrorKind::WrongType, "each kind of lock needs a key of its own")
            }
            "WRONGTYPE" => (ErrorKind::WrongType, "something that is no lock lies under the key"),
            "ERR" => self.classify_by_text(),
            _ => (ErrorKind::Unexpected, ""),
        }
    }

    fn advice_on_rights(&self) -> &'static str {
        if self.detail.contains("'select'") {
            "a database other than 0 takes the right +select"
        } else {
            "see the ACL rule in docs/operating.md"
        }
    }

    /// Older servers have one code for much.
    fn classify_by_text(&self) -> (ErrorKind, &'static str) {
        let text = self.detail.as_str();
        let has = |part: &str| text.contains(part);
        if has("max number of clients") {
            (ErrorKind::Unavailable, "the server's limit maxclients is reached")
        } else if has("user executing the script") || has("ACL failure") || has("no permissions") {
            // How NOPERM arrives from inside a script, up to 7.0 and later, and from the choice of a database.
            (ErrorKind::Denied, self.advice_on_rights())
        } else if has("AUTH") || has("invalid password") {
            (ErrorKind::Denied, "the server wants no password, or another one")
        } else if has("DB index") || has("invalid expire") {
            (ErrorKind::Invalid, "")
        } else if has("cluster support disabled") {
            (ErrorKind::Unsupported, "redis:// connects to a single server")
        } else if has("unknown command 'SENTINEL'") {
            (ErrorKind::Unsupported, "this is no Sentinel: redis:// connects to a single server")
        } else if has("unknown command") || has("unknown subcommand") {
            (ErrorKind::Unsupported, "the server lacks a command: Redis 6.2 or newer is needed")
        } else {
            (ErrorKind::Unexpected, "")
        }
    }
}

/// The error of an unreachable server, in plain words. `cause` is the `Debug` text of the cause: some client crates keep no more of
/// it.
pub fn unreachable(cause: &str) -> Error {
    const REASONS: [(&str, &str); 9] = [
        ("failed to lookup address", "no such host"),
        ("No address associated", "no such host"),
        ("ConnectionRefused", "connection refused"),
        ("NotFound", "no such socket"),
        ("PermissionDenied", "permission denied"),
        ("HostUnreachable", "host unreachable"),
        ("NetworkUnreachable", "network unreachable"),
        ("TimedOut", "no answer in time"),
        ("Too many open files", "no file descriptor is left"),
    ];
    let closed = ["ConnectionReset", "BrokenPipe", "UnexpectedEof", "unexpected end of file"];
    let reason = REASONS.iter().find(|(sign, _)| cause.contains(sign)).map(|(_, reason)| *reason);
    let reason = reason.unwrap_or_else(|| {
        if closed.iter().any(|sign| cause.contains(sign)) {
            "the server closed the connection immediately: its limit maxclients is reached, or it is not Redis, or only one side uses TLS"
        } else {
            "the server cannot be reached"
        }
    });
    Error::new(ErrorKind::Unavailable, reason)
}

/// The error for a question that changes nothing: it does not matter whether it arrived.
pub(crate) fn only_asked(error: Error, message: &'static str) -> Error {
    match error.kind() {
        ErrorKind::Indeterminate => Error::new(ErrorKind::Unavailable, message).with_source(error),
        _ => error,
    }
}

/// The error of a command inside a script, which up to Redis 6.2 is wrapped in an error of the script:
/// `ERR Error running script (call to f_…): @user_script:4: -OOM command not allowed …`.
fn unwrap(code: &str, detail: &str) -> Option<(String, String)> {
    if code != "ERR" || !detail.starts_with("Error running script") {
        return None;
    }
    let (_, inner) = detail.rsplit_once("@user_script")?;
    let inner = inner.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
    let (code, detail) = inner.split_once(' ')?;
    let is_code = code.bytes().all(|byte| byte.is_ascii_uppercase());
    is_code.then(|| (code.to_owned(), detail.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: &str, detail: &str) -> ErrorKind {
        ServerError::new(code, detail).into_error().kind()
    }

    #[test]
    fn every_known_error_has_its_kind() {
        let table = [
            ("BUSY", "Redis is busy running a script.", ErrorKind::Unavailable),
            ("CLUSTERDOWN", "The cluster is down", ErrorKind::Unavailable),
            ("LOADING", "Redis is loading the dataset in memory", ErrorKind::Unavailable),
            ("MASTERDOWN", "Link with MASTER is down", ErrorKind::Unavailable),
            ("NOMEMBER", "this server has no vote under the charter", ErrorKind::Unavailable),
            ("NOREPLICAS", "Not enough good replicas to write.", ErrorKind::Unavailable),
            ("READONLY", "You can't write against a read only replica.", ErrorKind::Unavailable),
            ("TRYAGAIN", "Multiple keys request during rehashing of slot", ErrorKind::Unavailable),
            ("ERR", "max number of clients reached", ErrorKind::Unavailable),
            ("MISCONF", "Redis is configured to save RDB snapshots", ErrorKind::Refused),
            ("OOM", "command not allowed when used memory > 'maxmemory'.", ErrorKind::Refused),
            ("NOAUTH", "Authentication required.", ErrorKind::Denied),
            ("NOPERM", "this user has no permissions to run the 'eval' command", ErrorKind::Denied),
            ("WRONGPASS", "invalid username-password pair", ErrorKind::Denied),
            (
                "ERR",
                "The user executing the script can't run this command or subcommand script: 0a, on @user_script:1.",
                ErrorKind::Denied,
            ),
            (
                "ERR",
                "ACL failure in script: User locker has no permissions to run the 'get' command \
                 script: 0a, on @user_script:1.",
                ErrorKind::Denied,
            ),
            (
                "ERR",
                "Error running script (call to f_0a): @user_script:21: @user_script: 21: -READONLY \
                 You can't write against a read only replica.",
                ErrorKind::Unavailable,
            ),
            (
                "ERR",
                "Error running script (call to f_0a): @user_script:3: WRONGTYPE Operation against",
                ErrorKind::WrongType,
            ),
            ("ERR", "this user has no permissions to run the 'select' command", ErrorKind::Denied),
            ("ERR", "AUTH <password> called without any password configured", ErrorKind::Denied),
            ("ERR", "DB index is out of range", ErrorKind::Invalid),
            ("ERR", "unknown command 'EVALSHA', with args beginning with:", ErrorKind::Unsupported),
            ("MOVED", "3999 127.0.0.1:6381", ErrorKind::Unsupported),
            ("CROSSSLOT", "Keys in request don't hash to the same slot", ErrorKind::Unsupported),
            ("WRONGTYPE", "Operation against a key holding the wrong kind", ErrorKind::WrongType),
            ("ERR", "no fencing token is left", ErrorKind::Unexpected),
            ("FUTURE", "something new", ErrorKind::Unexpected),
        ];
        for (code, detail, expected) in table {
            assert_eq!(kind(code, detail), expected, "{code} {detail}");
        }
    }

    #[test]
    fn an_echo_of_a_request_is_not_told() {
        let said = "unknown command 'AUTH', with args beginning with: 'S3CR3T'";
        let error = ServerError::new("ERR", said).into_error();

        assert!(error.to_string().contains("unknown command 'AUTH'"), "{error}");
        assert!(!format!("{error} {error:?}").contains("S3CR3T"));
    }

    #[test]
    fn reason_why_a_server_cannot_be_reached_is_in_plain_words() {
        for (cause, reason) in [
            ("Os { code: 111, kind: ConnectionRefused, message: \"…\" }", "connection refused"),
            (
                "Custom { kind: Uncategorized, error: \"failed to lookup address information: …\" }",
                "no such host",
            ),
            ("Os { code: 2, kind: NotFound, message: \"…\" }", "no such socket"),
            (
                "Os { code: 24, kind: Uncategorized, message: \"Too many open files\" }",
                "no file descriptor is left",
            ),
            ("Kind(UnexpectedEof)", "maxclients is reached, or it is not Redis"),
            ("something new", "cannot be reached"),
        ] {
            let error = unreachable(cause);
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn the_text_names_the_error_and_the_remedy() {
        let error = ServerError::new(
            "OOM",
            "command not allowed when used memory > 'maxmemory'. script: 5c1f, on @user_script:14.",
        );

        assert_eq!(
            error.into_error().to_string(),
            "OOM command not allowed when used memory > 'maxmemory'.; the server's memory is full: \
             see its maxmemory"
        );
    }
}
