//! One client at a session's socket: hello, welcome, what was missed, what comes, and why it ends.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::WebSocket;
use ctx_api::ws::{Closing, Hello, Received, Seqs, Welcome};
use ctx_engine::Engine;
use ctx_session::record::DetachReason;
use ctx_session::{Code, Refusal, SessionId, Ulid};
use ctx_terminal::Terminals;
use futures_util::stream::SplitStream;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::act::Act;
use super::hub::Seat;
use super::pty::Ptys;
use super::relay::{Read, Start};
use super::talk::{Heard, Left, Out, Pulse, cannot_send, hear, split};
use super::{Mode, Visitor};
use crate::http::{Access, Api};

/// How long a client may take to say hello.
const HELLO: Duration = Duration::from_secs(10);
/// Frames sent at a time, and about how many bytes.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 256 * 1024;
/// Refusals of what a client asked for that wait to be sent.
const REFUSALS: usize = 8;

/// A client that has been let in and not spoken yet.
pub(crate) struct Guest {
    engine: Engine,
    access: Access,
    id: SessionId,
    visitor: Visitor,
    seat: Seat,
    /// None for one who only looks on.
    attached: Option<Attached>,
    terminals: Arc<Terminals>,
    tasks: tokio_util::task::TaskTracker,
}

/// The operator's place. However the connection goes, the session is told.
struct Attached {
    engine: Engine,
    id: SessionId,
    connection: Ulid,
    closed: oneshot::Receiver<DetachReason>,
    reason: DetachReason,
    told: bool,
}

impl Attached {
    async fn detach(&mut self, reason: DetachReason) {
        self.told = true;
        detach(&self.engine, self.id, self.connection, reason).await;
    }
}

async fn detach(engine: &Engine, id: SessionId, connection: Ulid, reason: DetachReason) {
    if let Err(refusal) = engine.detach(id, connection, reason).await {
        // The next start finds the connection attached, and lets it go.
        tracing::debug!(session = %id, %connection, %refusal, "a connection's end was not written");
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if self.told {
            return;
        }
        let (engine, id, connection, reason) = (self.engine.clone(), self.id, self.connection, self.reason);
        // Without a runtime the process is on its way out; the next start lets the connection go.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { detach(&engine, id, connection, reason).await });
        }
    }
}

/// Lets a client in, or refuses it: another may be attached.
pub(crate) async fn enter(api: &Api, id: SessionId, visitor: Visitor, mode: Mode) -> Result<Guest, Refusal> {
    let engine = api.engine.clone();
    if api.hub.stopping().is_cancelled() {
        // One that is let in would be sent away at once, and come again at once.
        return Err(Refusal::new(Code::Ehostdown, "the daemon is stopping; connect again when it is back"));
    }
    // First the frames, then the attaching, so that nothing that follows is missed.
    let seat = api.hub.enter(visitor.caller, id).await?;
    let attached = match mode {
        Mode::Observe => None,
        Mode::Interactive { takeover } => {
            let connection = engine.new_id();
            let hint = visitor.device_hint.clone();
            let closed = engine.attach(visitor.caller, id, connection, hint, takeover).await?;
            let (engine, reason) = (engine.clone(), DetachReason::Error);
            Some(Attached { engine, id, connection, closed, reason, told: false })
        }
    };
    let (access, terminals) = (api.access.clone(), Arc::clone(&api.terminals));
    let tasks = api.hub.tasks().clone();
    Ok(Guest { engine, access, id, visitor, seat, attached, terminals, tasks })
}

impl Guest {
    /// Talks with the client until one of the two has enough.
    pub(crate) async fn serve(mut self, socket: WebSocket) {
        let _counted = self.tasks.token();
        let (mut out, mut stream) = split(&self.engine, socket);
        let left = match self.talk(&mut out, &mut stream).await {
            Ok(never) => match never {},
            Err(left) => left,
        };
        // First out of the way, then goodbye: it may take a while.
        if let Some(attached) = &mut self.attached {
            self.seat.sent(None);
            attached.detach(left.reason()).await;
        }
        drop(self.seat);
        out.goodbye(left).await;
    }

    /// The order of the branches is that of `biased`: the session's end, then what the client says, and frames that wait come last, so that
    /// a long replay does not delay a cancel.
    async fn talk(
        &mut self,
        out: &mut Out,
        stream: &mut SplitStream<WebSocket>,
    ) -> Result<std::convert::Infallible, Left> {
        let hello = tokio::time::timeout(HELLO, first(out, stream)).await.map_err(|_| Left::Silent)??;
        let start = self.start(&hello).ok_or(Left::Closed(Closing::ResumeFailed))?;
        let (about, of) = ((&self.engine, Arc::clone(&self.terminals)), (self.id, self.visitor.caller));
        let mut ptys = Ptys::new(about, of, self.attached.is_some(), &hello);
        let open = ptys.open().await;
        out.control("welcome", self.welcome(&hello, start, Ptys::in_welcome(&open))).await?;
        ptys.show(out, open, true).await?;
        let mut at = start.at;
        let mut pulse = Pulse::new(&self.engine);
        let mut changes = self.seat.relay.changes();
        let (refusals, mut refused) = mpsc::channel::<Refusal>(REFUSALS);
        loop {
            changes.mark_unchanged();
            let busy = self.send_next(out, &mut at, start.known).await?;
            tokio::select! {
                biased;
                reason = closed(&mut self.attached) => on_closed(reason)?,
                heard = hear(stream) => {
                    pulse.heard();
                    self.on_heard(out, heard, &ptys, &refusals).await?;
                }
                beat = pulse.beat() => {
                    beat?;
                    self.still_welcome()?;
                    out.ping().await?;
                }
                Some(refusal) = refused.recv() => out.refuse(refusal).await?,
                news = ptys.next() => ptys.on_news(out, news).await?,
                () = std::future::ready(()), if busy => {}
                _ = changes.changed() => {}
            }
        }
    }

    /// Where the client begins; None: it has missed something that is no longer there.
    fn start(&self, hello: &Hello) -> Option<Start> {
        let relay = &self.seat.relay;
        match (&hello.epoch, hello.resume_from_seq) {
            (_, None) => Some(relay.now_on()),
            // As the seed has it: the numbers are those of now.
            (None, Some(known)) => relay.resume_kept(known),
            (Some(epoch), Some(known)) if *epoch == relay.epoch.to_string() => relay.resume(known),
            (Some(_), Some(_)) => None,
        }
    }

    /// The first frame. A session that cannot be found any more is shown as ended, because its client has been let in already.
    fn welcome(&self, hello: &Hello, start: Start, terminals: Vec<Value>) -> Welcome {
        let found = self.engine.find(self.visitor.caller, self.id);
        Welcome {
            session_id: self.id,
            epoch: self.seat.relay.epoch.to_string(),
            state: found.map_or(ctx_session::StateName::Ended, |summary| summary.state),
            server_seq: start.newest,
            resumed_from_seq: hello.resume_from_seq,
            terminals,
            mode: if self.attached.is_some() { "interactive" } else { "observe" },
        }
    }

    /// Sends the next frames, if there are any; whether there were.
    async fn send_next(&mut self, out: &mut Out, at: &mut u64, known: Seqs) -> Result<bool, Left> {
        let frames = match self.seat.relay.read(*at, BATCH, BATCH_BYTES) {
            Read::Frames(frames) => frames,
            Read::Nothing => return Ok(false),
            Read::Behind => return Err(Left::Closed(Closing::Slow)),
            Read::End(closing) => return Err(Left::Closed(closing)),
        };
        let next = frames.last().map_or(*at, |last| last.at + 1);
        let texts = frames.into_iter().filter(|kept| !kept.is_known(known)).map(|kept| kept.text);
        tokio::select! {
            biased;
            sent = out.send(texts) => sent?,
            reason = closed(&mut self.attached) => on_closed(reason)?,
        }
        *at = next;
        if self.attached.is_some() {
            self.seat.sent(Some(next));
        }
        Ok(true)
    }

    fn still_welcome(&self) -> Result<(), Left> {
        match self.visitor.token {
            Some(token) if !self.access.is_good(token) => Err(Left::Revoked),
            Some(_) | None => Ok(()),
        }
    }

    async fn on_heard(
        &mut self,
        out: &mut Out,
        heard: Heard,
        ptys: &Ptys,
        refusals: &mpsc::Sender<Refusal>,
    ) -> Result<(), Left> {
        let frame = match heard {
            Heard::Alive => return Ok(()),
            Heard::Typed(id, bytes) => {
                self.still_welcome()?;
                return match ptys.on_binary(id, bytes) {
                    Ok(()) => Ok(()),
                    Err(refusal) => out.refuse(refusal).await,
                };
            }
            Heard::Gone(left) => return Err(left),
            Heard::Nonsense(refusal) => return out.refuse(refusal).await,
            Heard::Frame(frame) => frame,
        };
        // What is asked with a token that is revoked meanwhile is not done.
        self.still_welcome()?;
        match (frame.channel.as_str(), frame.r#type.as_str()) {
            ("control", "ping") => out.control("pong", frame.payload).await,
            ("control", "pong") => Ok(()),
            ("control", "cancel" | "checkpoint" | "approval") => {
                match self.act(&frame.r#type, frame.payload, refusals) {
                    Ok(()) => Ok(()),
                    Err(refusal) => out.refuse(refusal).await,
                }
            }
            ("pty", kind) => match ptys.on_frame(kind, &frame.pty) {
                Ok(()) => Ok(()),
                Err(refusal) => out.refuse(refusal).await,
            },
            ("control", "hello") => out.refuse(Refusal::invalid("type", "hello was already sent")).await,
            (channel, kind) => out.refuse(cannot_send(channel, kind)).await,
        }
    }

    /// Begins what the operator asks for. The frames go on meanwhile and show what comes of it.
    fn act(&self, kind: &str, payload: Value, refusals: &mpsc::Sender<Refusal>) -> Result<(), Refusal> {
        if self.attached.is_none() {
            return Err(Refusal::new(Code::Eacces, format!("an observer cannot send `{kind}`")));
        }
        let act = Act::read(kind, payload)?;
        let (engine, caller, id, refusals) =
            (self.engine.clone(), self.visitor.caller, self.id, refusals.clone());
        tokio::spawn(async move {
            let done = match act {
                Act::Cancel { run_id } => engine.cancel(caller, id, run_id).await.map(drop),
                Act::Checkpoint { reason } => engine.checkpoint(caller, id, reason, None).await.map(drop),
                Act::Approval { approval_id, answer } => match answer.allowed() {
                    Ok(allowed) => {
                        let note = answer.note.as_deref();
                        engine.answer_approval(caller, id, approval_id, allowed, note).await
                    }
                    Err(refusal) => Err(refusal),
                },
            };
            if let Err(refusal) = done {
                let _ = refusals.send(refusal).await;
            }
        });
        Ok(())
    }
}

/// Waits for the first frame that is one.
async fn first(out: &mut Out, stream: &mut SplitStream<WebSocket>) -> Result<Hello, Left> {
    loop {
        match hear(stream).await {
            Heard::Gone(left) => return Err(left),
            Heard::Alive => {}
            Heard::Typed(..) => out.refuse(cannot_send("pty", "stdin")).await?,
            Heard::Nonsense(refusal) => out.refuse(refusal).await?,
            Heard::Frame(frame) => match hello(frame) {
                Ok(hello) => return Ok(hello),
                Err(refusal) => out.refuse(refusal).await?,
            },
        }
    }
}

fn hello(frame: Received) -> Result<Hello, Refusal> {
    if (frame.channel.as_str(), frame.r#type.as_str()) != ("control", "hello") {
        return Err(Refusal::invalid("type", "the first frame must be `hello` on `control`"));
    }
    let payload = if frame.payload.is_null() { Value::Object(Default::default()) } else { frame.payload };
    serde_json::from_value(payload)
        .map_err(|error| Refusal::invalid("payload", format!("invalid hello: {error}")))
}

/// Waits until the session has this connection closed; never for one who only looks on.
async fn closed(attached: &mut Option<Attached>) -> DetachReason {
    match attached {
        Some(attached) if !attached.told => match (&mut attached.closed).await {
            Ok(reason) => {
                attached.told = true;
                reason
            }
            Err(_) => std::future::pending().await,
        },
        Some(_) | None => std::future::pending().await,
    }
}

/// Of a session that is over, the frames come first and then the end; anything else is at once.
fn on_closed(reason: DetachReason) -> Result<(), Left> {
    match reason {
        DetachReason::SessionEnded => Ok(()),
        DetachReason::TakenOver => Err(Left::Closed(Closing::TakenOver)),
        DetachReason::Slow => Err(Left::Closed(Closing::Slow)),
        DetachReason::DaemonRestart => Err(Left::Closed(Closing::Shutdown)),
        DetachReason::Error | DetachReason::Clean | DetachReason::Timeout => {
            Err(Left::Closed(Closing::ResumeFailed))
        }
    }
}
