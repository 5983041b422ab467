//! Calls that leave together: as few requests as they can be, and what the replies mean for each.
//!
//! Calls of one kind are one run of the script for many, which does nothing for those where something is in the way. Those are
//! sent again by themselves, and so are all of them if that script as a whole is refused: what one call fails of is its
//! own affair, and to do again what was done changes nothing.
//!
//! To note what we want to hear of takes the server as long as what is in those scripts. Most locks are released before anything
//! happens to them, so calls that can do without news for a while forgo it.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::{Error, ErrorKind};

use crate::call::Call;
use crate::client::{Client, Received, Request, Run};
use crate::error::ServerError;
use crate::line::{Current, Line};
use crate::reply::Reply;
use crate::script::Many;

/// As many calls leave together as keep a server from others for a millisecond or so.
pub(crate) const MAX_CALLS: usize = 128;

/// What the server is told before a script whose keys it need not remember.
const FORGO_NEWS: Request<'_> = Request::Words(&["CLIENT", "CACHING", "NO"]);

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
    /// Whether the server is told that this is to ask for no news.
    forgoes_news: bool,
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
        let given = given.into_iter();
        let most = given.size_hint().0.min(MAX_CALLS);
        for (index, (call, form)) in given.enumerate() {
            let many = form.many(call);
            let forgoes_news = !call.wants_news();
            let has_room = |part: &Part<'_>| {
                (part.many, part.forgoes_news) == (many, forgoes_news)
                    && part.calls.len() < MAX_CALLS
            };
            let place = many.and_then(|_many| parts.iter().rposition(has_room));
            let place = place.unwrap_or_else(|| {
                let most = if many.is_some() { most } else { 1 };
                let (calls, given) = (Vec::with_capacity(most), Vec::with_capacity(most));
                parts.push(Part { many, forgoes_news, calls, given, in_full: false });
                parts.len() - 1
            });
            let part = &mut parts[place];
            part.calls.push(call);
            part.given.push((index, form));
            part.in_full |= form.in_full;
        }
        // For a single call its own script is shorter, and one more request is not worth its while.
        for part in parts.iter_mut().filter(|part| part.calls.len() == 1) {
            (part.many, part.forgoes_news) = (None, false);
        }
        Self { parts }
    }

    /// Sends them, and tells what came of each, in the order in which they were given. Sends at once.
    pub(crate) async fn send<C: Client>(
        mut self,
        line: &Line<C>,
        current: &Current<C::Link>,
    ) -> Result<Vec<Outcome>, Error> {
        if !line.may_forgo_news() {
            self.parts.iter_mut().for_each(|part| part.forgoes_news = false);
        }
        let replies = line.exchange_on(current, self.requests(), Duration::ZERO).await?;
        if self.has_to_take_news(&replies) {
            line.take_all_news();
        }
        Ok(self.outcomes(replies))
    }

    fn requests(&self) -> Vec<Request<'_>> {
        let mut brought = Vec::new();
        let mut requests = Vec::with_capacity(2 * self.parts.len());
        for Part { many, forgoes_news, calls, in_full, .. } in &self.parts {
            requests.extend(forgoes_news.then_some(FORGO_NEWS));
            let run = match many {
                Some(many) => Run::many(*many, calls),
                None => Run::one(&calls[0]),
            };
            // The first request for a script brings its source along, the others find it there.
            requests.push(if *in_full && !brought.contains(&run.script()) {
                brought.push(run.script());
                Request::BySource(run)
            } else {
                Request::ByHash(run)
            });
        }
        requests
    }

    /// Whether the server does not let itself be told that a script is to ask for no news, now or later. The script ran, and asked.
    fn has_to_take_news(&self, replies: &[Received]) -> bool {
        let is_refused =
            |told: &Received| told.as_ref().is_err_and(|refusal| !refusal.is_retryable());
        let mut replies = replies.iter();
        self.parts.iter().any(|part| {
            let has_to = part.forgoes_news && replies.next().is_some_and(is_refused);
            replies.next();
            has_to
        })
    }

    /// What came of each call, by the replies to the requests.
    fn outcomes(self, replies: Vec<Received>) -> Vec<Outcome> {
        let (mut outcomes, mut replies) = (Vec::new(), replies.into_iter());
        for part in self.parts {
            let _refused = part.forgoes_news.then(|| replies.next());
            let reply = replies.next().expect("as many replies come as requests were sent");
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
            Some(many) => many.replies(reply, self.calls.len(), !self.forgoes_news),
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
    fn replies(self, reply: Received, count: usize, has_news: bool) -> Vec<Option<Received>> {
        // A script for one call says first whether it was done, and this one that there is no news of it.
        let done = if has_news { Reply::Int(1) } else { Reply::Int(2) };
        match reply {
            Ok(Reply::Array(parts)) if parts.len() == count * self.parts => {
                let reply = |parts: &[Reply]| match parts {
                    [Reply::Nil, ..] => None,
                    [reply] => Some(Ok(reply.clone())),
                    parts => Some(Ok(Reply::Array([slice::from_ref(&done), parts].concat()))),
                };
                parts.chunks(self.parts).map(reply).collect()
            }
            // It ran, and nobody knows what it did: done again, what was released would not be there.
            Ok(_senseless) => vec![Some(Ok(Reply::Other)); count],
            Err(_refusal) => vec![None; count],
        }
    }
}

/// Runs many scripts: in one round trip, if the server knows them and nothing is in the way. An error of all of them is that of the
/// first; what fails later leaves the others what the server has replied to them.
pub(crate) async fn call_all<C: Client>(
    line: &Arc<Line<C>>,
    calls: &[&Call],
    form: Form,
) -> Result<Vec<Result<Received, Error>>, Error> {
    let mut received: Vec<Option<Received>> = vec![None; calls.len()];
    let mut open: Vec<(usize, Form)> = (0..calls.len()).map(|index| (index, form)).collect();
    while !open.is_empty() {
        let given = open.iter().map(|(index, form)| (calls[*index], *form));
        let outcomes = async {
            let current = line.current().await?;
            Batch::new(given).send(line, &current).await
        };
        let is_first = open.iter().all(|(_index, of)| *of == form);
        let outcomes = match outcomes.await {
            Ok(outcomes) => outcomes,
            Err(error) if is_first => return Err(error),
            Err(_error) => break,
        };
        let mut again = Vec::new();
        for ((index, _form), outcome) in open.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Received(reply) => received[index] = Some(reply),
                Outcome::Again(form) => again.push((index, form)),
            }
        }
        open = again;
    }
    Ok(received.into_iter().map(|reply| reply.ok_or_else(unfinished)).collect())
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
    replies: Result<Vec<Result<Received, Error>>, Error>,
    count: usize,
) -> Vec<Result<Received, Error>> {
    replies.unwrap_or_else(|error| (0..count).map(|_| Err(error.repeated())).collect())
}

fn is_unknown(reply: &Received) -> bool {
    reply.as_ref().is_err_and(ServerError::is_no_script)
}

#[cfg(test)]
mod tests {
    use leasehold_core::LockKey;
    use leasehold_core::backend::{Claim, Lease, Tenure};

    use super::*;
    use crate::layout::Layout;
    use crate::reply::decode_release;
    use crate::script::Script;

    /// Of one that the server tells nothing of.
    const LOCKED: [Reply; 3] = [Reply::Int(2), Reply::Int(7), Reply::Int(0)];

    fn lease(name: &str) -> Lease {
        Lease::new(&LockKey::new(name).unwrap(), Duration::from_secs(1))
    }

    /// Of a lease that is renewed.
    fn acquire(name: &str) -> Call {
        let kept = lease(name).with_tenure(Tenure::Kept);
        Call::acquire(&Layout::default(), &Claim::new(kept), None)
    }

    /// Of a lease that is not.
    fn acquire_once(name: &str) -> Call {
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

    const FORGO: &str = "CLIENT CACHING";

    fn no_script() -> Received {
        Err(ServerError::new("NOSCRIPT", "No matching script. Please use EVAL."))
    }

    #[test]
    fn calls_of_a_kind_are_one_request() {
        let calls = [acquire("a"), release("b"), inspect("c"), acquire("d"), renew("e")];
        let batch = Batch::new(calls.iter().map(|call| (call, Form::TOGETHER)));

        assert_eq!(
            scripts(&batch),
            [FORGO, "EVALSHA AcquireMany", "EVALSHA Release", "EVALSHA Inspect", "EVALSHA Renew"]
        );
        let words = words(&batch).swap_remove(1);
        let keys = |call: &Call| call.keys().take(5).map(str::to_owned).collect::<Vec<_>>();
        let args = |call: &Call| call.args().take(3).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(words[2], "10");
        assert_eq!(words[3..13], [keys(&calls[0]), keys(&calls[3])].concat());
        assert_eq!(words[13..], [args(&calls[0]), args(&calls[3])].concat());
    }

    #[test]
    fn only_those_that_can_do_without_news_forgo_it() {
        let calls = [acquire_once("a"), acquire_once("b"), renew("a"), renew("b"), acquire("c")];
        let batch = Batch::new(calls.iter().map(|call| (call, Form::TOGETHER)));

        // For one it is not worth its while.
        assert_eq!(
            scripts(&batch),
            ["EVALSHA AcquireMany", "EVALSHA RenewMany", "EVALSHA Acquire"]
        );
        let locked = Reply::Array([&LOCKED[1..], &LOCKED[1..]].concat());
        let renewed = Reply::Array(vec![Reply::Int(1); 2]);
        let outcomes = batch.outcomes([locked, renewed, Reply::Nil].map(Ok).to_vec());
        for outcome in &outcomes[..2] {
            let Outcome::Received(Ok(Reply::Array(parts))) = outcome else { panic!() };
            assert_eq!(parts[0], Reply::Int(1), "there is news of it");
        }
    }

    #[test]
    fn that_the_server_has_to_be_told_nothing_is_noticed() {
        let calls = [release("a"), release("b"), acquire("c"), acquire("d")];
        let batch = Batch::new(calls.iter().map(|call| (call, Form::TOGETHER)));
        let refused = || Err(ServerError::new("NOPERM", "this user has no permissions"));
        let busy = || Err(ServerError::new("BUSY", "Redis is busy running a script."));
        let done = || Ok(Reply::Other);

        assert!(!batch.has_to_take_news(&[done(), refused(), done(), refused()]));
        assert!(!batch.has_to_take_news(&[busy(), busy(), busy(), done()]), "it passes");
        assert!(batch.has_to_take_news(&[done(), done(), refused(), done()]));
        assert!(batch.has_to_take_news(&[refused(), done(), refused(), done()]));
    }

    #[test]
    fn each_has_its_own_reply() {
        let calls = [acquire("a"), release("b"), acquire("c"), release("d")];
        let batch = Batch::new(calls.iter().map(|call| (call, Form::TOGETHER)));
        let replies = [
            Reply::Other,
            Reply::Array(vec![Reply::Nil, Reply::Int(0), Reply::Int(7), Reply::Int(0)]),
            Reply::Other,
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
    fn a_refused_call_goes_alone() {
        let calls = [renew("a"), renew("b")];
        let batch = Batch::new(calls.iter().map(|call| (call, Form::TOGETHER)));
        for outcome in batch.outcomes(vec![Err(ServerError::new("OOM", "no memory"))]) {
            assert!(matches!(outcome, Outcome::Again(Form::ALONE)), "{outcome:?}");
        }
        let batch = Batch::new(calls.iter().map(|call| (call, Form::ALONE)));
        assert_eq!(scripts(&batch), ["EVALSHA Renew", "EVALSHA Renew"]);
        let refused = batch.outcomes(vec![Ok(Reply::Int(1)), Err(ServerError::new("OOM", ""))]);
        let [Outcome::Received(Ok(_)), Outcome::Received(Err(_))] = refused[..] else { panic!() };
    }

    #[test]
    fn an_odd_reply_makes_none_of_each_and_is_not_done_again() {
        let calls = [release("a"), release("b")];
        for reply in [Reply::Nil, Reply::Int(1), Reply::Array(vec![Reply::Int(1)])] {
            let batch = Batch::new(calls.iter().map(|call| (call, Form::TOGETHER)));
            for outcome in batch.outcomes(vec![Ok(Reply::Other), Ok(reply.clone())]) {
                let Outcome::Received(received) = outcome else { panic!("{reply:?}: again") };
                assert_eq!(decode_release(received).unwrap_err().kind(), ErrorKind::Unexpected);
            }
        }
    }

    #[test]
    fn a_server_that_knows_no_script_gets_each_once() {
        let calls = [acquire("a"), acquire("b"), inspect("c"), inspect("d")];
        let mut forms = vec![Form::TOGETHER; 4];
        for expected in [
            [FORGO, "EVALSHA AcquireMany", "EVALSHA Inspect", "EVALSHA Inspect"],
            [FORGO, "EVAL AcquireMany", "EVAL Inspect", "EVALSHA Inspect"],
        ] {
            let batch = Batch::new(calls.iter().zip(forms.clone()));
            assert_eq!(scripts(&batch), expected);
            let outcomes = batch.outcomes(vec![no_script(); 4]);
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

        let scripts = words(&batch).into_iter().filter(|words| words[0] == "EVALSHA");
        let keys: Vec<String> = scripts.map(|mut words| words.swap_remove(2)).collect();
        assert_eq!(keys, ["256", "256", "88"]);
    }
}
