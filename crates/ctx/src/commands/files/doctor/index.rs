//! Checks the index database: its version, damage, and how far it is behind the logs.

use std::cmp::Ordering;
use std::fs::Metadata;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt;

use ctx_journal::{Journal, JournalError};
use ctx_views::db::{DbError, IndexReader, KnownLog, SCHEMA_VERSION};
use ctx_views::identity::Place;

use super::finding::{Finding, Report};
use super::logs::Looked;
use crate::index::{self, INDEX};
use crate::root::Root;
use crate::words;

/// Sessions that are named one by one.
const NAMED_MAX: usize = 20;

pub fn look(root: &Root, deep: bool, is_up: bool, looked: &Looked, report: &mut Report) {
    let path = index::path(root);
    match std::fs::File::open(&path) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            report.fact("index", "not there");
            let finding =
                Finding::new("the index is missing: search and filtered lists do not work without it")
                    .at(INDEX);
            let fix = if is_up {
                "the daemon rebuilds it within seconds"
            } else {
                "the daemon builds it at its next start; `ctx reindex` builds it now"
            };
            return report.note(finding.fix(fix));
        }
        Err(error) => {
            report.fact("index", "not readable");
            return report.note(Finding::new(format!("you cannot read it: {error}")).at(INDEX));
        }
    }
    let looked_at =
        IndexReader::open(&path).and_then(|index| sound(root, &index, deep, is_up, looked, report));
    match looked_at {
        Ok(()) => {}
        Err(DbError::OtherVersion { version, .. }) => {
            report.fact("index", format!("version {version}; this ctx reads version {SCHEMA_VERSION}"));
            let what = format!("it has version {version}; this ctx reads version {SCHEMA_VERSION}");
            let fix = "a daemon of this version rebuilds it at its next start; `ctx reindex` rebuilds it now";
            report.problem(Finding::new(what).at(INDEX).fix(fix));
        }
        Err(error) => {
            report.fact("index", "damaged");
            let fix = "nothing is lost: restart the daemon, or stop it and run `ctx reindex`";
            report.problem(Finding::new(format!("it is damaged: {error}")).at(INDEX).fix(fix));
        }
    }
}

/// How a log stands to what the index has read of it.
enum Standing {
    Current,
    Behind,
    /// The log ends before that.
    Shorter {
        last: Option<u64>,
    },
}

/// How many logs have more than the index, telling of those that have less.
fn behind(root: &Root, known: &[KnownLog], looked: &Looked, report: &mut Report) -> usize {
    let sessions = looked.logs.iter().filter(|log| Place::of(log).is_some()).count();
    let Ok(journal) = root.journal() else { return sessions };
    let mut current = 0;
    for known in known.iter().filter(|known| looked.logs.contains(&known.log)) {
        match standing(root, &*journal, known) {
            Ok(Standing::Current) => current += 1,
            Ok(Standing::Shorter { last }) => {
                let ends = last.map_or("has no record".to_owned(), |last| format!("ends with record {last}"));
                let read = known.next_seq.saturating_sub(1);
                let what = format!("it {ends}, but the index has read it up to record {read}");
                let fix = "restore the rest from a backup, or continue without it: the index is corrected when the \
                           session is next used or the daemon starts";
                let line = words::lines_before(&root.path.join(known.log.as_str()), u64::MAX);
                report.problem(Finding::new(what).at(known.log.as_str()).line(line).fix(fix));
            }
            Ok(Standing::Behind) | Err(_) => {}
        }
    }
    sessions.saturating_sub(current)
}

fn standing(root: &Root, journal: &dyn Journal, known: &KnownLog) -> Result<Standing, JournalError> {
    let data = std::fs::metadata(root.path.join(known.log.as_str())).ok();
    let is_as_read = |data: Metadata| known.inode == data.ino() && known.end_bytes == data.size();
    if data.is_some_and(is_as_read) {
        return Ok(Standing::Current);
    }
    let mut last = None;
    journal.read_back(&known.log, &mut |entry| {
        last = Some(entry.seq);
        ControlFlow::Break(())
    })?;
    Ok(match last.map_or(0, |last| last + 1).cmp(&known.next_seq) {
        Ordering::Less => Standing::Shorter { last },
        Ordering::Equal => Standing::Current,
        Ordering::Greater => Standing::Behind,
    })
}

fn sound(
    root: &Root,
    index: &IndexReader,
    deep: bool,
    is_up: bool,
    looked: &Looked,
    report: &mut Report,
) -> Result<(), DbError> {
    let queries = index.queries();
    let known = queries.known_logs()?;
    if deep {
        for line in queries.check()? {
            let fix = "nothing is lost: stop the daemon and run `ctx reindex`";
            report.problem(Finding::new(format!("it is damaged: {line}")).at(INDEX).fix(fix));
        }
    }
    let gone: Vec<_> = known.iter().filter(|known| !looked.logs.contains(&known.log)).collect();
    for known in gone.iter().take(NAMED_MAX) {
        let fix = "restore it from a backup, or stop the daemon and run `ctx reindex` to forget it";
        let what = "the index has this session, but its directory is missing";
        report.problem(Finding::new(what).at(known.log.dir()).fix(fix));
    }
    if gone.len() > NAMED_MAX {
        report.problem(Finding::new(format!("and {} more sessions are missing", gone.len() - NAMED_MAX)));
    }
    let behind = behind(root, &known, looked, report);
    let unread = queries.unread()?;
    let standing = match (behind, unread) {
        (0, 0) => "complete".to_owned(),
        (behind, unread) => format!("{behind} sessions behind their logs, {unread} not searchable yet"),
    };
    report.fact("index", format!("version {SCHEMA_VERSION}, {} sessions, {standing}", known.len()));
    if (behind > 0 || unread > 0) && !is_up {
        let fix = "the daemon updates it at its next start; `ctx reindex` rebuilds it now";
        report.note(Finding::new("it is behind the logs").at(INDEX).fix(fix));
    }
    // Read whole, the logs have told of it themselves.
    if !looked.whole {
        for message in queries.damage()? {
            report.problem(Finding::new(message).fix("`ctx repair --all` prints what a repair would change"));
        }
    }
    Ok(())
}
