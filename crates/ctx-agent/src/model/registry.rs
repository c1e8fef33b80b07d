//! Finding a model by name: `provider/model` as in the tree, `provider:model` as in the API, or an alias.
//!
//! A model exists when `model/<provider>/<model>.d/` does. Its `driver` names the implementation and its `id` the
//! driver's own name for it. Aliases are symlinks: readlink decides, and no link leaves `model/`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use ctx_session::{BadName, Code, Limits, Name, Refusal};

use super::Model;
use super::adopt::{self, NoProviders, Providers};
use super::debug::Debug;
use super::provider::setup::Setup;
use super::provider::{Remote, Wishes};
use crate::control::{ControlDir, ControlError, key_value, short};

/// More links than this in a row is a circle.
const LINKS_MAX: usize = 8;
/// Models that a user who is not the daemon's own may bring into the tree, which all users share, before the next start.
const BROUGHT_MAX: usize = 100;

/// A model's stable identity.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId {
    pub provider: Name,
    pub model: Name,
}

/// What people write where a model is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelName {
    Id(ModelId),
    Alias(Name),
}

/// The models of a root.
pub struct Models {
    root: PathBuf,
    limits: Arc<Limits>,
    /// Models that are no objects of the tree.
    given: BTreeMap<ModelId, Arc<dyn Model>>,
    providers: Arc<dyn Providers>,
    /// How many models other users have brought in.
    brought: Mutex<BTreeMap<u32, usize>>,
}

/// Why a name finds no model.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    #[error("`{text}` is not a model: {rule}; write `provider/model`, `provider:model` or an alias")]
    BadName { text: String, rule: BadName },
    #[error("unknown model {name}; {}", available(.models))]
    NotThere { name: String, models: Vec<ModelId> },
    #[error("the alias model/{name} points to `{target}`, outside model/; it must point to provider/model")]
    Leaves { name: String, target: String },
    #[error("the alias model/{name} points to itself; it must point to provider/model")]
    Circle { name: String },
    #[error(
        "model/{name}.d/driver: no provider `{driver}` is set up; run `ctx model add {driver}`, or choose another model \
         (`ctx model ls` lists them, `ctx model use MODEL` makes one the default)"
    )]
    NoDriver { name: String, driver: String },
    #[error(
        "{name}: the provider {provider} is not set up; set {} in your shell, or run `ctx model add {provider}`",
        variable_of(provider)
    )]
    NoProvider { name: String, provider: String },
    #[error("model/{name}.d stands for `{other}` already; remove it to use that name for another model")]
    OtherId { name: String, other: String },
    #[error(
        "model/{name}.d is not there, and only the daemon's own user can bring it in; ask them to use it once"
    )]
    NotYours { name: String },
    #[error("cannot read model/{name}: {source}")]
    Io { name: String, source: std::io::Error },
    #[error(transparent)]
    Control(#[from] ControlError),
}

impl FindError {
    pub fn code(&self) -> Code {
        match self {
            FindError::BadName { .. } => Code::Einval,
            FindError::NotThere { .. } | FindError::NoProvider { .. } => Code::Enoent,
            FindError::OtherId { .. } => Code::Eexist,
            FindError::Leaves { .. } | FindError::NotYours { .. } => Code::Eacces,
            FindError::Circle { .. } | FindError::NoDriver { .. } => Code::Ebadmsg,
            FindError::Io { .. } => Code::Eio,
            FindError::Control(error) => error.code(),
        }
    }
}

impl From<FindError> for Refusal {
    fn from(error: FindError) -> Refusal {
        match error {
            FindError::Control(error) => error.into(),
            other => Refusal::new(other.code(), other.to_string()).blaming("model_override"),
        }
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.provider, self.model)
    }
}

impl ModelId {
    /// The form that people type in commands and project files: `provider:model`.
    fn as_typed(&self) -> String {
        format!("{}:{}", self.provider, self.model)
    }
}

/// The variable that sets up a usual provider.
fn variable_of(provider: &str) -> &'static str {
    let usual = adopt::USUAL.into_iter().find(|(kind, ..)| kind.as_str() == provider);
    usual.map_or("its key", |(_, key, address)| key.unwrap_or(address))
}

/// The end of the message about an unknown model.
fn available(models: &[ModelId]) -> String {
    match models {
        [] => "no model is set up under model/".to_owned(),
        models => {
            format!("available: {}", models.iter().map(ModelId::as_typed).collect::<Vec<_>>().join(", "))
        }
    }
}

impl ModelName {
    pub fn parse(text: &str) -> Result<ModelName, FindError> {
        let name =
            |part: &str| Name::new(part).map_err(|rule| FindError::BadName { text: short(text), rule });
        match text.split_once(['/', ':']) {
            Some((provider, model)) => {
                Ok(ModelName::Id(ModelId { provider: name(provider)?, model: name(model)? }))
            }
            None => name(text).map(ModelName::Alias),
        }
    }

    fn components(&self) -> Vec<Name> {
        match self {
            ModelName::Id(id) => vec![id.provider.clone(), id.model.clone()],
            ModelName::Alias(alias) => vec![alias.clone()],
        }
    }
}

impl Models {
    pub fn new(root: impl Into<PathBuf>, limits: Arc<Limits>) -> Models {
        let (given, providers) = (BTreeMap::new(), Arc::new(NoProviders));
        Models { root: root.into(), limits, given, providers, brought: Mutex::default() }
    }

    /// Adds a model that is no object of the tree; it comes before one that is.
    pub fn with(mut self, id: ModelId, model: Arc<dyn Model>) -> Models {
        self.given.insert(id, model);
        self
    }

    /// Adds the models of providers.
    pub fn with_providers(self, providers: Arc<dyn Providers>) -> Models {
        Models { providers, ..self }
    }

    /// The identity behind a name for a user: as [`Models::resolve`], and every model of a provider that this user may ask.
    pub fn resolve_for(&self, text: &str, uid: u32) -> Result<ModelId, FindError> {
        let Some((provider, id)) = text.split_once(['/', ':']) else {
            return match self.own_alias(text, uid)? {
                Some(target) => self.resolve(&target),
                None => self.resolve(text),
            };
        };
        if self.is_in_tree(text) {
            return self.resolve(text);
        }
        match self.setup(provider, uid) {
            Some(setup) if !id.is_empty() => {
                self.may_bring(&setup, id, uid)?;
                let model = adopt::adopt(&self.root, &setup, id)?;
                let other = self.control(&model)?.value("id", |text| Ok(native(text, provider)))?;
                match other.filter(|other| other != id) {
                    Some(other) => Err(FindError::OtherId { name: model.to_string(), other: short(&other) }),
                    None => Ok(model),
                }
            }
            None if adopt::missing(provider).is_some() => {
                Err(FindError::NoProvider { name: short(text), provider: provider.to_owned() })
            }
            Some(_) | None => self.resolve(text),
        }
    }

    /// What an alias of a user's own leads to: a link in `home/<uid>/model` to somewhere in `model/`. It comes before one of
    /// the tree. The link is read and not followed, because the directory is theirs.
    fn own_alias(&self, text: &str, uid: u32) -> Result<Option<String>, FindError> {
        let Ok(alias) = Name::new(text) else { return Ok(None) };
        let dir = self.root.join(format!("home/{uid}/model"));
        let Ok(target) = std::fs::read_link(dir.join(alias.as_str())) else { return Ok(None) };
        let mut path = PathBuf::new();
        for component in dir.join(&target).components() {
            match component {
                Component::ParentDir => drop(path.pop()),
                Component::CurDir => {}
                other => path.push(other),
            }
        }
        let inside = path.strip_prefix(self.root.join("model")).ok().and_then(Path::to_str);
        let leaves =
            || FindError::Leaves { name: alias.to_string(), target: short(&target.to_string_lossy()) };
        inside.map(|inside| Some(inside.to_owned())).ok_or_else(leaves)
    }

    /// The tree is everybody's: another user brings in no more than some models, and none whose id is written otherwise than its
    /// name, which would then stand for that id in everybody's requests.
    fn may_bring(&self, setup: &Setup, id: &str, uid: u32) -> Result<(), FindError> {
        let name = adopt::in_tree(id)?;
        let shown = format!("{}/{name}", setup.name);
        if uid == rustix::process::geteuid().as_raw() || self.root.join(format!("model/{shown}.d")).is_dir() {
            return Ok(());
        }
        let mut brought = self.brought.lock().unwrap_or_else(PoisonError::into_inner);
        let count = brought.entry(uid).or_default();
        if name.as_str() != id || *count >= BROUGHT_MAX {
            return Err(FindError::NotYours { name: shown });
        }
        *count += 1;
        Ok(())
    }

    /// Whether a name means something without any provider's help.
    fn is_in_tree(&self, text: &str) -> bool {
        !matches!(self.resolve(text), Err(FindError::NotThere { .. } | FindError::BadName { .. }))
    }

    fn setup(&self, provider: &str, uid: u32) -> Option<Setup> {
        self.providers.of(uid).into_iter().find(|setup| setup.name == provider)
    }

    /// The identity behind a name: aliases are followed, and the model must exist.
    pub fn resolve(&self, text: &str) -> Result<ModelId, FindError> {
        let name = ModelName::parse(text)?;
        if let ModelName::Id(id) = &name
            && self.given.contains_key(id)
        {
            return Ok(id.clone());
        }
        let id = self.follow(&name)?;
        if !self.given.contains_key(&id) {
            self.control(&id)?;
        }
        Ok(id)
    }

    /// The model of an identity, ready to be called on behalf of a user. Whether there is a key shows when it is called.
    pub fn open_for(&self, id: &ModelId, uid: u32) -> Result<Arc<dyn Model>, FindError> {
        if let Some(model) = self.given.get(id) {
            return Ok(Arc::clone(model));
        }
        let control = self.control(id)?;
        let driver = control.value("driver", |text| Ok(text.to_owned()))?;
        match driver.as_deref().unwrap_or(id.provider.as_str()) {
            "debug" => Ok(Arc::new(Debug::open(id, &self.root, &control, &self.limits)?)),
            other => match self.setup(other, uid).or_else(|| adopt::missing(other)) {
                Some(setup) => {
                    let native = control.value("id", |text| Ok(native(text, other)))?;
                    let native = native.unwrap_or_else(|| id.model.to_string());
                    Ok(Arc::new(Remote::new(setup, &native, wishes(&control)?, Arc::clone(&self.limits))))
                }
                None => Err(FindError::NoDriver { name: id.to_string(), driver: short(other) }),
            },
        }
    }

    /// The models of the tree, in order.
    pub fn list(&self) -> std::io::Result<Vec<ModelId>> {
        let mut ids: Vec<ModelId> = self.given.keys().cloned().collect();
        let top = self.root.join("model");
        for provider in names(&top, "")? {
            for model in names(&top.join(provider.as_str()), ".d")? {
                ids.push(ModelId { provider: provider.clone(), model });
            }
        }
        ids.sort();
        ids.dedup();
        Ok(ids)
    }

    /// No model has this name; the error lists those that exist.
    fn unknown(&self, name: String) -> FindError {
        FindError::NotThere { name, models: self.list().unwrap_or_default() }
    }

    fn control(&self, id: &ModelId) -> Result<ControlDir, FindError> {
        let path = format!("model/{id}.d");
        match ControlDir::open(&self.root, &path, self.limits.control_file_bytes) {
            Err(ControlError::NoDirectory { .. }) => Err(self.unknown(id.as_typed())),
            other => Ok(other?),
        }
    }

    /// Follows links until there is none: each component in turn, the provider's directory first.
    fn follow(&self, name: &ModelName) -> Result<ModelId, FindError> {
        let top = self.root.join("model");
        let first = name.components();
        let shown = join(&first);
        let mut at = first;
        for _ in 0..=LINKS_MAX {
            let Some((depth, target)) = first_link(&top, &at, &shown)? else {
                return match <[Name; 2]>::try_from(at) {
                    Ok([provider, model]) => Ok(ModelId { provider, model }),
                    Err(_) => Err(self.unknown(shown)),
                };
            };
            let rest = at.split_off(depth + 1);
            at.truncate(depth);
            at = step(&top, at, &target, rest).ok_or_else(|| FindError::Leaves {
                name: shown.clone(),
                target: short(&target.to_string_lossy()),
            })?;
        }
        Err(FindError::Circle { name: shown })
    }
}

/// The driver's own name for a model, as `id` has it: behind the driver's name, or alone.
fn native(id: &str, driver: &str) -> String {
    let behind = id.strip_prefix(driver).and_then(|rest| rest.strip_prefix('/'));
    behind.unwrap_or(id).to_owned()
}

/// Reads the control files of a model as they are read on use. Whether its provider is set up is not asked.
pub fn check_model(root: &Path, id: &ModelId, limits: &Limits) -> Result<(), FindError> {
    let control = ControlDir::open(root, &format!("model/{id}.d"), limits.control_file_bytes)?;
    let driver = control.value("driver", |text| Ok(text.to_owned()))?;
    control.value("id", |text| Ok(text.to_owned()))?;
    match driver.as_deref().unwrap_or(id.provider.as_str()) {
        "debug" => drop(Debug::open(id, root, &control, limits)?),
        _ => drop(wishes(&control)?),
    }
    Ok(())
}

/// What `default` and `limit` say of a provider's model.
fn wishes(control: &ControlDir) -> Result<Wishes, ControlError> {
    enum Wish {
        Reasoning(String),
        MaxOutput(u64),
        Window(u64),
    }
    let tokens = |value: &str| {
        let number = value.parse::<u64>().ok().filter(|number| *number > 0);
        number.ok_or(format!("`{}` is not a number of tokens", short(value)))
    };
    let by_default = |line: &str| match key_value(line)? {
        (key, value) if key == "reasoning" && ["low", "medium", "high"].contains(&value.as_str()) => {
            Ok(Wish::Reasoning(value))
        }
        (key, value) if key == "max_output" => Ok(Wish::MaxOutput(tokens(&value)?)),
        _ => Err("expected reasoning=low|medium|high or max_output=TOKENS".to_owned()),
    };
    let limit = |line: &str| match key_value(line)? {
        (key, value) if key == "window" => Ok(Wish::Window(tokens(&value)?)),
        _ => Err("expected window=TOKENS".to_owned()),
    };
    let mut wishes = Wishes::default();
    for wish in control.items("default", by_default)?.into_iter().chain(control.items("limit", limit)?) {
        match wish {
            Wish::Reasoning(effort) => wishes.reasoning = Some(effort),
            Wish::MaxOutput(max) => wishes.max_output = Some(max),
            Wish::Window(window) => wishes.window = Some(window),
        }
    }
    Ok(wishes)
}

/// The first component that is a link, and where it leads.
fn first_link(top: &Path, at: &[Name], shown: &str) -> Result<Option<(usize, PathBuf)>, FindError> {
    use std::io::ErrorKind;
    let mut path = top.to_owned();
    for (depth, name) in at.iter().enumerate() {
        path.push(name.as_str());
        match std::fs::read_link(&path) {
            Ok(target) => return Ok(Some((depth, target))),
            // Not a link, or not there: a model need not have an executable to be one.
            Err(error) if matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => {}
            Err(error) if error.kind() == ErrorKind::NotADirectory => {}
            Err(source) => return Err(FindError::Io { name: shown.to_owned(), source }),
        }
    }
    Ok(None)
}

/// Where a link's target leads from the directory `base` below `top`; `None` when that is not in `model/`.
///
/// No component of `base` is a link, so taking `..` off it is what the kernel would do.
fn step(top: &Path, base: Vec<Name>, target: &Path, rest: Vec<Name>) -> Option<Vec<Name>> {
    let (mut at, inside) = match target.strip_prefix(top) {
        Ok(inside) => (Vec::new(), inside),
        Err(_) if target.is_absolute() => return None,
        Err(_) => (base, target),
    };
    for component in inside.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                at.pop()?;
            }
            Component::Normal(name) => at.push(Name::new(name.to_str()?).ok()?),
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    at.extend(rest);
    (1..=2).contains(&at.len()).then_some(at)
}

fn join(names: &[Name]) -> String {
    names.iter().map(Name::as_str).collect::<Vec<_>>().join("/")
}

/// The directories in `dir` that are called by a name and this suffix.
fn names(dir: &Path, suffix: &str) -> std::io::Result<Vec<Name>> {
    let mut found = Vec::new();
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(found),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let entry = entry?;
        let file_name = entry.file_name();
        let stem = file_name.to_str().and_then(|name| name.strip_suffix(suffix));
        if let Some(name) = stem.and_then(|stem| Name::new(stem).ok())
            && entry.file_type()?.is_dir()
        {
            found.push(name);
        }
    }
    Ok(found)
}

/// A model that vanished or broke between the check and the call fails the run, it does not refuse it.
impl From<FindError> for ctx_session::record::Failure {
    fn from(error: FindError) -> Self {
        let reason = match &error {
            FindError::NotThere { .. } | FindError::BadName { .. } | FindError::NoProvider { .. } => {
                "no_such_model"
            }
            FindError::Leaves { .. }
            | FindError::Circle { .. }
            | FindError::NoDriver { .. }
            | FindError::OtherId { .. }
            | FindError::NotYours { .. }
            | FindError::Io { .. }
            | FindError::Control(_) => "bad_setup",
        };
        Self { code: error.code(), reason: reason.to_owned(), message: error.to_string() }
    }
}
