//! The page, the dashboard and the alerts against the code.

use std::collections::BTreeSet;

use leasehold::observe::{MetricKind, MetricSpec, Metrics, Observer, Released};

use super::capture::{Capture, Seen};
use super::{rows, scenario, set};

const DASHBOARD: &str = include_str!("../../../docs/grafana/leasehold.json");
const ALERTS: &str = include_str!("../../../docs/prometheus/alerts.yml");

/// Panics, so that this is told of, too.
struct Panicking;

impl Observer for Panicking {
    fn on_released(&self, _: &Released<'_>) {
        panic!("as it is meant to");
    }
}

fn documented(heading: &str) -> Seen {
    let rows = rows(heading).into_iter();
    rows.map(|row| (row[0].clone(), (row[1].clone(), set(&row[2])))).collect()
}

#[tokio::test(start_paused = true)]
async fn the_page_lists_the_events_and_spans_that_there_are() {
    let (capture, _guard) = Capture::install();

    let secrets = scenario::run(Panicking).await;

    assert_eq!(capture.events(), documented("Events"));
    assert_eq!(capture.spans(), documented("Spans"));
    let long_wait = "has waited 5s for job, held by ";
    assert!(capture.lines().iter().any(|line| line.contains(long_wait)), "{:?}", capture.lines());
    assert_texts_are_logged(&capture.lines());
    for line in capture.lines() {
        for secret in &secrets {
            assert!(!line.contains(&secret[..12]), "{line} shows the lease {secret}");
        }
    }
}

/// The usual formats print the text of an event and not its name, so operators search for the text.
fn assert_texts_are_logged(lines: &[String]) {
    for row in rows("Events") {
        let (name, text) = (&row[0], &row[3]);
        let start = format!("{name} message=");
        let mut messages = lines.iter().filter_map(|line| line.split_once(&start));
        let is_logged =
            messages.any(|(_, message)| text.split('…').all(|part| message.contains(part)));
        assert!(is_logged, "no line of {name} contains: {text}");
    }
}

#[test]
fn the_page_lists_the_metrics_that_there_are() {
    let of_code = Metrics::ALL.iter().map(|spec| {
        let kind = format!("{:?}", spec.kind).to_lowercase();
        let key = spec.per_key.then_some("key");
        let labels: BTreeSet<_> =
            spec.labels.iter().copied().chain(key).map(str::to_owned).collect();
        (spec.name.to_owned(), kind, labels)
    });
    let of_page =
        rows("Metrics").into_iter().map(|row| (row[0].clone(), row[1].clone(), set(&row[3])));

    assert_eq!(of_page.collect::<BTreeSet<_>>(), of_code.collect());
}

#[test]
fn units_are_in_the_names_of_metrics() {
    for row in rows("Metrics") {
        let (name, kind, unit) = (&row[0], row[1].as_str(), row[2].as_str());
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name}");
        assert_eq!(name.ends_with("_seconds"), unit == "seconds", "{name}");
        assert_eq!(kind == "histogram", unit == "seconds", "{name}");
    }
}

/// The metrics that a text names, each with the labels that it picks series by.
fn named(text: &str) -> Vec<(&'static MetricSpec, Vec<&str>)> {
    let mut named = Vec::new();
    for (at, _) in text.match_indices("leasehold_") {
        let rest = &text[at..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let spec = Metrics::ALL.iter().find(|spec| match name.strip_prefix(spec.name) {
            Some("") => spec.kind != MetricKind::Histogram || is_prose(after),
            Some("_bucket" | "_count" | "_sum") => spec.kind == MetricKind::Histogram,
            _ => false,
        });
        let spec = spec.unwrap_or_else(|| panic!("{name} is named and no metric"));
        let picked =
            after.strip_prefix('{').and_then(|rest| rest.split_once('}')).map_or("", |it| it.0);
        let labels = picked.split(", ").filter_map(|label| label.split(['=', '!']).next());
        named.push((spec, labels.filter(|label| !label.is_empty()).collect()));
    }
    named
}

/// No query follows a metric so.
fn is_prose(after: &str) -> bool {
    after.starts_with(' ') || after.starts_with('.')
}

fn assert_labels_exist(named: &[(&MetricSpec, Vec<&str>)]) {
    for (spec, labels) in named {
        for label in labels {
            // Prometheus adds these.
            let is_there = ["job", "instance"].contains(label) || spec.labels.contains(label);
            assert!(is_there, "{} has no label {label}", spec.name);
        }
    }
}

#[test]
fn the_dashboard_shows_every_metric_and_no_other() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let queries: Vec<_> = targets.map(|target| target["expr"].as_str().unwrap()).collect();

    let shown: Vec<_> = queries.iter().flat_map(|query| named(query)).collect();

    assert_labels_exist(&shown);
    let shown: BTreeSet<_> = shown.iter().map(|(spec, _)| spec.name).collect();
    assert_eq!(shown, Metrics::ALL.iter().map(|spec| spec.name).collect());
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    for variable in variables.iter().filter(|variable| variable["type"] == "query") {
        assert_eq!(named(variable["query"]["query"].as_str().unwrap()).len(), 1);
    }
}

#[test]
fn alerts_name_metrics_and_log_lines_that_exist() {
    let alerts = named(ALERTS);

    assert!(alerts.len() > 8);
    assert_labels_exist(&alerts);
    assert!(!ALERTS.contains("leasehold."), "a log line does not show the name of its event");
    let events = rows("Events");
    let quoted: Vec<_> = ALERTS.split('\'').skip(1).step_by(2).collect();
    assert!(quoted.len() >= 3);
    for text in quoted {
        assert!(events.iter().any(|row| row[3].starts_with(text)), "{text:?}");
    }
}
