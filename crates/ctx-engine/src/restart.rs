//! Restarting: a session is ended, and a new one of the same name begins with what describes its agent now. What the
//! operator has set on the session itself stays: its title, its model and its issue.

use std::sync::Arc;

use ctx_session::command::Change;
use ctx_session::request::RequestKey;
use ctx_session::{Code, Name, Object, Refusal, Scope, SessionId};

use crate::details::Details;
use crate::engine::Engine;
use crate::project_ops::here::Begin;
use crate::registry::Summary;
use crate::request::{Caller, NewSession};

impl Engine {
    /// Ends a session and makes a new one in its place. What the new one would be refused for is found out before
    /// the old one is touched.
    pub async fn restart(
        &self,
        caller: Caller,
        id: SessionId,
        client: Option<String>,
        key: Option<RequestKey>,
    ) -> Result<SessionId, Refusal> {
        let old = self.find(caller, id)?;
        self.check_owner(caller, &old)?;
        if let Some(made) = key.as_ref().map_or(Ok(None), |key| self.made_by(caller, key))? {
            self.pass_on(caller, &old, made).await;
            return Ok(made);
        }
        if old.meta.scope == Scope::Temp {
            let message = "a temp session ends with its connection; connect again for a new one";
            return Err(Refusal::invalid("id", message));
        }
        let engine = self.clone();
        // A task of its own: a client that goes must not leave half of this done.
        let restarted = tokio::spawn(async move { engine.replace(caller, old, client, key).await }).await;
        restarted.map_err(|error| Refusal::new(Code::Eio, format!("restarting a session broke: {error}")))?
    }

    async fn replace(
        &self,
        caller: Caller,
        old: Arc<Summary>,
        client: Option<String>,
        key: Option<RequestKey>,
    ) -> Result<SessionId, Refusal> {
        self.inner.refuse_when_closing()?;
        let owner = self.owner_as_caller(caller, &old);
        let object = self.object_now(caller, &old).await?;
        let (dir, workspace) = (old.meta.dir.clone(), old.meta.workspace.clone());
        let begin = Begin::As { dir: dir.clone(), workspace };
        let plan = self.plan(owner, &object, None, Some(old.cwd.clone()), begin.clone()).await?;
        let model = self.details(caller, old.id()).await.and_then(|details| details.model_override.clone());
        if model.is_some() {
            self.plan(owner, &object, model, Some(old.cwd.clone()), begin).await?;
        }
        let over = old.state.is_over();
        if !over {
            self.end(caller, old.id()).await?;
        }
        let name = (old.meta.name != Name::from(old.id())).then(|| old.meta.name.clone());
        let new = NewSession {
            object,
            project: None,
            name,
            scope: old.meta.scope,
            space: old.meta.space.clone(),
            cwd: Some(old.cwd.clone()),
            dir,
            earlier: Vec::new(),
            client,
            key,
        };
        let made = self.create_planned(owner, new, plan).await?;
        self.pass_on(caller, &old, made).await;
        Ok(made)
    }

    async fn details(&self, caller: Caller, id: SessionId) -> Option<Arc<Details>> {
        self.show(caller, id).await.ok().map(|(_, details)| details)
    }

    /// The title and the sticky model are the new session's too, and the work on an issue goes on in it, unless another
    /// has taken it up. A daemon that died in between left this to whoever asks again.
    async fn pass_on(&self, caller: Caller, old: &Summary, new: SessionId) {
        let of_old = self.details(caller, old.id()).await;
        let (Some(of_old), Some(of_new)) = (of_old, self.details(caller, new).await) else { return };
        let title = of_old.title.clone().filter(|_| of_new.title.is_none());
        let model = of_old.model_override.clone().filter(|_| of_new.model_override.is_none());
        if title.is_some() || model.is_some() {
            let change = Change { title, model: model.map(Some), archived: None, by: caller.uid };
            if let Err(refusal) = self.change(caller, new, change).await {
                tracing::warn!(session = %new, %refusal, "a restarted session has lost its title and model");
            }
        }
        if let (Some(issue), None) = (of_old.bound_issue, of_new.bound_issue) {
            let _ = self.bind(caller, new, issue).await;
        }
    }

    /// The new session is the owner's, also when the daemon's owner restarts it.
    fn owner_as_caller(&self, caller: Caller, old: &Summary) -> Caller {
        let owner = self.inner.owner_of_uid(old.meta.owner);
        if caller.uid == owner.uid { caller } else { Caller { uid: owner.uid, gid: owner.gid } }
    }

    /// The session's agent or model; of a project's session, the project's primary as it is called now.
    async fn object_now(&self, caller: Caller, old: &Summary) -> Result<Object, Refusal> {
        let own = Object::of(&old.meta);
        let own = own.ok_or_else(|| Refusal::invalid("id", "this session has no agent"))?;
        let is_plain = old.meta.workspace.as_ref().is_some_and(|workspace| workspace.described_by.is_some());
        if old.meta.dsl_snapshot.is_none() && !is_plain {
            return Ok(own);
        }
        Ok(self.project(caller, &old.meta.project).await?.agent.map_or(own, Object::Agent))
    }
}
