//! A fresh root: the agent `coder`, the debug models and the alias `main`, so that the first command just works.
//!
//! What is there is left alone, also when it is wrong: a person may have written it.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD};

use crate::control::mount::{Access, Mount};
use crate::project::WORK;

/// The agent of a fresh root.
pub const FRESH_AGENT: &str = "coder";

/// The files that a power cut must not leave empty: for the others that means the same as what they say.
const SYNCED: [&str; 5] = ["cwd", "mount", "path", "policy", "prompt"];

/// The line of the mount table before the one that the daemon keeps.
const FROM_SERVE: &str =
    "# the next line is the --workspace of `ctx serve` and changes with it at every start";

const PROMPT: &str = "\
You are coder, an agent that works on one project together with its operator. The project is the directory /work.

- Look first: find with fs.search and fs.list, read with fs.read. Do not guess what a file says.
- Change files with fs.edit, in small exact pieces, or fs.write for a whole file. Read a file before you change it: one that
  you have not seen as it is now is not overwritten. Keep to the style that is there, and change only what the task needs.
- Run commands with shell.exec. It works in a cage: /work, /tmp and your home can be written, and there is no network unless the
  operator allows it. After a change, run the project's tests, or the program itself, and read what they say.
- A call that fails says why. Act on that; do not make the same call again. Some calls wait for the operator's yes: what is denied,
  do without.
- When the task is unclear, or what you are about to do cannot be undone, ask with checkpoint and say what you need.
- At the end say in a few plain sentences what you did, how you checked it, and what is left.
";

const POLICY: &str = "\
# allow|ask|deny TOOL [PATTERN], first match wins; tools without effects are allowed when no line matches.
allow fs.read
allow fs.list
";

/// Why a root could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum FreshError {
    #[error("cannot write {path}: {source}")]
    Io { path: PathBuf, source: std::io::Error },
    #[error("the workspace {path} has a name that is not UTF-8 text; use another directory")]
    NotText { path: PathBuf },
    #[error("the workspace {path} must be an absolute path")]
    NotAbsolute { path: PathBuf },
}

/// Writes what a fresh root holds and this one does not. `workspace` is coder's `/work` from this start on; without one
/// coder has none, unless a person wrote it into the table.
pub fn prepare_root(root: &Path, workspace: Option<&Path>) -> Result<(), FreshError> {
    let mount = workspace.map(mount_line).transpose()?;
    let agents = root.join("agent");
    // An agent that was taken away on purpose does not come back: only a root without agents is fresh.
    if super::agents(root).map_err(|source| io(&agents, source))?.is_empty() || coder_is_begun(root) {
        let dir = agents.join(format!("{FRESH_AGENT}.d"));
        write_files(&dir, &agent_files())?;
        set_workspace(&dir, mount.as_deref()).map_err(|source| io(&dir.join("mount"), source))?;
    }
    for (name, about) in [("echo", "answers with its input"), ("script", "plays a script")] {
        write_files(&root.join(format!("model/debug/{name}.d")), &model_files(name, about))?;
    }
    alias(&root.join("model/main"), Path::new("debug/echo"))
}

fn mount_line(workspace: &Path) -> Result<String, FreshError> {
    if !workspace.is_absolute() {
        return Err(FreshError::NotAbsolute { path: workspace.to_owned() });
    }
    let line = Mount::line(workspace, WORK, Access::ReadWrite);
    line.ok_or_else(|| FreshError::NotText { path: workspace.to_owned() })
}

/// Puts the workspace of this start into the mount table, in place of an earlier one. The other lines stay.
fn set_workspace(dir: &Path, mount: Option<&str>) -> std::io::Result<()> {
    let path = dir.join("mount");
    // What cannot be read is refused with file and line when it is used.
    let Ok(old) = std::fs::read_to_string(&path) else { return Ok(()) };
    let is_work = |line: &str| Mount::parse(line).is_ok_and(|mount| mount.target == Path::new(WORK));
    let mut new = String::new();
    let mut was_ours = false;
    for line in old.lines() {
        let is_ours = std::mem::replace(&mut was_ours, line == FROM_SERVE);
        // A person's own line gives way to what the operator says at this start, and to nothing else.
        if line != FROM_SERVE && !(is_work(line) && (is_ours || mount.is_some())) {
            new.push_str(line);
            new.push('\n');
        }
    }
    if let Some(mount) = mount {
        new.push_str(&format!("{FROM_SERVE}\n{mount}\n"));
    }
    if new == old {
        return Ok(());
    }
    let aside = dir.join(".mount.new");
    remove(&aside)?;
    write_synced(&aside, &new, true)?;
    std::fs::rename(&aside, &path)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write_synced(path: &Path, text: &str, synced: bool) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(path)?;
    file.write_all(text.as_bytes())?;
    if synced { file.sync_all() } else { Ok(()) }
}

/// A start that was interrupted is finished by the next one.
fn coder_is_begun(root: &Path) -> bool {
    root.join(format!("agent/{FRESH_AGENT}.d")).is_dir()
}

fn agent_files() -> Vec<(&'static str, String)> {
    let uid = rustix::process::geteuid().as_raw();
    vec![
        ("owner", format!("{uid}\n")),
        ("uid", "# the uid its processes run as; empty: the owner of the session\n".to_owned()),
        ("gid", "# the gid its processes run as; empty: the group of the owner\n".to_owned()),
        ("root", format!("# what it sees as /; empty: home/<uid>/agent/{FRESH_AGENT}/root\n")),
        ("cwd", format!("{WORK}\n")),
        ("env", "# KEY=VALUE, one a line\n".to_owned()),
        ("path", "/usr/local/bin\n/usr/bin\n/bin\n".to_owned()),
        ("mount", "# SOURCE TARGET ro|rw; a space in a path is \\040\n".to_owned()),
        ("model", "main\n".to_owned()),
        ("policy", POLICY.to_owned()),
        ("prompt", PROMPT.to_owned()),
        ("project", "default\n".to_owned()),
    ]
}

fn model_files(name: &str, about: &str) -> Vec<(&'static str, String)> {
    let default = match name {
        "script" => "# script=FILE: what it plays when a message is no script itself\n",
        _ => "# no parameters\n",
    };
    vec![
        ("id", format!("debug/{name}\n")),
        ("driver", "debug\n".to_owned()),
        ("cap", format!("# {about}; one capability a line\ntext\nstream\nusage\n{}", script_caps(name))),
        ("default", default.to_owned()),
        ("session", format!("home/<uid>/model/debug/{name}.d/session\n")),
        ("status", "ready\n".to_owned()),
        ("log", String::new()),
        ("limit", "window=8192\n".to_owned()),
    ]
}

fn script_caps(name: &str) -> &'static str {
    match name {
        "script" => "reasoning\ntools\n",
        _ => "",
    }
}

pub(crate) fn write_files(dir: &Path, files: &[(&'static str, String)]) -> Result<(), FreshError> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(dir);
    made.map_err(|source| io(dir, source))?;
    for (name, text) in files {
        create(dir, name, text).map_err(|source| io(&dir.join(name), source))?;
    }
    Ok(())
}

/// Creates a file whole or not at all, and only when there is none: written aside, then linked into place.
fn create(dir: &Path, name: &str, text: &str) -> std::io::Result<()> {
    let path = dir.join(name);
    if path.symlink_metadata().is_ok() {
        return Ok(());
    }
    let aside = dir.join(format!(".{name}.new"));
    remove(&aside)?;
    write_synced(&aside, text, SYNCED.contains(&name))?;
    let linked = rustix::fs::linkat(CWD, &aside, CWD, &path, AtFlags::empty());
    std::fs::remove_file(&aside)?;
    match linked {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn alias(path: &Path, target: &Path) -> Result<(), FreshError> {
    match std::os::unix::fs::symlink(target, path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(io(path, error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn io(path: &Path, source: std::io::Error) -> FreshError {
    FreshError::Io { path: path.to_owned(), source }
}
