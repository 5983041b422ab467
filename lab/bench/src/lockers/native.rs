//! Connections of the `redis` crate.

use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo};

/// Creates a client of the `redis` crate that disables Nagle's algorithm, and so sends each request immediately.
pub(crate) fn native_redis(url: &str) -> Client {
    let info = url.into_connection_info().expect("it is a server's URL");
    let tcp = TcpSettings::default().set_nodelay(true);
    Client::open(info.set_tcp_settings(tcp)).expect("it is a server's URL")
}

/// Connects without timeouts, and with a buffer that has capacity for the requests of all tasks.
pub(crate) async fn native_connection(url: &str) -> MultiplexedConnection {
    let unhindered = AsyncConnectionConfig::new()
        .set_connection_timeout(None)
        .set_response_timeout(None)
        .set_pipeline_buffer_size(1_024);
    let client = native_redis(url);
    let connection = client.get_multiplexed_async_connection_with_config(&unhindered).await;
    connection.expect("the server is up")
}
