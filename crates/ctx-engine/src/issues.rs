//! Issues and todos of a project, and the session that works on one.
//!
//! An issue lives in its project's log. Which session works on it is said twice, on purpose: the session points at the
//! issue, and the project's log has the claim. A claim counts only while its session points back and is not over, so
//! that a crash between the two leaves nothing behind.

use std::sync::Arc;

use ctx_session::issue::{IssueAct, IssueStatus, TodoOp};
use ctx_session::project::{
    Change, Criterion, Issue, IssueBody, IssueCommand, IssueGiven, Project, ProjectBody, ProjectRecord, Who,
};
use ctx_session::request::RequestKey;
use ctx_session::{CheckpointId, Code, Command, IssueId, Name, Refusal, RunId, RunState, Session, SessionId};

use crate::driver::Ask;
use crate::engine::Engine;
use crate::projects::{Bound, ProjectLog};
use crate::request::{Caller, NewSession};
use crate::shared::Inner;

/// Most text on a page of issues: bodies may be long.
const PAGE_BYTES: usize = 4 * 1024 * 1024;

/// An issue as a door shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueView {
    pub project: Name,
    pub issue: Issue,
    /// The session that works on it now, if the caller may see it.
    pub worker: Option<SessionId>,
}

/// Which issues of a project, by number.
#[derive(Debug, Clone, Copy)]
pub struct IssueWish {
    pub status: Option<IssueStatus>,
    /// Those with a higher number.
    pub after: Option<u64>,
    pub limit: usize,
}

/// An issue to be made.
#[derive(Debug, Clone, Default)]
pub struct NewIssue {
    pub title: String,
    pub body: String,
    pub criteria: Vec<Criterion>,
    /// Kept with it, so that it is made once.
    pub key: Option<RequestKey>,
}

fn not_there(id: IssueId) -> Refusal {
    Refusal::new(Code::Enoent, format!("no issue {id}"))
}

impl Inner {
    /// The log that has an issue.
    fn log_of_issue(&self, id: IssueId) -> Option<(Name, Arc<ProjectLog>)> {
        let logs = self.project_logs().into_iter();
        logs.map(|log| (log.with(|project| project.slug.clone()), log))
            .find(|(_, log)| log.with(|project| project.issue(id).is_some()))
    }

    /// Decides and writes; the issue that it is about. Blocking.
    fn perform_issue(&self, log: &ProjectLog, command: &IssueCommand) -> Result<Option<IssueId>, Refusal> {
        self.perform_issue_once(log, command, None)
    }

    /// The same for a request with a key: one that was carried out before is about the same issue, and writes nothing.
    fn perform_issue_once(
        &self,
        log: &ProjectLog,
        command: &IssueCommand,
        key: Option<&RequestKey>,
    ) -> Result<Option<IssueId>, Refusal> {
        if let Some(key) = key {
            let before = log.with(|project| Ok(project.requests.find(key)?.map(|done| done.issue_id)))?;
            if let Some(issue) = before {
                return Ok(issue);
            }
        }
        let now = self.fresh.now();
        let written = self.perform_project(log, now, |project| {
            let mut ids = self.fresh.ids();
            let mut given = IssueGiven { now, ids: &mut ids, limits: &self.limits };
            let records = project.decide_issue(command, &mut given)?;
            Ok(match key {
                Some(key) => Project::requested(key, records),
                None => records,
            })
        })?;
        Ok(written.iter().find_map(|record| record.body.issue()))
    }

    /// Tells those who watch the system, and those who watch the session that works on an issue.
    pub(crate) fn tell_issues(&self, project: &Project, records: &[ProjectRecord]) {
        for record in records {
            let Some(id) = record.body.issue() else { continue };
            self.news.issue(id, matches!(record.body, ProjectBody::Issue(IssueBody::Created(_))));
            let worker = project.issue(id).and_then(|issue| issue.session);
            if let Some(live) = worker.and_then(|session| self.live_now(session)) {
                live.issue(id, &project.slug, record);
            }
        }
    }

    /// What is left to do on the issue that a session is bound to.
    pub(crate) fn todos_left(&self, session: &Session) -> Vec<String> {
        let Some(id) = session.bound_issue else { return Vec::new() };
        let log = self.project_log(&session.meta.project).ok();
        let left = log.and_then(|log| log.with(|project| project.issue(id).map(Issue::left)));
        left.unwrap_or_default()
    }

    /// What a run asks of the bound issue; the answer is for its model. Blocking.
    pub(crate) fn act_on_issue(&self, session: &Bound, act: IssueAct) -> Result<String, Refusal> {
        let Some(id) = session.issue else {
            let message = "this session has no issue; ask the operator to bind one";
            return Err(Refusal::new(Code::Enoent, message));
        };
        let log = self.project_log(&session.project)?;
        let who = Who { by: session.owner, session_id: Some(session.session) };
        let read = |show: fn(&Issue) -> String| {
            log.with(|project| project.issue(id).map(show)).ok_or_else(|| not_there(id))
        };
        match act {
            IssueAct::Read => read(Issue::text),
            IssueAct::Move { to } => {
                let change = Change { status: Some(to), ..Change::default() };
                self.perform_issue(&log, &IssueCommand::Change { issue: id, change, who })?;
                read(Issue::text)
            }
            IssueAct::Criterion { item, met } => {
                self.perform_issue(&log, &IssueCommand::Criterion { issue: id, item, met, who })?;
                read(Issue::criteria_list)
            }
            IssueAct::Todo(op) => {
                self.perform_issue(&log, &IssueCommand::Todo { issue: id, op, who })?;
                read(Issue::list)
            }
        }
    }
}

/// As many as a page has room for, and whether there are more.
fn page<'a>(wanted: impl Iterator<Item = &'a Issue>, limit: usize) -> (Vec<Issue>, bool) {
    let mut found: Vec<Issue> = Vec::new();
    let mut bytes = 0;
    for issue in wanted {
        bytes += issue.text().len();
        if found.len() >= limit || (bytes > PAGE_BYTES && !found.is_empty()) {
            return (found, true);
        }
        found.push(issue.clone());
    }
    (found, false)
}

impl Engine {
    async fn of_issues<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&Inner) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let inner = self.inner.clone();
        let asked = tokio::task::spawn_blocking(move || ask(&inner)).await;
        asked.unwrap_or_else(|error| Err(Refusal::new(Code::Eio, format!("asking an issue broke: {error}"))))
    }

    /// A page of the issues of a project that the caller may see, and whether there are more.
    pub async fn issues(
        &self,
        caller: Caller,
        project: &Name,
        wish: IssueWish,
    ) -> Result<(Vec<IssueView>, bool), Refusal> {
        let log = self.project_log(caller, project).await?;
        let (found, more) = log.with(|project| {
            let wanted = project.issues().iter().filter(|issue| {
                wish.after.is_none_or(|after| issue.number > after)
                    && wish.status.is_none_or(|status| issue.status == status)
                    && self.sees_issue(caller, project, issue)
            });
            page(wanted, wish.limit)
        });
        let mut views = Vec::with_capacity(found.len());
        for issue in found {
            views.push(self.view_of_issue(caller, project.clone(), issue).await);
        }
        Ok((views, more))
    }

    /// An issue; others' do not exist.
    pub async fn issue(&self, caller: Caller, id: IssueId) -> Result<IssueView, Refusal> {
        let (project, issue) = self.seen_issue(caller, id)?;
        Ok(self.view_of_issue(caller, project, issue).await)
    }

    /// Who made it sees it, and whose project it is, and the daemon's owner.
    fn sees_issue(&self, caller: Caller, project: &Project, issue: &Issue) -> bool {
        let is_theirs = project.entry.as_ref().is_some_and(|entry| entry.owner == caller.uid);
        is_theirs || self.may_see(caller, issue.owner)
    }

    fn seen_issue(&self, caller: Caller, id: IssueId) -> Result<(Name, Issue), Refusal> {
        let (slug, log) = self.inner.log_of_issue(id).ok_or_else(|| not_there(id))?;
        let seen = |project: &Project| {
            project.issue(id).filter(|issue| self.sees_issue(caller, project, issue)).cloned()
        };
        log.with(seen).map(|issue| (slug, issue)).ok_or_else(|| not_there(id))
    }

    async fn view_of_issue(&self, caller: Caller, project: Name, issue: Issue) -> IssueView {
        let worker = match issue.session {
            Some(session) => self.show(caller, session).await.ok().and_then(|(summary, details)| {
                let works = details.bound_issue == Some(issue.id) && !details.state.name().is_over();
                works.then(|| summary.id())
            }),
            None => None,
        };
        IssueView { project, issue, worker }
    }

    /// An issue and its project, if the caller may see it; who works on it is not looked up.
    pub fn find_issue(&self, caller: Caller, id: IssueId) -> Result<(Name, Issue), Refusal> {
        self.seen_issue(caller, id)
    }

    pub async fn create_issue(
        &self,
        caller: Caller,
        project: &Name,
        new: NewIssue,
    ) -> Result<IssueView, Refusal> {
        self.inner.refuse_when_closing()?;
        let log = self.project_log(caller, project).await?;
        let NewIssue { title, body, criteria, key } = new;
        let command = IssueCommand::Create { title, body, criteria, by: caller.uid };
        let project = project.clone();
        let made = self.of_issues(move |inner| {
            let made = inner.perform_issue_once(&log, &command, key.as_ref())?;
            let issue = made.and_then(|id| log.with(|found| found.issue(id).cloned()));
            let issue = issue.ok_or_else(|| Refusal::new(Code::Eio, "the new issue was lost; try again"))?;
            Ok((project, issue))
        });
        let (project, issue) = made.await?;
        Ok(self.view_of_issue(caller, project, issue).await)
    }

    pub async fn change_issue(
        &self,
        caller: Caller,
        id: IssueId,
        change: Change,
    ) -> Result<IssueView, Refusal> {
        let who = Who { by: caller.uid, session_id: None };
        self.command_issue(caller, id, IssueCommand::Change { issue: id, change, who }, None).await
    }

    pub async fn add_todo(
        &self,
        caller: Caller,
        id: IssueId,
        text: String,
        key: Option<RequestKey>,
    ) -> Result<IssueView, Refusal> {
        let who = Who { by: caller.uid, session_id: None };
        self.command_issue(caller, id, IssueCommand::AddTodo { issue: id, text, who }, key).await
    }

    pub async fn change_todo(
        &self,
        caller: Caller,
        id: IssueId,
        op: TodoOp,
        key: Option<RequestKey>,
    ) -> Result<IssueView, Refusal> {
        let who = Who { by: caller.uid, session_id: None };
        self.command_issue(caller, id, IssueCommand::Todo { issue: id, op, who }, key).await
    }

    async fn command_issue(
        &self,
        caller: Caller,
        id: IssueId,
        command: IssueCommand,
        key: Option<RequestKey>,
    ) -> Result<IssueView, Refusal> {
        self.inner.refuse_when_closing()?;
        self.seen_issue(caller, id)?;
        self.of_issues(move |inner| {
            let (_, log) = inner.log_of_issue(id).ok_or_else(|| not_there(id))?;
            inner.perform_issue_once(&log, &command, key.as_ref()).map(drop)
        })
        .await?;
        self.issue(caller, id).await
    }

    /// Binds a session to an issue. One that another session works on is refused.
    pub async fn bind(&self, caller: Caller, id: SessionId, issue: IssueId) -> Result<(), Refusal> {
        let summary = self.find(caller, id)?;
        let _one_at_a_time = self.inner.binding.lock().await;
        if !summary.state.is_over() {
            self.may_bind(caller, Some(id), &summary.meta.project, issue).await?;
            let claim = IssueCommand::Claim { issue, session: id, by: caller.uid };
            self.command_issue(caller, issue, claim, None).await?;
        }
        self.inner.command(id, Command::Bind { issue, by: caller.uid }).await.map(drop)
    }

    /// Makes a session that is bound from the beginning.
    pub async fn create_bound(
        &self,
        caller: Caller,
        new: NewSession,
        issue: IssueId,
    ) -> Result<SessionId, Refusal> {
        let project = match &new.project {
            Some(project) => project.clone(),
            None => self.seen_issue(caller, issue)?.0,
        };
        // Refused before anything is made, but for one that is bound at the same moment.
        self.may_bind(caller, None, &project, issue).await?;
        let id = self.create(caller, new).await?;
        match self.bind(caller, id, issue).await {
            Ok(()) => Ok(id),
            Err(refusal) => {
                // Nobody knows of it, and nobody is to find it when they ask again.
                if self.end(caller, id).await.is_ok() {
                    let _ = self.purge(caller, id).await;
                }
                Err(refusal)
            }
        }
    }

    async fn may_bind(
        &self,
        caller: Caller,
        id: Option<SessionId>,
        project: &Name,
        issue: IssueId,
    ) -> Result<(), Refusal> {
        let (own, found) = self.seen_issue(caller, issue)?;
        if own != *project {
            let message = format!("the issue belongs to project {own}, the session to {project}");
            return Err(Refusal::invalid("issue_id", message));
        }
        let Some(other) = found.session.filter(|other| Some(*other) != id) else { return Ok(()) };
        let session = match self.inner.ask(other, |reply| Ask::Look { reply }).await {
            Ok(session) => session,
            // Purged, or its directory is gone.
            Err(refusal) if refusal.code == Code::Enoent => return Ok(()),
            Err(refusal) => return Err(refusal),
        };
        if session.bound_issue == Some(issue) && !session.state.name().is_over() {
            let message = format!("session {other} works on this issue; unbind or end it first");
            return Err(Refusal::new(Code::Ebusy, message));
        }
        Ok(())
    }

    pub async fn unbind(&self, caller: Caller, id: SessionId) -> Result<(), Refusal> {
        self.command(caller, id, Command::Unbind { by: caller.uid }).await.map(drop)
    }

    /// Goes on from a checkpoint and moves the bound issue to resolved: the closing checkpoint.
    pub async fn resume_and_resolve(
        &self,
        caller: Caller,
        id: SessionId,
        checkpoint: CheckpointId,
    ) -> Result<Option<(RunId, RunState)>, Refusal> {
        let Some(issue) = self.look(caller, id).await?.bound_issue else {
            return Err(Refusal::invalid("resolve", "this session has no issue"));
        };
        self.seen_issue(caller, issue)?;
        let session = self.look(caller, id).await?;
        let is_resolved = self.issue(caller, issue).await?.issue.status == IssueStatus::Resolved;
        let is_resumed = !is_resolved
            && session.paused_at().is_none()
            && session.control.checkpoint(checkpoint).is_some_and(|found| found.resumed_at.is_some());
        // A daemon that died after the resume left the rest to whoever asks again.
        let resumed = if is_resumed { None } else { self.resume(caller, id, checkpoint).await? };
        let change = Change { status: Some(IssueStatus::Resolved), ..Change::default() };
        let who = Who { by: caller.uid, session_id: Some(id) };
        self.command_issue(caller, issue, IssueCommand::Change { issue, change, who }, None).await?;
        Ok(resumed)
    }
}
