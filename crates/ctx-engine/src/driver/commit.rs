//! The one way a session changes: decide, append, apply, show, publish, start effects.

use ctx_session::record::{MessageBody, SessionBody};
use ctx_session::rules::Given;
use ctx_session::{Answer, Body, Code, Command, Effect, Refusal, StateName, Timestamp};

use super::{Driver, Ready};
use crate::core::{CommitError, Core};
use crate::paths::Shelf;
use crate::port::ProcessAct;
use crate::shared::Inner;

impl Driver {
    pub(super) fn core_ref(&self) -> Option<&Core> {
        self.core.as_ref()
    }

    pub(super) fn core(&self) -> Result<&Core, Refusal> {
        self.core.as_ref().ok_or_else(|| self.lost_refusal())
    }

    pub(super) fn lost_refusal(&self) -> Refusal {
        Refusal::new(Code::Eio, format!("session {} is being reloaded; try again", self.id))
    }

    /// Lends the core to a blocking thread. A panic there loses it, and the log is then taken up again.
    pub(super) async fn blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Core) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let Some(mut core) = self.core.take() else { return Err(self.lost_refusal()) };
        let done = tokio::task::spawn_blocking(move || {
            let result = work(&mut core);
            (core, result)
        });
        match done.await {
            Ok((core, result)) => {
                self.core = Some(core);
                Ok(result)
            }
            Err(error) => {
                tracing::error!(session = %self.id, %error, "a commit panicked; the log is taken up again");
                self.inner.note_panic(self.id);
                self.lost = true;
                Err(self.lost_refusal())
            }
        }
    }

    /// Carries a command out.
    pub(super) async fn perform(
        &mut self,
        command: Command,
        ready: Option<Ready>,
    ) -> Result<Answer, Refusal> {
        self.try_to_end_failing_run().await?;
        self.perform_with(command, ready).await
    }

    /// The same for what the run itself reports.
    pub(super) async fn perform_now(&mut self, command: Command) -> Result<Answer, Refusal> {
        self.perform_with(command, None).await
    }

    async fn perform_with(&mut self, command: Command, ready: Option<Ready>) -> Result<Answer, Refusal> {
        let now = self.inner.fresh.now();
        let before = self.core()?.session.state.name();
        let is_rollback = matches!(command, Command::Rollback { .. });
        let decision = {
            let mut ids = self.inner.fresh.ids();
            let mut given = Given { now, ids: &mut ids, limits: &self.inner.limits };
            self.core()?.session.decide(&command, &mut given)?
        };
        let (records, effects) = (decision.records, decision.effects);
        let free_name = effects.contains(&Effect::FreeName);
        let times = times_of(&command, &records, self.core()?.session.updated_at, now);
        // What was said elsewhere was not posted here.
        let is_import = matches!(command, Command::Import(_));
        let posted =
            !is_import && records.iter().any(|body| matches!(body, Body::Message(MessageBody::User(_))));
        let put_away = records.iter().any(|body| matches!(body, Body::Session(SessionBody::Archived(_))));
        let inner = self.inner.clone();
        let committed = self
            .blocking(move |core| {
                let committed = core.commit_dated(records, &times)?;
                if posted || free_name || put_away {
                    tell_index(&inner, core, posted);
                }
                Ok::<_, CommitError>(committed)
            })
            .await?;
        let records = match committed {
            Ok(records) => records,
            Err(error) => {
                if matches!(error, CommitError::Lost(_)) {
                    tracing::error!(session = %self.id, %error, "the log was lost; it is taken up again");
                    self.lost = true;
                }
                return Err(error.refusal().clone());
            }
        };
        if !records.is_empty() {
            self.release_what_is_over();
            self.tell_registry();
            if let Some(core) = self.core_ref() {
                self.inner.news.tell(&core.session.meta, &records);
                // What was imported was paid elsewhere.
                if !is_import {
                    self.inner.spending.note(&core.session.meta, &records);
                }
            }
            self.live.publish(records);
            self.close_strays();
        }
        self.follow_with_processes(before, is_rollback).await;
        self.start(effects, ready);
        Ok(decision.answer)
    }

    /// What the session's processes do when its state has changed. Who asked for it waits: a pause that is answered has
    /// stopped everything, and an end that is answered has ended it.
    async fn follow_with_processes(&self, before: StateName, is_rollback: bool) {
        let Some(session) = self.core_ref().map(|core| &core.session) else { return };
        let (owner, now) = (session.meta.owner, session.state.name());
        let act = match (before, now) {
            (before, now) if before == now && !is_rollback => return,
            (_, StateName::Paused) => ProcessAct::Freeze,
            (_, StateName::Ended | StateName::Failed) => ProcessAct::EndForGood,
            (StateName::Paused, StateName::Running) => ProcessAct::Thaw,
            (StateName::Paused, StateName::Idle | StateName::Queued) => ProcessAct::End,
            (StateName::Idle | StateName::Running | StateName::Queued, _) if is_rollback => ProcessAct::End,
            (
                StateName::Idle
                | StateName::Running
                | StateName::Queued
                | StateName::Ended
                | StateName::Failed,
                _,
            ) => {
                return;
            }
        };
        self.inner.worker.processes(owner, self.id, act).await;
    }

    /// A slot is free before anyone can see that its run is over.
    fn release_what_is_over(&mut self) {
        let running = self.core_ref().is_some_and(|core| core.session.state.name() == StateName::Running);
        if !running && let Some(work) = &mut self.work {
            work.slot = None;
        }
    }

    fn tell_registry(&self) {
        let Some(core) = self.core_ref() else { return };
        let session = &core.session;
        self.inner.registry.update(self.id, |summary| {
            summary.follow(session);
            // What could be written fails no more, before anyone can see it.
            summary.failing = None;
        });
        if let Some(shelf) = Shelf::of(&session.meta) {
            self.inner.shelves.touch(shelf);
        }
    }

    /// Gives the directory of a session that is over up to a new session of its name.
    pub(super) async fn rename(&mut self) -> Result<(), Refusal> {
        // What is still written into the directory belongs to this session.
        self.pack_is_shown().await;
        let (inner, id) = (self.inner.clone(), self.id);
        let renamed = self.blocking(move |core| {
            if let Some(log) = inner.rename_directory(id)? {
                core.follow_to(log);
            }
            Ok(())
        });
        renamed.await?
    }

    /// Starts effects. What a run was made ready with goes to the run that starts, or is given back.
    fn start(&mut self, effects: Vec<Effect>, mut ready: Option<Ready>) {
        for effect in effects {
            match effect {
                Effect::StartRun { run } => self.start_run(run, ready.take()),
                Effect::ContinueRun { run } => self.continue_run(run, ready.take()),
                Effect::ApprovalSettled { approval } => self.tell_approval(approval),
                Effect::StopRun { run, reason, by } => self.stop_run(run, reason, by),
                Effect::KillRun { run } => self.kill_run(run),
                Effect::BroadcastRunning => self.inner.slots.broadcast(),
                Effect::CloseConnection { connection, reason } => {
                    self.inner.connections.close(connection, reason);
                }
                Effect::CloseClients => self.live.close(),
                // The registry knew it with the commit, so that the name is free when the end is seen.
                Effect::FreeName => {}
            }
        }
    }
}

/// The times of a command's records: now, unless they happened elsewhere. What is said of an import has that of the last thing
/// that happened there.
fn times_of(command: &Command, records: &[Body], last: Timestamp, now: Timestamp) -> Vec<Timestamp> {
    match command {
        Command::Import(import) => {
            let times = import.records.iter().map(|(time, _)| *time);
            times.chain([import.records.last().map_or(last, |(time, _)| *time)]).collect()
        }
        Command::UndoImport(_) => vec![last; records.len()],
        _ => vec![now; records.len()],
    }
}

/// Which session is current is said before anyone is answered: the next command may not name one.
fn tell_index(inner: &Inner, core: &Core, posted: bool) {
    let meta = &core.session.meta;
    let Some(shelf) = Shelf::of(meta) else { return };
    inner.registry.update(core.session.id(), |summary| summary.follow(&core.session));
    if posted {
        inner.shelves.set_current(inner, &shelf, meta.name.as_str());
    } else {
        inner.shelves.ended(inner, &shelf, meta.name.as_str());
    }
}
