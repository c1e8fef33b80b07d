//! The conversation: its messages page by page, and posting one.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use ctx_api::http::{Damage, List, Message, MessagePart, Metadata, NewMessage, Posted};
use ctx_engine::{LiveRecord, Met, Post};
use ctx_session::command::RunWishes;
use ctx_session::conversation::{self, Gap, Part};
use ctx_session::image::Image;
use ctx_session::record::{Body, MessageBody, Record, ToolBody};
use ctx_session::{Refusal, Timestamp, Ulid};
use serde::ser::Error;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::to_raw_value;
use utoipa::IntoParams;

use super::Api;
use super::error::Answer;
use super::extract::{Asked, At, Given, Who, session_id};
use super::idempotency::Keyed;
use super::json::Json;
use super::sessions::posted;
use crate::parts;

/// Messages on one page unless told otherwise, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1_000;

#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub(super) struct MessagesQuery {
    /// A message's id: those that came after it, oldest first.
    since: Option<String>,
    /// A message's id: those just before it. Without `since` and `before`: the newest.
    before: Option<String>,
    /// Messages on a page: 100, at most 1000.
    limit: Option<usize>,
    /// `false` leaves out messages that do not count any more.
    superseded: Option<bool>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// Where a page begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Message(Ulid),
    Seq(u64),
}

/// Which way a page goes from its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Onwards to newer ones.
    After(Place),
    /// Backwards to older ones; None: from the newest.
    Before(Option<Place>),
}

impl MessagesQuery {
    /// Which page is asked for. A cursor is `a` or `b` for the way and a record's number, which is valid also where that record is no message.
    fn way(&self) -> Result<Way, Refusal> {
        let message = |field: &'static str, text: &str| {
            let id = text.parse().map_err(|_| Refusal::invalid(field, "not a message's id"))?;
            Ok::<_, Refusal>(Place::Message(id))
        };
        match (&self.since, &self.before, &self.cursor) {
            (None, None, None) => Ok(Way::Before(None)),
            (Some(since), None, None) => Ok(Way::After(message("since", since)?)),
            (None, Some(before), None) => Ok(Way::Before(Some(message("before", before)?))),
            (None, None, Some(cursor)) => {
                let bad = || Refusal::invalid("cursor", "a cursor is the `next` of the page before");
                let (way, seq) = cursor.split_at_checked(1).ok_or_else(bad)?;
                let place = Place::Seq(seq.parse().map_err(|_| bad())?);
                match way {
                    "a" => Ok(Way::After(place)),
                    "b" => Ok(Way::Before(Some(place))),
                    _ => Err(bad()),
                }
            }
            _ => Err(Refusal::invalid("query", "only one of since, before and cursor can be given")),
        }
    }
}

/// The messages of a session
#[utoipa::path(get, path = "/sessions/{id}/messages", tag = "messages",
    params(("id" = String, Path), MessagesQuery), responses((status = 200, body = List<Message>)))]
pub(super) async fn list(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Asked(query): Asked<MessagesQuery>,
) -> Answer<Json<List<Found>>> {
    let page = Page::new(&query)?;
    let page = api.engine.conversation_back(caller, session_id(&id)?, page, Page::take).await?;
    Ok(Json(page.finish()?))
}

/// A page that is filled from the newest record back.
struct Page {
    way: Way,
    limit: usize,
    with_superseded: bool,
    /// Whether a message is superseded, where a mark says so or otherwise.
    superseded: HashMap<Ulid, bool>,
    /// Likewise whether it is pinned.
    pinned: HashMap<Ulid, bool>,
    /// Newest first; one more than fits, to know whether there are more.
    found: VecDeque<Found>,
    /// Whether the place has been met.
    met: bool,
}

/// A message of the page; it is written as [`Message`] is.
pub(super) struct Found {
    said: Said,
    superseded: bool,
    pinned: bool,
}

enum Said {
    /// A record says it.
    By(Arc<LiveRecord>),
    /// Records that say nothing any more: they are lost.
    Lost(Gap, Timestamp),
}

impl Found {
    fn seq(&self) -> u64 {
        match &self.said {
            Said::By(record) => record.seq,
            Said::Lost(lost, _) => lost.records.start,
        }
    }

    fn message(&self) -> Option<Message> {
        let message = match &self.said {
            Said::By(record) => shape(record)?,
            Said::Lost(lost, time) => gap(lost, *time),
        };
        Some(Message { superseded: self.superseded, pinned: self.pinned, ..message })
    }
}

impl Serialize for Found {
    /// The JSON of a message that is neither pinned nor superseded is written once and kept with its record for all readers.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let record = match &self.said {
            // As most are: what changes of a message is not kept with its record.
            Said::By(record) if !self.superseded && !self.pinned => record,
            Said::By(_) | Said::Lost(..) => return self.message().serialize(to),
        };
        if let Some(shown) = record.shown() {
            return shown.serialize(to);
        }
        let shown = to_raw_value(&self.message()).map_err(S::Error::custom)?;
        let done = shown.serialize(to);
        record.keep_shown(shown);
        done
    }
}

impl Page {
    fn new(query: &MessagesQuery) -> Result<Page, Refusal> {
        let way = query.way()?;
        let limit = query.limit.unwrap_or(PAGE).clamp(1, PAGE_MAX);
        Ok(Page {
            met: way == Way::Before(None),
            way,
            limit,
            with_superseded: query.superseded.unwrap_or(true),
            superseded: HashMap::new(),
            pinned: HashMap::new(),
            found: VecDeque::with_capacity(limit + 2),
        })
    }

    fn take(&mut self, met: Met<'_>) -> ControlFlow<()> {
        match met {
            Met::Record(record) => self.take_record(record),
            Met::Lost(lost, time) => {
                let id = conversation::Message::gap(&lost, time).id;
                self.pass(lost.records.start, Some(id), false, |page| {
                    let said = Said::Lost(lost, time);
                    page.found.push_back(Found { said, superseded: false, pinned: false });
                })
            }
        }
    }

    fn take_record(&mut self, record: &Arc<LiveRecord>) -> ControlFlow<()> {
        // A mark comes after what it marks, so it is met before; of two marks the newer one holds.
        for (ids, superseded) in [
            (conversation::superseded_ids(&record.body), true),
            (conversation::restored_ids(&record.body), false),
        ] {
            for id in ids {
                self.superseded.entry(*id).or_insert(superseded);
            }
        }
        if let Body::Message(MessageBody::Pinned(pin)) = &record.body {
            self.pinned.entry(pin.message_id).or_insert(pin.pinned);
        }
        let said = conversation::said_id(&record.body);
        let is_result = matches!(record.body, Body::Tool(ToolBody::Finished(_)));
        self.pass(record.seq, said, is_result, |page| page.keep(record, said))
    }

    /// Goes by a message, or by what is none, and keeps it where it is on the page.
    fn pass(
        &mut self,
        seq: u64,
        said: Option<Ulid>,
        is_result: bool,
        keep: impl FnOnce(&mut Page),
    ) -> ControlFlow<()> {
        match self.way {
            Way::After(place) => {
                let is_place = match place {
                    Place::Seq(place) => seq <= place,
                    // A tool's result has the id of its call: what follows the call is new.
                    Place::Message(id) => said == Some(id) && !is_result,
                };
                if is_place {
                    self.met = true;
                    return ControlFlow::Break(());
                }
                keep(self);
                if self.found.len() > self.limit + 1 {
                    self.found.pop_front();
                }
            }
            Way::Before(place) => {
                let passed = match place {
                    None => true,
                    Some(Place::Seq(place)) => seq < place,
                    Some(Place::Message(_)) => self.met,
                };
                if let (Some(Place::Message(id)), Some(said)) = (place, said) {
                    self.met |= said == id;
                }
                if passed {
                    self.met = true;
                    keep(self);
                }
                if self.found.len() > self.limit {
                    return ControlFlow::Break(());
                }
            }
        }
        ControlFlow::Continue(())
    }

    fn keep(&mut self, record: &Arc<LiveRecord>, said: Option<Ulid>) {
        let Some(said) = said else { return };
        let superseded = self.superseded.get(&said).copied().unwrap_or(false);
        if !superseded || self.with_superseded {
            let pinned = self.pinned.get(&said).copied().unwrap_or(false);
            self.found.push_back(Found { said: Said::By(record.clone()), superseded, pinned });
        }
    }

    /// Oldest first.
    fn finish(mut self) -> Result<List<Found>, Refusal> {
        let unmet = match self.way {
            Way::After(Place::Message(_)) if !self.met => Some("since"),
            Way::Before(Some(Place::Message(_))) if !self.met => Some("before"),
            Way::After(_) | Way::Before(_) => None,
        };
        if let Some(field) = unmet {
            return Err(Refusal::invalid(field, "no such message in this session"));
        }
        let more = self.found.len() > self.limit;
        let next = match self.way {
            Way::After(_) => {
                if more {
                    self.found.pop_front();
                }
                self.found.front().map(|found| format!("a{}", found.seq()))
            }
            Way::Before(_) => {
                if more {
                    self.found.pop_back();
                }
                self.found.back().map(|found| format!("b{}", found.seq()))
            }
        };
        // Only what says something was kept.
        let items = self.found.into_iter().rev().collect();
        Ok(List { items, next: next.filter(|_| more) })
    }
}

/// The message that a record says, as the API shows it; the session knows whether it counts and is pinned.
pub fn shape(record: &Record) -> Option<Message> {
    let mut said = conversation::said(record)?;
    let part = |part| match part {
        Part::Text { text } => MessagePart::Text { text },
        Part::Image(Image { mime, sha256, size }) => MessagePart::Image { mime, sha256, size },
        Part::ToolCall { call_id, name, input, provider: _ } => {
            MessagePart::ToolCall { call_id, name, input }
        }
        Part::ToolResult { call_id, status, text } => MessagePart::ToolResult { call_id, status, text },
    };
    let (content, parts) = match said.content.as_mut_slice() {
        [Part::Text { text }] => (std::mem::take(text), Vec::new()),
        _ => (said.text(), said.content.into_iter().map(part).collect()),
    };
    Some(Message {
        id: said.id,
        run_id: said.run,
        role: said.role,
        content,
        parts,
        created_at: said.time.as_millis(),
        superseded: false,
        pinned: false,
        metadata: metadata(record),
    })
}

/// What stands in the place of records that are lost.
fn gap(lost: &Gap, time: Timestamp) -> Message {
    let records = &lost.records;
    let damage = Damage { lines: records.end.saturating_sub(records.start), since_seq: records.start };
    let said = conversation::Message::gap(lost, time);
    Message {
        id: said.id,
        run_id: said.run,
        role: said.role,
        content: said.text(),
        parts: Vec::new(),
        created_at: said.time.as_millis(),
        superseded: false,
        pinned: false,
        metadata: Metadata { seq: said.seq, damage: Some(damage), ..Metadata::default() },
    }
}

/// What a record knows besides its text.
fn metadata(record: &Record) -> Metadata {
    let caller = record.body.caller().cloned();
    let only_seq = Metadata { seq: record.seq, caller, ..Metadata::default() };
    match &record.body {
        Body::Message(MessageBody::User(user)) => Metadata { client_id: user.client_id.clone(), ..only_seq },
        Body::Message(MessageBody::AssistantFinished(done)) => {
            Metadata { finish_reason: Some(done.finish_reason), usage: done.usage, ..only_seq }
        }
        Body::Tool(ToolBody::Started(tool)) => {
            Metadata { provider_call_id: tool.provider_call_id.clone(), ..only_seq }
        }
        Body::Tool(ToolBody::Finished(tool)) => Metadata {
            truncated: Some(tool.truncated),
            blob: tool.blob.clone(),
            diff: tool.diff.clone(),
            diff_blob: tool.diff_blob.clone(),
            summary: tool.summary.clone(),
            duration_ms: Some(tool.duration_ms),
            ..only_seq
        },
        // What is a message is decided in `conversation`; most know nothing more.
        _ => only_seq,
    }
}

/// Post a message: its run starts, or waits for a slot
#[utoipa::path(post, path = "/sessions/{id}/messages", tag = "messages", params(("id" = String, Path)),
    request_body = NewMessage, responses((status = 202, body = Posted)))]
pub(super) async fn post(
    State(api): State<Api>,
    Who(caller): Who,
    At(id): At<String>,
    Keyed(key): Keyed,
    Given(new): Given<NewMessage>,
) -> Answer<(StatusCode, Json<Posted>)> {
    let NewMessage { text, parts, client_id, model_override, approvals, allow, net } = new;
    let wishes = RunWishes { approvals, allow, net };
    let (text, images) = parts::read(text, parts)?;
    let post = Post { text, images, client_id, model_override, cwd: None, wishes, key };
    let done = api.engine.post(caller, session_id(&id)?, post).await?;
    Ok((StatusCode::ACCEPTED, Json(posted(&done))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_session::record::Decoded;

    #[test]
    fn a_message_is_shown_the_same_to_its_second_reader_and_as_what_it_has_become() {
        let ids = r#""turn_id":"01ARZ3NDEKTSV4RRFFQ69G5FAV","message_id":"01ARZ3NDEKTSV4RRFFQ69G5FAW""#;
        let text = format!(r#"{{{ids},"client_id":"c","text":"say \"it\""}}"#);
        let Decoded::Known(body) = Body::decode("user", &text) else { panic!("{text}") };
        let record = LiveRecord::new(Record { seq: 7, time: Timestamp::from_millis(9), body });
        let shown = |superseded, pinned| {
            let found = Found { said: Said::By(record.clone()), superseded, pinned };
            let copied = serde_json::to_string(&found.message()).unwrap();
            assert_eq!(serde_json::to_string(&found).unwrap(), copied);
            copied
        };
        let first = shown(false, false);
        assert!(first.contains(r#""content":"say \"it\"""#), "{first}");
        assert_eq!(shown(false, false), first);
        assert!(shown(true, false).contains(r#""superseded":true"#));
        assert!(shown(false, true).contains(r#""pinned":true"#));
        assert_eq!(shown(false, false), first);
    }
}
