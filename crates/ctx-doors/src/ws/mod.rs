//! The WebSockets: a session's own, and the system's.
//!
//! `frames` says what an event looks like, `relay` numbers and keeps the frames of one session, `hub` holds the
//! relays there are, `pty` shows one client the session's terminals as fast as `rate` allows, `session` and `system` talk to one client each. What is refused is refused by HTTP, before.

mod act;
mod frames;
mod hub;
mod pty;
mod rate;
mod relay;
pub(crate) mod session;
pub(crate) mod system;
mod talk;

use ctx_engine::Caller;
use ctx_session::Ulid;

pub use hub::Hub;

/// Who comes in.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    pub caller: Caller,
    /// The token they came with; once it is revoked, they have to go.
    pub token: Option<Ulid>,
    pub device_hint: Option<String>,
}

/// As what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// The one operator who is attached.
    Interactive { takeover: bool },
    /// One of any number who look on.
    Observe,
}
