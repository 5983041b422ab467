//! A list that stores a single item without a heap allocation.

use std::slice;

/// One item or several items. Nearly all calls are for one key.
#[derive(Debug)]
pub(crate) enum OneOrMany<T> {
    One(T),
    Several(Vec<T>),
}

impl<T> OneOrMany<T> {
    /// Creates one item per source. `sources` must not be empty.
    pub(crate) fn of<'s, S>(sources: &'s [S], mut make: impl FnMut(&'s S) -> T) -> Self {
        match sources {
            [source] => Self::One(make(source)),
            sources => Self::Several(sources.iter().map(make).collect()),
        }
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        match self {
            Self::One(item) => slice::from_ref(item),
            Self::Several(items) => items,
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        match self {
            Self::One(item) => slice::from_mut(item),
            Self::Several(items) => items,
        }
    }

    /// Returns the item of a list that was created from one source.
    pub(crate) fn into_one(self) -> T {
        match self {
            Self::One(item) => item,
            Self::Several(_) => unreachable!("a collection made from one item has one item"),
        }
    }

    pub(crate) fn map<U>(self, mut change: impl FnMut(T) -> U) -> OneOrMany<U> {
        match self {
            Self::One(item) => OneOrMany::One(change(item)),
            Self::Several(items) => OneOrMany::Several(items.into_iter().map(change).collect()),
        }
    }

    pub(crate) fn into_vec(self) -> Vec<T> {
        match self {
            Self::One(item) => vec![item],
            Self::Several(items) => items,
        }
    }
}

impl<T> FromIterator<T> for OneOrMany<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut items = items.into_iter();
        match (items.next(), items.next()) {
            (Some(item), None) => Self::One(item),
            (first, second) => {
                Self::Several(first.into_iter().chain(second).chain(items).collect())
            }
        }
    }
}
