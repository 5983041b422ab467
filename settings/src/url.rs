//! Splits URLs into their parts.

use std::fmt;

use leasehold_core::Error;

use crate::decode::decode;
use crate::{Options, Server, invalid};

/// The URL of a store, in one of two forms: `scheme://[user[:password]@]host[:port][,…][/path]`, or
/// `scheme:path`. Either form may end with `?name=value&…`. `Debug` shows no part of the URL.
///
/// The [`url`](https://docs.rs/url) crate is not used, because it supports only one host.
///
/// ```
/// use std::time::Duration;
/// use leasehold_settings::StoreUrl;
///
/// let url = StoreUrl::parse("redis://locker:p%40ss@a,b:7000/3?timeout-ms=250")?;
/// assert_eq!(url.scheme(), "redis");
///
/// let mut options = url.options()?;
/// assert_eq!(options.millis("timeout-ms")?, Some(Duration::from_millis(250)));
/// options.finish()?;
///
/// let authority = url.authority()?;
/// assert_eq!(authority.credentials.as_ref().unwrap().password.as_deref(), Some("p@ss"));
/// let servers = authority.servers(6379)?;
/// assert_eq!(servers.iter().map(ToString::to_string).collect::<Vec<_>>(), ["a:6379", "b:7000"]);
/// assert_eq!(authority.path, "3");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct StoreUrl<'a> {
    scheme: &'a str,
    has_authority: bool,
    location: &'a str,
    query: &'a str,
}

/// The part of a URL between `//` and the options.
///
/// [`StoreUrl::authority`] returns a value of this type.
pub struct Authority<'a> {
    /// The user and the password, if the URL contains an `@`.
    pub credentials: Option<Credentials>,
    /// The text after the first `/`, in percent-encoding, which [`decode`] decodes.
    pub path: &'a str,
    user_info: &'a str,
    hosts: &'a str,
}

/// A user and a password. `Debug` shows neither.
///
/// [`Authority`] contains the credentials.
#[derive(Clone, Eq, PartialEq)]
pub struct Credentials {
    /// The name of the user, which may be empty.
    pub user: String,
    /// The text after the colon.
    pub password: Option<String>,
}

impl<'a> StoreUrl<'a> {
    /// Splits a URL into its parts.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the URL contains a
    /// `#`.
    pub fn parse(url: &'a str) -> Result<Self, Error> {
        if url.contains('#') {
            return Err(invalid("the URL must not contain #; write %23 for a #"));
        }
        let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
        let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
        let after_slashes = location.strip_prefix("//");
        Ok(Self {
            scheme,
            has_authority: after_slashes.is_some(),
            location: after_slashes.unwrap_or(location),
            query,
        })
    }

    /// Returns the text in front of the first colon, or an empty text if the URL does not contain a
    /// colon.
    ///
    /// Do not show an unknown scheme in an error, because it may be a part of a password.
    pub fn scheme(&self) -> &'a str {
        self.scheme
    }

    /// Returns the text between the scheme and the options, without leading `//` and in
    /// percent-encoding.
    pub fn location(&self) -> &'a str {
        self.location
    }

    /// Reads the options after `?`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if an option is not
    /// percent-encoded UTF-8.
    pub fn options(&self) -> Result<Options, Error> {
        Options::parse(self.query)
    }

    /// Reads the credentials, the hosts and the path. The last `@` ends the password.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the URL does not
    /// contain `//`, if the credentials are not percent-encoded UTF-8, or if the path contains an
    /// `@`.
    pub fn authority(&self) -> Result<Authority<'a>, Error> {
        if !self.has_authority {
            return Err(invalid("the URL has no // after the scheme"));
        }
        let (authority, path) = self.location.split_once('/').unwrap_or((self.location, ""));
        // Otherwise a part of the password would become a host or a path, which errors show.
        if path.contains('@') {
            return Err(invalid(
                "the URL contains an @ after a /; write %2F for a / in a password, and %40 for an @ in a path",
            ));
        }
        let (user_info, hosts) = match authority.rsplit_once('@') {
            Some((user_info, hosts)) => (Some(user_info), hosts),
            None => (None, authority),
        };
        let credentials = user_info.map(Credentials::parse).transpose()?;
        Ok(Authority { credentials, path, user_info: user_info.unwrap_or_default(), hosts })
    }
}

impl<'a> Authority<'a> {
    /// Returns all servers, at least one.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if a host or a port is
    /// not valid.
    pub fn servers(&self, default_port: u16) -> Result<Vec<Server>, Error> {
        self.hosts().map(|host| Server::parse(host, default_port)).collect()
    }

    /// Returns the hosts and ports as they are written in the URL.
    pub fn hosts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.hosts.split(',')
    }

    /// Returns whether connections to `servers` would send the credentials over a network without
    /// encryption. `is_secure` states whether the connections use TLS. Connections to
    /// [local](Server::is_local) servers do not leave the computer.
    pub fn exposes_password(&self, servers: &[Server], is_secure: bool) -> bool {
        self.credentials.is_some() && !is_secure && !servers.iter().all(Server::is_local)
    }

    /// Returns the user and the password as they are written in the URL, for a URL of one of the
    /// servers.
    pub fn encoded_credentials(&self) -> &'a str {
        self.user_info
    }
}

impl Credentials {
    fn parse(text: &str) -> Result<Self, Error> {
        let (user, password) = match text.split_once(':') {
            Some((user, password)) => (user, Some(decode(password)?)),
            None => (text, None),
        };
        Ok(Self { user: decode(user)?, password })
    }
}

impl fmt::Debug for StoreUrl<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreUrl").finish_non_exhaustive()
    }
}

impl fmt::Debug for Authority<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(url: &str) -> Authority<'_> {
        StoreUrl::parse(url).unwrap().authority().unwrap()
    }

    #[test]
    fn last_at_sign_ends_the_password() {
        let credentials = authority("etcd://u:p%2F%40+@s@host").credentials.unwrap();

        assert_eq!(credentials.user, "u");
        assert_eq!(credentials.password.as_deref(), Some("p/@+@s"));
    }

    #[test]
    fn user_and_password_are_optional() {
        assert_eq!(authority("etcd://host").credentials, None);
        let credentials = authority("etcd://u@host").credentials.unwrap();
        assert_eq!((&*credentials.user, credentials.password), ("u", None));
        let credentials = authority("redis://:p@host").credentials.unwrap();
        assert_eq!((&*credentials.user, credentials.password.as_deref()), ("", Some("p")));
    }

    #[test]
    fn password_is_exposed_without_tls_if_one_server_is_not_local() {
        let exposes = |url: &str, is_secure| {
            let authority = authority(url);
            authority.exposes_password(&authority.servers(1).unwrap(), is_secure)
        };

        assert!(exposes("etcd://u:p@localhost,a", false));
        assert!(!exposes("etcd://u:p@localhost,a", true));
        assert!(!exposes("etcd://u:p@localhost,[::1]", false));
        assert!(!exposes("etcd://localhost,a", false));
    }

    #[test]
    fn location_may_be_a_path() {
        for (url, location) in [
            ("sqlite:a/b.db?x=1", "a/b.db"),
            ("sqlite:/a.db", "/a.db"),
            ("sqlite:///a.db", "/a.db"),
            ("unix:///run/a%20b.sock", "/run/a%20b.sock"),
            ("sqlite", "sqlite"),
        ] {
            assert_eq!(StoreUrl::parse(url).unwrap().location(), location, "{url}");
        }
    }

    #[test]
    fn invalid_urls_are_refused_without_showing_them() {
        for (url, reason) in [
            ("etcd://u:S3CR3T@host#a", "#"),
            ("etcd://u:S3CR3T#@host", "#"),
            ("etcd:u:S3CR3T@host", "no //"),
            ("S3CR3T", "no //"),
            ("etcd://u:1/S3CR3T@host", "write %2F"),
            ("etcd://u:S3CR3T%ff@host", "UTF-8"),
            ("etcd://u:S3CR3T@", "no host"),
            ("etcd:///S3CR3T", "no host"),
            ("etcd://u:S3CR3T@a,,b", "no host"),
            ("etcd://u:S3CR3T/", "a port"),
        ] {
            let read = StoreUrl::parse(url).and_then(|url| url.authority()?.servers(1));
            let error = read.unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(reason) && !shown.contains("S3CR3T"), "{url}: {shown}");
        }
    }

    #[test]
    fn debug_shows_no_part_of_a_url() {
        let url = StoreUrl::parse("S3CR3T://S3CR3T:S3CR3T@S3CR3T/S3CR3T?S3CR3T=S3CR3T").unwrap();
        let authority = url.authority().unwrap();

        let shown =
            format!("{url:?} {:?} {authority:?} {:?}", url.options(), authority.credentials);
        assert!(!shown.contains("S3CR3T"), "{shown}");
    }
}
