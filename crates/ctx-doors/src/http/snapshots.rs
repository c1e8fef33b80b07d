//! Saved states of files. Each user has their own here; who can read the store itself calls the same functions without a
//! daemon.

use axum::extract::State;
use ctx_api::http::{
    FilesBack, KeptFile, List, PruneSnapshots, Snapshot, SnapshotFile, SnapshotFiles, SnapshotsPruned, Undo,
};
use ctx_session::{Code, Refusal, SessionId, Ulid};
use ctx_snapshot::prune::Pruned;
use ctx_snapshot::{Info, Node, Reason, SnapshotError, Snapshots, Workspace};
use serde::Deserialize;
use utoipa::IntoParams;

use super::Api;
use super::error::Answer;
use super::extract::{Asked, At, Given, Who};
use super::files::{blocking, went_back};
use super::json::Json;

/// All snapshots of a user, the oldest first. No user: everyone's.
pub fn list(all: &Snapshots, uid: Option<u32>) -> Result<Vec<Snapshot>, SnapshotError> {
    let mut found = Vec::new();
    for held in all.held(uid)? {
        let path = held.about.path.display().to_string();
        found.extend(held.snapshots.into_iter().map(|info| described(info, path.clone())));
    }
    found.sort_by_key(|snapshot| snapshot.id);
    Ok(found)
}

fn described(info: Info, workspace: String) -> Snapshot {
    let reason = match info.reason {
        Reason::Asked => "asked",
        Reason::Shell => "shell",
        Reason::BeforeRun => "before_run",
        Reason::AfterRun => "after_run",
        Reason::Checkpoint => "checkpoint",
        Reason::BeforeRestore => "before_restore",
    };
    let Info { id, created, files, bytes, label, session, run, keep, .. } = info;
    Snapshot { id, created, reason: reason.to_owned(), workspace, files, bytes, label, session, run, keep }
}

fn path_of(workspace: &Workspace) -> String {
    workspace.path().display().to_string()
}

/// The files of a snapshot.
pub fn show(all: &Snapshots, uid: Option<u32>, id: Ulid) -> Result<SnapshotFiles, SnapshotError> {
    use ctx_snapshot::tree::shown;
    let (store, info) = all.find_saved(uid, id)?;
    let workspace = store.about.path.display().to_string();
    let tree = store.tree(&info.tree)?;
    let file = |(path, node): (&Vec<u8>, &Node)| {
        let (kind, mode, bytes, target) = match node {
            Node::Dir { mode } => ("dir", Some(mode), None, None),
            Node::File { mode, size, .. } => ("file", Some(mode), Some(*size), None),
            Node::Link { target } => ("link", None, None, Some(shown(target))),
        };
        let mode = mode.map(|mode| format!("{mode:04o}"));
        SnapshotFile { path: shown(path), kind: kind.to_owned(), mode, bytes, target }
    };
    let left_out = |(path, why): (&Vec<u8>, &String)| KeptFile { path: shown(path), why: why.clone() };
    Ok(SnapshotFiles {
        workspace: workspace.clone(),
        files: tree.nodes.iter().map(file).collect(),
        left_out: tree.left_out.iter().map(left_out).collect(),
        snapshot: described(info, workspace),
    })
}

/// What changed since a snapshot, or from it to another of the same directory.
pub fn diff(
    all: &Snapshots,
    uid: Option<u32>,
    id: Ulid,
    to: Option<Ulid>,
) -> Result<FilesBack, SnapshotError> {
    let (workspace, info) = all.find(uid, id)?;
    let report = match to {
        None => workspace.since(&info)?,
        Some(to) => workspace.between(&info, &workspace.info(to)?)?,
    };
    Ok(went_back(path_of(&workspace), report, None))
}

/// Makes all files as they were, or says what that would change.
pub fn restore(
    all: &Snapshots,
    uid: Option<u32>,
    id: Ulid,
    dry_run: bool,
) -> Result<FilesBack, SnapshotError> {
    let (workspace, info) = all.find(uid, id)?;
    if dry_run {
        return Ok(went_back(path_of(&workspace), workspace.preview(&info)?, None));
    }
    let done = workspace.restore(&info)?;
    Ok(went_back(path_of(&workspace), done.report, Some(done.undo.id)))
}

/// What a prune removed, for who asked for it.
pub fn pruned_of(pruned: Pruned) -> SnapshotsPruned {
    let Pruned { snapshots, bytes, failed } = pruned;
    SnapshotsPruned { snapshots, bytes, failed }
}

fn snapshots(api: &Api) -> Result<Snapshots, Refusal> {
    let none = || Refusal::new(Code::Enoent, "this daemon keeps no snapshots");
    api.files.as_ref().map(|files| files.snapshots().clone()).ok_or_else(none)
}

fn snapshot_id(text: &str) -> Result<Ulid, Refusal> {
    text.parse().map_err(|_| Refusal::new(Code::Enoent, format!("no snapshot {text}")))
}

/// The caller's snapshots of files, the oldest first
#[utoipa::path(get, path = "/snapshots", tag = "files", responses((status = 200, body = List<Snapshot>)))]
pub(super) async fn all(State(api): State<Api>, Who(caller): Who) -> Answer<Json<List<Snapshot>>> {
    let all = snapshots(&api)?;
    let items = blocking(move || Ok(list(&all, Some(caller.uid))?)).await?;
    Ok(Json(List { items, next: None }))
}

/// The files of a snapshot
#[utoipa::path(get, path = "/snapshots/{id}", tag = "files", params(("id" = String, Path)),
    responses((status = 200, body = SnapshotFiles)))]
pub(super) async fn read(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
) -> Answer<Json<SnapshotFiles>> {
    let (all, id) = (snapshots(&api)?, snapshot_id(&id)?);
    Ok(Json(blocking(move || Ok(show(&all, Some(caller.uid), id)?)).await?))
}

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct DiffQuery {
    /// A later snapshot of the same directory; without it, the files as they are now.
    to: Option<String>,
}

/// What changed in files since a snapshot
#[utoipa::path(get, path = "/snapshots/{id}/changes", tag = "files", params(("id" = String, Path), DiffQuery),
    responses((status = 200, body = FilesBack)))]
pub(super) async fn changes(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Asked(query): Asked<DiffQuery>,
) -> Answer<Json<FilesBack>> {
    let (all, id) = (snapshots(&api)?, snapshot_id(&id)?);
    let to = query.to.as_deref().map(snapshot_id).transpose()?;
    Ok(Json(blocking(move || Ok(diff(&all, Some(caller.uid), id, to)?)).await?))
}

/// Make all files of a directory as they were
#[utoipa::path(post, path = "/snapshots/{id}/restore", tag = "files", params(("id" = String, Path)),
    request_body = Undo, responses((status = 200, body = FilesBack)))]
pub(super) async fn bring_back(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Given(how): Given<Undo>,
) -> Answer<Json<FilesBack>> {
    let (all, id) = (snapshots(&api)?, snapshot_id(&id)?);
    Ok(Json(blocking(move || Ok(restore(&all, Some(caller.uid), id, how.dry_run)?)).await?))
}

/// Remove the caller's old snapshots, and those of sessions that were purged
#[utoipa::path(post, path = "/snapshots/prune", tag = "files", request_body = PruneSnapshots,
    responses((status = 200, body = SnapshotsPruned)))]
pub(super) async fn prune(
    State(api): State<Api>,
    Who(caller): Who,
    Given(what): Given<PruneSnapshots>,
) -> Answer<Json<SnapshotsPruned>> {
    let (all, engine) = (snapshots(&api)?, api.engine.clone());
    let pruned = blocking(move || {
        let state = |session: Ulid| Some(engine.find(caller, SessionId(session)).ok()?.state);
        let is_gone = |session: Ulid, _: u32| state(session).is_none();
        let is_held = |session: Ulid, _: u32| state(session).is_some_and(|state| !state.is_over());
        Ok(all.prune(Some(caller.uid), what.before, &is_gone, &is_held)?)
    });
    let pruned = pruned.await?;
    Ok(Json(pruned_of(pruned)))
}
