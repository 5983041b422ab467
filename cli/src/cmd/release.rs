//! `leasehold release --force`

use std::process::ExitCode;

use crate::args::Release;
use crate::exit::Failure;

pub(crate) async fn run(args: Release) -> Result<ExitCode, Failure> {
    let key = super::key(&args.key)?;
    let client = leasehold::connect(&args.backend.url).await?;
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
