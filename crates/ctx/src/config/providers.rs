//! `[models.<provider>]`: providers of models that the operator names. Their keys are not here: only where each comes from.

use std::collections::BTreeMap;
use std::path::PathBuf;

use ctx_agent::model::adopt::USUAL;
use ctx_agent::model::provider::setup::{Key, Kind, Secret, Setup};
use ctx_agent::nearest::nearest;
use ctx_session::Name;
use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::file::{FileError, Source};

/// One provider.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Provider {
    /// Its wire format; None: that of its name.
    pub kind: Option<String>,
    pub base_url: Option<String>,
    pub headers: BTreeMap<String, String>,
    pub key_env: Option<String>,
    pub key_file: Option<PathBuf>,
    pub key_command: Option<String>,
    pub ca_file: Option<PathBuf>,
    pub proxy: Option<String>,
    /// The model that `main` means when this is the first provider.
    pub default: Option<String>,
}

const KEYS: &[&str] =
    &["kind", "base_url", "headers", "key_env", "key_file", "key_command", "ca_file", "proxy", "default"];

impl Provider {
    /// How it is reached; `value` says what a variable of the environment has, and whether it is from a shell.
    pub fn setup(&self, name: &str, value: impl Fn(&str) -> Option<(Secret, bool)>) -> Option<Setup> {
        let kind = Kind::from_name(self.kind.as_deref().unwrap_or(name))?;
        let key = match (&self.key_env, &self.key_file, &self.key_command) {
            (Some(variable), ..) => {
                let found = value(variable);
                let is_of_shell = found.as_ref().is_some_and(|(_, is_of_shell)| *is_of_shell);
                let value = found.map(|(secret, _)| secret);
                Key::Variable { name: variable.clone(), value, is_of_shell }
            }
            (None, Some(path), _) => Key::File(path.clone()),
            (None, None, Some(command)) => Key::Command(command.clone()),
            (None, None, None) => Key::None,
        };
        let plain = Setup::plain(name, kind, self.base_url.as_deref(), key);
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        Some(Setup { headers, ca_file: self.ca_file.clone(), proxy: self.proxy.clone(), ..plain })
    }
}

/// The variables that name a provider without configuration, and those that the configuration names.
pub fn variables(configured: &BTreeMap<String, Provider>) -> Vec<String> {
    let usual = USUAL.iter().flat_map(|(_, key, address)| key.iter().copied().chain([*address]));
    let named = configured.values().filter_map(|provider| provider.key_env.clone());
    usual.map(str::to_owned).chain(named).collect()
}

/// What the section says, by the provider's name.
pub(super) fn read(
    source: &Source<'_>,
    section: &DeTable<'_>,
) -> Result<BTreeMap<String, Provider>, FileError> {
    let mut providers = BTreeMap::new();
    for (name, value) in section {
        let word: &str = name.get_ref();
        if let Err(rule) = Name::new(word) {
            return Err(source.wrong(
                name.span(),
                format!("`{word}` is not a provider's name: {rule}"),
                None,
            ));
        }
        let Some(table) = value.get_ref().as_table() else {
            let hint = format!("write [models.{word}] and its keys below it");
            return Err(source.wrong(name.span(), format!("`{word}` must be a section"), Some(hint)));
        };
        let provider = one(source, word, table)?;
        let kinds = Kind::ALL.map(Kind::as_str).join(", ");
        if Kind::from_name(provider.kind.as_deref().unwrap_or(word)).is_none() {
            let message = format!("`models.{word}.kind` must be one of {kinds}");
            return Err(source.wrong(name.span(), message, None));
        }
        let sources =
            [provider.key_env.is_some(), provider.key_file.is_some(), provider.key_command.is_some()];
        if sources.into_iter().filter(|is_there| *is_there).count() > 1 {
            let message = format!("[models.{word}] has more than one of key_env, key_file and key_command");
            return Err(source.wrong(name.span(), message, None));
        }
        providers.insert(word.to_owned(), provider);
    }
    Ok(providers)
}

fn one(source: &Source<'_>, name: &str, table: &DeTable<'_>) -> Result<Provider, FileError> {
    let mut provider = Provider::default();
    for (key, value) in table {
        let word: &str = key.get_ref();
        let text = || text_of(source, &format!("models.{name}.{word}"), value);
        match word {
            "kind" => provider.kind = Some(text()?),
            "base_url" => provider.base_url = Some(text()?),
            "key_env" => provider.key_env = Some(text()?),
            "key_file" => provider.key_file = Some(text()?.into()),
            "key_command" => provider.key_command = Some(text()?),
            "ca_file" => provider.ca_file = Some(text()?.into()),
            "proxy" => provider.proxy = Some(text()?),
            "default" => provider.default = Some(text()?),
            "headers" => {
                let Some(headers) = value.get_ref().as_table() else {
                    let message = format!("`models.{name}.headers` must be a table of strings");
                    return Err(source.wrong(value.span(), message, None));
                };
                for (header, value) in headers {
                    let path = format!("models.{name}.headers.{}", header.get_ref());
                    provider.headers.insert(header.get_ref().to_string(), text_of(source, &path, value)?);
                }
            }
            other => {
                let hint = match nearest(other, KEYS.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("the keys are {}", KEYS.join(", ")),
                };
                let message = format!("unknown key `{other}` in [models.{name}]");
                return Err(source.wrong(key.span(), message, Some(hint)));
            }
        }
    }
    Ok(provider)
}

fn text_of(source: &Source<'_>, path: &str, value: &Spanned<DeValue<'_>>) -> Result<String, FileError> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.as_ref().to_owned()),
        other => Err(source.wrong(
            value.span(),
            format!("`{path}` must be a string, not {}", other.type_str()),
            None,
        )),
    }
}
