//! The JSON frames of the WebSockets: `{"channel", "type", "seq", "payload"}`.

use ctx_session::{Code, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Which stream a frame belongs to. `seq` counts per channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    Control,
    Output,
    Events,
}

/// A frame on its way to a client.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Frame<'a, P> {
    pub channel: Channel,
    pub r#type: &'a str,
    pub seq: u64,
    pub payload: P,
}

/// A frame as a client sends it. Fields that are not known are ignored here; each payload decides for itself.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Received {
    pub channel: String,
    pub r#type: String,
    #[serde(default)]
    pub payload: Value,
    #[serde(flatten)]
    pub pty: PtyFields,
}

/// What the frames of the `pty` channel have beside `payload`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PtyFields {
    pub pty_id: Option<String>,
    /// Of `stdin`, in base64.
    pub data: Option<String>,
    /// Of `resize`.
    pub cols: Option<u16>,
    pub rows: Option<u16>,
}

/// How a client gets what a terminal shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PtyEncoding {
    #[default]
    Base64,
    /// In binary frames: 1, the terminal's id in 16 bytes, the number in 8, big-endian, then the data.
    Binary,
}

/// `control hello`: the first frame of every client.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Hello {
    pub epoch: Option<String>,
    pub resume_from_seq: Option<Seqs>,
    pub pty_encoding: PtyEncoding,
    /// Lines above the screen to begin with in each terminal; as many as are kept if it is absent.
    pub scrollback: Option<usize>,
}

/// The last seq of each channel that is replayed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Seqs {
    pub output: u64,
    pub events: u64,
}

/// `control welcome`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Welcome {
    pub session_id: SessionId,
    pub epoch: String,
    pub state: ctx_session::StateName,
    /// The newest frame of each channel when the client came in. Who says hello without a place is sent a message that
    /// is being written from its beginning, and these are then the last frames before it.
    pub server_seq: Seqs,
    /// What the missed frames begin after; null: nothing is replayed.
    pub resumed_from_seq: Option<Seqs>,
    pub terminals: Vec<Value>,
    /// `interactive` or `observe`.
    pub mode: &'static str,
}

/// Why a connection is closed. The code and the reason are the same word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closing {
    SessionEnded,
    SessionFailed,
    ResumeFailed,
    TakenOver,
    Slow,
    Shutdown,
}

impl Closing {
    pub fn as_str(self) -> &'static str {
        match self {
            Closing::SessionEnded => "session_ended",
            Closing::SessionFailed => "session_failed",
            Closing::ResumeFailed => "resume_failed",
            Closing::TakenOver => "taken_over",
            Closing::Slow => "slow",
            Closing::Shutdown => "shutdown",
        }
    }
}

/// `control closing`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClosingPayload {
    pub code: &'static str,
    pub reason: &'static str,
}

impl From<Closing> for ClosingPayload {
    fn from(closing: Closing) -> ClosingPayload {
        ClosingPayload { code: closing.as_str(), reason: closing.as_str() }
    }
}

/// `control error`: something the client asked for was refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ErrorPayload {
    pub code: Code,
    pub message: String,
}
