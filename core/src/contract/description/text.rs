//! Validation of descriptions.

use super::Description;
use crate::contract::error::{Error, ErrorKind};

impl Description {
    /// Creates a description from `text`.
    ///
    /// # Errors
    ///
    /// Returns [`ErrorKind::Invalid`] if the text is empty, longer than [`Description::MAX_LEN`]
    /// bytes, or contains control characters. Control characters are not allowed because
    /// descriptions are printed on terminals.
    pub fn new(text: impl Into<String>) -> Result<Self, Error> {
        let text = text.into();
        check(&text)?;
        Ok(Self(text.into()))
    }
}

fn check(text: &str) -> Result<(), Error> {
    if text.is_empty() || text.len() > Description::MAX_LEN {
        let message = format!(
            "a description must be 1 to {} bytes long, not {}",
            Description::MAX_LEN,
            text.len()
        );
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    if text.chars().any(char::is_control) {
        let message = "a description must not contain control characters";
        return Err(Error::new(ErrorKind::Invalid, message));
    }
    Ok(())
}

impl TryFrom<&str> for Description {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self, Error> {
        check(text)?;
        Ok(Self(text.into()))
    }
}

impl TryFrom<&String> for Description {
    type Error = Error;

    fn try_from(text: &String) -> Result<Self, Error> {
        Self::new(text)
    }
}

impl TryFrom<String> for Description {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        Self::new(text)
    }
}
