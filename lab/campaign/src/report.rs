//! Renders runs as a single, self-contained HTML file.

mod columns;

use std::collections::BTreeMap;

use leasehold_conformance::history::run::{ClientRow, FaultRow, Figures, Run, ViolationRow};
use serde::Serialize;

use self::columns::{Holds, Writes};

const PAGE: &str = include_str!("report/page.html");
const STYLE: &str = include_str!("report/style.css");

/// The parts of the script, in the order of their dependencies.
const SCRIPT: [&str; 10] = [
    include_str!("report/history.js"),
    include_str!("report/lanes.js"),
    include_str!("report/page.js"),
    include_str!("report/chart.js"),
    include_str!("report/draw.js"),
    include_str!("report/overview.js"),
    include_str!("report/resources.js"),
    include_str!("report/class.js"),
    include_str!("report/input.js"),
    include_str!("report/main.js"),
];

/// Renders runs as a page with a table of all runs and a chart for each run.
///
/// The page contains the runs as JSON in the element `data`. The page's content security policy
/// prevents browsers from loading anything.
///
/// ```
/// use leasehold_campaign::report::html;
/// use leasehold_conformance::history::run::Run;
///
/// let run = Run { class: "redis".to_owned(), title: "One Redis".to_owned(), ..Run::default() };
///
/// assert!(html(&[run]).contains("One Redis"));
/// ```
pub fn html(runs: &[Run]) -> String {
    let runs: Vec<Shown<'_>> = runs.iter().map(Shown::of).collect();
    let data = serde_json::to_string(&Data { runs }).expect("runs are plain data");
    // The data is inserted last, because a name in the data may look like a placeholder.
    PAGE.replace("{{style}}", STYLE)
        .replace("{{script}}", &SCRIPT.concat())
        .replace("{{data}}", &as_element(&data))
}

/// Escapes JSON so that browsers do not interpret the data as markup. `<` occurs only in strings,
/// where its escape has the same meaning.
fn as_element(json: &str) -> String {
    json.replace('<', "\\u003c")
}

#[derive(Serialize)]
struct Data<'a> {
    runs: Vec<Shown<'a>>,
}

/// A run, in which long lists of rows are stored as columns.
#[derive(Serialize)]
struct Shown<'a> {
    /// Stored as text, because numbers in JavaScript have 53 bits.
    seed: String,
    class: &'a str,
    title: &'a str,
    versions: &'a BTreeMap<String, String>,
    machine: &'a str,
    seconds: f64,
    ttl_ms: f64,
    clients: &'a [ClientRow],
    holds: Holds<'a>,
    faults: &'a [FaultRow],
    writes: Writes,
    violations: &'a [ViolationRow],
    figures: &'a Figures,
}

impl<'a> Shown<'a> {
    fn of(run: &'a Run) -> Self {
        Self {
            seed: run.seed.to_string(),
            class: &run.class,
            title: &run.title,
            versions: &run.versions,
            machine: &run.machine,
            seconds: run.seconds,
            ttl_ms: run.ttl_ms,
            clients: &run.clients,
            holds: Holds::of(&run.holds),
            faults: &run.faults,
            writes: Writes::of(&run.writes),
            violations: &run.violations,
            figures: &run.figures,
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_conformance::Rule;
    use leasehold_conformance::history::run::{
        End, HoldRow, Kind, Register, Run, ViolationRow, WriteRow,
    };
    use serde_json::{Value, json};

    use super::html;

    #[test]
    fn a_name_cannot_end_the_data_element() {
        let key = "</script><script>alert(1)</script>{{script}}";

        let page = html(&[run_of(key)]);

        assert_eq!(page.matches("</script>").count(), html(&[]).matches("</script>").count());
        assert_eq!(data_of(&page)["runs"][0]["holds"]["keys"], json!([key]));
    }

    #[test]
    fn a_page_loads_nothing() {
        let page = html(&[run_of("job")]);

        for word in ["http:", "https:", "//", " src=", "url(", "@import", "import(", "fetch("] {
            let has_word = page.lines().any(|line| line.contains(word) && !is_comment(line));
            assert!(!has_word, "{word} is in the page");
        }
        assert!(page.contains("default-src 'none'"));
    }

    #[test]
    fn the_data_reads_back() {
        let page = html(&[run_of("job")]);

        let run = &data_of(&page)["runs"][0];

        assert_eq!(run["seed"], u64::MAX.to_string());
        assert_eq!(run["holds"]["kinds"], json!(["mutex"]));
        assert_eq!(run["holds"]["ends"], json!(["released", "lost"]));
        assert_eq!(run["holds"]["columns"]["token"], json!([u64::MAX.to_string(), "8"]));
        assert_eq!(run["holds"]["columns"]["end"], json!([0, 1]));
        assert_eq!(run["holds"]["columns"]["until"], json!([20.123, 30.0]));
        assert_eq!(run["holds"]["columns"]["lost"], json!([null, 31.0]));
        assert_eq!(run["writes"]["accepted"], json!([0]));
        assert_eq!(run["violations"][0]["holds"], json!([0, 1]));
    }

    fn data_of(page: &str) -> Value {
        let (_, after) = page.split_once(r#"id="data">"#).expect("the page has an element of data");
        let (data, _) = after.split_once("</script>").expect("the element ends");
        serde_json::from_str(data).expect("it is JSON")
    }

    fn is_comment(line: &str) -> bool {
        line.trim_start().starts_with("//")
    }

    /// Returns a run with two simultaneous holds of a key, and a rejected write.
    fn run_of(key: &str) -> Run {
        let hold = HoldRow {
            process: 1,
            task: 0,
            key: key.to_owned(),
            kind: Kind::Mutex,
            token: u64::MAX,
            units: 1,
            limit: 1,
            from_ms: 10.0,
            until_ms: 20.123_456,
            end: End::Released,
            lost_ms: None,
        };
        let other = HoldRow {
            process: 2,
            token: 8,
            from_ms: 15.0,
            until_ms: 30.0,
            end: End::Lost,
            lost_ms: Some(31.0),
            ..hold.clone()
        };
        let write = WriteRow {
            process: 2,
            hold: 1,
            at_ms: 29.0,
            register: Register::Fenced,
            accepted: false,
            undid: false,
        };
        let violation = ViolationRow {
            rule: Rule::Exclusion,
            at_ms: 15.0,
            key: key.to_owned(),
            text: "two at once".to_owned(),
            holds: vec![0, 1],
            length_ms: 5.1,
            excused: None,
        };
        Run {
            seed: u64::MAX,
            class: "memory".to_owned(),
            holds: vec![hold, other],
            writes: vec![write],
            violations: vec![violation],
            ..Run::default()
        }
    }
}
