//! What handlers take out of a request. Whatever does not fit is refused in the one error shape.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::IntoResponse;
use ctx_engine::Caller;
use ctx_session::{ApprovalId, CheckpointId, Code, CompactionId, IssueId, Refusal, RunId, SessionId};
use serde::de::DeserializeOwned;

use super::Api;
use super::error::{Answer, ApiError, nothing_there};

/// Who asks, as the gate has found out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Who(pub Caller);

impl<S: Send + Sync> FromRequestParts<S> for Who {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Who> {
        let unknown = || Refusal::new(Code::Ekeyrejected, "who asks is not known");
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

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Answer<Asked<T>> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query
            .map(|Query(query)| Asked(query))
            .map_err(|error| ApiError(Refusal::invalid("query", error.body_text())))
    }
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
            return Err(ApiError(Refusal::new(Code::Einval, "the body must be a JSON object")));
        }
        // Not the text itself: it may hold a secret that is written where it does not belong.
        serde_json::from_slice(bytes)
            .map(Given)
            .map_err(|error| ApiError(Refusal::new(Code::Einval, format!("the body does not fit: {error}"))))
    }
}

/// The body of a request that has nothing to say.
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
        _ => Refusal::new(Code::Einval, "the body broke off"),
    };
    ApiError(refusal)
}

pub(super) fn too_slow(patience: Duration) -> ApiError {
    let message = format!("the body took longer than {} ms (limits.request_ms)", patience.as_millis());
    ApiError(Refusal::new(Code::Etimedout, message))
}

fn too_large() -> Refusal {
    Refusal::new(Code::Emsgsize, format!("a body has at most {} bytes", super::BODY_BYTES_MAX))
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

/// The same as a response, for what stands before the handlers.
pub(super) fn body_too_large() -> axum::response::Response {
    ApiError(too_large()).into_response()
}
