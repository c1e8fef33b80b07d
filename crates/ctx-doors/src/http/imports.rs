//! Sessions of other agents: batches of their records, which are there, and taking an import back.

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::{Request, State};
use ctx_api::http::{ImportBatch, ImportDone, ImportUndone, ImportedSession, KeptSession, List};
use ctx_engine::NewImport;
use ctx_session::record::{Decoded, ToolBody};
use ctx_session::{Body, Code, Name, Refusal, Timestamp};
use ctx_text::redact::{Redactor, Secrets};
use serde_json::Value;
use serde_json::value::RawValue;

use super::Api;
use super::error::Answer;
use super::extract::{Who, name};
use super::json::Json;

/// A batch may have records as large as a log takes.
const BATCH_BYTES_MAX: usize = 64 << 20;

/// Add records of another agent's session
///
/// The session is made where it is not there. Records that are there are left out, so that a batch may be sent again. A later
/// end of a run counts instead of the earlier, and what a model call cost besides is added. Output of tools is redacted.
#[utoipa::path(post, path = "/imports", tag = "imports", request_body = ImportBatch,
    responses((status = 200, body = ImportDone)))]
pub(super) async fn add(
    State(api): State<Api>,
    Who(caller): Who,
    request: Request,
) -> Answer<Json<ImportDone>> {
    let _seat = api.brings_much(caller)?;
    let body = axum::body::to_bytes(request.into_body(), BATCH_BYTES_MAX).await;
    let too_large = |_| Refusal::new(Code::Emsgsize, format!("a batch has at most {BATCH_BYTES_MAX} bytes"));
    let body = body.map_err(too_large)?;
    let read = tokio::task::spawn_blocking(move || import_of(&body)).await;
    let new = read.map_err(|error| Refusal::new(Code::Eio, error.to_string()))??;
    let done = api.engine.import(caller, new).await?;
    Ok(Json(ImportDone { session: done.session.to_string(), created: done.created, added: done.added }))
}

fn import_of(body: &[u8]) -> Result<NewImport, Refusal> {
    let batch: ImportBatch =
        serde_json::from_slice(body).map_err(|error| Refusal::invalid("body", error.to_string()))?;
    let bad = |field: &'static str| move |_| Refusal::invalid(field, "not an id");
    let secrets = Arc::new(Secrets::none());
    let records = batch.records.iter().map(|record| record_of(record, &secrets));
    Ok(NewImport {
        import_id: batch.import_id.parse().map_err(bad("import_id"))?,
        session: batch.session.parse().map_err(bad("session"))?,
        agent: name("agent", &batch.agent)?,
        name: Name::of_session(&batch.name).map_err(|rule| Refusal::invalid("name", rule.to_string()))?,
        cwd: batch.cwd,
        model: batch.model,
        title: batch.title,
        created_at: time_of(&batch.created_at)?,
        origin: batch.origin,
        records: records.collect::<Result<_, _>>()?,
        superseded: batch
            .superseded
            .iter()
            .map(|id| id.parse())
            .collect::<Result<_, _>>()
            .map_err(bad("superseded"))?,
        is_dry: batch.dry_run,
    })
}

fn time_of(text: &str) -> Result<Timestamp, Refusal> {
    text.parse().map_err(|error: ctx_session::time::NotATime| Refusal::invalid("time", error.to_string()))
}

/// What every record has.
#[derive(serde::Deserialize)]
struct Head<'a> {
    #[serde(borrow, default)]
    time: Cow<'a, str>,
    #[serde(borrow, default, rename = "type")]
    kind: Cow<'a, str>,
}

/// Reads a record. One of an unknown type refuses the batch, because a session without it would look complete.
fn record_of(record: &RawValue, secrets: &Arc<Secrets>) -> Result<(Timestamp, Body), Refusal> {
    let head = serde_json::from_str(record.get());
    let Head { time, kind } = head.map_err(|error| Refusal::invalid("records", error.to_string()))?;
    let time = time_of(&time)?;
    match Body::decode(&kind, record.get()) {
        Decoded::Known(mut body) => {
            if let Body::Tool(ToolBody::Finished(tool)) = &mut body {
                tool.output = redacted(&tool.output, secrets);
                tool.diff = tool.diff.as_deref().map(|diff| redacted(diff, secrets));
            }
            Ok((time, body))
        }
        Decoded::Unknown => Err(Refusal::invalid("records", format!("there is no record of type `{kind}`"))),
        Decoded::Malformed(why) => Err(Refusal::invalid("records", format!("{kind}: {why}"))),
    }
}

/// A text without secrets, as what our own tools give is stored.
fn redacted(text: &str, secrets: &Arc<Secrets>) -> String {
    let mut redactor = Redactor::new(secrets.clone());
    let mut out = Vec::with_capacity(text.len());
    redactor.push(text.as_bytes(), &mut out);
    redactor.finish(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

/// The caller's imported sessions
///
/// The answer comes when the index has all of them, so that a search and counts that are asked for next have them too.
#[utoipa::path(get, path = "/imports", tag = "imports", responses((status = 200, body = List<ImportedSession>)))]
pub(super) async fn list(State(api): State<Api>, Who(caller): Who) -> Answer<Json<List<ImportedSession>>> {
    let shown = |(summary, imports): (Arc<ctx_engine::Summary>, Vec<ctx_session::Ulid>)| {
        let meta = &summary.meta;
        let origin = meta.origin.as_ref();
        let native_id = origin.and_then(|origin| origin.get("native_id")).and_then(Value::as_str);
        Some(ImportedSession {
            session: summary.id().to_string(),
            agent: meta.agent.as_ref()?.to_string(),
            native_id: native_id.unwrap_or_default().to_owned(),
            import_id: imports.last()?.to_string(),
        })
    };
    api.engine.await_index().await;
    let items = api.engine.imported(caller).await?.into_iter().filter_map(shown).collect();
    Ok(Json(List { items, next: None }))
}

/// Take the newest import back
///
/// The sessions that it made are purged, and what it added to sessions of earlier imports no longer counts. Sessions that were
/// continued here stay as they are.
#[utoipa::path(post, path = "/imports/undo", tag = "imports", responses((status = 200, body = ImportUndone)))]
pub(super) async fn undo(State(api): State<Api>, Who(caller): Who) -> Answer<Json<ImportUndone>> {
    let undone = api.engine.undo_import(caller).await?;
    let kept =
        undone.kept.into_iter().map(|(session, why)| KeptSession { session: session.to_string(), why });
    Ok(Json(ImportUndone {
        import_id: undone.import_id.map(|id| id.to_string()),
        removed: undone.removed,
        taken_back: undone.taken_back,
        kept: kept.collect(),
    }))
}
