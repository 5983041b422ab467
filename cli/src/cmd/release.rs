//! `leasehold release`

use std::process::ExitCode;

use leasehold::{LockClient, LockKey, Revocation};

use crate::args::Release;
use crate::exit::Failure;

pub(crate) async fn run(args: Release) -> Result<ExitCode, Failure> {
    let key = super::key(&args.key)?;
    let client = args.backend.connect().await?;
    if args.ask {
        return ask(&client, &key).await;
    }
    let forced = client.admin().force_release(&key, "leasehold release --force").await?;
    if forced.ended().is_empty() {
        println!("{key}: was free");
        return Ok(ExitCode::FAILURE);
    }
    for holder in forced.ended() {
        println!("{key}: ended the lease of {holder}");
    }
    if let Some(token) = forced.min_token() {
        println!("{key}: tokens below {token} are stale from now on");
    }
    Ok(ExitCode::SUCCESS)
}

async fn ask(client: &LockClient, key: &LockKey) -> Result<ExitCode, Failure> {
    match client.request_revocation(key).await? {
        Revocation::Requested => {
            println!("{key}: asked its holders to finish");
            Ok(ExitCode::SUCCESS)
        }
        Revocation::NotHeld => {
            println!("{key}: was free");
            Ok(ExitCode::FAILURE)
        }
    }
}
