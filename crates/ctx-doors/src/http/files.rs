//! The files that a session changed, and taking that back, alone or together with its conversation.

use std::sync::Arc;

use axum::extract::State;
use ctx_api::http::{ChangedFile, Changes, FileBack, FilesBack, KeptFile, Undo};
use ctx_engine::Caller;
use ctx_session::record::{self, StateName};
use ctx_session::{CheckpointId, Code, Refusal, RunId, SessionId, Ulid};
use ctx_snapshot::SnapshotError;
use ctx_snapshot::plan::{Change, Report};
use ctx_snapshot::session::{Changes as Made, SessionFiles, Span, last_run};
use ctx_snapshot::tree::shown;
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::error::Answer;
use super::extract::{Asked, At, Given, Who, session_id};
use super::json::Json;
use super::patch::patch;

/// All diffs of an answer.
const DIFF_BYTES: usize = 8 << 20;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct ChangesQuery {
    /// With a patch of each file that is text.
    diff: bool,
}

/// The files that the session's runs have changed, against what was there before its first change
#[utoipa::path(get, path = "/sessions/{id}/changes", tag = "files",
    params(("id" = String, Path), ChangesQuery), responses((status = 200, body = Changes)))]
pub(super) async fn changes(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Asked(query): Asked<ChangesQuery>,
) -> Answer<Json<Changes>> {
    let id = session_id(&id)?;
    // Whether the caller may see the session at all.
    api.engine.look(caller, id).await?;
    let Some(runs) = api.files.clone() else { return Ok(Json(Changes::default())) };
    let told = blocking(move || {
        let Some(files) = runs.snapshots().of_session(id.0)? else { return Ok(Changes::default()) };
        may_touch(&files, caller)?;
        Ok(tell(&files, &files.changes(&files.spans(&runs)?)?, query.diff)?)
    });
    Ok(Json(told.await?))
}

/// Take back what the session's last run changed in files. The conversation stays
#[utoipa::path(post, path = "/sessions/{id}/undo", tag = "files", params(("id" = String, Path)),
    request_body = Undo, responses((status = 200, body = FilesBack)))]
pub(super) async fn undo(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Given(how): Given<Undo>,
) -> Answer<Json<FilesBack>> {
    let id = session_id(&id)?;
    let session = api.engine.look(caller, id).await?;
    if matches!(session.state.name(), StateName::Running | StateName::Queued) {
        let message = "a run is under way or waits; its files can be taken back when it is over";
        return Err(Refusal::new(Code::Ebusy, message).into());
    }
    let name = session.overview.meta.agent.as_ref().map_or(String::new(), |agent| format!("{agent}/"));
    let name = format!("{name}{}", session.overview.meta.name);
    let nothing = move || nothing(&name);
    let runs = api.files.clone().ok_or_else(&nothing)?;
    let back = blocking(move || {
        let files = runs.snapshots().of_session(id.0)?.ok_or_else(&nothing)?;
        may_touch(&files, caller)?;
        let spans = files.spans(&runs)?;
        let made = files.changes(last_run(&spans))?;
        if made.touched.is_empty() {
            return Err(nothing());
        }
        if how.dry_run {
            return Ok(back(&files, &made, files.preview(&made)?, None));
        }
        let ready = files.take_back(&made, false, |_| Ok::<(), Refusal>(()))?;
        Ok(back(&files, &made, ready.report, Some(ready.undo)))
    });
    Ok(Json(back.await?))
}

/// Goes back to a checkpoint, and the files with it.
pub(super) async fn rollback(
    api: &Api,
    caller: Caller,
    id: SessionId,
    checkpoint: CheckpointId,
) -> Answer<Option<FilesBack>> {
    let engine = api.engine.clone();
    engine.find(caller, id)?;
    let Some(runs) = api.files.clone() else {
        engine.rollback(caller, id, checkpoint, None).await?;
        return Ok(None);
    };
    let handle = tokio::runtime::Handle::current();
    let done = blocking(move || {
        let Some(files) = runs.snapshots().of_session(id.0)? else {
            handle.block_on(engine.rollback(caller, id, checkpoint, None))?;
            return Ok(None);
        };
        may_touch(&files, caller)?;
        let spans: Vec<Span> = files.spans(&runs)?;
        let made = files.since(&spans, checkpoint.0)?;
        let ready = files.take_back(&made, true, |ready| {
            let count = |length: usize| u64::try_from(length).unwrap_or(u64::MAX);
            let record = record::FilesBack {
                restore: ready.restore,
                undo: ready.undo,
                changed: count(ready.report.changed.len()),
                kept: count(ready.report.kept.len()),
            };
            handle.block_on(engine.rollback(caller, id, checkpoint, Some(record)))
        })?;
        let unknown = files.unknown_since(checkpoint.0)?;
        Ok(Some(FilesBack { unknown, ..back(&files, &made, ready.report, Some(ready.undo)) }))
    });
    Ok(done.await?)
}

fn nothing(session: &str) -> Refusal {
    let message = format!(
        "nothing to undo in {session}: no run changed files, no snapshot was saved (the session's notices say why), or the snapshots were removed"
    );
    Refusal::new(Code::Enoent, message)
}

/// Files belong to the session's owner: who may only read or resume it does not change them.
fn may_touch(files: &SessionFiles, caller: Caller) -> Result<(), Refusal> {
    match files.uid == caller.uid {
        true => Ok(()),
        false => Err(Refusal::new(Code::Eacces, "the files belong to the session's owner alone")),
    }
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(Refusal::new(Code::Eio, format!("work on files broke: {error}"))),
    }
}

fn word(change: Change) -> String {
    match change {
        Change::Created => "created",
        Change::Changed => "changed",
        Change::Removed => "removed",
    }
    .to_owned()
}

fn workspace_of(files: &SessionFiles) -> String {
    files.workspace.path().display().to_string()
}

fn back(files: &SessionFiles, made: &Made, report: Report, undo: Option<Ulid>) -> FilesBack {
    let uncertain = report.changed.iter().filter(|changed| made.uncertain.contains(&changed.path.0));
    let uncertain = uncertain.map(|changed| shown(&changed.path.0)).collect();
    FilesBack { uncertain, ..went_back(workspace_of(files), report, undo) }
}

pub(super) fn went_back(workspace: String, report: Report, undo: Option<Ulid>) -> FilesBack {
    FilesBack {
        workspace,
        uncertain: Vec::new(),
        unknown: Vec::new(),
        changed: report
            .changed
            .iter()
            .map(|changed| FileBack { path: shown(&changed.path.0), change: word(changed.change) })
            .collect(),
        kept: report
            .kept
            .into_iter()
            .map(|kept| KeptFile { path: shown(&kept.path.0), why: kept.why })
            .collect(),
        undo,
    }
}

/// The changes of a session. All diffs together have a limit: a file whose diff does not fit is listed without it.
fn tell(files: &SessionFiles, made: &Made, with_diff: bool) -> Result<Changes, SnapshotError> {
    let mut left = DIFF_BYTES;
    let mut told = Vec::new();
    for (path, touched) in &made.touched {
        let Some(change) = touched.change() else { continue };
        let diff = match with_diff {
            true => patch(&files.workspace, path, touched.first.as_ref(), touched.last.as_ref())?,
            false => None,
        };
        let diff = diff.filter(|diff| diff.len() <= left);
        left = left.saturating_sub(diff.as_ref().map_or(0, String::len));
        told.push(ChangedFile {
            path: shown(path),
            change: word(change),
            runs: touched.runs.iter().copied().map(RunId).collect(),
            uncertain: made.uncertain.contains(path),
            mixed: touched.is_mixed,
            diff,
        });
    }
    Ok(Changes { workspace: Some(workspace_of(files)), files: told })
}

/// Whether the files of a session can be saved when it is paused.
pub(super) async fn check(api: &Api, id: SessionId) -> Answer<()> {
    let Some(files) = api.files.as_ref().map(Arc::clone) else {
        return Err(Refusal::invalid("files", "this daemon keeps no snapshots").into());
    };
    let checked =
        blocking(move || files.check(id.0).map_err(|error| Refusal::invalid("files", error.to_string())));
    Ok(checked.await?)
}
