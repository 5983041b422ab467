//! Reads the rows of a reply.
//!
//! The first column of each reply row is a word that determines the remaining columns. Both
//! dialects return the same rows.

use std::str::FromStr;
use std::time::Duration;

use leasehold_core::backend::{Charter, Standing, StoreId};
use leasehold_core::{Error, ErrorKind};
use uuid::Uuid;

use crate::failure::Failure;
use crate::reply::{
    Acquired, AcquiredAll, Asked, Forced, Granted, HolderRow, Inspected, Refused, Released,
    Renewed, ShownRow,
};
use crate::request::Renew;

/// A row in text form. A column is `None` if its value is null.
///
/// [`Rows`] contains these rows.
pub type Row = Vec<Option<String>>;

/// The rows of all statements of a query batch, in order.
///
/// [`Run::run`](crate::remote::Run::run) returns these rows.
#[derive(Clone, Debug)]
pub struct Rows(pub Vec<Row>);

/// The columns of one row, which are read in order.
pub(crate) struct Columns<'a>(std::slice::Iter<'a, Option<String>>);

impl Rows {
    /// Reads the reply to [`Statements::acquire`](crate::remote::Statements::acquire).
    pub fn acquired(&self) -> Result<Acquired, Error> {
        let called = self.called()?;
        Ok(match self.verdict()? {
            (_, Verdict::Granted(granted)) => Acquired::Granted(Granted { called, ..granted }),
            (_, Verdict::Refused(refused)) => Acquired::Refused(Refused { called, ..refused }),
            (_, Verdict::OtherKind) => Acquired::OtherKind,
        })
    }

    /// Reads the reply to [`Statements::acquire_all`](crate::remote::Statements::acquire_all) for
    /// this number of claims.
    pub fn acquired_all(&self, claims: usize) -> Result<AcquiredAll, Error> {
        match self.verdict()? {
            (index, Verdict::Refused(refused)) => return Ok(AcquiredAll::Refused(index, refused)),
            (index, Verdict::OtherKind) => return Ok(AcquiredAll::OtherKind(index)),
            (_, Verdict::Granted(_)) => {}
        }
        let granted = self.of("granted").map(granted).collect::<Result<Vec<_>, _>>()?;
        if granted.len() == claims { Ok(AcquiredAll::Granted(granted)) } else { Err(nonsense()) }
    }

    /// Reads the reply to [`Statements::renew`](crate::remote::Statements::renew) for these leases.
    /// The result for a lease is `None` if another transaction has locked the lease's row.
    pub fn renewed(&self, leases: &[Renew]) -> Result<Vec<Option<Renewed>>, Error> {
        let called = self.called()?;
        let mut renewed = vec![None; leases.len()];
        for mut row in self.of("kept") {
            *renewed.get_mut(row.number::<usize>()?).ok_or_else(nonsense)? = Some(None);
        }
        for mut row in self.of("renewed") {
            let index: usize = row.number()?;
            let (asked, taken) = (row.optional::<Flag>()?, row.flag()?);
            *renewed.get_mut(index).ok_or_else(nonsense)? = Some(Some(match asked {
                Some(Flag(asked)) => Renewed::Renewed { asked, called: called.clone() },
                None if taken => Renewed::Taken,
                None => Renewed::Vanished,
            }));
        }
        renewed.into_iter().map(|renewed| renewed.ok_or_else(nonsense)).collect()
    }

    /// Reads the reply to [`Statements::release`](crate::remote::Statements::release).
    pub fn released(&self) -> Result<Released, Error> {
        Ok(Released { was_held: self.one("released")?.flag()?, called: self.called()? })
    }

    /// Reads the reply to
    /// [`Statements::request_revocation`](crate::remote::Statements::request_revocation).
    pub fn asked(&self) -> Result<Asked, Error> {
        Ok(Asked { is_held: self.one("asked")?.flag()? })
    }

    /// Reads the reply to [`Statements::force_release`](crate::remote::Statements::force_release).
    pub fn forced(&self) -> Result<Forced, Error> {
        Ok(Forced { ended: self.holders()?, min_token: self.token()?, called: self.called()? })
    }

    /// Reads the reply to [`Statements::inspect`](crate::remote::Statements::inspect).
    pub fn inspected(&self) -> Result<Inspected, Error> {
        let units = self.one("units")?.optional()?.unwrap_or(0);
        let last_token = self.token()?.filter(|token| *token > 0);
        let clock = self.one("clock")?.number()?;
        let waiting = self.one("waiting")?.number()?;
        let (holders, queue) = (self.shown("holder")?, self.shown("waiter")?);
        Ok(Inspected { holders, queue, waiting, clock, units, last_token })
    }

    /// Reads the reply to [`Statements::list`](crate::remote::Statements::list).
    pub fn listed(&self) -> Result<Vec<String>, Error> {
        let name = |mut row: Columns<'_>| row.text().map(str::to_owned).ok_or_else(nonsense);
        self.of("key").map(name).collect()
    }

    /// Reads the reply to [`Statements::standing`](crate::remote::Statements::standing).
    pub fn standing(&self) -> Result<Standing, Error> {
        let mut row = self.of("standing").next().ok_or_else(|| {
            Failure::Layout.error("the row of the quorum member is missing; run the statements that `leasehold tables` prints")
        })?;
        if !row.flag()? {
            let message = "the server cannot be a member of a quorum, because it may lose acknowledged commits; set innodb_flush_log_at_trx_commit and sync_binlog to 1";
            return Err(Error::new(ErrorKind::Refused, message));
        }
        let store = row.text().and_then(StoreId::parse).ok_or_else(nonsense)?;
        let charter = row.text().map(Charter::from_text);
        let standing = Standing::new(store).with_charter(charter).with_floor(row.number()?);
        Ok(standing.with_age(micros(row.number()?)))
    }

    /// Returns the first claim that was not granted, with the reason, or the first grant.
    fn verdict(&self) -> Result<(usize, Verdict), Error> {
        for mut row in self.0.iter().map(|row| Columns(row.iter())) {
            match row.text() {
                Some("refused") => return Ok((row.number()?, Verdict::Refused(refused(row)?))),
                Some("other") => return Ok((row.number()?, Verdict::OtherKind)),
                _ => {}
            }
        }
        Ok((0, Verdict::Granted(granted(self.one("granted")?)?)))
    }

    fn holders(&self) -> Result<Vec<HolderRow>, Error> {
        let holder = |mut row: Columns<'_>| row.holder()?.ok_or_else(nonsense);
        self.of("holder").map(holder).collect()
    }

    fn shown(&self, word: &str) -> Result<Vec<ShownRow>, Error> {
        let shown = |mut row: Columns<'_>| {
            let holder = row.holder()?.ok_or_else(nonsense)?;
            let (whole, capacity) = (row.flag()?, row.number()?);
            Ok(ShownRow { holder, whole, capacity, token: row.optional()? })
        };
        self.of(word).map(shown).collect()
    }

    fn token(&self) -> Result<Option<u64>, Error> {
        self.of("token").next().map(|mut row| row.number()).transpose()
    }

    /// Each row contains tags separated by spaces, or no tag.
    fn called(&self) -> Result<Vec<Uuid>, Error> {
        let rows = self.of("called").filter_map(|mut row| row.text());
        let tags = rows.flat_map(str::split_whitespace);
        tags.map(|tag| tag.parse().map_err(|_| nonsense())).collect()
    }

    /// Returns the first row that starts with this word.
    pub(crate) fn one(&self, word: &str) -> Result<Columns<'_>, Error> {
        self.of(word).next().ok_or_else(nonsense)
    }

    /// Returns the rows that start with this word, without the word.
    pub(crate) fn of(&self, word: &str) -> impl Iterator<Item = Columns<'_>> {
        let rows = self.0.iter().map(|row| Columns(row.iter()));
        rows.filter_map(move |mut row| (row.text() == Some(word)).then_some(row))
    }
}

enum Verdict {
    Granted(Granted),
    Refused(Refused),
    OtherKind,
}

fn granted(mut row: Columns<'_>) -> Result<Granted, Error> {
    let _index: usize = row.number()?;
    Ok(Granted { token: row.number()?, spare: row.number()?, called: Vec::new() })
}

/// Reads the columns of a row that follow the index.
fn refused(mut row: Columns<'_>) -> Result<Refused, Error> {
    // In a grant, these columns contain the tokens.
    let _tokens = (row.text(), row.text());
    let holder = row.holder()?;
    let first_place_ends = row.optional()?.map(micros);
    Ok(Refused { holder, first_place_ends, called: Vec::new() })
}

impl<'a> Columns<'a> {
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        self.0.next().and_then(Option::as_deref)
    }

    fn optional<T: FromStr>(&mut self) -> Result<Option<T>, Error> {
        self.text().map(|text| text.parse().map_err(|_| nonsense())).transpose()
    }

    pub(crate) fn number<T: FromStr>(&mut self) -> Result<T, Error> {
        self.optional()?.ok_or_else(nonsense)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Error> {
        self.number().map(|Flag(flag)| flag)
    }

    fn holder(&mut self) -> Result<Option<HolderRow>, Error> {
        let Some(fingerprint) = self.text().map(str::to_owned) else {
            let _rest = (self.text(), self.text(), self.text());
            return Ok(None);
        };
        let description = self.text().map(str::to_owned);
        let (units, remaining) = (self.number()?, micros(self.number()?));
        Ok(Some(HolderRow { fingerprint, description, units, remaining }))
    }
}

/// A Boolean in the format of either dialect.
struct Flag(bool);

impl FromStr for Flag {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "1" | "t" => Ok(Self(true)),
            "0" | "f" => Ok(Self(false)),
            _ => Err(()),
        }
    }
}

/// Returns the duration, or zero if `micros` is negative.
fn micros(micros: i64) -> Duration {
    Duration::from_micros(micros.try_into().unwrap_or(0))
}

fn nonsense() -> Error {
    Failure::Unexpected.error("the database's reply does not match the request")
}
