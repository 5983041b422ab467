//! Users of ZooKeeper.

use super::step::{SET_PASSWORD, Step, shell_word};
use crate::place::Place;

const CREATE: &str = "The parent nodes of all locks, once for the ensemble. A node that already exists is not a problem.";

const OWNER: &str = "Reserves the parent node for this user. Otherwise, the node belongs to the first client that acquires a lock. \
     If the node belongs to another user, run setAcl within zkCli.sh after the command addauth for that user";

pub(super) fn steps(place: &Place, user: &str) -> Vec<Step> {
    let servers: Vec<String> = place.hosts().iter().map(ToString::to_string).collect();
    let client = format!("zkCli.sh -server {}", shell_word(servers.join(",")));
    let prefix = place.prefix();
    let parents = prefix.match_indices('/').skip(1).map(|(end, _)| &prefix[..end]);
    let nodes = parents.chain([&*prefix]).map(shell_word);
    let create = nodes.map(|node| format!("{client} create {node} ''")).collect();
    let set_acl = format!("{client} setAcl {}", shell_word(&*prefix));
    let owner = match place.parameter("auth") {
        Some("sasl") => {
            let owner = format!("{set_acl} {}", shell_word(format!("sasl:{user}:cdrwa")));
            Step::new("ensemble", format!("{OWNER}."), vec![owner])
        }
        _ => Step::new(
            "ensemble",
            format!("{OWNER}. NEW_PASSWORD must be the password in the URL. {SET_PASSWORD}"),
            vec![format!(
                ": \"${{NEW_PASSWORD:?}}\" && {set_acl} digest:{}:\"{}\":cdrwa",
                shell_word(user),
                hash(user)
            )],
        ),
    };
    vec![Step::new("ensemble", CREATE, create), owner]
}

/// The scheme `digest` identifies users by a hash of name and password.
fn hash(user: &str) -> String {
    let login = format!("{}\"$NEW_PASSWORD\"", shell_word(format!("{user}:")));
    format!("$(printf %s {login} | openssl dgst -sha1 -binary | base64)")
}
