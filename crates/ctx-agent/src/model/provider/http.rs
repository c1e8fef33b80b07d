//! The way to a provider: one client per way out, requests, and streams read with their time-outs.
//!
//! Redirects are not followed: a key goes only where the operator said. Dropping a stream closes its connection, which is how a
//! call is aborted.

use std::collections::HashMap;
use std::error::Error;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response};
use serde_json::Value;

use super::failure::{Refused, wait_of};
use super::setup::{Kind, Secret, Setup};
use crate::model::ModelError;

/// How long a connection may take to be made.
const CONNECT_TIME: Duration = Duration::from_secs(15);
/// How long a question besides answers may take, such as which models there are.
const ASK_TIME: Duration = Duration::from_secs(20);
/// The most of a refusal, or of a list, that is read.
const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;

type Way = (Option<PathBuf>, Option<String>);

/// The clients of this process: building one reads the system's certificates.
static CLIENTS: Mutex<Option<HashMap<Way, Client>>> = Mutex::new(None);

/// The client for a provider's way out.
fn client(setup: &Setup) -> Result<Client, String> {
    let way = (setup.ca_file.clone(), setup.proxy.clone());
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    let clients = clients.get_or_insert_default();
    if let Some(client) = clients.get(&way) {
        return Ok(client.clone());
    }
    // An earlier one stays, and is the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let mut builder = Client::builder()
        .user_agent(concat!("ctx/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_TIME)
        .tcp_nodelay(true);
    if let Some(path) = &setup.ca_file {
        let wrong = |why: String| format!("ca_file {}: {why}", path.display());
        let pem = std::fs::read(path).map_err(|error| wrong(error.to_string()))?;
        let found = reqwest::Certificate::from_pem_bundle(&pem).map_err(|error| wrong(reasons(&error)))?;
        builder = builder.tls_certs_merge(found);
    }
    if let Some(proxy) = &setup.proxy {
        // The address may have a password in it.
        let proxy = reqwest::Proxy::all(proxy).map_err(|_| "proxy is not a URL".to_owned())?;
        builder = builder.proxy(proxy);
    }
    let client = builder.build().map_err(|error| reasons(&error))?;
    clients.insert(way, client.clone());
    Ok(client)
}

/// One request.
pub struct Ask<'a> {
    pub setup: &'a Setup,
    /// As the user calls it, for messages.
    pub model: &'a str,
    pub key: Option<&'a Secret>,
}

impl Ask<'_> {
    /// Posts a body and returns when the answer begins; an answer that is no stream of events is an error.
    pub async fn stream(
        &self,
        url: &str,
        body: &Value,
        first_byte: Duration,
    ) -> Result<Response, ModelError> {
        let text = body.to_string();
        let post = self.client()?.post(url).headers(self.headers()?).header(CONTENT_TYPE, "application/json");
        let sent = tokio::time::timeout(first_byte, post.body(text).send()).await;
        let response = match sent {
            Ok(sent) => sent.map_err(|error| self.lost(&error))?,
            Err(_) => return Err(self.late("model_first_byte_ms", first_byte)),
        };
        let is_events = content_type(&response).starts_with("text/event-stream");
        if response.status().is_success() && is_events {
            return Ok(response);
        }
        Err(self.refused(response, first_byte).await)
    }

    /// Gets a JSON document.
    pub async fn get(&self, url: &str) -> Result<Value, ModelError> {
        let get = self.client()?.get(url).headers(self.headers()?);
        let response = match tokio::time::timeout(ASK_TIME, get.send()).await {
            Ok(sent) => sent.map_err(|error| self.lost(&error))?,
            Err(_) => return Err(self.late("an answer", ASK_TIME)),
        };
        if !response.status().is_success() {
            return Err(self.refused(response, ASK_TIME).await);
        }
        let kind = content_type(&response);
        let body = self.body(response, ASK_TIME).await?;
        serde_json::from_str(&body).map_err(|_| {
            let (model, status) = (self.model, 200);
            let refused = Refused { model, status, content_type: &kind, retry_after: None, body: &body };
            ModelError::Protocol { model: model.to_owned(), detail: refused.not_ours() }
        })
    }

    fn client(&self) -> Result<Client, ModelError> {
        client(self.setup).map_err(|detail| ModelError::BadSetup { model: self.model.to_owned(), detail })
    }

    /// The headers of a request. The operator's own come last, so that one of the same name replaces ours.
    fn headers(&self) -> Result<HeaderMap, ModelError> {
        let mut headers = HeaderMap::new();
        let bad = |what: &str| ModelError::BadSetup {
            model: self.model.to_owned(),
            detail: format!("{what} cannot be sent as a header"),
        };
        if let Some(key) = self.key {
            let (name, value) = match self.setup.kind {
                Kind::Openai | Kind::OpenaiChat | Kind::Ollama => {
                    ("authorization", format!("Bearer {}", key.expose()))
                }
                Kind::Anthropic => ("x-api-key", key.expose().to_owned()),
                Kind::Gemini => ("x-goog-api-key", key.expose().to_owned()),
            };
            let mut value = HeaderValue::from_str(&value).map_err(|_| bad("the key"))?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        if self.setup.kind == Kind::Anthropic {
            headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        }
        for (name, value) in &self.setup.headers {
            let named = HeaderName::try_from(name).map_err(|_| bad(name))?;
            let mut value = HeaderValue::from_str(value).map_err(|_| bad(name))?;
            // It may be a key as well.
            value.set_sensitive(true);
            headers.insert(named, value);
        }
        Ok(headers)
    }

    /// What an answer that is no stream means.
    async fn refused(&self, response: Response, time: Duration) -> ModelError {
        let status = response.status().as_u16();
        let kind = content_type(&response);
        let header = |name| response.headers().get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let in_ms = header("retry-after-ms").and_then(|text| text.parse().ok()).map(Duration::from_millis);
        let retry_after = in_ms
            .or_else(|| header(RETRY_AFTER.as_str()).and_then(|text| wait_of(text, header(DATE.as_str()))));
        let body = match self.body(response, time).await {
            Ok(body) => body,
            Err(error) => return error,
        };
        let model = self.model;
        let refused = Refused { model, status, content_type: &kind, retry_after, body: &body };
        // A success that is no stream, and says no error, is not the provider's protocol.
        let has_error =
            serde_json::from_str::<Value>(&body).is_ok_and(|body| super::failure::error_of(&body).is_some());
        if (200..400).contains(&status) && !has_error {
            return ModelError::Protocol { model: model.to_owned(), detail: refused.not_ours() };
        }
        self.hide(refused.error())
    }

    /// Reads a body up to the limit. `time` holds for each piece of it and not for the whole.
    async fn body(&self, mut response: Response, time: Duration) -> Result<String, ModelError> {
        let mut body = Vec::new();
        loop {
            match tokio::time::timeout(time, response.chunk()).await {
                Ok(Ok(Some(chunk))) if body.len() < BODY_BYTES_MAX => body.extend_from_slice(&chunk),
                Ok(Ok(_)) => return Ok(String::from_utf8_lossy(&body).into_owned()),
                Ok(Err(error)) => return Err(self.lost(&error)),
                Err(_) => return Err(self.late("the rest of its answer", time)),
            }
        }
    }

    /// The provider's words, without the key that they may repeat, and without the operator's headers, which may be one.
    pub fn hide(&self, error: ModelError) -> ModelError {
        error.map_detail(|mut detail| {
            for (_, value) in &self.setup.headers {
                detail = Secret::new(value.as_str()).hidden_in(&detail);
            }
            self.key.map_or_else(|| detail.clone(), |key| key.hidden_in(&detail))
        })
    }

    /// No answer came.
    fn lost(&self, error: &reqwest::Error) -> ModelError {
        let (model, retry_after) = (self.model.to_owned(), None);
        if error.is_builder() {
            // Asking again would not mend it.
            let address = self.setup.shown_url();
            let detail = format!("{address} is no address; write it as http://HOST:PORT/v1 or https://…");
            return ModelError::BadSetup { model, detail };
        }
        let detail = format!("{}: {}", self.setup.shown_url(), reasons(error));
        ModelError::Unavailable { model, reason: "unreachable", detail, retry_after }
    }

    pub fn late(&self, what: &'static str, time: Duration) -> ModelError {
        ModelError::Late { model: self.model.to_owned(), what, after: time }
    }
}

fn content_type(response: &Response) -> String {
    let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    value.unwrap_or_default().trim().to_lowercase()
}

/// An error with what caused it, without the address, which the caller names.
pub fn reasons(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause: Option<&dyn Error> = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.ends_with(&said) {
            if !text.is_empty() {
                text.push_str(": ");
            }
            text.push_str(&said);
        }
        cause = error.source();
    }
    if text.is_empty() { "the connection broke".to_owned() } else { text }
}
