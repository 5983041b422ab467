//! `leasehold top`

use std::cmp::Reverse;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Read, Write, stdin, stdout};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use leasehold::admin::{Admin, Inspection};
use leasehold::{Error, ErrorKind, Holder, LockKey, LockKind};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::sleep;

use crate::args::Backend;
use crate::cmd::status;
use crate::exit::Failure;
use crate::key::Key;
use crate::out;

/// The locks that one view looks at: more than any screen has lines, and a bounded number of requests for each view.
const KEYS: usize = 500;

/// End of text and end of transmission: a terminal in raw mode sends them for Ctrl-C and Ctrl-D.
const CTRL_C: u8 = 3;
const CTRL_D: u8 = 4;

/// Shows the locks that are held or waited for, the most wanted first, again and again.
///
/// The key `q` ends it. Without a terminal, and with --json, it prints one view and ends. On Redis it walks through the whole database for each
/// view and takes a right that locks do not take (docs/operating.md).
#[derive(clap::Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Args {
    #[command(flatten)]
    backend: Backend,

    /// The pause between two views.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = crate::time::parse)]
    every: Duration,

    /// Only locks whose names begin with this.
    #[arg(value_name = "START", default_value = "", hide_default_value = true)]
    start: OsString,
}

const HELP: &str = "\
Exit status: 0; 69, 74, 77 and 64 as `leasehold --help` says.";

pub(crate) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let client = args.backend.connect().await?;
    let (admin, prefix) = (client.admin(), args.start.as_bytes());
    let mut view = view(&admin, prefix).await?;
    if out::style().json {
        let shown = |(key, seen)| format!("{}\n", status::to_json(&Key::of(key), &seen));
        out::print(view.into_iter().map(shown).collect::<String>().as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    if !stdout().is_terminal() {
        out::print(lines(&view, usize::MAX).as_bytes())?;
        return Ok(ExitCode::SUCCESS);
    }
    let screen = Screen::open().map_err(io_failure)?;
    let mut typed = typed();
    let mut ends = signal(SignalKind::terminate()).map_err(io_failure)?;
    loop {
        screen.show(&lines(&view, screen.rows())).map_err(io_failure)?;
        let pause = async {
            sleep(args.every).await;
            self::view(&admin, prefix).await
        };
        tokio::select! {
            Some(b'q' | b'Q' | CTRL_C | CTRL_D) = typed.recv() => break,
            _ = ends.recv() => break,
            // A store that is gone may come back: the last view stays until then.
            next = pause => view = next.unwrap_or(view),
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn io_failure(error: io::Error) -> Failure {
    Failure::new(crate::exit::UNAVAILABLE, error.to_string())
}

/// The locks in use, the most wanted first, then those that are held for longest.
async fn view(admin: &Admin, prefix: &[u8]) -> Result<Vec<(LockKey, Inspection)>, Error> {
    let mut keys = admin.list(prefix)?;
    let mut view = Vec::new();
    while view.len() < KEYS
        && let Some(page) = keys.next_page().await?
    {
        for key in page {
            let seen = match admin.inspect(&key).await {
                Ok(seen) => seen,
                // Data of another program.
                Err(error) if error.kind() == ErrorKind::WrongType => continue,
                Err(error) => return Err(error),
            };
            if seen.is_held() || seen.waiting() > Some(0) {
                view.push((key, seen));
            }
        }
    }
    view.sort_by_key(|(key, seen)| {
        let held_for = seen.holders().iter().filter_map(Holder::held_for).max();
        (Reverse(seen.waiting()), Reverse(held_for), key.clone())
    });
    view.dedup_by(|one, other| one.0 == other.0);
    Ok(view)
}

/// A heading and a line for each lock, as many as there is room for.
fn lines(view: &[(LockKey, Inspection)], rows: usize) -> String {
    let mut lines = format!("{:<40} {:<8} {:>7}  HOLDER\n", "KEY", "KIND", "WAITING");
    let room = rows.saturating_sub(2);
    for (key, seen) in view.iter().take(room) {
        let kind = seen.kind().map_or("free", LockKind::name);
        let waiting = seen.waiting().map_or_else(|| "-".to_owned(), |count| count.to_string());
        let holder = match seen.holders() {
            [] => "-".to_owned(),
            [only] => only.to_string(),
            [first, rest @ ..] => format!("{first}, and {} more", rest.len()),
        };
        let key = Key::of(key.clone()).escaped();
        writeln!(lines, "{key:<40} {kind:<8} {waiting:>7}  {holder}").expect("it is a String");
    }
    if view.len() > room {
        writeln!(lines, "and {} more", view.len() - room).expect("it is a String");
    }
    lines
}

/// The other screen of the terminal, with keys that arrive as they are typed. Dropped, all is as before.
struct Screen {
    before: Termios,
}

impl Screen {
    fn open() -> io::Result<Self> {
        let before = tcgetattr(stdout())?;
        let mut raw = before.clone();
        raw.make_raw();
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
        // Without wrapping, so that a lock has one line also where characters are wide.
        write_out(&format!("\x1b[?7l\x1b[H\x1b[2J{}\x1b[?7h", lines.collect::<String>()))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is no one to tell if the terminal has gone.
        drop(write_out("\x1b[?25h\x1b[?1049l"));
        let _result = tcsetattr(stdout(), OptionalActions::Now, &self.before);
    }
}

fn write_out(text: &str) -> io::Result<()> {
    let mut out = stdout();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// The bytes that are typed. Their thread ends with the process.
fn typed() -> UnboundedReceiver<u8> {
    let (sender, receiver) = mpsc::unbounded_channel();
    thread::spawn(move || {
        for byte in stdin().lock().bytes().map_while(Result::ok) {
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

    // Time stands still between the looks at two locks: both are held for as long.
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

        let view = view(&admin, b"").await.unwrap();
        let (all, some) = (lines(&view, 24), lines(&view, 4));

        let keys: Vec<&str> = view.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["wanted", "a", "z"]);
        let first = format!("{:<40} mutex          1  ", "wanted");
        assert!(all.lines().nth(1).unwrap().starts_with(&first), "{all}");
        assert_eq!((some.lines().count(), some.lines().last()), (4, Some("and 1 more")));
        waits.abort();
    }
}
