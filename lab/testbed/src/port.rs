//! Free ports.

use std::env;
use std::fs::{self, File};
use std::net::TcpListener;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// The range is below the ports that the kernel assigns to client sockets, so that no client socket
/// takes a port after it was found free and before the server binds it.
const RANGE: Range<u16> = 20_000..30_000;

/// The ports of this process, each by the lock of a file that ends with the process.
static OURS: Mutex<Vec<File>> = Mutex::new(Vec::new());

/// Finds a free loopback port that no other process will be given by this function as long as this one runs.
///
/// Tests run side by side, and a server that is restarted, or not up yet, has a port that looks free.
///
/// # Panics
///
/// If a thousand ports in a row are taken, or there is no writable folder for temporary files.
pub fn free_port() -> u16 {
    for _ in 0..1_000 {
        let port = fastrand::u16(RANGE);
        if let Some(file) = reserve(port) {
            OURS.lock().unwrap_or_else(PoisonError::into_inner).push(file);
            return port;
        }
    }
    panic!("no free port from {} to {}", RANGE.start, RANGE.end);
}

fn reserve(port: u16) -> Option<File> {
    let folder = env::temp_dir().join("leasehold-ports");
    fs::create_dir_all(&folder).expect("temporary files can be written");
    let path = folder.join(port.to_string());
    let file = File::options().create(true).append(true).open(path).expect("as before");
    let ours = file.try_lock().is_ok() && TcpListener::bind(("127.0.0.1", port)).is_ok();
    ours.then_some(file)
}
