//! What a holder and its clients say to each other: frames of a length, a kind and a payload.
//!
//! Version 1. A frame is four bytes of length (big-endian, of what follows), one byte of kind, and the payload: raw bytes
//! for input and output, JSON for the rest. Each side ignores kinds and fields that it does not know, so an old holder
//! serves a new daemon; what an old holder must not misread gets a new version.

use serde::{Deserialize, Serialize};

use super::model::Screen;
use super::place::End;

pub const VERSION: u32 = 1;

/// A frame beyond this is not one of ours. The scrollback of a wide screen in many colours is the largest.
const FRAME_BYTES_MAX: usize = 256 * 1024 * 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    pub cols: u16,
    pub rows: u16,
}

impl Size {
    /// A size that a terminal can have.
    pub fn new(cols: u16, rows: u16) -> Size {
        Size { cols: cols.clamp(2, 1_000), rows: rows.clamp(1, 1_000) }
    }
}

/// What a client wants to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Type and see. The one that came last has the keyboard, and the size follows it.
    Write,
    /// See, and take the keyboard with the first key or size.
    Join,
    /// See.
    Watch,
    /// Ask and send single things, without being attached.
    Ask,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub version: u32,
    pub mode: Mode,
    #[serde(default)]
    pub size: Option<Size>,
    /// Lines of scrollback to begin with.
    #[serde(default)]
    pub scrollback: usize,
}

/// What a client says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToHolder {
    Hello(Hello),
    Input(Vec<u8>),
    Resize(Size),
    /// Paint everything again.
    Repaint,
    Screen,
    Status,
    /// End the program.
    Close,
    /// Stop the processes of its cage where they are. One without a cage goes on.
    Freeze,
    Thaw,
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Somebody is attached.
    Active,
    Detached,
    Closed,
}

/// What a terminal seems to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Waiting {
    /// It rang since somebody last typed.
    Bell,
    /// It has been silent for a while.
    Input,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    pub version: u32,
    pub state: State,
    pub size: Size,
    pub attached: usize,
    #[serde(default)]
    pub waiting: Option<Waiting>,
    #[serde(default)]
    pub title: String,
    /// The program's process.
    pub pid: u32,
    /// Output so far.
    pub bytes: u64,
    pub lines: u64,
    /// Lines above the screen.
    #[serde(default)]
    pub scrollback: usize,
    /// The program has asked for the other form of the cursor keys (DECCKM).
    #[serde(default)]
    pub has_application_cursor: bool,
    /// Since when nothing came and nothing was typed.
    pub idle_ms: u64,
    /// Why the transcript has gaps.
    #[serde(default)]
    pub transcript_error: Option<String>,
}

/// What a holder says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromHolder {
    /// The answer to hello.
    Welcome(Status),
    /// Output as it came; `offset` is where it stands in all output.
    Output {
        offset: u64,
        bytes: Vec<u8>,
    },
    /// The screen as it is now, as output that paints it. Replaces what was shown.
    Repaint {
        offset: u64,
        bytes: Vec<u8>,
    },
    Status(Status),
    Screen(Screen),
    /// It rings.
    Bell,
    /// Nothing came and nothing was typed for so long.
    Idle {
        idle_ms: u64,
    },
    /// The terminal has another size now.
    Resized(Size),
    /// The program has ended.
    End(End),
    Refused(String),
    Unknown,
}

#[derive(Serialize, Deserialize)]
struct Idle {
    idle_ms: u64,
}

fn frame(kind: u8, head: &[u8], payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(1 + head.len() + payload.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(5 + head.len() + payload.len());
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.push(kind);
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(payload);
    bytes
}

fn json(kind: u8, value: &impl Serialize) -> Vec<u8> {
    // These values have nothing that JSON cannot express.
    frame(kind, &[], &serde_json::to_vec(value).unwrap_or_default())
}

impl ToHolder {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            ToHolder::Hello(hello) => json(1, hello),
            ToHolder::Input(bytes) => frame(2, &[], bytes),
            ToHolder::Resize(size) => json(3, size),
            ToHolder::Repaint => frame(4, &[], &[]),
            ToHolder::Screen => frame(5, &[], &[]),
            ToHolder::Status => frame(6, &[], &[]),
            ToHolder::Close => frame(7, &[], &[]),
            ToHolder::Freeze => frame(8, &[], &[]),
            ToHolder::Thaw => frame(9, &[], &[]),
            ToHolder::Unknown => frame(0, &[], &[]),
        }
    }

    /// A frame that cannot be read is one of another version, and is ignored like one.
    pub fn decode(kind: u8, payload: Vec<u8>) -> ToHolder {
        match kind {
            1 => serde_json::from_slice(&payload).map_or(ToHolder::Unknown, ToHolder::Hello),
            2 => ToHolder::Input(payload),
            3 => serde_json::from_slice(&payload).map_or(ToHolder::Unknown, ToHolder::Resize),
            4 => ToHolder::Repaint,
            5 => ToHolder::Screen,
            6 => ToHolder::Status,
            7 => ToHolder::Close,
            8 => ToHolder::Freeze,
            9 => ToHolder::Thaw,
            _ => ToHolder::Unknown,
        }
    }
}

impl FromHolder {
    pub fn encode(&self) -> Vec<u8> {
        match self {
            FromHolder::Welcome(status) => json(16, status),
            FromHolder::Output { offset, bytes } => frame(17, &offset.to_be_bytes(), bytes),
            FromHolder::Repaint { offset, bytes } => frame(18, &offset.to_be_bytes(), bytes),
            FromHolder::Status(status) => json(19, status),
            FromHolder::Screen(screen) => json(20, screen),
            FromHolder::Idle { idle_ms } => json(21, &Idle { idle_ms: *idle_ms }),
            FromHolder::End(end) => json(22, end),
            FromHolder::Refused(message) => json(23, message),
            FromHolder::Bell => frame(24, &[], &[]),
            FromHolder::Resized(size) => json(25, size),
            FromHolder::Unknown => frame(0, &[], &[]),
        }
    }

    pub fn decode(kind: u8, mut payload: Vec<u8>) -> FromHolder {
        fn read<'a, T: Deserialize<'a>>(payload: &'a [u8], make: fn(T) -> FromHolder) -> FromHolder {
            serde_json::from_slice(payload).map_or(FromHolder::Unknown, make)
        }
        match kind {
            16 => read(&payload, FromHolder::Welcome),
            17 | 18 => {
                let Some(head) = payload.first_chunk::<8>() else { return FromHolder::Unknown };
                let offset = u64::from_be_bytes(*head);
                payload.drain(..8);
                match kind {
                    17 => FromHolder::Output { offset, bytes: payload },
                    _ => FromHolder::Repaint { offset, bytes: payload },
                }
            }
            19 => read(&payload, FromHolder::Status),
            20 => read(&payload, FromHolder::Screen),
            21 => read(&payload, |Idle { idle_ms }| FromHolder::Idle { idle_ms }),
            22 => read(&payload, FromHolder::End),
            23 => read(&payload, FromHolder::Refused),
            24 => FromHolder::Bell,
            25 => read(&payload, FromHolder::Resized),
            _ => FromHolder::Unknown,
        }
    }
}

/// Puts frames together from what reads return.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
}

/// The peer does not speak this protocol.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {0} bytes is not one of this protocol")]
pub struct NotAFrame(usize);

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes of frames that are not whole yet.
    pub fn waiting(&self) -> usize {
        self.bytes.len()
    }

    /// The kind and payload of the next whole frame.
    pub fn take(&mut self) -> Result<Option<(u8, Vec<u8>)>, NotAFrame> {
        let Some(head) = self.bytes.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length == 0 || length > FRAME_BYTES_MAX {
            return Err(NotAFrame(length));
        }
        if self.bytes.len() < 4 + length {
            return Ok(None);
        }
        let rest = self.bytes.split_off(4 + length);
        let mut frame = std::mem::replace(&mut self.bytes, rest);
        let payload = frame.split_off(5);
        Ok(frame.last().map(|kind| (*kind, payload)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_they_were_written_however_reads_cut_them() {
        let hello = Hello { version: 1, mode: Mode::Write, size: Some(Size::new(80, 24)), scrollback: 7 };
        let sent = [
            ToHolder::Hello(hello),
            ToHolder::Input(b"\x1b[A\xff".to_vec()),
            ToHolder::Resize(Size::new(132, 50)),
            ToHolder::Repaint,
            ToHolder::Screen,
            ToHolder::Status,
            ToHolder::Close,
            ToHolder::Freeze,
            ToHolder::Thaw,
        ];
        let stream: Vec<u8> = sent.iter().flat_map(ToHolder::encode).collect();
        for step in [1, 3, 1_000] {
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            for piece in stream.chunks(step) {
                decoder.push(piece);
                while let Some((kind, payload)) = decoder.take().unwrap() {
                    got.push(ToHolder::decode(kind, payload));
                }
            }
            assert_eq!(got, sent);
        }
    }

    #[test]
    fn what_the_holder_says_is_read_as_it_was_written() {
        for said in [
            FromHolder::Output { offset: 1 << 40, bytes: b"x\0y".to_vec() },
            FromHolder::Repaint { offset: 3, bytes: Vec::new() },
            FromHolder::Bell,
            FromHolder::Idle { idle_ms: 5 },
            FromHolder::Resized(Size::new(60, 15)),
            FromHolder::Refused("no".to_owned()),
        ] {
            let frame = said.encode();
            let mut decoder = Decoder::default();
            decoder.push(&frame);
            let (kind, payload) = decoder.take().unwrap().unwrap();
            assert_eq!(FromHolder::decode(kind, payload), said);
        }
    }

    #[test]
    fn frames_and_fields_of_a_later_version_are_ignored() {
        assert_eq!(ToHolder::decode(99, b"anything".to_vec()), ToHolder::Unknown);
        assert_eq!(FromHolder::decode(99, Vec::new()), FromHolder::Unknown);
        let later = br#"{"cols":80,"rows":24,"depth":3}"#.to_vec();
        assert_eq!(ToHolder::decode(3, later), ToHolder::Resize(Size::new(80, 24)));
        let earlier = br#"{"version":1,"mode":"watch"}"#.to_vec();
        let hello = Hello { version: 1, mode: Mode::Watch, size: None, scrollback: 0 };
        assert_eq!(ToHolder::decode(1, earlier), ToHolder::Hello(hello));
        let mut decoder = Decoder::default();
        decoder.push(b"GET / HTTP/1.1\r\n");
        assert!(decoder.take().is_err());
    }
}
