//! The control directory of a project's agent: `agent/<name>.d/`, written by the daemon, to be read and not to be
//! changed: nothing is read from here but whose it is. The project file is where it is said.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ctx_session::Name;
use ctx_session::record::Redact;
use serde::{Deserialize, Serialize};

use super::WORK;
use super::files::Snapshot;
use crate::control::mount::{Access, Mount};
use crate::control::{control_dir, default_path};

/// An agent to show.
#[derive(Clone, Copy)]
pub struct Shown<'a> {
    pub agent: &'a Name,
    pub project: &'a Name,
    /// Whose it is: they read it, and nobody else does.
    pub owner: u32,
    /// Lets them read a directory (`true`) or file of the daemon's.
    pub let_read: &'a dyn Fn(BorrowedFd<'_>, bool) -> std::io::Result<()>,
    /// `ready`, or what is wrong.
    pub status: &'a str,
    /// None: what was shown last stays.
    pub snapshot: Option<&'a Snapshot>,
}

/// `meta.json` of an agent that is shown here.
#[derive(Debug, Serialize, Deserialize)]
struct Meta {
    described_by: String,
    project: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    directory: Option<String>,
    #[serde(default)]
    tools: Option<Vec<String>>,
    #[serde(default)]
    max_steps: Option<u32>,
    #[serde(default)]
    compaction: Option<ctx_session::project::Compaction>,
}

const DESCRIBED_BY: &str = "project";
/// Of a project without a file.
const PLAIN: &str = "directory";

/// Writes what an agent's directory is to show. Nothing that is right already is touched.
pub fn show(root: &Path, shown: &Shown<'_>) -> std::io::Result<()> {
    let dir = root.join(control_dir(shown.agent));
    if let Some(snapshot) = shown.snapshot {
        make_dir(&dir, shown)?;
        // First what tells that the directory is ours.
        replace(&dir, "meta.json", &meta(shown, snapshot), shown)?;
        for (name, text) in files(shown, snapshot) {
            replace(&dir, name, &text, shown)?;
        }
    } else if shown_for(root, shown.agent).is_none() {
        return Ok(());
    }
    replace(&dir, "status", &format!("{}\n", one_line(shown.status)), shown)
}

/// The directory, which its owner alone reads.
pub(super) fn make_dir(dir: &Path, shown: &Shown<'_>) -> std::io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let opened = File::open(dir)?;
    // An earlier ctx let their whole group read it.
    opened.set_permissions(Permissions::from_mode(0o700))?;
    (shown.let_read)(opened.as_fd(), true)
}

fn meta(shown: &Shown<'_>, snapshot: &Snapshot) -> String {
    let primary = &snapshot.spec.primary;
    let meta = Meta {
        described_by: DESCRIBED_BY.to_owned(),
        project: shown.project.to_string(),
        directory: Some(snapshot.directory.clone()),
        tools: primary.tools.clone(),
        max_steps: primary.max_steps,
        compaction: Some(primary.compaction.clone()),
    };
    meta.to_file()
}

/// `meta.json` of the agent of a directory without a project file.
pub(super) fn plain_meta(shown: &Shown<'_>, directory: &str) -> String {
    let meta = Meta {
        described_by: PLAIN.to_owned(),
        project: shown.project.to_string(),
        directory: Some(directory.to_owned()),
        tools: None,
        max_steps: None,
        compaction: None,
    };
    meta.to_file()
}

impl Meta {
    fn to_file(&self) -> String {
        // This type has no map with keys that are not strings: serialising it cannot fail.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

fn files(shown: &Shown<'_>, snapshot: &Snapshot) -> Vec<(&'static str, String)> {
    let lines = |items: Vec<String>| items.into_iter().map(|item| item + "\n").collect::<String>();
    let mount = Mount::line(Path::new(&snapshot.directory), WORK, Access::ReadWrite);
    let path = default_path().iter().map(|dir| dir.display().to_string()).collect();
    vec![
        ("owner", format!("{}\n", shown.owner)),
        ("uid", String::new()),
        ("gid", String::new()),
        ("root", String::new()),
        ("cwd", format!("{WORK}\n")),
        ("env", String::new()),
        ("path", lines(path)),
        ("mount", lines(mount.into_iter().collect())),
        ("model", format!("{}\n", snapshot.spec.primary.model)),
        ("policy", lines(snapshot.spec.policy.clone())),
        ("redact", format!("{}\n", snapshot.spec.primary.redact.unwrap_or(Redact::On))),
        ("prompt", snapshot.prompt().to_owned()),
        ("project", format!("{}\n", shown.project)),
    ]
}

pub(super) fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// Puts a file in place in one step, unless it is there and right.
pub(super) fn replace(dir: &Path, name: &str, text: &str, shown: &Shown<'_>) -> std::io::Result<()> {
    let path = dir.join(name);
    let is_plain = path.symlink_metadata().is_ok_and(|data| data.is_file());
    if is_plain && std::fs::read(&path).is_ok_and(|old| old == text.as_bytes()) {
        return Ok(());
    }
    let aside = dir.join(format!(".{name}.new"));
    remove(&aside)?;
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside)?;
    file.write_all(text.as_bytes())?;
    (shown.let_read)(file.as_fd(), false)?;
    // Nobody changes it by mistake: it would be of no use.
    let mode = file.metadata()?.permissions().mode() & 0o555;
    file.set_permissions(Permissions::from_mode(mode))?;
    std::fs::rename(&aside, &path)
}

fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// The project that an agent is shown for; None: its control files were written by a person, or there are none.
pub fn shown_for(root: &Path, agent: &Name) -> Option<Name> {
    Name::new(&read_meta(root, agent)?.project).ok()
}

fn read_meta(root: &Path, agent: &Name) -> Option<Meta> {
    let text = std::fs::read(root.join(control_dir(agent)).join("meta.json")).ok()?;
    let meta: Meta = serde_json::from_slice(&text).ok()?;
    [DESCRIBED_BY, PLAIN].contains(&meta.described_by.as_str()).then_some(meta)
}

/// The directory that an agent is shown for, and whether it has no project file.
pub fn directory_of(root: &Path, agent: &Name) -> Option<(String, bool)> {
    let meta = read_meta(root, agent)?;
    Some((meta.directory?, meta.described_by == PLAIN))
}

/// Takes away what was shown of an agent; what a person wrote stays.
pub fn forget(root: &Path, agent: &Name) -> std::io::Result<()> {
    if shown_for(root, agent).is_none() {
        return Ok(());
    }
    match std::fs::remove_dir_all(root.join(control_dir(agent))) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}
