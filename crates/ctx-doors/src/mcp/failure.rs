//! Why a tool call has no result, and how its caller is told.

use ctx_host::{ShellError, ShellHost};
use rmcp::model::{CallToolResult, ContentBlock};

use super::parse::BadArguments;

/// Why a tool call has no result; a model reads it and can do better.
pub(super) enum Failure {
    Arguments(String),
    Shell(ShellError),
    Internal(String),
    /// Nobody waits for the answer any more.
    Cancelled,
}

impl From<ShellError> for Failure {
    fn from(error: ShellError) -> Self {
        Failure::Shell(error)
    }
}

impl From<BadArguments> for Failure {
    fn from(bad: BadArguments) -> Self {
        Failure::Arguments(bad.0)
    }
}

impl Failure {
    /// What its caller reads.
    pub fn into_result(self, host: &ShellHost) -> CallToolResult {
        let text = match self {
            Failure::Arguments(message) => format!("EINVAL: {message}"),
            Failure::Shell(error) => format!("{}: {error}", error.code()),
            Failure::Internal(message) => format!("EIO: {message}"),
            Failure::Cancelled => "EINTR: the request was cancelled".to_owned(),
        };
        // It may repeat what the caller said, or where a shell is.
        CallToolResult::error(vec![ContentBlock::text(host.shown(&text))])
    }
}
