//! Free ports.

use std::net::TcpListener;

/// Below the range from which the kernel gives client sockets their ports, so that none of them
/// takes a port between its being found free and the server's binding it.
const RANGE: std::ops::Range<u16> = 20_000..30_000;

/// Finds a free loopback port. Another process may take it before you do: try again then.
///
/// # Panics
///
/// If a thousand ports in a row are taken.
pub fn free_port() -> u16 {
    for _ in 0..1_000 {
        let port = fastrand::u16(RANGE);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
    panic!("no free port from {} to {}", RANGE.start, RANGE.end);
}
