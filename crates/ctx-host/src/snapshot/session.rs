//! What a session changed, and taking it back: from the snapshots around its runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ctx_session::Ulid;

use super::SnapshotError;
use super::history::{Stretch, Touched, touched, undo};
use super::plan::Report;
use super::store::{Info, Reason, Store};
use super::tree::{RelPath, Tree};
use super::workspace::{Ask, Snapshots, Workspace};
use crate::rights::Rights;

/// The files of a session that has snapshots.
pub struct SessionFiles {
    pub workspace: Workspace,
    pub uid: u32,
    session: Ulid,
}

/// A stretch of a run, by its snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub run: Ulid,
    pub before: Info,
    pub after: Info,
}

/// What some stretches changed.
#[derive(Debug, Default)]
pub struct Changes {
    pub touched: BTreeMap<RelPath, Touched>,
    /// Changes that others may have made.
    pub uncertain: BTreeSet<RelPath>,
    /// Before all of it.
    first: Arc<Tree>,
    ids: Vec<Ulid>,
}

/// A restore of which everything is ready.
#[derive(Debug, Clone)]
pub struct Ready {
    pub restore: Ulid,
    pub undo: Ulid,
    pub report: Report,
}

impl Snapshots {
    /// The files of a session; None: no run of it has changed any, or what is known of it was removed.
    pub fn of_session(&self, session: Ulid) -> Result<Option<SessionFiles>, SnapshotError> {
        let mut newest: Option<(Ulid, Store)> = None;
        for store in self.stores()? {
            let id =
                store.infos()?.iter().filter(|info| info.session == Some(session)).map(|info| info.id).max();
            if let Some(id) = id.filter(|id| newest.as_ref().is_none_or(|(newest, _)| id > newest)) {
                newest = Some((id, store));
            }
        }
        let Some((_, store)) = newest else { return Ok(None) };
        let (path, uid) = (store.about.path.clone(), store.about.uid);
        let workspace = self.open(&path, uid, Rights::of(uid)?)?;
        Ok(Some(SessionFiles { workspace, uid, session }))
    }
}

impl SessionFiles {
    /// The stretches of the session's runs that were not taken back, the oldest first. One that a crash cut off ends with
    /// what is there now.
    pub fn spans(&self) -> Result<Vec<Span>, SnapshotError> {
        let infos = self.workspace.infos()?;
        let mine: Vec<Info> = infos.into_iter().filter(|info| info.session == Some(self.session)).collect();
        let (spans, cut_off) = spans(&mine);
        let Some(before) = cut_off else { return Ok(spans) };
        let ask = Ask { session: before.session, run: before.run, ..Ask::new(Reason::AfterRun) };
        let after = self.workspace.take(ask)?;
        let (was, is) = (self.workspace.tree(&before)?, self.workspace.tree(&after)?);
        let uncertain = was.differing(&is).into_iter().cloned().map(super::tree::PathText).collect();
        let after = Info { uncertain, ..after };
        self.workspace.change(after.clone())?;
        let run = before.run.unwrap_or(before.id);
        Ok(spans.into_iter().chain([Span { run, before, after }]).collect())
    }

    /// What these stretches changed together.
    pub fn changes(&self, spans: &[Span]) -> Result<Changes, SnapshotError> {
        let mut stretches = Vec::new();
        for Span { run, before, after } in spans {
            let (before, after) = (self.workspace.tree(before)?, self.workspace.tree(after)?);
            stretches.push(Stretch { run: *run, before: Arc::new(before), after: Arc::new(after) });
        }
        let first = stretches.first().map(|stretch| Arc::clone(&stretch.before)).unwrap_or_default();
        let uncertain = spans.iter().flat_map(|span| &span.after.uncertain).map(|path| path.0.clone());
        Ok(Changes {
            touched: touched(&stretches),
            uncertain: uncertain.collect(),
            first,
            ids: spans.iter().map(|span| span.before.id).collect(),
        })
    }

    /// What taking them back would do.
    pub fn preview(&self, changes: &Changes) -> Result<Report, SnapshotError> {
        self.workspace.preview_wishes(&undo(&changes.touched), &changes.first)
    }

    /// Takes changes back, if `record` agrees when all is ready. With `waits`, what counts after a crash is whether the
    /// session's log has a record that names the restore.
    pub fn take_back<E: From<SnapshotError>>(
        &self,
        changes: &Changes,
        waits: bool,
        record: impl FnOnce(&Ready) -> Result<(), E>,
    ) -> Result<Ready, E> {
        let wishes = undo(&changes.touched);
        let ask = Ask {
            session: Some(self.session),
            label: Some("before files of a session went back".to_owned()),
            undoes: changes.ids.clone(),
            ..Ask::new(Reason::BeforeRestore)
        };
        let (prepared, undo) = self.workspace.prepare(&wishes, &changes.first, ask, waits)?;
        let mut ready = Ready { restore: prepared.id(), undo: undo.id, report: prepared.report() };
        if let Err(refused) = record(&ready) {
            prepared.discard()?;
            return Err(refused);
        }
        ready.report = prepared.apply()?;
        Ok(ready)
    }
}

/// The stretches in a session's snapshots, and the beginning of one that has no end.
fn spans(infos: &[Info]) -> (Vec<Span>, Option<Info>) {
    let undone: BTreeSet<Ulid> = infos.iter().flat_map(|info| info.undoes.iter().copied()).collect();
    let mut spans = Vec::new();
    let mut open: Option<Info> = None;
    for info in infos {
        let is_end = match info.reason {
            Reason::AfterRun | Reason::Checkpoint => true,
            // A run that was cut off by a crash ends at the latest here.
            Reason::BeforeRun => open.is_some(),
            Reason::Asked | Reason::Shell | Reason::BeforeRestore => false,
        };
        if is_end && let Some(before) = open.take() {
            let run = before.run.unwrap_or(before.id);
            spans.push(Span { run, before, after: info.clone() });
        }
        if info.reason == Reason::BeforeRun {
            open = Some(info.clone());
        }
    }
    spans.retain(|span| !undone.contains(&span.before.id));
    (spans, open.filter(|before| !undone.contains(&before.id)))
}

/// Those of the last run.
pub fn last_run(spans: &[Span]) -> &[Span] {
    let Some(last) = spans.last() else { return &[] };
    let others = spans.iter().rposition(|span| span.run != last.run).map_or(0, |at| at + 1);
    spans.get(others..).unwrap_or_default()
}

/// Those that began after a checkpoint was made.
pub fn since(spans: &[Span], checkpoint: Ulid) -> &[Span] {
    let first = spans.iter().position(|span| span.before.id > checkpoint).unwrap_or(spans.len());
    spans.get(first..).unwrap_or_default()
}
