//! Functions that block.

use std::fmt::Display;
use std::time::{Duration, Instant};

use leasehold::blocking::{self, LockClient};
use leasehold::{ErrorKind, locked};

use super::AppError;

struct Shop {
    name: String,
    locks: LockClient,
    visits: u32,
}

impl Shop {
    fn new() -> Self {
        let locks = blocking::connect("memory:").unwrap();
        Self { name: "shop".to_owned(), locks, visits: 0 }
    }

    #[locked(key = "{self.name}/{id}", client = self.locks, wait = "50ms", guard = guard)]
    fn settle(&self, id: u64, note: &str) -> Result<String, AppError> {
        if note.is_empty() {
            return Ok(String::new());
        }
        guard.ensure_held(Duration::from_secs(1))?;
        Ok(format!("{} {}", guard.key(), note.parse::<u32>()?))
    }

    #[locked(key = "report", client = self.locks, on_busy = skip)]
    fn report(&self) -> Result<Option<&str>, AppError> {
        Ok(Some(&self.name))
    }

    #[locked(key = "report", client = self.locks, retry = 2, every = "20ms", on_busy = skip)]
    fn count(&mut self) -> Result<Option<&mut u32>, AppError> {
        self.visits += 1;
        Ok(Some(&mut self.visits))
    }

    #[locked(key = "job", client = self.locks, ttl = "5s", guard = guard)]
    fn is_interrupted(&self) -> Result<u32, AppError> {
        assert!(guard.remaining() <= Duration::from_secs(5));
        self.locks.admin().force_release("job", "test")?;
        Ok(1)
    }
}

#[locked(key = "{first}-{second}", client = locks, guard = guard)]
fn patterns<T: Display>(
    locks: &LockClient,
    (first, second): (u32, u32),
    rest: impl Iterator<Item = T>,
    callback: Box<dyn FnOnce(u32) -> u32>,
) -> Result<(u32, impl Iterator<Item = String>), AppError> {
    let key = guard.key().to_string();
    Ok((callback(first + second), rest.map(move |part| format!("{key}{part}"))))
}

#[test]
fn functions_run_under_their_locks() {
    let mut shop = Shop::new();

    assert_eq!(shop.settle(42, "7").unwrap(), "shop/42 7");
    assert_eq!(shop.settle(42, "").unwrap(), "");
    assert!(matches!(shop.settle(42, "seven"), Err(AppError::Number)));
    assert_eq!(shop.report().unwrap(), Some("shop"));
    *shop.count().unwrap().expect("it is free") += 1;
    assert_eq!(shop.visits, 2);
    let (sum, rest) = patterns(&shop.locks, (1, 2), ["a"].iter(), Box::new(|sum| sum + 1)).unwrap();
    assert_eq!((sum, rest.collect::<Vec<_>>()), (4, vec!["1-2a".to_owned()]));
}

#[test]
fn busy_locks_are_errors_or_skipped() {
    let mut shop = Shop::new();
    let _held = ["shop/42", "report"].map(|key| shop.locks.mutex(key).unwrap().lock().unwrap());

    let start = Instant::now();
    assert_eq!(shop.settle(42, "7").unwrap_err().kind(), Some(ErrorKind::Timeout));
    assert!(start.elapsed() >= Duration::from_millis(50));
    assert_eq!(shop.settle(43, "7").unwrap(), "shop/43 7");
    assert_eq!(shop.report().unwrap(), None);
    let start = Instant::now();
    assert_eq!(shop.count().unwrap(), None);
    assert!(start.elapsed() >= Duration::from_millis(40));
}

#[test]
fn a_loss_is_an_error_once_the_work_has_ended() {
    let shop = Shop::new();

    assert_eq!(shop.is_interrupted().unwrap_err().kind(), Some(ErrorKind::LeaseLost));
}
