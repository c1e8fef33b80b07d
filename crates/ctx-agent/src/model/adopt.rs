//! Models of providers in the tree: each that is asked for by name gets its control directory, and `model/main` leads to the first
//! provider's default until someone says otherwise.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use ctx_session::Name;

use super::provider::known::{self, WINDOW_UNKNOWN};
use super::provider::setup::{Key, Kind, Setup};
use super::registry::{FindError, ModelId};
use crate::describe::fresh::{FreshError, write_files};

/// Two clients may hand over a key at the same moment, and both then write the same files.
static WRITING: Mutex<()> = Mutex::new(());

/// Where the providers of a user come from. Asked at every call, because keys come and go.
pub trait Providers: Send + Sync {
    /// Those that this user may ask, the preferred first.
    fn of(&self, uid: u32) -> Vec<Setup>;
}

/// No provider at all.
pub struct NoProviders;

impl Providers for NoProviders {
    fn of(&self, _: u32) -> Vec<Setup> {
        Vec::new()
    }
}

/// The providers that the usual environment variables name: the variable of the key, and that of the address.
pub const USUAL: [(Kind, Option<&str>, &str); 4] = [
    (Kind::Openai, Some("OPENAI_API_KEY"), "OPENAI_BASE_URL"),
    (Kind::Anthropic, Some("ANTHROPIC_API_KEY"), "ANTHROPIC_BASE_URL"),
    (Kind::Gemini, Some("GEMINI_API_KEY"), "GEMINI_BASE_URL"),
    (Kind::Ollama, None, "OLLAMA_HOST"),
];

/// A usual provider that nobody has set up: it is known what is missing.
pub fn missing(provider: &str) -> Option<Setup> {
    let (kind, key, _) = USUAL.into_iter().find(|(kind, ..)| kind.as_str() == provider)?;
    let key = match key {
        Some(name) => Key::Variable { name: name.to_owned(), value: None, is_of_shell: true },
        None => Key::None,
    };
    Some(Setup::plain(provider, kind, None, key))
}

/// A provider's name for a model as a name in the tree: `qwen3:8b` is `qwen3-8b`.
pub fn in_tree(id: &str) -> Result<Name, FindError> {
    let fits =
        |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '+' | '-') { c } else { '-' };
    let text: String = id.chars().map(fits).collect();
    Name::new(&text).map_err(|rule| FindError::BadName { text: crate::control::short(id), rule })
}

/// Makes sure that a provider's model has its control directory.
pub fn adopt(root: &Path, setup: &Setup, id: &str) -> Result<ModelId, FindError> {
    let shown = crate::control::short(&setup.name);
    let provider = Name::new(&setup.name).map_err(|rule| FindError::BadName { text: shown, rule })?;
    let model = ModelId { provider, model: in_tree(id)? };
    let dir = root.join(format!("model/{model}.d"));
    let _alone = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    write_files(&dir, &control_files(setup, id)).map_err(|error| match error {
        FreshError::Io { source, .. } => FindError::Io { name: model.to_string(), source },
        other => FindError::Io { name: model.to_string(), source: std::io::Error::other(other.to_string()) },
    })?;
    Ok(model)
}

/// The control files of a provider's model. `limit` has the known window as a comment and not as a value, so that a newer table of models
/// holds without a change to the file.
fn control_files(setup: &Setup, id: &str) -> Vec<(&'static str, String)> {
    let known = known::find(id);
    let mut cap = "# one capability a line\ntext\nstream\nusage\ntools\n".to_owned();
    for word in known.iter().flat_map(|known| &known.cap) {
        cap.push_str(&format!("{word}\n"));
    }
    let date = &known::file().date;
    let limit = match known {
        Some(known) => {
            format!(
                "# window={} output={}, as known on {date}; a line here changes it\n",
                known.window, known.output
            )
        }
        None => {
            format!("# window={WINDOW_UNKNOWN}: nothing is known of this model; a line here changes it\n")
        }
    };
    vec![
        ("id", format!("{}/{id}\n", setup.name)),
        ("driver", format!("{}\n", setup.name)),
        ("cap", cap),
        ("default", "# reasoning=low|medium|high, max_output=TOKENS\n".to_owned()),
        ("session", format!("home/<uid>/model/{}/{}.d/session\n", setup.name, id.replace(['/', ':'], "-"))),
        ("status", "ready\n".to_owned()),
        ("log", String::new()),
        ("limit", limit),
    ]
}

/// Whether `main` may be led elsewhere: it still is what a fresh root has, or its provider is none of these.
pub fn main_is_free(root: &Path, providers: &[Setup]) -> bool {
    std::fs::read_link(root.join("model/main")).is_ok_and(|target| {
        let provider = target.iter().next().and_then(OsStr::to_str).unwrap_or_default();
        let is_known = provider == "debug" || providers.iter().any(|setup| setup.name == provider);
        target == Path::new("debug/echo") || (!is_known && target.iter().count() == 2)
    })
}

/// Lets `main` lead to a model.
pub fn link_main(root: &Path, model: &ModelId) -> std::io::Result<()> {
    let _alone = WRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let main = root.join("model/main");
    let aside = root.join("model/.main.new");
    match std::fs::remove_file(&aside) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    std::os::unix::fs::symlink(PathBuf::from(model.to_string()), &aside)?;
    std::fs::rename(&aside, &main)
}
