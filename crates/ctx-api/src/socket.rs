//! The JSONL protocol of `agent/<name>.sock` and `model/<provider>/<model>.sock`: one request or frame per line.

use ctx_session::Code;
use ctx_session::command::RunNet;
use ctx_session::record::{Approvals, LimitHit, RunFinish, ToolSummary, Usage};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::http::NewPart;

/// A request as it is read: unknown fields are ignored, what is missing has its default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Request {
    /// `send`, `resume`, `cancel` or `ping`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub op: Option<String>,
    /// The client's id of a message (`send`), or the run's id (`cancel`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The session's name, or its ULID. Default: `default`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// `private` (default), `shared` or `temp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// The space of a shared session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<String>,
    /// A path as the agent sees it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The host directory that the client is in, for a new session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dir: Option<String>,
    /// The text of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// In place of `input`, for a model and in a temp session: the whole conversation, the user's message last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<Vec<NewMessage>>,
    /// Images that go with it, and more text. A line with images may be longer than other frames.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<NewPart>,
    /// `provider:model` for this and later messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model_override: Option<String>,
    /// The answer to every approval of the run: `allow` or `deny`. Left out: the operator is asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approvals: Option<Approvals>,
    /// What is allowed in this run whatever the policy says: `TOOL [PATTERN]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// The network of the run's cages: `none` or `host`. Left out: as the project and the operator say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net: Option<RunNet>,
    /// The id of the last event seen (`resume`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A message of a conversation that the client keeps itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewMessage {
    /// `user`, `assistant` or `system`.
    pub role: String,
    pub content: NewContent,
}

/// Its text, whole or in pieces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NewContent {
    Text(String),
    Parts(Vec<Content>),
}

impl NewContent {
    pub fn text(self) -> String {
        match self {
            NewContent::Text(text) => text,
            NewContent::Parts(parts) => parts.into_iter().map(|Content::Text { text }| text).collect(),
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DoneStatus {
    Ok,
    Error,
    Cancelled,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    Text { text: String },
}

/// What the daemon sends. Every frame of a session carries `session`; every event has an `id` to resume after.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Frame {
    Start {
        id: String,
        run: String,
        model: String,
        session: String,
        session_id: String,
    },
    Delta {
        id: String,
        run: String,
        session: String,
        text: String,
    },
    /// A piece of the model's reasoning.
    Reasoning {
        id: String,
        run: String,
        session: String,
        text: String,
    },
    Message {
        id: String,
        run: String,
        session: String,
        role: String,
        content: Vec<Content>,
        /// The text did not fit a frame: `whole` says where it is.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        whole: Option<String>,
        /// The model came to the end of what it may say at once, not to its own.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        at_output_limit: bool,
    },
    ToolCall {
        id: String,
        run: String,
        session: String,
        call: String,
        name: String,
        input: Value,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
        /// The subagent that made the call; absent: the primary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        caller: Option<String>,
    },
    ToolResult {
        id: String,
        run: String,
        session: String,
        call: String,
        status: String,
        output: String,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
        /// The unified diff of the file that the call changed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        summary: Option<ToolSummary>,
        /// The subagent that made the call; absent: the primary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        caller: Option<String>,
    },
    /// What a model call has used, as its provider counted.
    Usage {
        id: String,
        run: String,
        session: String,
        #[serde(flatten)]
        usage: Usage,
    },
    /// A model call came to nothing and is made again after the wait.
    Retrying {
        id: String,
        run: String,
        session: String,
        code: Code,
        reason: String,
        message: String,
        /// The attempt that failed, from 1.
        attempt: u32,
        attempts_max: u32,
        wait_ms: u64,
        /// The subagent whose call it is; absent: the primary's.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        caller: Option<String>,
    },
    /// Something that the operator should know of and that stops nothing.
    Notice {
        id: String,
        run: String,
        session: String,
        reason: String,
        message: String,
        /// The subagent that it is about; absent: the primary.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        caller: Option<String>,
    },
    Queued {
        id: String,
        run: String,
        session: String,
        session_id: String,
        reason: String,
        /// The limit that was reached, and how many runs were busy.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        limit: Option<LimitHit>,
    },
    /// The run waits for an operator, until the session is resumed or rolled back.
    Paused {
        id: String,
        run: String,
        session: String,
        session_id: String,
        checkpoint: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// A tool call waits for an operator's answer.
    Approval {
        id: String,
        run: String,
        session: String,
        session_id: String,
        approval: String,
        call: String,
        tool: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        subject: Option<String>,
        /// The unified diff of what the call would change.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        diff: Option<String>,
    },
    Error {
        /// With a failed run's error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        session: Option<String>,
        /// With a refused request: the `id` it came with.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<String>,
        code: Code,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
        message: String,
    },
    Done {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
        run: String,
        session: String,
        status: DoneStatus,
        /// How a run that is `ok` stopped short of its answer: `awaiting_compaction`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        finish_reason: Option<RunFinish>,
    },
    Pong {},
}
