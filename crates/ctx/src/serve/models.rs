//! The models of this daemon for its users: those of the tree, and those of providers.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use ctx_agent::Models;
use ctx_agent::model::provider::{known, try_out};
use ctx_agent::model::{Providers, Request, Turn};
use ctx_api::http::{Handed, ModelNamed, ProviderNamed, Tried};
use ctx_session::Refusal;
use ctx_session::conversation::{Part, Role};

use super::Settings;
use super::providers::Known;

/// The models of a root.
pub(super) struct Root {
    root: PathBuf,
    models: Arc<Models>,
    providers: Arc<Known>,
}

impl Root {
    pub(super) fn new(settings: &Settings) -> Root {
        let configured = settings.config.models.clone();
        let providers = Arc::new(Known::new(&settings.root, settings.config_file.clone(), configured));
        let limits = Arc::new(settings.config.limits.clone());
        let models = Models::new(&settings.root, limits).with_providers(providers.clone());
        Root { root: settings.root.clone(), models: Arc::new(models), providers }
    }

    pub(super) fn models(&self) -> Arc<Models> {
        Arc::clone(&self.models)
    }

    /// What the daemon's own environment and its configuration make of `main`.
    pub(super) async fn choose_main_of_daemon(&self) {
        let own = rustix::process::geteuid().as_raw();
        if let Err(refusal) = self.providers.choose_main(own).await {
            tracing::warn!(%refusal, "model/main stays what it is");
        }
    }

    /// The models of the tree, and those that the data file knows of the user's providers.
    pub(super) fn list(&self, uid: u32) -> io::Result<Vec<ModelNamed>> {
        let setups = self.providers.of(uid);
        let mut names: Vec<String> = self.models.list()?.iter().map(ToString::to_string).collect();
        for setup in setups.iter().filter(|setup| setup.base_url == setup.kind.address()) {
            let of_it = known::file().models.iter().filter(|known| known.provider == setup.kind.as_str());
            names.extend(of_it.map(|known| format!("{}/{}", setup.name, known.id)));
        }
        names.sort();
        names.dedup();
        let main = std::fs::read_link(self.root.join("model/main")).ok();
        let shown = |name: String| {
            let (provider, id) = name.split_once('/').unwrap_or(("", &name));
            let known = known::find(id);
            let key = setups.iter().find(|setup| setup.name == provider).map(|setup| setup.key.origin());
            ModelNamed {
                window: known.map(|known| known.window),
                output: known.map(|known| known.output),
                input_usd: known.map(|known| known.price.input),
                output_usd: known.map(|known| known.price.output),
                key,
                is_main: main.as_ref().is_some_and(|main| main.as_os_str() == name.as_str()),
                name,
            }
        };
        Ok(names.into_iter().map(shown).collect())
    }

    pub(super) fn providers(&self, uid: u32) -> Vec<ProviderNamed> {
        self.providers.shown(uid)
    }

    pub(super) async fn take(&self, uid: u32, found: BTreeMap<String, String>) -> Result<Handed, Refusal> {
        self.providers.look_again();
        self.providers.take(uid, found)?;
        let refusal = self.providers.choose_main(uid).await.err();
        let (problem, code) = refusal.map(|refusal| (refusal.message, refusal.code)).unzip();
        Ok(Handed { providers: self.providers.shown(uid), problem, code })
    }

    pub(super) async fn try_out(&self, uid: u32, name: &str) -> Result<Tried, Refusal> {
        let begun = Instant::now();
        let id = self.models.resolve_for(name, uid)?;
        let model = self.models.open_for(&id, uid)?;
        let text = "Answer with the word ok.".to_owned();
        let request = Request {
            model: id.to_string(),
            attempt: 1,
            prompt: String::new(),
            messages: vec![Turn { role: Role::User, content: vec![Part::Text { text }] }],
            tools: Vec::new(),
            images: Arc::default(),
        };
        let said = try_out(model.as_ref(), request).await;
        let text = said.map_err(|error| Refusal::new(error.code(), error.to_string()))?;
        let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(Tried { model: ctx_api::model::in_api(&id.to_string()), text, took_ms })
    }
}
