//! Maps error replies from servers to Leasehold's errors.

use leasehold_core::{Error, ErrorKind};

use crate::address::Address;

/// The start of the message with which Leasehold's scripts reject a lock of a different type.
const IN_USE: &str = "the key is in use";

/// An error reply from a server.
///
/// ```
/// use leasehold_core::ErrorKind;
/// use leasehold_redis_support::ServerError;
///
/// let error = ServerError::new("READONLY", "You can't write against a read only replica.");
/// assert_eq!(error.into_error().kind(), ErrorKind::NotWritable);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerError {
    code: String,
    detail: String,
}

/// A redirection to a different server of a cluster.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Redirection {
    /// The given server owns the slot.
    Moved(Address),
    /// The slot is moving to the given server, which may already have the keys.
    Ask(Address),
}

impl ServerError {
    /// Creates an error from the first word and the remaining text of an error reply.
    pub fn new(code: impl Into<String>, detail: impl Into<String>) -> Self {
        let (code, detail) = (code.into(), detail.into());
        let (code, detail) = unwrap(&code, &detail).unwrap_or((code, detail));
        // Errors from inside a script end with a reference to the script, which is of no use to
        // users.
        let detail = match detail.rsplit_once(" script: ") {
            Some((said, reference)) if reference.contains(", on ") => said.to_owned(),
            _ => detail,
        };
        // A server repeats unknown commands in its reply, and the arguments of AUTH contain the
        // password.
        let detail = match detail.split_once(", with args beginning with") {
            Some((said, _)) => said.to_owned(),
            None => detail,
        };
        Self { code, detail }
    }

    /// Returns the first word of the reply, such as `NOPERM`.
    pub(crate) fn code(&self) -> &str {
        &self.code
    }

    /// Returns whether the script is unknown to the server. If the script is unknown, the server
    /// has not applied anything, and the caller must send the script's source.
    pub fn is_no_script(&self) -> bool {
        self.code == "NOSCRIPT"
    }

    /// Returns whether this server is a replica. If so, nothing was applied.
    pub(crate) fn is_replica(&self) -> bool {
        matches!(self.code.as_str(), "READONLY" | "MASTERDOWN")
    }

    /// Returns whether a different server may now be the primary, so that a new connection may
    /// help. If so, nothing was applied.
    ///
    /// A demoted primary reloads its data (`LOADING`) and then becomes a replica. If a primary has
    /// lost contact with its replicas, it may have been replaced. `BUSY`, `MISCONF` and `OOM` do
    /// not indicate a new primary, and `CLUSTERDOWN` does not concern this server.
    pub(crate) fn is_no_primary(&self) -> bool {
        self.is_replica() || matches!(self.code.as_str(), "LOADING" | "NOREPLICAS")
    }

    /// Returns whether the sentinel does not know the requested name.
    pub(crate) fn is_no_such_master(&self) -> bool {
        self.code == "ERR" && self.detail.starts_with("No such master")
    }

    /// Returns whether the sentinel does not know the command. Old sentinels use different
    /// messages.
    pub(crate) fn is_unknown_to_a_sentinel(&self) -> bool {
        let text = self.detail.to_ascii_lowercase();
        self.code == "ERR"
            && text.starts_with("unknown")
            && ["command", "subcommand"].iter().any(|word| text.contains(word))
    }

    /// Returns whether a server of a cluster reports that slots are moving or that a server is
    /// being replaced. If so, nothing was applied.
    pub(crate) fn is_of_a_cluster_in_motion(&self) -> bool {
        matches!(self.code.as_str(), "CLUSTERDOWN" | "READONLY" | "MASTERDOWN" | "LOADING")
    }

    /// Returns whether the keys of a moving slot are not all on one server. If so, nothing was
    /// applied.
    pub(crate) fn is_half_moved(&self) -> bool {
        self.code == "TRYAGAIN"
    }

    /// Returns whether the error is temporary and does not need an operator. If so, nothing was
    /// applied.
    pub(crate) fn is_retryable(&self) -> bool {
        matches!(self.classify().0, ErrorKind::NotWritable | ErrorKind::Unavailable)
    }

    /// Returns the server to which the server `asked` redirects the request. If there is a
    /// redirection, nothing was applied.
    pub(crate) fn redirection(&self, asked: &Address) -> Option<Redirection> {
        let (_slot, address) = self.detail.split_once(' ')?;
        let address = Address::read(address.trim_end(), asked)?;
        match self.code.as_str() {
            "MOVED" => Some(Redirection::Moved(address)),
            "ASK" => Some(Redirection::Ask(address)),
            _ => None,
        }
    }

    /// Converts the reply to an error of the backend contract.
    pub fn into_error(self) -> Error {
        let (kind, advice) = self.classify();
        let Self { code, detail } = self;
        if code == "NOAUTH" {
            // The server's message describes the Redis protocol, which does not help the caller.
            return Error::new(kind, format!("{advice} ({code})"));
        }
        if code == "WRONGTYPE" && detail.starts_with(IN_USE) {
            // The message comes from Leasehold's scripts.
            return Error::new(kind, format!("{detail}; {advice}"));
        }
        let said = format!("{code} {}", detail.trim_end());
        match advice {
            "" => Error::new(kind, said),
            _ => Error::new(kind, format!("{advice} (server said: {said})")),
        }
    }

    fn classify(&self) -> (ErrorKind, &'static str) {
        match self.code.as_str() {
            // Nothing was applied, and a later attempt may succeed.
            "BUSY" => (ErrorKind::Unavailable, "the server is busy with another client's script"),
            "CLUSTERDOWN" | "LOADING" | "MASTERDOWN" | "NOMEMBER" | "NOSCRIPT" | "TRYAGAIN" => {
                (ErrorKind::Unavailable, "")
            }
            "NOREPLICAS" => (
                ErrorKind::NotWritable,
                "the server has fewer replicas than its min-replicas-to-write setting requires",
            ),
            "READONLY" => {
                (ErrorKind::NotWritable, "this server is a replica; connect to the primary")
            }

            // An operator must intervene.
            "MISCONF" => {
                (ErrorKind::Refused, "the server cannot save its data to disk; see its log")
            }
            "OOM" => (
                ErrorKind::Refused,
                "the Redis server is out of memory; raise its maxmemory or delete data",
            ),

            // Permissions are missing.
            "NOAUTH" => (
                ErrorKind::Denied,
                "the server requires authentication; add a user or a password to the URL",
            ),
            "NOPERM" => (ErrorKind::Denied, self.advice_on_rights()),
            "WRONGPASS" => (ErrorKind::Denied, ""),

            // This server does not support the request.
            "ASK" | "CROSSSLOT" | "MOVED" => (
                ErrorKind::Unsupported,
                "this server is part of a cluster; use redis-cluster:// in the URL",
            ),
            "NOPROTO" => (ErrorKind::Unsupported, ""),

            "WRONGTYPE" if self.detail.contains(IN_USE) => {
                (ErrorKind::WrongType, "a lock of another type needs a different name")
            }
            "WRONGTYPE" => (
                ErrorKind::WrongType,
                "the key contains data that is not a lock; use a different name",
            ),
            "ERR" => self.classify_by_text(),
            _ => (ErrorKind::Unexpected, ""),
        }
    }

    fn advice_on_rights(&self) -> &'static str {
        if self.detail.contains("'select'") {
            "a database other than 0 requires the +select permission"
        } else if self.detail.contains("'scan'") {
            "listing locks requires the +scan permission, which `leasehold acl --list` prints"
        } else {
            "`leasehold acl` prints the permissions that locks require"
        }
    }

    /// Older servers use one code for many errors.
    fn classify_by_text(&self) -> (ErrorKind, &'static str) {
        let text = self.detail.as_str();
        let has = |part: &str| text.contains(part);
        if has("max number of clients") {
            (ErrorKind::Unavailable, "the server has reached its maxclients limit")
        } else if has("user executing the script") || has("ACL failure") || has("no permissions") {
            // A NOPERM error from inside a script (up to 7.0 and later), or from selecting a
            // database.
            (ErrorKind::Denied, self.advice_on_rights())
        } else if has("AUTH") || has("invalid password") {
            (ErrorKind::Denied, "the server expects a different password, or no password")
        } else if has("DB index") || has("invalid expire") {
            (ErrorKind::Invalid, "")
        } else if has("cluster support disabled") {
            (
                ErrorKind::Unsupported,
                "this server is not part of a cluster; use redis:// in the URL",
            )
        } else if has("unknown command 'SENTINEL'") {
            (
                ErrorKind::Unsupported,
                "this server is not a sentinel; use redis:// in the URL to connect to it",
            )
        } else if has("unknown command") || has("unknown subcommand") {
            (
                ErrorKind::Unsupported,
                "the server does not support a required command; use Redis 6.2 or newer",
            )
        } else {
            (ErrorKind::Unexpected, "")
        }
    }
}

/// Returns the error for an unreachable server, with the reason in plain words. `cause` is the
/// `Debug` output of the underlying error, because some client crates provide nothing else.
///
/// ```
/// use leasehold_core::ErrorKind;
///
/// let error = leasehold_redis_support::unreachable("failed to lookup address");
/// assert_eq!(error.kind(), ErrorKind::Unavailable);
/// ```
pub fn unreachable(cause: &str) -> Error {
    const REASONS: [(&str, &str); 9] = [
        ("failed to lookup address", "no such host"),
        ("No address associated", "no such host"),
        ("ConnectionRefused", "connection refused"),
        ("NotFound", "no such socket"),
        ("PermissionDenied", "permission denied"),
        ("HostUnreachable", "host unreachable"),
        ("NetworkUnreachable", "network unreachable"),
        ("TimedOut", "no reply in time"),
        ("Too many open files", "this process has no file descriptors left"),
    ];
    let closed = ["ConnectionReset", "BrokenPipe", "UnexpectedEof", "unexpected end of file"];
    let reason = REASONS.iter().find(|(sign, _)| cause.contains(sign)).map(|(_, reason)| *reason);
    let reason = reason.unwrap_or_else(|| {
        if closed.iter().any(|sign| cause.contains(sign)) {
            "the server closed the connection immediately; check that it is Redis, that TLS is used on both sides or on neither, and that its maxclients limit has not been reached"
        } else {
            "cannot reach the server"
        }
    });
    Error::new(ErrorKind::Unavailable, reason)
}

/// Returns the error for a read-only request, for which it does not matter whether the request
/// arrived.
pub(crate) fn only_asked(error: Error, message: &'static str) -> Error {
    match error.kind() {
        ErrorKind::Indeterminate => Error::new(ErrorKind::Unavailable, message).with_source(error),
        _ => error,
    }
}

/// Unwraps the error of a command inside a script. Redis 6.2 and earlier wrap it in an error of the
/// script: `ERR Error running script (call to f_…): @user_script:4: -OOM command not allowed …`.
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
            ("NOMEMBER", "this server has no vote in the quorum", ErrorKind::Unavailable),
            ("NOREPLICAS", "Not enough good replicas to write.", ErrorKind::NotWritable),
            ("READONLY", "You can't write against a read only replica.", ErrorKind::NotWritable),
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
                ErrorKind::NotWritable,
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
    fn message_does_not_repeat_the_request() {
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
                "no file descriptors left",
            ),
            ("Kind(UnexpectedEof)", "check that it is Redis"),
            ("something new", "cannot reach the server"),
        ] {
            let error = unreachable(cause);
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn message_names_the_cause_and_the_remedy() {
        let error = ServerError::new(
            "OOM",
            "command not allowed when used memory > 'maxmemory'. script: 5c1f, on @user_script:14.",
        );

        assert_eq!(
            error.into_error().to_string(),
            "the Redis server is out of memory; raise its maxmemory or delete data \
             (server said: OOM command not allowed when used memory > 'maxmemory'.)"
        );
    }
}
