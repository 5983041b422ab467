//! Functions that run under a lock, by an attribute:
//! `cargo run --example locked --features macros`.

use leasehold::{ErrorKind, LockClient, locked};

struct Shop {
    name: String,
    locks: LockClient,
}

impl Shop {
    /// Waits for up to two seconds, and then returns an error.
    #[locked(key = "{self.name}/order:{id}", client = self.locks, wait = "2s", guard = lock)]
    async fn settle(&self, id: u64) -> Result<String, leasehold::Error> {
        Ok(format!("order {id} is settled with token {}", lock.token()))
    }

    /// One caller writes the report. All other callers get `None`.
    #[locked(key = "{self.name}/report", client = self.locks, on_busy = skip)]
    async fn report(&self) -> Result<Option<&'static str>, leasehold::Error> {
        Ok(Some("the report is written"))
    }
}

#[tokio::main]
async fn main() -> Result<(), leasehold::Error> {
    let store = std::env::var("LEASEHOLD_BACKEND").unwrap_or_else(|_| "memory:".to_owned());
    let shop = Shop { name: "shop".to_owned(), locks: leasehold::connect(&store).await? };

    println!("1. {}", shop.settle(42).await?);

    let held = shop.locks.mutex("shop/order:42")?.lock().await?;
    println!("2. order 43 has a lock of its own: {}", shop.settle(43).await?);
    let late = shop.settle(42).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout);
    println!("3. order 42 is held: {late}");
    held.release().await?;

    let held = shop.locks.mutex("shop/report")?.lock().await?;
    println!("4. another one writes the report: {:?}", shop.report().await?);
    held.release().await?;
    println!("5. we do: {:?}", shop.report().await?);
    Ok(())
}
