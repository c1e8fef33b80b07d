//! Putting a session away, and when it may be deleted for good.

use super::busy;
use crate::code::{Code, Refusal};
use crate::record::{Archived, Body, SessionBody, StateName};
use crate::session::{Session, State};

/// Only what rests is put away. It keeps its name and can be read, searched, forked, ended and posted to as before:
/// idle is idle, and a message brings it back. None when it is as asked already.
pub(super) fn archive(session: &Session, archived: bool, by: u32) -> Result<Option<Body>, Refusal> {
    if session.archived == archived {
        return Ok(None);
    }
    match &session.state {
        State::Idle | State::Ended | State::Failed(_) => {}
        State::Running { .. } => {
            return Err(busy("the session is running; cancel the run or wait, then archive it"));
        }
        State::Queued { .. } => {
            return Err(busy("a message is queued; resume or discard it, then archive it"));
        }
        State::Paused { .. } => {
            return Err(busy("the session is paused; resume it or roll it back, then archive it"));
        }
    }
    Ok(Some(Body::Session(SessionBody::Archived(Archived { archived, by: Some(by) }))))
}

/// Only what is over can be deleted. There is no record of it: the log goes with the session.
pub fn may_purge(state: StateName) -> Result<(), Refusal> {
    match state {
        StateName::Ended | StateName::Failed => Ok(()),
        StateName::Idle | StateName::Running | StateName::Queued | StateName::Paused => {
            Err(Refusal::new(Code::Ebusy, format!("the session is {state}; end it first, then purge it")))
        }
    }
}
