//! A web service with axum: readiness probe, one lock per request, graceful shutdown.
//!
//! `cargo run --example web_service`, then `curl -X POST 127.0.0.1:8080/invoices/42/pay`. Set
//! `LEASEHOLD_BACKEND` to use a real store, and `LISTEN` to use another address. After SIGTERM or
//! Ctrl-C, the service completes the current requests and ends.

use std::env;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use leasehold::{Error, ErrorKind, LockClient, LockOptions};
use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = env::var("LEASEHOLD_BACKEND").unwrap_or_else(|_| "memory:".to_owned());
    // An HTTP client does not wait for long, so the lock does not either.
    let options = LockOptions::new().wait(Duration::from_millis(200));
    // The service also starts while its store is down. `/ready` then reports the error.
    let client = leasehold::connect_lazily(&url, options)?;

    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address).await?;
    let terminated = terminated();
    println!("http://{}", listener.local_addr()?);
    axum::serve(listener, service(client.clone())).with_graceful_shutdown(terminated).await?;

    // All requests have ended. This call releases the leases that are still held, so other callers
    // do not have to wait for a TTL.
    client.shutdown(Duration::from_secs(5)).await?;
    println!("all locks are released");
    Ok(())
}

/// Waits for SIGTERM from the orchestrator, or for Ctrl-C. Signals are recorded from the call on,
/// even before the future is polled.
fn terminated() -> impl Future<Output = ()> {
    #[cfg(unix)]
    let signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate());
    async {
        #[cfg(unix)]
        let terminate = async { signal.expect("a runtime with I/O").recv().await };
        #[cfg(not(unix))]
        let terminate = std::future::pending::<()>();
        tokio::select! {
            _ = terminate => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    }
}

fn service(client: LockClient) -> Router {
    Router::new()
        .route("/ready", get(ready))
        .route("/invoices/{id}/pay", post(pay))
        .with_state(client)
}

async fn ready(State(client): State<LockClient>) -> (StatusCode, String) {
    match client.ping(Duration::from_millis(500)).await {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

async fn pay(State(client): State<LockClient>, Path(id): Path<u64>) -> (StatusCode, String) {
    match pay_alone(&client, id).await {
        Ok(token) => (StatusCode::OK, format!("invoice {id} is paid under token {token}\n")),
        Err(error) => (status(&error), format!("{error}\n")),
    }
}

async fn pay_alone(client: &LockClient, id: u64) -> Result<u64, Error> {
    let invoice = client.mutex(format!("invoice:{id}"))?;
    invoice
        .run(async |guard| {
            println!("paying invoice {id}");
            tokio::time::sleep(Duration::from_millis(500)).await; // the work
            guard.token().number()
        })
        .await
}

/// Returns a status that tells the HTTP client whether to try again.
fn status(error: &Error) -> StatusCode {
    match error.kind() {
        ErrorKind::Timeout | ErrorKind::TooManyWaiters => StatusCode::CONFLICT,
        ErrorKind::Unavailable | ErrorKind::Indeterminate => StatusCode::SERVICE_UNAVAILABLE,
        // Includes `LeaseLost`, because the payment may have been made.
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
