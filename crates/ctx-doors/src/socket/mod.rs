//! The socket of an agent or a model: JSONL over `agent/<name>.sock` and `model/<provider>/<model>.sock`, the peer known by its credentials.
//!
//! `lines` reads requests, `frames` says what an event looks like on the wire, `connection` serves one client.
//! A client that does not read holds up nobody: its frames wait in the session's ring or log, not in a queue of
//! its own.

mod connection;
pub mod frames;
pub mod lines;
mod request;

use ctx_api::socket::Frame;
use ctx_engine::Engine;
use ctx_session::{Code, Object};
use tokio::io::AsyncWriteExt;
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::seats::Seats;

/// Serves the socket of an agent or a model until `stop`; connections that are open then are closed.
/// `seats` are those of each user, on the sockets of all of them together.
pub async fn serve(
    listener: UnixListener,
    engine: Engine,
    object: Object,
    seats: Seats,
    stop: CancellationToken,
) {
    let clients = TaskTracker::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of descriptors, most likely: wait for some to come back rather than spin.
                tracing::warn!(%object, %error, "a connection could not be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let seat = crate::unix::caller(&stream).ok().and_then(|caller| seats.take(caller.uid));
        let Some(seat) = seat else {
            clients.spawn(refuse_connection(stream));
            continue;
        };
        let (engine, object, stop) = (engine.clone(), object.clone(), stop.clone());
        clients.spawn(async move {
            connection::serve(stream, engine, object, stop).await;
            drop(seat);
        });
    }
    clients.close();
    clients.wait().await;
}

async fn refuse_connection(mut stream: UnixStream) {
    let frame = Frame::Error {
        id: None,
        run: None,
        session: None,
        request: None,
        code: Code::Ebusy,
        reason: None,
        message: "too many connections of yours (limits.socket_connections); close one and try again"
            .to_owned(),
    };
    // Whether the client hears it is up to the client.
    let _ = stream.write_all(frames::line(&frame).as_bytes()).await;
}
