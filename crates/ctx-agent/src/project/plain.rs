//! The agent of a project without a file: it is described as another agent is, by that one's control files, and has the
//! project's directory as its workspace. Its own directory in the tree shows, to be read, what holds.

use std::path::Path;

use ctx_session::{Limits, Name};
use serde::{Deserialize, Serialize};

use super::WORK;
use super::show::{Shown, make_dir, one_line, plain_meta, replace};
use crate::control::mount::{Access, Mount};
use crate::control::{ControlDir, ControlError, control_dir};
use crate::describe::fresh::FRESH_AGENT;

/// What is taken over as it is written; `mount`, `owner` and `project` are the project's own.
const FILES: [&str; 9] = ["uid", "gid", "root", "cwd", "env", "path", "model", "policy", "prompt"];

/// The control files of the agent that describes others.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlainAgent {
    pub described_by: Name,
    texts: Vec<(String, String)>,
    /// The lines of the mount table, without what is at the workspace.
    mounts: Vec<String>,
}

impl PlainAgent {
    /// Reads the agent that every root begins with.
    pub fn read(root: &Path, limits: &Limits) -> Result<PlainAgent, ControlError> {
        let no_directory = || ControlError::NoDirectory { dir: format!("agent/{FRESH_AGENT}.d") };
        let described_by = Name::new(FRESH_AGENT).map_err(|_| no_directory())?;
        let dir = ControlDir::open(root, &control_dir(&described_by), limits.control_file_bytes)?;
        let mut texts = Vec::new();
        for name in FILES {
            let text = dir.read(name)?.map(|control| control.text).unwrap_or_default();
            texts.push((name.to_owned(), text));
        }
        let table = dir.read("mount")?;
        let is_own = |line: &str| Mount::parse(line).is_ok_and(|mount| mount.target == Path::new(WORK));
        let lines = table.iter().flat_map(|table| table.lines()).map(|line| line.text.to_owned());
        let mounts = lines.filter(|line| !is_own(line)).collect();
        Ok(PlainAgent { described_by, texts, mounts })
    }

    /// By what a change is told.
    pub fn hash(&self) -> String {
        crate::sha256_hex(format!("{:?} {:?}", self.texts, self.mounts).as_bytes())
    }
}

/// Writes what the directory of such an agent is to show.
pub fn show_plain(
    root: &Path,
    shown: &Shown<'_>,
    agent: &PlainAgent,
    directory: &str,
) -> std::io::Result<()> {
    let dir = root.join(control_dir(shown.agent));
    make_dir(&dir, shown)?;
    // First what tells that the directory is ours.
    replace(&dir, "meta.json", &plain_meta(shown, directory), shown)?;
    let own = Mount::line(Path::new(directory), WORK, Access::ReadWrite);
    let mount: String = agent.mounts.iter().cloned().chain(own).map(|line| line + "\n").collect();
    let given = [
        ("owner", format!("{}\n", shown.owner)),
        ("mount", mount),
        ("project", format!("{}\n", shown.project)),
        ("status", format!("{}\n", one_line(shown.status))),
    ];
    let taken = agent.texts.iter().map(|(name, text)| (name.as_str(), text.clone()));
    for (name, text) in taken.chain(given) {
        replace(&dir, name, &text, shown)?;
    }
    Ok(())
}
