//! A future that ends even if its caller leaves.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// A future that a task continues if this value is dropped before the end.
pub(super) struct Continued<F: Future<Output: Send> + Send + 'static> {
    /// The future, or `None` after its end.
    future: Option<Pin<Box<F>>>,
    runtime: Handle,
}

impl<F: Future<Output: Send> + Send + 'static> Continued<F> {
    pub(super) fn new(future: F) -> Self {
        Self { future: Some(Box::pin(future)), runtime: Handle::current() }
    }
}

impl<F: Future<Output: Send> + Send + 'static> Future for Continued<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let future = self.future.as_mut().expect("a future is not polled after its end");
        let polled = future.as_mut().poll(cx);
        if polled.is_ready() {
            self.future = None;
        }
        polled
    }
}

impl<F: Future<Output: Send> + Send + 'static> Drop for Continued<F> {
    fn drop(&mut self) {
        if let Some(future) = self.future.take() {
            self.runtime.spawn(future);
        }
    }
}
