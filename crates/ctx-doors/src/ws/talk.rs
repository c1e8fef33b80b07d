//! What both sockets do alike: sending with a bound on waiting, pings, and saying goodbye.

use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, close_code};
use ctx_api::ws::{Channel, Closing, ClosingPayload, ErrorPayload, Frame, Received};
use ctx_engine::Engine;
use ctx_session::record::DetachReason;
use ctx_session::{Refusal, Ulid};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde::Serialize;
use tokio::time::{Instant, Interval, MissedTickBehavior};
use tokio_tungstenite::tungstenite::{self, error::ProtocolError};

use super::pty::binary_input;

/// How long a client that has to go may take to hear why.
const GOODBYE: Duration = Duration::from_secs(5);
/// How long the connection of a client that sent too much stays open: closed with bytes unread, it would be reset, and
/// what we said with it.
const LINGER: Duration = Duration::from_secs(1);

/// Why a client is let go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// It said goodbye.
    Clean,
    /// The connection broke.
    Broken,
    /// The client does not keep to the protocol.
    Faulty(Fault),
    /// Nothing was heard for too long.
    Silent,
    /// The token it came with is no longer good.
    Revoked,
    /// We have a reason of ours.
    Closed(Closing),
}

/// What a client did against the protocol of WebSockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    TooBig,
    NotUtf8,
    Other,
}

impl Fault {
    /// The close code, and words for it.
    fn close(self) -> (u16, &'static str) {
        match self {
            Fault::TooBig => (close_code::SIZE, "a frame has at most 1 MiB"),
            Fault::NotUtf8 => (close_code::INVALID, "the text is not UTF-8"),
            Fault::Other => (close_code::PROTOCOL, "protocol error"),
        }
    }

    /// None: nothing that the client did, the connection is gone.
    fn of(error: axum::Error) -> Option<Fault> {
        match error.into_inner().downcast_ref::<tungstenite::Error>()? {
            tungstenite::Error::Capacity(_) => Some(Fault::TooBig),
            tungstenite::Error::Utf8(_) => Some(Fault::NotUtf8),
            // A connection that ends without a goodbye is reported as one of these, and nobody is left to be told.
            tungstenite::Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => None,
            tungstenite::Error::Protocol(_) => Some(Fault::Other),
            _ => None,
        }
    }
}

impl Left {
    pub fn reason(self) -> DetachReason {
        match self {
            Left::Clean => DetachReason::Clean,
            Left::Broken | Left::Faulty(_) | Left::Revoked | Left::Closed(Closing::ResumeFailed) => {
                DetachReason::Error
            }
            Left::Silent => DetachReason::Timeout,
            Left::Closed(Closing::Slow) => DetachReason::Slow,
            Left::Closed(Closing::TakenOver) => DetachReason::TakenOver,
            Left::Closed(Closing::SessionEnded | Closing::SessionFailed) => DetachReason::SessionEnded,
            Left::Closed(Closing::Shutdown) => DetachReason::DaemonRestart,
        }
    }
}

/// The sending half.
pub(super) struct Out {
    sink: SplitSink<WebSocket, Message>,
    control_seq: u64,
    stall: Duration,
}

/// What was heard.
#[derive(Debug)]
pub(super) enum Heard {
    Frame(Received),
    /// Input for a terminal, in a binary frame.
    Typed(Ulid, Vec<u8>),
    /// Something that is no frame of ours: what is wrong with it.
    Nonsense(Refusal),
    /// A sign of life.
    Alive,
    Gone(Left),
}

/// When to ping, and when to give up.
pub(super) struct Pulse {
    ticks: Interval,
    heard: Instant,
    silent_max: Duration,
}

pub(super) fn split(engine: &Engine, socket: WebSocket) -> (Out, SplitStream<WebSocket>) {
    let (sink, stream) = socket.split();
    let stall = Duration::from_millis(engine.limits().slow_ms);
    (Out { sink, control_seq: 0, stall }, stream)
}

impl Out {
    /// Sends what is given. A client that takes nothing for too long is slow.
    pub async fn send(&mut self, texts: impl IntoIterator<Item = Utf8Bytes>) -> Result<(), Left> {
        let sending = async {
            for text in texts {
                self.sink.feed(Message::Text(text)).await?;
            }
            self.sink.flush().await
        };
        match tokio::time::timeout(self.stall, sending).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Left::Broken),
            Err(_) => Err(Left::Closed(Closing::Slow)),
        }
    }

    /// Sends a binary frame, with the same patience.
    pub async fn binary(&mut self, frame: Vec<u8>) -> Result<(), Left> {
        match tokio::time::timeout(self.stall, self.sink.send(Message::Binary(frame.into()))).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(Left::Broken),
            Err(_) => Err(Left::Closed(Closing::Slow)),
        }
    }

    pub async fn control(&mut self, kind: &str, payload: impl Serialize) -> Result<(), Left> {
        let text = self.control_text(kind, payload);
        self.send([text]).await
    }

    fn control_text(&mut self, kind: &str, payload: impl Serialize) -> Utf8Bytes {
        self.control_seq += 1;
        let frame = Frame { channel: Channel::Control, r#type: kind, seq: self.control_seq, payload };
        // No map with keys that are not strings: serialising this cannot fail.
        serde_json::to_string(&frame).unwrap_or_default().into()
    }

    pub async fn refuse(&mut self, refusal: Refusal) -> Result<(), Left> {
        self.control("error", ErrorPayload { code: refusal.code, message: refusal.message }).await
    }

    /// Both kinds: one that every client's library answers, one that a page can see.
    pub async fn ping(&mut self) -> Result<(), Left> {
        if self.sink.feed(Message::Ping(Default::default())).await.is_err() {
            return Err(Left::Broken);
        }
        self.control("ping", serde_json::json!({})).await
    }

    /// Says why, and closes; a client that does not listen is not waited for long.
    pub async fn goodbye(mut self, left: Left) {
        let (code, reason) = match left {
            Left::Closed(closing) => {
                let text = self.control_text("closing", ClosingPayload::from(closing));
                let saying = self.sink.send(Message::Text(text));
                if !matches!(tokio::time::timeout(GOODBYE, saying).await, Ok(Ok(()))) {
                    return;
                }
                (close_code(closing), closing.as_str())
            }
            Left::Revoked => (close_code::POLICY, "revoked"),
            Left::Silent => (close_code::POLICY, "timeout"),
            Left::Faulty(fault) => fault.close(),
            // Their goodbye is answered in kind; that waits to be sent.
            Left::Clean => {
                let _ = tokio::time::timeout(GOODBYE, self.sink.close()).await;
                return;
            }
            Left::Broken => return,
        };
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
        let _ = tokio::time::timeout(GOODBYE, self.sink.send(Message::Close(Some(frame)))).await;
        if left == Left::Faulty(Fault::TooBig) {
            tokio::time::sleep(LINGER).await;
        }
    }
}

fn close_code(closing: Closing) -> u16 {
    match closing {
        Closing::SessionEnded | Closing::SessionFailed | Closing::ResumeFailed => close_code::NORMAL,
        Closing::TakenOver | Closing::Slow => close_code::POLICY,
        Closing::Shutdown => close_code::AWAY,
    }
}

/// Refuses a frame that a client has no business sending.
pub(super) fn cannot_send(channel: &str, kind: &str) -> Refusal {
    let message = format!("a client cannot send `{kind}` on `{channel}`");
    Refusal::invalid("type", message.chars().take(200).collect::<String>())
}

/// Reads what comes next. Cancelling it loses nothing.
pub(super) async fn hear(stream: &mut SplitStream<WebSocket>) -> Heard {
    match stream.next().await {
        Some(Ok(Message::Text(text))) => match serde_json::from_str(&text) {
            Ok(frame) => Heard::Frame(frame),
            Err(error) => Heard::Nonsense(Refusal::invalid("frame", format!("invalid frame: {error}"))),
        },
        Some(Ok(Message::Binary(frame))) => match binary_input(&frame) {
            Ok((id, bytes)) => Heard::Typed(id, bytes),
            Err(refusal) => Heard::Nonsense(refusal),
        },
        Some(Ok(Message::Ping(_) | Message::Pong(_))) => Heard::Alive,
        Some(Ok(Message::Close(_))) => Heard::Gone(Left::Clean),
        Some(Err(error)) => Heard::Gone(Fault::of(error).map_or(Left::Broken, Left::Faulty)),
        None => Heard::Gone(Left::Broken),
    }
}

impl Pulse {
    pub fn new(engine: &Engine) -> Pulse {
        let period = Duration::from_millis(engine.limits().ping_ms.max(1));
        let mut ticks = tokio::time::interval_at(Instant::now() + period, period);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Pulse { ticks, heard: Instant::now(), silent_max: period * 2 }
    }

    pub fn heard(&mut self) {
        self.heard = Instant::now();
    }

    /// The next moment to ping; an error when nothing has been heard of two pings.
    pub async fn beat(&mut self) -> Result<(), Left> {
        tokio::select! {
            _ = self.ticks.tick() => Ok(()),
            () = tokio::time::sleep_until(self.heard + self.silent_max) => Err(Left::Silent),
        }
    }
}
