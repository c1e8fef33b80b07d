//! The document that describes the API, made from the handlers, and a page to read it.

use std::sync::{Arc, LazyLock};

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

/// The document as it is sent; written when it is first asked for.
#[derive(Clone)]
pub(super) struct Document(Arc<LazyLock<String, Box<dyn FnOnce() -> String + Send>>>);

impl Document {
    pub fn new(made: impl FnOnce() -> OpenApi + Send + 'static) -> Document {
        Document(Arc::new(LazyLock::new(Box::new(move || written(&made())))))
    }
}

/// Adds what holds for every route: the token, and every error of the table.
fn written(made: &OpenApi) -> String {
    let mut document = serde_json::to_value(made).unwrap_or_default();
    let bearer = json!({ "bearer": { "type": "http", "scheme": "bearer" } });
    put(&mut document, &["components", "securitySchemes"], bearer);
    put(&mut document, &["security"], json!([{ "bearer": [] }]));
    put(&mut document, &["components", "schemas", "ErrorBody"], schema::<ctx_api::http::ErrorBody>());
    put(&mut document, &["components", "schemas", "ErrorFields"], schema::<ctx_api::http::ErrorFields>());
    let paths = document.get_mut("paths").and_then(Value::as_object_mut);
    for (path, item) in paths.into_iter().flatten() {
        for (method, operation) in item.as_object_mut().into_iter().flatten() {
            describe(path, method, operation);
        }
    }
    document.to_string()
}

fn schema<T: utoipa::PartialSchema>() -> Value {
    serde_json::to_value(T::schema()).unwrap_or_default()
}

/// Sets a field, making the objects on the way to it.
fn put(value: &mut Value, path: &[&str], new: Value) {
    let Some((name, rest)) = path.split_first() else {
        *value = new;
        return;
    };
    if !value.is_object() {
        *value = json!({});
    }
    if let Some(fields) = value.as_object_mut() {
        put(fields.entry(*name).or_insert(Value::Null), rest, new);
    }
}

/// Adds what handlers do not describe because the gate and the layers do it for all: the refusals, and the key of a POST.
fn describe(path: &str, method: &str, operation: &mut Value) {
    let is_docs = operation.pointer("/tags/0").is_some_and(|tag| tag == "docs");
    let is_public = is_docs || path.ends_with("/healthz");
    if is_public || path.ends_with("/login") {
        put(operation, &["security"], json!([]));
    }
    let error = json!({ "$ref": "#/components/schemas/ErrorBody" });
    let refused = json!({ "description": "refused; act on `error.code`",
        "content": { "application/json": { "schema": error } } });
    let takes_body = operation.get("requestBody").is_some() || method == "post";
    for status in
        CODES.iter().map(|row| row.http).filter(|status| can_give(*status, path, method, takes_body))
    {
        // What holds nothing of anyone is refused at the gate, and for a query that no route has.
        if !is_public || matches!(status, 400 | 403 | 503) {
            put(operation, &["responses", &status.to_string()], refused.clone());
        }
    }
    if path.ends_with("/mcp") {
        // The protocol's own: an error of the table, or one of JSON-RPC.
        let refused = json!({ "description": "refused; an error of ours, or of JSON-RPC",
            "content": { "application/json": { "schema": { "type": "object" } } } });
        for status in ["400", "404", "405", "406", "415"] {
            put(operation, &["responses", status], refused.clone());
        }
        return;
    }
    if method == "post" {
        let key = json!({ "name": "Idempotency-Key", "in": "header", "required": false,
            "description": "the same key again gives the same answer and does nothing twice",
            "schema": { "type": "string", "minLength": 1, "maxLength": 256, "pattern": "^[!-~]+$" } });
        let mut parameters =
            operation.get("parameters").and_then(Value::as_array).cloned().unwrap_or_default();
        parameters.push(key);
        put(operation, &["parameters"], Value::Array(parameters));
    }
}

/// Whether a route can give this status of the table. What the gate and the daemon itself refuse can meet every route; a
/// name can be unknown where the path has one; what only reads conflicts with nothing, fills no disk and prepares no agent.
fn can_give(status: u16, path: &str, method: &str, takes_body: bool) -> bool {
    let changes = method != "get" || path.ends_with("/socket");
    match status {
        404 => path.contains('{') || path.ends_with("/mcp") || takes_body,
        409 | 422 | 507 => changes,
        413 | 504 => takes_body,
        _ => true,
    }
}

/// This document
#[utoipa::path(get, path = "/openapi.json", tag = "docs", responses((status = 200, body = Object)))]
pub(super) async fn document(Extension(Document(text)): Extension<Document>) -> Response {
    ([(CONTENT_TYPE, "application/json")], text.as_str().to_owned()).into_response()
}

/// This document as a page to read
#[utoipa::path(get, path = "/docs", tag = "docs",
    responses((status = 200, body = String, content_type = "text/html")))]
pub(super) async fn page() -> Response {
    let policy =
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'";
    ([(CONTENT_SECURITY_POLICY, policy)], Html(PAGE)).into_response()
}
