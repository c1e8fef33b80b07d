//! Requests line by line. One that cannot be taken is answered, and not merely dropped.
//!
//! The SDK's own transport drops a line that is too long or no JSON without a word, so that its caller waits for ever.
//! Here the reading is ours and the writing the SDK's.

use std::io;
use std::pin::Pin;

use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::async_rw::AsyncRwTransport;
use serde_json::error::Category;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader, Empty};

use super::outline::Outline;

/// Lines in, lines out, for the server. Whoever waits for a message may stop waiting at any time: what was read by
/// then is kept.
pub(super) struct LineTransport<R, W: AsyncWrite> {
    input: BufReader<R>,
    /// For its writing alone.
    output: AsyncRwTransport<RoleServer, Empty, W>,
    bytes_max: usize,
    /// The present line so far; nothing of one that is too long.
    line: Vec<u8>,
    /// Its bytes so far, also those that were not kept.
    bytes: usize,
    outline: Outline,
    /// The last refusal on its way out. Nothing is read before it is gone: a host that does not read is not fed.
    refusal: Option<Sending>,
}

type Sending = Pin<Box<dyn Future<Output = Result<(), io::Error>> + Send>>;

impl<R, W> LineTransport<R, W>
where
    R: AsyncRead + Send + Unpin,
    W: AsyncWrite + Send + Unpin + 'static,
{
    pub fn new(input: R, output: W, bytes_max: usize) -> Self {
        LineTransport {
            input: BufReader::new(input),
            output: AsyncRwTransport::new_server(tokio::io::empty(), output),
            bytes_max,
            line: Vec::new(),
            bytes: 0,
            outline: Outline::default(),
            refusal: None,
        }
    }

    /// Reads on to the end of the present line; `false` at the end of the input.
    async fn read_line(&mut self) -> io::Result<bool> {
        loop {
            let there = self.input.fill_buf().await?;
            if there.is_empty() {
                return Ok(false);
            }
            let end = memchr::memchr(b'\n', there);
            let part = there.get(..end.unwrap_or(there.len())).unwrap_or_default();
            self.outline.take(part);
            self.bytes = self.bytes.saturating_add(part.len());
            if self.bytes <= self.bytes_max {
                self.line.extend_from_slice(part);
            } else {
                self.line = Vec::new();
            }
            let len = part.len() + usize::from(end.is_some());
            self.input.consume(len);
            if end.is_some() {
                return Ok(true);
            }
        }
    }

    /// The message of the line that has ended, or why there is none; a blank line has none to be told of.
    fn take_message(&mut self) -> Option<Result<RxJsonRpcMessage<RoleServer>, TxJsonRpcMessage<RoleServer>>> {
        let (bytes, outline) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.outline));
        let refused = |error, outline: Outline| {
            Some(Err(TxJsonRpcMessage::<RoleServer>::error(error, outline.request_id())))
        };
        if bytes > self.bytes_max {
            return refused(too_long(self.bytes_max), outline);
        }
        let line = self.line.trim_ascii();
        let parsed = (!line.is_empty()).then(|| parse(line));
        self.line.clear();
        match parsed? {
            Ok(message) => Some(Ok(message)),
            Err(Wrong::Message) if outline.is_notice() => None,
            Err(wrong) => refused(wrong.into(), outline),
        }
    }
}

/// Why a line is no message.
enum Wrong {
    Json(serde_json::Error),
    Message,
}

fn parse(line: &[u8]) -> Result<RxJsonRpcMessage<RoleServer>, Wrong> {
    // Some hosts on other systems begin with a mark of the byte order.
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    serde_json::from_slice(line).map_err(|error| match error.classify() {
        Category::Syntax | Category::Eof => Wrong::Json(error),
        Category::Data | Category::Io => Wrong::Message,
    })
}

impl From<Wrong> for ErrorData {
    fn from(wrong: Wrong) -> ErrorData {
        match wrong {
            Wrong::Json(error) => ErrorData::parse_error(
                format!(
                    "the request is not JSON: {error}; send one JSON value a line in UTF-8, without half a surrogate pair"
                ),
                None,
            ),
            Wrong::Message => ErrorData::invalid_request(
                "the request is no JSON-RPC message; it needs \"jsonrpc\":\"2.0\", an id and a method",
                None,
            ),
        }
    }
}

fn too_long(bytes_max: usize) -> ErrorData {
    let message = format!(
        "the request is longer than {bytes_max} bytes, which is the most that is taken; send less at once, or write long input to a file in parts"
    );
    ErrorData::invalid_request(message, None)
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
        self.output.send(item)
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleServer>> {
        loop {
            if let Some(refusal) = &mut self.refusal {
                let sent = refusal.await;
                self.refusal = None;
                if let Err(error) = sent {
                    tracing::debug!(%error, "the MCP host does not read refusals any more");
                }
            }
            match self.read_line().await {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => {
                    tracing::warn!(%error, "the MCP host cannot be read any more");
                    return None;
                }
            }
            match self.take_message() {
                Some(Ok(message)) => return Some(message),
                Some(Err(refusal)) => self.refusal = Some(Box::pin(self.output.send(refusal))),
                None => {}
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        if let Some(refusal) = self.refusal.take() {
            refusal.await?;
        }
        self.output.close().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, duplex};

    /// What comes in and what goes out, for these lines.
    async fn talk(bytes_max: usize, lines: Vec<Vec<u8>>) -> (Vec<Value>, Vec<Value>) {
        let (mut host, input) = duplex(64);
        let (output, answers) = duplex(1 << 16);
        let mut transport = LineTransport::new(input, output, bytes_max);
        let say = async {
            for line in lines {
                host.write_all(&line).await.unwrap();
                host.write_all(b"\n").await.unwrap();
            }
            drop(host);
        };
        let hear = async {
            let mut messages = Vec::new();
            while let Some(message) = transport.receive().await {
                messages.push(serde_json::to_value(message).unwrap());
            }
            transport.close().await.unwrap();
            messages
        };
        let (messages, ()) = tokio::join!(hear, say);
        let (mut lines, mut refused) = (BufReader::new(answers).lines(), Vec::new());
        while let Some(line) = lines.next_line().await.unwrap() {
            refused.push(serde_json::from_str(&line).unwrap());
        }
        (messages, refused)
    }

    fn said(answers: &[Value]) -> Vec<(Value, Value)> {
        answers.iter().map(|answer| (answer["id"].clone(), answer["error"]["code"].clone())).collect()
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_answered_and_the_next_one_is_served() {
        let long =
            json!({"method": "tools/call", "params": {"stdin": "x".repeat(500)}, "jsonrpc": "2.0", "id": 5});
        let fits = json!({"jsonrpc": "2.0", "id": 6, "method": "ping"}).to_string();
        let lines = vec![long.to_string().into_bytes(), vec![b'y'; 300], fits.into_bytes()];
        let (messages, refused) = talk(200, lines).await;
        assert_eq!(messages.iter().map(|message| &message["id"]).collect::<Vec<_>>(), [&json!(6)]);
        assert_eq!(said(&refused), [(json!(5), json!(-32600)), (Value::Null, json!(-32600))]);
        assert!(refused[0].to_string().contains("200 bytes"), "it says the limit: {}", refused[0]);
    }

    #[tokio::test]
    async fn a_line_that_is_no_json_is_answered_by_its_id_where_it_has_one() {
        let call = |id: u32, command: &str| {
            format!(
                r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"command":"{command}"}}}}"#
            )
        };
        let deep = call(3, "x").replace(r#""x""#, &format!("{}{}", "[".repeat(9000), "]".repeat(9000)));
        let lines: Vec<Vec<u8>> = vec![
            call(1, r"echo \ud83d").into_bytes(),
            [b"{\"id\":\"two\",\"method\":\"ping\",\"params\":\"".as_slice(), b"\xff\xfe\"}"].concat(),
            deep.into_bytes(),
            b"garbage".to_vec(),
            br#"{"jsonrpc":"2.0","id":5,"method":"ping""#.to_vec(),
            b"  \r".to_vec(),
            br#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#.to_vec(),
        ];
        let (messages, refused) = talk(1 << 20, lines).await;
        assert_eq!(messages.iter().map(|message| &message["id"]).collect::<Vec<_>>(), [&json!(7)]);
        let ids = [json!(1), json!("two"), json!(3), Value::Null, Value::Null];
        assert_eq!(said(&refused), ids.map(|id| (id, json!(-32700))));
        assert!(refused[0].to_string().contains("surrogate"), "{}", refused[0]);
    }

    #[tokio::test]
    async fn what_is_json_but_no_message_is_answered_unless_nobody_waits() {
        let lines = [r#"{"id":1,"method":"ping"}"#, "[]", r#"{"method":"notifications/odd","params":7}"#];
        let (messages, refused) = talk(1 << 20, lines.map(|line| line.as_bytes().to_vec()).into()).await;
        assert_eq!(messages, [] as [Value; 0]);
        assert_eq!(said(&refused), [(json!(1), json!(-32600)), (Value::Null, json!(-32600))]);
    }
}
