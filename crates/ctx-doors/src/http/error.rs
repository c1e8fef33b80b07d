//! Refusals as HTTP answers: one shape, the status of the one table.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use ctx_api::http::{ErrorBody, ErrorFields};
use ctx_session::{Code, Refusal};

/// A refusal on its way out.
#[derive(Debug)]
pub struct ApiError(pub Refusal);

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        ApiError(refusal)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        answer(StatusCode::from_u16(self.0.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), self.0)
    }
}

fn answer(status: StatusCode, refusal: Refusal) -> Response {
    let details = refusal.field.map(|field| serde_json::json!({ "field": field }));
    let error = ErrorFields { code: refusal.code, message: refusal.message, details };
    (status, Json(ErrorBody { error })).into_response()
}

pub(super) async fn no_route() -> Response {
    ApiError(Refusal::new(Code::Enoent, "there is no such route")).into_response()
}

pub(super) async fn no_method() -> Response {
    let refusal = Refusal::new(Code::Einval, "this route does not take that method");
    answer(StatusCode::METHOD_NOT_ALLOWED, refusal)
}

/// Reads a JSON body; an absent one is `{}`.
pub(super) fn body<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let bytes = if bytes.iter().all(u8::is_ascii_whitespace) { b"{}" } else { bytes };
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError(Refusal::new(Code::Einval, format!("the body does not fit: {error}"))))
}
