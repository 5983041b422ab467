//! `leasehold top`

use std::cmp::Reverse;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufReader, IsTerminal, Read, Write, stdout};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::thread;

use futures_util::{StreamExt, stream};
use leasehold::admin::{Admin, Inspection};
use leasehold::{Error, ErrorKind, Holder, LockKey, LockKind};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::sleep;

use crate::cmd::status;
use crate::exit::Failure;
use crate::help::Help;
use crate::key::Key;
use crate::store::Backend;
use crate::{out, time};

/// How many locks are inspected at the same time.
const REQUESTS: usize = 32;

/// The character that a terminal in raw mode sends for Ctrl-D (end of transmission). Ctrl-C still sends a signal.
const CTRL_D: u8 = 4;

/// Shows a live view of all locks in use, with the most contended locks first.
///
/// Press `q` or Ctrl-C to exit. With --json, or if stdout is not a terminal, prints one view and exits. On Redis, each view scans the whole
/// database and requires an additional permission, which `leasehold acl --list` prints.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Show only locks whose names start with this text.
    #[arg(value_name = "START", default_value = "", hide_default_value = true)]
    start: OsString,

    #[command(flatten)]
    backend: Backend,

    /// Time between two updates of the view.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = time::parse, help_heading = "View")]
    every: time::Time,
}

pub(crate) const HELP: Help = Help {
    sections: &[("Times", crate::cmd::run::TIMES)],
    examples: "leasehold top\nleasehold top --every 5s import:",
    ..Help::CONNECTING
};

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let client = args.backend.connect().await?;
    let (admin, prefix) = (client.admin(), args.start.as_bytes());
    let mut view = View::of(&admin, prefix).await?;
    if out::style().json {
        let shown = |(key, seen)| format!("{}\n", status::to_json(&Key::of(key), &seen));
        out::print(view.locks.into_iter().map(shown).collect::<String>().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if !stdout().is_terminal() {
        out::print(view.lines(usize::MAX, usize::MAX).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let screen = Screen::open().map_err(io_failure)?;
    let mut typed = typed();
    loop {
        screen.show(&view.lines(screen.rows(), out::columns(stdout()))).map_err(io_failure)?;
        let pause = async {
            sleep(args.every.span).await;
            View::of(&admin, prefix).await
        };
        tokio::select! {
            Some(b'q' | b'Q' | CTRL_D) = typed.recv() => break,
            // If the store is down, the last view stays until the store is back.
            next = pause => view = next.unwrap_or(view),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn io_failure(error: io::Error) -> Failure {
    Failure::new(crate::exit::NOT_WRITTEN, format!("cannot write to the terminal: {error}"))
}

/// The locks in use.
#[derive(Debug)]
struct View {
    /// The locks that most callers wait for come first, then the locks that have been held for longest.
    locks: Vec<(LockKey, Inspection)>,
    /// How many locks this user may not inspect.
    unreadable: usize,
}

impl View {
    async fn of(admin: &Admin, prefix: &[u8]) -> Result<Self, Error> {
        let mut keys = admin.list(prefix)?;
        let mut view = Self { locks: Vec::new(), unreadable: 0 };
        while let Some(page) = keys.next_page().await? {
            let inspections = page.into_iter().map(async |key| (admin.inspect(&key).await, key));
            let mut inspections = stream::iter(inspections).buffer_unordered(REQUESTS);
            while let Some((seen, key)) = inspections.next().await {
                view.add(key, seen)?;
            }
        }
        view.locks.sort_by_key(|(key, seen)| {
            let held_for = seen.holders().iter().filter_map(Holder::held_for).max();
            (Reverse(seen.waiting()), Reverse(held_for), key.clone())
        });
        view.locks.dedup_by(|one, other| one.0 == other.0);
        Ok(view)
    }

    fn add(&mut self, key: LockKey, seen: Result<Inspection, Error>) -> Result<(), Error> {
        match seen {
            Ok(seen) if seen.is_held() || seen.waiting() > Some(0) => self.locks.push((key, seen)),
            Ok(_) => {}
            // Data of another program.
            Err(error) if error.kind() == ErrorKind::WrongType => {}
            Err(error) if error.kind() == ErrorKind::Denied => self.unreadable += 1,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// A heading and one line per lock, limited to the space of the terminal.
    fn lines(&self, rows: usize, columns: usize) -> String {
        let room = rows.saturating_sub(2);
        let shown: Vec<Line> = self.locks.iter().take(room).map(Line::of).collect();
        let longest = shown.iter().map(|line| line.key.chars().count()).max().unwrap_or(0);
        let width = longest.clamp(3, (columns / 3).max(12));
        let mut lines = format!(
            "{:<width$} {:<8} {:>7} {:>10}  HOLDER\n",
            "KEY", "KIND", "WAITING", "HELD FOR"
        );
        for Line { key, kind, waiting, held_for, holder } in shown {
            let key = shorten(&key, width);
            writeln!(lines, "{key:<width$} {kind:<8} {waiting:>7} {held_for:>10}  {holder}")
                .expect("writing to a String does not fail");
        }
        let more = self.locks.len().saturating_sub(room);
        let mut rest = Vec::new();
        if more > 0 {
            rest.push(format!("{more} more"));
        }
        if self.unreadable > 0 {
            rest.push(format!("{} without permission to inspect", self.unreadable));
        }
        if !rest.is_empty() {
            lines += &format!("and {}\n", rest.join(", "));
        }
        lines
    }
}

/// The columns of one lock.
struct Line {
    key: String,
    kind: &'static str,
    waiting: String,
    held_for: String,
    holder: String,
}

impl Line {
    fn of((key, seen): &(LockKey, Inspection)) -> Self {
        let held_for = seen.holders().iter().filter_map(Holder::held_for).max();
        Self {
            key: Key::of(key.clone()).escaped(),
            kind: seen.kind().map_or("free", LockKind::name),
            waiting: seen.waiting().map_or_else(|| "-".to_owned(), |count| count.to_string()),
            held_for: held_for.map_or_else(|| "-".to_owned(), time::rough),
            holder: match seen.holders() {
                [] => "-".to_owned(),
                [only] => only.label(),
                [first, rest @ ..] => format!("{}, and {} more", first.label(), rest.len()),
            },
        }
    }
}

/// The beginning of a text that is too long for its column.
fn shorten(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

/// The terminal's alternate screen, in raw mode. Dropping this value restores the terminal.
struct Screen {
    before: Termios,
}

impl Screen {
    fn open() -> io::Result<Self> {
        let before = tcgetattr(stdout())?;
        let mut raw = before.clone();
        raw.make_raw();
        // Ctrl-C ends the program even if the keyboard cannot be read.
        raw.local_modes |= LocalModes::ISIG;
        tcsetattr(stdout(), OptionalActions::Now, &raw)?;
        let screen = Self { before };
        write_out("\x1b[?1049h\x1b[?25l")?;
        Ok(screen)
    }

    fn rows(&self) -> usize {
        // Some terminals do not know.
        let rows = tcgetwinsize(stdout()).map_or(0, |size| usize::from(size.ws_row));
        if rows == 0 { 24 } else { rows }
    }

    fn show(&self, lines: &str) -> io::Result<()> {
        let columns = out::columns(stdout());
        let lines = lines.lines().map(|line| out::cut(line, columns) + "\r\n");
        // Line wrapping is disabled, so that each lock has one line even if it contains wide characters.
        write_out(&format!("\x1b[?7l\x1b[H\x1b[2J{}\x1b[?7h", lines.collect::<String>()))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal is gone, the error cannot be reported.
        drop(write_out("\x1b[?25h\x1b[?1049l"));
        let _result = tcsetattr(stdout(), OptionalActions::Now, &self.before);
    }
}

fn write_out(text: &str) -> io::Result<()> {
    let mut out = stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The keys that the user presses, read from the terminal even if stdin is redirected. The reading thread ends with the process.
fn typed() -> UnboundedReceiver<u8> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        let Ok(keyboard) = File::open("/dev/tty") else { return };
        for byte in BufReader::new(keyboard).bytes().map_while(Result::ok) {
            if sender.send(byte).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use leasehold::LockClient;
    use leasehold::clock::TokioClock;
    use leasehold::memory::MemoryBackend;

    use super::*;

    // The clock does not advance between two inspections, so all locks have been held for equally long.
    #[tokio::test(start_paused = true)]
    async fn the_most_wanted_lock_comes_first() {
        let clock = TokioClock::new();
        let store = MemoryBackend::with_clock(clock);
        let client = || LockClient::builder(store.clone()).clock(clock).build().unwrap();
        let clients = [client(), client()];
        let mut guards = Vec::new();
        for name in ["a", "wanted", "z"] {
            guards.push(clients[0].mutex(name).unwrap().lock().await.unwrap());
        }
        let mutex = clients[1].mutex("wanted").unwrap();
        let waits = tokio::spawn(async move { mutex.lock().await });
        let admin = clients[0].admin();
        while admin.inspect("wanted").await.unwrap().waiting() == Some(0) {
            tokio::task::yield_now().await;
        }

        let view = View::of(&admin, b"").await.unwrap();
        let (all, some) = (view.lines(24, 80), view.lines(4, 80));

        let keys: Vec<&str> = view.locks.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["wanted", "a", "z"]);
        let first = format!("{:<6} mutex          1 ", "wanted");
        assert!(all.lines().nth(1).unwrap().starts_with(&first), "{all}");
        assert_eq!((some.lines().count(), some.lines().last()), (4, Some("and 1 more")));
        waits.abort();
    }
}
