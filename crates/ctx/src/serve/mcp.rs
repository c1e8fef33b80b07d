//! MCP servers of this daemon's users: those of the config file, which are the daemon's own user's, and the variables that
//! servers are given from a user's shell. What a client hands over is kept in memory, for that user alone.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError, RwLock};

use ctx_agent::mcp::Variables;
use ctx_agent::model::provider::setup::Secret;
use ctx_agent::project::McpServer;
use ctx_session::{Code, Name, Refusal};

use crate::config::{self, Environment, FileArg};

/// The most variables that are kept for a user, and the longest value.
const VARIABLES_MAX: usize = 256;
const VALUE_BYTES_MAX: usize = 16 * 1024;

/// What is known of servers.
pub(super) struct Servers {
    own_uid: u32,
    file: FileArg,
    configured: RwLock<BTreeMap<Name, McpServer>>,
    handed: Mutex<HashMap<u32, BTreeMap<String, Secret>>>,
}

impl Servers {
    pub(super) fn new(file: FileArg, configured: BTreeMap<Name, McpServer>) -> Servers {
        let own_uid = rustix::process::geteuid().as_raw();
        Servers { own_uid, file, configured: RwLock::new(configured), handed: Mutex::default() }
    }

    /// The servers of a user besides those of projects: those of the config file are the daemon's own user's.
    pub(super) fn of(&self, uid: u32) -> BTreeMap<Name, McpServer> {
        match uid == self.own_uid {
            true => self.configured.read().unwrap_or_else(PoisonError::into_inner).clone(),
            false => BTreeMap::new(),
        }
    }

    /// Takes what a client found in its environment, and looks at the config file again. What the client does not name stays:
    /// another shell may have it.
    pub(super) fn take(&self, uid: u32, found: BTreeMap<String, String>) -> Result<(), Refusal> {
        self.look_again();
        let mut handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = handed.entry(uid).or_default();
        let new = found.keys().filter(|name| !known.contains_key(*name)).count();
        if known.len() + new > VARIABLES_MAX || found.values().any(|value| value.len() > VALUE_BYTES_MAX) {
            let message = format!(
                "these are more than {VARIABLES_MAX} variables, or longer than {VALUE_BYTES_MAX} bytes"
            );
            return Err(Refusal::new(Code::Emsgsize, message));
        }
        known.extend(found.into_iter().map(|(name, value)| (name, Secret::new(value))));
        Ok(())
    }

    /// Reads `[mcp]` of the config file again: what was changed there holds from the next run on.
    pub(super) fn look_again(&self) {
        match config::load(&self.file, &Environment::of_process()) {
            Ok(loaded) => {
                *self.configured.write().unwrap_or_else(PoisonError::into_inner) = loaded.config.mcp
            }
            Err(error) => {
                tracing::warn!(%error, "the config file cannot be read; its MCP servers stay as they were")
            }
        }
    }
}

impl Variables for Servers {
    fn value(&self, uid: u32, name: &str) -> Option<Secret> {
        let handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(secret) = handed.get(&uid).and_then(|found| found.get(name)) {
            return Some(secret.clone());
        }
        // The daemon's own environment is that of its own user.
        let own = std::env::var(name).ok().filter(|value| uid == self.own_uid && !value.trim().is_empty());
        own.map(Secret::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_over_and_configured_is_for_its_user_alone() {
        let server = McpServer { command: vec!["x".to_owned()], ..McpServer::default() };
        let servers = Servers::new(FileArg::default(), BTreeMap::from([(Name::new("x").unwrap(), server)]));
        let other = servers.own_uid + 1;
        assert_eq!((servers.of(servers.own_uid).len(), servers.of(other).len()), (1, 0));
        servers.take(other, BTreeMap::from([("CTX_TEST_TOKEN".to_owned(), "value".to_owned())])).unwrap();
        assert_eq!(servers.value(other, "CTX_TEST_TOKEN").unwrap().expose(), "value");
        assert!(servers.value(servers.own_uid, "CTX_TEST_TOKEN").is_none());
        assert!(servers.value(other, "PATH").is_none(), "the daemon's environment is not theirs");
        let many = (0..VARIABLES_MAX).map(|n| (format!("V{n}"), String::new())).collect();
        assert_eq!(servers.take(other, many).unwrap_err().code, Code::Emsgsize);
    }
}
