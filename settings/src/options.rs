//! Reads the options of URLs.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use leasehold_core::Error;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::decode::decode;
use crate::tls::TlsFiles;
use crate::{alternatives, invalid};

/// The options of a URL. `Debug` does not show them.
///
/// The methods that read an option also remove it. [`Options::finish`] returns an error if options
/// are left, and the error lists the names that were read.
///
/// [`StoreUrl::options`](crate::StoreUrl::options) returns a value of this type.
///
/// ```
/// use leasehold_settings::StoreUrl;
///
/// let mut options = StoreUrl::parse("etcd://host?prefix=app/&timeout=5")?.options()?;
///
/// assert_eq!(options.text("prefix")?.as_deref(), Some("app/"));
/// assert_eq!(options.millis("timeout-ms")?, None);
/// let error = options.finish().unwrap_err().to_string();
/// assert!(error.contains("known parameters are prefix, timeout-ms"), "{error}");
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone)]
pub struct Options {
    pairs: Vec<(String, String)>,
    known: Vec<&'static str>,
}

impl Options {
    pub(crate) fn parse(query: &str) -> Result<Self, Error> {
        // In a query, a plus sign is a space.
        let read = |text: &str| decode(&text.replace('+', " "));
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((read(name)?, read(value)?))
        };
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(pair);
        Ok(Self { pairs: pairs.collect::<Result<_, Error>>()?, known: Vec::new() })
    }

    /// Returns the value of the option `name`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the URL contains the
    /// option twice.
    pub fn text(&mut self, name: &'static str) -> Result<Option<String>, Error> {
        self.known.push(name);
        let mut found = self.pairs.extract_if(.., |(known, _)| known == name);
        let value = found.next().map(|(_, value)| value);
        match found.next() {
            None => Ok(value),
            Some(_) => Err(invalid(format!("the URL contains the parameter {name} twice"))),
        }
    }

    /// Returns the value of the option `name` without removing the option.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.pairs.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the number in the option `name`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the URL contains the
    /// option twice, or if the value is not a number of this type.
    pub fn number<T: FromStr>(&mut self, name: &'static str) -> Result<Option<T>, Error> {
        let number = self.text(name)?.map(|value| value.parse()).transpose();
        number.map_err(|_| invalid(format!("{name} in the URL must be a number")))
    }

    /// Returns the duration in the option `name`, whose unit is milliseconds.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Options::number`].
    pub fn millis(&mut self, name: &'static str) -> Result<Option<Duration>, Error> {
        Ok(self.number(name)?.map(Duration::from_millis))
    }

    /// Returns the value of the option `name`, which must be one of the given texts.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the URL contains the
    /// option twice, or if the value is a different text.
    ///
    /// ```
    /// use leasehold_settings::StoreUrl;
    ///
    /// let mut options = StoreUrl::parse("redis://host?push=no")?.options()?;
    ///
    /// let error = options.choice("push", [("on", true), ("off", false)]).unwrap_err();
    /// assert_eq!(error.to_string(), "push in the URL must be on or off");
    /// # Ok::<(), leasehold_core::Error>(())
    /// ```
    pub fn choice<T, const N: usize>(
        &mut self,
        name: &'static str,
        choices: [(&str, T); N],
    ) -> Result<Option<T>, Error> {
        let Some(value) = self.text(name)? else { return Ok(None) };
        let refusal = alternatives(choices.iter().map(|(text, _)| *text));
        let chosen = choices.into_iter().find(|(text, _)| *text == value);
        let refusal = || invalid(format!("{name} in the URL must be {refusal}"));
        chosen.map(|(_, choice)| Some(choice)).ok_or_else(refusal)
    }

    /// Returns the paths of the certificate authority, the client certificate and the client key,
    /// which are in three options.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if the URL contains one
    /// of the options twice.
    pub fn tls(&mut self, names: [&'static str; 3]) -> Result<TlsFiles, Error> {
        let [authority, certificate, key] = names.map(|name| self.text(name));
        Ok(TlsFiles { names, paths: [authority?, certificate?, key?] })
    }

    /// Returns the remaining options in percent-encoding, for a driver or for the URL of one
    /// server.
    pub fn rest(self) -> String {
        let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let pairs = self.pairs.iter();
        let pairs = pairs.map(|(name, value)| format!("{}={}", encode(name), encode(value)));
        pairs.collect::<Vec<_>>().join("&")
    }

    /// Checks that all options have been read.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`](leasehold_core::ErrorKind::Invalid) if there are other
    /// options. The error does not show them, because they may be a part of a password that
    /// contains a `?`.
    pub fn finish(self) -> Result<(), Error> {
        if self.pairs.is_empty() {
            return Ok(());
        }
        Err(invalid(format!(
            "the URL has an unknown parameter; known parameters are {}; a ? in a password is written %3F",
            self.known.join(", ")
        )))
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("known", &self.known).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(query: &str) -> Options {
        Options::parse(query).unwrap()
    }

    #[test]
    fn values_are_decoded() {
        let mut options = options("a=b+c%2B%C3%A9&&b=");

        assert_eq!(options.text("a").unwrap().as_deref(), Some("b c+é"));
        assert_eq!(options.text("b").unwrap().as_deref(), Some(""));
        assert_eq!(options.text("c").unwrap(), None);
        options.finish().unwrap();
    }

    #[test]
    fn invalid_options_are_refused_without_showing_the_value() {
        type Read = fn(Options) -> Result<(), Error>;
        let cases: [(&str, Read, &str); 6] = [
            ("a=S3CR3T&a=1", |mut it| it.text("a").map(drop), "the parameter a twice"),
            ("a=S3CR3T", |mut it| it.number::<u8>("a").map(drop), "a in the URL must be a number"),
            ("a=S3CR3T", |mut it| it.millis("a").map(drop), "a in the URL must be a number"),
            ("a=300", |mut it| it.number::<u8>("a").map(drop), "a in the URL must be a number"),
            ("S3CR3T", Options::finish, "unknown parameter"),
            ("S3CR3T=S3CR3T", Options::finish, "unknown parameter"),
        ];
        for (query, read, reason) in cases {
            let error = read(options(query)).unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(reason) && !shown.contains("S3CR3T"), "{query}: {shown}");
        }
        assert!(Options::parse("a=%ff").is_err());
    }

    #[test]
    fn rest_can_be_read_again() {
        let mut options = options("a=1&b=x+%26%3D&c");
        options.text("a").unwrap();

        let mut rest = Options::parse(&options.rest()).unwrap();

        assert_eq!(rest.text("a").unwrap(), None);
        assert_eq!(rest.text("b").unwrap().as_deref(), Some("x &="));
        assert_eq!(rest.text("c").unwrap().as_deref(), Some(""));
    }
}
