//! Snapshots of a shell's workspace: the tools call them checkpoints.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctx_session::Ulid;
use serde::Serialize;

use super::error::ShellError;
use super::host::{Inner, ShellHost};
use super::log::ShellRecord;
use super::remote::{RemoteTransport, may_be_workspace};
use super::transport::Transport;
use super::workspace::ShellWorkspace;
use ctx_cage::rights::Rights;
use ctx_snapshot::plan::{Changed, Kept, Report};
use ctx_snapshot::workspace::{Ask, resolve};
use ctx_snapshot::{Info, Reason, SnapshotError, Workspace};

/// Of a restore, so many files are named.
const NAMED_MAX: usize = 500;
const LABEL_CHARS_MAX: usize = 200;

/// One line of the list of checkpoints.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CheckpointLine {
    pub id: Ulid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    pub created: ctx_session::Timestamp,
    pub files: u64,
}

/// What a restore came to, or would come to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoreAnswer {
    pub restored_to: Ulid,
    pub files_changed: Vec<Changed>,
    /// How many there are, where not all are named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files_changed_total: Option<usize>,
    /// Files that differ and were left as they are, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<Kept>,
    /// The checkpoint that brings back what was there before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<Ulid>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dry_run: bool,
}

impl Inner {
    /// The user whose shells these are.
    fn user(&self) -> (u32, Rights) {
        match &self.config.run_as {
            Some(user) => (user.uid, user.rights.clone()),
            None => (rustix::process::geteuid().as_raw(), Rights::own()),
        }
    }

    /// Opens a workspace, and finishes what another server left undone there.
    pub(super) async fn open_workspace(
        self: &Arc<Self>,
        path: PathBuf,
        with_ignored: bool,
    ) -> Result<ShellWorkspace, ShellError> {
        let inner = Arc::clone(self);
        blocking(move || inner.workspace(&path, with_ignored)).await
    }

    fn workspace(&self, asked: &Path, with_ignored: bool) -> Result<ShellWorkspace, ShellError> {
        let refused = |message: String| ShellError::invalid("workspace", message);
        let Some(setup) = &self.config.snapshots else {
            return Err(refused("workspace: this server keeps no snapshots".to_owned()));
        };
        if self.config.cage.is_some() {
            return Err(refused("workspace: a shell in a cage has none; leave it out".to_owned()));
        }
        let (uid, rights) = self.user();
        let path = resolve(asked, uid, &rights).map_err(|error| refused(format!("workspace: {error}")))?;
        let roots = if setup.roots.is_empty() {
            std::slice::from_ref(&self.config.cwd)
        } else {
            setup.roots.as_slice()
        };
        let is_inside = |root: &PathBuf| {
            let root = rights.act(|| std::fs::canonicalize(root)).ok().and_then(Result::ok);
            root.is_some_and(|root| path.starts_with(root))
        };
        if !roots.iter().any(is_inside) {
            let roots: Vec<String> = roots.iter().map(|root| root.display().to_string()).collect();
            return Err(refused(format!(
                "workspace: {} is not inside {}; the operator allows others with workspace_roots",
                path.display(),
                roots.join(", ")
            )));
        }
        let workspace = setup.snapshots.open(&path, uid, rights)?;
        workspace.recover()?;
        Ok(ShellWorkspace { workspace, with_ignored })
    }
}

impl Inner {
    /// The same on another machine or in a container.
    pub(super) async fn open_far_workspace(
        self: &Arc<Self>,
        remote: RemoteTransport,
        path: String,
        with_ignored: bool,
    ) -> Result<ShellWorkspace, ShellError> {
        let inner = Arc::clone(self);
        blocking(move || {
            let refused = |why: String| ShellError::invalid("workspace", format!("workspace: {why}"));
            let setup = inner.config.snapshots.as_ref();
            let setup = setup.ok_or_else(|| refused("this server keeps no snapshots".to_owned()))?;
            if !path.starts_with('/') {
                return Err(refused("on the other side it must be an absolute path".to_owned()));
            }
            let files = remote.files(&path)?;
            may_be_workspace(&files, &setup.remote_roots).map_err(refused)?;
            // A path that is none of this machine's: who is there, and where.
            let place = format!("{}:{}", remote.label(), files.top.display());
            let workspace =
                setup.snapshots.open_over(PathBuf::from(place), inner.user().0, Box::new(files))?;
            workspace.recover()?;
            Ok(ShellWorkspace { workspace, with_ignored })
        })
        .await
    }
}

impl From<SnapshotError> for ShellError {
    fn from(error: SnapshotError) -> ShellError {
        ShellError::Snapshot(error)
    }
}

/// Work on files, off the async threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ShellError> + Send + 'static,
) -> Result<T, ShellError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(ShellError::Closed { id: "snapshot".to_owned(), why: error.to_string() }))
}

impl ShellHost {
    fn workspace_of(&self, id: &str) -> Result<(Arc<ShellWorkspace>, Ulid), ShellError> {
        let entry = self.inner.entry(id)?;
        let none = || {
            let message = format!(
                "session_id: the shell `{id}` has no workspace; make one with session_create and `workspace`"
            );
            ShellError::invalid("session_id", message)
        };
        Ok((entry.workspace.clone().ok_or_else(none)?, entry.shared.log))
    }

    fn note(&self, log: Ulid, record: &ShellRecord) {
        if let Err(error) = self.inner.log.record(log, record) {
            tracing::warn!(%error, "a snapshot was not recorded");
        }
    }

    /// Saves the files of a shell's workspace.
    pub async fn checkpoint(&self, id: &str, label: Option<String>) -> Result<Ulid, ShellError> {
        let (workspace, log) = self.workspace_of(id)?;
        if label.as_ref().is_some_and(|label| label.chars().count() > LABEL_CHARS_MAX) {
            let message = format!("label: at most {LABEL_CHARS_MAX} characters");
            return Err(ShellError::invalid("label", message));
        }
        let label = label.map(|label| self.shown(&label));
        let ask = Ask { label, keep: true, with_ignored: workspace.with_ignored, ..Ask::new(Reason::Shell) };
        let info = blocking(move || Ok(workspace.workspace.take(ask)?)).await?;
        self.note(
            log,
            &ShellRecord::Checkpointed { checkpoint: info.id, label: info.label, files: info.files },
        );
        Ok(info.id)
    }

    /// The checkpoints of a shell's workspace, also those of earlier shells, the oldest first.
    pub async fn checkpoints(&self, id: &str) -> Result<Vec<CheckpointLine>, ShellError> {
        let (workspace, _) = self.workspace_of(id)?;
        let infos = blocking(move || Ok(workspace.workspace.infos()?)).await?;
        let is_one = |info: &Info| matches!(info.reason, Reason::Shell | Reason::BeforeRestore);
        let line = |info: Info| CheckpointLine {
            id: info.id,
            label: info.label,
            created: info.created,
            files: info.files,
        };
        Ok(infos.into_iter().filter(is_one).map(line).collect())
    }

    /// Makes the files of a shell's workspace as they were at a checkpoint: the newest, where none is named.
    pub async fn restore(
        &self,
        id: &str,
        checkpoint: Option<Ulid>,
        dry_run: bool,
    ) -> Result<RestoreAnswer, ShellError> {
        let (workspace, log) = self.workspace_of(id)?;
        if let Some(running) = self.running(id).filter(|_| !dry_run) {
            return Err(ShellError::Busy { id: id.to_owned(), call: running.call });
        }
        let answer = blocking(move || {
            let workspace = &workspace.workspace;
            let info = match checkpoint {
                Some(id) => workspace.info(id)?,
                None => newest(workspace)?,
            };
            let (report, undo) = match dry_run {
                true => (workspace.preview(&info)?, None),
                false => {
                    let restored = workspace.restore(&info)?;
                    (restored.report, Some(restored.undo.id))
                }
            };
            Ok(answer(info.id, report, undo, dry_run))
        })
        .await?;
        if let Some(undo) = answer.undo {
            let files = answer.files_changed_total.unwrap_or(answer.files_changed.len()) as u64;
            self.note(log, &ShellRecord::Restored { checkpoint: answer.restored_to, undo, files });
        }
        Ok(answer)
    }
}

fn newest(workspace: &Workspace) -> Result<Info, ShellError> {
    let infos = workspace.infos()?;
    infos.into_iter().rev().find(|info| info.reason == Reason::Shell).ok_or_else(|| {
        ShellError::invalid("checkpoint_id", "there is no checkpoint yet; make one with session_checkpoint")
    })
}

fn answer(restored_to: Ulid, report: Report, undo: Option<Ulid>, dry_run: bool) -> RestoreAnswer {
    let total = report.changed.len();
    RestoreAnswer {
        restored_to,
        files_changed: report.changed.into_iter().take(NAMED_MAX).collect(),
        files_changed_total: (total > NAMED_MAX).then_some(total),
        kept: report.kept.into_iter().take(NAMED_MAX).collect(),
        undo,
        dry_run,
    }
}
