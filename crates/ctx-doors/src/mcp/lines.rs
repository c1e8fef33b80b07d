//! Requests line by line. One that cannot be taken is answered, and not merely dropped.
//!
//! The SDK's own transport drops a line that is too long or no JSON without a word, so that its caller waits for ever,
//! and reads on whether its answers are taken or not. Here reading stops while the outbox is full, and while more
//! requests are under way than commands can explain.

use std::collections::HashSet;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{ClientNotification, ErrorData, JsonRpcMessage, ProtocolVersion, RequestId, ServerResult};
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use serde_json::error::Category;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::Mutex;

use super::outbox::Outbox;
use super::outline::Outline;

/// What one host may ask for.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineLimits {
    /// The longest line.
    pub bytes_max: usize,
    /// Requests under way. More than can wait for commands, so that one that stops a command is read.
    pub unanswered_max: usize,
}

/// Lines in, lines out, for the server. Whoever waits for a message may stop waiting at any time: what was read by
/// then is kept.
pub(super) struct LineTransport<R, W> {
    input: BufReader<R>,
    /// `None` when it was closed. Whoever comes first writes first.
    output: Arc<Mutex<Option<W>>>,
    outbox: Outbox,
    limits: LineLimits,
    /// The requests that were handed out and have neither an answer nor been cancelled.
    unanswered: HashSet<RequestId>,
    /// Whether the protocol that was agreed on leaves out an id that is not known; JSON-RPC says null.
    omits_id: bool,
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
    pub fn new(input: R, output: W, outbox: Outbox, limits: LineLimits) -> Self {
        LineTransport {
            input: BufReader::new(input),
            output: Arc::new(Mutex::new(Some(output))),
            outbox,
            limits,
            unanswered: HashSet::new(),
            omits_id: false,
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
            if self.bytes <= self.limits.bytes_max {
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
        if bytes > self.limits.bytes_max {
            return refused(too_long(self.limits.bytes_max), outline);
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

impl<R, W> LineTransport<R, W> {
    /// Keeps count of the requests that come in, and of those that nobody waits for any more.
    fn note_received(&mut self, message: &RxJsonRpcMessage<RoleServer>) {
        match message {
            JsonRpcMessage::Request(request) => drop(self.unanswered.insert(request.id.clone())),
            JsonRpcMessage::Notification(notice) => {
                if let ClientNotification::CancelledNotification(cancelled) = &notice.notification
                    && let Some(id) = &cancelled.params.request_id
                {
                    self.unanswered.remove(id);
                }
            }
            JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => {}
        }
    }

    /// Keeps count of the answers that go out, and learns which protocol was agreed on.
    fn note_sent(&mut self, message: &TxJsonRpcMessage<RoleServer>) {
        match message {
            JsonRpcMessage::Response(answer) => {
                self.unanswered.remove(&answer.id);
                if let ServerResult::InitializeResult(hello) = &answer.result {
                    self.omits_id = hello.protocol_version.as_str() >= ProtocolVersion::V_2025_11_25.as_str();
                }
            }
            JsonRpcMessage::Error(error) => {
                error.id.as_ref().map(|id| self.unanswered.remove(id));
            }
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => {}
        }
    }

    /// A message as its line.
    fn line_of(&self, message: &TxJsonRpcMessage<RoleServer>) -> io::Result<Vec<u8>> {
        let mut line = match message {
            JsonRpcMessage::Error(error) if error.id.is_none() && !self.omits_id => {
                let mut value = serde_json::to_value(message)?;
                if let Value::Object(fields) = &mut value {
                    fields.insert("id".to_owned(), json!(null));
                }
                serde_json::to_vec(&value)?
            }
            _ => serde_json::to_vec(message)?,
        };
        line.push(b'\n');
        Ok(line)
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
                "the request is not a JSON-RPC message; it needs \"jsonrpc\":\"2.0\", an id and a method",
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

    /// The answer is counted before the future is polled, so that `receive` sees how much waits whether or not anyone writes.
    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleServer>,
    ) -> impl Future<Output = Result<(), io::Error>> + Send + 'static {
        self.note_sent(&item);
        let line = self.line_of(&item);
        drop(item);
        let (output, outbox) = (Arc::clone(&self.output), self.outbox.clone());
        let waiting = outbox.put(line.as_ref().map_or(0, Vec::len));
        async move {
            let line = line?;
            let mut output = output.lock().await;
            let output = output.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            let mut rest = line.as_slice();
            while !rest.is_empty() {
                let count = output.write(rest).await?;
                if count == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                outbox.wrote(count);
                rest = rest.get(count..).unwrap_or_default();
            }
            output.flush().await?;
            drop(waiting);
            Ok(())
        }
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
            self.outbox.has_room().await;
            if self.unanswered.len() >= self.limits.unanswered_max {
                // Whoever waits for this sends the answers too, and asks again after each.
                std::future::pending::<()>().await;
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
                Some(Ok(message)) => {
                    self.note_received(&message);
                    return Some(message);
                }
                Some(Err(refusal)) => self.refusal = Some(Box::pin(self.send(refusal))),
                None => {}
            }
        }
    }

    async fn close(&mut self) -> Result<(), io::Error> {
        if let Some(refusal) = self.refusal.take() {
            refusal.await?;
        }
        drop(self.output.lock().await.take());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::outbox::WAITING_BYTES_MAX;
    use super::*;
    use tokio::io::duplex;

    fn outbox() -> Outbox {
        Outbox::new(Arc::new(tokio::sync::watch::Sender::new(false)))
    }

    fn limits(bytes_max: usize) -> LineLimits {
        LineLimits { bytes_max, unanswered_max: 3 }
    }

    fn request(id: u32) -> String {
        format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "ping"}))
    }

    fn answer(id: u32, text: &str) -> TxJsonRpcMessage<RoleServer> {
        let error = ErrorData::internal_error(text.to_owned(), None);
        TxJsonRpcMessage::<RoleServer>::error(error, Some(RequestId::Number(id.into())))
    }

    /// The id of the next message; `None` where nothing is read.
    async fn next<R, W>(transport: &mut LineTransport<R, W>) -> Option<RequestId>
    where
        R: AsyncRead + Send + Unpin,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let mut receiving = std::pin::pin!(transport.receive());
        let polled = std::future::poll_fn(|cx| std::task::Poll::Ready(receiving.as_mut().poll(cx))).await;
        match polled {
            std::task::Poll::Ready(Some(JsonRpcMessage::Request(request))) => Some(request.id),
            std::task::Poll::Ready(other) => panic!("no request: {other:?}"),
            std::task::Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn nothing_is_read_while_too_much_waits_and_all_goes_on_when_the_host_reads() {
        let (mut host, input) = duplex(1 << 16);
        let (output, mut answers) = duplex(64);
        let mut transport = LineTransport::new(input, output, outbox(), limits(1 << 20));
        host.write_all([request(1), request(2)].concat().as_bytes()).await.unwrap();
        assert_eq!(next(&mut transport).await, Some(RequestId::Number(1)));
        let long = "x".repeat(WAITING_BYTES_MAX);
        let sending = tokio::spawn(transport.send(answer(1, &long)));
        assert_eq!(next(&mut transport).await, None, "the host has read nothing");
        let mut line = String::new();
        BufReader::new(&mut answers).read_line(&mut line).await.unwrap();
        sending.await.unwrap().unwrap();
        assert!(line.len() > WAITING_BYTES_MAX);
        assert_eq!(next(&mut transport).await, Some(RequestId::Number(2)));
    }

    #[tokio::test]
    async fn an_answer_that_nobody_can_take_does_not_stop_the_reading_for_ever() {
        let (mut host, input) = duplex(1 << 16);
        let (output, answers) = duplex(64);
        let mut transport = LineTransport::new(input, output, outbox(), limits(1 << 20));
        host.write_all(request(2).as_bytes()).await.unwrap();
        let sending = tokio::spawn(transport.send(answer(1, &"x".repeat(WAITING_BYTES_MAX))));
        drop(answers);
        sending.await.unwrap().unwrap_err();
        assert_eq!(next(&mut transport).await, Some(RequestId::Number(2)));
    }

    #[tokio::test]
    async fn only_so_many_requests_are_under_way_and_answers_and_cancellations_make_room() {
        let (mut host, input) = duplex(1 << 16);
        let (output, _answers) = duplex(1 << 16);
        let mut transport = LineTransport::new(input, output, outbox(), limits(1 << 20));
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2}});
        let lines = [request(1), request(2), format!("{cancel}\n"), request(3), request(4), request(5)];
        host.write_all(lines.concat().as_bytes()).await.unwrap();
        assert_eq!(next(&mut transport).await, Some(RequestId::Number(1)));
        assert_eq!(next(&mut transport).await, Some(RequestId::Number(2)));
        assert!(matches!(transport.receive().await, Some(JsonRpcMessage::Notification(_))));
        assert_eq!(next(&mut transport).await, Some(RequestId::Number(3)));
        assert_eq!(next(&mut transport).await, Some(RequestId::Number(4)), "one was cancelled");
        assert_eq!(next(&mut transport).await, None, "three are under way");
        transport.send(answer(3, "done")).await.unwrap();
        assert_eq!(next(&mut transport).await, Some(RequestId::Number(5)));
    }

    #[tokio::test]
    async fn an_id_that_is_not_known_is_null_or_left_out_as_the_protocol_has_it() {
        for (version, id) in
            [(None, Some(Value::Null)), (Some("2025-06-18"), Some(Value::Null)), (Some("2025-11-25"), None)]
        {
            let (_host, input) = duplex(64);
            let (output, answers) = duplex(1 << 16);
            let mut transport = LineTransport::new(input, output, outbox(), limits(1 << 20));
            if let Some(version) = version {
                let hello = json!({"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}});
                let hello = json!({"jsonrpc": "2.0", "id": 1, "result": hello});
                transport.send(serde_json::from_value(hello).unwrap()).await.unwrap();
            }
            let nobody = TxJsonRpcMessage::<RoleServer>::error(ErrorData::parse_error("no JSON", None), None);
            transport.send(nobody).await.unwrap();
            transport.close().await.unwrap();
            let (mut lines, mut last) = (BufReader::new(answers).lines(), Value::Null);
            while let Some(line) = lines.next_line().await.unwrap() {
                last = serde_json::from_str(&line).unwrap();
            }
            assert_eq!(last.get("id").cloned(), id, "{version:?}: {last}");
        }
    }

    /// What comes in and what goes out, for these lines.
    async fn talk(bytes_max: usize, lines: Vec<Vec<u8>>) -> (Vec<Value>, Vec<Value>) {
        let (mut host, input) = duplex(64);
        let (output, answers) = duplex(1 << 16);
        let mut transport = LineTransport::new(input, output, outbox(), limits(bytes_max));
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
