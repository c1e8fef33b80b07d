//! A session's WebSocket, over the root's `api.sock`.

use ctx_api::http::ErrorBody;
use ctx_session::{Code, SessionId};
use futures_util::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::header::USER_AGENT;
use tokio_tungstenite::tungstenite::http::{HeaderValue, StatusCode};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::cannot_connect;
use crate::failure::Failure;
use crate::root::Root;

/// A frame as it came.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct LiveFrame {
    pub channel: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub seq: u64,
    #[serde(default)]
    pub payload: Value,
}

/// Where a client left off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    pub epoch: Option<String>,
    pub output: u64,
    pub events: u64,
}

/// As what to come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum As {
    Operator,
    Observer,
}

pub struct LiveSocket {
    stream: WebSocketStream<UnixStream>,
}

impl LiveSocket {
    /// Connects and says hello.
    pub async fn connect(root: &Root, id: SessionId, who: As, place: &Place) -> Result<LiveSocket, Failure> {
        let query = match who {
            As::Operator => "",
            As::Observer => "?mode=observe",
        };
        let mut stream = open(root, &format!("sessions/{id}/socket{query}")).await?;
        let known = json!({ "output": place.output, "events": place.events });
        let payload = match &place.epoch {
            Some(epoch) => json!({ "epoch": epoch, "resume_from_seq": known }),
            None => json!({}),
        };
        let hello = json!({ "channel": "control", "type": "hello", "payload": payload });
        stream.send(Message::text(hello.to_string())).await.map_err(broken)?;
        Ok(LiveSocket { stream })
    }

    /// The daemon's own socket: how many sessions run, and which change.
    pub async fn system(root: &Root) -> Result<LiveSocket, Failure> {
        Ok(LiveSocket { stream: open(root, "system/socket").await? })
    }

    /// The next frame; None when the connection is over. Nothing is lost if this is dropped.
    pub async fn next(&mut self) -> Option<LiveFrame> {
        loop {
            match self.stream.next().await? {
                Ok(Message::Text(text)) => {
                    // A frame of a later version that we cannot read says nothing to us.
                    if let Ok(frame) = serde_json::from_str(&text) {
                        return Some(frame);
                    }
                }
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            }
        }
    }

    /// Says something on `control`. That it did not get through shows with the next frame, which does not come.
    pub async fn control(&mut self, kind: &str, payload: Value) {
        let frame = json!({ "channel": "control", "type": kind, "payload": payload });
        let _ = self.stream.send(Message::text(frame.to_string())).await;
    }

    /// Says goodbye.
    pub async fn close(mut self) {
        let _ = self.stream.close(None).await;
    }
}

async fn open(root: &Root, path: &str) -> Result<WebSocketStream<UnixStream>, Failure> {
    let mut request = format!("ws://ctx/api/v1/{path}").into_client_request().map_err(broken)?;
    let hint = concat!("ctx/", env!("CARGO_PKG_VERSION"), " attach");
    request.headers_mut().insert(USER_AGENT, HeaderValue::from_static(hint));
    let (short, _dir) =
        ctx_doors::unix::short_path(&root.api_socket()).map_err(|error| cannot_connect(root, error))?;
    let stream = UnixStream::connect(short).await.map_err(|error| cannot_connect(root, error))?;
    let (stream, _) = client_async(request, stream).await.map_err(|error| match error {
        Error::Http(answer) => refused(answer.status(), answer.body().as_deref()),
        other => broken(other),
    })?;
    Ok(stream)
}

fn broken(error: Error) -> Failure {
    Failure::new(Code::Ehostdown, format!("the connection to the daemon broke: {error}"))
}

/// Why the daemon does not let us in, in its own words where they came along.
fn refused(status: StatusCode, body: Option<&[u8]>) -> Failure {
    let said = body.and_then(|body| serde_json::from_slice::<ErrorBody>(body).ok()).map(|body| body.error);
    let code = match (&said, status) {
        (Some(said), _) => said.code,
        (None, StatusCode::CONFLICT) => Code::Ebusy,
        (None, StatusCode::NOT_FOUND) => Code::Enoent,
        (None, _) => Code::Eio,
    };
    let message = said.map_or_else(|| format!("the daemon answered {status}"), |said| said.message);
    Failure::new(code, message)
}
