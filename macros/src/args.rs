//! The arguments of the attribute.

use std::time::Duration;

use proc_macro2::Span;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, Ident, LitInt, LitStr, Path, Token, parse_quote};

use crate::duration;

const NAMES: &str =
    "`key`, `client`, `ttl`, `wait`, `max_hold`, `retry`, `every`, `on_busy`, `guard` and `crate`";

/// The name of a lock, and how the lock is acquired and kept.
pub(crate) struct Args {
    pub(crate) key: LitStr,
    pub(crate) client: Expr,
    pub(crate) ttl: Option<Duration>,
    pub(crate) wait: Option<Duration>,
    pub(crate) max_hold: Option<Duration>,
    /// The number of attempts after the first attempt.
    pub(crate) retry: Option<u32>,
    pub(crate) every: Option<Duration>,
    pub(crate) on_busy: OnBusy,
    pub(crate) guard: Option<Ident>,
    /// The path of the `leasehold` crate, which a program may have renamed.
    pub(crate) facade: Path,
}

/// The return value of the function if the lock is not acquired.
#[derive(Clone, Copy, Eq, PartialEq)]
pub(crate) enum OnBusy {
    Error,
    Skip,
}

impl Parse for Args {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let (mut key, mut client, mut ttl, mut wait) = (None, None, None, None);
        let (mut max_hold, mut retry, mut every, mut on_busy) = (None, None, None, None);
        let (mut guard, mut facade) = (None, None);
        while !input.is_empty() {
            let name = input.call(Ident::parse_any)?;
            input.parse::<Token![=]>()?;
            match name.to_string().as_str() {
                "key" => once(&mut key, &name, input.parse()?)?,
                "client" => once(&mut client, &name, input.parse()?)?,
                "ttl" => once(&mut ttl, &name, time(input, "a TTL")?)?,
                "wait" => once(&mut wait, &name, any_time(input)?)?,
                "max_hold" => once(&mut max_hold, &name, time(input, "`max_hold`")?)?,
                "retry" => once(&mut retry, &name, input.parse::<LitInt>()?.base10_parse()?)?,
                "every" => once(&mut every, &name, time(input, "a pause")?)?,
                "on_busy" => once(&mut on_busy, &name, input.parse()?)?,
                "guard" => once(&mut guard, &name, input.parse()?)?,
                "crate" => once(&mut facade, &name, input.call(Path::parse_mod_style)?)?,
                _ => {
                    let message = format!("unknown argument `{name}`; expected {NAMES}");
                    return Err(Error::new(name.span(), message));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        let on_busy = on_busy.unwrap_or(OnBusy::Error);
        if on_busy == OnBusy::Skip && every.is_some() && wait.is_none() && retry.is_none() {
            let message = "with `on_busy = skip` but without `retry` or `wait`, a call makes only one attempt, so `every` has no effect";
            return Err(Error::new(Span::call_site(), message));
        }
        if retry.is_some() && every.is_none() {
            let message = "`retry` requires `every`, the pause before each further attempt";
            return Err(Error::new(Span::call_site(), message));
        }
        Ok(Self {
            key: key.ok_or_else(|| missing("key", "key = \"order:{id}\""))?,
            client: client.ok_or_else(|| missing("client", "client = self.locks"))?,
            ttl,
            wait,
            max_hold,
            retry,
            every,
            on_busy,
            guard,
            facade: facade.unwrap_or_else(|| parse_quote!(::leasehold)),
        })
    }
}

impl Parse for OnBusy {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let choice = input.call(Ident::parse_any)?;
        match choice.to_string().as_str() {
            "error" => Ok(Self::Error),
            "skip" => Ok(Self::Skip),
            _ => Err(Error::new(choice.span(), "`on_busy` must be `error` or `skip`")),
        }
    }
}

impl Args {
    /// Returns the maximum time to wait, if the attribute sets it. With `on_busy = skip` and
    /// without `retry`, the function does not wait by default.
    pub(crate) fn wait(&self) -> Option<Duration> {
        let is_at_once = self.on_busy == OnBusy::Skip && self.retry.is_none();
        self.wait.or(is_at_once.then_some(Duration::ZERO))
    }

    /// Returns the number of attempts, including the first attempt.
    pub(crate) fn attempts(&self) -> Option<u32> {
        self.retry.map(|retry| retry.saturating_add(1))
    }
}

fn once<T>(place: &mut Option<T>, name: &Ident, value: T) -> syn::Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(Error::new(name.span(), format!("`{name}` is specified twice"))),
    }
}

fn missing(name: &str, example: &str) -> Error {
    Error::new(Span::call_site(), format!("`{name}` is missing; add, for example, `{example}`"))
}

fn any_time(input: ParseStream<'_>) -> syn::Result<Duration> {
    Ok(literal_time(input)?.1)
}

/// Parses a duration, which must not be zero.
fn time(input: ParseStream<'_>, name: &str) -> syn::Result<Duration> {
    let (span, time) = literal_time(input)?;
    if time.is_zero() {
        return Err(Error::new(span, format!("{name} must not be zero")));
    }
    Ok(time)
}

fn literal_time(input: ParseStream<'_>) -> syn::Result<(Span, Duration)> {
    let refused = |span| Error::new(span, format!("a time is {}", duration::FORMS));
    let literal = input.parse::<LitStr>().map_err(|error| refused(error.span()))?;
    let time = duration::parse(&literal.value()).ok_or_else(|| refused(literal.span()))?;
    Ok((literal.span(), time))
}
