//! The shell of a reader who follows a page.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::{env, fs, thread};

use leasehold_testbed::{Etcd, MariaDb, Postgres, Redis, patiently};

use super::root;
use crate::support::{Home, SOON, block_on};

/// The line after a command's output, with its exit code.
const END: &str = "== exit code ";

/// The URLs of databases on the pages about them.
const POSTGRES: &str = "postgres://app:secret@127.0.0.1/app";
const MARIADB: &str = "mysql://app:secret@127.0.0.1/app";

/// A shell, the folder beside a checkout in which it starts, and servers in the place of those that pages name.
pub(super) struct Session {
    shell: Child,
    keys: ChildStdin,
    screen: Receiver<String>,
    redis: Redis,
    _etcd: Etcd,
    postgres: Option<Postgres>,
    mariadb: Option<MariaDb>,
    _home: Home,
}

impl Session {
    /// Starts a session with the servers that the page names.
    pub(super) fn open(page: &str) -> Self {
        let (redis, etcd) = (block_on(Redis::start()), block_on(Etcd::start()));
        let postgres = page.contains(POSTGRES).then(postgres);
        let mariadb = page.contains(MARIADB).then(mariadb);
        let home = Home::new();
        let folder = home.0.path();
        symlink(root(), folder.join("leasehold")).unwrap();
        let etcdctl = etcd.ctl_command(&[]);
        fs::create_dir(folder.join("bin")).unwrap();
        symlink(etcdctl.as_std().get_program(), folder.join("bin/etcdctl")).unwrap();

        // A session without a terminal: a shell stops jobs that are not in the foreground of its terminal.
        let mut shell = home.on_path("setsid");
        shell.arg("bash").current_dir(folder);
        // Cargo looks for its own files in the home folder, and finds no registry.
        shell.env("HOME", env::var_os("HOME").unwrap()).env("CARGO_NET_OFFLINE", "true");
        shell
            .env("XDG_STATE_HOME", folder.join("state"))
            .env("XDG_CONFIG_HOME", folder.join("config"));
        shell.env("ETCDCTL_ENDPOINTS", etcd.endpoints().join(",")).env("BIN", folder.join("bin"));
        if let Some(mariadb) = &mariadb {
            shell.env("MYSQL_TCP_PORT", mariadb.port().to_string());
        }
        let mut shell = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();

        let (keys, lines) = (shell.stdin.take().unwrap(), shell.stdout.take().unwrap());
        let (sender, screen) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(lines).lines().map_while(Result::ok).try_for_each(|it| sender.send(it))
        });
        let mut session =
            Self { shell, keys, screen, redis, _etcd: etcd, postgres, mariadb, _home: home };
        session.run("exec 2>&1; PATH=$PATH:$BIN");
        session
    }

    fn write(&mut self, line: &str) {
        writeln!(self.keys, "{line}").unwrap();
    }

    /// The command for these servers, as a word that the shell evaluates.
    fn quoted(&self, command: &str) -> String {
        // A busy machine may take longer to connect than the default time limit.
        let redis = patiently(&self.redis.url());
        let command = command.replace("redis://127.0.0.1", "\0");
        let mut command = command.replace("\0?", &format!("{redis}&")).replace('\0', &redis);
        if let Some(postgres) = &self.postgres {
            command = command.replace(POSTGRES, &of_app(&postgres.url_as("app:secret")));
        }
        if let Some(mariadb) = &self.mariadb {
            command = command.replace(MARIADB, &of_app(&mariadb.url_as("app:secret")));
        }
        format!("'{}'", command.replace('\'', r"'\''"))
    }

    fn line(&self) -> String {
        self.screen.recv_timeout(SOON).expect("the shell says something")
    }

    /// Runs a command: its output, and its exit code.
    pub(super) fn run(&mut self, command: &str) -> (Vec<String>, i32) {
        let command = self.quoted(command);
        self.write(&format!("eval {command} < /dev/null; printf '{END}%d\\n' $?"));
        let mut output = Vec::new();
        loop {
            let line = self.line();
            match line.strip_prefix(END) {
                Some(code) => return (output, code.parse().unwrap()),
                None => output.push(line),
            }
        }
    }

    /// Starts a command as a job, and waits for its first line.
    pub(super) fn start(&mut self, command: &str) -> String {
        let command = self.quoted(command);
        self.write(&format!("set -m; eval {command} < /dev/null & set +m"));
        self.line()
    }

    /// Presses Ctrl-C for the last job, and waits until it has ended.
    pub(super) fn interrupt(&mut self) {
        let (said, code) = self.run("kill -INT %+ && wait %+");
        assert!([0, 130].contains(&code), "{said:?}");
    }

    /// Ends the jobs that still run.
    pub(super) fn end_all(&mut self) {
        self.run("kill $(jobs -p); wait");
    }

    /// Writes each script that the commands name by its path: it says that it runs, and ends with Ctrl-C where its command does.
    pub(super) fn write_scripts(&mut self, commands: &[String]) {
        for command in commands {
            let rest = if command.ends_with("until Ctrl-C") { "exec sleep 600\n" } else { "" };
            for script in command.split(' ').filter(|word| word.starts_with("./")) {
                let text = format!("#!/bin/sh\necho \"$0 $*\"\n{rest}");
                self.run(&format!("printf %s '{text}' > {script} && chmod +x {script}"));
            }
        }
    }
}

/// Returns the URL with the database `app`.
fn of_app(url: &str) -> String {
    let (server, _) = url.rsplit_once('/').unwrap();
    format!("{server}/app")
}

fn postgres() -> Postgres {
    let server = block_on(Postgres::start());
    block_on(server.sql("CREATE ROLE app LOGIN PASSWORD 'secret'"));
    // The server has no template databases.
    block_on(server.sql("CREATE DATABASE app OWNER app TEMPLATE postgres"));
    server
}

fn mariadb() -> MariaDb {
    let server = block_on(MariaDb::start());
    block_on(server.sql(
        "CREATE DATABASE app; CREATE USER app IDENTIFIED BY 'secret'; GRANT ALL ON app.* TO app",
    ));
    server
}

impl Drop for Session {
    fn drop(&mut self) {
        let session = self.shell.id().to_string();
        drop(Command::new("pkill").args(["-KILL", "--session", &session]).status());
        drop(self.shell.wait());
    }
}
