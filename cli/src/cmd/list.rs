//! `leasehold list`

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use clap::Args;
use leasehold::{Admin, Error, LockKey, LockKind};

use super::status;
use crate::args::Backend;
use crate::exit::Failure;

/// Shows the locks that are held or waited for.
///
/// The store says in which order. On Redis this walks through the whole database and takes the right `+scan`.
///
/// Exit status: 0 if there are any, 1 if there are none, 69 if the store cannot be reached, 64 if the command line makes no sense.
#[derive(Args, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) backend: Backend,

    /// Print one line of JSON for each lock.
    #[arg(long)]
    pub(crate) json: bool,

    /// The beginning of their names. Without it: all locks.
    #[arg(default_value = "")]
    pub(crate) prefix: OsString,
}

pub(crate) async fn run(args: List) -> Result<ExitCode, Failure> {
    let client = args.backend.connect().await?;
    let admin = client.admin();
    let mut keys = admin.list(args.prefix.as_bytes())?;
    let mut is_empty = true;
    while let Some(page) = keys.next_page().await? {
        let mut lines = String::new();
        for key in page {
            let line = line(&admin, &key, args.json).await?;
            is_empty &= line.is_empty();
            lines += &line;
        }
        if io::stdout().write_all(lines.as_bytes()).is_err() {
            // The reader has seen enough.
            break;
        }
    }
    Ok(ExitCode::from(u8::from(is_empty)))
}

/// Nothing, of a lock that has come free meanwhile.
async fn line(admin: &Admin, key: &LockKey, is_json: bool) -> Result<String, Error> {
    let seen = admin.inspect(key).await?;
    let waiting = seen.waiting().unwrap_or(0);
    if !seen.is_held() && waiting == 0 {
        return Ok(String::new());
    }
    if is_json {
        return Ok(format!("{}\n", status::to_json(key, &seen)));
    }
    let kind = seen.kind().map_or("free", LockKind::name);
    let holders: Vec<String> = seen.holders().iter().map(ToString::to_string).collect();
    let mut line = format!("{key}\t{kind}\t{}", holders.join("; "));
    if waiting > 0 {
        line += &format!("\t{waiting} waiting");
    }
    Ok(line + "\n")
}

#[cfg(test)]
mod tests {
    use leasehold::{LockClient, MemoryBackend};
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn lines_tell_key_kind_and_holder() {
        let client = LockClient::new(MemoryBackend::new());
        let (admin, lock) = (client.admin(), client.rw_lock("job").unwrap());
        let key = lock.key().clone();
        assert_eq!(line(&admin, &key, false).await.unwrap(), "");
        let guard = lock.write().await.unwrap();

        let text = line(&admin, &key, false).await.unwrap();
        let shown = line(&admin, &key, true).await.unwrap();

        assert!(text.starts_with("job\twrite\t"), "{text}");
        let shown: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!((&shown["kind"], &shown["waiting"]), (&json!("write"), &json!(0)));
        assert_eq!(shown["holders"][0]["token"], json!(guard.token().number()));
        guard.release().await.unwrap();
    }
}
