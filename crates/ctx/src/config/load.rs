//! Merges the layers of the configuration: defaults, the file, the environment.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ctx_agent::project::McpServer;
use ctx_session::{Code, Name};
use serde_json::Value;

use super::file::{self, FileError};
use super::keys::{KEYS, Key, Kind, SECTIONS};
use super::{Config, Environment, FileArg, Origin};
use crate::failure::Failure;
use ctx_agent::nearest::nearest;

const SYSTEM_FILE: &str = "/etc/ctx/config.toml";

/// What holds, and why.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// Every key with its value and where it came from, in the order of the table.
    pub settings: Vec<Setting>,
    /// The file that was read.
    pub file: Option<PathBuf>,
}

#[derive(Debug, Clone)]
pub struct Setting {
    pub key: &'static Key,
    pub value: Value,
    pub origin: Origin,
}

/// Why nothing could be loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: cannot read the config file: {error}", path.display())]
    Unreadable { path: PathBuf, error: std::io::Error },
    #[error(transparent)]
    File(#[from] FileError),
    #[error("${name}: {message}")]
    Variable { name: String, message: String, hint: Option<String> },
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        let message = error.to_string();
        match error {
            ConfigError::Unreadable { error, .. } if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Failure::new(Code::Eacces, message)
            }
            ConfigError::Unreadable { .. } => Failure::new(Code::Enoent, message)
                .hint("`ctx config path` prints where it should be; `ctx config init` writes one"),
            ConfigError::File(FileError { hint, .. }) => with_hint(Code::Ebadmsg, message, hint),
            ConfigError::Variable { hint, .. } => with_hint(Code::Einval, message, hint),
        }
    }
}

fn with_hint(code: Code, message: String, hint: Option<String>) -> Failure {
    match hint {
        Some(hint) => Failure::new(code, message).hint(hint),
        None => Failure::new(code, message),
    }
}

/// Where a config file is looked for, best first.
pub fn places(arg: &FileArg, environment: &Environment) -> Vec<PathBuf> {
    match &arg.file {
        Some(path) => vec![path.clone()],
        None => {
            let own = environment.config_home.iter().map(|home| home.join("ctx/config.toml"));
            own.chain([PathBuf::from(SYSTEM_FILE)]).collect()
        }
    }
}

/// Loads what holds. A file that was named must be there; the others may be missing.
pub fn load(arg: &FileArg, environment: &Environment) -> Result<Loaded, ConfigError> {
    let mut layers = Layers::new();
    let mut read = None;
    for path in places(arg, environment) {
        match std::fs::read(&path) {
            Ok(bytes) => {
                let text = String::from_utf8(bytes).map_err(|error| not_text(&path, &error))?;
                layers.lay_file(&path, &text)?;
                read = Some(path);
                break;
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && arg.file.is_none() => {}
            Err(error) => return Err(ConfigError::Unreadable { path, error }),
        }
    }
    layers.lay_environment(environment)?;
    Ok(Loaded { config: layers.config, settings: layers.settings, file: read })
}

/// The MCP servers of a file with this text.
pub fn mcp_of(path: &Path, text: &str) -> Result<BTreeMap<Name, McpServer>, ConfigError> {
    Ok(file::read(path, text)?.mcp)
}

/// A file in another encoding, or no text at all: where it stops being UTF-8.
fn not_text(path: &Path, error: &std::string::FromUtf8Error) -> FileError {
    let good = error.as_bytes().get(..error.utf8_error().valid_up_to()).unwrap_or_default();
    let line_start = good.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let in_line = String::from_utf8_lossy(good.get(line_start..).unwrap_or_default());
    FileError {
        path: path.to_owned(),
        line: good.iter().filter(|byte| **byte == b'\n').count() + 1,
        column: in_line.chars().count() + 1,
        message: "the config file is not UTF-8 from here on".to_owned(),
        hint: Some("save it as UTF-8".to_owned()),
    }
}

struct Layers {
    config: Config,
    settings: Vec<Setting>,
}

impl Layers {
    fn new() -> Layers {
        let config = Config::default();
        // These types have no map with keys that are not strings: serialising them cannot fail.
        let shape = serde_json::to_value(&config).unwrap_or_default();
        let default = |key: &Key| shape.pointer(&key.pointer()).cloned();
        let setting = |key: &'static Key| {
            let value = default(key).unwrap_or_default();
            Setting { key, value, origin: Origin::Default }
        };
        Layers { config, settings: KEYS.iter().map(setting).collect() }
    }

    /// Sets one key, if the whole still makes sense with it.
    fn lay(&mut self, key: &'static Key, value: Value, origin: Origin) -> Result<(), String> {
        let unset = serde_json::to_value(Config::default()).unwrap_or_default();
        let is_optional = unset.pointer(&key.pointer()).is_some_and(Value::is_null);
        // What has no default is shown as "" by `ctx config init`, and that is what "" means.
        let value = if is_optional && value.as_str() == Some("") { Value::Null } else { value };
        let mut shape = serde_json::to_value(&self.config).map_err(|error| error.to_string())?;
        if let Some(slot) = shape.pointer_mut(&key.pointer()) {
            *slot = value.clone();
        }
        self.config = serde_json::from_value(shape)
            .map_err(|error| format!("invalid value for `{}`: {error}", key.path()))?;
        for setting in self.settings.iter_mut().filter(|setting| setting.key.path() == key.path()) {
            setting.value = value.clone();
            setting.origin = origin.clone();
        }
        Ok(())
    }

    fn lay_file(&mut self, path: &Path, text: &str) -> Result<(), FileError> {
        let file::Said { sets, mcp, models } = file::read(path, text)?;
        self.config.mcp = mcp;
        self.config.models = models;
        for set in sets {
            let origin = Origin::File { path: path.to_owned(), line: set.line };
            self.lay(set.key, set.value, origin).map_err(|message| FileError {
                path: path.to_owned(),
                line: set.line,
                column: set.column,
                message,
                hint: None,
            })?;
        }
        Ok(())
    }

    fn lay_environment(&mut self, environment: &Environment) -> Result<(), ConfigError> {
        for (name, text) in &environment.variables {
            let wrong = |message, hint| ConfigError::Variable { name: name.clone(), message, hint };
            let Some(key) = KEYS.iter().find(|key| key.variable() == *name) else {
                match stray(name) {
                    Some(hint) => return Err(wrong("unknown key".to_owned(), Some(hint))),
                    None => continue,
                }
            };
            let value = value_of(key, text).map_err(|message| wrong(message, None))?;
            self.lay(key, value, Origin::Variable { name: name.clone() })
                .map_err(|message| wrong(message, None))?;
        }
        Ok(())
    }
}

fn value_of(key: &Key, text: &str) -> Result<Value, String> {
    match key.kind {
        Kind::Number | Kind::Count => {
            let least = key.kind.least();
            let number = text.trim().replace('_', "").parse::<u64>().ok().filter(|number| *number >= least);
            let wrong = || format!("must be a whole number of at least {least}, not `{text}`");
            number.map(Value::from).ok_or_else(wrong)
        }
        Kind::Dollars => file::dollars(text),
        Kind::Text | Kind::Words => Ok(Value::from(text)),
        // A variable that is set says something: no names, not that all may be used.
        Kind::Allowed if text.trim().is_empty() => Ok(Value::Array(Vec::new())),
        Kind::Allowed => file::allowed(text.split_whitespace()),
        Kind::Flag => text
            .trim()
            .parse::<bool>()
            .map(Value::from)
            .map_err(|_| format!("must be true or false, not `{text}`")),
        Kind::OneOf(words) if words.contains(&text) => Ok(Value::from(text)),
        Kind::OneOf(words) => Err(format!("must be one of {}, not `{text}`", words.join(", "))),
    }
}

/// A variable of one of our sections that names no key was meant to: what to say about it. Others are not ours.
fn stray(name: &str) -> Option<String> {
    let ours = SECTIONS.iter().any(|(section, _)| {
        name.strip_prefix("CTX_")
            .is_some_and(|rest| rest.starts_with(&format!("{}_", section.to_uppercase())))
    });
    let variables: Vec<String> = KEYS.iter().map(Key::variable).collect();
    ours.then(|| match nearest(name, variables.iter().map(String::as_str)) {
        Some(near) => format!("did you mean {near}?"),
        None => "`ctx config show` lists every key with its variable".to_owned(),
    })
}
