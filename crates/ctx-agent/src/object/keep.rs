//! Keeps the files of objects true: executables, the control directories of tools, and what each object's `status` says.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ctx_session::{Limits, Name, Timestamp};

use super::{Runner, Thing, is_ours};
use crate::control::ControlDir;
use crate::describe::{agents, describe};
use crate::model::Models;
use crate::project::shown_for;
use crate::tool::Tools;
use crate::tool::fs::NAMES as FS_TOOLS;
use crate::tool::shell::SHELL_EXEC;

/// The most that a `log` holds.
const LOG_BYTES_MAX: usize = 64 * 1024;

/// What there is, and what could not be written.
#[derive(Debug, Default)]
pub struct Kept {
    pub agents: Vec<Name>,
    pub models: Vec<Thing>,
    pub problems: Vec<String>,
}

/// Looks at the tree and writes what is missing or not true. The daemon's own files alone are changed.
pub fn keep(
    root: &Path,
    runner: Option<&Runner>,
    models: &Models,
    limits: &Limits,
    now: Timestamp,
) -> std::io::Result<Kept> {
    let agents = agents(root)?;
    let mut kept = Kept::default();
    let mut things: Vec<(Thing, String)> = Vec::new();
    for agent in &agents {
        let thing = Thing::Agent(agent.clone());
        // What a project's agent is, is its project's business, and others see no more of it than its name.
        let mut about = "the agent of a project".to_owned();
        if shown_for(root, agent).is_none() {
            let found = describe(root, agent, limits);
            about = match &found {
                Ok(found) => format!("an agent with the model {}", found.model),
                Err(_) => "an agent; its control files are not right, see status".to_owned(),
            };
            let status = match &found {
                Ok(_) => "ready".to_owned(),
                Err(error) => format!("invalid: {}", error.to_string().replace('\n', " ")),
            };
            kept.note(set_status(root, &thing, &status, now));
            kept.note(agent_files(root, &thing));
        }
        things.push((thing, about));
    }
    for id in models.list()? {
        let thing = Thing::Model { provider: id.provider.clone(), model: id.model.clone() };
        let about = about_model(root, &thing, limits);
        kept.models.push(thing.clone());
        things.push((thing, about));
    }
    for spec in Tools::all().specs() {
        let Ok(name) = Name::new(&spec.name) else { continue };
        let thing = Thing::Tool(name);
        kept.note(tool_files(root, &thing, &spec));
        things.push((thing, spec.description));
    }
    kept.agents = agents;
    let Some(runner) = runner else { return Ok(kept) };
    for (thing, about) in &things {
        let text = runner.executable(thing, about);
        kept.note(put(&root.join(thing.path()), &text, 0o755, is_ours));
    }
    kept.note(sweep(root, &things));
    Ok(kept)
}

impl Kept {
    fn note(&mut self, done: std::io::Result<()>) {
        self.problems.extend(done.err().map(|error| error.to_string()));
    }
}

/// Whether a person can run a tool by itself. The others work on the session of the agent that calls them: to be read, and
/// whoever runs one is told what to do instead.
pub fn can_be_run(tool: &str) -> bool {
    FS_TOOLS.contains(&tool) || tool == SHELL_EXEC
}

fn about_model(root: &Path, thing: &Thing, limits: &Limits) -> String {
    let control = ControlDir::open(root, &thing.control_dir(), limits.control_file_bytes);
    let of = |name: &str| control.as_ref().ok()?.value(name, |text| Ok(text.to_owned())).ok().flatten();
    match (of("driver"), of("id")) {
        (Some(driver), Some(id)) => format!("a model: {id}, by the driver {driver}"),
        _ => "a model".to_owned(),
    }
}

/// The control directory of a tool that ctx ships: what describes it is the program's own and follows it, the rest is its
/// operator's.
fn tool_files(root: &Path, thing: &Thing, spec: &crate::model::ToolSpec) -> std::io::Result<()> {
    let dir = root.join(thing.control_dir());
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(&dir)?;
    let schema = serde_json::to_string_pretty(&spec.schema)?;
    let cap = match spec.name.as_str() {
        "fs.write" | "fs.edit" => "write\n",
        SHELL_EXEC => "exec\n",
        name if can_be_run(name) => "read\n",
        _ => "session\n",
    };
    for (name, text) in [
        ("name", format!("{}\n", spec.name)),
        ("description", format!("{}\n", spec.description)),
        ("schema", format!("{schema}\n")),
        ("cap", cap.to_owned()),
        ("status", "ready\n".to_owned()),
    ] {
        put(&dir.join(name), &text, 0o644, |_| true)?;
    }
    let policy = format!(
        "# allow|ask|deny {} [PATTERN]: holds for every agent whose own policy says nothing of the call\n",
        spec.name
    );
    put(&dir.join("policy"), &policy, 0o644, |_| false)?;
    put(&dir.join("log"), "", 0o644, |_| false)
}

/// Who serves an agent, and who describes it.
fn agent_files(root: &Path, thing: &Thing) -> std::io::Result<()> {
    let dir = root.join(thing.control_dir());
    put(&dir.join("pid"), &format!("{}\n", std::process::id()), 0o644, |_| true)?;
    let meta =
        serde_json::json!({"kind": thing.kind(), "name": thing.name(), "described_by": "control files"});
    put(&dir.join("meta.json"), &format!("{meta}\n"), 0o644, |_| true)
}

/// `status` says whether an object can be used; each change of it is a line of `log`.
fn set_status(root: &Path, thing: &Thing, status: &str, now: Timestamp) -> std::io::Result<()> {
    let dir = root.join(thing.control_dir());
    let path = dir.join("status");
    if std::fs::read_to_string(&path).is_ok_and(|old| old.trim_end() == status) {
        return Ok(());
    }
    put(&path, &format!("{status}\n"), 0o644, |_| true)?;
    let log = dir.join("log");
    let mut lines = std::fs::read_to_string(&log).unwrap_or_default();
    lines.push_str(&format!("{now} {status}\n"));
    // It tells of changes that a person makes, so it grows slowly.
    let from = lines.ceil_char_boundary(lines.len().saturating_sub(LOG_BYTES_MAX));
    put(&log, lines.get(from..).unwrap_or_default(), 0o644, |_| true)
}

/// Puts a file in place in one step, unless it says this already, or is another's: `may` is asked about what is there.
fn put(path: &Path, text: &str, mode: u32, may: impl Fn(&str) -> bool) -> std::io::Result<()> {
    match std::fs::symlink_metadata(path) {
        Ok(data) if !data.is_file() => return Ok(()),
        Ok(data) => {
            // What is longer than any of ours is none.
            let old =
                if data.len() > LOG_BYTES_MAX as u64 * 2 { None } else { std::fs::read_to_string(path).ok() };
            let is_right = old.as_deref() == Some(text) && data.permissions().mode() & 0o777 == mode;
            if is_right || !old.is_some_and(|old| may(&old)) {
                return Ok(());
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    replace(path, text, mode)
}

/// Puts a file in place in one step.
pub fn replace(path: &Path, text: &str, mode: u32) -> std::io::Result<()> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let aside = path.with_file_name(format!(".{name}.new"));
    match std::fs::remove_file(&aside) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&aside)?;
    file.write_all(text.as_bytes())?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    std::fs::rename(&aside, path)
}

/// Removes the executables of objects that are gone.
fn sweep(root: &Path, things: &[(Thing, String)]) -> std::io::Result<()> {
    let mut dirs = vec![root.join("agent"), root.join("tool")];
    for entry in std::fs::read_dir(root.join("model"))? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            dirs.push(entry.path());
        }
    }
    let there: std::collections::HashSet<_> =
        things.iter().map(|(thing, _)| root.join(thing.path())).collect();
    for dir in dirs {
        for entry in std::fs::read_dir(&dir)? {
            let entry = entry?;
            let path = entry.path();
            let is_exec = entry.file_type()?.is_file() && !there.contains(&path);
            if is_exec && std::fs::read_to_string(&path).is_ok_and(|text| is_ours(&text)) {
                std::fs::remove_file(&path)?;
            }
        }
    }
    Ok(())
}
