//! Accepts connections and serves HTTP on them: a bounded number at a time, with a time limit for a request's head.
//!
//! A connection over the limit gets an error at once. A WebSocket counts as long as it is open.

use std::convert::Infallible;
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::serve::Listener;
use ctx_session::{Code, Limits, Refusal};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::error::ApiError;
use super::gate::Marks;

/// Connections that are told that there are too many, at a time. Others are let go without a word.
const TURNED_AWAY_MAX: usize = 64;
/// How long one that is turned away may take to ask and to hear it.
const TURNED_AWAY: Duration = Duration::from_secs(2);

/// How many, and how slow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    connections: usize,
    /// For a request's head, and for waiting for one on a connection that is kept.
    head: Duration,
    /// What answers carry that no gate has seen.
    marks: Option<Marks>,
}

impl Bounds {
    pub fn of(limits: &Limits, marks: Option<Marks>) -> Bounds {
        let head = Duration::from_millis(limits.request_ms);
        Bounds { connections: limits.http_connections, head, marks }
    }
}

/// Serves until `stop`, and then until the last answer is out. What `known` says of a connection is an extension of
/// its requests.
pub(super) async fn serve<L, K>(
    mut listener: L,
    bounds: Bounds,
    router: Router,
    known: impl Fn(&L::Io) -> K,
    stop: CancellationToken,
) where
    L: Listener,
    L::Io: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    K: Clone + Send + Sync + 'static,
{
    let places = Arc::new(Semaphore::new(bounds.connections.min(Semaphore::MAX_PERMITS)));
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
    let tasks = TaskTracker::new();
    loop {
        let (io, _) = tokio::select! {
            taken = listener.accept() => taken,
            () = stop.cancelled() => break,
        };
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            let known = known(&io);
            let connection = Connection { io: Counted { io, _place: place }, head: bounds.head };
            tasks.spawn(connection.serve(router.clone(), known, stop.clone()));
        } else if let Ok(place) = Arc::clone(&turned_away).try_acquire_owned() {
            let connection = Connection { io: Counted { io, _place: place }, head: TURNED_AWAY };
            tasks.spawn(connection.turn_away(bounds.marks));
        }
    }
    tasks.close();
    tasks.wait().await;
}

struct Connection<I> {
    io: Counted<I>,
    head: Duration,
}

impl<I: AsyncRead + AsyncWrite + Unpin + Send + 'static> Connection<I> {
    async fn serve<K>(self, router: Router, known: K, stop: CancellationToken)
    where
        K: Clone + Send + Sync + 'static,
    {
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(known.clone());
            let mut router = router.clone();
            async move { router.call(request.map(Body::new)).await }
        });
        let serving = http(self.head).serve_connection(TokioIo::new(self.io), service).with_upgrades();
        let mut serving = pin!(serving);
        let ended = tokio::select! {
            ended = &mut serving => ended,
            () = stop.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke");
        }
    }

    async fn turn_away(self, marks: Option<Marks>) {
        let service =
            service_fn(
                move |_: hyper::Request<Incoming>| async move { Ok::<_, Infallible>(too_many(marks)) },
            );
        let serving = http(self.head).keep_alive(false).serve_connection(TokioIo::new(self.io), service);
        let _ = tokio::time::timeout(TURNED_AWAY, serving).await;
    }
}

fn http(head: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head);
    builder
}

fn too_many(marks: Option<Marks>) -> Response {
    let message = "the daemon's connection limit is reached; close a connection, or wait";
    let mut response = ApiError(Refusal::new(Code::Ehostdown, message)).into_response();
    if let Some(marks) = marks {
        marks.put_on(&mut response);
    }
    response
}

/// A stream that holds its place for as long as anyone has it, also after an upgrade.
struct Counted<I> {
    io: I,
    _place: OwnedSemaphorePermit,
}

impl<I: AsyncRead + Unpin> AsyncRead for Counted<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Counted<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
