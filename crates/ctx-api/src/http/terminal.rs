//! The JSON of `/terminals`: programs in terminals that outlive their clients and the daemon.

use std::collections::BTreeMap;

use ctx_session::Ulid;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A terminal. Times are epoch milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Terminal {
    #[schema(value_type = String)]
    pub id: Ulid,
    pub name: Option<String>,
    /// The session it belongs to; null: it is the operator's own.
    pub session: Option<String>,
    pub caged: bool,
    pub command: Vec<String>,
    pub cwd: String,
    /// `active` (somebody is attached), `detached` or `closed`.
    pub state: String,
    pub exit_code: Option<i32>,
    /// Why it is closed: `exited`, `closed` or `holder_lost`.
    pub reason: Option<String>,
    pub cols: u16,
    pub rows: u16,
    /// Clients that are attached.
    pub attached: usize,
    /// `bell`: it rang since somebody last typed. `input`: it has been silent. null: it is busy.
    pub waiting: Option<String>,
    pub title: String,
    pub created_at: u64,
    pub ended_at: Option<u64>,
    /// Bytes and lines of output.
    pub bytes: u64,
    pub lines: u64,
    /// Where its owner's programs on this machine reach it without the daemon.
    pub socket: String,
    pub transcript: String,
    /// Why output is missing in the transcript; null: none is.
    #[serde(default)]
    pub transcript_error: Option<String>,
}

/// `POST /terminals`. What is absent has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTerminal {
    /// The program and its arguments.
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Where it starts. Default: the caller's home.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// All of its environment. Default: that of a login.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<std::collections::HashMap<String, String>>)]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
}

/// `POST /sessions/:id/terminals`. What is absent has its default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSessionTerminal {
    /// The program and its arguments.
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
    /// In the cage of the session's agent, which is the default; false: as the session's owner, in its directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cage: Option<bool>,
}

/// `POST /terminals/:pid/input`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TerminalInput {
    /// Typed as it is.
    pub text: String,
    /// Keys after it: `Enter`, `Up`, `C-c`, `M-x`, or a character.
    pub keys: Vec<String>,
}

/// The screen of a terminal as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TerminalScreen {
    /// Its rows, without the blanks at their ends.
    pub text: String,
    pub cols: u16,
    pub rows: u16,
    pub cursor: TerminalCursor,
    pub title: String,
    /// The program has the alternate screen, as editors and pagers do.
    pub alternate: bool,
}

/// From 0, at the top left.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TerminalCursor {
    pub row: u16,
    pub col: u16,
    pub visible: bool,
}
