//! Hands the daemon what this shell knows of providers: the values of the variables that name them. They go over the daemon's
//! socket, which only this user's programs speak on as this user, and are written nowhere.

use std::collections::BTreeMap;

use ctx_api::http::{Handed, Variables};

use super::Api;
use crate::config::{self, Environment, FileArg};
use crate::failure::Failure;
use crate::root::Root;

/// Hands over what there is, and says which providers the daemon knows now.
pub fn hand_over(root: &Root) -> Result<Handed, Failure> {
    // A file that cannot be read is the daemon's to complain of.
    let configured = config::load(&FileArg::of_environment(), &Environment::of_process())
        .map(|loaded| loaded.config.models)
        .unwrap_or_default();
    let value = |name: String| {
        let value = std::env::var(&name).ok().filter(|value| !value.trim().is_empty())?;
        Some((name, value))
    };
    let variables: BTreeMap<String, String> =
        config::provider_variables(&configured).into_iter().filter_map(value).collect();
    Api::new(root).put("/providers/variables", &Variables { variables })
}
