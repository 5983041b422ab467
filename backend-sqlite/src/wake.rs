//! Wakes waiting processes with datagrams, so that they do not have to wait for their next poll.
//!
//! A process that waits binds a socket next to the file, and stores the socket's number in its queue
//! entries. A process that changes a key sends the tags of the queue entries that can be granted. A
//! datagram is only a hint. If it is lost, or if the socket cannot be bound, the waiter polls.

use std::cell::{OnceCell, RefCell};
use std::fs;
use std::io::{self, ErrorKind as IoKind};
use std::net::Shutdown;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use leasehold_sql_support::News;
use uuid::Uuid;

use crate::file::share_socket;

/// The maximum number of processes that wait for datagrams. All further processes only poll.
const SOCKETS: u32 = 256;

/// The sockets next to a file.
#[derive(Debug)]
pub(crate) struct Wakes {
    database: PathBuf,
    news: News,
    /// This process's socket, which is bound for the first queue entry. `None` if no socket can be
    /// bound.
    own: OnceCell<Option<Own>>,
    /// The socket that sends datagrams.
    sender: Option<UnixDatagram>,
    /// The claims to wake when the transaction is committed, each with the number of its socket.
    woken: RefCell<Vec<(u32, Uuid)>>,
}

/// A bound socket, whose thread ends when this value is dropped.
#[derive(Debug)]
struct Own {
    number: u32,
    path: PathBuf,
    socket: Arc<UnixDatagram>,
    is_closed: Arc<AtomicBool>,
}

impl Wakes {
    pub(crate) fn new(database: &Path, news: News) -> Self {
        let sender = UnixDatagram::unbound().ok();
        let sender = sender.filter(|socket| socket.set_nonblocking(true).is_ok());
        let (own, woken) = (OnceCell::new(), RefCell::default());
        Self { database: database.to_owned(), news, own, sender, woken }
    }

    /// Returns the number of this process's socket. Binds the socket on the first call. `in_use`
    /// returns the numbers of the sockets in the queue of the key.
    pub(crate) fn socket(&self, in_use: impl FnOnce() -> Vec<u32>) -> Option<u32> {
        let bind = || Own::bind(&self.database, &in_use(), &self.news).ok();
        let own = self.own.get_or_init(bind);
        own.as_ref().map(|own| own.number)
    }

    /// Returns the number of this process's socket, if it is bound.
    pub(crate) fn bound_socket(&self) -> Option<u32> {
        self.own.get()?.as_ref().map(|own| own.number)
    }

    /// Adds the claim with this tag to the claims to wake. `socket` is the number of the socket of
    /// the claim's process.
    pub(crate) fn add(&self, socket: u32, tag: Uuid) {
        self.woken.borrow_mut().push((socket, tag));
    }

    /// Removes all claims, because the transaction that changed their keys was not committed.
    pub(crate) fn clear(&self) {
        self.woken.borrow_mut().clear();
    }

    /// Wakes the claims of other processes. [`Backend`](leasehold_sql_support::rows::Backend) wakes the
    /// claims of this process.
    pub(crate) fn send(&self) {
        for (number, tag) in self.woken.take() {
            // The number comes from the file, which other programs may write.
            let is_valid = number < SOCKETS && self.bound_socket() != Some(number);
            let Some(sender) = self.sender.as_ref().filter(|_| is_valid) else { continue };
            let path = path_of(&self.database, number);
            if sender.send_to(tag.as_bytes(), &path).is_err_and(|error| is_left_over(&error)) {
                drop(fs::remove_file(path));
            }
        }
    }
}

impl Own {
    /// Binds the first free socket, and starts the thread that receives its datagrams.
    ///
    /// A transaction is open, and the sockets `in_use` are skipped to keep the transaction short.
    /// Finding out that a socket is in use takes four system calls, and there may be 128 of them.
    fn bind(database: &Path, in_use: &[u32], news: &News) -> io::Result<Self> {
        let (number, path, socket) = (0..SOCKETS)
            .filter(|number| !in_use.contains(number))
            .find_map(|number| {
                let path = path_of(database, number);
                bind(&path).map(|socket| socket.map(|socket| (number, path, socket))).transpose()
            })
            .unwrap_or_else(|| Err(IoKind::AddrInUse.into()))?;
        let own = Self { number, path, socket: Arc::new(socket), is_closed: Arc::default() };
        share_socket(&own.path, database)?;
        let (socket, is_closed, news) =
            (Arc::clone(&own.socket), Arc::clone(&own.is_closed), news.clone());
        let thread = thread::Builder::new().name("leasehold-sqlite-wake".to_owned());
        thread.spawn(move || receive(&socket, &is_closed, &news))?;
        Ok(own)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Release);
        // Ends the thread's call of `recv`.
        drop(self.socket.shutdown(Shutdown::Both));
        drop(fs::remove_file(&self.path));
    }
}

fn path_of(database: &Path, number: u32) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(format!("-wake-{number}"));
    path.into()
}

/// Binds a socket. Returns `None` if a process uses the path. Replaces a socket that a killed process
/// has left.
fn bind(path: &Path) -> io::Result<Option<UnixDatagram>> {
    match UnixDatagram::bind(path) {
        Err(error) if error.kind() == IoKind::AddrInUse => {}
        bound => return bound.map(Some),
    }
    let Err(error) = UnixDatagram::unbound()?.connect(path) else { return Ok(None) };
    if !is_left_over(&error) {
        return Ok(None);
    }
    drop(fs::remove_file(path));
    match UnixDatagram::bind(path) {
        // Another process was faster.
        Err(error) if error.kind() == IoKind::AddrInUse => Ok(None),
        bound => bound.map(Some),
    }
}

/// Returns whether no process has the socket open.
fn is_left_over(error: &io::Error) -> bool {
    error.kind() == IoKind::ConnectionRefused
}

fn receive(socket: &UnixDatagram, is_closed: &AtomicBool, news: &News) {
    let mut tag = [0; size_of::<Uuid>()];
    while !is_closed.load(Ordering::Acquire) {
        match socket.recv(&mut tag) {
            Ok(length) if length == tag.len() => news.call(&Uuid::from_bytes(tag)),
            Ok(_) => {}
            Err(error) if error.kind() == IoKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
