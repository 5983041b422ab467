//! Pages of keys in use.

use crate::contract::key::LockKey;

/// A page of keys with leases or queued claims, returned by
/// [`StoreAdmin::list`](crate::backend::StoreAdmin::list).
///
/// ```
/// use leasehold_core::LockKey;
/// use leasehold_core::backend::KeyPage;
///
/// let page = KeyPage::new(vec![LockKey::new("invoice:42")?]).with_next(Some("42".to_owned()));
/// assert_eq!(page.keys().len(), 1);
/// assert_eq!(page.next(), Some("42"));
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeyPage {
    keys: Vec<LockKey>,
    next: Option<String>,
}

impl KeyPage {
    /// Creates a page with `keys`. Without [`with_next`](Self::with_next), the page is the last
    /// page.
    pub fn new(keys: Vec<LockKey>) -> Self {
        Self { keys, next: None }
    }

    /// Sets the position of the next page. The position is a string that only the store interprets.
    #[must_use]
    pub fn with_next(mut self, next: Option<String>) -> Self {
        self.next = next;
        self
    }

    /// Returns the keys of the page, without duplicates.
    pub fn keys(&self) -> &[LockKey] {
        &self.keys
    }

    /// Returns the position of the next page, or `None` if this is the last page.
    pub fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    pub(crate) fn into_parts(self) -> (Vec<LockKey>, Option<String>) {
        (self.keys, self.next)
    }
}
