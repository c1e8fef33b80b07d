//! What a list needs to know of a session, reduced from its records one by one.
//!
//! It is small whatever the session's length, so that the index can store it and go on from the middle of a log.
//! [`crate::Session`] contains it: the state of a session is decided here and nowhere else.

use crate::conversation;
use crate::ids::{CheckpointId, CompactionId, IssueId, RunId, Ulid};
use crate::log_facts::Missing;
use crate::record::{
    Body, CheckpointBody, Compaction, CompactionBody, Failure, MessageBody, PluginCost, Record, RunBody,
    RunKind, SessionBody, SessionMeta, StateName, Usage,
};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Characters of the first message that stand for a title where there is none.
const PREVIEW_CHARS: usize = 120;

/// Imports that are remembered of a session.
const IMPORTS_MAX: usize = 16;

/// A session as lists and the start of a daemon need it, and the part of [`crate::Session`] that does not grow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    pub meta: SessionMeta,
    pub state: StateName,
    /// With the state `failed` alone.
    pub failure: Option<Failure>,
    pub title: Option<String>,
    pub cwd: String,
    pub model_override: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// When a message was last posted.
    pub posted_at: Option<Timestamp>,
    /// The newest run and whether it is over.
    pub last_run: Option<LastRun>,
    pub runs: u64,
    /// Messages said, tool calls and their results among them.
    pub messages: u64,
    pub usage: Usage,
    /// The beginning of the first message, on one line.
    pub preview: Option<String>,
    /// Put away: not listed unless asked for.
    pub archived: bool,
    /// The issue that the session works on.
    pub bound_issue: Option<IssueId>,
    pub pause: Pause,
    /// The imports that brought it in or added to it and were not taken back, oldest first.
    #[serde(default)]
    pub imports: Vec<Ulid>,
    /// What its log has lost: set where records are missing, and nothing has repaired it.
    pub missing: Option<Missing>,
}

/// What there is to pause at.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Pause {
    /// The newest checkpoint, unless the session went on or back from there.
    pub checkpoint: Option<LastCheckpoint>,
    /// The newest compaction that was proposed, while it is undecided.
    pub proposed: Option<CompactionId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastCheckpoint {
    pub id: CheckpointId,
    pub run: RunId,
    pub compaction: Option<CompactionId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastRun {
    pub id: RunId,
    pub is_over: bool,
}

impl Overview {
    /// A session of which nothing but what it is has been read.
    pub fn new(meta: SessionMeta, time: Timestamp) -> Overview {
        Overview {
            state: StateName::Idle,
            failure: None,
            title: meta.title.clone(),
            cwd: meta.cwd.clone(),
            model_override: None,
            created_at: time,
            updated_at: time,
            ended_at: None,
            posted_at: None,
            last_run: None,
            runs: 0,
            messages: 0,
            usage: Usage::default(),
            preview: None,
            archived: false,
            bound_issue: None,
            pause: Pause::default(),
            imports: meta.import().into_iter().collect(),
            missing: None,
            meta,
        }
    }

    /// The model the next run will use.
    pub fn model(&self) -> &str {
        self.model_override.as_deref().unwrap_or(&self.meta.model)
    }

    /// A record of this seq has come where another was due.
    pub fn note_missing(&mut self, due: u64, seq: u64) {
        Missing::note(&mut self.missing, due, seq);
    }

    pub fn apply(&mut self, record: &Record) {
        self.updated_at = self.updated_at.max(record.time);
        self.messages += u64::from(conversation::said_id(&record.body).is_some());
        match &record.body {
            Body::Message(MessageBody::User(user)) => {
                if self.begin_run(user.turn_id) {
                    self.posted_at = Some(record.time);
                }
                self.preview.get_or_insert_with(|| preview(&user.text));
            }
            Body::Run(RunBody::Created(created)) => match created.kind {
                // Its message has begun it.
                RunKind::Message => {}
                RunKind::Compaction | RunKind::Continuation => {
                    self.begin_run(created.turn_id);
                }
            },
            Body::Message(MessageBody::AssistantFinished(message)) => {
                self.usage = self.usage.plus(message.usage.unwrap_or_default());
            }
            Body::Run(RunBody::Finished(_) | RunBody::Cancelled(_) | RunBody::Failed(_)) => {
                self.end_run(record.body.run())
            }
            Body::Session(SessionBody::StateChanged(change)) => self.move_to(change.to, record.time),
            Body::Session(SessionBody::Renamed(renamed)) => self.title = Some(renamed.title.clone()),
            Body::Session(SessionBody::ModelSet(set)) => self.model_override = set.model.clone(),
            Body::Session(SessionBody::CwdChanged(changed)) => self.cwd = changed.cwd.clone(),
            Body::Session(SessionBody::Failed(failure)) => {
                self.state = StateName::Failed;
                self.failure = Some(failure.clone());
            }
            Body::Session(SessionBody::Archived(archived)) => self.archived = archived.archived,
            Body::Session(SessionBody::Forked(_)) => self.begin_as_fork(),
            Body::Checkpoint(CheckpointBody::Created(created)) => {
                self.pause.checkpoint = Some(LastCheckpoint {
                    id: created.checkpoint_id,
                    run: created.turn_id,
                    compaction: created.compaction_id,
                });
            }
            Body::Checkpoint(CheckpointBody::Resumed(resumed)) => {
                self.pause.checkpoint =
                    self.pause.checkpoint.filter(|checkpoint| checkpoint.id != resumed.checkpoint_id);
            }
            // The newest one was gone back to, or gone back from.
            Body::Checkpoint(CheckpointBody::RolledBack(_)) => self.pause.checkpoint = None,
            Body::Compaction(CompactionBody::Recorded(made)) => {
                self.note_compaction(made);
            }
            Body::Compaction(CompactionBody::Approved(approved)) => self.decide(approved.compaction_id),
            Body::Compaction(CompactionBody::Rejected(rejected)) => self.decide(rejected.compaction_id),
            Body::Session(SessionBody::Bound(bound)) => self.bound_issue = Some(bound.issue_id),
            Body::Session(SessionBody::Unbound(_)) => self.bound_issue = None,
            Body::Session(SessionBody::Imported(import)) => {
                self.note_import(import.import_id);
            }
            Body::Session(SessionBody::ImportUndone(undone)) => {
                self.imports.retain(|import| *import != undone.import_id);
            }
            Body::Tool(_)
            | Body::Subagent(_)
            | Body::Approval(_)
            | Body::Terminal(_)
            | Body::Session(_)
            | Body::Run(_)
            | Body::Message(_)
            | Body::Checkpoint(_)
            | Body::Compaction(_) => {}
        }
    }

    fn note_import(&mut self, id: Ulid) {
        if self.imports.last() != Some(&id) {
            self.imports.push(id);
            // Who follows for years takes the newest back, if any.
            let old = self.imports.len().saturating_sub(IMPORTS_MAX);
            self.imports.drain(..old);
        }
    }

    fn note_compaction(&mut self, made: &Compaction) {
        let cost = made.plugin_cost.as_ref().map(PluginCost::usage);
        self.usage = self.usage.plus(cost.unwrap_or_default());
        if made.proposed {
            self.pause.proposed = Some(made.compaction_id);
        }
    }

    fn decide(&mut self, id: CompactionId) {
        self.pause.proposed = self.pause.proposed.filter(|proposed| *proposed != id);
    }

    /// Whether there is something to go on with at the newest checkpoint: its run, or a compaction to decide on.
    fn can_pause(&self) -> bool {
        let Some(at) = self.pause.checkpoint else { return false };
        let is_open = self.last_run.is_some_and(|run| run.id == at.run && !run.is_over);
        is_open || at.compaction.is_some_and(|id| self.pause.proposed == Some(id))
    }

    /// Whether the run is new: a repeated line does not begin it again.
    fn begin_run(&mut self, id: RunId) -> bool {
        let is_new = self.last_run.is_none_or(|run| run.id != id);
        if is_new {
            self.last_run = Some(LastRun { id, is_over: false });
            self.runs += 1;
        }
        is_new
    }

    fn end_run(&mut self, id: Option<RunId>) {
        if let Some(run) = self.last_run.as_mut().filter(|run| Some(run.id) == id) {
            run.is_over = true;
        }
    }

    /// What was copied from the source is history from here on.
    fn begin_as_fork(&mut self) {
        if let Some(run) = &mut self.last_run {
            run.is_over = true;
        }
        self.pause = Pause::default();
        self.bound_issue = None;
        self.imports.clear();
        self.archived = false;
        self.ended_at = None;
        self.state = StateName::Idle;
        self.failure = None;
    }

    fn move_to(&mut self, to: StateName, time: Timestamp) {
        let has_run = self.last_run.is_some_and(|run| !run.is_over);
        let was_failed = self.state == StateName::Failed;
        self.state = match to {
            // Damage took the message that would have been running: nothing is.
            StateName::Running | StateName::Queued if !has_run => StateName::Idle,
            // Or the checkpoint: there is nothing to resume.
            StateName::Paused if !self.can_pause() => StateName::Idle,
            StateName::Idle
            | StateName::Running
            | StateName::Queued
            | StateName::Paused
            | StateName::Ended
            | StateName::Failed => to,
        };
        self.failure = match to {
            StateName::Failed if was_failed => self.failure.take(),
            StateName::Failed => Some(Failure::unknown()),
            StateName::Idle
            | StateName::Running
            | StateName::Queued
            | StateName::Paused
            | StateName::Ended => None,
        };
        if to.is_over() {
            self.ended_at = Some(time);
        }
    }
}

/// The beginning of a text on one line.
fn preview(text: &str) -> String {
    let mut line = String::new();
    let mut words = text.split_whitespace();
    while let Some(word) = words.next().filter(|_| line.chars().count() < PREVIEW_CHARS) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    match line.char_indices().nth(PREVIEW_CHARS) {
        Some((end, _)) => line.get(..end).unwrap_or_default().to_owned() + "…",
        None => line,
    }
}
