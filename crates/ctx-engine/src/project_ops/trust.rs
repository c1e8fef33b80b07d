//! The operator's agreement to what a project file grants. The file may have come with a clone, so nobody works by its
//! grants before its owner agreed to this very file; whether they did, [`Project::trusts`] answers from the project's log.
//!
//! [`Project::trusts`]: ctx_session::project::Project::trusts

use std::sync::Arc;

use ctx_session::project::{ProjectCommand, ProjectRead};
use ctx_session::record::SessionMeta;
use ctx_session::{Code, Name, Refusal};

use crate::engine::Engine;
use crate::port::{ProjectFile, ProjectFiles};
use crate::projects::{ProjectLog, ProjectView};
use crate::request::Caller;
use crate::shared::Inner;

/// Refuses a new session that would work by grants which its owner has not agreed to.
pub(super) fn check(
    log: &ProjectLog,
    caller: Caller,
    slug: &Name,
    file: &ProjectFile,
) -> Result<(), Refusal> {
    if file.grants.is_empty() || log.with(|project| project.trusts(caller.uid, &file.hash)) {
        return Ok(());
    }
    let message = format!(
        "the project file of {slug} grants its agent rights that you have not agreed to ({}); read it, then run `ctx project trust {slug}`",
        file.grants.join("; ")
    );
    Err(Refusal::new(Code::Eacces, message).blaming("project"))
}

/// The same before each run of a session that is there. It works by the file as it was when the session began, so it is that
/// file which its owner must have agreed to: an older ctx asked nobody, and a fork may be somebody else's.
pub(super) fn check_kept(
    log: &ProjectLog,
    meta: &SessionMeta,
    snapshot: &Arc<[u8]>,
    files: &dyn ProjectFiles,
) -> Result<(), Refusal> {
    let (Some(dsl_hash), Some(dsl_snapshot)) = (&meta.dsl_hash, &meta.dsl_snapshot) else { return Ok(()) };
    if log.with(|project| project.trusts(meta.owner, dsl_hash)) {
        return Ok(());
    }
    let read = ProjectRead { dsl_hash: dsl_hash.clone(), dsl_snapshot: dsl_snapshot.clone() };
    // One that cannot be read is told of by whoever needs it.
    let grants = files.of_snapshot(Arc::clone(snapshot), &read).map(|file| file.grants).unwrap_or_default();
    if grants.is_empty() {
        return Ok(());
    }
    let message = format!(
        "the project file that this session began with grants its agent rights that its owner has not agreed to ({}); run \
         `ctx project trust {}` if the file is still the same, and begin a new session if it is not",
        grants.join("; "),
        meta.project
    );
    Err(Refusal::new(Code::Eacces, message).blaming("project"))
}

impl Inner {
    fn trust(&self, caller: Caller, slug: &Name, hash: Option<&str>) -> Result<ProjectView, Refusal> {
        let log = self.own_log(caller, slug)?;
        self.look_at_project(slug);
        let view = self.view(caller, slug)?;
        if view.owner != caller.uid {
            let message =
                format!("the project {slug} belongs to another user, who alone can agree to its file");
            return Err(Refusal::new(Code::Eacces, message));
        }
        let Some(dsl) = view.dsl else {
            if view.problems.is_empty() {
                // Without a file there is nothing to agree to.
                return self.view(caller, slug);
            }
            return Err(ctx_session::project::invalid(slug.as_str(), &view.problems));
        };
        if hash.is_some_and(|hash| hash != dsl.hash) {
            let message = format!(
                "the project file of {slug} has changed since (its hash is {}); read it again",
                dsl.hash
            );
            return Err(Refusal::invalid("hash", message));
        }
        let command = ProjectCommand::Trust { dsl_hash: dsl.hash, by: caller.uid };
        self.perform_project(&log, self.fresh.now(), |project| project.decide(&command))?;
        self.view(caller, slug)
    }
}

impl Engine {
    /// The operator agrees to the project file as it is now. With a hash: only if it still is the file with that hash.
    pub async fn trust_project(
        &self,
        caller: Caller,
        slug: &Name,
        hash: Option<String>,
    ) -> Result<ProjectView, Refusal> {
        let slug = slug.clone();
        self.of_projects(move |inner| inner.trust(caller, &slug, hash.as_deref())).await
    }
}
