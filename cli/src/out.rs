//! Prints results on stdout and messages on stderr. A closed pipe or a full disk does not cause a panic.

use std::io::{self, ErrorKind, IsTerminal, Write, stderr, stdout};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::OnceLock;

use rustix::termios::tcgetwinsize;
use serde_json::{Value, json};

use crate::exit::{self, Failure};
use crate::key::Key;

/// How the command prints results and messages.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Style {
    /// One line of JSON per result, and per failure.
    pub(crate) json: bool,
    /// Whether to suppress notes and messages about a busy lock.
    pub(crate) quiet: bool,
}

static STYLE: OnceLock<Style> = OnceLock::new();

/// Decides for the whole process. Only the first call counts.
pub(crate) fn set_style(style: Style) {
    STYLE.get_or_init(|| style);
}

pub(crate) fn style() -> Style {
    STYLE.get().copied().unwrap_or_default()
}

/// Lines about one key, printed together.
#[derive(Debug)]
pub(crate) struct Report {
    name: Vec<u8>,
    text: Vec<u8>,
}

impl Report {
    pub(crate) fn new(key: &Key) -> Self {
        let name = if stdout().is_terminal() {
            key.escaped().into_bytes()
        } else {
            // A program can pass the unescaped name on to other commands.
            key.name().as_bytes().to_vec()
        };
        Self { name, text: Vec::new() }
    }

    /// Adds `<key>: <said>`.
    pub(crate) fn say(&mut self, said: impl std::fmt::Display) {
        self.text.extend_from_slice(&self.name);
        self.text.extend_from_slice(format!(": {said}\n").as_bytes());
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.text
    }

    pub(crate) fn print(self) -> Result<(), Failure> {
        print(&self.text)
    }
}

/// Prints a result as one line of JSON.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(format!("{value}\n").as_bytes())
}

/// Prints a result. It is not an error if the reader of the output has exited.
pub(crate) fn print(text: &[u8]) -> Result<(), Failure> {
    print_on(text).map(|_is_read| ())
}

/// Prints a line of a continuing stream. Returns `false` if the reader of the stream has exited.
pub(crate) fn print_on(text: &[u8]) -> Result<bool, Failure> {
    let mut out = stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(not_written(&error)),
    }
}

fn not_written(error: &io::Error) -> Failure {
    Failure::new(exit::NOT_WRITTEN, format!("cannot write the result: {error}"))
}

/// Prints the message of a failure, and returns its exit code. A quiet command prints nothing about a busy lock.
pub(crate) fn fail(failure: &Failure) -> ExitCode {
    let style = style();
    let line = match failure.message() {
        "" => String::new(),
        _ if style.json => format!("{}\n", failure.to_json()),
        _ if style.quiet && failure.code() == exit::BUSY => String::new(),
        message => format!("leasehold: {message}\n"),
    };
    raw(&line);
    ExitCode::from(failure.code())
}

/// Prints a message that is not a result. An error while writing the message is ignored.
pub(crate) fn note(message: impl std::fmt::Display) {
    if !style().quiet {
        insist(message);
    }
}

/// Prints a warning.
pub(crate) fn warn(message: impl std::fmt::Display) {
    note(format_args!("warning: {message}"));
}

/// Prints a message, even if the command is quiet.
pub(crate) fn insist(message: impl std::fmt::Display) {
    let line = if style().json {
        format!("{}\n", json!({ "note": message.to_string() }))
    } else {
        format!("leasehold: {message}\n")
    };
    raw(&line);
}

/// Writes to stderr, if that is possible.
pub(crate) fn raw(text: &str) {
    let mut err = stderr().lock();
    drop(err.write_all(text.as_bytes()).and_then(|()| err.flush()));
}

/// The width of a terminal, or 80 if the terminal does not report it.
pub(crate) fn columns(terminal: impl AsFd) -> usize {
    let columns = tcgetwinsize(terminal).map_or(0, |size| usize::from(size.ws_col));
    if columns == 0 { 80 } else { columns }
}

/// The part of a line that fits into `columns`. A line that wraps could not be overwritten.
pub(crate) fn cut(line: &str, columns: usize) -> String {
    line.chars().take(columns).collect()
}

/// The name of a key in JSON, and its bytes if it is not text.
pub(crate) fn json_of(key: &Key) -> Value {
    let name = key.name();
    match name.to_str() {
        Some(name) => json!({ "key": name }),
        None => json!({ "key": name.to_string_lossy(), "key_bytes": name.as_bytes() }),
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn line_ends_at_the_edge_of_the_terminal() {
        assert_eq!(cut("KEY  HOLDER", 6), "KEY  H");
        assert_eq!(cut("ü", 6), "ü");
    }
}
