//! A service with metrics: `cargo run --example service --features metrics`, then
//! `curl 127.0.0.1:9464/metrics`.
//!
//! Three workers share one lock. Prometheus scrapes the metrics page. The directories
//! `docs/grafana` and `docs/prometheus` contain a dashboard and alerts. Set `LEASEHOLD_BACKEND` to
//! use a real store, and `LISTEN` to use another address.

use std::env;
use std::time::Duration;

use leasehold::LockClient;
use leasehold::observe::Metrics;
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Bucket limits in seconds, from a round trip to a nearby server to a job of several minutes.
const BUCKETS: [f64; 12] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 300.0];

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Install the recorder first, because the client describes its metrics when it is built.
    let page = prometheus()?.install_recorder()?;
    // Without this task, the recorder would keep every measurement until the next scrape.
    tokio::spawn(keep_small(page.clone()));
    let url = env::var("LEASEHOLD_BACKEND").unwrap_or_else(|_| "memory:".to_owned());
    let backend = leasehold::backend::connect(&url).await?;
    let client = LockClient::builder(backend).observer(Metrics::new()).build()?.into_dyn();

    for worker in 1..=3 {
        tokio::spawn(work(client.clone(), worker));
    }
    let address = env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:9464".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/metrics", listener.local_addr()?);
    tokio::select! {
        served = serve(listener, page) => served?,
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(client.shutdown(Duration::from_secs(5)).await?)
}

/// Creates a recorder that stores times as histograms.
pub(crate) fn prometheus() -> Result<PrometheusBuilder, BuildError> {
    let times = Matcher::Suffix("_seconds".to_owned());
    PrometheusBuilder::new().set_buckets_for_metric(times, &BUCKETS)
}

/// Moves measurements into the histograms, even if the page is not scraped.
pub(crate) async fn keep_small(page: PrometheusHandle) {
    loop {
        tokio::time::sleep(Duration::from_secs(5)).await;
        page.run_upkeep();
    }
}

async fn work(client: LockClient, worker: u32) -> Result<(), leasehold::Error> {
    let job = client.mutex("job")?;
    loop {
        let done = job.run(async |_guard| tokio::time::sleep(Duration::from_millis(20)).await);
        if let Err(error) = done.await {
            eprintln!("worker {worker}: {error}");
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

/// Answers every request with the current metrics.
pub(crate) async fn serve(listener: TcpListener, page: PrometheusHandle) -> std::io::Result<()> {
    loop {
        let (connection, _) = listener.accept().await?;
        let page = page.render();
        // An error of one connection does not affect the service.
        tokio::spawn(async move { answer(connection, &page).await });
    }
}

async fn answer(mut connection: TcpStream, page: &str) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") && request.len() < 8_192 {
        request.push(connection.read_u8().await?);
    }
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close";
    let answer = format!("{head}\r\nContent-Length: {}\r\n\r\n{page}", page.len());
    connection.write_all(answer.as_bytes()).await?;
    connection.shutdown().await
}
