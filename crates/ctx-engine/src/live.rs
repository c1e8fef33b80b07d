//! Live events of one active session: a bounded ring in memory that clients read at their own pace.
//!
//! There is no queue per client. A client has a cursor; one that falls behind the ring goes on from the log,
//! which has every finished message, so a slow reader costs nothing and misses no record. Text deltas live only
//! here; so does what happens to the bound issue, whose records are in its project's log.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{ControlFlow, Deref};
use std::str::FromStr;
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use ctx_session::project::{IssueBody, ProjectBody, ProjectRecord};
use ctx_session::record::{Caller, MessageBody, RunBody, SessionBody, ToolBody};
use ctx_session::{Body, IssueId, MessageId, Name, Record, RunId};
use serde_json::value::RawValue;
use tokio::sync::watch;

use ctx_session::port::DeltaKind;

/// The place of an event: the record's seq, and for deltas the count since it. Grows strictly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId {
    pub seq: u64,
    pub n: u64,
}

impl EventId {
    pub fn record(seq: u64) -> EventId {
        EventId { seq, n: 0 }
    }

    /// The place just before a record and everything that comes with it.
    pub fn before(seq: u64) -> Option<EventId> {
        seq.checked_sub(1).map(|seq| EventId { seq, n: u64::MAX })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.seq, self.n)
    }
}

/// Why a text is not an event id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an event id: write `<seq>.<n>`, as in the `id` of an event")]
pub struct NotAnEventId;

impl FromStr for EventId {
    type Err = NotAnEventId;

    fn from_str(text: &str) -> Result<EventId, NotAnEventId> {
        let number = |part: &str| {
            let digits = !part.is_empty() && part.len() <= 19 && part.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| part.parse::<u64>().ok()).flatten().ok_or(NotAnEventId)
        };
        let (seq, n) = text.split_once('.').ok_or(NotAnEventId)?;
        Ok(EventId { seq: number(seq)?, n: number(n)? })
    }
}

/// A durable record in memory, with the JSON in which the HTTP door has shown its message: it would be serialized anew
/// for every reader of a page.
#[derive(Debug)]
pub struct LiveRecord {
    record: Record,
    shown: OnceLock<Box<RawValue>>,
}

impl LiveRecord {
    /// A message whose JSON is longer is serialized each time, so that the ring holds little more than its limit.
    const SHOWN_BYTES_MAX: usize = 8 * 1024;

    pub fn new(record: Record) -> Arc<LiveRecord> {
        Arc::new(LiveRecord { record, shown: OnceLock::new() })
    }

    pub fn shown(&self) -> Option<&RawValue> {
        self.shown.get().map(AsRef::as_ref)
    }

    /// Keeps how its message is shown. The first form is kept: a record never changes.
    pub fn keep_shown(&self, shown: Box<RawValue>) {
        if shown.get().len() <= LiveRecord::SHOWN_BYTES_MAX {
            let _ = self.shown.set(shown);
        }
    }
}

impl Deref for LiveRecord {
    type Target = Record;

    fn deref(&self) -> &Record {
        &self.record
    }
}

impl PartialEq for LiveRecord {
    fn eq(&self, other: &LiveRecord) -> bool {
        self.record == other.record
    }
}

/// Something a client may be shown.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A durable record.
    Record(Arc<LiveRecord>),
    /// A piece of text, live only.
    Delta {
        id: EventId,
        run: RunId,
        /// The subagent that says it; none: the primary.
        caller: Option<Caller>,
        message: MessageId,
        kind: DeltaKind,
        text: Arc<str>,
    },
    /// The issue that the session is bound to has changed.
    Issue { id: EventId, project: Name, record: Arc<ProjectRecord> },
}

impl Event {
    pub fn id(&self) -> EventId {
        match self {
            Event::Record(record) => EventId::record(record.seq),
            Event::Delta { id, .. } | Event::Issue { id, .. } => *id,
        }
    }

    /// Roughly what it holds in memory.
    fn bytes(&self) -> usize {
        const OVERHEAD: usize = 96;
        OVERHEAD
            + match self {
                Event::Record(record) => record_bytes(record),
                Event::Delta { text, .. } => text.len(),
                Event::Issue { record, .. } => project_record_bytes(record),
            }
    }
}

fn record_bytes(record: &Record) -> usize {
    // Only these can be large; the rest is covered by a flat estimate.
    let text = match &record.body {
        Body::Message(MessageBody::User(user)) => user.text.len(),
        Body::Message(MessageBody::AssistantFinished(message)) => message.text.len(),
        Body::Message(MessageBody::ReasoningFinished(reasoning)) => reasoning.text.len(),
        Body::Tool(ToolBody::Finished(tool)) => tool.output.len(),
        _ => return 512,
    };
    // A short one may be there a second time, as it was shown.
    let shown = if text < LiveRecord::SHOWN_BYTES_MAX { 512 + text } else { 0 };
    256 + text + shown
}

fn project_record_bytes(record: &ProjectRecord) -> usize {
    // Only these can be large.
    512 + match &record.body {
        ProjectBody::Issue(IssueBody::Created(created)) => created.body.len(),
        ProjectBody::Issue(IssueBody::Changed(changed)) => {
            let criteria = changed.criteria.iter().flatten().map(|criterion| criterion.text.len());
            changed.body.as_ref().map_or(0, String::len) + criteria.sum::<usize>()
        }
        ProjectBody::Issue(IssueBody::TodoAdded(added)) => added.text.len(),
        ProjectBody::Issue(IssueBody::TodoChanged(changed)) => changed.note.as_ref().map_or(0, String::len),
        ProjectBody::Registry(_) | ProjectBody::Issue(_) => 0,
    }
}

/// The ring of one session, shared by its driver and its readers.
#[derive(Debug)]
pub struct Live {
    ring: RwLock<Ring>,
    /// Counts changes, so that a reader that has caught up can sleep.
    changed: watch::Sender<u64>,
}

#[derive(Debug)]
struct Ring {
    events: VecDeque<Event>,
    bytes: usize,
    bytes_max: usize,
    /// Events up to here may have been dropped; later ones are all in `events`.
    floor: EventId,
    newest: EventId,
    /// The issue that the session is bound to, as the records in the ring have it.
    bound: Option<IssueId>,
    /// The session was unloaded or is over: nothing more will come.
    closed: bool,
    /// The log failed: what follows comes from the driver that takes it up again.
    lost: bool,
}

/// What the ring has after a cursor.
#[derive(Debug, PartialEq)]
pub enum After {
    Events(Vec<Event>),
    /// The ring no longer reaches back that far: read the log up to the given seq first.
    Behind {
        from: u64,
    },
    CaughtUp,
    Closed,
    /// Everything has been seen that this ring will ever have; the session goes on in another.
    Lost,
}

impl Live {
    /// An empty ring for a session whose newest record is `seq`.
    pub fn new(seq: u64, bytes_max: usize, bound: Option<IssueId>) -> Arc<Live> {
        let start = EventId { seq, n: 0 };
        let ring = Ring {
            events: VecDeque::new(),
            bytes: 0,
            bytes_max,
            floor: start,
            newest: start,
            bound,
            closed: false,
            lost: false,
        };
        Arc::new(Live { ring: RwLock::new(ring), changed: watch::Sender::new(0) })
    }

    fn write(&self) -> RwLockWriteGuard<'_, Ring> {
        // A panic cannot leave the ring half changed: every change below is a few plain moves.
        self.ring.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self) -> RwLockReadGuard<'_, Ring> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows records that are durable.
    pub fn publish(&self, records: impl IntoIterator<Item = Record>) {
        let mut ring = self.write();
        for record in records {
            ring.push(Event::Record(LiveRecord::new(record)));
        }
        drop(ring);
        self.wake();
    }

    /// Shows a piece of text; its id counts on from the newest event.
    pub fn delta(&self, run: RunId, caller: Option<Caller>, message: MessageId, kind: DeltaKind, text: &str) {
        let mut ring = self.write();
        let id = EventId { seq: ring.newest.seq, n: ring.newest.n + 1 };
        ring.push(Event::Delta { id, run, caller, message, kind, text: text.into() });
        drop(ring);
        self.wake();
    }

    /// Shows a record of an issue, if the session is bound to it.
    pub fn issue(&self, issue: IssueId, project: &Name, record: &ProjectRecord) {
        let mut ring = self.write();
        if ring.bound != Some(issue) {
            return;
        }
        let id = EventId { seq: ring.newest.seq, n: ring.newest.n + 1 };
        ring.push(Event::Issue { id, project: project.clone(), record: Arc::new(record.clone()) });
        drop(ring);
        self.wake();
    }

    /// Nothing more will come: readers take what is left and go.
    pub fn close(&self) {
        self.write().closed = true;
        self.wake();
    }

    /// The log failed: readers take what is left and go on with the session's next ring.
    pub fn lose(&self) {
        self.write().lost = true;
        self.wake();
    }

    fn wake(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    /// A receiver that tells when to ask again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Whether anyone follows.
    pub fn is_watched(&self) -> bool {
        self.changed.receiver_count() > 0
    }

    /// The newest event so far.
    pub fn newest(&self) -> EventId {
        self.read().newest
    }

    /// Where the message that is being written begins; the newest event if none is, or its beginning was dropped.
    pub fn before_writing(&self) -> EventId {
        let ring = self.read();
        let step = ring.events.iter().rev().find_map(|event| match event {
            // What subagents write meanwhile is read whole.
            Event::Record(record) if record.body.caller().is_some() => None,
            Event::Record(record) => match &record.body {
                Body::Message(MessageBody::AssistantStarted(_)) => Some(Some(event.id())),
                Body::Message(MessageBody::AssistantFinished(_))
                | Body::Run(RunBody::Finished(_) | RunBody::Cancelled(_) | RunBody::Failed(_)) => Some(None),
                _ => None,
            },
            Event::Delta { .. } | Event::Issue { .. } => None,
        });
        step.flatten().unwrap_or(ring.newest)
    }

    /// Up to where events may have been dropped, and the newest so far.
    pub fn span(&self) -> (EventId, EventId) {
        let ring = self.read();
        (ring.floor, ring.newest)
    }

    /// Hands records over from the newest back, as far as the ring reaches: `Continue` has the seq from which on all were
    /// handed over; the log has those before it. A ring that is behind `next_seq` (a commit is about to be published)
    /// hands nothing over. Nothing is published meanwhile, so `take` should only look and keep.
    pub fn back(
        &self,
        next_seq: u64,
        take: &mut dyn FnMut(&Arc<LiveRecord>) -> ControlFlow<()>,
    ) -> ControlFlow<(), u64> {
        let ring = self.read();
        if ring.newest.seq + 1 < next_seq {
            return ControlFlow::Continue(u64::MAX);
        }
        for event in ring.events.iter().rev() {
            if let Event::Record(record) = event {
                take(record)?;
            }
        }
        ControlFlow::Continue(ring.floor.seq + 1)
    }

    /// Up to `most` events after `cursor`; None: from the very first record.
    pub fn after(&self, cursor: Option<EventId>, most: usize) -> After {
        let ring = self.read();
        let at = cursor.unwrap_or(EventId { seq: 0, n: 0 });
        if cursor.is_none() || at < ring.floor {
            let from = cursor.map_or(0, |cursor| cursor.seq);
            // With nothing newer than the cursor there is nothing to fetch either.
            if cursor.is_some() && at >= ring.newest {
                return ring.end();
            }
            return After::Behind { from };
        }
        let first = ring.events.partition_point(|event| event.id() <= at);
        let events: Vec<Event> = ring.events.iter().skip(first).take(most).cloned().collect();
        if events.is_empty() { ring.end() } else { After::Events(events) }
    }
}

impl Ring {
    /// What a reader finds who has seen everything.
    fn end(&self) -> After {
        match (self.lost, self.closed) {
            (true, _) => After::Lost,
            (false, true) => After::Closed,
            (false, false) => After::CaughtUp,
        }
    }

    fn push(&mut self, event: Event) {
        if let Event::Record(record) = &event {
            match &record.body {
                Body::Session(SessionBody::Bound(bound)) => self.bound = Some(bound.issue_id),
                Body::Session(SessionBody::Unbound(_)) => self.bound = None,
                _ => {}
            }
        }
        let id = event.id();
        debug_assert!(id > self.newest || self.events.is_empty(), "events grow strictly");
        self.newest = id;
        self.bytes += event.bytes();
        self.events.push_back(event);
        while self.bytes > self.bytes_max && self.events.len() > 1 {
            if let Some(old) = self.events.pop_front() {
                self.bytes -= old.bytes();
                self.floor = old.id();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_session::project::{TodoChanged, TodoStatus, Who};
    use ctx_session::record::{Bound, SessionRenamed, Unbound};
    use ctx_session::{Timestamp, TodoId, Ulid};

    fn record(seq: u64) -> Record {
        let body = Body::Session(SessionBody::Renamed(SessionRenamed { title: format!("t{seq}") }));
        Record { seq, time: Timestamp::from_millis(seq), body }
    }

    fn ids(after: After) -> Vec<String> {
        match after {
            After::Events(events) => events.iter().map(|event| event.id().to_string()).collect(),
            other => vec![format!("{other:?}")],
        }
    }

    fn delta(live: &Live, text: &str) {
        live.delta(RunId(Ulid(1)), None, MessageId(Ulid(2)), DeltaKind::Text, text);
    }

    #[test]
    fn a_cursor_gets_what_came_after_it_in_order() {
        let live = Live::new(3, 1 << 20, None);
        live.publish([record(4)]);
        delta(&live, "a");
        delta(&live, "b");
        live.publish([record(5)]);
        assert_eq!(ids(live.after(Some(EventId::record(3)), 10)), ["4.0", "4.1", "4.2", "5.0"]);
        assert_eq!(ids(live.after(Some(EventId { seq: 4, n: 1 }), 10)), ["4.2", "5.0"]);
        assert_eq!(live.after(Some(EventId::record(5)), 10), After::CaughtUp);
    }

    #[test]
    fn a_cursor_from_before_the_ring_is_sent_to_the_log() {
        let live = Live::new(3, 1 << 20, None);
        live.publish([record(4)]);
        assert_eq!(live.after(Some(EventId::record(1)), 10), After::Behind { from: 1 });
        assert_eq!(live.after(None, 10), After::Behind { from: 0 });
    }

    #[test]
    fn an_overfull_ring_forgets_the_oldest_and_says_so() {
        let live = Live::new(0, 2_000, None);
        for seq in 1..=20 {
            live.publish([record(seq)]);
        }
        assert_eq!(live.after(Some(EventId::record(1)), 10), After::Behind { from: 1 });
        assert_eq!(ids(live.after(Some(EventId::record(19)), 10)), ["20.0"]);
    }

    #[test]
    fn a_closed_ring_is_read_to_its_end_first() {
        let live = Live::new(0, 1 << 20, None);
        live.publish([record(1)]);
        live.close();
        assert_eq!(ids(live.after(Some(EventId::record(0)), 10)), ["1.0"]);
        assert_eq!(live.after(Some(EventId::record(1)), 10), After::Closed);
    }

    #[test]
    fn an_issue_is_shown_while_the_session_is_bound_to_it() {
        let issue = IssueId(Ulid(7));
        let who = Who { by: 1, session_id: None };
        let (todo_id, status) = (TodoId(Ulid(8)), Some(TodoStatus::Done));
        let todo = |seq, issue_id| {
            let body = ProjectBody::Issue(IssueBody::TodoChanged(TodoChanged {
                issue_id,
                todo_id,
                status,
                note: None,
                who,
            }));
            ProjectRecord { seq, time: Timestamp::from_millis(seq), body }
        };
        let slug = Name::new("music").unwrap();
        let record = |seq, body| Record { seq, time: Timestamp::from_millis(seq), body };
        let live = Live::new(3, 1 << 20, None);
        let tell = |seq, id| live.issue(id, &slug, &todo(seq, id));
        tell(0, issue);
        live.publish([record(4, Body::Session(SessionBody::Bound(Bound { issue_id: issue, by: 1 })))]);
        tell(1, issue);
        tell(2, IssueId(Ulid(9)));
        live.publish([record(5, Body::Session(SessionBody::Unbound(Unbound { issue_id: issue, by: 1 })))]);
        tell(3, issue);
        assert_eq!(ids(live.after(Some(EventId::record(3)), 10)), ["4.0", "4.1", "5.0"]);
        let live = Live::new(3, 1 << 20, Some(issue));
        live.issue(issue, &slug, &todo(4, issue));
        assert_eq!(ids(live.after(Some(EventId::record(3)), 10)), ["3.1"], "bound before it was loaded");
    }

    #[test]
    fn event_ids_read_back_and_nothing_else_does() {
        assert_eq!("12.3".parse(), Ok(EventId { seq: 12, n: 3 }));
        for bad in ["", "1", "1.", ".1", "1.2.3", "-1.0", "+1.0", "1.99999999999999999999"] {
            assert!(bad.parse::<EventId>().is_err(), "{bad}");
        }
    }
}
