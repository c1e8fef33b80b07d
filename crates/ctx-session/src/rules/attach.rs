//! The operator's interactive connection: one at a time. Sockets, the command line and observers do not count.

use super::{answer, busy};
use crate::code::{Code, Refusal};
use crate::command::{Answer, Decision, Effect};
use crate::ids::Ulid;
use crate::log_facts::{ATTACHES_BETWEEN_MAX, ATTACHES_MAX};
use crate::record::{Attached, Body, DetachReason, Detached, SessionBody};
use crate::session::{Attachment, Session};
use crate::time::Timestamp;

/// Allowed in every state: the history of a session that is over can be looked at.
pub(super) fn attach(
    session: &Session,
    connection: Ulid,
    user: u32,
    device_hint: Option<&str>,
    takeover: bool,
    now: Timestamp,
) -> Result<Decision, Refusal> {
    if session.attaches.lately(now) >= ATTACHES_MAX {
        let message =
            format!("{ATTACHES_MAX} clients have attached within a minute; wait, then attach again");
        return Err(Refusal::new(Code::Eagain, message));
    }
    if session.attaches.since_message() >= ATTACHES_BETWEEN_MAX {
        let message = format!(
            "{ATTACHES_BETWEEN_MAX} clients have attached since the last message; post one, or observe"
        );
        return Err(Refusal::new(Code::Eagain, message));
    }
    let mut records = Vec::new();
    let mut effects = Vec::new();
    match session.attached {
        Some(old) if old.connection == connection => return Ok(answer(Answer::Done)),
        Some(old) if takeover => {
            let reason = DetachReason::TakenOver;
            records.push(detached(old, reason));
            effects.push(Effect::CloseConnection { connection: old.connection, reason });
        }
        Some(_) => {
            return Err(busy("another client is attached to the session; detach it, take over, or observe"));
        }
        None => {}
    }
    let device_hint = device_hint.map(str::to_owned);
    records.push(Body::Session(SessionBody::Attached(Attached { connection, user, device_hint })));
    Ok(Decision { records, effects, answer: Answer::Done })
}

/// Detaching stops nothing. A connection that was taken over is not attached any more: a no-op.
pub(super) fn detach(session: &Session, connection: Ulid, reason: DetachReason) -> Result<Decision, Refusal> {
    match session.attached {
        Some(old) if old.connection == connection => {
            Ok(Decision { records: vec![detached(old, reason)], effects: Vec::new(), answer: Answer::Done })
        }
        Some(_) | None => Ok(answer(Answer::Ignored)),
    }
}

pub(super) fn detached(old: Attachment, reason: DetachReason) -> Body {
    Body::Session(SessionBody::Detached(Detached { connection: old.connection, user: old.user, reason }))
}
