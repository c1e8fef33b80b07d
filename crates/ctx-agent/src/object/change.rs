//! Changing the control files of an object: what is new is read as it would be on use, beside what is there, and takes its
//! place in one step. What cannot be read changes nothing.

use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use ctx_session::name::IMPORT_AGENTS;
use ctx_session::{Code, Limits, Name, Refusal};

use super::{Thing, replace};
use crate::control::ControlDir;
use crate::control::policy::Rule;
use crate::describe::describe;
use crate::model::ModelId;
use crate::model::registry::check_model;
use crate::project::shown_for;

/// The files of an agent and of a model that a person writes.
pub const AGENT_FILES: [&str; 14] = [
    "owner", "uid", "gid", "root", "cwd", "env", "path", "mount", "model", "policy", "prompt", "project",
    "tools", "redact",
];
const MODEL_FILES: [&str; 6] = ["id", "driver", "cap", "default", "session", "limit"];
const TOOL_FILES: [&str; 1] = ["policy"];

/// Writes one control file.
pub fn set(root: &Path, thing: &Thing, key: &str, text: &str, limits: &Limits) -> Result<(), Refusal> {
    may_change(root, thing, key)?;
    let dir = root.join(thing.control_dir());
    let scratch = Scratch::beside(root, thing)?;
    for entry in std::fs::read_dir(&dir).map_err(|error| failed(&dir, &error))?.flatten() {
        // What is a link or special stays one, so that it is told of.
        let name = entry.file_name();
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        if is_file && !name.to_string_lossy().starts_with('.') {
            let copied = std::fs::copy(entry.path(), scratch.dir.join(&name));
            copied.map_err(|error| failed(&entry.path(), &error))?;
        }
    }
    std::fs::write(scratch.dir.join(key), text).map_err(|error| failed(&dir, &error))?;
    scratch.check(thing, limits)?;
    replace(&dir.join(key), text, 0o644).map_err(|error| failed(&dir.join(key), &error))
}

/// Makes an agent of these files. It is there as a whole or not at all.
pub fn new_agent(
    root: &Path,
    name: &Name,
    files: &[(String, String)],
    limits: &Limits,
) -> Result<(), Refusal> {
    if IMPORT_AGENTS.contains(&name.as_str()) {
        let why = format!("`{name}` is the agent of imported sessions; give the new one another name");
        return Err(Refusal::invalid("name", why));
    }
    let thing = Thing::Agent(name.clone());
    let dir = root.join(thing.control_dir());
    if dir.symlink_metadata().is_ok() {
        return Err(Refusal::new(
            Code::Eexist,
            format!("there is an agent {name}; `ctx agent ls` lists them"),
        ));
    }
    let scratch = Scratch::beside(root, &thing)?;
    for (file, text) in files {
        replace(&scratch.dir.join(file), text, 0o644).map_err(|error| failed(&dir, &error))?;
    }
    scratch.check(&thing, limits)?;
    std::fs::rename(&scratch.dir, &dir).map_err(|error| failed(&dir, &error))
}

/// Takes an agent away. Its sessions stay.
pub fn remove_agent(root: &Path, name: &Name) -> Result<(), Refusal> {
    let thing = Thing::Agent(name.clone());
    may_change(root, &thing, "prompt")?;
    let (dir, aside) = (root.join(thing.control_dir()), root.join(format!("agent/.{name}.gone")));
    let _ = std::fs::remove_dir_all(&aside);
    // Gone in one step; what is left of it is nobody's agent.
    std::fs::rename(&dir, &aside).map_err(|error| failed(&dir, &error))?;
    std::fs::remove_dir_all(&aside).map_err(|error| failed(&aside, &error))
}

/// The text of an agent's control file; nothing where it has none.
pub fn agent_file(root: &Path, name: &Name, file: &str, limits: &Limits) -> Result<String, Refusal> {
    let dir = ControlDir::open(root, &Thing::Agent(name.clone()).control_dir(), limits.control_file_bytes)?;
    Ok(dir.read(file)?.map(|control| control.text).unwrap_or_default())
}

/// Whether `set` may write a file. Only listed names are accepted, which also keeps a key such as `../x` inside the directory.
pub fn may_change(root: &Path, thing: &Thing, key: &str) -> Result<(), Refusal> {
    if !root.join(thing.control_dir()).is_dir() {
        return Err(Refusal::new(Code::Enoent, format!("{} is not there", thing.control_dir())));
    }
    let files: &[&str] = match thing {
        Thing::Agent(name) => {
            if let Some(project) = shown_for(root, name) {
                let message = format!(
                    "{name} is the agent of the project {project}, and its files only show what the project says; change the project file"
                );
                return Err(Refusal::new(Code::Eacces, message));
            }
            &AGENT_FILES
        }
        Thing::Model { .. } => &MODEL_FILES,
        Thing::Tool(_) => &TOOL_FILES,
    };
    match files.contains(&key) {
        true => Ok(()),
        false => {
            let (kind, can) = (thing.kind(), files.join(", "));
            Err(Refusal::invalid("key", format!("`{key}` of this {kind} cannot be set; these can: {can}")))
        }
    }
}

/// A tree of its own with the one object, beside the real one. Gone when it is dropped.
struct Scratch {
    top: PathBuf,
    dir: PathBuf,
}

impl Scratch {
    fn beside(root: &Path, thing: &Thing) -> Result<Scratch, Refusal> {
        let top = root.join(thing.kind()).join(format!(".new-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&top);
        let dir = top.join(thing.control_dir());
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&dir);
        made.map_err(|error| failed(&root.join(thing.kind()), &error))?;
        Ok(Scratch { top, dir })
    }

    /// Reads the object as it would be read on use.
    fn check(&self, thing: &Thing, limits: &Limits) -> Result<(), Refusal> {
        match thing {
            Thing::Agent(name) => drop(describe(&self.top, name, limits)?),
            Thing::Model { provider, model } => {
                let id = ModelId { provider: provider.clone(), model: model.clone() };
                check_model(&self.top, &id, limits)?;
            }
            Thing::Tool(name) => drop(policy_of(&self.top, name, limits)?),
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.top);
    }
}

/// What a tool's own file says for agents whose policy says nothing of a call.
pub fn policy_of(root: &Path, tool: &Name, limits: &Limits) -> Result<Vec<Rule>, Refusal> {
    let dir = ControlDir::open(root, &Thing::Tool(tool.clone()).control_dir(), limits.control_file_bytes)?;
    let rule = |line: &str| match line.parse::<Rule>()? {
        rule if rule.tool == tool.as_str() => Ok(rule),
        rule => Err(format!("this is the policy of {tool}, not of `{}`", rule.tool)),
    };
    Ok(dir.items("policy", rule)?)
}

fn failed(path: &Path, error: &std::io::Error) -> Refusal {
    let code = match error.kind() {
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => Code::Eacces,
        ErrorKind::NotFound => Code::Enoent,
        ErrorKind::StorageFull => Code::Enospc,
        _ => Code::Eio,
    };
    Refusal::new(code, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        crate::prepare_root(dir.path(), None).unwrap();
        let path = dir.path().to_owned();
        (dir, path)
    }

    fn coder() -> Thing {
        Thing::Agent(Name::new("coder").unwrap())
    }

    #[test]
    fn a_good_value_takes_its_place_and_a_bad_one_changes_nothing() {
        let (_dir, root) = root();
        let limits = Limits::default();
        set(&root, &coder(), "model", "debug/script\n", &limits).unwrap();
        assert_eq!(std::fs::read_to_string(root.join("agent/coder.d/model")).unwrap(), "debug/script\n");
        for (key, bad, told) in [
            ("mount", "# a\nnonsense\n", "agent/coder.d/mount:2:1"),
            ("uid", "root\n", "agent/coder.d/uid:1:1"),
            ("cwd", "work\n", "agent/coder.d/cwd:1:1"),
        ] {
            let before = std::fs::read(root.join("agent/coder.d").join(key)).unwrap();
            let refusal = set(&root, &coder(), key, bad, &limits).unwrap_err();
            assert!(refusal.message.contains(told), "{refusal:?}");
            assert_eq!(std::fs::read(root.join("agent/coder.d").join(key)).unwrap(), before);
        }
        assert_eq!(set(&root, &coder(), "status", "x", &limits).unwrap_err().code, Code::Einval);
        assert_eq!(set(&root, &coder(), "../x", "x", &limits).unwrap_err().code, Code::Einval);
        let model = Thing::Model { provider: Name::new("debug").unwrap(), model: Name::new("echo").unwrap() };
        assert!(
            set(&root, &model, "id", "debug/nope\n", &limits).unwrap_err().message.contains("echo.d/id:1:1")
        );
        let names: Vec<_> =
            std::fs::read_dir(root.join("agent")).unwrap().flatten().map(|e| e.file_name()).collect();
        assert_eq!(names, ["coder.d"], "nothing is left aside");
    }

    #[test]
    fn an_agent_is_made_whole_and_removed_whole() {
        let (_dir, root) = root();
        let (limits, name) = (Limits::default(), Name::new("helper").unwrap());
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let bad = [file("model", "main\n"), file("policy", "permit\n")];
        assert!(new_agent(&root, &name, &bad, &limits).unwrap_err().message.contains("helper.d/policy:1:1"));
        assert!(!root.join("agent/helper.d").exists());
        new_agent(&root, &name, &[file("model", "main\n")], &limits).unwrap();
        assert_eq!(new_agent(&root, &name, &[], &limits).unwrap_err().code, Code::Eexist);
        for of_imports in IMPORT_AGENTS {
            let name = Name::new(of_imports).unwrap();
            let refusal = new_agent(&root, &name, &[file("model", "main\n")], &limits).unwrap_err();
            assert_eq!(refusal.code, Code::Einval);
            assert!(!root.join(format!("agent/{name}.d")).exists());
        }
        remove_agent(&root, &name).unwrap();
        assert!(!root.join("agent/helper.d").exists());
        assert_eq!(remove_agent(&root, &name).unwrap_err().code, Code::Enoent);
    }
}
