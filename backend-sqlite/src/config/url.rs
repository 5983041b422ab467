//! Reads `sqlite:` URLs.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use leasehold_core::Error;
use leasehold_settings::{StoreUrl, decode_bytes, invalid};

use super::{SqliteConfig, in_backend};

impl SqliteConfig {
    /// Reads a URL such as `sqlite:relative/path.db` or `sqlite:/absolute/path.db`. `sqlite://` is
    /// a synonym for `sqlite:`.
    ///
    /// The path is percent-decoded. The `prefix` and `timeout-ms` parameters correspond to
    /// [`prefix`](Self::prefix) and [`timeout`](Self::timeout).
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the URL is not valid.
    /// `:memory:` is not valid; for a store in the process's memory, use the URL `memory:`.
    pub fn from_url(url: &str) -> Result<Self, Error> {
        read(url).map_err(in_backend)
    }
}

fn read(url: &str) -> Result<SqliteConfig, Error> {
    let url = StoreUrl::parse(url)?;
    if url.scheme() != "sqlite" {
        return Err(invalid("the URL must start with sqlite:"));
    }
    let path = url.location();
    if path == ":memory:" {
        return Err(invalid("sqlite: requires a file; for a store in memory, use memory:"));
    }
    // In the URL of a server, this part contains a user and a password. Errors must not show them.
    if !path.starts_with(['/', '.']) && path.contains('@') {
        return Err(invalid(
            "a lock file has no user, password or host; use an absolute path, such as sqlite:/var/lib/locks.db, \
             or write %40 for an @ in the path",
        ));
    }
    let mut options = url.options()?;
    let prefix = options.text("prefix")?;
    let timeout = options.millis("timeout-ms")?;
    options.finish()?;
    let path = decode_bytes(path);
    if path.contains(&0) {
        return Err(invalid("the path must not contain a NUL byte"));
    }
    let mut config = SqliteConfig::new(OsString::from_vec(path))?;
    if let Some(prefix) = prefix {
        config = config.prefix(prefix)?;
    }
    if let Some(timeout) = timeout {
        config = config.timeout(timeout)?;
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::path::PathBuf;
    use std::time::Duration;

    use leasehold_core::ErrorKind;

    use super::*;

    #[test]
    fn paths_are_written_as_in_the_ecosystem() {
        let here = env::current_dir().unwrap();
        for (url, path) in [
            ("sqlite:/var/lib/locks.db", PathBuf::from("/var/lib/locks.db")),
            ("sqlite:///var/lib/locks.db", PathBuf::from("/var/lib/locks.db")),
            ("sqlite:locks.db", here.join("locks.db")),
            ("sqlite://data/locks.db", here.join("data/locks.db")),
            ("sqlite:/tmp/a%20b%3F%23.db", PathBuf::from("/tmp/a b?#.db")),
            ("sqlite:./~locks.db", here.join("~locks.db")),
        ] {
            assert_eq!(SqliteConfig::from_url(url).unwrap().path, path, "{url}");
        }
    }

    #[test]
    fn parameters_are_read() {
        let url = "sqlite:locks.db?prefix=app_&timeout-ms=250";

        let config = SqliteConfig::from_url(url).unwrap();

        assert_eq!(config.timeout, Duration::from_millis(250));
        assert_eq!(config.layout.prefix(), "app_");
    }

    #[test]
    fn user_and_password_are_refused_without_showing_them() {
        for url in ["sqlite://u:S3CR3T@host/x.db", "sqlite:u:S3CR3T@host", "sqlite://S3C/R3T@h"] {
            let error = SqliteConfig::from_url(url).unwrap_err();

            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            let shown = format!("{error} {error:?}");
            assert!(shown.contains("no user, password or host"), "{shown}");
            assert!(!shown.contains("S3C"), "{shown}");
        }
        for url in ["sqlite:/srv/app@1/x.db", "sqlite:./app@1.db", "sqlite:app%401.db"] {
            SqliteConfig::from_url(url).unwrap();
        }
    }

    #[test]
    fn urls_that_make_no_sense_are_refused() {
        for url in [
            "",
            "sqlite",
            "sqlite:",
            "sqlite://",
            "sqlite::memory:",
            "sqlite://:memory:",
            "sqlite:?prefix=x",
            "sqlite:a%00b",
            "sqlite:a#b",
            "sqlite:~/locks.db",
            "sqlite://~me/locks.db",
            "sqlite:%7E/locks.db",
            "sqlite:$HOME/locks.db",
            "sqlite:a.db?mode=rwc",
            "sqlite:a.db?prefix=A-",
            "sqlite:a.db?timeout-ms=x",
            "sqlite:a.db?timeout-ms=0",
            "file:a.db",
        ] {
            assert_eq!(
                SqliteConfig::from_url(url).unwrap_err().kind(),
                ErrorKind::Invalid,
                "{url}"
            );
        }
    }
}
