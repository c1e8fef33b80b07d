//! Pinned messages: what no compaction takes. A mark of the operator's on a message, and no part of the conversation: a
//! rollback leaves the pins of what still counts as they are.

use super::{answer, over};
use crate::code::{Code, Refusal};
use crate::command::{Answer, Decision};
use crate::ids::Ulid;
use crate::record::{Body, MessageBody, MessagePinned};
use crate::session::{Session, State};

pub(super) fn pin(session: &Session, message: Ulid, pinned: bool, by: u32) -> Result<Decision, Refusal> {
    match &session.state {
        State::Idle | State::Running { .. } | State::Queued { .. } | State::Paused { .. } => {}
        State::Ended | State::Failed(_) => return Err(over(session)),
    }
    let found = session.ledger.counting().rev().find(|entry| entry.id == message);
    let Some(found) = found else {
        return Err(Refusal::new(Code::Enoent, format!("no message {message} in this session's context")));
    };
    if found.pinned == pinned {
        return Ok(answer(Answer::Done));
    }
    let record = Body::Message(MessageBody::Pinned(MessagePinned { message_id: message, pinned, by }));
    Ok(Decision { records: vec![record], effects: Vec::new(), answer: Answer::Done })
}
