//! The daemon's API: HTTP/1.1 on `.state/api.sock`, one connection per call.

use ctx_api::http::ErrorBody;
use ctx_session::Code;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::{cannot_connect, runtime};
use crate::failure::Failure;
use crate::root::Root;

const PREFIX: &str = "/api/v1";
/// More than any answer of ours has.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The API of one root.
pub struct Api<'a> {
    root: &'a Root,
}

impl<'a> Api<'a> {
    pub fn new(root: &'a Root) -> Api<'a> {
        Api { root }
    }

    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call(Method::GET, path, None)
    }

    pub fn post<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call(Method::POST, path, None)
    }

    /// A POST with a body.
    pub fn post_with<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
        self.call(Method::POST, path, Some(body))
    }

    /// A POST with a body, answered with nothing.
    pub fn post_only(&self, path: &str, body: &impl Serialize) -> Result<(), Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
        runtime()?.block_on(self.exchange(Method::POST, path, Some(body))).map(|_| ())
    }

    pub fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
        self.call(Method::PUT, path, Some(body))
    }

    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
        self.call(Method::PATCH, path, Some(body))
    }

    /// A DELETE answers with nothing.
    pub fn delete(&self, path: &str) -> Result<(), Failure> {
        runtime()?.block_on(self.exchange(Method::DELETE, path, None)).map(|_| ())
    }

    fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<T, Failure> {
        runtime()?.block_on(self.ask(method, path, body))
    }

    /// The same from within a runtime.
    pub async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<Vec<u8>>,
    ) -> Result<T, Failure> {
        read(path, &self.exchange(method, path, body).await?)
    }

    /// The body of a good answer; the daemon's own words for any other.
    async fn exchange(&self, method: Method, path: &str, body: Option<Vec<u8>>) -> Result<Bytes, Failure> {
        let broken = |error: hyper::Error| {
            Failure::new(Code::Ehostdown, format!("the connection to the daemon broke: {error}"))
                .hint("try again; `ctx status` shows whether the daemon is running")
        };
        let (short, _dir) = ctx_doors::unix::short_path(&self.root.api_socket())
            .map_err(|error| cannot_connect(self.root, error))?;
        let stream = UnixStream::connect(short).await.map_err(|error| cannot_connect(self.root, error))?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
        // Ends with the connection; what went wrong on it shows in the answer.
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(format!("{PREFIX}{path}"))
            .header(hyper::header::HOST, "ctx")
            .header(hyper::header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body.unwrap_or_default())))
            .map_err(|error| Failure::new(Code::Einval, error.to_string()))?;
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status();
        if answer.headers().contains_key(ctx_api::http::CAGE_HEADER) {
            warn_uncaged();
        }
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let body = body
            .map_err(|error| {
                Failure::new(Code::Ehostdown, format!("the connection to the daemon broke: {error}"))
            })?
            .to_bytes();
        if status.is_success() {
            return Ok(body);
        }
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(said) => Err(Failure::new(said.error.code, said.error.message)),
            Err(_) => Err(Failure::new(Code::Eio, format!("the daemon answered {status} without a reason"))),
        }
    }
}

/// Says once that commands of agents have no walls around them.
fn warn_uncaged() {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        crate::output::say("ctx: this daemon runs the commands of agents without a cage (cage.mode = off)");
    });
}

fn read<T: DeserializeOwned>(path: &str, answer: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(answer).map_err(|error| {
        Failure::new(Code::Eio, format!("the daemon's answer to {path} has an unexpected form: {error}"))
            .hint("the daemon may have another version; compare `ctx status` with `ctx --version`")
    })
}
