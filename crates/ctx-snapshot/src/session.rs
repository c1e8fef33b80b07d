//! What a session changed, and taking it back: from the snapshots around its runs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ctx_session::Ulid;

use super::SnapshotError;
use super::history::{Stretch, Touched, touched, undo};
use super::plan::Report;
use super::restore::Turns;
use super::runs::RunFiles;
use super::store::{Info, Reason, Store};
use super::tree::{PathText, RelPath, Tree};
use super::workspace::{Ask, Snapshots, Workspace};
use ctx_cage::rights::Rights;

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
    /// It was taken back but for these.
    pub left: Option<BTreeSet<RelPath>>,
}

/// What some stretches changed.
#[derive(Debug, Default)]
pub struct Changes {
    pub touched: BTreeMap<RelPath, Touched>,
    /// Changes that others may have made.
    pub uncertain: BTreeSet<RelPath>,
    /// Before all of it.
    first: Arc<Tree>,
    turns: Turns,
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

impl Snapshots {
    /// Ends the runs that a crash of the daemon cut off with what is there now: what is edited from here on is not theirs.
    pub fn end_cut_off(&self, runs: &RunFiles) {
        for store in self.stores().unwrap_or_default() {
            let infos = store.infos().unwrap_or_default();
            let sessions: BTreeSet<Ulid> = infos.iter().filter_map(|info| info.session).collect();
            for session in sessions {
                let mine: Vec<Info> =
                    infos.iter().filter(|info| info.session == Some(session)).cloned().collect();
                let ended = match spans(&mine, &BTreeMap::new()).1 {
                    None => Ok(()),
                    Some(before) => self.of_session(session).and_then(|files| match files {
                        Some(files) => files.end_or_mark(runs, &before),
                        None => Ok(()),
                    }),
                };
                if let Err(error) = ended {
                    tracing::warn!(%session, %error, "the files are not saved after a run that was cut off");
                }
            }
        }
    }
}

impl SessionFiles {
    /// The stretches of the session's runs that were not taken back, the oldest first. One that a crash cut off ends with
    /// what is there now, for good; one that is under way does so for this look alone.
    pub fn spans(&self, runs: &RunFiles) -> Result<Vec<Span>, SnapshotError> {
        let (spans, open) = self.known()?;
        let Some(before) = open else { return Ok(spans) };
        if let Some(after) = runs.so_far(&self.workspace, &before)? {
            return Ok(spans.into_iter().chain([Span::new(before, after)]).collect());
        }
        // Its end may have come between the two, and the next run may have begun.
        let (spans, open) = self.known()?;
        match open {
            None => return Ok(spans),
            Some(next) if next.id != before.id => return self.spans(runs),
            Some(_) => {}
        }
        let since = Some(Box::new(before.clone()));
        let ask = Ask { session: before.session, run: before.run, since, ..Ask::new(Reason::AfterRun) };
        let after = self.workspace.take(ask)?;
        let (was, is) = (self.workspace.tree(&before)?, self.workspace.tree(&after)?);
        let uncertain = was.differing(&is).into_iter().cloned().map(PathText).collect();
        let after = Info { uncertain, ..after };
        self.workspace.change(after.clone())?;
        Ok(spans.into_iter().chain([Span::new(before, after)]).collect())
    }

    /// Ends a run that was cut off. Where that cannot be saved, nothing that comes later is its.
    fn end_or_mark(&self, runs: &RunFiles, before: &Info) -> Result<(), SnapshotError> {
        self.spans(runs).map(drop).or_else(|error| {
            self.workspace.end_is_unknown(before)?;
            Err(error)
        })
    }

    fn mine(&self) -> Result<Vec<Info>, SnapshotError> {
        let infos = self.workspace.infos()?;
        Ok(infos.into_iter().filter(|info| info.session == Some(self.session)).collect())
    }

    /// The snapshots before those runs since a checkpoint whose changes are not known.
    pub fn unknown_since(&self, checkpoint: Ulid) -> Result<Vec<Ulid>, SnapshotError> {
        let mine = self.mine()?.into_iter().filter(|info| info.end_unknown && info.id > checkpoint);
        Ok(mine.map(|info| info.id).collect())
    }

    fn known(&self) -> Result<(Vec<Span>, Option<Info>), SnapshotError> {
        let mine = self.mine()?;
        let left = left(&mine);
        let (mut spans, open) = spans(&mine, &left);
        spans.retain(|span| span.left.as_ref().is_none_or(|left| !left.is_empty()));
        Ok((spans, open.filter(|before| !left.contains_key(&before.id))))
    }

    /// What these stretches changed together.
    pub fn changes(&self, spans: &[Span]) -> Result<Changes, SnapshotError> {
        self.changes_from(Vec::new(), Vec::new(), spans)
    }

    /// What became of the files since a checkpoint was made, by these stretches, which began after it, and by those before
    /// it that were taken back since: they are as if they had been run backwards.
    pub fn since(&self, spans: &[Span], checkpoint: Ulid) -> Result<Changes, SnapshotError> {
        let first = spans.iter().position(|span| span.before.id > checkpoint).unwrap_or(spans.len());
        let mine = self.mine()?;
        let earlier: Vec<Info> = mine.iter().filter(|info| info.id < checkpoint).cloned().collect();
        let (left_then, left_now) = (left(&earlier), left(&mine));
        let mut backwards = Vec::new();
        let mut redoes = Vec::new();
        for Span { run, before, after, left } in self::spans(&mine, &left_now).0.into_iter().rev() {
            let Some(left) = left.filter(|_| before.id < checkpoint && !left_then.contains_key(&before.id))
            else {
                continue;
            };
            redoes.push(before.id);
            let (was, is) = (self.workspace.saw(&after)?, self.workspace.saw(&before)?);
            let went_back = was.differing(&is).filter(|path| !left.contains(*path)).cloned().collect();
            backwards.push(Stretch { run, before: was, after: is, left: Some(went_back) });
        }
        self.changes_from(backwards, redoes, spans.get(first..).unwrap_or_default())
    }

    fn changes_from(
        &self,
        mut stretches: Vec<Stretch>,
        redoes: Vec<Ulid>,
        spans: &[Span],
    ) -> Result<Changes, SnapshotError> {
        for Span { run, before, after, left } in spans {
            let (before, after) = (self.workspace.saw(before)?, self.workspace.saw(after)?);
            stretches.push(Stretch { run: *run, before, after, left: left.clone() });
        }
        let first = stretches.first().map(|stretch| Arc::clone(&stretch.before.tree)).unwrap_or_default();
        let uncertain = spans.iter().flat_map(|span| &span.after.uncertain).map(|path| path.0.clone());
        Ok(Changes {
            touched: touched(&stretches),
            uncertain: uncertain.collect(),
            first,
            turns: Turns {
                undoes: spans.iter().map(|span| span.before.id).collect(),
                redoes,
                restores: None,
            },
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
            turns: changes.turns.clone(),
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

impl Span {
    fn new(before: Info, after: Info) -> Span {
        Span { run: before.run.unwrap_or(before.id), before, after, left: None }
    }
}

/// What is left of the stretches that were taken back and not brought back, by their first snapshots.
fn left(infos: &[Info]) -> BTreeMap<Ulid, BTreeSet<RelPath>> {
    let mut left: BTreeMap<Ulid, BTreeSet<RelPath>> = BTreeMap::new();
    let mut left_before: BTreeMap<Ulid, BTreeMap<Ulid, BTreeSet<RelPath>>> = BTreeMap::new();
    for info in infos {
        let kept: BTreeSet<RelPath> = info.kept.iter().map(|path| path.0.clone()).collect();
        if info.reason == Reason::BeforeRestore {
            left_before.insert(info.id, left.clone());
        }
        if let Some((then, was)) = info.restores.and_then(|then| Some((then, left_before.get(&then)?))) {
            // The files are as they were then, so what was left then is left again; stretches that began later are not its
            // business.
            left.retain(|id, _| *id > then);
            left.extend(was.clone());
            for id in &info.undoes {
                left.entry(*id).and_modify(|left| left.extend(kept.iter().cloned()));
            }
            continue;
        }
        for id in &info.undoes {
            left.entry(*id).or_insert_with(|| kept.clone()).retain(|path| kept.contains(path));
        }
        for id in &info.redoes {
            left.remove(id);
        }
    }
    left
}

/// The stretches in a session's snapshots, and the beginning of one that has no end.
fn spans(infos: &[Info], left: &BTreeMap<Ulid, BTreeSet<RelPath>>) -> (Vec<Span>, Option<Info>) {
    let mut spans = Vec::new();
    let mut open: Option<Info> = None;
    for info in infos {
        let is_end = match info.reason {
            // One that was taken late is not the end of the run that has begun since.
            Reason::AfterRun | Reason::Checkpoint => {
                open.as_ref().is_some_and(|before| before.run == info.run)
            }
            // A run that was cut off by a crash ends at the latest here.
            Reason::BeforeRun => open.is_some(),
            Reason::Asked | Reason::Shell | Reason::BeforeRestore => false,
        };
        if is_end && let Some(before) = open.take() {
            let left = left.get(&before.id).cloned();
            spans.push(Span { left, ..Span::new(before, info.clone()) });
        }
        if info.reason == Reason::BeforeRun && !info.end_unknown {
            open = Some(info.clone());
        }
    }
    (spans, open)
}

/// Those of the last run that was not taken back, with what is left of later ones; where all were, what is left of them.
pub fn last_run(spans: &[Span]) -> &[Span] {
    let whole = spans.iter().rposition(|span| span.left.is_none());
    let Some((last, earlier)) = whole.and_then(|at| spans.get(..=at)?.split_last()) else { return spans };
    let first = earlier.iter().rposition(|span| span.run != last.run).map_or(0, |at| at + 1);
    spans.get(first..).unwrap_or_default()
}
