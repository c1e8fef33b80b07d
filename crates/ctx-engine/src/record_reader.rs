//! Reading a session's records without loading it: forwards in pieces, backwards as far as is asked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use ctx_journal::{Entry, Journal, LOST, LogPath};
use ctx_session::conversation::{self, Gap};
use ctx_session::record::ToolBody;
use ctx_session::{Body, CallId, Code, Record, Refusal, SessionId, Timestamp};

use crate::core::{journal_refusal, read_record};
use crate::engine::Engine;
use crate::follow::Follow;
use crate::live::LiveRecord;
use crate::request::Caller;
use crate::shared::Inner;

/// A piece of a log as it stands: whole lines, each with its LF.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub text: String,
    /// Where the next piece begins; None: this was the last.
    pub next: Option<u64>,
}

/// What is met on the way back through a log.
#[derive(Debug)]
pub enum Met<'a> {
    Record(&'a Arc<LiveRecord>),
    /// Records that the log has lost, and the time of the one after them.
    Lost(Gap, Timestamp),
}

/// Where messages can begin: the record before it says what the session is.
const FIRST: u64 = 1;

impl Engine {
    /// The events of a session from now on, and of a message that is being written from its beginning.
    pub async fn follow_from_now(&self, caller: Caller, id: SessionId) -> Result<Follow, Refusal> {
        self.find(caller, id)?;
        let live = self.inner.live(id).await?;
        let from = live.before_writing();
        Ok(Follow::new(self.inner.clone(), id, live, Some(from)))
    }

    /// The log from a seq on, about `bytes` of it.
    pub async fn log_piece(
        &self,
        caller: Caller,
        id: SessionId,
        from: u64,
        bytes: usize,
    ) -> Result<Piece, Refusal> {
        self.find(caller, id)?;
        let inner = self.inner.clone();
        reading(inner, id, move |journal, log| {
            let mut piece = Piece { text: String::new(), next: None };
            let read = journal.read(log, from, &mut |entry| {
                if piece.text.len() >= bytes {
                    piece.next = Some(entry.seq);
                    return ControlFlow::Break(());
                }
                piece.text.push_str(&entry.text);
                piece.text.push('\n');
                ControlFlow::Continue(())
            });
            read.map_err(|error| journal_refusal(&error))?;
            Ok(piece)
        })
        .await
    }

    /// Hands the records from `from` to `to` over, in order.
    pub async fn records(
        &self,
        caller: Caller,
        id: SessionId,
        from: u64,
        to: Option<u64>,
    ) -> Result<Vec<Record>, Refusal> {
        self.find(caller, id)?;
        let inner = self.inner.clone();
        reading(inner, id, move |journal, log| {
            let mut records = Vec::new();
            let read = journal.read(log, from, &mut |entry| {
                if to.is_some_and(|to| entry.seq > to) {
                    return ControlFlow::Break(());
                }
                records.extend(read_record(log, &entry));
                ControlFlow::Continue(())
            });
            read.map_err(|error| journal_refusal(&error))?;
            Ok(records)
        })
        .await
    }

    /// The texts of prompts, by their hashes. One that is gone or damaged is left out.
    pub async fn prompt_texts(
        &self,
        caller: Caller,
        id: SessionId,
        hashes: BTreeSet<String>,
    ) -> Result<BTreeMap<String, String>, Refusal> {
        self.find(caller, id)?;
        let inner = self.inner.clone();
        reading(inner, id, move |journal, log| {
            let mut texts = BTreeMap::new();
            for hash in hashes {
                match journal.get_blob(log, &hash) {
                    Ok(bytes) => {
                        texts.insert(hash, String::from_utf8_lossy(&bytes).into_owned());
                    }
                    Err(error) => tracing::warn!(%log, %error, "a prompt cannot be read"),
                }
            }
            Ok(texts)
        })
        .await
    }

    /// Hands over the records of which the conversation is made, from the newest back, and says where some are lost, until
    /// `take` has had enough; gives back what it made of them. A loaded session has in memory what was recorded since it was loaded (all of it, not these alone); the rest
    /// comes from the log.
    pub async fn conversation_back<T: Send + 'static>(
        &self,
        caller: Caller,
        id: SessionId,
        mut made: T,
        take: impl Fn(&mut T, Met<'_>) -> ControlFlow<()> + Send + 'static,
    ) -> Result<T, Refusal> {
        let next_seq = self.find(caller, id)?.next_seq.unwrap_or(0);
        let before = match self.inner.live_now(id) {
            Some(live) => live.back(next_seq, &mut |record| take(&mut made, Met::Record(record))),
            None => ControlFlow::Continue(u64::MAX),
        };
        let before = match before {
            ControlFlow::Continue(before) if before > FIRST => before,
            ControlFlow::Continue(_) | ControlFlow::Break(()) => return Ok(made),
        };
        let inner = self.inner.clone();
        reading(inner, id, move |journal, log| {
            // The record above is the one that was met last; nothing is known above a log's end.
            let (mut above, mut time) = ((before < u64::MAX).then_some(before), Timestamp::default());
            let mut is_enough = false;
            let read = journal.read_back(log, &mut |entry| {
                if entry.seq >= before {
                    return ControlFlow::Continue(());
                }
                // What a repair has put in the place of lost records counts as they would.
                let from = if entry.kind == LOST { entry.seq } else { entry.seq_after() };
                let to = above.unwrap_or_else(|| entry.seq_after());
                above = Some(entry.seq);
                let is_repaired = entry.kind == LOST && to == entry.seq_after();
                let gap = Gap { records: from..to, is_repaired };
                let lost = (from < to).then(|| Met::Lost(gap, time.max(entry.time)));
                time = entry.time;
                let record =
                    conversation::may_change(&entry.kind).then(|| read_record(log, &entry)).flatten();
                let record = record.map(LiveRecord::new);
                let met = lost.into_iter().chain(record.as_ref().map(Met::Record));
                let flow = met.into_iter().try_for_each(|met| take(&mut made, met));
                is_enough = flow.is_break();
                flow
            });
            read.map_err(|error| journal_refusal(&error))?;
            if let Some(first) = above.filter(|first| *first > 0 && !is_enough) {
                let _ = take(&mut made, Met::Lost(Gap { records: 0..first, is_repaired: false }, time));
            }
            Ok(made)
        })
        .await
    }
}

impl Inner {
    /// The whole output of a tool call, from the log or from the blob that it was too large for. Blocking.
    pub(crate) fn output_of(&self, id: SessionId, call: CallId) -> Result<String, Refusal> {
        self.with_log(id, |journal, log| {
            let mut found = None;
            let mut look = |entry: Entry| match read_record(log, &entry).map(|record| record.body) {
                Some(Body::Tool(ToolBody::Finished(tool))) if tool.call_id == call => {
                    found = Some(tool);
                    ControlFlow::Break(())
                }
                // Nothing of a call stands before its start.
                Some(Body::Tool(ToolBody::Started(tool))) if tool.call_id == call => ControlFlow::Break(()),
                Some(_) | None => ControlFlow::Continue(()),
            };
            journal.read_back(log, &mut look).map_err(|error| journal_refusal(&error))?;
            let missing =
                || Refusal::new(Code::Enoent, format!("no tool call {call} with output in this session"));
            let tool = found.ok_or_else(missing)?;
            let Some(blob) = tool.blob else { return Ok(tool.output) };
            let bytes = journal.get_blob(log, &blob.sha256).map_err(|error| journal_refusal(&error))?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        })
    }
}

async fn reading<T: Send + 'static>(
    inner: Arc<Inner>,
    id: SessionId,
    read: impl FnOnce(&dyn Journal, &LogPath) -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(move || inner.with_log(id, read)).await;
    done.unwrap_or_else(|error| Err(Refusal::new(Code::Eio, format!("reading a log broke: {error}"))))
}
