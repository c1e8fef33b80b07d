//! Approvals: tool calls that wait, or waited, for the operator.

use ctx_session::record::ApprovalScope;
use ctx_session::{ApprovalId, CallId, Refusal, RunId, SessionId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A tool call that waits, or waited, for an answer. Times are epoch milliseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Approval {
    #[schema(value_type = String)]
    pub id: ApprovalId,
    #[schema(value_type = String)]
    pub session_id: SessionId,
    #[schema(value_type = String)]
    pub run_id: RunId,
    #[schema(value_type = String)]
    pub call_id: CallId,
    pub tool: String,
    /// What the call touches, such as a path.
    pub subject: Option<String>,
    /// The pattern of the policy's rule that asks; null: it asks for every call of the tool. An `allow` with the scope
    /// `session` holds for all calls that the same rule asks for.
    #[serde(default)]
    pub pattern: Option<String>,
    #[schema(value_type = Object)]
    pub input: Value,
    /// The unified diff of what the call would change in a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// `pending`, `allow`, `deny`, `timeout` or `interrupted`.
    #[schema(schema_with = super::words::approval_state)]
    pub state: String,
    pub created_at: u64,
    /// When it is denied if nobody answers. Null while the session is paused: its time stands still.
    pub expires_at: Option<u64>,
    pub settled_at: Option<u64>,
    /// What an `allow` holds for: `call` or `session`.
    #[serde(default)]
    #[schema(schema_with = super::words::approval_scope)]
    pub scope: Option<ApprovalScope>,
    /// Who answered.
    pub by: Option<u32>,
    /// What the model is told with the answer.
    pub note: Option<String>,
}

/// `POST …/approvals/:aid`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalAnswer {
    pub decision: Decision,
    /// With `allow` alone: `call` (this call) or `session` (every call that the same rule asks for, until the session
    /// ends). Left out: `call`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(schema_with = super::words::approval_scope)]
    pub scope: Option<ApprovalScope>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl ApprovalAnswer {
    /// What is allowed; None: nothing.
    pub fn allowed(&self) -> Result<Option<ApprovalScope>, Refusal> {
        match (self.decision, self.scope) {
            (Decision::Allow, scope) => Ok(Some(scope.unwrap_or_default())),
            (Decision::Deny, Some(ApprovalScope::Session)) => {
                Err(Refusal::invalid("scope", "a call is denied by itself; `session` goes with `allow`"))
            }
            (Decision::Deny, Some(ApprovalScope::Call) | None) => Ok(None),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Decision {
    Allow,
    Deny,
}
