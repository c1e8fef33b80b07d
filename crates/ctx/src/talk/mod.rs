//! Sends messages over the socket of an agent or a model and reads the run's frames. After a lost connection it resumes where it stopped.
//!
//! `show` writes frames for a person or a program; `interrupt` is Ctrl-C: the first one cancels the run, the
//! second one leaves.

mod asked;
mod interrupt;
mod show;

use std::time::Duration;

use ctx_api::socket::{DoneStatus, Frame, Request};
use ctx_session::record::RunFinish;
use ctx_session::{Code, IdSource, Object};

use crate::client::{self, AgentSocket};
use crate::failure::Failure;
use crate::room::{self, Room};
use crate::root::Root;
use crate::{autostart, output, waits, words};

use asked::Asked;
pub use interrupt::Interrupts;
pub use show::{Form, Show};

/// How long a daemon may be away before we give up on it.
const AWAY_MAX: Duration = Duration::from_secs(1);
/// The same where the message is queued, and waits anyway.
const AWAY_QUEUED_MAX: Duration = Duration::from_secs(10);
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_MAX: Duration = Duration::from_secs(1);

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Ok,
    /// It stopped short of an answer: a compaction waits for review, as was said.
    Waits,
    Cancelled,
    /// The run failed; its error was shown.
    Failed(Code),
    /// The message is durable and the caller did not want to wait.
    Accepted,
    /// Ctrl-C, twice.
    Left,
}

/// Whether to see the run to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    ForEnd,
    ForAcceptance,
}

/// A conversation with one agent or model.
pub struct Talk<'a> {
    root: &'a Root,
    with: Object,
    socket: Option<AgentSocket>,
    last_run: Option<String>,
    /// Where a message waits for a run to end.
    room: Option<Room>,
    asked: Asked,
}

/// The run that a message became, as far as we know.
#[derive(Debug, Default)]
struct Seen {
    run: Option<String>,
    session_id: Option<String>,
    /// The last event that was shown.
    after: Option<String>,
    cancel_asked: bool,
    resumed: bool,
    error: Option<Code>,
    /// It waits for room among the concurrent runs.
    is_queued: bool,
}

/// What a frame means for the exchange.
enum Step {
    GoOn,
    Done(End),
}

/// What happened first.
enum Event {
    Frame(Box<crate::client::Received>),
    Broken,
    Interrupted,
    /// The number of concurrent runs has changed.
    Counted,
    /// A line was typed while a call waits for an answer.
    Typed(String),
}

impl<'a> Talk<'a> {
    pub fn new(root: &'a Root, with: Object) -> Talk<'a> {
        Talk { root, with, socket: None, last_run: None, room: None, asked: Asked::default() }
    }

    /// The run of the last message.
    pub fn last_run(&self) -> Option<&str> {
        self.last_run.as_deref()
    }

    /// Sends a message and shows what comes of it. The request needs an `id`: that makes sending it again safe.
    pub async fn exchange(
        &mut self,
        request: &Request,
        wait: Wait,
        show: &mut Show,
        interrupts: &mut Interrupts,
    ) -> Result<End, Failure> {
        let mut seen = Seen::default();
        match self.follow(request, &mut seen, wait, show, interrupts).await {
            // Sending it again would be refused: it is still there.
            Err(Failure::Said { code: Code::Ehostdown, .. }) if seen.is_queued => {
                let left = waits::left_in_queue(&self.named(&seen, request));
                Err(Failure::new(Code::Ehostdown, format!("the daemon is away; {left}")))
            }
            ended => ended,
        }
    }

    async fn follow(
        &mut self,
        request: &Request,
        seen: &mut Seen,
        wait: Wait,
        show: &mut Show,
        interrupts: &mut Interrupts,
    ) -> Result<End, Failure> {
        self.post(request).await?;
        let ended = loop {
            match self.next(interrupts).await {
                Event::Frame(received) => {
                    if let Step::Done(end) = take(seen, request, &received, wait, show)? {
                        break end;
                    }
                    if let Some(frame) = received.frame.as_ref().filter(|_| show.takes_answers()) {
                        self.asked.hear(seen.session_id.as_deref(), frame);
                        self.show_question(show)?;
                    }
                    if let (true, None, Some(id)) = (seen.is_queued, &self.room, &seen.session_id) {
                        show.talk(waits::waits_in_queue(room::place(self.root, id).await));
                        self.room = Some(Room::watch(self.root).await);
                    }
                    if seen.cancel_asked && interrupts.count() == 1 && seen.run.is_some() {
                        self.cancel(seen, request).await;
                    }
                }
                Event::Interrupted if seen.is_queued => {
                    show.talk(waits::left_in_queue(&self.named(seen, request)));
                    break End::Left;
                }
                Event::Counted => self.start_queued(seen).await?,
                Event::Typed(line) => {
                    self.asked.answer(self.root, &line).await?;
                    self.show_question(show)?;
                }
                Event::Interrupted if interrupts.count() > 1 => break End::Left,
                Event::Interrupted => {
                    show.talk("cancelling; press Ctrl-C again to leave");
                    seen.cancel_asked = true;
                    self.cancel(seen, request).await;
                }
                Event::Broken => {
                    if let Some(end) = self.take_up(request, seen, show, interrupts).await? {
                        break end;
                    }
                }
            }
        };
        self.last_run = seen.run.take();
        if seen.resumed {
            // It follows the whole session now, which the next message must not.
            self.socket = None;
        }
        show.finish()?;
        Ok(ended)
    }

    /// The question that is to be answered next, with the bell.
    fn show_question(&mut self, show: &mut Show) -> Result<(), Failure> {
        self.asked.take_unshown().map_or(Ok(()), |frame| show.question(&frame))
    }

    /// What comes next on the connection, unless Ctrl-C comes first.
    async fn next(&mut self, interrupts: &mut Interrupts) -> Event {
        let Some(socket) = &mut self.socket else { return Event::Broken };
        let read = tokio::select! {
            read = socket.next() => read,
            () = interrupts.next() => return Event::Interrupted,
            () = room::counted(&mut self.room) => return Event::Counted,
            line = self.asked.line() => return Event::Typed(line),
        };
        match read {
            Ok(Some(received)) => Event::Frame(Box::new(received)),
            Ok(None) | Err(_) => {
                self.socket = None;
                Event::Broken
            }
        }
    }

    fn named(&self, seen: &Seen, request: &Request) -> String {
        let session = request.session.as_deref().or(seen.session_id.as_deref()).unwrap_or_default();
        format!("{}/{session}", self.with)
    }

    /// Asks for a slot for the message that waits. Its frames come on the connection that it was sent on.
    async fn start_queued(&mut self, seen: &mut Seen) -> Result<(), Failure> {
        let Some(id) = seen.session_id.as_ref().filter(|_| seen.is_queued) else { return Ok(()) };
        match room::start(self.root, id).await {
            Ok(true) => (seen.is_queued, self.room) = (false, None),
            // No room; or the daemon goes, and the connection breaks and is taken up.
            Ok(false) | Err(Failure::Said { code: Code::Ehostdown, .. }) => {}
            // Another client has started or dropped it: frames tell.
            Err(Failure::Said { code: Code::Enoent, .. }) => (seen.is_queued, self.room) = (false, None),
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Writes the request, on a new connection if the old one has gone.
    async fn post(&mut self, request: &Request) -> Result<(), Failure> {
        if let Some(socket) = &mut self.socket
            && socket.send(request).await.is_ok()
        {
            return Ok(());
        }
        let mut socket = AgentSocket::connect(self.root, &self.with).await?;
        // A connection that breaks at once is noticed by whoever reads from it.
        let _ = socket.send(request).await;
        self.socket = Some(socket);
        Ok(())
    }

    /// Asks to cancel the run, once it is known; a connection that broke asks again when it is back.
    async fn cancel(&mut self, seen: &mut Seen, request: &Request) {
        let (Some(run), Some(socket)) = (&seen.run, &mut self.socket) else { return };
        let cancel = Request {
            op: Some("cancel".to_owned()),
            id: Some(run.clone()),
            session: seen.session_id.clone().or_else(|| request.session.clone()),
            ..Request::default()
        };
        seen.cancel_asked = socket.send(&cancel).await.is_err();
    }

    /// Connects again and goes on where the connection broke: the message is sent again under the same id, or
    /// the run is resumed after the last event.
    async fn take_up(
        &mut self,
        request: &Request,
        seen: &mut Seen,
        show: &mut Show,
        interrupts: &mut Interrupts,
    ) -> Result<Option<End>, Failure> {
        if request.scope.as_deref() == Some("temp") {
            let message = "the connection broke, which ended the temp session";
            return Err(Failure::new(Code::Ehostdown, message));
        }
        show.talk("the daemon does not answer; waiting for it");
        let begun = std::time::Instant::now();
        let (mut pause, mut started) = (RETRY_FIRST, false);
        let away_max = if seen.is_queued { AWAY_QUEUED_MAX } else { AWAY_MAX };
        loop {
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = interrupts.next() => {
                    if seen.is_queued {
                        show.talk(waits::left_in_queue(&self.named(seen, request)));
                    }
                    return Ok(Some(End::Left));
                }
            }
            match AgentSocket::connect(self.root, &self.with).await {
                Ok(socket) => {
                    self.socket = Some(socket);
                    break;
                }
                // It was killed: a daemon that is stopped ends its runs first.
                Err(_) if !started && !seen.is_queued => {
                    started = true;
                    start_daemon(self.root).await?;
                }
                Err(failure) if begun.elapsed() > away_max => return Err(failure),
                Err(_) => pause = (pause * 2).min(RETRY_MAX),
            }
        }
        let again = match (&seen.run, &seen.after) {
            (Some(_), Some(after)) => Request {
                op: Some("resume".to_owned()),
                session: seen.session_id.clone().or_else(|| request.session.clone()),
                after: Some(after.clone()),
                ..Request::default()
            },
            _ => request.clone(),
        };
        seen.resumed = true;
        show.talk("the daemon is back");
        if let Some(socket) = &mut self.socket {
            // As above: a connection that breaks at once is noticed when it is read.
            let _ = socket.send(&again).await;
        }
        if seen.is_queued {
            // The daemon that counted the runs is gone, and no frame may come before there is room.
            self.room = Some(Room::watch(self.root).await);
        }
        Ok(None)
    }
}

/// Starts a daemon in the place of one that was killed, where the configuration allows it.
pub async fn start_daemon(root: &Root) -> Result<(), Failure> {
    let of_thread = root.clone();
    let starting = tokio::task::spawn_blocking(move || {
        autostart::with_daemon(of_thread).map(|root| {
            // A model without a key says so when it is asked.
            let _ = client::hand_over(&root);
        })
    });
    match starting.await.map_err(|error| Failure::new(Code::Eio, error.to_string()))? {
        // It is not wanted, or it is another's: wait for it.
        Ok(()) | Err(Failure::Said { code: Code::Ehostdown, .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// Takes in one frame; frames of other runs pass by.
fn take(
    seen: &mut Seen,
    request: &Request,
    received: &crate::client::Received,
    wait: Wait,
    show: &mut Show,
) -> Result<Step, Failure> {
    let Some(frame) = &received.frame else { return Ok(Step::GoOn) };
    let (run, id) = run_and_id(frame);
    if let Frame::Error { run: None, code, message, .. } = frame {
        return Err(refused(*code, message, request));
    }
    match (&seen.run, run) {
        (Some(ours), Some(run)) if ours != run => return Ok(Step::GoOn),
        (None, Some(run)) => seen.run = Some(run.to_owned()),
        (Some(_) | None, _) => {}
    }
    if let Some(id) = id {
        seen.after = Some(id.to_owned());
    }
    show.frame(frame, &received.line)?;
    match frame {
        Frame::Start { session_id, .. } | Frame::Queued { session_id, .. } => {
            seen.session_id = Some(session_id.clone());
            seen.is_queued = matches!(frame, Frame::Queued { .. });
            match wait {
                Wait::ForAcceptance => Ok(Step::Done(End::Accepted)),
                Wait::ForEnd => Ok(Step::GoOn),
            }
        }
        Frame::Error { code, .. } => {
            seen.error = Some(*code);
            Ok(Step::GoOn)
        }
        Frame::Done { status, finish_reason, .. } => Ok(Step::Done(match (status, finish_reason) {
            (DoneStatus::Ok, None) => End::Ok,
            (DoneStatus::Ok, Some(RunFinish::AwaitingCompaction)) => End::Waits,
            (DoneStatus::Cancelled, _) => End::Cancelled,
            (DoneStatus::Error, _) => End::Failed(seen.error.unwrap_or(Code::Eio)),
        })),
        Frame::Delta { .. }
        | Frame::Reasoning { .. }
        | Frame::Retrying { .. }
        | Frame::Notice { .. }
        | Frame::Usage { .. }
        | Frame::Message { .. }
        | Frame::ToolCall { .. }
        | Frame::ToolResult { .. }
        | Frame::Paused { .. }
        | Frame::Approval { .. }
        | Frame::Pong {} => Ok(Step::GoOn),
    }
}

fn run_and_id(frame: &Frame) -> (Option<&str>, Option<&str>) {
    match frame {
        Frame::Start { id, run, .. }
        | Frame::Delta { id, run, .. }
        | Frame::Reasoning { id, run, .. }
        | Frame::Retrying { id, run, .. }
        | Frame::Notice { id, run, .. }
        | Frame::Usage { id, run, .. }
        | Frame::Message { id, run, .. }
        | Frame::ToolCall { id, run, .. }
        | Frame::ToolResult { id, run, .. }
        | Frame::Queued { id, run, .. }
        | Frame::Paused { id, run, .. }
        | Frame::Approval { id, run, .. } => (Some(run), Some(id)),
        Frame::Error { id, run, .. } => (run.as_deref(), id.as_deref()),
        Frame::Done { id, run, .. } => (Some(run), id.as_deref()),
        Frame::Pong {} => (None, None),
    }
}

/// The daemon's refusal, with what to do about the common ones.
fn refused(code: Code, message: &str, request: &Request) -> Failure {
    let failure = Failure::new(code, output::plain(message));
    let session = request.session.as_deref().unwrap_or(crate::sessions::DEFAULT_SESSION);
    match code {
        Code::Ebusy if message.contains("paused") => failure.hint(
            "`ctx resume` continues, `ctx rollback` goes back; `ctx checkpoints` shows the checkpoint",
        ),
        Code::Ebusy => failure.hint(format!(
            "a session has one run at a time: wait, cancel it with `ctx cancel`, or use another session than `{session}`"
        )),
        _ => failure,
    }
}

/// A client id for a message: new every time, so that only a retry is taken for one.
pub fn client_id() -> String {
    use std::hash::{BuildHasher, Hasher};
    // The keys of the standard library's maps are random; that is all that is needed here.
    let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
    IdSource::new(seed).next(words::now()).to_string()
}
