//! Results in the format of JUnit, which most servers of continuous integration read.

use std::fmt::Write;
use std::time::Duration;

use super::suite::{Done, Verdict};

pub(super) fn report(store: &str, done: &[Done]) -> String {
    let count = |has: fn(&Verdict) -> bool| done.iter().filter(|it| has(&it.verdict)).count();
    let failed = count(|verdict| matches!(verdict, Verdict::Failed(_)));
    let skipped = count(|verdict| matches!(verdict, Verdict::Skipped(_)));
    let seconds = done.iter().map(|it| it.took).sum::<Duration>().as_secs_f64();
    let mut xml = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <testsuite name=\"leasehold on {}\" tests=\"{}\" failures=\"{failed}\" skipped=\"{skipped}\" time=\"{seconds:.3}\">\n",
        escape(store),
        done.len(),
    );
    for Done { case, verdict, took } in done {
        let inner = match verdict {
            Verdict::Passed => String::new(),
            Verdict::Failed(message) => format!("<failure message=\"{}\"/>", escape(message)),
            Verdict::Skipped(need) => format!("<skipped message=\"no {}\"/>", escape(need)),
        };
        let line = format!(
            "  <testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\">{inner}</testcase>\n",
            escape(case.group),
            escape(case.name),
            took.as_secs_f64(),
        );
        xml.push_str(&line);
    }
    xml.push_str("</testsuite>\n");
    xml
}

/// Text in an attribute. XML does not allow control characters, even if they are escaped.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            char if char.is_control() => {
                write!(escaped, "{}", char.escape_default()).expect("a String takes all");
            }
            char => escaped.push(char),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn text_stays_text_in_an_attribute() {
        assert_eq!(escape("a<b> \"&\"\n\x1b"), "a&lt;b&gt; &quot;&amp;&quot;&#10;\\u{1b}");
    }
}
