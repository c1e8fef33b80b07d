//! Terminals that outlive the window, the connection and the daemon.
//!
//! A terminal is a PTY in the hands of a small process of its own, the holder (`hold`): it has the master, a model of the
//! screen (`model`, painted again by `repaint`) and the transcript (`transcript`, exported by `export`). Clients speak
//! `protocol` with it over a Unix socket in its directory (`place`). `broker` is the daemon's side: it starts holders and
//! finds them again; it keeps nothing in memory, so a daemon that is killed has nothing to lose. Sessions and doors are
//! not known here.

mod boundary;
mod broker;
mod client;
mod export;
mod hold;
mod model;
mod place;
mod protocol;
mod rate;
mod repaint;
mod transcript;

pub use boundary::Boundary;
pub use broker::{NewTerminal, Terminal, TerminalError, Terminals, typed};
pub use client::{Connection, connect, keys};
pub use export::{Found, asciicast, raw, search, text};
pub use hold::{become_program, hold, leave_stdio, read_spec};
pub use model::{Model, Screen};
pub use place::{About, End, EndReason, SOCKET, Spec, TRANSCRIPT};
pub use protocol::{Decoder, FromHolder, Hello, Mode, Size, State, Status, ToHolder, VERSION, Waiting};
pub use rate::{Allowed, Rate};
pub use repaint::LEAVE;
pub use transcript::{Chunk, ChunkKind, Chunks, Writer};

/// Lines of scrollback that a terminal keeps.
pub const SCROLLBACK_LINES: usize = 10_000;
/// What a client of a door gets in a second; the rest it sees as a fresh screen.
pub const CLIENT_BYTES_PER_SECOND: u64 = 1024 * 1024;
/// Live terminals that an operator may have without a session.
pub const OPERATOR_TERMINALS_MAX: usize = 64;
