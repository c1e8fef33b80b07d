//! The files of a session around its runs: saved before something writes to them, and after the run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctx_cage::rights::Rights;
use ctx_session::command::Progress;
use ctx_session::record::Workspace;
use ctx_session::{RunId, SessionId};
use ctx_snapshot::runs::{Place, RunFiles, Touch};

use crate::project::WORK;

/// Saves the files of sessions; nothing, where there is nowhere to save them.
#[derive(Clone, Default)]
pub struct Files(Option<Arc<RunFiles>>);

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Files").field(&self.0.is_some()).finish()
    }
}

impl Files {
    pub fn new(files: Arc<RunFiles>) -> Files {
        Files(Some(files))
    }

    /// A run begins: its workspace is the directory that it may write to.
    pub(crate) fn begin(&self, session: SessionId, run: RunId, workspace: Option<&Workspace>, uid: u32) {
        let workspace = workspace.filter(|workspace| !workspace.read_only);
        let (Some(files), Some(workspace)) = (&self.0, workspace) else { return };
        let Ok(rights) = Rights::of(uid) else { return };
        let place = Place { path: PathBuf::from(&workspace.directory), uid, rights };
        files.begin(session.0, run.0, place);
    }

    /// A call is about to write. Tools on files name theirs; others may write anything. Gives what the run's operator should
    /// know where the files cannot be saved first.
    pub(crate) async fn before(
        &self,
        session: SessionId,
        tool: &str,
        subjects: &[String],
    ) -> Option<Progress> {
        let files = self.0.clone()?;
        let touch = match subjects.first() {
            Some(path) if tool.starts_with("fs.") => match Path::new(path).strip_prefix(WORK) {
                Ok(path) => Touch::File(path.as_os_str().as_encoded_bytes().to_vec()),
                // It is in the agent's own root, which no snapshot has.
                Err(_) => return None,
            },
            _ => Touch::Anything,
        };
        let error = off_thread(move || files.before(session.0, touch).err()).await??;
        Some(not_saved(format!(
            "what this run changes in files cannot be undone, they are not saved first: {error}"
        )))
    }

    /// A run is over. Gives what its operator should know where the files cannot be saved now.
    pub(crate) async fn after(&self, session: SessionId) -> Option<Progress> {
        let files = self.0.clone()?;
        let unsaved = off_thread(move || files.after(session.0).err()).await??;
        Some(not_saved(format!(
            "what this run changed in files is not known, they could not be saved after it: {unsaved}. \
             `ctx undo` leaves it; `ctx snapshots restore {}` makes all files as they were before it",
            unsaved.before
        )))
    }
}

fn not_saved(message: String) -> Progress {
    Progress::Noticed { reason: "files_not_saved".to_owned(), message }
}

async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.inspect_err(|_| tracing::error!("saving the files of a run broke")).ok()
}
