//! The steps that `leasehold acl` prints, and the words of their commands.

use serde_json::{Value, json};

use crate::place::Place;

/// The password in a printed command. The shell does not run the command if the variable is not set, so nobody uses a password that
/// others can guess.
pub(super) const PASSWORD: &str = "${NEW_PASSWORD:?}";

/// How to set the password, for a comment.
pub(super) const SET_PASSWORD: &str = "First run read -rs NEW_PASSWORD to set the password";

/// Commands that belong together, and the comment that says where to run them.
///
/// Some interactive shells run a comment as a command, so it must not contain characters that a shell interprets.
pub(super) struct Step {
    place: &'static str,
    comment: String,
    commands: Vec<String>,
}

impl Step {
    /// `place` is the value of the field `on` in JSON.
    pub(super) fn new(
        place: &'static str,
        comment: impl Into<String>,
        commands: Vec<String>,
    ) -> Self {
        Self { place, comment: comment.into(), commands }
    }

    /// The lines for a shell or an SQL client, in which comments begin with `mark`.
    pub(super) fn to_text(&self, mark: &str) -> String {
        format!("{mark} {}\n{}\n", self.comment, self.commands.join("\n"))
    }

    pub(super) fn to_json(&self) -> Vec<Value> {
        let commands = self.commands.iter();
        commands
            .map(|it| json!({ "on": self.place, "comment": self.comment, "command": it }))
            .collect()
    }
}

/// The options of a client for the TLS files in the URL, which have the parameter names `ca`, `cert` and `key`.
pub(super) fn tls_files(place: &Place) -> String {
    let option = |name: &str, parameter: &str| {
        let path = place.parameter(parameter)?;
        Some(format!(" --{name} {}", shell_word(path)))
    };
    let options = [("cacert", "ca"), ("cert", "cert"), ("key", "key")];
    options.into_iter().filter_map(|(name, parameter)| option(name, parameter)).collect()
}

/// A word for a shell, in quotation marks if necessary.
pub(super) fn shell_word(word: impl AsRef<str>) -> String {
    let word = word.as_ref();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+-_.:/@,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}
