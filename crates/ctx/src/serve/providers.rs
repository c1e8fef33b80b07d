//! The providers of models that a user of this daemon may ask: those of the configuration, and those that the usual environment
//! variables name, in the daemon's own environment or as a client handed them over. What a client hands over is kept in memory, for
//! that user alone.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, RwLock};

use ctx_agent::model::adopt::{self, Providers, USUAL};
use ctx_agent::model::provider::setup::{Key, Kind, Secret, Setup};
use ctx_agent::model::provider::{known, offered};
use ctx_api::http::ProviderNamed;
use ctx_session::{Code, Refusal};

use crate::config::{self, Environment, FileArg, Provider, provider_variables as variables};

/// What is known of providers.
pub(super) struct Known {
    root: PathBuf,
    own_uid: u32,
    file: FileArg,
    configured: RwLock<BTreeMap<String, Provider>>,
    handed: Mutex<HashMap<u32, BTreeMap<String, Secret>>>,
}

/// The most variables that are kept for a user, and the longest value.
const VARIABLES_MAX: usize = 64;
const VALUE_BYTES_MAX: usize = 16 * 1024;

impl Known {
    pub(super) fn new(root: &Path, file: FileArg, configured: BTreeMap<String, Provider>) -> Known {
        Known {
            root: root.to_owned(),
            own_uid: rustix::process::geteuid().as_raw(),
            file,
            configured: RwLock::new(configured),
            handed: Mutex::default(),
        }
    }

    /// Takes what a client found in its environment. What it does not name stays: another shell may have it.
    pub(super) fn take(&self, uid: u32, found: BTreeMap<String, String>) -> Result<(), Refusal> {
        let wanted = variables(&self.configured());
        let found = found.into_iter().filter(|(name, _)| wanted.contains(name));
        let found: BTreeMap<String, Secret> = found.map(|(name, value)| (name, Secret::new(value))).collect();
        if found.len() > VARIABLES_MAX || found.values().any(|value| value.expose().len() > VALUE_BYTES_MAX) {
            return Err(Refusal::new(
                Code::Emsgsize,
                "these are more or longer variables than a provider has",
            ));
        }
        self.handed.lock().unwrap_or_else(PoisonError::into_inner).entry(uid).or_default().extend(found);
        Ok(())
    }

    /// Reads `[models]` of the config file again: a provider that was added holds from the next command on.
    pub(super) fn look_again(&self) {
        match config::load(&self.file, &Environment::of_process()) {
            Ok(loaded) => {
                *self.configured.write().unwrap_or_else(PoisonError::into_inner) = loaded.config.models;
            }
            Err(error) => {
                tracing::warn!(%error, "the config file cannot be read; its providers stay as they were")
            }
        }
    }

    fn configured(&self) -> BTreeMap<String, Provider> {
        self.configured.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The value of a variable for a user. The daemon's own environment is that of its own user.
    fn value(&self, uid: u32, name: &str) -> Option<(Secret, bool)> {
        let handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(secret) = handed.get(&uid).and_then(|found| found.get(name)) {
            return Some((secret.clone(), true));
        }
        let own = std::env::var(name).ok().filter(|value| uid == self.own_uid && !value.trim().is_empty());
        own.map(|value| (Secret::new(value), false))
    }

    /// A provider that the usual variables name, if they do.
    fn usual(&self, uid: u32, kind: Kind, key: Option<&str>, address: &str) -> Option<Setup> {
        let base = self.value(uid, address).map(|(base, _)| base.expose().trim().to_owned());
        let base = base.filter(|base| !base.is_empty());
        let found = key.and_then(|name| Some((name, self.value(uid, name)?)));
        let key = match (found, kind) {
            (Some((name, (secret, is_of_shell))), _) => {
                Key::Variable { name: name.to_owned(), value: Some(secret), is_of_shell }
            }
            (None, Kind::Ollama) if base.is_some() => Key::None,
            (None, _) => return None,
        };
        let base = if kind == Kind::Ollama { base.as_deref().map(ollama_address) } else { base };
        Some(Setup::plain(kind.as_str(), kind, base.as_deref(), key))
    }

    /// The providers of a user, for `ctx model ls`.
    pub(super) fn shown(&self, uid: u32) -> Vec<ProviderNamed> {
        let shown = |setup: Setup| ProviderNamed {
            default: self.default_by_name(&setup),
            kind: setup.kind.as_str().to_owned(),
            base_url: setup.base_url,
            key: setup.key.origin(),
            name: setup.name,
        };
        self.of(uid).into_iter().map(shown).collect()
    }

    /// The model that a provider begins with, as far as that is known without asking it.
    fn default_by_name(&self, setup: &Setup) -> Option<String> {
        let configured = self.configured().get(&setup.name).and_then(|provider| provider.default.clone());
        let is_usual_place = setup.base_url == setup.kind.address();
        let usual = || known::default_of(setup.kind.as_str()).filter(|_| is_usual_place);
        configured.or_else(|| usual().map(|known| known.id.clone()))
    }

    /// Lets `model/main` lead to the first provider's default, as long as nobody has said otherwise, or where its own
    /// provider is gone. What a server of one's own
    /// has is asked of it; of several models the user has to choose.
    pub(super) async fn choose_main(&self, uid: u32) -> Result<(), Refusal> {
        let providers = self.of(uid);
        if uid != self.own_uid || !adopt::main_is_free(&self.root, &providers) {
            return Ok(());
        }
        let Some(first) = providers.into_iter().next() else { return Ok(()) };
        let id = match self.default_by_name(&first) {
            Some(id) => id,
            None => only_model(&first).await?,
        };
        let broken = |error: &dyn std::fmt::Display| Refusal::new(Code::Eio, format!("model/main: {error}"));
        let model = adopt::adopt(&self.root, &first, &id).map_err(|error| broken(&error))?;
        adopt::link_main(&self.root, &model).map_err(|error| broken(&error))
    }
}

async fn only_model(setup: &Setup) -> Result<String, Refusal> {
    let found = offered(setup).await.map_err(|error| Refusal::new(error.code(), error.to_string()))?;
    match found.as_slice() {
        [only] => Ok(only.clone()),
        [] => Err(Refusal::invalid("model", format!("{} at {} offers no model", setup.name, setup.base_url))),
        several => {
            let listed = several.iter().take(8).map(|id| format!("{}:{id}", setup.name));
            let listed = listed.collect::<Vec<_>>().join(", ");
            let message = format!("{} offers {} models; choose one: {listed}", setup.name, several.len());
            Err(Refusal::invalid("model", message))
        }
    }
}

impl Providers for Known {
    fn of(&self, uid: u32) -> Vec<Setup> {
        let configured = self.configured();
        let mut setups = Vec::new();
        for (kind, key, address) in USUAL {
            if !configured.contains_key(kind.as_str()) {
                setups.extend(self.usual(uid, kind, key, address));
            }
        }
        let named = configured.iter();
        setups
            .extend(named.filter_map(|(name, provider)| provider.setup(name, |word| self.value(uid, word))));
        // The usual ones first, in their order; then the others by name.
        let rank = |setup: &Setup| {
            let usual = USUAL.iter().position(|(kind, ..)| kind.as_str() == setup.name);
            (usual.unwrap_or(USUAL.len()), setup.name.clone())
        };
        setups.sort_by_key(rank);
        setups
    }
}

/// `OLLAMA_HOST` is often an address without a scheme or a port, and may be the one that the server listens on.
fn ollama_address(text: &str) -> String {
    let text = text.trim().trim_end_matches('/');
    let (scheme, rest) = text.split_once("://").unwrap_or(("http", text));
    let rest =
        rest.strip_prefix("0.0.0.0").map_or_else(|| rest.to_owned(), |port| format!("127.0.0.1{port}"));
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = if has_port || scheme == "https" || rest.contains('/') { "" } else { ":11434" };
    format!("{scheme}://{rest}{port}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_ollama_is_made_whole() {
        for (text, whole) in [
            ("localhost", "http://localhost:11434"),
            ("0.0.0.0:8080", "http://127.0.0.1:8080"),
            ("http://gpu:11434/", "http://gpu:11434"),
            ("https://ollama.example.org", "https://ollama.example.org"),
        ] {
            assert_eq!(ollama_address(text), whole);
        }
    }

    fn known(configured: &[(&str, Provider)]) -> Known {
        let configured =
            configured.iter().map(|(name, provider)| ((*name).to_owned(), provider.clone())).collect();
        // The environment of the tests is nobody's.
        Known { own_uid: u32::MAX, ..Known::new(Path::new("/nowhere"), FileArg::default(), configured) }
    }

    fn names(known: &Known, uid: u32) -> Vec<String> {
        known.of(uid).into_iter().map(|setup| setup.name).collect()
    }

    #[test]
    fn what_a_client_hands_over_is_for_its_user_alone() {
        let known = known(&[]);
        let found =
            |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), "value".to_owned())).collect();
        known.take(7, found(&["ANTHROPIC_API_KEY", "OLLAMA_HOST", "OPENAI_API_KEY", "PATH"])).unwrap();
        assert_eq!(names(&known, 7), ["openai", "anthropic", "ollama"]);
        assert_eq!(names(&known, 8), [""; 0]);
        assert!(known.shown(7)[0].key.ends_with("from your shell"));
        assert!(known.value(7, "PATH").is_none(), "other variables are not kept");
        known.take(7, found(&[])).unwrap();
        assert_eq!(names(&known, 7).len(), 3, "another shell may have what this one has not");
    }

    #[test]
    fn the_configuration_comes_before_the_environment() {
        let provider = Provider { base_url: Some("http://here/v1/".to_owned()), ..Provider::default() };
        let (kind, key_env) = (Some("openai-chat".to_owned()), Some("MY".to_owned()));
        let named = Provider { kind, key_env, ..Provider::default() };
        let known = known(&[("openai", provider), ("aaa", named)]);
        assert_eq!(names(&known, 7), ["openai", "aaa"]);
        let setups = known.of(7);
        assert_eq!((setups[0].base_url.as_str(), &setups[0].key), ("http://here/v1", &Key::None));
        known.take(7, BTreeMap::from([("MY".to_owned(), "secret-value".to_owned())])).unwrap();
        assert_eq!(known.of(7)[1].key.origin(), "$MY from your shell");
        assert!(!format!("{:?}", known.of(7)).contains("secret-value"));
    }
}
