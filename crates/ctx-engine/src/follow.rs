//! Following a session: its events from a place on, live where the ring has them, from the log where it has not.
//!
//! No gap and no repeat: ids grow strictly, every record comes, and deltas come while they are in memory.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use ctx_session::{Refusal, SessionId};
use tokio::sync::watch;

use crate::core::{journal_refusal, read_record};
use crate::live::{After, Event, EventId, Live, LiveRecord};
use crate::shared::Inner;

/// Events fetched at a time, from the ring or the log.
const BATCH: usize = 256;
/// And about so many bytes of the log at a time, so that a reader that stands still holds little.
const BATCH_BYTES: usize = 256 * 1024;

/// A reader of one session's events, at its own pace.
pub struct Follow {
    inner: Arc<Inner>,
    id: SessionId,
    live: Arc<Live>,
    changes: watch::Receiver<u64>,
    cursor: Option<EventId>,
    fetched: VecDeque<Event>,
    skipped: bool,
}

impl Follow {
    pub(crate) fn new(inner: Arc<Inner>, id: SessionId, live: Arc<Live>, after: Option<EventId>) -> Follow {
        let changes = live.changes();
        Follow { inner, id, live, changes, cursor: after, fetched: VecDeque::new(), skipped: false }
    }

    /// The next event; None when the session is over or was unloaded and everything has been seen.
    pub async fn next(&mut self) -> Result<Option<Event>, Refusal> {
        loop {
            if let Some(event) = self.fetched.pop_front() {
                self.cursor = Some(event.id());
                return Ok(Some(event));
            }
            self.changes.mark_unchanged();
            match self.live.after(self.cursor, BATCH) {
                After::Events(events) => self.fetched.extend(events),
                After::Behind { from } => {
                    // The log has every record and no delta; from the first record on none was to come.
                    self.skipped |= self.cursor.is_some();
                    self.fetch_from_log(from).await?;
                }
                After::CaughtUp => {
                    if self.changes.changed().await.is_err() {
                        return Ok(None);
                    }
                }
                After::Closed => return Ok(None),
                After::Lost => {
                    self.live = self.inner.live(self.id).await?;
                    self.changes = self.live.changes();
                }
            }
        }
    }

    /// Whether deltas may have been passed over because the reader was too slow for the ring.
    pub fn has_skipped(&self) -> bool {
        self.skipped
    }

    /// Whether everything there is has been handed out.
    pub fn is_caught_up(&self) -> bool {
        let nothing_new = match self.live.after(self.cursor, 1) {
            After::CaughtUp | After::Closed => true,
            After::Events(_) | After::Behind { .. } | After::Lost => false,
        };
        self.fetched.is_empty() && nothing_new
    }

    /// Only what has been published: the log may already have a record that its clients may not see yet.
    async fn fetch_from_log(&mut self, from: u64) -> Result<(), Refusal> {
        let (floor, newest) = self.live.span();
        let newest = newest.seq;
        let (inner, id, cursor) = (self.inner.clone(), self.id, self.cursor);
        let read = tokio::task::spawn_blocking(move || read_log(&inner, id, from, newest, cursor));
        let events =
            read.await.map_err(|error| Refusal::new(ctx_session::Code::Eio, error.to_string()))??;
        if events.is_empty() {
            // The log has nothing more, so only deltas were dropped. A message of which some are missing is shown
            // when it is finished, not with a hole.
            let skipped = if floor.n > 0 { EventId { seq: floor.seq, n: u64::MAX } } else { floor };
            self.cursor = Some(self.cursor.map_or(skipped, |cursor| cursor.max(skipped)));
        }
        self.fetched.extend(events);
        Ok(())
    }
}

fn read_log(
    inner: &Inner,
    id: SessionId,
    from: u64,
    newest: u64,
    cursor: Option<EventId>,
) -> Result<Vec<Event>, Refusal> {
    inner.with_log(id, |journal, log| {
        let mut events = Vec::new();
        let mut bytes = 0;
        let read = journal.read(log, from, &mut |entry| {
            if entry.seq > newest || events.len() >= BATCH || bytes > BATCH_BYTES {
                return ControlFlow::Break(());
            }
            bytes += entry.text.len();
            if cursor.is_none_or(|cursor| EventId::record(entry.seq) > cursor)
                && let Some(record) = read_record(log, &entry)
            {
                events.push(Event::Record(LiveRecord::new(record)));
            }
            ControlFlow::Continue(())
        });
        read.map_err(|error| journal_refusal(&error))?;
        Ok(events)
    })
}
