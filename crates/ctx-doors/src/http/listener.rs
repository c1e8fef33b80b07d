//! Accepts connections and serves HTTP on them: a bounded number at a time, with a time limit for a request's head.
//!
//! Which connection gets a place is the [`Entrance`]'s to say. One without a place gets an error at once. A WebSocket
//! counts as long as it is open.

use std::convert::Infallible;
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::IntoResponse;
use axum::serve::Listener;
use ctx_engine::{Clock, SystemClock};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::error::ApiError;
use super::gate::{self, Peer};
use super::places::{self, Standing, Strangers};
use crate::seats::{Seat, Seats};

/// Connections that are told that there are too many, at a time. Others are let go without a word.
const TURNED_AWAY_MAX: usize = 64;
/// How long one that is turned away may take to ask and to hear it.
const TURNED_AWAY: Duration = Duration::from_secs(2);

/// Who gets a place, and what is known of them.
pub(super) trait Entrance<I>: Send + Sync {
    /// An extension of the connection's requests.
    type Known: Clone + Send + Sync + 'static;
    /// Dropped with the connection.
    type Place: Send + Unpin + 'static;

    /// None: there is no place for this one. May wait for one.
    fn enter(&self, io: &I) -> impl Future<Output = Option<Entered<Self::Known, Self::Place>>> + Send;
}

/// A connection that has a place.
pub(super) struct Entered<K, P> {
    pub known: K,
    pub place: P,
    /// Cancelled when the connection has to give up its place.
    pub leave: CancellationToken,
}

/// On a Unix socket the kernel says whose a connection is.
pub(super) struct Users(pub Seats);

impl Entrance<UnixStream> for Users {
    type Known = Peer;
    type Place = Seat;

    async fn enter(&self, stream: &UnixStream) -> Option<Entered<Peer, Seat>> {
        let known = gate::peer(stream);
        let place = self.0.take(known.uid())?;
        Some(Entered { known, place, leave: CancellationToken::new() })
    }
}

/// Over TCP a connection is a stranger's until it shows a token.
pub(super) struct Anyone {
    pub strangers: Strangers,
    pub users: Seats,
}

impl Entrance<TcpStream> for Anyone {
    type Known = Standing;
    type Place = Standing;

    async fn enter(&self, stream: &TcpStream) -> Option<Entered<Standing, Standing>> {
        // Frames are small and wanted at once.
        let _ = stream.set_nodelay(true);
        let (place, leave) = self.strangers.take().await;
        let standing = Standing::stranger(place, self.users.clone());
        Some(Entered { known: standing.clone(), place: standing, leave })
    }
}

/// Serves until `stop`, and then until the last answer is out. `head`: how long a client may take for a request's head,
/// or leave a connection that is kept without one.
pub(super) async fn serve<L, E>(
    mut listener: L,
    head: Duration,
    router: Router,
    entrance: E,
    stop: CancellationToken,
) where
    L: Listener,
    L::Io: AsyncRead + AsyncWrite + Unpin + Send + Sync + 'static,
    E: Entrance<L::Io>,
{
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
    let tasks = TaskTracker::new();
    loop {
        let taken = async {
            let (io, _) = listener.accept().await;
            let entered = entrance.enter(&io).await;
            (io, entered)
        };
        let (io, entered) = tokio::select! {
            taken = taken => taken,
            () = stop.cancelled() => break,
        };
        if !clock_has_http_date() {
            tasks.spawn(refuse_without_clock(io));
        } else if let Some(Entered { known, place, leave }) = entered {
            let connection = Connection { io: Counted { io, _place: place }, head };
            let ends = Ends { leave, stop: stop.clone() };
            tasks.spawn(connection.serve(router.clone(), known, ends));
        } else if let Ok(place) = Arc::clone(&turned_away).try_acquire_owned() {
            let connection = Connection { io: Counted { io, _place: place }, head: TURNED_AWAY };
            tasks.spawn(connection.refuse_connection());
        }
    }
    tasks.close();
    tasks.wait().await;
}

/// What ends a connection: at once, or after the answer that is on its way.
struct Ends {
    leave: CancellationToken,
    stop: CancellationToken,
}

struct Connection<I, P> {
    io: Counted<I, P>,
    head: Duration,
}

impl<I, P> Connection<I, P>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    P: Send + Unpin + 'static,
{
    async fn serve<K>(self, router: Router, known: K, ends: Ends)
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
            () = ends.leave.cancelled() => return,
            () = ends.stop.cancelled() => {
                serving.as_mut().graceful_shutdown();
                serving.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a connection broke");
        }
    }

    /// Answers one request with the refusal and closes, so that the client can tell a limit from a broken connection.
    async fn refuse_connection(self) {
        let service = service_fn(move |_: hyper::Request<Incoming>| async move {
            Ok::<_, Infallible>(ApiError(places::too_many()).into_response())
        });
        let serving = http(self.head).keep_alive(false).serve_connection(TokioIo::new(self.io), service);
        let _ = tokio::time::timeout(TURNED_AWAY, serving).await;
    }
}

fn http(head: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head);
    builder
}

/// Whether the time can be written into a `Date` header. Before 1970 and after 9999 it cannot, and hyper panics.
fn clock_has_http_date() -> bool {
    const YEAR_9999_MS: u64 = 253_370_764_800_000;
    // An earlier time than a timestamp can have is the first one.
    (1..YEAR_9999_MS).contains(&SystemClock.now().as_millis())
}

/// Says so without hyper.
async fn refuse_without_clock(mut io: impl AsyncRead + AsyncWrite + Unpin) {
    let message = "the clock of the daemon's machine is before 1970 or after 9998; set it";
    let body = format!(r#"{{"error":{{"code":"EIO","message":"{message}"}}}}"#);
    let head = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let answer = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let said = async {
        io.write_all(answer.as_bytes()).await?;
        io.shutdown().await?;
        // A request that is not read would reset the connection before the answer is.
        tokio::io::copy(&mut io.take(1 << 16), &mut tokio::io::sink()).await
    };
    // Whether the client hears it is up to the client.
    let _ = tokio::time::timeout(TURNED_AWAY, said).await;
}

/// A stream that holds its place for as long as anyone has it, also after an upgrade.
struct Counted<I, P> {
    io: I,
    _place: P,
}

impl<I: AsyncRead + Unpin, P: Unpin> AsyncRead for Counted<I, P> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<I: AsyncWrite + Unpin, P: Unpin> AsyncWrite for Counted<I, P> {
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
