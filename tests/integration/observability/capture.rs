//! A subscriber that keeps all that it is told.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Metadata, Subscriber};

/// Level and fields of events or spans, by name.
pub(crate) type Seen = BTreeMap<String, (String, BTreeSet<String>)>;

#[derive(Clone, Default)]
pub(crate) struct Capture(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    events: Seen,
    spans: Seen,
    /// Each event with its values, after the spans around it.
    lines: Vec<String>,
    /// Each span with its values, after the spans around it. Its id is its place, from 1.
    texts: Vec<String>,
    entered: Vec<u64>,
}

impl Capture {
    /// Listens on this thread until the guard is dropped.
    pub(crate) fn install() -> (Self, DefaultGuard) {
        let capture = Self::default();
        let guard = tracing::subscriber::set_default(capture.clone());
        (capture, guard)
    }

    pub(crate) fn events(&self) -> Seen {
        self.0.lock().unwrap().events.clone()
    }

    pub(crate) fn spans(&self) -> Seen {
        self.0.lock().unwrap().spans.clone()
    }

    /// All spans and events as text.
    pub(crate) fn lines(&self) -> Vec<String> {
        let state = self.0.lock().unwrap();
        state.texts.iter().chain(&state.lines).cloned().collect()
    }
}

impl State {
    /// The text of the span `id`, or of the one that was entered last.
    fn around(&self, id: Option<u64>) -> String {
        let id = id.or(self.entered.last().copied());
        id.map_or_else(String::new, |id| self.texts[usize::try_from(id).unwrap() - 1].clone())
    }
}

fn describe(metadata: &Metadata<'_>) -> (String, (String, BTreeSet<String>)) {
    let fields = metadata.fields().iter().map(|field| field.name().to_owned());
    let level = metadata.level().as_str().to_lowercase();
    (metadata.name().to_owned(), (level, fields.filter(|name| name != "message").collect()))
}

struct Values<'a>(&'a mut String);

impl Visit for Values<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Capture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut state = self.0.lock().unwrap();
        let (name, seen) = describe(span.metadata());
        let mut text = state.around(span.parent().map(|id| id.into_u64()));
        text.push_str(&name);
        span.record(&mut Values(&mut text));
        text.push_str(": ");
        state.spans.insert(name, seen);
        state.texts.push(text);
        Id::from_u64(state.texts.len() as u64)
    }

    fn event(&self, event: &Event<'_>) {
        let mut state = self.0.lock().unwrap();
        let (name, seen) = describe(event.metadata());
        let mut line = state.around(None);
        line.push_str(&name);
        event.record(&mut Values(&mut line));
        state.lines.push(line);
        state.events.insert(name, seen);
    }

    fn enter(&self, span: &Id) {
        self.0.lock().unwrap().entered.push(span.into_u64());
    }

    fn exit(&self, span: &Id) {
        let mut state = self.0.lock().unwrap();
        let last = state.entered.iter().rposition(|id| *id == span.into_u64());
        state.entered.remove(last.expect("it was entered"));
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
}
