//! The server's stdin and stdout as streams that wait without a thread of their own.
//!
//! Most hosts start a server over pipes; those on Node.js over sockets. Both are read and written here
//! without changing their flags, which belong to whoever else holds them. Anything else, a terminal or a
//! file, goes through tokio's blocking threads.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::fs::{FileType, fstat};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio_util::sync::CancellationToken;

pub(super) type Input = Box<dyn AsyncRead + Send + Unpin>;
pub(super) type Output = Box<dyn AsyncWrite + Send + Unpin>;

/// This process's stdin and stdout. `ended` is cancelled when stdin ends, and when nobody can read stdout any more.
pub(super) fn stdio(ended: CancellationToken) -> io::Result<(Input, Output)> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let (input, output): (Input, Output) = if is_socket(stdin.as_fd()) && is_socket(stdout.as_fd()) {
        (Box::new(Socket::of(stdin.as_fd())?), Box::new(Socket::of(stdout.as_fd())?))
    } else {
        let (input, output) = rmcp::transport::io::stdio_pipes();
        (Box::new(input), Box::new(output))
    };
    let output = Watched { stream: output, ended: ended.clone() };
    Ok((Box::new(Watched { stream: input, ended }), Box::new(output)))
}

/// Ready when the other end of stdout, a pipe, was closed. Of other kinds only a write finds out.
pub(super) async fn stdout_is_closed() {
    match async_fd(io::stdout().as_fd(), Interest::ERROR) {
        Ok(stdout) if stdout.ready(Interest::ERROR).await.is_ok() => {}
        Ok(_) | Err(_) => std::future::pending().await,
    }
}

fn is_socket(fd: impl AsFd) -> bool {
    fstat(fd).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Socket)
}

/// Says when its end was read, or when it cannot be written any more.
struct Watched<S> {
    stream: S,
    ended: CancellationToken,
}

impl AsyncRead for Watched<Input> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, into));
        if read.is_err() || into.filled().len() == before {
            self.ended.cancel();
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Watched<Output> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let wrote = ready!(Pin::new(&mut self.stream).poll_write(cx, bytes));
        if wrote.is_err() {
            self.ended.cancel();
        }
        Poll::Ready(wrote)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(cx));
        if flushed.is_err() {
            self.ended.cancel();
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// A socket that blocks for others and not for us.
struct Socket(AsyncFd<OwnedFd>);

impl Socket {
    fn of(fd: BorrowedFd<'_>) -> io::Result<Socket> {
        Ok(Socket(async_fd(fd, Interest::READABLE | Interest::WRITABLE)?))
    }
}

#[expect(
    deprecated,
    reason = "the successor is unsafe, for types that change their descriptor; this one owns it"
)]
fn async_fd(fd: BorrowedFd<'_>, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd.try_clone_to_owned()?, interest)
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(cx))?;
            let free = into.initialize_unfilled();
            match ready.try_io(|fd| recv(fd, &mut *free, RecvFlags::DONTWAIT).map_err(io::Error::from)) {
                Ok(read) => {
                    let (count, _) = read?;
                    into.advance(count);
                    return Poll::Ready(Ok(()));
                }
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.0.poll_write_ready(cx))?;
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match ready.try_io(|fd| send(fd, bytes, flags).map_err(io::Error::from)) {
                Ok(sent) => return Poll::Ready(sent),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
