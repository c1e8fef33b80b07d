//! Terminals of sessions: recorded before they are started, watched until they end, closed when they must not stay.
//!
//! A terminal lives outside of the daemon. Whoever loads a session watches those that its log has open, so that an end that
//! nobody saw is written by the next daemon.

use std::sync::Arc;

use ctx_journal::lock;
use ctx_session::command::TerminalAct;
use ctx_session::port::TerminalStart;
use ctx_session::record::TerminalEnd;
use ctx_session::{Code, Command, Refusal, Session, SessionId, TerminalId};
use tokio::sync::broadcast;

use crate::driver::Ask;
use crate::engine::Engine;
use crate::port::{OperatorsTerminal, TerminalAsk};
use crate::request::Caller;
use crate::shared::Inner;

impl Engine {
    /// Opens a terminal in a session, for its owner. It runs when this returns.
    pub async fn open_terminal(
        &self,
        caller: Caller,
        id: SessionId,
        new: OperatorsTerminal,
    ) -> Result<TerminalId, Refusal> {
        let summary = self.find(caller, id)?;
        self.check_owner(caller, &summary)?;
        self.inner.refuse_when_closing()?;
        let prepared = match new.caged {
            true => Some(self.inner.ask(id, |reply| Ask::Prepare { reply }).await?),
            false => None,
        };
        let (owner, terminal) = (summary.meta.owner, TerminalId(self.new_id()));
        let act = TerminalAct::Open {
            terminal,
            run: None,
            caller: None,
            name: new.name.clone(),
            command: new.command.clone(),
            caged: new.caged,
            by: caller.uid,
        };
        let dir = summary.meta.dir.clone();
        let dir =
            dir.or_else(|| summary.meta.workspace.as_ref().map(|workspace| workspace.directory.clone()));
        let start = self.inner.worker.terminal(TerminalAsk { session: id, owner, new, prepared, dir })?;
        lock(&self.inner.watched).insert(terminal);
        if let Err(refusal) = self.inner.command(id, Command::Terminal(act)).await {
            lock(&self.inner.watched).remove(&terminal);
            return Err(refusal);
        }
        self.inner.start_terminal(id, owner, terminal, start).await.map(|()| terminal)
    }

    /// Closes a terminal of a session. It has ended when this returns.
    pub async fn close_terminal(
        &self,
        caller: Caller,
        id: SessionId,
        terminal: TerminalId,
    ) -> Result<(), Refusal> {
        let summary = self.find(caller, id)?;
        self.check_owner(caller, &summary)?;
        self.inner.worker.close_terminal(summary.meta.owner, terminal).await
    }

    /// A client has come back to a terminal.
    pub async fn terminal_reattached(
        &self,
        caller: Caller,
        id: SessionId,
        terminal: TerminalId,
        scrollback_lines: u64,
    ) -> Result<(), Refusal> {
        let act = TerminalAct::Reattached { terminal, user: caller.uid, scrollback_lines };
        self.command(caller, id, Command::Terminal(act)).await.map(drop)
    }

    /// The sessions in which a terminal was opened or closed, as it happens.
    pub fn terminal_news(&self) -> broadcast::Receiver<SessionId> {
        self.inner.terminal_news.subscribe()
    }

    /// Loads the sessions whose terminals an earlier daemon left: what became of them is written to their logs.
    pub(crate) fn take_up_terminals(&self) {
        let inner = self.inner.clone();
        tokio::spawn(async move {
            let worker = inner.worker.clone();
            let left =
                tokio::task::spawn_blocking(move || worker.terminals_without_end()).await.unwrap_or_default();
            for (owner, session, terminal) in left {
                if inner.registry.get(session).is_none() {
                    // Its session is gone.
                    inner.mark_terminal_ended(owner, terminal, true).await;
                } else if let Err(refusal) = inner.ask(session, |reply| Ask::Look { reply }).await {
                    tracing::warn!(%session, %terminal, %refusal, "a terminal's session cannot be loaded");
                }
            }
        });
    }
}

impl Inner {
    /// Starts a terminal that the log has, and watches it. Goes on when nobody waits for it any more.
    pub(crate) async fn start_terminal(
        self: &Arc<Inner>,
        session: SessionId,
        owner: u32,
        terminal: TerminalId,
        start: TerminalStart,
    ) -> Result<(), Refusal> {
        let inner = self.clone();
        let starting = tokio::spawn(async move {
            let started = tokio::task::spawn_blocking(move || start(terminal)).await;
            let broke = |error: tokio::task::JoinError| Refusal::new(Code::Eio, error.to_string());
            match started.map_err(broke).flatten() {
                Ok(()) => {
                    let _ = inner.terminal_news.send(session);
                    tokio::spawn(inner.watch(session, owner, terminal));
                    Ok(())
                }
                Err(refusal) => {
                    let reason = TerminalEnd::NotStarted;
                    let act = TerminalAct::Closed { terminal, reason, exit_code: None, lines: 0 };
                    let _ = inner.command(session, Command::Terminal(act)).await;
                    lock(&inner.watched).remove(&terminal);
                    Err(refusal)
                }
            }
        });
        starting.await.map_err(|error| Refusal::new(Code::Eio, error.to_string()))?
    }

    /// Waits for the end of a terminal and writes it to its session's log.
    async fn watch(self: Arc<Inner>, session: SessionId, owner: u32, terminal: TerminalId) {
        let (reason, exit_code, lines) = self.worker.terminal_ended(owner, terminal).await;
        let act = TerminalAct::Closed { terminal, reason, exit_code, lines };
        match self.command(session, Command::Terminal(act)).await {
            Ok(_) => self.mark_terminal_ended(owner, terminal, false).await,
            // The next start marks it then.
            Err(refusal) => tracing::warn!(%session, %terminal, %refusal, "a terminal's end was not written"),
        }
        lock(&self.watched).remove(&terminal);
        let _ = self.terminal_news.send(session);
    }

    async fn mark_terminal_ended(&self, owner: u32, terminal: TerminalId, close: bool) {
        if close {
            let _ = self.worker.close_terminal(owner, terminal).await;
        }
        let worker = self.worker.clone();
        let _ = tokio::task::spawn_blocking(move || worker.mark_terminal_ended(owner, terminal)).await;
    }

    /// Watches the open terminals of a session that was loaded.
    pub(crate) fn watch_terminals(self: &Arc<Inner>, session: &Session) {
        for open in session.terminals.open() {
            if lock(&self.watched).insert(open.pty_id) {
                tokio::spawn(self.clone().watch(session.id(), session.meta.owner, open.pty_id));
            }
        }
    }

    /// Closes a terminal; its end comes to the log by whoever watches it.
    pub(crate) fn close_stray(self: &Arc<Inner>, owner: u32, terminal: TerminalId) {
        let inner = self.clone();
        tokio::spawn(async move {
            if let Err(refusal) = inner.worker.close_terminal(owner, terminal).await {
                tracing::warn!(%terminal, %refusal, "a terminal could not be closed");
            }
        });
    }
}
