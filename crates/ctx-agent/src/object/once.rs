//! A tool that a person runs by itself: the code of the agent's loop, with the person's own rights and without a policy.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use ctx_cage::rights::Rights;
use ctx_session::{Code, Limits, Refusal, SessionId, Ulid};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::can_be_run;
use crate::control::policy::{Effects, Policy};
use crate::redact::Redaction;
use crate::shells::{ShellKey, ShellWant};
use crate::tool::shell::ShellOf;
use crate::tool::{Output, Plan, Scope, Services, Tool, ToolError, Tools, Work};
use crate::view::View;

/// Where a person is.
pub struct Person {
    pub uid: u32,
    pub cwd: PathBuf,
    pub home: Option<PathBuf>,
    pub services: Services,
    pub stop: CancellationToken,
}

/// Makes one call. What it gives and what it fails with is what an agent would be told.
pub async fn once(name: &str, input: Value, person: Person) -> Result<Output, ToolError> {
    let tool = Tools::all().get(name)?;
    if !can_be_run(name) {
        let message = format!(
            "{name} works on the session of the agent that calls it, and this is none; you have `ctx term`, `ctx todo`, \
             `ctx issue`, `ctx pause` and `ctx send`"
        );
        return Err(ToolError::new(Code::Einval, message));
    }
    let scope = scope(person)?;
    // Whoever types the call has seen what they change.
    if tool.effects() == Effects::Some
        && let Some(path) = input.get("path").and_then(Value::as_str)
        && let Ok(read) = Tools::all().get("fs.read")
    {
        let _ = made(read, json!({"path": path}), &scope).await;
    }
    made(tool, input, &scope).await
}

/// Plans and makes a call. The kinds of work that need a session are listed, so that a new kind does not compile until it is decided here.
async fn made(tool: Arc<dyn Tool>, input: Value, scope: &Arc<Scope>) -> Result<Output, ToolError> {
    let planning = Arc::clone(scope);
    let planned = tokio::task::spawn_blocking(move || tool.plan(input, &planning)).await;
    let broke = |error: tokio::task::JoinError| ToolError::new(Code::Eio, format!("the tool broke: {error}"));
    let Plan { work, .. } = planned.map_err(broke)??;
    match work {
        Work::Do(work) => work.await,
        Work::Checkpoint { .. }
        | Work::Dispatch(_)
        | Work::Terminal(..)
        | Work::Issue(_)
        | Work::Output(_) => Err(ToolError::new(Code::Einval, "this works in a session alone")),
    }
}

fn scope(person: Person) -> Result<Arc<Scope>, ToolError> {
    let Person { uid, cwd, home, services, stop } = person;
    let view = View::open(std::path::Path::new("/"), &[], Rights::own())?;
    // No session: what a tool remembers is forgotten with this process.
    let session = SessionId(Ulid(0));
    let want: Result<ShellWant, Refusal> =
        Ok(ShellWant { cage: None, uid, cwd: cwd.clone(), home: home.clone(), host: None });
    Ok(Arc::new(Scope {
        session,
        reader: session.0,
        view: Arc::new(view),
        cwd,
        limits: Arc::new(Limits::default()),
        services,
        policy: Arc::new(Policy::default()),
        approvals: None,
        redaction: Redaction::off(),
        shell: ShellOf {
            key: ShellKey { session, subagent: None },
            want,
            hosts: BTreeMap::new(),
            owner: uid,
            home,
        },
        stop,
    }))
}
