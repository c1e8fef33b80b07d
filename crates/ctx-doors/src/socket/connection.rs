//! One client: its requests in order, and the sessions it follows.
//!
//! A `send` follows its run until `done`; a `resume` follows its session until the connection goes, and takes the
//! place of the followers of its runs, so no frame comes twice. Frames leave through one writer with a short queue: a client
//! that stops reading stops its followers, and nothing else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ctx_api::socket::{DoneStatus, Frame};
use ctx_engine::{Caller, Engine, Event, EventId, Follow, Hold, NewSession, Post};
use ctx_session::image::IMAGE_BYTES_MAX;
use ctx_session::object::Earlier;
use ctx_session::record::{LimitHit, RunBody};
use ctx_session::{Code, Object, Refusal, RunId, RunState, Scope, SessionId};
use tokio::io::{AsyncWriteExt, BufReader, Interest};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::frames::{self, Named};
use super::lines::{Line, Lines};
use super::request::{Op, Send, Target, parse};
use crate::unix::caller;

/// How long a client is shown the ends of its runs when the daemon stops.
const LAST_FRAMES: Duration = Duration::from_millis(500);
/// Runs and sessions that one connection follows at a time.
const FOLLOWERS: usize = 1_024;
/// Cancels and repeats of finished runs that one connection waits for at a time.
const ERRANDS: usize = 16;
/// Frames that wait for a slow client; each is at most a frame long.
const QUEUE: usize = 8;

/// Serves a client. One whose credentials the kernel does not give is closed, because only they say whose sessions it may use.
pub(super) async fn serve(stream: UnixStream, engine: Engine, object: Object, stop: CancellationToken) {
    let caller = match caller(&stream) {
        Ok(caller) => caller,
        Err(error) => {
            tracing::warn!(%object, %error, "a connection without peer credentials was closed");
            return;
        }
    };
    let (reader, writer) = stream.into_split();
    let (out, queue) = mpsc::channel(QUEUE);
    let gone = CancellationToken::new();
    let stall = Duration::from_millis(engine.limits().socket_stall_ms);
    let writing = tokio::spawn(write(writer, queue, stall, gone.clone()));
    let client = Client {
        engine,
        object,
        caller,
        out,
        stop,
        gone: gone.clone(),
        silent: CancellationToken::new(),
        following: Arc::default(),
        holds: HashMap::new(),
        tasks: TaskTracker::new(),
        followers: Arc::new(Semaphore::new(FOLLOWERS)),
        errands: Arc::new(Semaphore::new(ERRANDS)),
    };
    client.serve(reader).await;
    // The writer ends when the last sender is gone and everything is written, or when the client is gone.
    let _ = writing.await;
}

/// Writes frames until there are no more senders, the client is gone, or it leaves one unread for too long.
async fn write(
    mut writer: OwnedWriteHalf,
    mut queue: mpsc::Receiver<String>,
    stall: Duration,
    gone: CancellationToken,
) {
    while let Some(line) = queue.recv().await {
        let written = tokio::select! {
            written = tokio::time::timeout(stall, writer.write_all(line.as_bytes())) => written,
            () = gone.cancelled() => break,
        };
        if !matches!(written, Ok(Ok(()))) {
            break;
        }
    }
    gone.cancel();
}

/// What a connection follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Followed {
    session: SessionId,
    /// The frames of one run, until it is done; None: everything, until the connection goes.
    run: Option<RunId>,
}

/// What the images of a message come to as base64, with room for what is around them.
const IMAGES_AS_TEXT: usize = IMAGE_BYTES_MAX / 3 * 4 + 64 * 1024;

fn has_parts(line: &[u8]) -> bool {
    let name = b"\"parts\"";
    line.windows(name.len()).any(|found| found == name)
}

/// What is followed, and how to stop that.
type FollowingTable = Arc<Mutex<HashMap<Followed, CancellationToken>>>;

struct Client {
    engine: Engine,
    object: Object,
    caller: Caller,
    out: mpsc::Sender<String>,
    /// The daemon stops.
    stop: CancellationToken,
    /// The client is gone, or reads no more.
    gone: CancellationToken,
    /// The client asks for nothing more.
    silent: CancellationToken,
    following: FollowingTable,
    /// Temp sessions live as long as a connection that has used them.
    holds: HashMap<SessionId, Hold>,
    tasks: TaskTracker,
    /// Followers of what goes on, and short work beside them: when there are enough, no more requests are read, so
    /// that a client that asks and never reads holds little.
    followers: Arc<Semaphore>,
    errands: Arc<Semaphore>,
}

impl Client {
    async fn serve(mut self, reader: OwnedReadHalf) {
        let max = self.engine.limits().frame_bytes;
        let mut lines = Lines::new(BufReader::new(reader), max.saturating_add(IMAGES_AS_TEXT));
        loop {
            let read = tokio::select! {
                read = lines.next() => read,
                () = self.stop.cancelled() => break,
                () = self.gone.cancelled() => return,
            };
            match read {
                // Only images make a line longer than a frame.
                Ok(Some(Line::Whole(line))) if line.len() > max && !has_parts(&line) => {
                    self.refuse(None, &too_long(&self.engine)).await;
                }
                Ok(Some(Line::Whole(line))) => self.on_line(&line).await,
                Ok(Some(Line::TooLong)) => self.refuse(None, &too_long(&self.engine)).await,
                Ok(None) => break,
                Err(_) => {
                    self.gone.cancel();
                    return;
                }
            }
        }
        self.finish(lines.into_inner().into_inner()).await;
    }

    /// No more requests. If the client still listens, its runs are shown to their end, and of the sessions it follows
    /// what there is by now.
    async fn finish(self, reader: OwnedReadHalf) {
        let Client { out, gone, stop, tasks, holds, silent, .. } = self;
        silent.cancel();
        drop(out);
        tasks.close();
        let stopping = async {
            stop.cancelled().await;
            tokio::time::sleep(LAST_FRAMES).await;
        };
        tokio::select! {
            () = tasks.wait() => {}
            () = gone.cancelled() => {}
            () = hung_up(&reader) => gone.cancel(),
            () = stopping => gone.cancel(),
        }
        drop(holds);
    }

    async fn on_line(&mut self, line: &[u8]) {
        let (op, id) = match parse(line) {
            Ok(parsed) => parsed,
            Err(refused) => return self.refuse(refused.request, &refused.refusal).await,
        };
        let done = match op {
            Op::Ping => {
                send(&self.out, &Frame::Pong {}).await;
                Ok(())
            }
            Op::Send(request) => self.on_send(request).await,
            Op::Resume { target, after } => self.on_resume(&target, after).await,
            Op::Cancel { run, target } => self.on_cancel(run, &target, id.clone()).await,
        };
        if let Err(refusal) = done {
            self.refuse(id, &refusal).await;
        }
    }

    async fn refuse(&self, request: Option<String>, refusal: &Refusal) {
        send(&self.out, &refused(request, refusal)).await;
    }

    /// Posts a message and follows its run from the first record on, also where the message was posted before: its sender may have lost frames.
    async fn on_send(&mut self, request: Send) -> Result<(), Refusal> {
        const TRIES: usize = 3;
        if !request.earlier.is_empty() && !matches!(self.object, Object::Model { .. }) {
            let message = "an agent is sent one message as `input`; only a model is sent several";
            return Err(Refusal::invalid("messages", message));
        }
        let post = Post {
            text: request.input,
            images: request.images,
            client_id: request.client_id,
            model_override: request.model_override.map(Some),
            cwd: request.cwd,
            wishes: request.wishes,
            key: None,
        };
        for attempt in 1.. {
            let id =
                self.find_or_create(&request.target, request.dir.as_deref(), &request.earlier, &post).await?;
            if request.target.scope == Scope::Temp && !self.holds.contains_key(&id) {
                self.holds.insert(id, self.engine.hold(id));
            }
            match self.engine.post(self.caller, id, post.clone()).await {
                // Ended between finding and posting: the name is free again, so the message begins a new one.
                Err(refusal) if refusal.code == Code::Eshutdown && attempt < TRIES => {}
                Err(refusal) => return Err(refusal),
                Ok(posted) => {
                    let finished = posted.repeated && posted.state.is_over();
                    let after = EventId::before(posted.first_seq);
                    return self.follow_run(id, posted.run, after, finished).await;
                }
            }
        }
        Ok(())
    }

    /// The session of that name or id, if this user may have it.
    fn find(&self, target: &Target) -> Result<Option<SessionId>, Refusal> {
        if let Ok(id) = target.session.as_str().parse::<SessionId>()
            && let Some(is_seen) = self.engine.is_seen(self.caller, id)
        {
            if !is_seen {
                return Err(Refusal::new(Code::Eacces, "this session belongs to another user"));
            }
            return Ok(Some(id));
        }
        let Target { session, scope, space } = target;
        Ok(self.engine.named(self.caller, &self.object, *scope, space.as_ref(), session))
    }

    async fn find_or_create(
        &self,
        target: &Target,
        dir: Option<&str>,
        earlier: &[Earlier],
        post: &Post,
    ) -> Result<SessionId, Refusal> {
        if let Some(id) = self.find(target)? {
            if !earlier.is_empty() {
                let message = "this session has messages of its own; send `messages` with another name";
                return Err(Refusal::invalid("messages", message));
            }
            return Ok(id);
        }
        self.engine.may_begin(self.caller, &self.object, dir, post).await?;
        let new = NewSession {
            object: self.object.clone(),
            project: None,
            name: Some(target.session.clone()),
            scope: target.scope,
            space: target.space.clone(),
            cwd: post.cwd.clone(),
            dir: dir.map(str::to_owned),
            earlier: earlier.to_vec(),
            client: Some("socket".to_owned()),
            key: None,
        };
        match self.engine.create(self.caller, new).await {
            // Someone else was faster with the same name: theirs is as good as ours.
            Err(refusal) if refusal.code == Code::Eexist => self.find(target)?.ok_or(refusal),
            created => created,
        }
    }

    /// Follows a session. The followers of its runs are ended only when that has succeeded: a refusal takes no frames from the client.
    async fn on_resume(&mut self, target: &Target, after: Option<EventId>) -> Result<(), Refusal> {
        let missing = || Refusal::new(Code::Enoent, format!("no session {}", target.session));
        let id = self.find(target)?.ok_or_else(missing)?;
        let follow = self.engine.follow(self.caller, id, after).await?;
        let seat = self.seat(&self.followers).await;
        let stop = self.gone.child_token();
        let followed = Followed { session: id, run: None };
        {
            let mut table = self.table();
            // It shows what the followers of single runs would have shown.
            table.extract_if(|old, _| old.session == id).for_each(|(_, old)| old.cancel());
            table.insert(followed, stop.clone());
        }
        self.start_following(followed, follow, Shows { after, deltas: true }, stop, seat);
        Ok(())
    }

    fn table(&self) -> MutexGuard<'_, HashMap<Followed, CancellationToken>> {
        self.following.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this connection is shown a run as it goes on.
    fn is_shown(&self, id: SessionId, run: RunId) -> bool {
        let table = self.table();
        [None, Some(run)].into_iter().any(|run| table.contains_key(&Followed { session: id, run }))
    }

    /// A run that goes on is shown once, also when it is asked for again; one that is over, each time it is asked for.
    async fn follow_run(
        &mut self,
        id: SessionId,
        run: RunId,
        after: Option<EventId>,
        finished: bool,
    ) -> Result<(), Refusal> {
        if !finished && self.is_shown(id, run) {
            return Ok(());
        }
        let follow = self.engine.follow(self.caller, id, after).await?;
        let stop = self.gone.child_token();
        let followed = Followed { session: id, run: Some(run) };
        if !finished {
            self.table().insert(followed, stop.clone());
        }
        let seat = self.seat(if finished { &self.errands } else { &self.followers }).await;
        self.start_following(followed, follow, Shows { after, deltas: !finished }, stop, seat);
        Ok(())
    }

    /// Waits until there is room for one more; None when the client is gone before that.
    async fn seat(&self, seats: &Arc<Semaphore>) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            seat = seats.clone().acquire_owned() => seat.ok(),
            () = self.gone.cancelled() => None,
            () = self.stop.cancelled() => None,
        }
    }

    fn start_following(
        &self,
        followed: Followed,
        follow: Follow,
        shows: Shows,
        stop: CancellationToken,
        seat: Option<OwnedSemaphorePermit>,
    ) {
        let Followed { session: id, run } = followed;
        let name =
            self.engine.find(self.caller, id).map_or_else(|_| id.to_string(), |s| s.meta.name.to_string());
        let shown = Shown {
            named: Named { session: name, id },
            only: run,
            shows,
            max: self.engine.limits().frame_bytes,
            out: self.out.clone(),
            queued_run: None,
            silent: self.silent.clone(),
        };
        let table = self.following.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = shown.all(follow) => {
                    // Not if another follower has taken the place meanwhile: it cancels `stop` first.
                    let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
                    if !stop.is_cancelled() {
                        table.remove(&followed);
                    }
                }
                () = stop.cancelled() => {}
            }
            drop(seat);
        });
    }

    /// Answers with `done` when the run is over, unless this connection is shown it anyway.
    async fn on_cancel(&self, run: RunId, target: &Target, request: Option<String>) -> Result<(), Refusal> {
        let id = match self.engine.session_of_run(run) {
            Some(id) => id,
            None => self
                .find(target)?
                .ok_or_else(|| Refusal::new(Code::Enoent, format!("no run {run}; name its session")))?,
        };
        if self.engine.is_seen(self.caller, id) == Some(false) {
            return Err(Refusal::new(Code::Eacces, "this run belongs to another user"));
        }
        let seat = self.seat(&self.errands).await;
        let shown = self.is_shown(id, run);
        let (engine, caller, out) = (self.engine.clone(), self.caller, self.out.clone());
        let session = engine.find(caller, id).map_or_else(|_| id.to_string(), |s| s.meta.name.to_string());
        self.tasks.spawn(async move {
            // A run that was over before the cancel has been shown already, or never to this connection.
            let was_over =
                engine.look(caller, id).await.ok().and_then(|s| s.run(run).map(|run| run.state.is_over()));
            match engine.cancel(caller, id, run).await {
                Ok(_) if shown && was_over == Some(false) => {}
                Ok(state) => {
                    let status = match state {
                        RunState::Done => DoneStatus::Ok,
                        RunState::Failed(_) => DoneStatus::Error,
                        RunState::Cancelled | RunState::Pending | RunState::Running => DoneStatus::Cancelled,
                    };
                    let run = run.to_string();
                    send(&out, &Frame::Done { id: None, run, session, status, finish_reason: None }).await;
                }
                Err(refusal) => send(&out, &refused(request, &refusal)).await,
            }
            drop(seat);
        });
        Ok(())
    }
}

/// From where on events are shown, and which.
#[derive(Debug, Clone, Copy)]
struct Shows {
    after: Option<EventId>,
    /// Deltas and what was used. Not for a run that was over when it was asked for: its message says it all.
    deltas: bool,
}

/// What one follower shows.
struct Shown {
    named: Named,
    /// The one run that is shown; None: all of them.
    only: Option<RunId>,
    shows: Shows,
    max: usize,
    out: mpsc::Sender<String>,
    /// The run that the records of the current command created.
    queued_run: Option<RunId>,
    /// The client asks for nothing more: a session is shown up to now, and no further.
    silent: CancellationToken,
}

impl Shown {
    /// Shows all events. `biased` puts events first, so that a client that asks for nothing more still gets those that are there.
    async fn all(mut self, mut follow: Follow) {
        loop {
            let silent = self.silent.is_cancelled();
            if silent && self.only.is_none() && follow.is_caught_up() {
                return;
            }
            let next = tokio::select! {
                biased;
                next = follow.next() => next,
                // Not lost: a follower that is asked again goes on where it was.
                () = self.silent.cancelled(), if !silent => continue,
            };
            match next {
                Ok(Some(event)) => {
                    if !self.show(&event).await {
                        return;
                    }
                }
                Ok(None) => return,
                Err(refusal) => {
                    send(&self.out, &refused(None, &refusal)).await;
                    return;
                }
            }
        }
    }

    /// Whether to go on.
    async fn show(&mut self, event: &Event) -> bool {
        if !self.shows.deltas && matches!(event, Event::Delta { .. }) {
            return true;
        }
        let mut frames = frames::of_event(&self.named, event);
        frames.retain(|(_, frame)| self.shows.deltas || !matches!(frame, Frame::Usage { .. }));
        if let Event::Record(record) = event {
            if let ctx_session::Body::Run(RunBody::Created(created)) = &record.body {
                self.queued_run = Some(created.turn_id);
            }
            if let (Some(limit), Some(run)) = (frames::queued_at(record), self.queued_run) {
                frames.push((event.id(), self.queued(event.id(), run, limit)));
            }
        }
        let run = frames::run_of(event).or(self.queued_run);
        if self.only.is_some() && run.is_some() && run != self.only {
            return true;
        }
        for (id, frame) in frames {
            if self.shows.after.is_some_and(|after| id <= after) {
                continue;
            }
            let is_end = self.only.is_some() && matches!(frame, Frame::Done { .. });
            if self.out.send(frames::fitting_line(frame, self.max)).await.is_err() || is_end {
                return false;
            }
        }
        true
    }

    fn queued(&self, id: EventId, run: RunId, limit: Option<LimitHit>) -> Frame {
        Frame::Queued {
            id: id.to_string(),
            run: run.to_string(),
            session: self.named.session.clone(),
            session_id: self.named.id.to_string(),
            reason: "concurrency_limit".to_owned(),
            limit,
        }
    }
}

/// Waits until a client that asks for nothing more does not listen either. The runtime tells of that only when it is
/// asked, so it is asked now and then.
async fn hung_up(reader: &OwnedReadHalf) {
    const LOOK_EVERY: Duration = Duration::from_secs(1);
    loop {
        let ready = reader.ready(Interest::READABLE | Interest::WRITABLE).await;
        if ready.map_or(true, |ready| ready.is_write_closed()) {
            return;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// A client that is gone needs no answer.
async fn send(out: &mpsc::Sender<String>, frame: &Frame) {
    let _ = out.send(frames::line(frame)).await;
}

fn refused(request: Option<String>, refusal: &Refusal) -> Frame {
    Frame::Error {
        id: None,
        run: None,
        session: None,
        request,
        code: refusal.code,
        reason: None,
        message: refusal.message.clone(),
    }
}

fn too_long(engine: &Engine) -> Refusal {
    let max = engine.limits().frame_bytes;
    Refusal::new(Code::Emsgsize, format!("a line has at most {max} bytes; this one was skipped"))
}
