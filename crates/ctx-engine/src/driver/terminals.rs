//! What a driver does with terminals: it records those that agents open, and closes those that must not stay.

use ctx_journal::lock;
use ctx_session::command::TerminalAct;
use ctx_session::port::{OpenTerminal, Stopped};
use ctx_session::{Command, Refusal, RunId, SubagentId, TerminalId};

use super::Driver;
use super::mail::OpenedTerminal;

impl Driver {
    /// Records a terminal that a run's agent is about to open.
    pub(super) async fn on_terminal(
        &mut self,
        run: RunId,
        caller: Option<SubagentId>,
        open: OpenTerminal,
    ) -> Result<Result<OpenedTerminal, Refusal>, Stopped> {
        let owner = self.core_ref().map(|core| core.session.meta.owner).ok_or(Stopped)?;
        if !self.is_current(run) {
            return Err(Stopped);
        }
        let terminal = TerminalId(self.link.new_id());
        let OpenTerminal { name, command, caged } = open;
        let act = TerminalAct::Open { terminal, run: Some(run), caller, name, command, caged, by: owner };
        lock(&self.inner.watched).insert(terminal);
        let opened = self.perform_now(Command::Terminal(act)).await;
        if opened.is_err() {
            lock(&self.inner.watched).remove(&terminal);
        }
        Ok(opened.map(|_| (self.id, owner, terminal)))
    }

    /// Closes the terminals that the session must not have any more, each once.
    pub(super) fn close_strays(&mut self) {
        let Some(core) = self.core.as_ref() else { return };
        let owner = core.session.meta.owner;
        for terminal in core.session.strays() {
            if self.strays.insert(terminal) {
                self.inner.close_stray(owner, terminal);
            }
        }
    }

    /// Takes up the terminals that the log has open.
    pub(super) fn take_up_terminals(&mut self) {
        if let Some(core) = self.core.as_ref() {
            self.inner.watch_terminals(&core.session);
        }
        self.close_strays();
    }
}
