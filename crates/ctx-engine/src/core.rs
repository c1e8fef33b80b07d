//! A loaded session: its state, its log and its files, and the one way in which they change together.
//!
//! Blocking and free of tasks and channels: the driver owns one and sends it to a blocking thread for each
//! commit. The order is always: append, then apply, then show the files. Nobody is told before that.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use ctx_journal::{AppendError, Journal, JournalError, LogPath, LogWriter, Owner};
use ctx_session::command::{Interruption, UnderWay};
use ctx_session::conversation::Conversation;
use ctx_session::image::{Image, NewImage};
use ctx_session::record::{Context, Decoded, Failure, SessionBody, SessionMeta, Source};
use ctx_session::rules::{Added, Given, Known, Marked};
use ctx_session::{Body, Command, IdSource, Limits, Record, Refusal, Session, Timestamp, Ulid};
use ctx_views::files::{RunFile, SessionFiles};

use crate::followers::Behind;
use ctx_session::port::{Instructions, Recorded};

/// The kinds of source that an agent's own prompt and an MCP server are; every other one is an instruction file.
const PROMPT: &str = "prompt";
const MCP_SERVER: &str = "mcp_server";

/// A session in memory with everything needed to change it.
pub struct Core {
    pub session: Session,
    pub conversation: Conversation,
    log: LogPath,
    journal: Arc<dyn Journal>,
    writer: Box<dyn LogWriter>,
    /// None for a temp session.
    files: Option<SessionFiles>,
    /// Told of every commit; None for a temp session, which is in no list.
    behind: Option<Arc<Behind>>,
}

/// Why a commit did not happen.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// Nothing was written; the log is as it was.
    #[error(transparent)]
    Full(Refusal),
    /// The log cannot be trusted until it is taken up again.
    #[error(transparent)]
    Lost(Refusal),
}

impl CommitError {
    pub fn refusal(&self) -> &Refusal {
        match self {
            CommitError::Full(refusal) | CommitError::Lost(refusal) => refusal,
        }
    }
}

/// What a log that could not be opened means for whoever asked.
pub fn journal_refusal(error: &JournalError) -> Refusal {
    let refusal = Refusal::new(error.code(), error.to_string());
    match error {
        // The one fault of a log that is the caller's: a place to fork from.
        JournalError::InsideCommand { .. } => refusal.blaming("resume_from"),
        _ => refusal,
    }
}

fn append_error(error: AppendError) -> CommitError {
    let refusal = Refusal::new(error.code(), error.to_string());
    match error {
        AppendError::NoSpace { .. } | AppendError::TooLarge { .. } | AppendError::BadBody { .. } => {
            CommitError::Full(refusal)
        }
        AppendError::Poisoned { .. } | AppendError::Conflict { .. } => CommitError::Lost(refusal),
    }
}

/// Reads a log's entry as a record; what is unknown or malformed is passed over with a warning.
pub fn read_record(log: &LogPath, entry: &ctx_journal::Entry) -> Option<Record> {
    match Body::decode(&entry.kind, &entry.text) {
        Decoded::Known(body) => Some(Record { seq: entry.seq, time: entry.time, body }),
        Decoded::Unknown => None,
        Decoded::Malformed(why) => {
            tracing::warn!(%log, line = entry.line, kind = entry.kind, why, "record does not fit its type");
            None
        }
    }
}

impl Core {
    /// A session that begins now.
    pub fn create(
        journal: Arc<dyn Journal>,
        log: LogPath,
        owner: Owner,
        time: Timestamp,
        meta: &SessionMeta,
        open_files: impl FnOnce() -> Option<SessionFiles>,
        behind: Option<Arc<Behind>>,
    ) -> Result<Core, JournalError> {
        let body = Body::Session(SessionBody::Meta(Box::new(meta.clone())));
        let writer = journal.create(&log, owner, time, &[body.to_json()])?;
        let session = Session::new(meta.clone(), 0, time);
        let files = open_files();
        let conversation = Conversation::default();
        let mut core = Core { session, conversation, log, journal, writer, files, behind };
        let first = [Record { seq: 0, time, body }];
        core.show(&first);
        core.tell_behind(&first);
        Ok(core)
    }

    /// A session as its log tells it. What it is, `meta` says: the first record may be damaged.
    pub fn open(
        journal: Arc<dyn Journal>,
        log: LogPath,
        now: Timestamp,
        meta: &SessionMeta,
        mut files: Option<SessionFiles>,
        behind: Option<Arc<Behind>>,
    ) -> Result<Core, JournalError> {
        let mut session: Option<Session> = None;
        let mut conversation = Conversation::default();
        let mut last = None;
        let mut is_whole = true;
        let opened = journal.open(&log, now, &mut |entry| {
            let entry = last.insert(entry);
            let Some(record) = read_record(&log, entry) else {
                is_whole &= !matches!(Body::decode(&entry.kind, &entry.text), Decoded::Malformed(_));
                // What we do not know still holds its place.
                if let Some(session) = &mut session {
                    session.next_seq = entry.seq_after();
                }
                return;
            };
            let session = session.get_or_insert_with(|| Session::new(meta.clone(), record.seq, record.time));
            session.apply(&record);
            conversation.apply(&record);
            if let Some(files) = &mut files {
                files.compare(&record);
            }
        })?;
        // Until it is repaired, the files may have what a damaged log has lost.
        if let Some(files) = files.as_mut().filter(|_| !is_whole || !opened.damage.is_empty()) {
            files.believe();
        }
        for damage in &opened.damage {
            tracing::warn!(%log, %damage, "the log is damaged here; `ctx repair` can fix it");
        }
        let mut session = session.unwrap_or_else(|| Session::new(meta.clone(), 0, now));
        session.next_seq = opened.writer.next_seq();
        if let Some(behind) = &behind {
            behind.opened(&log, session.id(), last.as_ref());
        }
        let writer = opened.writer;
        let mut core = Core { session, conversation, log, journal, writer, files, behind };
        core.show(&[]);
        Ok(core)
    }

    pub fn log(&self) -> &LogPath {
        &self.log
    }

    /// Whether the session's files show less than its log has.
    pub fn is_stale(&self) -> bool {
        self.files.as_ref().is_some_and(SessionFiles::is_stale)
    }

    /// Tries to bring the files up to the log.
    pub fn catch_up(&mut self) {
        self.show(&[]);
    }

    fn tell_behind(&self, records: &[Record]) {
        if let Some(behind) = &self.behind {
            behind.committed(&self.log, &self.session, records, self.writer.end());
        }
    }

    /// Follows its directory to another name.
    pub fn follow_to(&mut self, log: LogPath) {
        if let Some(files) = &mut self.files {
            files.moved_to(Path::new(log.dir()));
        }
        self.log = log;
    }

    /// Makes bodies durable, applies them and shows them. On error nothing has changed.
    pub fn commit(&mut self, bodies: Vec<Body>, time: Timestamp) -> Result<Vec<Record>, CommitError> {
        let times = vec![time; bodies.len()];
        self.commit_dated(bodies, &times)
    }

    /// The same with a time for each record.
    pub fn commit_dated(
        &mut self,
        bodies: Vec<Body>,
        times: &[Timestamp],
    ) -> Result<Vec<Record>, CommitError> {
        if bodies.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.session.next_seq;
        let lines: Vec<String> = bodies.iter().map(Body::to_json).collect();
        let committed = self.writer.append_dated(first, times, &lines).map_err(append_error)?;
        debug_assert_eq!(committed.first, first, "the log is where the session thinks it is");
        let records: Vec<Record> = (first..)
            .zip(times)
            .zip(bodies)
            .map(|((seq, time), body)| Record { seq, time: *time, body })
            .collect();
        for record in &records {
            self.session.apply(record);
            self.conversation.apply(record);
        }
        self.show(&records);
        self.tell_behind(&records);
        Ok(records)
    }

    /// The records that the log has, by what identifies them.
    pub fn known(&self) -> Result<Known, Refusal> {
        let mut known = Known::default();
        self.each_record(|record| known.add(record.time, &record.body))?;
        Ok(known)
    }

    /// What taking back what an import added does.
    pub fn added_by(&self, import: Ulid) -> Result<Marked, Refusal> {
        let mut added = Added::by(import);
        self.each_record(|record| added.apply(&record.body))?;
        Ok(added.marked())
    }

    fn each_record(&self, mut with: impl FnMut(&Record)) -> Result<(), Refusal> {
        let read = self.journal.read(&self.log, 0, &mut |entry| {
            if let Some(record) = read_record(&self.log, &entry) {
                with(&record);
            }
            ControlFlow::Continue(())
        });
        read.map(drop).map_err(|error| journal_refusal(&error))
    }

    /// Settles what an earlier daemon, or a failing disk, left open. A session that is known to be over stays so.
    pub fn recover(
        &mut self,
        cause: Interruption,
        now: Timestamp,
        ids: &mut IdSource,
        limits: &Limits,
        was_over: bool,
    ) -> Result<Vec<Record>, CommitError> {
        let mut given = Given { now, ids, limits };
        let under_way = self.answer_under_way();
        let mut settled = self.perform(&Command::Recover { cause, under_way }, &mut given)?;
        // Damage took the record that ended it; its name may be another's by now.
        if was_over && !self.session.state.name().is_over() {
            let end = Command::End { by: self.session.meta.owner, partial: None };
            settled.extend(self.perform(&end, &mut given)?);
        }
        Ok(settled)
    }

    /// Writes down that the session has failed.
    pub fn fail(
        &mut self,
        failure: Failure,
        now: Timestamp,
        ids: &mut IdSource,
        limits: &Limits,
    ) -> Result<(), CommitError> {
        let mut given = Given { now, ids, limits };
        self.perform(&Command::Fail { failure, partial: None }, &mut given).map(drop)
    }

    fn perform(&mut self, command: &Command, given: &mut Given<'_>) -> Result<Vec<Record>, CommitError> {
        let decision = self.session.decide(command, given).map_err(CommitError::Full)?;
        self.commit(decision.records, given.now)
    }

    pub fn put_blob(&self, bytes: &[u8]) -> Result<ctx_session::record::BlobRef, Refusal> {
        let blob = self.journal.put_blob(&self.log, bytes).map_err(|error| journal_refusal(&error))?;
        Ok(ctx_session::record::BlobRef { sha256: blob.sha256, size: blob.size })
    }

    /// Stores the images of a message.
    pub fn put_images(&self, images: Vec<NewImage>) -> Result<Vec<Image>, Refusal> {
        let put = |image: NewImage| {
            let blob = self.put_blob(&image.bytes)?;
            Ok(Image { mime: image.mime, sha256: blob.sha256, size: blob.size })
        };
        images.into_iter().map(put).collect()
    }

    /// Reads a blob later, on another thread.
    pub fn blob_reader(&self, sha256: String) -> impl FnOnce() -> Result<Vec<u8>, Refusal> + Send + use<> {
        let (journal, log) = (self.journal.clone(), self.log.clone());
        move || journal.get_blob(&log, &sha256).map_err(|error| journal_refusal(&error))
    }

    /// The texts of prompts, by target. One that is gone is done without, with a warning.
    pub fn read_prompts(
        &self,
        prompts: &[ctx_session::record::PromptRef],
    ) -> Result<Vec<(String, String)>, Refusal> {
        let mut texts = Vec::with_capacity(prompts.len());
        for prompt in prompts {
            match self.journal.get_blob(&self.log, &prompt.hash) {
                Ok(bytes) => {
                    texts.push((prompt.target.clone(), String::from_utf8_lossy(&bytes).into_owned()));
                }
                Err(error) => tracing::warn!(log = %self.log, %error, "an edited prompt cannot be read"),
            }
        }
        Ok(texts)
    }

    /// What a run began under, with the texts that its record names.
    pub fn recorded(&self, context: &Context) -> Recorded {
        // The prompt is among the sources too, and comes by its own way: it may have been edited. A server has no text.
        let files =
            context.sources.iter().filter(|source| ![PROMPT, MCP_SERVER].contains(&source.kind.as_str()));
        let text = |source: &Source| {
            if source.error.is_some() {
                return Some(Instructions { source: source.clone(), text: String::new() });
            }
            let bytes = self.journal.get_blob(&self.log, &source.hash).ok()?;
            Some(Instructions { source: source.clone(), text: String::from_utf8(bytes).ok()? })
        };
        Recorded {
            policy: context.policy.clone(),
            approvals: context.approvals,
            instructions: files.map(text).collect(),
        }
    }

    /// Where what a model is sent is shown; None for a temp session.
    pub fn pack_file(&self) -> Option<RunFile> {
        self.files.as_ref().map(SessionFiles::pack_file)
    }

    /// Where the answer that comes just now is kept; None for a temp session.
    pub fn answer_file(&self) -> Option<RunFile> {
        self.files.as_ref().map(SessionFiles::answer_file)
    }

    /// The text of an answer that was shown to clients and is not in the log.
    fn answer_under_way(&self) -> Option<UnderWay> {
        self.session.current_run()?;
        let kept: UnderWay = serde_json::from_slice(&self.answer_file()?.read()?).ok()?;
        (!self.conversation.has(kept.message_id.0)).then_some(kept)
    }

    /// A view that fails never fails a session: it is caught up from the log with the next commit.
    fn show(&mut self, records: &[Record]) {
        let Some(files) = &mut self.files else { return };
        let was_stale = files.is_stale();
        let shown = if was_stale {
            files.catch_up_from(&*self.journal, &self.log, &self.session)
        } else {
            files.show(&self.session, records)
        };
        if let Err(error) = shown {
            tracing::warn!(log = %self.log, %error, "session files are behind; they are caught up later");
        }
    }
}
