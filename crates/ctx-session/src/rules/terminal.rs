//! Terminals of a session: how many there may be, and the records of their beginning and end.

use super::{Given, answer, busy, over};
use crate::code::{Code, Refusal};
use crate::command::{Answer, Decision, TerminalAct};
use crate::record::{
    Body, StateName, TerminalBody, TerminalClosed, TerminalEnd, TerminalOpened, TerminalReattached,
};
use crate::session::Session;

pub(super) fn terminal(session: &Session, act: &TerminalAct, given: &Given<'_>) -> Result<Decision, Refusal> {
    match act {
        TerminalAct::Open { terminal, run, caller, name, command, caged, by } => {
            match session.state.name() {
                StateName::Ended | StateName::Failed => return Err(over(session)),
                StateName::Idle | StateName::Running | StateName::Queued | StateName::Paused => {}
            }
            let max = given.limits.terminals_per_session;
            if session.terminals.open().count() >= max {
                return Err(busy(&format!("a session has at most {max} terminals; close one first")));
            }
            let caller = caller.and_then(|id| session.subagents.get(id)).map(|of| of.caller());
            let opened = TerminalOpened {
                pty_id: *terminal,
                turn_id: *run,
                caller,
                name: name.clone(),
                command: command.clone(),
                caged: *caged,
                by: *by,
            };
            if session.must_close(&opened).is_some() {
                return Err(Refusal::new(Code::Eshutdown, "the run that wants a terminal is over"));
            }
            Ok(written(TerminalBody::Opened(opened)))
        }
        TerminalAct::Closed { terminal, reason, exit_code, lines } => {
            let Some(open) = session.terminals.get(*terminal) else { return Ok(answer(Answer::Ignored)) };
            // Whoever closed it was told to.
            let why = session.must_close(open).filter(|_| *reason == TerminalEnd::Closed);
            Ok(written(TerminalBody::Closed(TerminalClosed {
                pty_id: *terminal,
                turn_id: open.turn_id,
                reason: why.unwrap_or(*reason),
                exit_code: *exit_code,
                transcript_lines: *lines,
            })))
        }
        TerminalAct::Reattached { terminal, user, scrollback_lines } => {
            if session.terminals.get(*terminal).is_none() {
                return Ok(answer(Answer::Ignored));
            }
            Ok(written(TerminalBody::Reattached(TerminalReattached {
                pty_id: *terminal,
                user: *user,
                scrollback_lines: *scrollback_lines,
            })))
        }
    }
}

fn written(body: TerminalBody) -> Decision {
    Decision { records: vec![Body::Terminal(body)], effects: Vec::new(), answer: Answer::Done }
}
