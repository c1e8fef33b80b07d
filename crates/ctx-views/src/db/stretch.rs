//! A stretch of a log on its way into the tables, and how it is put there.
//!
//! Every log is read twice: for its lists (the session's row and its runs), and later for its text (messages,
//! tool calls, full text). How far each has come is stored in the session's row, so that stretches may come from
//! live commits and from readers at once, overlap, or be lost: what has been read is passed over, and a hole
//! means that the log has to be read again from where the index stands.

use ctx_journal::{Damage, LogPath};
use ctx_session::record::SessionMeta;
use ctx_session::{Body, Record, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use super::row::SessionRow;
use super::store::{self, Stored, int, millis};

/// What a stretch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Lists,
    Text,
    /// Committed just now: both, as far as the text is not behind.
    Live,
}

/// Everything that a log has in `from..next`.
#[derive(Debug)]
pub(super) struct Stretch {
    pub(super) log: LogPath,
    pub(super) part: Part,
    pub(super) from: u64,
    pub(super) next: u64,
    pub(super) records: Vec<Record>,
    /// Where its last record ends, if there is one.
    pub(super) seen: Option<Seen>,
    /// What the index has of this log is not what the log says: forget it first.
    pub(super) start_over: bool,
    /// Nothing more comes of this reading.
    pub(super) is_last: bool,
    pub(super) damage: Vec<Damage>,
}

impl Stretch {
    /// How much text it holds, near enough to bound what waits.
    pub(super) fn text_bytes(&self) -> usize {
        let of_record = |record: &Record| match &record.body {
            Body::User(user) => user.text.len(),
            Body::AssistantFinished(message) => message.text.len(),
            Body::ReasoningFinished(thought) => thought.text.len(),
            Body::ToolFinished(tool) => tool.output.len(),
            Body::System(note) => note.text.len(),
            Body::Compaction(made) => made.summary.as_ref().map_or(0, String::len),
            Body::CompactionApproved(approved) => approved.summary.as_ref().map_or(0, String::len),
            // The rest is small.
            _ => 0,
        };
        self.records.iter().map(of_record).sum()
    }
}

/// A record as it was found in a file. An inode and an end of 0 are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) inode: u64,
    pub(super) bytes: u64,
    pub(super) seq: u64,
    pub(super) time: Timestamp,
}

/// What became of a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// The index stands where the log does, as far as this stretch tells.
    Done,
    /// Lists are complete, and the text has yet to be read.
    TextBehind,
    /// Something before this stretch is missing.
    Behind,
}

/// What stands in for a `session_meta` that damage took.
pub(super) type MetaOf<'a> = &'a dyn Fn(&LogPath) -> Option<SessionMeta>;

/// Puts a stretch into the tables.
pub(super) fn put(db: &Connection, stretch: &Stretch, meta_of: MetaOf<'_>) -> rusqlite::Result<Put> {
    if stretch.start_over {
        store::forget(db, &stretch.log)?;
    }
    let mut stored = match store::find(db, &stretch.log)? {
        Some(stored) => stored,
        None if stretch.part == Part::Text || stretch.from > 0 => return Ok(Put::Behind),
        None => match meet(db, stretch, meta_of)? {
            Some(stored) => stored,
            None => return Ok(Put::Done),
        },
    };
    let put = match stretch.part {
        Part::Lists => put_lists(db, stretch, &mut stored)?,
        Part::Text => put_text(db, stretch, &mut stored)?,
        Part::Live => match put_lists(db, stretch, &mut stored)? {
            Put::Done | Put::TextBehind if stretch.from <= stored.text_seq => {
                put_text(db, stretch, &mut stored)?
            }
            behind => behind,
        },
    };
    store::save(db, &stored)?;
    if put != Put::Behind && stretch.part != Part::Text {
        put_seen(db, stretch, stored.key)?;
    }
    put_damage(db, stretch)?;
    Ok(put)
}

/// Adds a session that the index did not know. Nothing when it cannot be told what session it is.
fn meet(db: &Connection, stretch: &Stretch, meta_of: MetaOf<'_>) -> rusqlite::Result<Option<Stored>> {
    let first = stretch.records.first();
    let told = first.and_then(|record| match &record.body {
        Body::SessionMeta(meta) => Some((**meta).clone()),
        _ => None,
    });
    let (Some(meta), Some(first)) = (told.or_else(|| meta_of(&stretch.log)), first) else {
        note(db, &stretch.log, "no record tells what session this is; it is not listed")?;
        return Ok(None);
    };
    let id = meta.session_id;
    let row = SessionRow::new(meta, first.time);
    let added = match store::add(db, &stretch.log, row.clone())? {
        Some(added) => Some(added),
        // The session was known elsewhere, and is not there any more.
        None if forget_missing(db, &id.to_string())? => store::add(db, &stretch.log, row)?,
        None => None,
    };
    match added {
        Some(_) => {
            db.execute("DELETE FROM damage WHERE log = ?1 AND line = 0", [stretch.log.as_str()]).map(drop)?
        }
        None => {
            note(db, &stretch.log, &format!("another log has the session {id} too; this one is not listed"))?
        }
    }
    Ok(added)
}

/// Forgets a session whose directory was not there at the last start; whether there was one.
fn forget_missing(db: &Connection, id: &str) -> rusqlite::Result<bool> {
    let sql = "SELECT log FROM sessions WHERE id = ?1 AND missing = 1";
    let log: Option<String> = db.query_row(sql, [id], |row| row.get(0)).optional()?;
    match log.and_then(|log| LogPath::new(log).ok()) {
        Some(log) => store::forget(db, &log).map(|()| true),
        None => Ok(false),
    }
}

fn put_lists(db: &Connection, stretch: &Stretch, stored: &mut Stored) -> rusqlite::Result<Put> {
    if stretch.from > stored.next_seq {
        return Ok(Put::Behind);
    }
    let read = stored.next_seq;
    for record in stretch.records.iter().filter(|record| record.seq >= read) {
        store::put_list(db, stored, record)?;
    }
    stored.next_seq = stored.next_seq.max(stretch.next);
    Ok(text_state(stored))
}

fn put_text(db: &Connection, stretch: &Stretch, stored: &mut Stored) -> rusqlite::Result<Put> {
    if stretch.from > stored.text_seq {
        return Ok(Put::TextBehind);
    }
    // Never ahead of the lists: what was committed since comes live.
    let wanted = stored.text_seq..stored.next_seq;
    for record in stretch.records.iter().filter(|record| wanted.contains(&record.seq)) {
        store::put_text(db, stored.key, record)?;
    }
    stored.text_seq = stored.text_seq.max(stretch.next.min(stored.next_seq));
    Ok(text_state(stored))
}

fn text_state(stored: &Stored) -> Put {
    if stored.text_seq < stored.next_seq { Put::TextBehind } else { Put::Done }
}

fn put_seen(db: &Connection, stretch: &Stretch, key: i64) -> rusqlite::Result<()> {
    let Some(seen) = stretch.seen else { return Ok(()) };
    db.prepare_cached(
        "UPDATE sessions SET inode = ?2, end_bytes = ?3, end_seq = ?4, end_time = ?5 WHERE key = ?1 AND end_seq <= ?4",
    )?
    .execute(params![key, int(seen.inode), int(seen.bytes), int(seen.seq), millis(seen.time)])?;
    Ok(())
}

fn put_damage(db: &Connection, stretch: &Stretch) -> rusqlite::Result<()> {
    for damage in &stretch.damage {
        db.prepare_cached(
            "INSERT INTO damage (log, line, offset, message) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
        )?
        .execute(params![
            stretch.log.as_str(),
            int(damage.line),
            int(damage.offset),
            damage.to_string()
        ])?;
    }
    Ok(())
}

/// Something about a log that no line of it is to blame for.
fn note(db: &Connection, log: &LogPath, message: &str) -> rusqlite::Result<()> {
    let message = format!("{log}: {message}");
    db.execute(
        "INSERT INTO damage (log, line, offset, message) VALUES (?1, 0, 0, ?2) ON CONFLICT DO NOTHING",
        params![log.as_str(), message],
    )?;
    Ok(())
}
