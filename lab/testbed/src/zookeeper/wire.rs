//! As much of ZooKeeper's protocol as a probe of stalls needs: a session, and pings.

use std::io::{self, Read, Write};
use std::net::TcpStream;

use crate::heartbeat::TIMEOUT;

/// A `ConnectRequest` after its length: protocol version 0, last zxid 0, a timeout of 30 s, session 0, a password of 16 zeros, not
/// read-only.
const CONNECT: [u8; 49] = {
    let mut request = [0; 49];
    request[3] = 45;
    [request[18], request[19]] = 30_000_u16.to_be_bytes();
    request[31] = 16;
    request
};

/// A ping after its length: the request number -2, the operation 11.
pub(super) const PING: &[u8] = &[0, 0, 0, 8, 0xff, 0xff, 0xff, 0xfe, 0, 0, 0, 11];

/// Opens a session at a server. It ends half a minute after its last ping.
pub(super) fn connect(address: &str) -> io::Result<TcpStream> {
    let mut connection = TcpStream::connect(address)?;
    connection.set_nodelay(true)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.write_all(&CONNECT)?;
    let mut length = [0; 4];
    connection.read_exact(&mut length)?;
    let mut reply = vec![0; u32::from_be_bytes(length) as usize];
    connection.read_exact(&mut reply)?;
    Ok(connection)
}
