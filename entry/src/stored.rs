//! The JSON form of holders and queue entries.

use std::time::Duration;

use leasehold_core::Description;
use leasehold_core::backend::Mode;
use leasehold_core::backend::entry::{Holding, QueueEntry};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::tag::Tag;

/// The fields of another version or another program, which are kept.
pub(crate) type Unknown = Map<String, Value>;

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct StoredEntry {
    #[serde(rename = "v")]
    pub(crate) version: u32,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) holders: Vec<StoredHolder>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) queue: Vec<StoredWaiter>,
    #[serde(default, rename = "asked", skip_serializing_if = "Option::is_none")]
    pub(crate) asked_until: Option<i64>,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct StoredHolder {
    #[serde(with = "uuid::serde::simple")]
    pub(crate) tag: Uuid,
    print: String,
    ends: i64,
    token: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    units: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    asked: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct StoredWaiter {
    #[serde(with = "uuid::serde::simple")]
    pub(crate) tag: Uuid,
    print: String,
    ends: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    keep: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) socket: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    units: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    #[serde(flatten)]
    pub(crate) unknown: Unknown,
}

impl StoredHolder {
    pub(crate) fn of(holding: &Holding<Tag, i64>, unknown: Option<&Unknown>) -> Self {
        let (units, limit) = numbers(holding.mode);
        Self {
            tag: holding.name.id,
            print: holding.name.fingerprint.to_string(),
            ends: holding.ends,
            token: holding.token,
            since: holding.granted_at,
            units,
            limit,
            asked: holding.is_asked,
            text: holding.description.as_ref().map(ToString::to_string),
            unknown: unknown.cloned().unwrap_or_default(),
        }
    }

    /// Returns `None` if a value is not valid.
    pub(crate) fn holding(&self) -> Option<Holding<Tag, i64>> {
        Some(Holding {
            name: Tag { id: self.tag, fingerprint: self.print.parse().ok()? },
            mode: mode(self.units, self.limit)?,
            description: description(self.text.as_deref()),
            token: self.token,
            granted_at: self.since,
            ends: self.ends,
            is_asked: self.asked,
        })
    }
}

impl StoredWaiter {
    pub(crate) fn of(
        waiter: &QueueEntry<Tag, i64>,
        socket: Option<u32>,
        unknown: Option<&Unknown>,
    ) -> Self {
        let (units, limit) = numbers(waiter.mode);
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Self {
            tag: waiter.name.id,
            print: waiter.name.fingerprint.to_string(),
            ends: waiter.ends,
            keep: waiter.reservation.map(micros),
            socket,
            units,
            limit,
            text: waiter.description.as_ref().map(ToString::to_string),
            unknown: unknown.cloned().unwrap_or_default(),
        }
    }

    /// Returns `None` if a value is not valid.
    pub(crate) fn queue_entry(&self) -> Option<QueueEntry<Tag, i64>> {
        Some(QueueEntry {
            name: Tag { id: self.tag, fingerprint: self.print.parse().ok()? },
            mode: mode(self.units, self.limit)?,
            description: description(self.text.as_deref()),
            ends: self.ends,
            reservation: self.keep.map(Duration::from_micros),
        })
    }
}

fn numbers(mode: Mode) -> (Option<u32>, Option<u32>) {
    match mode {
        Mode::Exclusive => (None, None),
        Mode::Units { units, limit } => (Some(units), Some(limit)),
    }
}

fn mode(units: Option<u32>, limit: Option<u32>) -> Option<Mode> {
    match (units, limit) {
        (None, None) => Some(Mode::Exclusive),
        (Some(units), Some(limit)) => Some(Mode::Units { units, limit }),
        (None, Some(_)) | (Some(_), None) => None,
    }
}

/// Omits a description that Leasehold did not write.
fn description(text: Option<&str>) -> Option<Description> {
    text.and_then(|text| Description::new(text).ok())
}
