//! Methods that `#[async_trait]` has rewritten before the attribute sees them.

use std::sync::Arc;

use leasehold::{ErrorKind, LockClient, LockGuard, LockOptions, locked};

use super::{AppError, client, store};

#[async_trait::async_trait]
trait Shop: Send + Sync {
    async fn settle(&self, id: u64, note: &str) -> Result<String, AppError>;
    async fn count(&mut self, by: u32) -> Result<u32, AppError>;
    async fn close(self: Arc<Self>) -> Result<u64, AppError>;
    async fn report(&self, tried: (u32, u32)) -> Result<Option<u32>, AppError>;

    #[locked(key = "default", client = self.locks(), on_busy = skip)]
    async fn provided(&self) -> Result<Option<&LockClient>, AppError> {
        Ok(Some(self.locks()))
    }

    fn locks(&self) -> &LockClient;
}

struct Real {
    locks: LockClient,
    visits: u32,
}

impl Real {
    fn new() -> Self {
        Self { locks: client(&store(), LockOptions::new()), visits: 0 }
    }

    async fn hold(&self, key: &str) -> LockGuard {
        self.locks.mutex(key).unwrap().try_lock().await.expect("it is free")
    }
}

#[async_trait::async_trait]
impl Shop for Real {
    #[locked(key = "order:{id}", client = self.locks, wait = "0s", guard = guard)]
    async fn settle(&self, id: u64, note: &str) -> Result<String, AppError> {
        if note.is_empty() {
            return Ok(String::new());
        }
        let number = note.parse::<u32>()?;
        tokio::task::yield_now().await;
        Ok(format!("{} {number}", guard.key()))
    }

    #[locked(key = "{by}", client = self.locks)]
    async fn count(&mut self, by: u32) -> Result<u32, AppError> {
        self.visits += by;
        tokio::task::yield_now().await;
        Ok(self.visits)
    }

    #[locked(key = "close", client = self.locks, guard = guard)]
    async fn close(self: Arc<Self>) -> Result<u64, AppError> {
        drop(self);
        Ok(guard.token().number())
    }

    #[locked(key = "report:{first}", client = self.locks, on_busy = skip)]
    async fn report(&self, (first, second): (u32, u32)) -> Result<Option<u32>, AppError> {
        Ok(Some(first + second))
    }

    fn locks(&self) -> &LockClient {
        &self.locks
    }
}

#[tokio::test]
async fn methods_run_under_their_locks() {
    let mut shop = Real::new();

    assert_eq!(shop.settle(42, "7").await.unwrap(), "order:42 7");
    assert_eq!(shop.settle(42, "").await.unwrap(), "");
    assert!(matches!(shop.settle(42, "seven").await, Err(AppError::Number)));
    assert_eq!(shop.count(2).await.unwrap(), 2);
    assert_eq!(shop.report((1, 2)).await.unwrap(), Some(3));
    assert!(shop.provided().await.unwrap().is_some());
    let shop: Arc<dyn Shop> = Arc::new(shop);
    tokio::spawn(shop.close()).await.unwrap().unwrap();
}

#[tokio::test]
async fn busy_locks_keep_methods_out() {
    let shop = Real::new();
    let _held =
        (shop.hold("order:42").await, shop.hold("report:1").await, shop.hold("default").await);

    assert_eq!(shop.settle(42, "7").await.unwrap_err().kind(), Some(ErrorKind::Timeout));
    assert_eq!(shop.settle(43, "7").await.unwrap(), "order:43 7");
    assert_eq!(shop.report((1, 2)).await.unwrap(), None);
    assert_eq!(shop.report((2, 2)).await.unwrap(), Some(4));
    assert!(shop.provided().await.unwrap().is_none());
}
