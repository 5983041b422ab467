//! A store that was started before the campaign. The campaign does not cause faults of this store.

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use leasehold_conformance::FaultKind;

use super::Store;

pub(super) struct Given {
    url: String,
}

impl Given {
    pub(super) fn at(url: &str) -> Self {
        Self { url: url.to_owned() }
    }
}

#[async_trait]
impl Store for Given {
    fn url(&self) -> String {
        self.url.clone()
    }

    async fn versions(&self) -> BTreeMap<String, String> {
        BTreeMap::new()
    }

    async fn disturb(&mut self, kind: FaultKind, _: Duration) -> String {
        panic!("{kind} befalls no store that was given")
    }
}
