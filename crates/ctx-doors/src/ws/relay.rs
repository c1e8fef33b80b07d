//! The frames of one session, numbered once for all who listen, and kept for those who come back.
//!
//! A relay lives while someone listens, and for a while after the last one went. It has one epoch; whoever comes
//! with another, or with a number that is no longer there, has missed something and is told so. Frames are bounded:
//! a listener that does not keep up falls out, and makes nobody wait.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use axum::extract::ws::Utf8Bytes;
use ctx_api::ws::{Channel, Closing, Frame, Seqs};
use ctx_engine::Event;
use ctx_session::record::{MessageBody, RunBody};
use ctx_session::{Body, MessageId, SessionId, Ulid};
use tokio::sync::watch;
use tokio::time::Instant;

use super::frames::of_event;

/// How much is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    /// At most, for one session.
    pub bytes: usize,
    /// Behind what an attached operator has been sent.
    pub tail_bytes: usize,
}

pub(super) struct Relay {
    pub session: SessionId,
    /// Whose session it is.
    pub owner: u32,
    pub epoch: Ulid,
    bounds: Bounds,
    buffer: Mutex<Buffer>,
    changed: watch::Sender<u64>,
}

struct Buffer {
    frames: VecDeque<Kept>,
    /// The place of the first frame that is kept.
    first: u64,
    bytes: usize,
    /// The newest numbers, and the newest of those that were let go.
    newest: Seqs,
    dropped: Seqs,
    /// The message that is being written.
    writing: Option<Writing>,
    end: Option<Closing>,
    guests: usize,
    /// Up to where the attached operator has been sent frames.
    sent: Option<u64>,
    /// Since when nobody listens.
    alone_since: Option<Instant>,
    /// Out of the hub: nobody comes back to it.
    gone: bool,
}

/// A message of which some was said and the end was not.
#[derive(Debug, Clone, Copy)]
struct Writing {
    message: MessageId,
    /// Where its first frame is, and the numbers before it.
    at: u64,
    before: Seqs,
}

#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub at: u64,
    pub channel: Channel,
    pub seq: u64,
    pub text: Utf8Bytes,
}

/// What there is for a listener.
#[derive(Debug)]
pub(super) enum Read {
    Frames(Vec<Kept>),
    /// Frames that were not sent yet have been let go.
    Behind,
    Nothing,
    /// Everything has been read, and nothing will follow.
    End(Closing),
}

/// Where a listener begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Start {
    pub at: u64,
    /// The newest numbers; for one who knows nothing, those before the first frame that follows.
    pub newest: Seqs,
    /// Frames up to these numbers are known to the listener.
    pub known: Seqs,
}

/// What became of the memory after a push.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Grown {
    pub bytes: isize,
    /// More came than is kept for someone who is away: what is left is of no use to them.
    pub overflowed: bool,
}

/// The text in as much memory as it needs: a text that has grown while it was written has room for as much again.
fn exactly(text: String) -> String {
    text.into_boxed_str().into_string()
}

fn of_channel(seqs: &mut Seqs, channel: Channel) -> &mut u64 {
    match channel {
        Channel::Events => &mut seqs.events,
        Channel::Output | Channel::Control => &mut seqs.output,
    }
}

impl Kept {
    /// What keeping it costs: the text, its place in a list that may be half empty, and what the allocator needs besides.
    fn bytes(&self) -> usize {
        const ALLOCATION: usize = 48;
        self.text.len() + 2 * std::mem::size_of::<Kept>() + ALLOCATION
    }

    pub fn is_known(&self, known: Seqs) -> bool {
        match self.channel {
            Channel::Events => self.seq <= known.events,
            Channel::Output | Channel::Control => self.seq <= known.output,
        }
    }
}

impl Relay {
    pub fn new(
        (session, owner): (SessionId, u32),
        epoch: Ulid,
        bounds: Bounds,
        end: Option<Closing>,
    ) -> Relay {
        let buffer = Buffer {
            frames: VecDeque::new(),
            first: 0,
            bytes: 0,
            newest: Seqs::default(),
            dropped: Seqs::default(),
            writing: None,
            end,
            guests: 0,
            sent: None,
            alone_since: None,
            gone: false,
        };
        Relay { session, owner, epoch, bounds, buffer: Mutex::new(buffer), changed: watch::Sender::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, Buffer> {
        // Every change below is a few plain moves: a panic cannot leave the buffer half changed.
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Numbers an event's frames and keeps them.
    pub fn push(&self, event: &Event) -> Grown {
        let mut buffer = self.lock();
        if buffer.gone {
            // Nobody comes back to it, and nobody would give its memory back.
            return Grown { bytes: 0, overflowed: false };
        }
        let before = buffer.bytes;
        buffer.follow_writing(event);
        for told in of_event(event) {
            let seq = of_channel(&mut buffer.newest, told.channel);
            *seq += 1;
            let seq = *seq;
            let frame = Frame { channel: told.channel, r#type: told.kind, seq, payload: &told.payload };
            // No map with keys that are not strings: serialising this cannot fail.
            let text = exactly(serde_json::to_string(&frame).unwrap_or_default()).into();
            let at = buffer.first + buffer.frames.len() as u64;
            let kept = Kept { at, channel: told.channel, seq, text };
            buffer.bytes += kept.bytes();
            buffer.frames.push_back(kept);
        }
        let overflowed = buffer.bytes > self.bounds.bytes;
        buffer.trim(self.bounds);
        let grown = Grown {
            bytes: buffer.bytes.cast_signed() - before.cast_signed(),
            overflowed: overflowed && buffer.guests == 0,
        };
        drop(buffer);
        self.wake();
        grown
    }

    /// Nothing more will come.
    pub fn end(&self, closing: Closing) {
        self.lock().end.get_or_insert(closing);
        self.wake();
    }

    /// One more listens. False: this relay is gone.
    pub fn enter(&self) -> bool {
        let mut buffer = self.lock();
        if buffer.gone {
            return false;
        }
        buffer.guests += 1;
        buffer.alone_since = None;
        drop(buffer);
        self.wake();
        true
    }

    pub fn leave(&self, now: Instant) {
        let mut buffer = self.lock();
        buffer.guests = buffer.guests.saturating_sub(1);
        if buffer.guests == 0 {
            buffer.alone_since = Some(now);
        }
        drop(buffer);
        self.wake();
    }

    /// The attached operator comes (Some: has been sent all before this place) or goes (None).
    pub fn sent(&self, at: Option<u64>) -> isize {
        let mut buffer = self.lock();
        let before = buffer.bytes;
        buffer.sent = at;
        buffer.trim(self.bounds);
        buffer.bytes.cast_signed() - before.cast_signed()
    }

    /// How much it holds.
    pub fn bytes(&self) -> usize {
        self.lock().bytes
    }

    /// Since when nobody listens; None: someone does.
    pub fn alone_since(&self) -> Option<Instant> {
        self.lock().alone_since
    }

    pub fn is_gone(&self) -> bool {
        self.lock().gone
    }

    /// Takes the relay out of use unless someone listens; gives back what it held.
    pub fn let_go(&self) -> Option<usize> {
        let mut buffer = self.lock();
        if buffer.guests > 0 || buffer.gone {
            return None;
        }
        buffer.gone = true;
        buffer.frames.clear();
        let held = std::mem::take(&mut buffer.bytes);
        drop(buffer);
        self.wake();
        Some(held)
    }

    /// Where someone begins who knows nothing: with what comes from now on, and with the beginning of a message that is
    /// being written.
    pub fn now_on(&self) -> Start {
        let buffer = self.lock();
        let end = buffer.first + buffer.frames.len() as u64;
        let whole = buffer.writing.filter(|writing| writing.at >= buffer.first);
        let (at, before) = whole.map_or((end, buffer.newest), |writing| (writing.at, writing.before));
        Start { at, newest: before, known: before }
    }

    /// Where someone goes on who knows the frames up to these numbers. None: some are not there any more.
    pub fn resume(&self, known: Seqs) -> Option<Start> {
        let buffer = self.lock();
        let whole = known.output >= buffer.dropped.output
            && known.events >= buffer.dropped.events
            && known.output <= buffer.newest.output
            && known.events <= buffer.newest.events;
        whole.then_some(Start { at: buffer.first, newest: buffer.newest, known })
    }

    /// The same, where 0 means: from the first that is still kept.
    pub fn resume_kept(&self, known: Seqs) -> Option<Start> {
        let dropped = self.lock().dropped;
        let or_first = |known: u64, first: u64| if known == 0 { first } else { known };
        self.resume(Seqs {
            output: or_first(known.output, dropped.output),
            events: or_first(known.events, dropped.events),
        })
    }

    /// Frames from a place on: up to `most`, and no more than about `bytes`.
    pub fn read(&self, at: u64, most: usize, bytes: usize) -> Read {
        let buffer = self.lock();
        let Some(skip) = at.checked_sub(buffer.first) else { return Read::Behind };
        let mut size = 0;
        let fits = |kept: &&Kept| {
            let fits = size < bytes;
            size += kept.bytes();
            fits
        };
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let frames: Vec<Kept> =
            buffer.frames.iter().skip(skip).take(most).take_while(fits).cloned().collect();
        match (frames.is_empty(), buffer.end) {
            (false, _) => Read::Frames(frames),
            (true, Some(closing)) => Read::End(closing),
            (true, None) => Read::Nothing,
        }
    }
}

impl Buffer {
    /// Keeps in mind where the message that is being written begins.
    fn follow_writing(&mut self, event: &Event) {
        match event {
            // What subagents write meanwhile is read whole.
            Event::Delta { caller: Some(_), .. } => {}
            Event::Record(record) if record.body.caller().is_some() => {}
            Event::Delta { message, .. } => {
                if self.writing.is_none_or(|writing| writing.message != *message) {
                    let at = self.first + self.frames.len() as u64;
                    self.writing = Some(Writing { message: *message, at, before: self.newest });
                }
            }
            Event::Record(record) => match &record.body {
                Body::Message(MessageBody::AssistantFinished(_))
                | Body::Run(RunBody::Finished(_) | RunBody::Cancelled(_) | RunBody::Failed(_)) => {
                    self.writing = None;
                }
                _ => {}
            },
            Event::Issue { .. } => {}
        }
    }

    /// Lets the oldest frames go that are not wanted or do not fit. Those who look on may be far behind the one who
    /// is attached.
    fn trim(&mut self, bounds: Bounds) {
        let sent_to_all = self.sent.filter(|_| self.guests <= 1);
        while let Some(first) = self.frames.front() {
            let sent = sent_to_all.is_some_and(|sent| first.at < sent) && self.bytes > bounds.tail_bytes;
            if !sent && self.bytes <= bounds.bytes {
                return;
            }
            let (channel, seq, bytes) = (first.channel, first.seq, first.bytes());
            self.frames.pop_front();
            self.first += 1;
            self.bytes -= bytes;
            *of_channel(&mut self.dropped, channel) = seq;
        }
    }
}

#[cfg(test)]
mod tests {
    use ctx_engine::LiveRecord;
    use ctx_session::record::SessionRenamed;
    use ctx_session::{Record, Timestamp};

    use super::*;

    const BOUNDS: Bounds = Bounds { bytes: 6_000, tail_bytes: 2_500 };

    fn relay() -> Relay {
        Relay::new((SessionId(Ulid(1)), 0), Ulid(2), BOUNDS, None)
    }

    fn push(relay: &Relay, seq: u64) -> Grown {
        let body = Body::from(SessionRenamed { title: "t".repeat(100) });
        relay.push(&Event::Record(LiveRecord::new(Record { seq, time: Timestamp::from_millis(seq), body })))
    }

    fn seqs(read: Read) -> Vec<u64> {
        match read {
            Read::Frames(frames) => frames.iter().map(|kept| kept.seq).collect(),
            Read::Behind | Read::Nothing | Read::End(_) => Vec::new(),
        }
    }

    #[test]
    fn who_comes_back_gets_what_was_missed_and_nothing_twice() {
        let relay = relay();
        assert!(relay.enter());
        for seq in 1..=5 {
            let _ = push(&relay, seq);
        }
        let known = Seqs { output: 0, events: 3 };
        let start = relay.resume(known).unwrap();
        let Read::Frames(frames) = relay.read(start.at, 100, 1 << 20) else { panic!("no frames") };
        let missed: Vec<u64> =
            frames.iter().filter(|kept| !kept.is_known(known)).map(|kept| kept.seq).collect();
        assert_eq!(missed, [4, 5]);
        assert_eq!(relay.resume(Seqs { output: 0, events: 6 }), None, "a number that was never given");
    }

    #[test]
    fn a_hello_of_the_seed_begins_with_what_is_kept() {
        let relay = relay();
        assert!(relay.enter());
        for seq in 1..=50 {
            let _ = push(&relay, seq);
        }
        let start = relay.resume_kept(Seqs { output: 0, events: 0 }).unwrap();
        let frames = seqs(relay.read(start.at, 100, 1 << 20));
        assert_eq!((frames.last(), frames.len() as u64), (Some(&50), 50 - start.known.events));
        assert!(relay.resume_kept(Seqs { output: 0, events: 49 }).is_some());
        assert_eq!(relay.resume_kept(Seqs { output: 0, events: 1 }), None, "it is not kept any more");
        assert_eq!(relay.resume_kept(Seqs { output: 0, events: 51 }), None, "it was never sent");
    }

    #[test]
    fn a_frame_takes_no_more_memory_than_it_is_counted_for() {
        let mut grown = String::with_capacity(4_000);
        grown.push_str(&"x".repeat(150));
        assert_eq!(exactly(grown).capacity(), 150);
        let kept = Kept { at: 0, channel: Channel::Output, seq: 1, text: "x".repeat(150).into() };
        // The text, its place among others, and the count of those who hold it, each in a chunk of the allocator.
        let costs = (150 + 16) + 2 * std::mem::size_of::<Kept>() + 32;
        assert!(kept.bytes() * 3 >= costs * 2, "{} for {costs}", kept.bytes());
    }

    #[test]
    fn frames_that_were_let_go_are_a_gap() {
        let relay = relay();
        assert!(relay.enter());
        for seq in 1..=50 {
            let _ = push(&relay, seq);
        }
        assert_eq!(relay.resume(Seqs { output: 0, events: 1 }), None);
        assert!(relay.resume(Seqs { output: 0, events: 49 }).is_some());
        assert!(matches!(relay.read(0, 10, 1 << 20), Read::Behind), "a slow listener has fallen out");
    }

    #[test]
    fn what_an_attached_operator_was_sent_is_kept_a_while_only() {
        let relay = relay();
        assert!(relay.enter());
        for seq in 1..=8 {
            let _ = push(&relay, seq);
        }
        let all = relay.now_on().at;
        assert!(relay.sent(Some(all)) < 0);
        assert_eq!(relay.resume(Seqs { output: 0, events: 1 }), None);
        assert!(relay.resume(Seqs { output: 0, events: 7 }).is_some());
    }

    #[test]
    fn too_much_for_someone_who_is_away_lets_the_relay_go() {
        let relay = relay();
        assert!(relay.enter());
        relay.leave(Instant::now());
        assert!((1..=50).map(|seq| push(&relay, seq)).any(|grown| grown.overflowed));
        assert!(relay.let_go().is_some());
        assert!(!relay.enter());
        assert_eq!(push(&relay, 51), Grown { bytes: 0, overflowed: false }, "and holds nothing more");
    }

    #[test]
    fn the_end_comes_after_every_frame() {
        let relay = relay();
        let _ = push(&relay, 1);
        relay.end(Closing::SessionEnded);
        assert_eq!(seqs(relay.read(0, 10, 1 << 20)), [1]);
        assert!(matches!(relay.read(1, 10, 1 << 20), Read::End(Closing::SessionEnded)));
    }
}
