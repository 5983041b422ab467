//! Runs `etcdctl` against a cluster.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::certificates::TlsClients;

use super::Etcd;
use super::member::Member;

/// `etcdctl` gives up by itself after 5 s, in most cases.
pub(super) const CTL_WAIT: Duration = Duration::from_secs(10);

/// As which user `etcdctl` comes where there are users.
const ROOT: &str = "root:root-secret";

impl Etcd {
    /// Runs `etcdctl` and returns its output.
    ///
    /// It asks the members that are neither killed nor paused, with the certificate and as the user that it needs;
    /// options in `args`, such as `["--user", "locker:secret"]`, take the place of these.
    ///
    /// # Panics
    ///
    /// If it fails, or is not done after ten seconds.
    pub async fn ctl(&self, args: &[&str]) -> String {
        let output = self.try_ctl(args).await;
        output.unwrap_or_else(|error| panic!("etcdctl {}: {error}", args.join(" ")))
    }

    /// Runs `etcdctl`, as [`ctl`](Self::ctl), where it may fail.
    ///
    /// # Errors
    ///
    /// Its error output.
    pub async fn try_ctl(&self, args: &[&str]) -> Result<String, String> {
        run(self.ctl_command(args)).await
    }

    /// The command that [`ctl`](Self::ctl) runs, for an `etcdctl` that goes on for longer. It dies with its handle.
    pub fn ctl_command(&self, args: &[&str]) -> Command {
        self.ctl_command_at(self.members.iter().filter(|member| member.instance.runs()), args)
    }

    /// Revokes all leases, with the keys that depend on them.
    ///
    /// # Panics
    ///
    /// As [`ctl`](Self::ctl).
    pub async fn revoke_all_leases(&self) {
        let leases = self.ctl(&["lease", "list"]).await;
        // The first line says how many they are.
        for lease in leases.lines().skip(1) {
            self.ctl(&["lease", "revoke", lease]).await;
        }
    }

    /// Forgets all history before the current revision.
    ///
    /// # Panics
    ///
    /// As [`ctl`](Self::ctl); also if there is none, since nothing has changed after the last time.
    pub async fn compact(&self) {
        let fields = self.ctl(&["get", "any-key", "-w", "fields"]).await;
        let revision = fields.lines().find_map(|line| line.strip_prefix(r#""Revision" : "#));
        self.ctl(&["compact", revision.expect("a reply tells the revision")]).await;
    }

    /// Makes a member the leader.
    ///
    /// # Panics
    ///
    /// As [`ctl`](Self::ctl).
    pub async fn move_leader(&self, to: usize) {
        let id = self.members[to].id().await.expect("the member answers");
        let leader = self.leader().await;
        if leader != to {
            let command = self.ctl_command_at([&self.members[leader]], &["move-leader", &id]);
            run(command).await.expect("the leader hands over");
        }
    }

    /// Asks for users from now on.
    pub(super) async fn enable_auth(&mut self) {
        self.ctl(&["user", "add", ROOT]).await;
        for user in &self.options.users {
            let (name, prefix) = (user.name.as_str(), user.prefix.as_str());
            self.ctl(&["user", "add", &format!("{name}:{}", user.password)]).await;
            self.ctl(&["role", "add", name]).await;
            self.ctl(&["role", "grant-permission", "--prefix", name, "readwrite", prefix]).await;
            self.ctl(&["user", "grant-role", name, name]).await;
        }
        self.ctl(&["auth", "enable"]).await;
        self.auth_enabled = true;
    }

    fn ctl_command_at<'a>(
        &self,
        members: impl IntoIterator<Item = &'a Member>,
        args: &[&str],
    ) -> Command {
        let mut command = Command::new(&self.program.ctl);
        command.env("ETCDCTL_API", "3").stdin(Stdio::null()).kill_on_drop(true);
        // A second list of endpoints would add to the first.
        if !args.contains(&"--endpoints") {
            let endpoints: Vec<_> =
                members.into_iter().map(|member| self.client_url(member)).collect();
            command.args(["--endpoints", &endpoints.join(",")]);
        }
        if let Some(certificates) = &self.certificates {
            command.arg("--cacert").arg(certificates.authority());
            if self.options.tls == Some(TlsClients::NeedCertificate) {
                command.arg("--cert").arg(certificates.client_certificate());
                command.arg("--key").arg(certificates.client_key());
            }
        }
        if self.auth_enabled {
            command.args(["--user", ROOT]);
        }
        // If an option is given twice, the last one counts: that of the caller.
        command.args(args);
        command
    }
}

async fn run(mut command: Command) -> Result<String, String> {
    let output = timeout(CTL_WAIT, command.output()).await;
    let output = output.map_err(|_| "not done in time".to_owned())?;
    let output = output.map_err(|error| error.to_string())?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}
