//! Posting a message: what begins most runs. A compaction that is asked for or approved begins one too.

use super::{Given, answer, busy, count_changed, over, queue::message_of};
use crate::code::{Code, Refusal};
use crate::command::{Admission, Answer, Decision, Effect, PostMessage, RunContext};
use crate::ids::{MessageId, RunId};
use crate::limits::Limits;
use crate::record::{
    Archived, Body, Context, CwdChanged, MessageBody, ModelSet, RunBody, RunCreated, RunKind, SessionBody,
    StateChanged, StateName, Trigger, User,
};
use crate::session::{RunState, Session, State};

pub(super) fn post_message(
    session: &Session,
    post: &PostMessage,
    given: &mut Given<'_>,
) -> Result<Decision, Refusal> {
    match may_post(session, &post.text, post.client_id.as_deref(), given.limits)? {
        Some(repeated) => Ok(answer(repeated)),
        None => Ok(begin(session, post, given)),
    }
}

/// Whether a message may begin a run; the answer at hand when its client id has begun one already.
pub(super) fn may_post(
    session: &Session,
    text: &str,
    client_id: Option<&str>,
    limits: &Limits,
) -> Result<Option<Answer>, Refusal> {
    // A retry is answered in every state: the client may have lost our first answer to a crash.
    if let Some(run) = client_id.and_then(|id| session.run_of_client_id(id)) {
        let state = run.state.clone();
        return Ok(Some(Answer::Posted { run: run.id, message: message_of(run), state, repeated: true }));
    }
    check_message(text, client_id, limits)?;
    match &session.state {
        State::Idle => Ok(None),
        State::Running { .. } => Err(busy("the session is running; cancel the run or wait")),
        State::Queued { .. } => Err(busy("a message is queued; resume or discard it first")),
        State::Paused { .. } => Err(busy("the session is paused; resume it or roll it back first")),
        State::Ended | State::Failed(_) => Err(over(session)),
    }
}

/// Whether a text and a client id may be a message at all, in whatever session.
pub fn check_message(text: &str, client_id: Option<&str>, limits: &Limits) -> Result<(), Refusal> {
    if text.is_empty() {
        return Err(Refusal::invalid("text", "a message must not be empty"));
    }
    let max = limits.message_bytes;
    if text.len() > max {
        let message = format!("a message has at most {max} bytes, this one has {}", text.len());
        return Err(Refusal::new(Code::Emsgsize, message));
    }
    let id_max = limits.client_id_bytes;
    match client_id {
        Some("") => Err(Refusal::invalid("client_id", "a client id must not be empty; leave it out instead")),
        Some(id) if id.len() > id_max => {
            Err(Refusal::invalid("client_id", format!("a client id has at most {id_max} bytes")))
        }
        Some(_) | None => Ok(()),
    }
}

fn begin(session: &Session, post: &PostMessage, given: &mut Given<'_>) -> Decision {
    let run = RunId(given.ids.next(given.now));
    let message = MessageId(given.ids.next(given.now));
    let mut records = Vec::with_capacity(7);
    // Whoever posts to a session wants to see it again.
    if session.archived {
        records.push(Body::Session(SessionBody::Archived(Archived { archived: false, by: None })));
    }
    if let Some(model) = post.model_override.as_ref().filter(|model| **model != session.model_override) {
        records.push(Body::Session(SessionBody::ModelSet(ModelSet { model: model.clone() })));
    }
    if let Some(cwd) = post.cwd.as_ref().filter(|cwd| **cwd != session.cwd) {
        records.push(Body::Session(SessionBody::CwdChanged(CwdChanged { cwd: cwd.clone() })));
    }
    records.push(Body::Message(MessageBody::User(User {
        turn_id: run,
        message_id: message,
        client_id: post.client_id.clone(),
        text: post.text.clone(),
        images: post.images.clone(),
    })));
    records.push(Body::Run(RunBody::Created(RunCreated {
        turn_id: run,
        kind: RunKind::Message,
        continues: None,
        strategy: None,
        wishes: post.wishes.clone(),
    })));
    let from = StateName::Idle;
    let (state, effects) = match &post.admission {
        Admission::Granted { context, .. } => {
            records.push(context_record(run, context));
            records.push(super::moved(from, StateName::Running, Trigger::MessagePosted, Some(post.by)));
            let start = Effect::StartRun { run };
            let count = count_changed(from, StateName::Running);
            (RunState::Running, std::iter::once(start).chain(count).collect())
        }
        Admission::Full(limit) => {
            let to = StateName::Queued;
            let trigger = Trigger::ConcurrencyLimit;
            records.push(Body::Session(SessionBody::StateChanged(StateChanged {
                from,
                to,
                trigger,
                by: Some(post.by),
                limit: Some(*limit),
            })));
            (RunState::Pending, Vec::new())
        }
    };
    Decision { records, effects, answer: Answer::Posted { run, message, state, repeated: false } }
}

/// The record a run begins with, so that one can later tell under what it worked.
pub(super) fn context_record(run: RunId, context: &RunContext) -> Body {
    Body::Run(RunBody::Context(Box::new(Context {
        turn_id: run,
        model: context.model.clone(),
        cwd: context.cwd.clone(),
        policy: context.policy.clone(),
        cage: context.cage.clone(),
        sources: context.sources.clone(),
        prompts: context.prompts.clone(),
        redact: context.redact,
        approvals: context.approvals,
    })))
}
