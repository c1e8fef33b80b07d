//! Requests that are too long to be taken: they are answered, and not merely dropped.
//!
//! The SDK's transport bounds a line and drops what is longer without a word, so that its caller waits for ever. Here
//! the bytes are looked at as they pass by: of a line, its length and the request's id are remembered and nothing
//! else. This is no JSON parser; a line that is none has no id.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rmcp::RoleServer;
use rmcp::model::{ErrorData, RequestId};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// A key or an id that is longer is none that matters.
const TOKEN_BYTES_MAX: usize = 256;
/// Long requests that may wait for their answer; they are long, so there are few.
const WAITING_MAX: usize = 64;

/// A request that is longer than it may be, by its id where that is known.
type TooLong = Option<RequestId>;

/// Lines in, lines out, for the server.
pub(super) struct LineTransport<R: AsyncRead + Unpin, W: AsyncWrite> {
    inner: AsyncRwTransport<RoleServer, Lines<R>, W>,
    too_long: mpsc::Receiver<TooLong>,
    bytes_max: usize,
    /// The last refusal on its way out.
    refusal: Option<JoinHandle<()>>,
}

impl<R, W> LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub fn new(input: R, output: W, bytes_max: usize) -> Self {
        let (to, too_long) = mpsc::channel(WAITING_MAX);
        let lines = Lines { input, bytes_max, bytes: 0, outline: Outline::default(), too_long: to };
        let inner = AsyncRwTransport::new_server(lines, output).with_max_line_length(bytes_max);
        LineTransport { inner, too_long, bytes_max, refusal: None }
    }

    /// Sent by a task of its own: whoever waits for the next message may stop waiting in between.
    fn refuse(&mut self, id: TooLong) {
        let message = format!(
            "the request is longer than {} bytes, which is the most that is taken; send less at once, or write long input to a file in parts",
            self.bytes_max
        );
        let sending = self
            .inner
            .send(TxJsonRpcMessage::<RoleServer>::error(ErrorData::invalid_request(message, None), id));
        let before = self.refusal.take();
        self.refusal = Some(tokio::spawn(async move {
            if let Some(before) = before
                && before.await.is_err()
            {
                tracing::warn!("a refusal was not sent");
            }
            if let Err(error) = sending.await {
                tracing::debug!(%error, "the MCP host does not read refusals any more");
            }
        }));
    }
}

impl<R, W> Transport<RoleServer> for LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    type Error = io::Error;

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        self.inner.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            tokio::select! {
                biased;
                Some(id) = self.too_long.recv() => self.refuse(id),
                message = self.inner.receive() => {
                    while let Ok(id) = self.too_long.try_recv() {
                        self.refuse(id);
                    }
                    return message;
                }
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        if let Some(refusal) = self.refusal.take()
            && refusal.await.is_err()
        {
            tracing::warn!("a refusal was not sent");
        }
        self.inner.close().await
    }
}

/// Input whose lines are measured as they are read.
struct Lines<R> {
    input: R,
    bytes_max: usize,
    /// Bytes of the present line so far.
    bytes: usize,
    outline: Outline,
    too_long: mpsc::Sender<TooLong>,
}

impl<R> Lines<R> {
    fn look(&mut self, mut read: &[u8]) {
        while let Some(at) = memchr::memchr(b'\n', read) {
            let (line, after) = read.split_at(at + 1);
            self.look_within(line);
            let outline = std::mem::take(&mut self.outline);
            // Where so many wait that there is no room, nobody reads the answers.
            if std::mem::take(&mut self.bytes) > self.bytes_max
                && self.too_long.try_send(outline.request_id()).is_err()
            {
                tracing::warn!("a request that was too long is not answered");
            }
            read = after;
        }
        self.look_within(read);
    }

    fn look_within(&mut self, part: &[u8]) {
        self.bytes = self.bytes.saturating_add(part.len());
        self.outline.take(part);
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Lines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.input).poll_read(cx, into))?;
        self.look(into.filled().get(before..).unwrap_or_default());
        Poll::Ready(Ok(()))
    }
}

/// What is remembered of a JSON object while it passes by: whether it has a method, and its id.
#[derive(Debug, Default)]
struct Outline {
    depth: u32,
    place: Place,
    /// The present key or value of the outermost object, as far as it may matter.
    token: Vec<u8>,
    key: Key,
    id: Option<RequestId>,
    has_method: bool,
}

#[derive(Debug, Default, Clone, Copy)]
enum Place {
    #[default]
    Between,
    String,
    /// Behind a backslash in a string.
    Escape,
}

#[derive(Debug, Default, Clone, Copy)]
enum Key {
    Id,
    Method,
    #[default]
    Other,
}

impl Outline {
    /// The id of a request; answers and notices have none to be answered by.
    fn request_id(self) -> Option<RequestId> {
        self.id.filter(|_| self.has_method)
    }

    fn take(&mut self, mut bytes: &[u8]) {
        while let Some((byte, rest)) = bytes.split_first() {
            match self.place {
                Place::Between => {
                    self.between(*byte);
                    bytes = rest;
                }
                Place::Escape => {
                    self.note(&[*byte]);
                    self.place = Place::String;
                    bytes = rest;
                }
                Place::String => {
                    let len = memchr::memchr2(b'"', b'\\', bytes).map_or(bytes.len(), |at| at + 1);
                    let (part, rest) = bytes.split_at(len);
                    self.note(part);
                    self.place = match part.last() {
                        Some(b'"') => Place::Between,
                        Some(b'\\') => Place::Escape,
                        _ => Place::String,
                    };
                    bytes = rest;
                }
            }
        }
    }

    fn between(&mut self, byte: u8) {
        match byte {
            b'"' => {
                self.note(b"\"");
                self.place = Place::String;
            }
            b'{' | b'[' => self.depth = self.depth.saturating_add(1),
            b'}' | b']' => {
                self.end_value();
                self.depth = self.depth.saturating_sub(1);
            }
            b',' => self.end_value(),
            b':' if self.depth == 1 => {
                self.key = match self.token.as_slice() {
                    b"\"id\"" => Key::Id,
                    b"\"method\"" => Key::Method,
                    _ => Key::Other,
                };
                self.token.clear();
            }
            byte if byte.is_ascii_whitespace() => {}
            byte => self.note(&[byte]),
        }
    }

    /// Remembers a piece of a token of the outermost object.
    fn note(&mut self, part: &[u8]) {
        if self.depth == 1 {
            // A piece that does not fit spoils the token on purpose: half an id is none.
            let room = (TOKEN_BYTES_MAX + 1).saturating_sub(self.token.len());
            self.token.extend_from_slice(part.get(..room).unwrap_or(part));
        }
    }

    fn end_value(&mut self) {
        if self.depth != 1 {
            return;
        }
        match self.key {
            Key::Id if self.token.len() <= TOKEN_BYTES_MAX => {
                self.id = serde_json::from_slice(&self.token).ok()
            }
            Key::Method => self.has_method = true,
            Key::Id | Key::Other => {}
        }
        self.token.clear();
        self.key = Key::Other;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, duplex};

    fn id_of(line: &str, cut: usize) -> Option<RequestId> {
        let mut outline = Outline::default();
        for part in line.as_bytes().chunks(cut) {
            outline.take(part);
        }
        outline.request_id()
    }

    #[test]
    fn an_id_is_found_wherever_it_stands_and_however_the_line_is_cut() {
        let text = r#"say \"id\":9, {\\"#;
        for (line, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#.to_owned(), Some(RequestId::Number(7))),
            (
                format!(r#"{{ "method" : "x", "params": {{"id":1,"a":["{text}",{{"id":2}}]}}, "id" : 8 }}"#),
                Some(RequestId::Number(8)),
            ),
            (r#"{"method":"x","id":"a\"b"}"#.to_owned(), Some(RequestId::String("a\"b".into()))),
            (r#"{"id":3,"result":{"method":"x"}}"#.to_owned(), None),
            (r#"{"method":"x","params":{"id":4}}"#.to_owned(), None),
            (format!(r#"{{"method":"x","id":"{}"}}"#, "a".repeat(300)), None),
            ("no JSON at all }}}}]]".to_owned(), None),
            (r#"[{"id":1,"method":"x"}]"#.to_owned(), None),
        ] {
            for cut in [1, 2, 3, 1000] {
                assert_eq!(id_of(&line, cut), id, "{line} in pieces of {cut}");
            }
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_answered_and_the_next_one_is_served() {
        let (mut host, input) = duplex(64);
        let (output, answers) = duplex(1 << 16);
        let mut transport = LineTransport::new(input, output, 200);
        let talk = async {
            let long = json!({"method": "tools/call", "params": {"stdin": "x".repeat(500)}, "jsonrpc": "2.0", "id": 5});
            let fits = json!({"jsonrpc": "2.0", "id": 6, "method": "ping"});
            for line in [long.to_string(), "y".repeat(300), fits.to_string()] {
                host.write_all(format!("{line}\n").as_bytes()).await.unwrap();
            }
            drop(host);
        };
        let (message, ()) = tokio::join!(transport.receive(), talk);
        let message = serde_json::to_value(message.unwrap()).unwrap();
        assert_eq!(message.get("id"), Some(&json!(6)));
        assert!(transport.receive().await.is_none());
        transport.close().await.unwrap();
        let mut lines = BufReader::new(answers).lines();
        let mut ids = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap() {
            let answer: Value = serde_json::from_str(&line).unwrap();
            assert_eq!(answer.pointer("/error/code"), Some(&json!(-32600)), "{line}");
            assert!(line.contains("200 bytes"), "it says the limit: {line}");
            ids.push(answer.get("id").cloned());
        }
        assert_eq!(ids, [Some(json!(5)), None]);
    }
}
