//! `leasehold status`

use std::process::ExitCode;

use leasehold::{Inspection, LockKey};
use serde_json::json;

use crate::args::Status;
use crate::exit::Failure;

pub(crate) async fn run(args: Status) -> Result<ExitCode, Failure> {
    let key = super::key(&args.key)?;
    let client = args.backend.connect().await?;
    let inspection = client.admin().inspect(&key).await?;
    if args.json {
        println!("{}", to_json(&key, &inspection));
    } else {
        print(&key, &inspection);
    }
    Ok(ExitCode::from(u8::from(!inspection.is_held())))
}

fn print(key: &LockKey, inspection: &Inspection) {
    if !inspection.is_held() {
        println!("{key}: free");
    }
    for holder in inspection.holders() {
        println!("{key}: held by {holder}");
    }
    let listed: u64 = inspection.holders().iter().map(|holder| u64::from(holder.units())).sum();
    if inspection.units() > listed {
        println!("{key}: and by others, {} units in all", inspection.units());
    }
    if let Some(token) = inspection.last_token() {
        println!("{key}: no token so far is above {token}");
    }
}

fn to_json(key: &LockKey, inspection: &Inspection) -> serde_json::Value {
    let holders: Vec<_> = inspection
        .holders()
        .iter()
        .map(|holder| {
            json!({
                "lease": holder.fingerprint().to_string(),
                "description": holder.description().map(ToString::to_string),
                "units": holder.units(),
                "remaining_ms": holder.remaining().map(|left| u64::try_from(left.as_millis()).ok()),
            })
        })
        .collect();
    json!({
        "key": key.as_str(),
        "held": inspection.is_held(),
        "units": inspection.units(),
        "holders": holders,
        "last_token": inspection.last_token(),
    })
}
