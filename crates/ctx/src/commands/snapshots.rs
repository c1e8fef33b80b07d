//! `ctx snapshots`: the saved states of files, listed, compared and brought back.

use std::io::Write;
use std::path::PathBuf;

use ctx_host::rights::Rights;
use ctx_host::snapshot::plan::{Change, Changed, Report};
use ctx_host::snapshot::prune::Held;
use ctx_host::snapshot::tree::{PathText, shown};
use ctx_host::snapshot::{Info, Node, Reason, SnapshotError, Snapshots, Workspace};
use ctx_session::Code;
use serde_json::json;

use crate::config::{self, Environment, FileArg, SnapshotsConfig};
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::shell_logs::Shelf;
use crate::table::{self, Cell};
use crate::{confirm, snapshots, words};

/// Manage saved states of files
///
/// A snapshot is taken before and after each run that writes, by `session_checkpoint` of a shell, and before every
/// restore. It has the files of one directory without .git and without what .gitignore names.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx snapshots                   all of them, the newest last
  ctx snapshots show 01K9Y3R6     its files
  ctx snapshots diff 01K9Y3R6     what has changed since
  ctx snapshots restore --yes 01K9Y3R6

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 70 internal error")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
}

#[derive(Debug, clap::Subcommand)]
enum Sub {
    /// List snapshots, the newest last
    Ls {
        /// Only those of this directory
        #[arg(value_name = "DIR")]
        dir: Option<PathBuf>,
        /// Print a JSON object a line
        #[arg(long)]
        json: bool,
    },
    /// Show a snapshot and its files
    Show {
        /// The snapshot: an id, or the beginning or the end of one
        #[arg(value_name = "SNAPSHOT")]
        id: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what changed since a snapshot, or between two
    Diff {
        /// The snapshot: an id, or the beginning or the end of one
        #[arg(value_name = "SNAPSHOT")]
        id: String,
        /// A later one of the same directory [default: the files as they are now]
        #[arg(value_name = "OTHER")]
        other: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Make all files as they were
    ///
    /// Files made since are removed, unless the snapshot ignored them. What was there is a snapshot of its own, whose
    /// id is printed. On a terminal the command asks for confirmation; in a script, pass --yes.
    Restore {
        /// The snapshot: an id, or the beginning or the end of one
        #[arg(value_name = "SNAPSHOT")]
        id: String,
        /// Only show what would change
        #[arg(long)]
        dry_run: bool,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    match args.command.unwrap_or(Sub::Ls { dir: None, json: false }) {
        Sub::Ls { dir, json } => ls(root, dir, json),
        Sub::Show { id, json } => show(root, &id, json),
        Sub::Diff { id, other, json } => diff(root, &id, other.as_deref(), json),
        Sub::Restore { id, dry_run, yes, json } => restore(root, &id, dry_run, yes, json),
    }
}

impl From<SnapshotError> for Failure {
    fn from(error: SnapshotError) -> Failure {
        Failure::new(error.code(), error.to_string())
    }
}

/// Every place of this user's snapshots: the root's, and that of shells without a root.
pub fn all(root: &Root) -> Result<Vec<Snapshots>, Failure> {
    let config: SnapshotsConfig =
        config::load(&FileArg::of_environment(), &Environment::of_process())?.config.snapshots;
    let mut dirs = vec![root.path.join(".state")];
    dirs.extend(Shelf::for_reading(root)?.iter().map(Shelf::state_dir));
    dirs.dedup();
    Ok(dirs.iter().map(|dir| snapshots::at(dir, root, &config)).filter(|all| all.dir().is_dir()).collect())
}

fn reason(reason: Reason) -> &'static str {
    match reason {
        Reason::Asked => "asked for",
        Reason::Shell => "shell",
        Reason::BeforeRun => "before a run",
        Reason::AfterRun => "after a run",
        Reason::Checkpoint => "checkpoint",
        Reason::BeforeRestore => "before a restore",
    }
}

fn ls(root: &Root, dir: Option<PathBuf>, json: bool) -> Result<(), Failure> {
    let dir =
        dir.map(|dir| dir.canonicalize().map_err(|error| Failure::io(dir.display(), error))).transpose()?;
    let mut rows: Vec<(Info, PathBuf)> = Vec::new();
    for all in all(root)? {
        for Held { about, snapshots, .. } in all.held()? {
            if dir.as_ref().is_none_or(|dir| about.path == *dir) {
                rows.extend(snapshots.into_iter().map(|info| (info, about.path.clone())));
            }
        }
    }
    rows.sort_by_key(|(info, _)| info.id);
    if json {
        let mut out = output::stdout();
        for (info, path) in &rows {
            let mut line = serde_json::to_value(info).unwrap_or_default();
            if let Some(fields) = line.as_object_mut() {
                fields.insert("workspace".to_owned(), path.display().to_string().into());
            }
            writeln!(out, "{line}")?;
        }
        out.flush()?;
        return Ok(());
    }
    if rows.is_empty() {
        output::say("no snapshots");
        return Ok(());
    }
    let now = words::now();
    let row = |(info, path): (Info, PathBuf)| {
        let label =
            info.label.as_deref().map(|label| format!("{}  ", output::one_line(label))).unwrap_or_default();
        let kept = if info.keep { " (kept)" } else { "" };
        vec![
            Cell::new(info.id.to_string()),
            Cell::new(words::age(now, info.created)),
            Cell::new(format!("{}{kept}", reason(info.reason))),
            Cell::new(info.files.to_string()),
            Cell::new(format!("{label}{}", path.display())),
        ]
    };
    let rows = rows.into_iter().map(row).collect();
    let head = ["SNAPSHOT", "AGE", "WHY", "FILES", "WHERE"];
    let mut out = output::stdout();
    out.write_all(table::render(&head, rows, output::width(), Paint::for_stdout()).as_bytes())?;
    out.flush()?;
    Ok(())
}

/// The one snapshot that a word means, and its workspace.
fn find(root: &Root, word: &str) -> Result<(Workspace, Info), Failure> {
    let mut found = Vec::new();
    for all in all(root)? {
        for held in all.held()? {
            let is_meant = |info: &&Info| crate::ids::is_part(&info.id.to_string(), word);
            found.extend(
                held.snapshots
                    .iter()
                    .filter(is_meant)
                    .map(|info| (all.clone(), held.about.clone(), info.clone())),
            );
        }
    }
    let several = found.len();
    match found.pop() {
        Some((all, about, info)) if several == 1 => {
            let workspace =
                all.open(&about.path, about.uid, Rights::of(about.uid).map_err(SnapshotError::from)?)?;
            Ok((workspace, info))
        }
        None => {
            Err(Failure::new(Code::Enoent, format!("no snapshot `{word}`"))
                .hint("`ctx snapshots` lists them"))
        }
        Some(_) => Err(Failure::new(Code::Einval, format!("{several} snapshots begin or end with `{word}`"))),
    }
}

fn show(root: &Root, word: &str, json: bool) -> Result<(), Failure> {
    let (workspace, info) = find(root, word)?;
    let tree = workspace.tree(&info)?;
    if json {
        let file = |(path, node): (&Vec<u8>, &Node)| match node {
            Node::Dir { mode } => json!({"path": shown(path), "kind": "dir", "mode": format!("{mode:04o}")}),
            Node::File { mode, size, .. } => {
                json!({"path": shown(path), "kind": "file", "mode": format!("{mode:04o}"), "bytes": size})
            }
            Node::Link { target } => json!({"path": shown(path), "kind": "link", "target": shown(target)}),
        };
        let files: Vec<_> = tree.nodes.iter().map(file).collect();
        let left_out: Vec<_> =
            tree.left_out.iter().map(|(path, why)| json!({"path": shown(path), "why": why})).collect();
        let workspace = workspace.path().display().to_string();
        return output::json(
            &json!({"snapshot": info, "workspace": workspace, "files": files, "left_out": left_out}),
        );
    }
    let mut out = output::stdout();
    writeln!(out, "{} {} of {}", info.id, reason(info.reason), workspace.path().display())?;
    for (path, node) in &tree.nodes {
        let path = output::plain(&shown(path));
        match node {
            Node::Dir { mode } => writeln!(out, "{mode:04o} {:>12} {path}/", "-")?,
            Node::File { mode, size, .. } => writeln!(out, "{mode:04o} {size:>12} {path}")?,
            Node::Link { target } => {
                writeln!(out, "link {:>12} {path} -> {}", "-", output::plain(&shown(target)))?;
            }
        }
    }
    for (path, why) in &tree.left_out {
        writeln!(out, "left out: {} ({why})", output::plain(&shown(path)))?;
    }
    out.flush()?;
    Ok(())
}

fn diff(root: &Root, word: &str, other: Option<&str>, json: bool) -> Result<(), Failure> {
    let (workspace, info) = find(root, word)?;
    let report = match other {
        None => workspace.since(&info)?,
        Some(other) => {
            let (there, later) = find(root, other)?;
            if there.path() != workspace.path() {
                let message = "the two snapshots are of different directories";
                return Err(Failure::new(Code::Einval, message));
            }
            let (from, to) = (workspace.tree(&info)?, workspace.tree(&later)?);
            let changed = from.differing(&to).into_iter().filter_map(|path| {
                let change = Change::between(from.get(path), to.get(path))?;
                Some(Changed { path: PathText(path.clone()), change })
            });
            Report { changed: changed.collect(), kept: Vec::new() }
        }
    };
    tell(&report, json, None)
}

fn restore(root: &Root, word: &str, dry_run: bool, yes: bool, json: bool) -> Result<(), Failure> {
    let (workspace, info) = find(root, word)?;
    if dry_run {
        return tell(&workspace.preview(&info)?, json, None);
    }
    if !yes {
        confirm::ask("restoring files", || {
            let would = workspace.preview(&info)?.changed.len();
            Ok(format!("Change {would} files in {}?", workspace.path().display()))
        })?;
    }
    let done = workspace.restore(&info)?;
    tell(&done.report, json, Some(&done.undo))
}

fn tell(report: &Report, json: bool, undo: Option<&Info>) -> Result<(), Failure> {
    if json {
        let mut value = serde_json::to_value(report).unwrap_or_default();
        if let (Some(undo), Some(fields)) = (undo, value.as_object_mut()) {
            fields.insert("undo".to_owned(), undo.id.to_string().into());
        }
        return output::json(&value);
    }
    let mut out = output::stdout();
    for Changed { path, change } in &report.changed {
        let word = match change {
            Change::Created => "created",
            Change::Changed => "changed",
            Change::Removed => "removed",
        };
        writeln!(out, "{word:<8} {}", output::plain(&shown(&path.0)))?;
    }
    for kept in &report.kept {
        writeln!(out, "{:<8} {}  {}", "kept", output::plain(&shown(&kept.path.0)), kept.why)?;
    }
    out.flush()?;
    if let Some(undo) = undo {
        let (changed, id) = (report.changed.len(), undo.id);
        output::say(format_args!(
            "{changed} files changed; `ctx snapshots restore {id}` brings back what was there"
        ));
    }
    Ok(())
}
