//! The open terminals of a session as its log tells them, and which of them may not stay open.

use std::collections::BTreeMap;

use crate::ids::{SubagentId, TerminalId};
use crate::record::{Body, Record, SessionBody, StateName, TerminalBody, TerminalEnd, TerminalOpened};
use crate::session::{RunState, Session};

/// Those that are open, by id.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Terminals {
    open: BTreeMap<TerminalId, TerminalOpened>,
}

impl Terminals {
    pub fn open(&self) -> impl DoubleEndedIterator<Item = &TerminalOpened> {
        self.open.values()
    }

    pub fn get(&self, id: TerminalId) -> Option<&TerminalOpened> {
        self.open.get(&id)
    }

    /// The newest one that a subagent has.
    pub fn of_subagent(&self, id: SubagentId) -> Option<TerminalId> {
        let is_its = |one: &&TerminalOpened| one.caller.as_ref().is_some_and(|by| by.invocation_id == id);
        self.open().rev().find(is_its).map(|one| one.pty_id)
    }

    pub fn apply(&mut self, record: &Record) {
        match &record.body {
            Body::Terminal(TerminalBody::Opened(opened)) => {
                self.open.insert(opened.pty_id, opened.clone());
            }
            Body::Terminal(TerminalBody::Closed(closed)) => {
                self.open.remove(&closed.pty_id);
            }
            // What was copied is open in the source alone.
            Body::Session(SessionBody::Forked(_)) => self.open.clear(),
            _ => {}
        }
    }
}

impl Session {
    /// Why a terminal may not stay open; None: it may. The operator's lives as long as the session does.
    pub fn must_close(&self, terminal: &TerminalOpened) -> Option<TerminalEnd> {
        match self.state.name() {
            StateName::Ended => return Some(TerminalEnd::SessionEnded),
            StateName::Failed => return Some(TerminalEnd::SessionFailed),
            StateName::Idle | StateName::Running | StateName::Queued | StateName::Paused => {}
        }
        let is_alive = |id| self.subagents.get(id).is_some_and(|invocation| invocation.is_alive());
        if terminal.caller.as_ref().is_some_and(|caller| !is_alive(caller.invocation_id)) {
            return Some(TerminalEnd::SubagentExited);
        }
        match self.run(terminal.turn_id?).map(|run| &run.state) {
            Some(RunState::Failed(_) | RunState::Cancelled) => Some(TerminalEnd::RunEnded),
            Some(RunState::Pending | RunState::Running | RunState::Done) | None => None,
        }
    }

    /// The open terminals that must not be.
    pub fn strays(&self) -> impl Iterator<Item = TerminalId> + '_ {
        self.terminals.open().filter(|one| self.must_close(one).is_some()).map(|one| one.pty_id)
    }
}
