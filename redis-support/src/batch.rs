//! Calls that leave together: as few requests as they can be, and what the replies mean for each.
//!
//! Calls of one kind are one run of the script for many, which does nothing for those where something is in the way. Those are
//! sent again by themselves, and so are all of them if that script as a whole is refused: what one call fails of is its
//! own affair, and to do again what was done changes nothing.

use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Error, ErrorKind};

use crate::call::Call;
use crate::client::{Client, Received, Request, Run};
use crate::error::ServerError;
use crate::line::Line;
use crate::reply::Reply;
use crate::script::Many;

/// As many calls leave together as keep a server from others for a millisecond or so.
pub(crate) const MAX_CALLS: usize = 128;

/// How a call is sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Form {
    /// Not by the script for many.
    is_alone: bool,
    /// With the source of the script, which the server does not know yet.
    in_full: bool,
}

/// What came of sending a call.
#[derive(Debug)]
pub(crate) enum Outcome {
    Received(Received),
    /// It is to be sent once more.
    Again(Form),
}

/// Calls that leave together.
pub(crate) struct Batch<'a> {
    parts: Vec<Part<'a>>,
}

/// Calls that are one request: one, or many of one kind.
struct Part<'a> {
    many: Option<Many>,
    calls: Vec<&'a Call>,
    /// Which each of them was of all that were given, and how it is sent.
    given: Vec<(usize, Form)>,
    in_full: bool,
}

impl Form {
    /// How calls are sent at first where all keys are on one server.
    pub(crate) const TOGETHER: Self = Self { is_alone: false, in_full: false };

    /// How calls are sent at first elsewhere.
    pub(crate) const ALONE: Self = Self { is_alone: true, in_full: false };

    /// The script for many calls of this kind, if it is one to be sent by it.
    fn many(self, call: &Call) -> Option<Many> {
        call.script().many().filter(|_many| !self.is_alone)
    }
}

impl<'a> Batch<'a> {
    pub(crate) fn new(given: impl IntoIterator<Item = (&'a Call, Form)>) -> Self {
        let mut parts: Vec<Part<'a>> = Vec::new();
        for (index, (call, form)) in given.into_iter().enumerate() {
            let many = form.many(call);
            let has_room = |part: &Part<'_>| part.many == many && part.calls.len() < MAX_CALLS;
            let place = many.and_then(|_many| parts.iter().rposition(has_room));
            let place = place.unwrap_or_else(|| {
                parts.push(Part { many, calls: Vec::new(), given: Vec::new(), in_full: false });
                parts.len() - 1
            });
            let part = &mut parts[place];
            part.calls.push(call);
            part.given.push((index, form));
            part.in_full |= form.in_full;
        }
        // For a single call its own script is shorter.
        for part in parts.iter_mut().filter(|part| part.calls.len() == 1) {
            part.many = None;
        }
        Self { parts }
    }

    pub(crate) fn requests(&self) -> Vec<Request<'_>> {
        let mut brought = Vec::new();
        let request = |part| {
            let Part { many, calls, in_full, .. }: &Part<'_> = part;
            let run = match many {
                Some(many) => Run::many(*many, calls),
                None => Run::one(&calls[0]),
            };
            // The first request for a script brings its source along, the others find it there.
            if *in_full && !brought.contains(&run.script()) {
                brought.push(run.script());
                Request::BySource(run)
            } else {
                Request::ByHash(run)
            }
        };
        self.parts.iter().map(request).collect()
    }

    /// What came of each call, in the order in which they were given, by the replies to the requests.
    pub(crate) fn outcomes(self, replies: Vec<Received>) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for (part, reply) in self.parts.into_iter().zip(replies) {
            outcomes.extend(part.outcomes(reply));
        }
        outcomes.sort_unstable_by_key(|(index, _outcome)| *index);
        outcomes.into_iter().map(|(_index, outcome)| outcome).collect()
    }
}

impl Part<'_> {
    fn outcomes(self, reply: Received) -> Vec<(usize, Outcome)> {
        let is_unknown = is_unknown(&reply);
        let replies = match self.many {
            Some(many) => many.replies(reply, self.calls.len()),
            None => vec![Some(reply)],
        };
        let outcome = |((index, form), reply): ((usize, Form), Option<Received>)| {
            let outcome = match reply {
                _ if is_unknown && !form.in_full => Outcome::Again(Form { in_full: true, ..form }),
                Some(reply) => Outcome::Received(reply),
                None => Outcome::Again(Form::ALONE),
            };
            (index, outcome)
        };
        self.given.into_iter().zip(replies).map(outcome).collect()
    }
}

impl Many {
    /// What the reply means for each of so many calls; `None` for those for which nothing was done, as far as is known.
    fn replies(self, reply: Received, count: usize) -> Vec<Option<Received>> {
        match reply {
            Ok(Reply::Array(parts)) if parts.len() == count * self.parts => {
                let reply = |parts: &[Reply]| match parts {
                    [Reply::Nil, ..] => None,
                    [reply] => Some(Ok(reply.clone())),
                    // A script for one call says first whether it was done.
                    parts => Some(Ok(Reply::Array([&[Reply::Int(1)], parts].concat()))),
                };
                parts.chunks(self.parts).map(reply).collect()
            }
            _ => vec![None; count],
        }
    }
}

/// Runs many scripts: in one round trip, if the server knows them and nothing is in the way.
pub(crate) async fn call_all<C: Client>(
    line: &Arc<Line<C>>,
    calls: &[&Call],
    form: Form,
) -> Result<Vec<Received>, Error> {
    let mut received: Vec<Option<Received>> = vec![None; calls.len()];
    let mut open: Vec<(usize, Form)> = (0..calls.len()).map(|index| (index, form)).collect();
    while !open.is_empty() {
        let batch = Batch::new(open.iter().map(|(index, form)| (calls[*index], *form)));
        let replies = line.exchange(batch.requests(), Duration::ZERO).await;
        // From the second round trip on, the replies to the others are lost as well.
        let is_first = open.iter().all(|(_index, of)| *of == form);
        let replies = replies.map_err(|error| if is_first { error } else { unfinished() })?;
        let mut again = Vec::new();
        for ((index, _form), outcome) in open.into_iter().zip(batch.outcomes(replies)) {
            match outcome {
                Outcome::Received(reply) => received[index] = Some(reply),
                Outcome::Again(form) => again.push((index, form)),
            }
        }
        open = again;
    }
    Ok(received.into_iter().map(|reply| reply.expect("there is one to each")).collect())
}

/// Sends requests of which at most one is a script: in one round trip, if the server knows it.
pub(crate) async fn run<C: Client, const N: usize>(
    line: &Arc<Line<C>>,
    requests: [Request<'_>; N],
    more_time: Duration,
) -> Result<[Received; N], Error> {
    let replies = exchange(line, requests, more_time).await?;
    if replies.iter().any(is_unknown) {
        return exchange(line, requests.map(Request::in_full), more_time).await;
    }
    Ok(replies)
}

async fn exchange<C: Client, const N: usize>(
    line: &Arc<Line<C>>,
    requests: [Request<'_>; N],
    more_time: Duration,
) -> Result<[Received; N], Error> {
    let mut replies = line.exchange(requests.to_vec(), more_time).await?.into_iter();
    Ok(std::array::from_fn(|_| replies.next().expect("as many replies come as requests were sent")))
}

/// Of a call that was to be sent once more, and could not be.
pub(crate) fn unfinished() -> Error {
    let message = "it could not be sent once more after it had failed with others, outcome unknown";
    Error::new(ErrorKind::Indeterminate, message)
}

/// What failed a whole batch failed each of its parts.
pub(crate) fn spread(
    replies: Result<Vec<Received>, Error>,
    count: usize,
) -> Vec<Result<Received, Error>> {
    match replies {
        Ok(replies) => replies.into_iter().map(Ok).collect(),
        Err(error) => (0..count).map(|_| Err(error.repeated())).collect(),
    }
}

fn is_unknown(reply: &Received) -> bool {
    reply.as_ref().is_err_and(ServerError::is_no_script)
}

#[cfg(test)]
mod tests {
    use leasehold_core::{Claim, Lease, LockKey};

    use super::*;
    use crate::layout::Layout;
    use crate::script::Script;

    const LOCKED: [Reply; 3] = [Reply::Int(1), Reply::Int(7), Reply::Int(0)];

    fn lease(name: &str) -> Lease {
        Lease::new(&LockKey::new(name).unwrap(), Duration::from_secs(1))
    }

    fn acquire(name: &str) -> Call {
        Call::acquire(&Layout::default(), &Claim::new(lease(name)), None)
    }

    fn release(name: &str) -> Call {
        Call::release(&Layout::default(), &lease(name))
    }

    fn renew(name: &str) -> Call {
        Call::renew(&Layout::default(), &lease(name))
    }

    fn inspect(name: &str) -> Call {
        Call::inspect(&Layout::default(), &LockKey::new(name).unwrap())
    }

    /// The words of each request, with the names of scripts in place of their hashes and sources.
    fn words(batch: &Batch<'_>) -> Vec<Vec<String>> {
        let name = |word: &str| {
            let is = |script: &&Script| word == script.hash() || word == script.source();
            let script = Script::ALL.iter().find(is);
            script.map_or(word.to_owned(), |script| format!("{script:?}"))
        };
        let words = |request: &Request<'_>| {
            let mut words = vec![request.command().to_owned()];
            request.for_each_argument(|word| words.push(name(word)));
            words
        };
        batch.requests().iter().map(words).collect()
    }

    fn scripts(batch: &Batch<'_>) -> Vec<String> {
        words(batch).into_iter().map(|words| format!("{} {}", words[0], words[1])).collect()
    }

    fn no_script() -> Received {
        Err(ServerError::new("NOSCRIPT", "No matching script. Please use EVAL."))
    }

    #[test]
    fn calls_of_a_kind_are_one_request() {
        let calls = [acquire("a"), release("b"), inspect("c"), acquire("d"), renew("e")];
        let batch = Batch::new(calls.iter().map(|call| (call, Form::TOGETHER)));

        assert_eq!(
            scripts(&batch),
            ["EVALSHA AcquireMany", "EVALSHA Release", "EVALSHA Inspect", "EVALSHA Renew"]
        );
        let words = words(&batch).swap_remove(0);
        let keys = |call: &Call| call.keys().take(5).map(str::to_owned).collect::<Vec<_>>();
        let args = |call: &Call| call.args().take(3).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words[2], "10");
        assert_eq!(words[3..13], [keys(&calls[0]), keys(&calls[3])].concat());
        assert_eq!(words[13..], [args(&calls[0]), args(&calls[3])].concat());
    }

    #[test]
    fn each_has_its_own_reply() {
        let calls = [acquire("a"), release("b"), acquire("c"), release("d")];
        let batch = Batch::new(calls.iter().map(|call| (call, Form::TOGETHER)));
        let replies = [
            Reply::Array(vec![Reply::Nil, Reply::Int(0), Reply::Int(7), Reply::Int(0)]),
            Reply::Array(vec![Reply::Int(1), Reply::Nil]),
        ];

        let outcomes = batch.outcomes(replies.map(Ok).to_vec());

        let [a, b, c, d] = outcomes.try_into().unwrap();
        assert!(matches!(a, Outcome::Again(Form::ALONE)));
        assert!(matches!(b, Outcome::Received(Ok(Reply::Int(1)))));
        assert!(matches!(c, Outcome::Received(Ok(Reply::Array(parts))) if parts == LOCKED));
        assert!(matches!(d, Outcome::Again(Form::ALONE)));
    }

    #[test]
    fn what_is_refused_or_makes_no_sense_goes_alone() {
        let calls = [renew("a"), renew("b")];
        for reply in [
            Err(ServerError::new("OOM", "no memory")),
            Ok(Reply::Nil),
            Ok(Reply::Array(vec![Reply::Int(1)])),
        ] {
            let batch = Batch::new(calls.iter().map(|call| (call, Form::TOGETHER)));
            for outcome in batch.outcomes(vec![reply]) {
                assert!(matches!(outcome, Outcome::Again(Form::ALONE)), "{outcome:?}");
            }
        }
        let batch = Batch::new(calls.iter().map(|call| (call, Form::ALONE)));
        assert_eq!(scripts(&batch), ["EVALSHA Renew", "EVALSHA Renew"]);
        let refused = batch.outcomes(vec![Ok(Reply::Int(1)), Err(ServerError::new("OOM", ""))]);
        let [Outcome::Received(Ok(_)), Outcome::Received(Err(_))] = refused[..] else { panic!() };
    }

    #[test]
    fn a_server_that_knows_no_script_gets_each_once() {
        let calls = [acquire("a"), acquire("b"), inspect("c"), inspect("d")];
        let mut forms = vec![Form::TOGETHER; 4];
        for expected in [
            ["EVALSHA AcquireMany", "EVALSHA Inspect", "EVALSHA Inspect"],
            ["EVAL AcquireMany", "EVAL Inspect", "EVALSHA Inspect"],
        ] {
            let batch = Batch::new(calls.iter().zip(forms.clone()));
            assert_eq!(scripts(&batch), expected);
            let outcomes = batch.outcomes(vec![no_script(); 3]);
            for (form, outcome) in forms.iter_mut().zip(outcomes) {
                if let Outcome::Again(again) = outcome {
                    *form = again;
                }
            }
        }
        // It never learns: what many have in common is given up, and of the others one has to do without.
        assert_eq!(forms[..2], [Form::ALONE; 2]);
    }

    #[test]
    fn no_request_is_for_more_than_may_be() {
        let calls: Vec<Call> = (0..300).map(|n| release(&format!("k{n}"))).collect();
        let batch = Batch::new(calls.iter().map(|call| (call, Form::TOGETHER)));

        let keys: Vec<String> =
            words(&batch).into_iter().map(|mut words| words.swap_remove(2)).collect();
        assert_eq!(keys, ["256", "256", "88"]);
    }
}
