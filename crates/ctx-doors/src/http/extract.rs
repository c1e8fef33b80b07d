//! Extractors for handlers. Invalid input is refused in the common error format.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, Uri};
use ctx_engine::Caller;
use ctx_session::{ApprovalId, CheckpointId, Code, CompactionId, IssueId, Name, Refusal, RunId, SessionId};
use http_body_util::LengthLimitError;
use serde::de::DeserializeOwned;

use super::Api;
use super::error::{Answer, ApiError, nothing_there};

/// Who asks, as the gate has found out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who(pub Caller);

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Who> {
        let unknown = || Refusal::new(Code::Ekeyrejected, "the caller is unknown");
        parts.extensions.get::<Who>().copied().ok_or_else(|| ApiError(unknown()))
    }
}

/// Parts of the path. What cannot be read names nothing.
pub(crate) struct At<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for At<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<At<T>> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(path)| At(path)).map_err(|_| nothing_there("path"))
    }
}

/// The query.
pub(crate) struct Asked<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Asked<T>> {
        Asked::of(&parts.uri)
    }
}

impl<T: DeserializeOwned> Asked<T> {
    pub fn of(uri: &Uri) -> Answer<Asked<T>> {
        let query = Query::<T>::try_from_uri(uri);
        query.map(|Query(query)| Asked(query)).map_err(|error| ApiError(misasked(error.body_text())))
    }
}

/// A query that does not fit, with the parameter that is to blame: axum says `what was done: parameter: why`.
fn misasked(text: String) -> Refusal {
    let is_name = |word: &&str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let why = text.split_once(": ").map_or(text.as_str(), |(_, why)| why);
    let (place, why) = why.split_once(": ").filter(|(place, _)| is_name(place)).unwrap_or((".", why));
    let field = match blamed(why, place) {
        field if field == "body" => "query".to_owned(),
        field => field,
    };
    Refusal::invalid(field, text)
}

/// A JSON body; an absent one is `{}`.
pub(crate) struct Given<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Api> for Given<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &Api) -> Answer<Given<T>> {
        let patience = Duration::from_millis(state.engine.limits().request_ms);
        let read = tokio::time::timeout(patience, Bytes::from_request(request, state)).await;
        let bytes = read.map_err(|_| too_slow(patience))?.map_err(|error| unreadable(&error))?;
        let bytes = if bytes.iter().all(u8::is_ascii_whitespace) { b"{}" } else { &bytes[..] };
        // A list would pass for an object without names.
        if bytes.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'{') {
            return Err(ApiError(Refusal::invalid("body", "the body must be a JSON object")));
        }
        decode(bytes).map(Given).map_err(ApiError)
    }
}

/// Reads a JSON object; what does not fit is refused with the path of what is to blame.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Refusal> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let place = error.path().to_string();
        let inner = error.into_inner().to_string();
        let field = blamed(&inner, &place);
        // Not the text itself: it may hold a secret that is written where it does not belong.
        Refusal::invalid(field, format!("invalid body: {inner}"))
    })?;
    json.end().map_err(|error| Refusal::invalid("body", format!("invalid body: {error}")))?;
    Ok(value)
}

/// The field that an error is about: where it is, or the one in it that is missing or too many.
fn blamed(error: &str, place: &str) -> String {
    // Where the JSON itself is broken, its last step is not known.
    let place = place.trim_end_matches('?').trim_end_matches('.');
    let place = Some(place).filter(|place| !place.is_empty());
    let named = ["unknown field `", "missing field `"]
        .iter()
        .find_map(|words| error.strip_prefix(words)?.split_once('`'))
        .map(|(name, _)| name);
    match (place, named) {
        (Some(place), Some(name)) if place != name && !place.ends_with(&format!(".{name}")) => {
            format!("{place}.{name}")
        }
        (Some(place), _) => place.to_owned(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "body".to_owned(),
    }
}

/// The body, or the query, of a request that has nothing to say.
#[derive(Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Nothing {}

/// Why a body cannot be had.
fn unreadable(error: &BytesRejection) -> ApiError {
    let status = match error {
        BytesRejection::FailedToBufferBody(error) => error.status(),
        _ => StatusCode::BAD_REQUEST,
    };
    let refusal = match status {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        _ => Refusal::invalid("body", "the connection broke before the end of the body"),
    };
    ApiError(refusal)
}

fn too_slow(patience: Duration) -> ApiError {
    let message = format!("the body took longer than {} ms (limits.request_ms)", patience.as_millis());
    ApiError(Refusal::new(Code::Etimedout, message))
}

fn too_large() -> Refusal {
    Refusal::new(
        Code::Emsgsize,
        format!("a body has at most {} bytes, and 65536 without a token", super::BODY_BYTES_MAX),
    )
}

pub(crate) fn session_id(text: &str) -> Answer<SessionId> {
    // An id that is none names nothing.
    text.parse().map_err(|_| nothing_there("session"))
}

pub(crate) fn run_id(text: &str) -> Answer<RunId> {
    text.parse().map_err(|_| nothing_there("run"))
}

pub(crate) fn checkpoint_id(text: &str) -> Answer<CheckpointId> {
    text.parse().map_err(|_| nothing_there("checkpoint"))
}

pub(crate) fn compaction_id(text: &str) -> Answer<CompactionId> {
    text.parse().map_err(|_| nothing_there("compaction"))
}

pub(crate) fn approval_id(text: &str) -> Answer<ApprovalId> {
    text.parse().map_err(|_| nothing_there("approval"))
}

pub(crate) fn issue_id(text: &str) -> Answer<IssueId> {
    text.parse().map_err(|_| nothing_there("issue"))
}

/// A name in a body.
pub(super) fn name(field: &'static str, text: &str) -> Result<Name, Refusal> {
    Name::new(text).map_err(|rule| Refusal::invalid(field, rule.to_string()))
}

/// An issue's id in a body.
pub(super) fn issue_in(field: &'static str, text: &str) -> Result<IssueId, Refusal> {
    text.parse().map_err(|_| Refusal::invalid(field, "not an issue's id"))
}

/// A body as it came, for what reads it without a handler's extractor: as long and as slow as any other may be.
pub(super) async fn whole_body(body: Body, patience: Duration) -> Answer<Bytes> {
    let read = tokio::time::timeout(patience, to_bytes(body, super::BODY_BYTES_MAX)).await;
    Ok(read.map_err(|_| too_slow(patience))?.map_err(|error| unread(&error))?)
}

/// Why a body could not be read to its end.
fn unread(error: &axum::Error) -> Refusal {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return too_large();
        }
        cause = error.source();
    }
    Refusal::invalid("body", "the connection broke before the end of the body")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inside {
        #[expect(dead_code, reason = "only its name is wanted")]
        text: String,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outside {
        #[expect(dead_code, reason = "only its name is wanted")]
        list: Vec<Inside>,
    }

    #[test]
    fn what_does_not_fit_is_named() {
        for (body, field) in [
            (r#"{"list":[{"text":5}]}"#, "list[0].text"),
            (r#"{"list":[{}]}"#, "list[0].text"),
            (r#"{"list":[{"text":"x","more":1}]}"#, "list[0].more"),
            (r#"{"list":1}"#, "list"),
            (r#"{"more":1}"#, "more"),
            ("{}", "list"),
            ("{", "body"),
            (r#"{"list":[]} x"#, "body"),
        ] {
            let refusal = decode::<Outside>(body.as_bytes()).unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some(field), "{body}: {refusal}");
        }
    }

    #[test]
    fn a_parameter_that_does_not_fit_is_named() {
        for (text, field) in [
            ("Failed to deserialize query string: limit: invalid digit found in string", "limit"),
            ("Failed to deserialize query string: unknown field `nope`, expected `limit`", "nope"),
            ("Failed to deserialize query string: missing field `q`", "q"),
            ("Failed to deserialize query string", "query"),
        ] {
            assert_eq!(misasked(text.to_owned()).field.as_deref(), Some(field), "{text}");
        }
    }
}
