//! Acquires locks by name. Operators set their types and options:
//! `cargo run --example config --features config`.

use leasehold::TryLockError;
use leasehold::config::{Config, LockService};

/// In production, this text is usually a file that operators edit. The features of the stores add
/// other URLs.
const SETTINGS: &str = r#"
url = "memory:"

[defaults]
ttl = "10s"
wait = "5s"

# Several machines start these at about the same time, and one of them shall do the work.
[locks."report:*"]
wait = "0s"
min_hold = "1m"

[locks.connections]
kind = "semaphore"
limit = 2
"#;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let config = Config::read(toml::Deserializer::parse(SETTINGS)?)?;
    let locks = LockService::connect(config).await?;

    for machine in 1..=3 {
        match locks.try_run("report:daily", async |_guard| "writes the report").await {
            Ok(done) => println!("machine {machine} {done}"),
            Err(TryLockError::Busy(_)) => println!("machine {machine} skips it"),
            Err(TryLockError::Failed(error)) => return Err(error.into()),
        }
    }

    let (_one, _other) = (locks.lock("connections").await?, locks.lock("connections").await?);
    if let Err(error) = locks.try_lock("connections").await {
        println!("a third connection has to wait: {}", error.into_busy()?);
    }

    // An invalid setting is found at the start, and the error names the field.
    let mistaken = SETTINGS.replace("1m", "2 parsecs");
    let error = Config::read(toml::Deserializer::parse(&mistaken)?).unwrap_err();
    println!("refused: {error}");
    Ok(())
}
