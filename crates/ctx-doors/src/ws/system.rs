//! The system's socket: how many sessions run, which come, change, end and go, and which issues come and change, as far
//! as the listener may see.

use std::collections::BTreeMap;

use axum::extract::ws::{Utf8Bytes, WebSocket};
use ctx_api::ws::{Channel, Closing, Frame};
use ctx_engine::{Change, News};
use ctx_session::admission::Counts;
use ctx_session::record::{EventName, SessionMeta};
use ctx_session::{IssueId, Name, SessionId};
use futures_util::stream::SplitStream;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;

use super::Visitor;
use super::talk::{Heard, Left, Out, Pulse, cannot_send, hear, split};
use crate::http::Api;

struct Listener {
    api: Api,
    visitor: Visitor,
    seq: u64,
    /// What was told last: a change in what others do is no change for this listener.
    told: Option<Counts>,
}

/// Serves a listener. A stop is seen also in the middle of a send, so that a slow client does not delay the daemon's end.
pub(crate) async fn serve(api: Api, visitor: Visitor, socket: WebSocket) {
    let _counted = api.hub.tasks().token();
    let stop = api.hub.closing().clone();
    let (mut out, mut stream) = split(&api.engine, socket);
    let mut listener = Listener { api, visitor, seq: 0, told: None };
    let left = tokio::select! {
        left = listener.talk(&mut out, &mut stream) => match left {
            Ok(never) => match never {},
            Err(left) => left,
        },
        () = stop.cancelled() => Left::Closed(Closing::Shutdown),
    };
    out.goodbye(left).await;
}

impl Listener {
    /// Subscribes before it sends the first counts, so that no change in between is missed.
    async fn talk(
        &mut self,
        out: &mut Out,
        stream: &mut SplitStream<WebSocket>,
    ) -> Result<std::convert::Infallible, Left> {
        let mut news = self.api.engine.news();
        let mut counts = self.api.engine.count_changes();
        let now = self.api.engine.counts().borrow().clone();
        self.tell_counts(out, &now).await?;
        let mut pulse = Pulse::new(&self.api.engine);
        loop {
            tokio::select! {
                told = counts.recv() => match told {
                    Ok(counts) => self.tell_counts(out, &counts).await?,
                    Err(RecvError::Lagged(_)) => self.tell_lag(out).await?,
                    Err(RecvError::Closed) => return Err(Left::Closed(Closing::Shutdown)),
                },
                told = news.recv() => match told {
                    Ok(news) => self.tell_news(out, news).await?,
                    Err(RecvError::Lagged(_)) => self.tell_lag(out).await?,
                    Err(RecvError::Closed) => return Err(Left::Closed(Closing::Shutdown)),
                },
                heard = hear(stream) => {
                    pulse.heard();
                    on_heard(out, heard).await?;
                }
                beat = pulse.beat() => {
                    beat?;
                    if self.visitor.token.is_some_and(|token| !self.api.access.is_good(token)) {
                        return Err(Left::Revoked);
                    }
                    out.ping().await?;
                }
            }
        }
    }

    async fn tell(&mut self, out: &mut Out, kind: &str, payload: Value) -> Result<(), Left> {
        self.seq += 1;
        let frame = Frame { channel: Channel::Events, r#type: kind, seq: self.seq, payload };
        // No map with keys that are not strings: serialising this cannot fail.
        let text: Utf8Bytes = serde_json::to_string(&frame).unwrap_or_default().into();
        out.send([text]).await
    }

    async fn tell_counts(&mut self, out: &mut Out, counts: &Counts) -> Result<(), Left> {
        let counts = self.api.engine.counts_for(self.visitor.caller, counts);
        if self.told.as_ref() == Some(&counts) {
            return Ok(());
        }
        let limits = self.api.engine.limits();
        let limit_of = |project: &Name| (project.clone(), self.api.engine.running_limit(project));
        let projects: BTreeMap<Name, u32> = counts.per_project.keys().map(limit_of).collect();
        let payload = json!({
            "total": counts.total,
            "per_project": counts.per_project,
            "per_operator": counts.per_operator,
            "limits": { "per_project": limits.running_per_project, "per_operator": limits.running_per_operator,
                "projects": projects },
        });
        self.told = Some(counts);
        self.tell(out, "sessions.running_count", payload).await
    }

    async fn tell_news(&mut self, out: &mut Out, news: News) -> Result<(), Left> {
        match news {
            News::Session { session, change } => self.tell_session(out, session, change).await,
            News::Purged(meta) if self.api.engine.sight(self.visitor.caller).sees(&meta) => {
                self.tell(out, EventName::SessionPurged.as_str(), about(&meta)).await
            }
            News::Purged(_) => Ok(()),
            News::Issue { issue, is_new } => self.tell_issue(out, issue, is_new).await,
        }
    }

    async fn tell_issue(&mut self, out: &mut Out, id: IssueId, is_new: bool) -> Result<(), Left> {
        let found = self.api.engine.find_issue(self.visitor.caller, id);
        // Not theirs to see.
        let Ok((project, issue)) = found else { return Ok(()) };
        let kind = if is_new { EventName::IssueCreated } else { EventName::IssueChanged }.as_str();
        let payload = json!({
            "issue_id": id,
            "project": project,
            "number": issue.number,
            "title": issue.title,
            "status": issue.status,
            "owner": issue.owner,
            "todos": issue.todos.len(),
            "todos_left": issue.left().len(),
            "updated_at": issue.updated_at.as_millis(),
        });
        self.tell(out, kind, payload).await
    }

    /// Sends a session as it is now and not as it was at the change: of several changes at once each frame may show the last.
    async fn tell_session(&mut self, out: &mut Out, id: SessionId, change: Change) -> Result<(), Left> {
        // Gone again already, or not theirs to see.
        let Ok(found) = self.api.engine.find(self.visitor.caller, id) else { return Ok(()) };
        let kind = match change {
            Change::Created => EventName::SessionCreated.as_str(),
            Change::Changed => "session.changed",
            Change::Ended => EventName::SessionEnded.as_str(),
        };
        let mut payload = about(&found.meta);
        if let Some(fields) = payload.as_object_mut() {
            fields.insert("state".to_owned(), json!(found.state));
            fields.insert("updated_at".to_owned(), json!(found.updated_at.as_millis()));
        }
        self.tell(out, kind, payload).await
    }

    /// Some was missed: the listener has to look for itself.
    async fn tell_lag(&mut self, out: &mut Out) -> Result<(), Left> {
        self.told = None;
        self.tell(
            out,
            "daemon.notice",
            json!({ "code": "lagged", "message": "list sessions and issues again" }),
        )
        .await
    }
}

/// Which session it is.
fn about(meta: &SessionMeta) -> Value {
    json!({
        "session_id": meta.session_id,
        "project": meta.project,
        "agent": meta.agent,
        "name": meta.name,
        "owner": meta.owner,
    })
}

async fn on_heard(out: &mut Out, heard: Heard) -> Result<(), Left> {
    match heard {
        Heard::Alive => Ok(()),
        Heard::Gone(left) => Err(left),
        Heard::Typed(..) => out.refuse(cannot_send("pty", "stdin")).await,
        Heard::Nonsense(refusal) => out.refuse(refusal).await,
        Heard::Frame(frame) => match (frame.channel.as_str(), frame.r#type.as_str()) {
            ("control", "ping") => out.control("pong", frame.payload).await,
            ("control", "hello") => out.control("welcome", json!({})).await,
            ("control", "pong") => Ok(()),
            (channel, kind) => out.refuse(cannot_send(channel, kind)).await,
        },
    }
}
