//! One member of a cluster.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use crate::instance::Instance;
use crate::port::free_port;

/// A member takes some 30 ms to start and up to half a second to elect a leader. On a busy machine, some seconds.
const START_WAIT: Duration = Duration::from_secs(30);

/// A member that runs answers within milliseconds.
const REPLY_WAIT: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Member {
    pub(super) client_port: u16,
    pub(super) peer_port: u16,
    /// Where it tells its health and its metrics, in plain HTTP and to everybody.
    pub(super) metrics_port: u16,
    pub(super) log: PathBuf,
    pub(super) instance: Instance,
}

/// How far a member has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// It answers, were it to say that there is no leader.
    Answers,
    /// It knows a leader, and a majority stands behind that.
    Healthy,
}

impl Member {
    pub(super) fn new(log: PathBuf) -> Self {
        let [client_port, peer_port, metrics_port] = [free_port(), free_port(), free_port()];
        Self { client_port, peer_port, metrics_port, log, instance: Instance::default() }
    }

    /// Waits until it has come to `stage`. If it does not, its output is shown.
    pub(super) async fn reaches(&mut self, stage: Stage) -> bool {
        let give_up = Instant::now() + START_WAIT;
        loop {
            if self.instance.exited().is_some() || Instant::now() > give_up {
                eprintln!("{}", std::fs::read_to_string(&self.log).unwrap_or_default());
                return false;
            }
            match self.get("/health").await {
                Ok(_) if stage == Stage::Answers => return true,
                Ok(health) if health.contains(r#""health":"true""#) => return true,
                _ => sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// The sum of a metric's series that have all of some labels, as in `name{label="value",…}`.
    pub(super) async fn metric(&self, selector: &str) -> io::Result<f64> {
        let metrics = self.get("/metrics").await?;
        let series = metrics.lines().filter(|line| selects(selector, line));
        let values = series.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(values.sum())
    }

    /// Its id in the cluster, in hexadecimal.
    pub(super) async fn id(&self) -> io::Result<String> {
        let metrics = self.get("/metrics").await?;
        let id = metrics.split(r#"etcd_server_id{server_id=""#).nth(1);
        let id = id.and_then(|rest| rest.split('"').next());
        id.map(str::to_owned).ok_or_else(|| io::Error::other("it does not tell its id"))
    }

    /// A request in HTTP 1.0, so that the end of the stream ends the reply.
    async fn get(&self, path: &str) -> io::Result<String> {
        let reply = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.metrics_port)).await?;
            stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply).await?;
            Ok(reply)
        };
        timeout(REPLY_WAIT, reply).await?
    }
}

/// Whether a line such as `name{a="1",b="2"} 3` belongs to a selector such as `name{b="2"}`.
fn selects(selector: &str, line: &str) -> bool {
    let (name, wanted) = selector.split_once('{').unwrap_or((selector, ""));
    let Some(labels) = line.strip_prefix(name) else {
        return false;
    };
    let Some(labels) = labels.strip_prefix('{') else {
        return wanted.is_empty() && labels.starts_with(' ');
    };
    let labels = format!(",{}", labels.replace('}', ","));
    let mut wanted = wanted.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
    wanted.all(|label| labels.contains(&format!(",{label},")))
}

#[cfg(test)]
mod tests {
    use super::selects;

    #[test]
    fn a_selector_names_a_metric_and_some_of_its_labels() {
        let line = r#"received_total{method="Put",type="unary"} 3"#;

        assert!(selects("received_total", line));
        assert!(selects(r#"received_total{type="unary",method="Put"}"#, line));
        assert!(selects("is_leader", "is_leader 1"));
        assert!(!selects(r#"received_total{method="Put",type="stream"}"#, line));
        assert!(!selects(r#"received_total{hod="Put"}"#, line));
        assert!(!selects("received", line));
        assert!(!selects(r#"is_leader{id="1"}"#, "is_leader 1"));
    }
}
