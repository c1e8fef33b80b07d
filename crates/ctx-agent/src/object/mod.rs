//! The objects of the tree as files: an executable beside every control directory, which the one object runner interprets.
//!
//! An executable is text that says what the object is; what it does is the runner's business. The daemon writes it and
//! keeps it true; a file in its place that is not the daemon's is left alone.

pub mod change;
mod keep;
pub mod once;

use std::path::{Path, PathBuf};

use ctx_session::{BadName, Name, Object};

pub use keep::{Kept, can_be_run, keep, replace};

/// Where the runner is on a machine that ctx is installed on for everyone.
pub const SYSTEM_RUNNER: &str = "/usr/bin/cortexfs-object-runner";
/// What this program is called as a runner: by its own name, or as its first word.
pub const RUNNER: &str = "cortexfs-object-runner";
pub const RUNNER_WORD: &str = "object-runner";
/// The second line of every executable that is the daemon's.
const OURS: &str = "# ctx keeps this file: it says what the object is, and its first line who runs it";
/// The longest first line that every kernel takes whole.
const SHEBANG_MAX: usize = 127;

/// One object of the tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Thing {
    Agent(Name),
    Model { provider: Name, model: Name },
    Tool(Name),
}

/// A path that is no object's.
#[derive(Debug, thiserror::Error)]
pub enum NotAnObject {
    #[error(
        "{0} is in no tree of ctx: an object is agent/NAME, tool/NAME or model/PROVIDER/MODEL below a root"
    )]
    Elsewhere(PathBuf),
    #[error("{path} is not an object: {rule}")]
    BadName { path: PathBuf, rule: BadName },
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
}

impl Thing {
    /// The object that an executable stands for, and the root that it is in. Links are followed first: what they lead to
    /// is the object.
    pub fn at(path: &Path) -> Result<(PathBuf, Thing), NotAnObject> {
        let path = path.canonicalize().map_err(|source| NotAnObject::Io { path: path.to_owned(), source })?;
        let elsewhere = || NotAnObject::Elsewhere(path.clone());
        let name = |part: Option<&std::ffi::OsStr>| {
            let text = part.and_then(|part| part.to_str()).ok_or_else(elsewhere)?;
            Name::new(text).map_err(|rule| NotAnObject::BadName { path: path.clone(), rule })
        };
        let above = path.parent().ok_or_else(elsewhere)?;
        let root = |dir: &Path| dir.parent().map(Path::to_owned).ok_or_else(elsewhere);
        let is = |dir: &Path, word: &str| dir.file_name().is_some_and(|name| name == word);
        if is(above, "agent") {
            return Ok((root(above)?, Thing::Agent(name(path.file_name())?)));
        }
        if is(above, "tool") {
            return Ok((root(above)?, Thing::Tool(name(path.file_name())?)));
        }
        match above.parent() {
            Some(models) if is(models, "model") => {
                let (provider, model) = (name(above.file_name())?, name(path.file_name())?);
                Ok((root(models)?, Thing::Model { provider, model }))
            }
            Some(_) | None => Err(elsewhere()),
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Thing::Agent(_) => "agent",
            Thing::Model { .. } => "model",
            Thing::Tool(_) => "tool",
        }
    }

    /// As people write it: `coder`, `debug/echo`, `fs.read`.
    pub fn name(&self) -> String {
        match self {
            Thing::Agent(name) | Thing::Tool(name) => name.to_string(),
            Thing::Model { provider, model } => format!("{provider}/{model}"),
        }
    }

    /// Its executable, below the root.
    pub fn path(&self) -> String {
        format!("{}/{}", self.kind(), self.name())
    }

    /// Its control directory, below the root.
    pub fn control_dir(&self) -> String {
        format!("{}.d", self.path())
    }

    /// What holds sessions, if it does.
    pub fn object(&self) -> Option<Object> {
        match self {
            Thing::Agent(name) => Some(Object::Agent(name.clone())),
            Thing::Model { provider, model } => {
                Some(Object::Model { provider: provider.clone(), model: model.clone() })
            }
            Thing::Tool(_) => None,
        }
    }
}

/// Who interprets the executables of a tree: its first line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runner(String);

impl Runner {
    /// The runner of the machine, or this program. None: its path cannot stand in a first line.
    pub fn find(program: &Path) -> Option<Runner> {
        if Path::new(SYSTEM_RUNNER).is_file() {
            return Some(Runner(format!("#!{SYSTEM_RUNNER}")));
        }
        let program = program.to_str().filter(|path| !path.contains(char::is_whitespace))?;
        let line = format!("#!{program} {RUNNER_WORD}");
        (line.len() <= SHEBANG_MAX).then_some(Runner(line))
    }

    /// The executable of an object.
    pub fn executable(&self, thing: &Thing, about: &str) -> String {
        let (kind, name) = (thing.kind(), thing.name());
        let own = name.rsplit('/').next().unwrap_or(&name);
        let (how, socket) = match thing {
            Thing::Agent(_) => ("TEXT, or {\"task\": TEXT}, as argument or on stdin", true),
            Thing::Model { .. } => {
                ("TEXT, or {\"messages\": [{\"role\", \"content\"}]}, as argument or on stdin", true)
            }
            Thing::Tool(_) => ("its arguments as one JSON object, as argument or on stdin", false),
        };
        let about = about.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let mut text = format!("{}\n{OURS}\nkind: {kind}\nname: {name}\nabout: {}\n", self.0, about.trim());
        text.push_str(&format!("takes: {how}\ncontrol: {own}.d/\n"));
        if socket {
            text.push_str(&format!("socket: {own}.sock\n"));
        }
        text
    }
}

/// Whether a text is an executable that the daemon wrote.
fn is_ours(text: &str) -> bool {
    text.starts_with("#!") && text.lines().nth(1) == Some(OURS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_known_by_where_it_lies() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for path in ["agent/coder", "tool/fs.read", "model/debug/echo", "other/x", "model/x.sock/echo"] {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink("debug/echo", root.join("model/main")).unwrap();
        let at = |path: &str| Thing::at(&root.join(path)).map(|(at, thing)| (at == root, thing.path()));
        for path in ["agent/coder", "tool/fs.read", "model/debug/echo"] {
            assert_eq!(at(path).unwrap(), (true, path.to_owned()));
        }
        assert_eq!(at("model/main").unwrap().1, "model/debug/echo", "the link decides");
        assert!(at("other/x").is_err() && at("model/x.sock/echo").is_err() && at("agent/none").is_err());
    }

    #[test]
    fn an_executable_says_what_it_is_and_no_path_breaks_its_first_line() {
        let runner = Runner("#!/opt/ctx object-runner".to_owned());
        let model = Thing::Model { provider: Name::new("debug").unwrap(), model: Name::new("echo").unwrap() };
        let text = runner.executable(&model, "\nanswers\nmore");
        assert!(text.starts_with("#!/opt/ctx object-runner\n") && is_ours(&text));
        assert!(
            text.contains("name: debug/echo\nabout: answers\n") && text.contains("socket: echo.sock\n"),
            "{text}"
        );
        if !Path::new(SYSTEM_RUNNER).exists() {
            assert_eq!(Runner::find(Path::new("/a b/ctx")), None);
            assert_eq!(Runner::find(Path::new(&format!("/{}/ctx", "x".repeat(120)))), None);
        }
    }
}
