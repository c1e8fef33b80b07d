//! A stretch of a log on its way into the tables, and how it is put there.
//!
//! Every log is read twice: for its lists (the session's row and its runs), and later for its text (messages,
//! tool calls, full text). How far each has come is stored in the session's row, so that stretches may come from
//! live commits and from readers at once, overlap, or be lost: what has been read is passed over, and a hole
//! means that the log has to be read again from where the index stands. A long log comes in several stretches: its row
//! is shown as it was, or not at all, until the last of them.
//!
//! A log may also become another under the index: cut short, replaced by an older copy, or removed and begun anew.
//! So what has been read is known by more than a number: by the session's id, and by a print of the last record.
//! A stretch that does not go on from there makes the index forget the session and read its log from the beginning.
//! What this cannot see is a change before the last record that leaves everything after it in its place and its
//! length, made by something else than ctx; `ctx reindex` reads everything again.

use std::ops::Range;

use ctx_journal::{Damage, LogPath};
use ctx_session::record::{CompactionBody, MessageBody, SessionBody, SessionMeta, ToolBody};
use ctx_session::{Body, Record, SessionId, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use serde_json::Value;

use super::MetaOf;
use super::column::{Print, int, millis};
use super::store::{self, Stored};
use ctx_session::Overview;

/// What a stretch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Part {
    Lists,
    Text,
    /// Committed just now: both, as far as the text is not behind.
    Live,
    /// Nothing of its own: where a log stands that was just taken up.
    Opened,
}

/// Everything that a log has in `from..next`.
#[derive(Debug)]
pub(super) struct Stretch {
    pub(super) log: LogPath,
    /// Whose log it is, where that is known.
    pub(super) id: Option<SessionId>,
    /// The row that it was read for; none where it was not read for one.
    pub(super) key: Option<i64>,
    pub(super) part: Part,
    pub(super) from: u64,
    pub(super) next: u64,
    pub(super) records: Vec<Record>,
    /// Stretches of seqs that no line of the log has.
    pub(super) lost: Vec<Range<u64>>,
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
            Body::Message(MessageBody::User(user)) => user.text.len(),
            Body::Message(MessageBody::AssistantFinished(message)) => message.text.len(),
            Body::Message(MessageBody::ReasoningFinished(thought)) => thought.text.len(),
            Body::Tool(ToolBody::Started(tool)) => value_bytes(&tool.input),
            Body::Tool(ToolBody::Finished(tool)) => tool.output.len(),
            Body::Message(MessageBody::System(note)) => note.text.len(),
            Body::Compaction(CompactionBody::Recorded(made)) => made.summary.as_ref().map_or(0, String::len),
            Body::Compaction(CompactionBody::Approved(approved)) => {
                approved.summary.as_ref().map_or(0, String::len)
            }
            // The rest is small.
            _ => 0,
        };
        self.records.iter().map(of_record).sum()
    }
}

/// About how long a value is as text.
fn value_bytes(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 4,
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(value_bytes).sum(),
        Value::Object(fields) => fields.iter().map(|(key, value)| key.len() + value_bytes(value)).sum(),
    }
}

/// A record as it was found in a file. An inode and an end of 0 are not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) inode: u64,
    pub(super) bytes: u64,
    pub(super) seq: u64,
    pub(super) time: Timestamp,
    pub(super) print: Print,
}

/// How a stretch goes together with what the index has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    /// It goes on from there, or is in it already.
    Continues,
    /// It may or may not be in it already: the log has to be looked at.
    Unsure,
    /// It was read for a row that is not there any more.
    Late,
    /// The log is not the one that was read.
    Other,
}

/// Decides that. Pure.
fn fit(stretch: &Stretch, stored: &Stored) -> Fit {
    if stretch.id.is_some_and(|id| id != stored.row.meta.session_id) {
        return Fit::Other;
    }
    if stretch.key.is_some_and(|key| key != stored.key) {
        return Fit::Late;
    }
    match stretch.part {
        // Compared when it was read.
        Part::Lists | Part::Text => Fit::Continues,
        Part::Opened | Part::Live if stretch.from > stored.next_seq => Fit::Continues,
        Part::Opened => {
            let same = stretch.seen.map(|seen| (seen.seq, seen.print)) == stored.last;
            if same || stored.next_seq == 0 { Fit::Continues } else { Fit::Other }
        }
        Part::Live if stretch.from == stored.next_seq => Fit::Continues,
        Part::Live => {
            let again = stored.last.and_then(|(seq, print)| {
                let record = stretch.records.iter().find(|record| record.seq == seq)?;
                Some(Print::of(record) == print)
            });
            match again {
                Some(true) => Fit::Continues,
                Some(false) => Fit::Other,
                None => Fit::Unsure,
            }
        }
    }
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

/// What is asked about a log that the tables do not tell.
pub(super) struct Outside<'a> {
    pub meta_of: &'a MetaOf,
    /// Whether it is still where it was read.
    pub is_there: &'a dyn Fn(&LogPath) -> bool,
}

/// Puts a stretch into the tables.
pub(super) fn put(db: &Connection, stretch: &Stretch, outside: &Outside<'_>) -> rusqlite::Result<Put> {
    let mut is_other = false;
    let mut before = None;
    let known = match store::find(db, &stretch.log)? {
        None => None,
        Some(stored) if stretch.start_over => {
            store::forget(db, &stretch.log)?;
            before = Some(stored.row.meta);
            None
        }
        Some(stored) => match fit(stretch, &stored) {
            Fit::Continues => Some(stored),
            Fit::Unsure | Fit::Late => return Ok(Put::Behind),
            Fit::Other => {
                store::forget(db, &stretch.log)?;
                is_other = true;
                None
            }
        },
    };
    let mut stored = match known {
        Some(stored) => stored,
        None if stretch.part == Part::Opened || stretch.part == Part::Text || stretch.from > 0 => {
            return Ok(Put::Behind);
        }
        // It moved or was purged after it was read: what was purged must not come back.
        None if !(outside.is_there)(&stretch.log) => return Ok(Put::Done),
        None => match meet(db, stretch, before, outside)? {
            Some(stored) => stored,
            None => return Ok(Put::Done),
        },
    };
    let read = stored.next_seq;
    let put = match stretch.part {
        Part::Opened if stretch.from > stored.next_seq => return Ok(Put::Behind),
        Part::Opened => return Ok(text_state(&stored)),
        Part::Lists => put_lists(db, stretch, &mut stored)?,
        Part::Text => put_text(db, stretch, &mut stored)?,
        Part::Live => match put_lists(db, stretch, &mut stored)? {
            Put::Done | Put::TextBehind if stretch.from <= stored.text_seq => {
                put_text(db, stretch, &mut stored)?
            }
            behind => behind,
        },
    };
    stored.is_reading = match stretch.part {
        Part::Lists if put != Put::Behind => {
            !stretch.is_last && (stored.is_reading || stored.next_seq > read)
        }
        // A commit was the end of the log when it came.
        Part::Live if stored.next_seq > read => false,
        Part::Lists | Part::Live | Part::Text | Part::Opened => stored.is_reading,
    };
    store::save(db, &stored)?;
    if put != Put::Behind && stretch.part != Part::Text {
        put_seen(db, stretch, stored.key)?;
    }
    put_damage(db, stretch)?;
    // A reader may be in the middle of what the log was: it has to be looked at once more.
    Ok(if is_other { Put::Behind } else { put })
}

/// Adds a session that the index did not know. Nothing when it cannot be told what session it is.
fn meet(
    db: &Connection,
    stretch: &Stretch,
    before: Option<SessionMeta>,
    outside: &Outside<'_>,
) -> rusqlite::Result<Option<Stored>> {
    let first = stretch.records.first();
    let told = first.and_then(|record| match &record.body {
        Body::Session(SessionBody::Meta(meta)) => Some((**meta).clone()),
        _ => None,
    });
    let (Some(meta), Some(first)) = ((outside.meta_of)(&stretch.log, told, before), first) else {
        note(db, &stretch.log, "no record names the session; it is not listed")?;
        return Ok(None);
    };
    let id = meta.session_id;
    let row = Overview::new(meta, first.time);
    let added = match store::add(db, &stretch.log, row.clone())? {
        Some(added) => Some(added),
        // The session was known elsewhere, and is not there any more.
        None if forget_gone(db, &id.to_string(), outside)? => store::add(db, &stretch.log, row)?,
        None => None,
    };
    match added {
        Some(_) => {
            db.execute("DELETE FROM damage WHERE log = ?1 AND line = 0", [stretch.log.as_str()]).map(drop)?
        }
        // A session that moved while its log was read is no second one.
        None if !(outside.is_there)(&stretch.log) => {}
        None => {
            note(db, &stretch.log, &format!("another log has the session {id} too; this one is not listed"))?
        }
    }
    Ok(added)
}

/// Forgets a session whose directory was not there at the last start, or moved while its log was read; whether there
/// was one.
fn forget_gone(db: &Connection, id: &str, outside: &Outside<'_>) -> rusqlite::Result<bool> {
    let sql = "SELECT log, missing FROM sessions WHERE id = ?1";
    let found: Option<(String, bool)> =
        db.query_row(sql, [id], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((log, is_missing)) = found else { return Ok(false) };
    match LogPath::new(log) {
        Ok(log) if is_missing || !(outside.is_there)(&log) => store::forget(db, &log).map(|()| true),
        Ok(_) | Err(_) => Ok(false),
    }
}

fn put_lists(db: &Connection, stretch: &Stretch, stored: &mut Stored) -> rusqlite::Result<Put> {
    if stretch.from > stored.next_seq {
        return Ok(Put::Behind);
    }
    let read = stored.next_seq;
    for lost in stretch.lost.iter().filter(|lost| lost.end > read) {
        stored.row.note_missing(lost.start.max(read), lost.end);
    }
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
        "UPDATE sessions SET inode = ?2, end_bytes = ?3, end_seq = ?4, end_time = ?5, end_print = ?6
         WHERE key = ?1 AND end_seq <= ?4",
    )?
    .execute(params![
        key,
        int(seen.inode),
        int(seen.bytes),
        int(seen.seq),
        millis(seen.time),
        seen.print.0
    ])?;
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
