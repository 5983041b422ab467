//! The forms of functions that may be annotated. Most of these tests check that they compile.

use std::cell::Cell;
use std::fmt::Display;
use std::sync::Arc;

use leasehold::{LockClient, LockOptions, locked};

use super::{AppError, client, store};

struct Order {
    id: (u32, u8),
    r#type: &'static str,
}

struct Shop {
    name: String,
    locks: LockClient,
    visits: u32,
}

impl Shop {
    fn new() -> Self {
        let locks = client(&store(), LockOptions::new());
        Self { name: "shop".to_owned(), locks, visits: 0 }
    }

    fn locks(&self) -> &LockClient {
        &self.locks
    }

    #[locked(key = "{self.name}/{order.id.0}.{order.id.1}", client = self.locks(), guard = guard)]
    async fn key_of_fields(&self, order: &Order) -> Result<String, AppError> {
        Ok(format!("{} {}", order.r#type, guard.key()))
    }

    #[locked(key = "{self.name}", client = self.locks)]
    async fn borrowed(&self) -> Result<&str, AppError> {
        tokio::task::yield_now().await;
        Ok(&self.name)
    }

    #[locked(key = "{self.name}", client = self.locks)]
    async fn borrowed_mutably(&mut self) -> Result<&mut u32, AppError> {
        self.visits += 1;
        tokio::task::yield_now().await;
        Ok(&mut self.visits)
    }

    #[locked(key = "{self.name}", client = self.locks)]
    async fn shared(self: Arc<Self>, parts: Vec<u8>) -> Result<Vec<u8>, AppError> {
        tokio::task::yield_now().await;
        drop(self);
        Ok(parts)
    }

    #[locked(key = "{self.name}", client = self.locks)]
    async fn consumed(self) -> Result<LockClient, AppError> {
        Ok(self.locks)
    }

    #[locked(key = "{self.name}", client = self.locks)]
    async fn boxed(&self) -> Result<Box<dyn Fn(u32) -> u32 + Send>, AppError> {
        if self.visits > 0 {
            return Ok(Box::new(|visits| visits));
        }
        Ok(Box::new(|visits| visits + 1))
    }
}

#[locked(key = "{first}-{second}-{inner}", client = locks, guard = guard)]
async fn patterns(
    locks: &LockClient,
    (first, second): (u32, u32),
    Order { id: (inner, _), .. }: Order,
    _: u8,
) -> Result<String, AppError> {
    Ok(format!("{} {}", guard.key(), first + second + inner))
}

#[locked(key = "{name}", client = locks, guard = guard)]
async fn generic<'a, K, F>(
    locks: &LockClient,
    name: &'a K,
    work: F,
) -> Result<(&'a K, String), AppError>
where
    K: Display + Send + Sync,
    F: AsyncFn(&str) -> u32,
{
    work(guard.key().as_str()).await;
    Ok((name, guard.key().to_string()))
}

#[locked(key = "{id}", client = locks)]
async fn impl_trait(
    locks: &LockClient,
    id: impl Display + Send,
    numbers: impl Iterator<Item = u32> + Send,
    cell: Cell<u32>,
) -> Result<impl Iterator<Item = u32>, AppError> {
    cell.set(1);
    tokio::task::yield_now().await;
    Ok(numbers.map(move |number| number + cell.get()))
}

/// All names here are used by the expansion, or look as if they were.
#[locked(key = "{mutex}{{}}{options}", client = locks, guard = guard)]
async fn names(
    locks: &LockClient,
    mutex: u32,
    options: u32,
    output: u32,
    run: u32,
    work: u32,
) -> Result<(u32, String), AppError> {
    Ok((mutex + options + output + run + work, guard.key().to_string()))
}

#[locked(key = "{type}", client = locks, guard = r#match)]
async fn raw_names(locks: &LockClient, r#type: u32) -> Result<String, AppError> {
    Ok(format!("{type} {}", r#match.key()))
}

macro_rules! made_by_a_macro {
    ($name:ident, $key:literal, $arg:ident) => {
        #[locked(key = $key, client = locks, guard = guard)]
        async fn $name(locks: &LockClient, $arg: u32) -> Result<String, AppError> {
            Ok(format!("{} {}", $arg, guard.key()))
        }
    };
}

made_by_a_macro!(made, "made:{id}", id);

mod renamed {
    pub(crate) use leasehold::__locked;
    pub(crate) use leasehold::retry;
}

#[locked(crate = crate::locked::forms::renamed, key = "k", client = locks, retry = 1, every = "1s")]
async fn renamed_crate(locks: &LockClient) -> Result<(), AppError> {
    Ok(())
}

#[locked(key = "k", client = client?, guard = guard)]
async fn client_that_may_fail(client: Result<&LockClient, AppError>) -> Result<String, AppError> {
    Ok(guard.key().to_string())
}

#[expect(clippy::manual_async_fn, reason = "the attribute takes this form too")]
#[locked(key = "k", client = locks)]
fn future_by_hand(
    locks: &LockClient,
    id: u32,
) -> impl Future<Output = Result<u32, AppError>> + Send {
    async move { Ok(id) }
}

#[tokio::test]
async fn keys_are_made_of_arguments_and_fields() {
    let shop = Shop::new();
    let order = || Order { id: (4, 2), r#type: "gift" };

    assert_eq!(shop.key_of_fields(&order()).await.unwrap(), "gift shop/4.2");
    assert_eq!(patterns(&shop.locks, (1, 2), order(), 0).await.unwrap(), "1-2-4 7");
    assert_eq!(names(&shop.locks, 1, 2, 3, 4, 5).await.unwrap(), (15, "1%7B%7D2".to_owned()));
    assert_eq!(raw_names(&shop.locks, 7).await.unwrap(), "7 7");
    assert_eq!(made(&shop.locks, 7).await.unwrap(), "7 made:7");
}

#[tokio::test]
async fn outputs_may_borrow_and_be_coerced() {
    let mut shop = Shop::new();

    assert_eq!(shop.borrowed().await.unwrap(), "shop");
    *shop.borrowed_mutably().await.unwrap() += 1;
    assert_eq!(shop.visits, 2);
    assert_eq!(shop.boxed().await.unwrap()(2), 2);
}

#[tokio::test]
async fn futures_may_be_spawned() {
    let shop = Arc::new(Shop::new());
    let (first, second) = (Arc::clone(&shop), Arc::clone(&shop));

    let first = tokio::spawn(async move {
        let name = "k".to_owned();
        let (name, key) = generic(&first.locks, &name, async |_| 1).await?;
        assert_eq!(*name, key);
        first.borrowed().await?;
        assert_eq!(first.boxed().await?(1), 2);
        client_that_may_fail(Ok(&first.locks)).await?;
        renamed_crate(&first.locks).await?;
        first.shared(vec![1]).await
    });
    let second = tokio::spawn(async move {
        let numbers = impl_trait(&second.locks, 7, [1, 2].into_iter(), Cell::new(0)).await?;
        future_by_hand(&second.locks, 7).await?;
        Ok::<_, AppError>(numbers.sum::<u32>())
    });

    assert_eq!(first.await.unwrap().unwrap(), [1]);
    assert_eq!(second.await.unwrap().unwrap(), 5);
    let shop = Arc::into_inner(shop).expect("the tasks have ended");
    shop.consumed().await.unwrap();
}

#[tokio::test]
async fn a_client_expression_that_fails_ends_the_call() {
    let error = AppError::Lock(leasehold::Error::new(leasehold::ErrorKind::Closed, "no client"));

    let error = client_that_may_fail(Err(error)).await.unwrap_err();

    assert_eq!(error.kind(), Some(leasehold::ErrorKind::Closed));
}
