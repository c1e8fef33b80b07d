//! What an attached operator can ask for over the session socket, as `control` frames.

use ctx_api::http::{ApprovalAnswer, NewCheckpoint};
use ctx_session::{ApprovalId, Refusal, RunId};
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Something to be done.
#[derive(Debug, PartialEq)]
pub(super) enum Act {
    /// `cancel {run_id}`
    Cancel { run_id: RunId },
    /// `checkpoint {reason?}`
    Checkpoint { reason: Option<String> },
    /// `approval {approval_id, decision, scope?, note?}`
    Approval { approval_id: ApprovalId, answer: ApprovalAnswer },
}

impl Act {
    /// Reads what is asked for. `approval_id` is taken out first, because the body of the HTTP route, which is the rest, refuses unknown fields.
    pub fn read(kind: &str, mut payload: Value) -> Result<Act, Refusal> {
        match kind {
            "cancel" => {
                let run = payload.get("run_id").and_then(Value::as_str).and_then(|run| run.parse().ok());
                let missing = || Refusal::invalid("run_id", "cancel needs a run: {\"run_id\": …}");
                run.map(|run_id| Act::Cancel { run_id }).ok_or_else(missing)
            }
            "checkpoint" => {
                let new: NewCheckpoint = fitting(kind, payload)?;
                Ok(Act::Checkpoint { reason: new.reason })
            }
            "approval" => {
                let named = payload.as_object_mut().and_then(|fields| fields.remove("approval_id"));
                let id = named.as_ref().and_then(Value::as_str).and_then(|id| id.parse().ok());
                let missing =
                    || Refusal::invalid("approval_id", "approval needs an id: {\"approval_id\": …}");
                let approval_id = id.ok_or_else(missing)?;
                Ok(Act::Approval { approval_id, answer: fitting(kind, payload)? })
            }
            other => Err(Refusal::invalid("type", format!("a client cannot send `{other}`"))),
        }
    }
}

/// An absent payload is an empty one.
fn fitting<T: DeserializeOwned>(kind: &str, payload: Value) -> Result<T, Refusal> {
    let payload = if payload.is_null() { Value::Object(Default::default()) } else { payload };
    serde_json::from_value(payload)
        .map_err(|error| Refusal::invalid("payload", format!("invalid `{kind}`: {error}")))
}

#[cfg(test)]
mod tests {
    use ctx_api::http::Decision;
    use serde_json::json;

    use ctx_session::Code;

    use super::*;

    #[test]
    fn frames_that_fit_are_read_and_others_refused() {
        let id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
        let run_id = id.parse().unwrap();
        assert_eq!(Act::read("cancel", json!({ "run_id": id })), Ok(Act::Cancel { run_id }));
        assert_eq!(Act::read("checkpoint", Value::Null), Ok(Act::Checkpoint { reason: None }));
        let reason = Some("look".to_owned());
        assert_eq!(Act::read("checkpoint", json!({ "reason": "look" })), Ok(Act::Checkpoint { reason }));
        let answer = ApprovalAnswer { decision: Decision::Deny, scope: None, note: Some("no".to_owned()) };
        assert_eq!(
            Act::read("approval", json!({ "approval_id": id, "decision": "deny", "note": "no" })),
            Ok(Act::Approval { approval_id: id.parse().unwrap(), answer })
        );
        for (kind, payload) in [
            ("cancel", json!({})),
            ("checkpoint", json!({ "why": "x" })),
            ("checkpoint", json!("x")),
            ("approval", json!({ "decision": "allow" })),
            ("approval", json!({ "approval_id": id, "decision": "maybe" })),
            ("approval", json!({ "approval_id": id })),
        ] {
            assert_eq!(Act::read(kind, payload.clone()).map_err(|r| r.code), Err(Code::Einval), "{payload}");
        }
    }
}
