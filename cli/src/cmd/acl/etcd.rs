//! Users of etcd.

use super::step::{PASSWORD, SET_PASSWORD, Step, shell_word, tls_files};
use crate::place::Place;

const ROLE: &str = "Permissions, once for the cluster. If authentication is enabled, add --user root to each command. \
     If the role already exists, the first command fails, and the second command is still required.";

/// Without this comment, an administrator would believe that the permissions have an effect.
const GRANT: &str = "Grants the role to the user. etcd ignores users until authentication is enabled \
     with the commands user add root, user grant-role root root and auth enable.";

pub(super) fn steps(place: &Place, user: &str) -> Vec<Step> {
    let scheme = if place.is_encrypted { "https" } else { "http" };
    let endpoints: Vec<String> =
        place.hosts().iter().map(|server| format!("{scheme}://{server}")).collect();
    let client =
        format!("etcdctl --endpoints {}{}", shell_word(endpoints.join(",")), tls_files(place));
    let (user, prefix) = (shell_word(user), shell_word(&*place.prefix()));
    let step = |comment: &str, commands: &[String]| {
        let commands = commands.iter().map(|command| format!("{client} {command}")).collect();
        Step::new("cluster", comment, commands)
    };
    vec![
        step(
            ROLE,
            &[
                format!("role add {user}"),
                format!("role grant-permission {user} --prefix=true readwrite {prefix}"),
            ],
        ),
        step(
            &format!("Only for a new user. {SET_PASSWORD}"),
            &[format!("user add {user}:\"{PASSWORD}\"")],
        ),
        step(GRANT, &[format!("user grant-role {user} {user}")]),
    ]
}
