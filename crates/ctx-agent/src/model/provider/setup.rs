//! How a provider is reached: its wire format, its address, and where its key comes from.

use std::fmt;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;

use crate::model::ModelError;

/// A wire format, and how its server is addressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// OpenAI's responses; its chat completions where a server does not know them.
    Openai,
    OpenaiChat,
    Anthropic,
    Gemini,
    Ollama,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Openai, Kind::OpenaiChat, Kind::Anthropic, Kind::Gemini, Kind::Ollama];

    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Openai => "openai",
            Kind::OpenaiChat => "openai-chat",
            Kind::Anthropic => "anthropic",
            Kind::Gemini => "gemini",
            Kind::Ollama => "ollama",
        }
    }

    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Where it is when nothing else is said.
    pub fn address(self) -> &'static str {
        match self {
            Kind::Openai | Kind::OpenaiChat => "https://api.openai.com/v1",
            Kind::Anthropic => "https://api.anthropic.com",
            Kind::Gemini => "https://generativelanguage.googleapis.com",
            Kind::Ollama => "http://127.0.0.1:11434",
        }
    }

    /// Whether a request without a key makes sense: to a server of one's own it does.
    fn needs_key(self, base_url: &str) -> bool {
        self != Kind::Ollama && base_url == self.address()
    }
}

/// A value that is shown to nobody.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }

    /// A text without this value in it.
    pub fn hidden_in(&self, text: &str) -> String {
        if self.0.len() < 4 { text.to_owned() } else { text.replace(&self.0, "[key]") }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[key]")
    }
}

/// Where a key comes from. It is read when it is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// The server wants none.
    None,
    /// The variable of this name, with the value that it has, if it has one.
    Variable { name: String, value: Option<Secret>, is_of_shell: bool },
    /// A file that its owner alone reads.
    File(PathBuf),
    /// What a command prints.
    Command(String),
}

impl Key {
    /// Where it comes from, for people. Never the key.
    pub fn origin(&self) -> String {
        match self {
            Key::None => "no key".to_owned(),
            Key::Variable { name, value: None, .. } => format!("${name}, which is not set"),
            Key::Variable { name, is_of_shell: true, .. } => format!("${name} from your shell"),
            Key::Variable { name, .. } => format!("${name} of the daemon"),
            Key::File(path) => format!("file {}", path.display()),
            Key::Command(_) => "a command".to_owned(),
        }
    }
}

/// A provider that can be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// What it is called: the first half of a model's name.
    pub name: String,
    pub kind: Kind,
    /// Without a slash at its end.
    pub base_url: String,
    pub headers: Vec<(String, String)>,
    pub key: Key,
    /// A certificate authority that it is trusted with, besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// In place of the proxies that the daemon's environment names.
    pub proxy: Option<String>,
}

/// How long a command may take to print a key.
const COMMAND_TIME: std::time::Duration = std::time::Duration::from_secs(30);
/// A key file is not longer than this.
const KEY_BYTES_MAX: u64 = 16 * 1024;

impl Setup {
    /// A provider with nothing but its key and its address.
    pub fn plain(name: &str, kind: Kind, base_url: Option<&str>, key: Key) -> Setup {
        let base_url = base_url.unwrap_or(kind.address()).trim_end_matches('/').to_owned();
        let (headers, ca_file, proxy) = (Vec::new(), None, None);
        Setup { name: name.to_owned(), kind, base_url, headers, key, ca_file, proxy }
    }

    /// Its address for people: a password, or a key in the query, is left out.
    pub fn shown_url(&self) -> String {
        let url = self.base_url.split(['?', '#']).next().unwrap_or_default();
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (place, path) = rest.split_once('/').map_or((rest, None), |(place, path)| (place, Some(path)));
        let host = place.rsplit_once('@').map_or(place, |(_, host)| host);
        let path = path.map(|path| format!("/{path}")).unwrap_or_default();
        if scheme.is_empty() { format!("{host}{path}") } else { format!("{scheme}://{host}{path}") }
    }

    /// Reads the key.
    pub async fn key(&self, model: &str) -> Result<Option<Secret>, ModelError> {
        let no_key = |detail: String| ModelError::NoKey { model: model.to_owned(), detail };
        let text = match &self.key {
            Key::None | Key::Variable { value: None, .. } if !self.kind.needs_key(&self.base_url) => {
                return Ok(None);
            }
            Key::None => return Err(no_key(format!("the provider {} has no key", self.name))),
            Key::Variable { name, value: None, .. } => return Err(no_key(format!("${name} is not set"))),
            Key::Variable { value: Some(secret), .. } => secret.expose().to_owned(),
            Key::File(path) => read_file(path).map_err(|why| no_key(format!("{}: {why}", path.display())))?,
            Key::Command(command) => {
                run(command).await.map_err(|why| no_key(format!("key_command {why}")))?
            }
        };
        let text = text.trim();
        if text.is_empty() || text.contains(['\n', '\r']) {
            return Err(no_key(format!("{} is not one line of text", self.key.origin())));
        }
        Ok(Some(Secret::new(text)))
    }
}

/// A key that others could read is not used.
fn read_file(path: &PathBuf) -> Result<String, String> {
    let opened = std::fs::OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
        .open(path);
    let file = opened.map_err(|error| error.to_string())?;
    let about = file.metadata().map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("it is not a file".to_owned());
    }
    if about.mode() & 0o077 != 0 {
        return Err("others may read it; `chmod 600` it".to_owned());
    }
    let mut text = String::new();
    file.take(KEY_BYTES_MAX).read_to_string(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

async fn run(command: &str) -> Result<String, String> {
    let ran = tokio::process::Command::new("sh")
        .args(["-c", command])
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true)
        .output();
    match tokio::time::timeout(COMMAND_TIME, ran).await {
        Err(_) => Err(format!("took longer than {} s", COMMAND_TIME.as_secs())),
        Ok(Err(error)) => Err(format!("cannot be run: {error}")),
        // What it printed may hold the key.
        Ok(Ok(output)) if !output.status.success() => Err(format!("ended with {}", output.status)),
        Ok(Ok(output)) => String::from_utf8(output.stdout).map_err(|_| "did not print text".to_owned()),
    }
}
