//! `ctx snapshots`: the saved states of files, listed, compared and brought back.

use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use ctx_api::http::{
    FilesBack, List, PruneSnapshots, Snapshot, SnapshotFile, SnapshotFiles, SnapshotsPruned, Undo,
};
use ctx_doors::http::snapshots as saved;
use ctx_session::{Code, Timestamp, Ulid};
use ctx_snapshot::{SnapshotError, Snapshots};

use crate::client::{Api, Query};
use crate::config::{self, Environment, FileArg, SnapshotsConfig};
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::shell_logs::Shelf;
use crate::table::{self, Cell};
use crate::{confirm, ids, snapshots, words};

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

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    #[command(subcommand)]
    command: Option<Sub>,
    /// Print JSON, one object a line
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, clap::Subcommand)]
enum Sub {
    /// List snapshots, the newest last
    #[command(alias = "list")]
    Ls {
        /// Only those of this directory
        #[arg(value_name = "DIR")]
        dir: Option<PathBuf>,
    },
    /// Show a snapshot and its files
    Show {
        /// The snapshot: an id, or the beginning or the end of one
        #[arg(value_name = "SNAPSHOT")]
        id: String,
    },
    /// Show what changed since a snapshot, or between two
    Diff {
        /// The snapshot: an id, or the beginning or the end of one
        #[arg(value_name = "SNAPSHOT")]
        id: String,
        /// A later one of the same directory [default: the files as they are now]
        #[arg(value_name = "OTHER")]
        other: Option<String>,
    },
    /// Make all files as they were
    ///
    /// Files made since are removed, unless the snapshot ignored them. The current files are saved first, in a snapshot
    /// whose id is printed, so you can reverse the restore. On a terminal the command asks for confirmation; in a script, pass --yes.
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
    },
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let json = args.json;
    match args.command.unwrap_or(Sub::Ls { dir: None }) {
        Sub::Ls { dir } => ls(root, dir, json),
        Sub::Show { id } => show(root, &id, json),
        Sub::Diff { id, other } => diff(root, &id, other.as_deref(), json),
        Sub::Restore { id, dry_run, yes } => restore(root, &id, dry_run, yes, json),
    }
}

impl From<SnapshotError> for Failure {
    fn from(error: SnapshotError) -> Failure {
        Failure::new(error.code(), error.to_string())
    }
}

/// A place of this user's snapshots.
pub enum Source<'a> {
    Here(Box<Snapshots>),
    /// The store is the daemon's own: it does the work, with the rights of who asks.
    Daemon(Api<'a>),
}

/// Every place of this user's snapshots: the root's, and that of shells without a root.
pub fn all(root: &Root) -> Result<Vec<Source<'_>>, Failure> {
    let config: SnapshotsConfig =
        config::load(&FileArg::of_environment(), &Environment::of_process())?.config.snapshots;
    let mut dirs = vec![root.path.join(".state")];
    dirs.extend(Shelf::for_reading(root)?.iter().map(Shelf::state_dir));
    dirs.dedup();
    let mut sources = Vec::new();
    for all in dirs.iter().map(|dir| snapshots::at(dir, root, &config)) {
        match std::fs::read_dir(all.dir()) {
            Ok(_) => sources.push(Source::Here(Box::new(all))),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                sources.push(Source::Daemon(Api::new(root)));
            }
            Err(error) => return Err(Failure::io(all.dir().display(), error)),
        }
    }
    Ok(sources)
}

impl Source<'_> {
    fn list(&self) -> Result<Vec<Snapshot>, Failure> {
        match self {
            Source::Here(all) => Ok(saved::list(all, None)?),
            Source::Daemon(api) => Ok(api.get::<List<Snapshot>>("/snapshots")?.items),
        }
    }

    fn show(&self, id: Ulid) -> Result<SnapshotFiles, Failure> {
        match self {
            Source::Here(all) => Ok(saved::show(all, None, id)?),
            Source::Daemon(api) => api.get(&format!("/snapshots/{id}")),
        }
    }

    fn diff(&self, id: Ulid, to: Option<Ulid>) -> Result<FilesBack, Failure> {
        match self {
            Source::Here(all) => Ok(saved::diff(all, None, id, to)?),
            Source::Daemon(api) => {
                api.get(Query::new(&format!("/snapshots/{id}/changes")).with_some("to", to).as_str())
            }
        }
    }

    fn restore(&self, id: Ulid, dry_run: bool) -> Result<FilesBack, Failure> {
        match self {
            Source::Here(all) => Ok(saved::restore(all, None, id, dry_run)?),
            Source::Daemon(api) => api.post_with(&format!("/snapshots/{id}/restore"), &Undo { dry_run }),
        }
    }

    /// `is_gone`, `is_held`: see `Snapshots::prune`; the daemon knows that itself.
    pub fn prune(
        &self,
        before: Timestamp,
        is_gone: &dyn Fn(Ulid, u32) -> bool,
        is_held: &dyn Fn(Ulid, u32) -> bool,
    ) -> Result<SnapshotsPruned, Failure> {
        match self {
            Source::Here(all) => Ok(saved::pruned_of(all.prune(None, before, is_gone, is_held)?)),
            Source::Daemon(api) => api.post_with("/snapshots/prune", &PruneSnapshots { before }),
        }
    }
}

/// A reason in words.
fn reason(reason: &str) -> &str {
    match reason {
        "asked" => "asked for",
        "before_run" => "before a run",
        "after_run" => "after a run",
        "before_restore" => "before a restore",
        reason => reason,
    }
}

fn ls(root: &Root, dir: Option<PathBuf>, json: bool) -> Result<(), Failure> {
    let dir =
        dir.map(|dir| dir.canonicalize().map_err(|error| Failure::io(dir.display(), error))).transpose()?;
    let dir = dir.map(|dir| dir.display().to_string());
    let mut rows: Vec<Snapshot> = Vec::new();
    for source in all(root)? {
        let is_there = |snapshot: &Snapshot| dir.as_ref().is_none_or(|dir| snapshot.workspace == *dir);
        rows.extend(source.list()?.into_iter().filter(is_there));
    }
    rows.sort_by_key(|snapshot| snapshot.id);
    if json {
        return rows.iter().try_for_each(output::json);
    }
    if rows.is_empty() {
        output::say("no snapshots");
        return Ok(());
    }
    let now = words::now();
    let row = |snapshot: Snapshot| {
        let label = snapshot.label.as_deref().map(|label| format!("{}  ", output::one_line(label)));
        let kept = if snapshot.keep { " (kept)" } else { "" };
        vec![
            Cell::new(snapshot.id.to_string()),
            Cell::new(words::age(now, snapshot.created)),
            Cell::new(format!("{}{kept}", reason(&snapshot.reason))),
            Cell::new(snapshot.files.to_string()),
            Cell::new(format!("{}{}", label.unwrap_or_default(), output::plain(&snapshot.workspace))),
        ]
    };
    let rows = rows.into_iter().map(row).collect();
    let head = ["SNAPSHOT", "AGE", "WHY", "FILES", "WHERE"];
    let mut out = output::stdout();
    out.write_all(table::render(&head, rows, output::width(), Paint::for_stdout()).as_bytes())?;
    out.flush()?;
    Ok(())
}

/// The one snapshot that a word means, and where it is.
fn find<'a>(root: &'a Root, word: &str) -> Result<(Source<'a>, Snapshot), Failure> {
    let mut found = Vec::new();
    for source in all(root)? {
        let meant = |snapshot: &Snapshot| ids::is_part(&snapshot.id.to_string(), word);
        let meant: Vec<Snapshot> = source.list()?.into_iter().filter(meant).collect();
        found.push((source, meant));
    }
    let several: usize = found.iter().map(|(_, meant)| meant.len()).sum();
    if several > 1 {
        return Err(Failure::new(Code::Einval, format!("{several} snapshots begin or end with `{word}`")));
    }
    let one = found.into_iter().find_map(|(source, mut meant)| Some((source, meant.pop()?)));
    one.ok_or_else(|| {
        Failure::new(Code::Enoent, format!("no snapshot `{word}`")).hint("`ctx snapshots` lists them")
    })
}

fn show(root: &Root, word: &str, json: bool) -> Result<(), Failure> {
    let (source, snapshot) = find(root, word)?;
    let told = source.show(snapshot.id)?;
    if json {
        return output::json(&told);
    }
    let mut out = output::stdout();
    let workspace = output::plain(&told.workspace);
    writeln!(out, "{} {} of {workspace}", snapshot.id, reason(&snapshot.reason))?;
    for SnapshotFile { path, mode, bytes, target, .. } in &told.files {
        let path = output::plain(path);
        match (mode, bytes, target) {
            (Some(mode), Some(bytes), _) => writeln!(out, "{mode} {bytes:>12} {path}")?,
            (Some(mode), None, _) => writeln!(out, "{mode} {:>12} {path}/", "-")?,
            (None, _, target) => {
                let target = output::plain(target.as_deref().unwrap_or_default());
                writeln!(out, "link {:>12} {path} -> {target}", "-")?;
            }
        }
    }
    for left in &told.left_out {
        writeln!(out, "left out: {} ({})", output::plain(&left.path), left.why)?;
    }
    out.flush()?;
    Ok(())
}

fn diff(root: &Root, word: &str, other: Option<&str>, json: bool) -> Result<(), Failure> {
    let (source, snapshot) = find(root, word)?;
    let later = other.map(|other| find(root, other)).transpose()?.map(|(_, later)| later);
    if later.as_ref().is_some_and(|later| later.workspace != snapshot.workspace) {
        return Err(Failure::new(Code::Einval, "the two snapshots are of different directories"));
    }
    tell(&source.diff(snapshot.id, later.map(|later| later.id))?, json)
}

fn restore(root: &Root, word: &str, dry_run: bool, yes: bool, json: bool) -> Result<(), Failure> {
    let (source, snapshot) = find(root, word)?;
    if !yes && !dry_run {
        confirm::ask("restoring files", || {
            let files = words::files(source.restore(snapshot.id, true)?.changed.len());
            Ok(format!("Change {files} in {}?", output::plain(&snapshot.workspace)))
        })?;
    }
    tell(&source.restore(snapshot.id, dry_run)?, json)
}

fn tell(back: &FilesBack, json: bool) -> Result<(), Failure> {
    if json {
        return output::json(back);
    }
    let mut out = output::stdout();
    for file in &back.changed {
        writeln!(out, "{:<8} {}", file.change, output::plain(&file.path))?;
    }
    for kept in &back.kept {
        writeln!(out, "{:<8} {}  {}", "kept", output::plain(&kept.path), kept.why)?;
    }
    out.flush()?;
    if let Some(id) = back.undo {
        output::say(format_args!(
            "{} changed; `ctx snapshots restore {id}` restores the files as they were before this command",
            words::files(back.changed.len())
        ));
    }
    Ok(())
}
