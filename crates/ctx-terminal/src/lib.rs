//! Terminals that outlive the window, the connection and the daemon.
//!
//! A terminal is a PTY in the hands of a small process of its own, the holder (`hold`): it has the master, a model of the
//! screen (`model`, painted again by `repaint`; `unseen` is what it need not draw, `bounded` what of a long sequence reaches it; `footprint` is what output leaves in a person's terminal, `questions` what it asks of one) and the transcript (`transcript`, exported by `export`). Clients speak
//! `protocol` with it over a Unix socket in its directory (`place`), by `client`. `broker` is the daemon's side: it starts holders and
//! finds them again (`checks`: what it does not start; `key_names`: what it types; `keyboard`: what a person's terminal types); it keeps nothing in memory, so a daemon that is killed has nothing to lose. Sessions and doors are
//! not known here.

mod account;
mod boundary;
mod bounded;
mod broker;
mod checks;
mod client;
mod error;
mod export;
mod footprint;
mod hold;
mod key_names;
mod keyboard;
mod model;
mod place;
mod protocol;
mod questions;
mod repaint;
mod sessions;
mod transcript;
mod unseen;

pub use boundary::Boundary;
pub use broker::{ASK, Terminal, Terminals};
pub use checks::{NewTerminal, OfSession};
pub use client::{Connection, FromHolderStream, Polled, ToHolderStream, connect, speak};
pub use error::TerminalError;
pub use export::{Chunked, Found, asciicast, raw, search, text};
pub use footprint::{ENTER, Footprint};
pub use hold::{INSIDE, become_program, hold, leave_stdio, read_spec};
pub use key_names::{CursorKeys, keys, typed};
pub use keyboard::{CTRL, Key, Piece, Stroke, pieces};
pub use model::{Model, Screen};
pub use place::{About, Bounds, CageAround, End, EndReason, SOCKET, Spec, TRANSCRIPT};
pub use protocol::{Decoder, FromHolder, Hello, Mode, Size, State, Status, ToHolder, VERSION, Waiting};
pub use questions::without_questions;
pub use transcript::{Chunk, ChunkKind, Chunks, open_transcript};
