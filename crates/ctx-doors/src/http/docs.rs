//! The document that describes the API, made from the handlers, and a page to read it.

use std::sync::Arc;

use axum::Extension;
use axum::http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::response::{Html, IntoResponse, Response};
use ctx_session::code::CODES;
use serde_json::{Value, json};
use utoipa::openapi::{InfoBuilder, OpenApi, OpenApiBuilder};

/// The page: it reads the document beside it and shows it, with nothing from elsewhere.
const PAGE: &str = include_str!("docs.html");

pub(super) fn about(version: &str) -> OpenApi {
    let info = InfoBuilder::new().title("ctx").version(version).description(Some(
        "Durable sessions for coding agents. Act on `error.code`; a list is read on with `next` as `cursor`.",
    ));
    OpenApiBuilder::new().info(info.build()).build()
}

/// The document as it is sent.
#[derive(Clone)]
pub(super) struct Document(Arc<str>);

impl Document {
    /// Adds what holds for every route: the token, and every error of the table.
    pub fn new(made: &OpenApi) -> Document {
        let mut document = serde_json::to_value(made).unwrap_or_default();
        document["components"]["securitySchemes"] =
            json!({ "bearer": { "type": "http", "scheme": "bearer" } });
        document["security"] = json!([{ "bearer": [] }]);
        let error = json!({ "$ref": "#/components/schemas/ErrorBody" });
        document["components"]["schemas"]["ErrorBody"] = schema::<ctx_api::http::ErrorBody>();
        document["components"]["schemas"]["ErrorFields"] = schema::<ctx_api::http::ErrorFields>();
        for (path, item) in document["paths"].as_object_mut().into_iter().flatten() {
            for (method, operation) in item.as_object_mut().into_iter().flatten() {
                describe(path, method, operation, &error);
            }
        }
        Document(document.to_string().into())
    }
}

fn schema<T: utoipa::PartialSchema>() -> Value {
    serde_json::to_value(T::schema()).unwrap_or_default()
}

fn describe(path: &str, method: &str, operation: &mut Value, error: &Value) {
    let is_public = operation["tags"][0] == "docs" || path.ends_with("/healthz");
    if is_public || path.ends_with("/login") {
        operation["security"] = json!([]);
    }
    if is_public {
        // What cannot fail has no errors to describe.
        return;
    }
    let statuses = CODES.iter().map(|row| row.http);
    for status in statuses {
        let content = json!({ "application/json": { "schema": error } });
        operation["responses"][status.to_string()] =
            json!({ "description": "refused; act on `error.code`", "content": content });
    }
    if method == "post" {
        let key = json!({ "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "the same key again gives the same answer and does nothing twice",
            "schema": { "type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[!-~]+$" } });
        match operation["parameters"].as_array_mut() {
            Some(parameters) => parameters.push(key),
            None => operation["parameters"] = json!([key]),
        }
    }
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "docs", responses((status = 200, body = Object)))]
pub(super) async fn document(Extension(Document(text)): Extension<Document>) -> Response {
    ([(CONTENT_TYPE, "application/json")], text.to_string()).into_response()
}

/// This document as a page to read
#[utoipa::path(get, path = "/docs", tag = "docs",
    responses((status = 200, body = String, content_type = "text/html")))]
pub(super) async fn page() -> Response {
    let policy =
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";
    ([(CONTENT_SECURITY_POLICY, policy)], Html(PAGE)).into_response()
}
