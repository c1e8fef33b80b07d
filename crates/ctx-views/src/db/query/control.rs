//! What the operator did with a session: its checkpoints, compactions and approvals, oldest first.

use ctx_session::control::{Aggregate, Approval, ApprovalClock, Checkpoint, CompactionState, Edit};
use ctx_session::record::{
    ApprovalRequested, ApprovalSettled, CheckpointCreated, Compaction, CompactionFlag, PromptEdited,
};
use ctx_session::{CheckpointId, SessionId, Timestamp};
use rusqlite::Row;
use rusqlite::types::Type;
use serde::de::DeserializeOwned;

use super::pages::parsed;
use super::{Queries, Viewer, Wanted};
use crate::db::DbError;
use crate::db::store::{count_of, json, of_word, time_of};

/// A compaction as it came to be: where the operator changed a proposal, with what they changed.
#[derive(Debug, Clone, PartialEq)]
pub struct CompactionItem {
    pub made: Compaction,
    pub seq: u64,
    pub created_at: Timestamp,
    pub state: CompactionState,
    pub flag: Option<CompactionFlag>,
    pub notes: Option<String>,
    pub rolled_back: bool,
}

impl Queries<'_> {
    /// The checkpoints of a session with the edits made at them.
    pub fn checkpoints(&self, session: SessionId) -> Result<Vec<Checkpoint>, DbError> {
        let Some(key) = self.key(session)? else { return Ok(Vec::new()) };
        let sql = "SELECT id, run_id, created_by, user, reason, compaction_id, message_cursor, prompts, seq,
                     created_at, resumed_at, rolled_back, superseded_by
                   FROM checkpoints WHERE session = ? ORDER BY seq";
        let mut checkpoints = self.rows(sql, vec![key.into()], checkpoint)?;
        let sql = "SELECT checkpoint_id, target, old_hash, new_hash, user, edited_at
                   FROM prompt_edits WHERE session = ? ORDER BY seq";
        for edit in self.rows(sql, vec![key.into()], edit)? {
            let id: CheckpointId = edit.edited.checkpoint_id;
            if let Some(of) = checkpoints.iter_mut().find(|checkpoint| checkpoint.id() == id) {
                of.edits.push(edit);
            }
        }
        Ok(checkpoints)
    }

    pub fn compactions(&self, session: SessionId) -> Result<Vec<CompactionItem>, DbError> {
        let Some(key) = self.key(session)? else { return Ok(Vec::new()) };
        let sql = "SELECT id, run_id, agent_path, trigger, strategy, state, threshold_estimate, after_estimate,
                     window_upper, window_lower, superseded_message_ids, summary_message_id, summary,
                     plugins_fired, plugin_cost, fallback_occurred, fallback_reason, checkpoint_id, seq, created_at,
                     operator_flag, operator_notes, rolled_back, elided_call_ids
                   FROM compactions WHERE session = ? ORDER BY seq";
        self.rows(sql, vec![key.into()], compaction)
    }

    /// What stands for compactions that are not listed any more.
    pub fn compaction_aggregates(&self, session: SessionId) -> Result<Vec<Aggregate>, DbError> {
        let Some(key) = self.key(session)? else { return Ok(Vec::new()) };
        let sql = "SELECT count, before FROM compaction_aggregates WHERE session = ? ORDER BY seq";
        self.rows(sql, vec![key.into()], |row| {
            Ok(Aggregate { count: row.get(0)?, before: time_of(row.get(1)?) })
        })
    }

    pub fn approvals(&self, session: SessionId) -> Result<Vec<Approval>, DbError> {
        let Some(key) = self.key(session)? else { return Ok(Vec::new()) };
        let sql = format!("SELECT {APPROVAL} FROM approvals AS a WHERE a.session = ? ORDER BY a.seq");
        self.rows(&sql, vec![key.into()], approval)
    }

    /// Every approval that waits for an answer in a session that the viewer may see, the oldest first.
    pub fn open_approvals(&self, viewer: &Viewer) -> Result<Vec<(SessionId, Approval)>, DbError> {
        let mut wanted = Wanted::of(viewer);
        wanted.and("a.outcome IS NULL", []);
        let sql = format!(
            "SELECT {APPROVAL}, s.id FROM approvals AS a JOIN sessions AS s ON s.key = a.session
             WHERE {} ORDER BY a.created_at, s.id, a.seq",
            wanted.condition()
        );
        self.rows(&sql, wanted.values, |row| Ok((id(row, 14)?, approval(row)?)))
    }
}

const APPROVAL: &str = "a.id, a.run_id, a.call_id, a.tool, a.subject, a.asked_until, a.created_at, a.outcome, \
     a.settled_at, a.user, a.note, a.seq, a.expires_at, a.left_ms";

fn checkpoint(row: &Row<'_>) -> rusqlite::Result<Checkpoint> {
    let created = CheckpointCreated {
        checkpoint_id: id(row, 0)?,
        turn_id: id(row, 1)?,
        created_by: closed(row, 2)?,
        by: row.get(3)?,
        reason: row.get(4)?,
        compaction_id: maybe_id(row, 5)?,
        cursor: maybe_id(row, 6)?,
        prompts: json(row, 7)?,
    };
    Ok(Checkpoint {
        created,
        seq: count_of(row.get(8)?),
        created_at: time_of(row.get(9)?),
        edits: Vec::new(),
        resumed_at: row.get::<_, Option<i64>>(10)?.map(time_of),
        rolled_back: row.get(11)?,
        superseded_by: maybe_id(row, 12)?,
    })
}

fn edit(row: &Row<'_>) -> rusqlite::Result<Edit> {
    let edited = PromptEdited {
        checkpoint_id: id(row, 0)?,
        target: row.get(1)?,
        old_hash: row.get(2)?,
        new_hash: row.get(3)?,
        by: row.get(4)?,
    };
    Ok(Edit { edited, at: time_of(row.get(5)?) })
}

fn compaction(row: &Row<'_>) -> rusqlite::Result<CompactionItem> {
    let word: String = row.get(5)?;
    let states = [CompactionState::Proposed, CompactionState::Applied, CompactionState::Rejected];
    let state = states.into_iter().find(|state| state.as_str() == word).ok_or_else(|| strange(5, &word))?;
    let made = Compaction {
        compaction_id: id(row, 0)?,
        turn_id: id(row, 1)?,
        agent_path: row.get(2)?,
        trigger: closed(row, 3)?,
        strategy: closed(row, 4)?,
        proposed: state == CompactionState::Proposed,
        // Of use to the rules alone, which read the log.
        window: None,
        used: None,
        threshold_estimate: row.get(6)?,
        after_estimate: row.get(7)?,
        window_upper: row.get(8)?,
        window_lower: row.get(9)?,
        superseded_message_ids: json(row, 10)?,
        elided_call_ids: json(row, 23)?,
        summary_message_id: maybe_id(row, 11)?,
        summary: row.get(12)?,
        plugins_fired: json(row, 13)?,
        plugin_cost: row.get::<_, Option<String>>(14)?.and_then(|text| serde_json::from_str(&text).ok()),
        fallback_occurred: row.get(15)?,
        fallback_reason: row.get(16)?,
        checkpoint_id: maybe_id(row, 17)?,
    };
    Ok(CompactionItem {
        made,
        seq: count_of(row.get(18)?),
        created_at: time_of(row.get(19)?),
        state,
        flag: row.get::<_, Option<String>>(20)?.and_then(|word| of_word(&word)),
        notes: row.get(21)?,
        rolled_back: row.get(22)?,
    })
}

fn approval(row: &Row<'_>) -> rusqlite::Result<Approval> {
    let asked = ApprovalRequested {
        approval_id: id(row, 0)?,
        turn_id: id(row, 1)?,
        call_id: id(row, 2)?,
        tool: row.get(3)?,
        subject: row.get(4)?,
        expires_at: time_of(row.get(5)?),
    };
    let settled = match row.get::<_, Option<String>>(7)? {
        None => None,
        Some(_) => {
            let settled = ApprovalSettled {
                turn_id: asked.turn_id,
                approval_id: asked.approval_id,
                outcome: closed(row, 7)?,
                by: row.get(9)?,
                note: row.get(10)?,
            };
            Some((settled, time_of(row.get(8)?)))
        }
    };
    let clock = match (row.get::<_, Option<i64>>(12)?, row.get::<_, Option<i64>>(13)?) {
        (Some(time), _) => ApprovalClock::Until(time_of(time)),
        (None, left) => ApprovalClock::Left(left.map_or(0, count_of)),
    };
    Ok(Approval { asked, created_at: time_of(row.get(6)?), clock, settled })
}

pub(super) fn id<T>(row: &Row<'_>, at: usize) -> rusqlite::Result<T>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    parsed(&row.get::<_, String>(at)?, at)
}

pub(super) fn maybe_id<T>(row: &Row<'_>, at: usize) -> rusqlite::Result<Option<T>>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    row.get::<_, Option<String>>(at)?.map(|text| parsed(&text, at)).transpose()
}

/// A column that holds one of a closed set of words.
pub(super) fn closed<T: DeserializeOwned>(row: &Row<'_>, at: usize) -> rusqlite::Result<T> {
    let word: String = row.get(at)?;
    of_word(&word).ok_or_else(|| strange(at, &word))
}

fn strange(at: usize, word: &str) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(at, Type::Text, format!("`{word}` is no word of ours").into())
}
