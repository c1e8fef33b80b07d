//! What waits to be written and to be read: the one place where doors of the index meet its threads.
//!
//! Live work comes first and never waits: when there is too much of it, it is dropped and read from the log
//! later. What readers have prepared is bounded, and they wait for room. Lists are read before any text.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ctx_journal::LogPath;
use ctx_session::Name;
use ctx_session::record::Failure;

use super::issues::{self, Issues};
use super::stretch::{Part, Put, Stretch};

/// Live work that may wait, in pieces and in bytes of text; more is dropped and read from the log instead.
const LIVE_MAX: usize = 4096;
const LIVE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Prepared stretches that may wait; readers wait for room.
const PREPARED_MAX: usize = 8;
/// How long the first commit waits for others to be written with it.
const GATHER: Duration = Duration::from_millis(25);
/// How soon a log that could not be written is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How often a writer without work looks whether someone else did something to its file.
const LOOK: Duration = Duration::from_secs(2);

/// Work for the writer, in the order in which it was asked for.
pub(super) enum Work {
    Stretch(Stretch),
    Moved {
        from: LogPath,
        to: LogPath,
    },
    Removed(LogPath),
    Missing(Vec<LogPath>),
    /// A session has failed, and its log does not say so.
    Broken(LogPath, Failure),
    Issues(Issues),
    /// These projects are all there are.
    Projects(Vec<Name>),
    /// Throw the database away and read everything again.
    Rebuild,
    /// Tells when everything before it is written.
    Flush(SyncSender<()>),
}

/// Work for a reader.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Job {
    /// Compare the index with the logs that there are.
    Plan,
    Lists(LogPath),
    Text(LogPath),
    /// The issues of a project.
    Issues(LogPath),
}

impl Job {
    /// What has to be read first of a log.
    fn first(log: LogPath) -> Job {
        if issues::project_of_log(&log).is_some() { Job::Issues(log) } else { Job::Lists(log) }
    }
}

/// How far reading has come, in bytes of the logs that have to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    pub lists: Done,
    pub text: Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Done {
    pub logs: u64,
    pub logs_total: u64,
    pub bytes: u64,
    pub bytes_total: u64,
}

pub(super) type OnProgress = Arc<dyn Fn(Progress) + Send + Sync>;

#[derive(Default)]
struct State {
    live: VecDeque<Work>,
    live_bytes: usize,
    prepared: VecDeque<Stretch>,
    plan: bool,
    issues: VecDeque<LogPath>,
    lists: VecDeque<LogPath>,
    texts: VecDeque<LogPath>,
    /// Jobs that are queued or being read or being written.
    open: HashSet<Job>,
    /// Logs that changed while they were being read: to be looked at once more.
    again: HashSet<Job>,
    /// Logs that could not be read or written: tried again after a while.
    stale: HashSet<LogPath>,
    readers: usize,
    stop: bool,
    /// The writer is gone.
    closed: bool,
    sizes: HashMap<LogPath, u64>,
    progress: Progress,
    on_progress: Option<OnProgress>,
}

/// The desk.
#[derive(Default)]
pub(super) struct Desk {
    state: Mutex<State>,
    /// There is work for the writer.
    work: Condvar,
    /// There is room for prepared stretches.
    room: Condvar,
    /// Something that was open is done.
    settled: Condvar,
}

/// Whether another reader should be started.
#[must_use]
pub(super) enum Staff {
    Enough,
    OneMore,
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands over live work. It never waits.
    pub(super) fn push(&self, work: Work) {
        let mut state = self.lock();
        match work {
            // Nobody would take it; who waits for it is told by its being dropped.
            _ if state.closed => {}
            Work::Stretch(stretch) if state.live.len() >= LIVE_MAX || state.live_bytes >= LIVE_BYTES_MAX => {
                state.stale.insert(stretch.log);
            }
            Work::Issues(given) if state.live.len() >= LIVE_MAX => {
                state.stale.insert(given.log);
            }
            Work::Stretch(stretch) => {
                state.live_bytes += stretch.text_bytes();
                state.live.push_back(Work::Stretch(stretch));
            }
            other => state.live.push_back(other),
        }
        self.work.notify_one();
    }

    /// Hands over what a reader has prepared; waits for room. False when the desk is closed.
    pub(super) fn prepare(&self, stretch: Stretch) -> bool {
        let mut state = self.lock();
        while state.prepared.len() >= PREPARED_MAX && !state.stop {
            state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stop {
            return false;
        }
        state.prepared.push_back(stretch);
        self.work.notify_one();
        true
    }

    /// What the writer does next: nothing to write is a reason to look at the file and at what is to be tried again.
    /// None when the desk is closed and everything is written.
    pub(super) fn next_batch(&self) -> Option<Vec<Work>> {
        let mut state = self.lock();
        loop {
            if !state.live.is_empty() && state.prepared.is_empty() && !state.stop {
                state = self.gather(state);
            }
            let mut batch: Vec<Work> = state.live.drain(..).collect();
            state.live_bytes = 0;
            batch.extend(state.prepared.drain(..).map(Work::Stretch));
            if !batch.is_empty() {
                self.room.notify_all();
                return Some(batch);
            }
            if state.stop {
                return None;
            }
            let pause = if state.stale.is_empty() { LOOK } else { RETRY };
            let waited = self.work.wait_timeout(state, pause);
            let (back, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = back;
            if timeout.timed_out() {
                return Some(Vec::new());
            }
        }
    }

    /// Text that is ready now, for the transaction that is open; nothing once anything else waits.
    pub(super) fn more_text(&self) -> Vec<Work> {
        let mut state = self.lock();
        let text_only = state.prepared.iter().all(|stretch| stretch.part == Part::Text);
        if !state.live.is_empty() || state.stop || !text_only {
            return Vec::new();
        }
        let more = state.prepared.drain(..).map(Work::Stretch).collect();
        self.room.notify_all();
        more
    }

    /// Waits a moment for more to write, unless someone waits for what there is.
    fn gather<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let until = Instant::now() + GATHER;
        loop {
            let awaited = state.live.iter().any(|work| matches!(work, Work::Flush(_)));
            let left = until.saturating_duration_since(Instant::now());
            if awaited || left.is_zero() || state.live.len() >= LIVE_MAX / 8 || state.stop {
                return state;
            }
            let waited = self.work.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Asks for a log to be read, or for the plan to be made.
    pub(super) fn ask(&self, job: Job, bytes: u64) -> Staff {
        let mut state = self.lock();
        state.ask(job, bytes);
        state.staff()
    }

    /// Logs whose time to be tried again has come.
    pub(super) fn retry_stale(&self) -> Staff {
        let mut state = self.lock();
        let stale = std::mem::take(&mut state.stale);
        for log in stale {
            state.ask(Job::first(log), 0);
        }
        state.staff()
    }

    pub(super) fn mark_stale(&self, log: LogPath) {
        self.lock().stale.insert(log);
    }

    /// The next job of a reader; a reader without one goes home.
    pub(super) fn next_job(&self) -> Option<Job> {
        let mut state = self.lock();
        let job = if state.stop {
            None
        } else if std::mem::take(&mut state.plan) {
            Some(Job::Plan)
        } else if let Some(log) = state.issues.pop_front() {
            Some(Job::Issues(log))
        } else if let Some(log) = state.lists.pop_front() {
            Some(Job::Lists(log))
        } else {
            state.texts.pop_front().map(Job::Text)
        };
        if job.is_none() {
            state.readers = state.readers.saturating_sub(1);
            self.settled.notify_all();
        }
        job
    }

    /// A reader that was counted on could not be started; the next one that is asked for may.
    pub(super) fn reader_lost(&self) {
        let mut state = self.lock();
        state.readers = state.readers.saturating_sub(1);
    }

    /// A job is over, whatever came of it.
    pub(super) fn close(&self, job: &Job) -> Staff {
        let mut state = self.lock();
        state.close(job);
        let staff = state.staff();
        self.report(state);
        staff
    }

    /// Lets go of the desk and tells how far things are.
    fn report(&self, state: MutexGuard<'_, State>) {
        let told = state.on_progress.clone().map(|on_progress| (on_progress, state.progress));
        drop(state);
        self.settled.notify_all();
        if let Some((on_progress, progress)) = told {
            on_progress(progress);
        }
    }

    /// What became of a stretch that is written now.
    pub(super) fn written(&self, log: &LogPath, part: Part, is_last: bool, put: Put) -> Staff {
        let mut state = self.lock();
        match put {
            Put::Done => {}
            Put::Behind => state.ask(Job::Lists(log.clone()), 0),
            // While lists are still being read, the text comes with their last stretch.
            Put::TextBehind if is_last || matches!(part, Part::Live | Part::Opened) => {
                let bytes = state.sizes.get(log).copied().unwrap_or(0);
                state.ask(Job::Text(log.clone()), bytes);
            }
            Put::TextBehind => {}
        }
        match part {
            Part::Lists if is_last => state.close(&Job::Lists(log.clone())),
            Part::Text if is_last => state.close(&Job::Text(log.clone())),
            Part::Lists | Part::Text | Part::Live | Part::Opened => {}
        }
        let staff = state.staff();
        if is_last {
            self.report(state);
        }
        staff
    }

    /// Everything that was asked for is void: the database has been made anew.
    pub(super) fn start_over(&self) -> Staff {
        let mut state = self.lock();
        let (readers, stop, on_progress) = (state.readers, state.stop, state.on_progress.take());
        let (live, live_bytes) = (std::mem::take(&mut state.live), state.live_bytes);
        *state = State { readers, stop, on_progress, live, live_bytes, ..State::default() };
        state.ask(Job::Plan, 0);
        self.room.notify_all();
        state.staff()
    }

    pub(super) fn set_on_progress(&self, on_progress: OnProgress) {
        self.lock().on_progress = Some(on_progress);
    }

    /// Waits until a part of what was asked for is done; false when the time is over first.
    pub(super) fn wait(&self, part: Wait, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let mut state = self.lock();
        loop {
            let busy = state.open.iter().any(|job| match (part, job) {
                (_, Job::Plan | Job::Lists(_) | Job::Issues(_)) | (Wait::All, Job::Text(_)) => true,
                (Wait::Lists, Job::Text(_)) => false,
            });
            let left = until.saturating_duration_since(Instant::now());
            if !busy || left.is_zero() || state.stop {
                return !busy;
            }
            let waited = self.settled.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    pub(super) fn stop(&self) {
        self.lock().stop = true;
        self.work.notify_all();
        self.room.notify_all();
        self.settled.notify_all();
    }

    /// The writer goes: nothing is taken any more.
    pub(super) fn closed(&self) {
        let mut state = self.lock();
        (state.stop, state.closed) = (true, true);
        state.live.clear();
        state.prepared.clear();
        self.room.notify_all();
        self.settled.notify_all();
    }

    /// Waits for the readers to go, after a stop.
    pub(super) fn wait_for_readers(&self) {
        let mut state = self.lock();
        while state.readers > 0 {
            state = self.settled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(super) fn progress(&self) -> Progress {
        self.lock().progress
    }
}

/// What to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Lists,
    All,
}

/// Readers at work at the same time.
const READERS: usize = 2;

impl State {
    fn ask(&mut self, job: Job, bytes: u64) {
        if !self.open.insert(job.clone()) {
            self.again.insert(job);
            return;
        }
        match job {
            Job::Plan => self.plan = true,
            Job::Issues(log) => self.issues.push_back(log),
            Job::Lists(log) => {
                let done = &mut self.progress.lists;
                (done.logs_total, done.bytes_total) = (done.logs_total + 1, done.bytes_total + bytes);
                self.sizes.insert(log.clone(), bytes);
                self.lists.push_back(log);
            }
            Job::Text(log) => {
                let done = &mut self.progress.text;
                (done.logs_total, done.bytes_total) = (done.logs_total + 1, done.bytes_total + bytes);
                self.sizes.insert(log.clone(), bytes);
                self.texts.push_back(log);
            }
        }
    }

    fn close(&mut self, job: &Job) {
        if !self.open.remove(job) {
            return;
        }
        let (done, log) = match job {
            Job::Plan | Job::Issues(_) => (None, None),
            Job::Lists(log) => (Some(&mut self.progress.lists), Some(log)),
            Job::Text(log) => (Some(&mut self.progress.text), Some(log)),
        };
        if let (Some(done), Some(log)) = (done, log) {
            done.logs += 1;
            done.bytes += self.sizes.get(log).copied().unwrap_or(0);
        }
        if self.again.remove(job) {
            self.ask(job.clone(), 0);
        } else if let Some(log) = log
            && !self.open.contains(&Job::Text(log.clone()))
        {
            self.sizes.remove(log);
        }
    }

    fn staff(&mut self) -> Staff {
        let jobs = self.issues.len() + self.lists.len() + self.texts.len() + usize::from(self.plan);
        if self.stop || self.readers >= READERS.min(jobs) {
            return Staff::Enough;
        }
        self.readers += 1;
        Staff::OneMore
    }
}
