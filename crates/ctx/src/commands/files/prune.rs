//! `ctx prune`: removes old snapshots and transcripts, and the snapshots of purged sessions.

use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use ctx_session::{Timestamp, Ulid};
use ctx_views::read::{ReadError, Reader};
use serde_json::json;

use super::snapshots;
use crate::failure::Failure;
use crate::moment::Moment;
use crate::output;
use crate::root::Root;
use crate::sessions::own_uid;
use crate::shell_logs::{Shelf, has_writer, id_of};
use crate::{confirm, words};

/// Remove old snapshots and transcripts
///
/// Removes old snapshots and those of purged sessions, and old transcripts of shells and terminals. Kept are open shells
/// and terminals, and snapshots that a rollback of an open session needs. Conversations are never removed: `ctx purge` deletes one with its blobs. On a terminal the command asks
/// for confirmation; in a script, pass --yes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx prune --older-than 30d
  ctx prune --yes --older-than 2026-01-01

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// How old: 30d, 12h, 4w, or a date
    #[arg(long, value_name = "AGE")]
    older_than: Moment,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let before = args.older_than.seen_from(words::now());
    if !args.yes {
        confirm::ask("pruning", || {
            Ok(format!("Remove snapshots and transcripts from before {}?", words::date_time(before)))
        })?;
    }
    // Shells have snapshots also where there is no root, and so no session.
    let reader = if root.is_new() { None } else { Some(root.reader()?) };
    let is_gone =
        |session: Ulid, uid: u32| reader.as_ref().is_some_and(|reader| is_gone(reader, session, uid));
    let is_held =
        |session: Ulid, uid: u32| reader.as_ref().is_none_or(|reader| is_held(reader, session, uid));
    let (mut count, mut bytes, mut failed) = (0, 0, Vec::new());
    for source in snapshots::all(root)? {
        let pruned = source.prune(before, &is_gone, &is_held)?;
        (count, bytes) = (count + pruned.snapshots, bytes + pruned.bytes);
        failed.extend(pruned.failed);
    }
    let shells = prune_shells(root, before)?;
    let terminals = prune_terminals(&root.path.join(".state/hold"), before);
    if args.json {
        output::json(&json!({
            "snapshots": count, "snapshot_bytes": bytes, "shells": shells, "terminals": terminals, "failed": &failed,
        }))?;
    } else {
        output::say(format_args!(
            "removed {} ({} KiB), and the transcripts of {} and of {}",
            words::counted(count, "snapshot", "snapshots"),
            bytes / 1024,
            words::counted(shells, "shell", "shells"),
            words::counted(terminals, "terminal", "terminals"),
        ));
    }
    for failed in &failed {
        output::say(format_args!("not pruned: {}", output::plain(failed)));
    }
    if failed.is_empty() { Ok(()) } else { Err(Failure::Told { exit: 1 }) }
}

fn is_gone(reader: &Reader, session: Ulid, uid: u32) -> bool {
    let found = reader.resolve(uid, &session.to_string());
    matches!(found, Err(ReadError::NotFound { .. }))
}

/// Whether a session may still be rolled back: it is neither over nor gone.
fn is_held(reader: &Reader, session: Ulid, uid: u32) -> bool {
    let found = reader.resolve(uid, &session.to_string());
    match found.and_then(|session| reader.state(&session)) {
        Ok(state) => !matches!(state.as_str(), "done" | "error"),
        // What cannot be read is left alone.
        Err(error) => !matches!(error, ReadError::NotFound { .. }),
    }
}

fn is_old(path: &Path, before: Timestamp) -> bool {
    let changed = path.metadata().and_then(|data| data.modified()).ok();
    let changed = changed.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    changed
        .is_some_and(|time| u64::try_from(time.as_millis()).is_ok_and(|millis| millis < before.as_millis()))
}

fn prune_shells(root: &Root, before: Timestamp) -> Result<u64, Failure> {
    let mut removed = 0;
    for shelf in Shelf::for_reading(root)? {
        for log in shelf.logs_or_tell()? {
            let file = shelf.dir.join(log.as_str());
            let Some(dir) = file.parent().filter(|dir| dir.ends_with(id_of(&log))) else { continue };
            if is_old(&file, before) && !has_writer(&file) && std::fs::remove_dir_all(dir).is_ok() {
                removed += 1;
            }
        }
    }
    Ok(removed)
}

/// A terminal that has ended says so in a file of its own. Each user has a directory of them, which they can reach where they
/// cannot list the users.
fn prune_terminals(hold: &Path, before: Timestamp) -> u64 {
    let within = |dir: &Path| -> Option<Vec<PathBuf>> {
        Some(std::fs::read_dir(dir).ok()?.flatten().map(|entry| entry.path()).collect())
    };
    let users = within(hold).unwrap_or_else(|| vec![hold.join(own_uid().to_string())]);
    let is_over = |dir: &PathBuf| is_old(&dir.join("end.json"), before);
    let over = users.iter().filter_map(|user| within(user)).flatten().filter(is_over);
    over.filter(|dir| std::fs::remove_dir_all(dir).is_ok()).count() as u64
}
