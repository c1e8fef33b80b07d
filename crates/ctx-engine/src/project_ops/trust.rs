//! The operator's agreement to what a project file grants. The file may have come with a clone, so nobody works by its
//! grants before its owner agreed to this very file; whether they did, [`Project::trusts`] answers from the project's log.
//!
//! [`Project::trusts`]: ctx_session::project::Project::trusts

use ctx_session::project::ProjectCommand;
use ctx_session::{Code, Name, Refusal};

use crate::engine::Engine;
use crate::port::ProjectFile;
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
