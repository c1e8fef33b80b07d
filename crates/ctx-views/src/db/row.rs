//! What a list needs to know of a session, reduced from its records one by one.
//!
//! It follows the same records as [`ctx_session::Session`] and comes to the same state (a test holds them
//! together), but it is small whatever the session's length, so that it can be stored and taken up again in
//! the middle of a log.

use ctx_session::record::{Failure, SessionMeta, StateName, Usage};
use ctx_session::{Body, Code, Record, RunId, Timestamp};

/// Characters of the first message that stand for a title where there is none.
const PREVIEW_CHARS: usize = 120;

/// A session as lists and the start of a daemon need it.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionRow {
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
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastRun {
    pub id: RunId,
    pub is_over: bool,
}

impl SessionRow {
    /// A session of which nothing but what it is has been read.
    pub fn new(meta: SessionMeta, time: Timestamp) -> SessionRow {
        SessionRow {
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
            meta,
        }
    }

    /// The model the next run will use.
    pub fn model(&self) -> &str {
        self.model_override.as_deref().unwrap_or(&self.meta.model)
    }

    pub fn apply(&mut self, record: &Record) {
        self.updated_at = self.updated_at.max(record.time);
        self.messages += u64::from(says_something(&record.body));
        match &record.body {
            Body::User(user) => {
                if self.last_run.is_none_or(|run| run.id != user.turn_id) {
                    self.last_run = Some(LastRun { id: user.turn_id, is_over: false });
                    self.posted_at = Some(record.time);
                    self.runs += 1;
                }
                self.preview.get_or_insert_with(|| preview(&user.text));
            }
            Body::AssistantFinished(message) => {
                self.usage = self.usage.plus(message.usage.unwrap_or_default());
            }
            Body::RunFinished(_) | Body::Cancelled(_) | Body::Failed(_) => self.end_run(record.body.run()),
            Body::StateChanged(change) => self.move_to(change.to, record.time),
            Body::SessionRenamed(renamed) => self.title = Some(renamed.title.clone()),
            Body::ModelSet(set) => self.model_override = set.model.clone(),
            Body::CwdChanged(changed) => self.cwd = changed.cwd.clone(),
            Body::SessionFailed(failure) => {
                self.state = StateName::Failed;
                self.failure = Some(failure.clone());
            }
            Body::Archived(archived) => self.archived = archived.archived,
            Body::Forked(_) => self.begin_as_fork(),
            Body::SessionMeta(_)
            | Body::Context(_)
            | Body::RunCreated(_)
            | Body::AssistantStarted(_)
            | Body::ReasoningFinished(_)
            | Body::ToolStarted(_)
            | Body::ToolFinished(_)
            | Body::QueuedDiscarded(_)
            | Body::Attached(_)
            | Body::Detached(_) => {}
        }
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
            StateName::Idle
            | StateName::Running
            | StateName::Queued
            | StateName::Ended
            | StateName::Failed => to,
        };
        self.failure = match to {
            StateName::Failed if was_failed => self.failure.take(),
            StateName::Failed => Some(Failure {
                code: Code::Eio,
                reason: "unknown".to_owned(),
                message: "the record that says why is damaged".to_owned(),
            }),
            StateName::Idle | StateName::Running | StateName::Queued | StateName::Ended => None,
        };
        if to.is_over() {
            self.ended_at = Some(time);
        }
    }
}

/// Whether a record is a message: what `conversation::change` says, without building it.
fn says_something(body: &Body) -> bool {
    match body {
        Body::User(_) | Body::ToolStarted(_) | Body::ToolFinished(_) => true,
        Body::AssistantFinished(message) => !message.text.is_empty(),
        Body::SessionMeta(_)
        | Body::Context(_)
        | Body::RunCreated(_)
        | Body::AssistantStarted(_)
        | Body::ReasoningFinished(_)
        | Body::RunFinished(_)
        | Body::Cancelled(_)
        | Body::Failed(_)
        | Body::QueuedDiscarded(_)
        | Body::StateChanged(_)
        | Body::SessionRenamed(_)
        | Body::ModelSet(_)
        | Body::CwdChanged(_)
        | Body::Attached(_)
        | Body::Detached(_)
        | Body::SessionFailed(_)
        | Body::Archived(_)
        | Body::Forked(_) => false,
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
