//! Refusals as HTTP answers: one shape, the status of the one table.

use axum::Json;
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use ctx_api::http::{ErrorBody, ErrorFields};
use ctx_session::{Code, Refusal};

/// A refusal on its way out.
#[derive(Debug)]
pub struct ApiError(pub Refusal);

/// What every handler gives back.
pub(crate) type Answer<T> = Result<T, ApiError>;

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        ApiError(refusal)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let code = self.0.code;
        let status = StatusCode::from_u16(code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = answer(status, self.0);
        if code == Code::Ekeyrejected {
            response.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if code == Code::Eagain {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

pub(super) fn answer(status: StatusCode, refusal: Refusal) -> Response {
    let details = details(&refusal);
    let error = ErrorFields { code: refusal.code, message: refusal.message, details };
    (status, Json(ErrorBody { error })).into_response()
}

/// What a client can use besides the code: which field is to blame, or which place in which file.
fn details(refusal: &Refusal) -> Option<serde_json::Value> {
    match (refusal.problems.first(), &refusal.field) {
        (Some(first), _) => Some(serde_json::json!({
            "file": first.file, "line": first.line, "column": first.column, "errors": refusal.problems,
        })),
        (None, Some(field)) => Some(serde_json::json!({ "field": field })),
        (None, None) => None,
    }
}

pub(super) fn nothing_there(what: &str) -> ApiError {
    ApiError(Refusal::new(Code::Enoent, format!("no such {what}")))
}

pub(super) async fn no_route() -> Response {
    nothing_there("route").into_response()
}

pub(super) async fn no_method() -> Response {
    let refusal = Refusal::invalid("method", "this route does not support that method");
    answer(StatusCode::METHOD_NOT_ALLOWED, refusal)
}
