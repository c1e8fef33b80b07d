//! A server that is there: what it offers, its calls, and its end.

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ctx_cage::RunningCage;
use ctx_session::{Code, Name, Refusal};
use rmcp::model::{
    CallToolRequestParams, CallToolResult, ClientCapabilities, ClientConfig, ContentBlock, Implementation,
    PaginatedRequestParams, ResourceContents,
};
use rmcp::service::{NotificationContext, RunningService};
use rmcp::{ClientHandler, RoleClient, ServiceError};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::ServerWant;
use crate::cut;
use crate::redact::Redaction;
use crate::tool::{Output, ToolError};

/// How long a server may take to say which tools it has.
const LIST_MAX: Duration = Duration::from_secs(15);
/// How long one call may take.
const CALL_MAX: Duration = Duration::from_secs(600);
/// The most tools of one server, and the most of what it says of each.
const TOOLS_MAX: usize = 256;
const PAGES_MAX: usize = 32;
const NAME_BYTES_MAX: usize = 128;
const DESCRIPTION_BYTES_MAX: usize = 4096;
const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// The most that is kept of what one call gave.
const OUTPUT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How much is kept of what a program says on stderr.
const SAID_BYTES_MAX: usize = 4096;
/// How long a program that ends may take until its last words are heard.
const LAST_WORDS_MAX: Duration = Duration::from_millis(500);
/// How often it is looked whether a program has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// A tool of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Offered {
    /// As the server calls it.
    pub name: String,
    pub description: String,
    pub schema: Value,
}

/// Our end of the connection. It offers the server nothing: no files, no model, no questions to the operator.
#[derive(Debug, Clone, Default)]
pub(super) struct Hears {
    has_changed: Arc<AtomicBool>,
}

impl ClientHandler for Hears {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.has_changed.store(true, Ordering::SeqCst);
    }

    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(
            ClientCapabilities::default(),
            Implementation::new("ctx", env!("CARGO_PKG_VERSION")),
        )
    }
}

/// What a server runs as.
pub(super) enum Process {
    Caged(RunningCage),
    /// In no cage, in the care of a guard, which ends everything when `held` goes.
    Plain {
        child: Mutex<tokio::process::Child>,
        held: Mutex<Option<std::io::PipeWriter>>,
    },
    /// Somewhere else, reached by its address.
    Elsewhere,
}

/// The end of what a program said on stderr.
#[derive(Clone, Default)]
pub(super) struct LastWords(Arc<Mutex<VecDeque<u8>>>, CancellationToken);

impl LastWords {
    /// All of them have been heard.
    pub(super) fn finish(&self) {
        self.1.cancel();
    }

    /// Waits until a program that ends has said its last, for a moment.
    pub(super) async fn wait(&self) {
        let _ = tokio::time::timeout(LAST_WORDS_MAX, self.1.cancelled()).await;
    }

    pub(super) fn add(&self, bytes: &[u8]) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        said.extend(bytes);
        let over = said.len().saturating_sub(SAID_BYTES_MAX);
        said.drain(..over);
    }

    /// The last line that says something.
    pub(super) fn line(&self, redaction: &Redaction) -> String {
        let said: Vec<u8> = self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let (text, _) = redaction.text(String::from_utf8_lossy(&said).into_owned());
        let line = text.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default();
        cut(line, 500).to_owned()
    }
}

/// A connection with a server.
pub(super) struct Server {
    pub name: Name,
    pub want: ServerWant,
    pub service: RunningService<RoleClient, Hears>,
    pub process: Process,
    pub last_words: LastWords,
    /// Takes out what the server was given from its owner's shell.
    pub redaction: Redaction,
    pub offered: Mutex<Arc<[Offered]>>,
    pub used: Mutex<Instant>,
    pub busy: AtomicUsize,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a call that is under way.
struct Busy<'a>(&'a Server);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        *lock(&self.0.used) = Instant::now();
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Server {
    pub(super) fn is_there(&self) -> bool {
        let has_ended = match &self.process {
            Process::Caged(cage) => cage.ended().is_some(),
            Process::Plain { .. } | Process::Elsewhere => false,
        };
        !has_ended && !self.service.is_closed() && !self.service.is_transport_closed()
    }

    pub(super) fn idle_for(&self) -> Duration {
        match self.busy.load(Ordering::SeqCst) {
            0 => lock(&self.used).elapsed(),
            _ => Duration::ZERO,
        }
    }

    pub(super) fn offered(&self) -> Arc<[Offered]> {
        Arc::clone(&lock(&self.offered))
    }

    /// What it offers; asked again when it said that this has changed.
    pub(super) async fn offers(&self) -> Result<Arc<[Offered]>, Refusal> {
        if self.service.service().has_changed.swap(false, Ordering::SeqCst) {
            self.list().await?;
        }
        Ok(self.offered())
    }

    pub(super) async fn list(&self) -> Result<(), Refusal> {
        let listed = match tokio::time::timeout(LIST_MAX, self.pages()).await {
            Ok(Ok(tools)) => tools,
            Ok(Err(error)) => return Err(Refusal::new(Code::Eproto, self.in_words(&error))),
            Err(_) => {
                let message = format!("it did not say within {} s which tools it has", LIST_MAX.as_secs());
                return Err(Refusal::new(Code::Etimedout, message));
            }
        };
        let offered: Vec<Offered> =
            listed.into_iter().filter_map(|tool| self.offer(tool)).take(TOOLS_MAX).collect();
        *lock(&self.offered) = offered.into();
        Ok(())
    }

    /// The tools page by page; a server that always has one more is not asked for ever.
    async fn pages(&self) -> Result<Vec<rmcp::model::Tool>, ServiceError> {
        let (mut tools, mut cursor) = (Vec::new(), None);
        for _ in 0..PAGES_MAX {
            let params = PaginatedRequestParams::default().with_cursor(cursor);
            let page = self.service.list_tools(Some(params)).await?;
            tools.extend(page.tools.into_iter().take(TOOLS_MAX));
            cursor = page.next_cursor;
            if cursor.is_none() || tools.len() >= TOOLS_MAX {
                break;
            }
        }
        Ok(tools)
    }

    /// A tool as a model is shown it; None: it has no name that can be written.
    fn offer(&self, tool: rmcp::model::Tool) -> Option<Offered> {
        let is_name = |name: &str| {
            !name.is_empty()
                && name.len() <= NAME_BYTES_MAX
                && name.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let name = Some(tool.name.into_owned()).filter(|name| is_name(name))?;
        let description = tool.description.or(tool.title.map(Into::into)).unwrap_or_default();
        let (description, _) = self.redaction.text(description.into_owned());
        let mut schema = Value::Object(tool.input_schema.as_ref().clone());
        if schema.to_string().len() > SCHEMA_BYTES_MAX {
            schema = Value::Object(Map::new());
        }
        if let Some(fields) = schema.as_object_mut() {
            fields.insert("type".to_owned(), "object".into());
            fields.entry("properties").or_insert_with(|| Value::Object(Map::new()));
        }
        Some(Offered { name, description: cut(&description, DESCRIPTION_BYTES_MAX).to_owned(), schema })
    }

    /// Calls a tool. The server counts as busy until the end, so that it is not ended as idle during a long call.
    pub(super) async fn call(&self, tool: &str, input: Map<String, Value>) -> Result<Output, ToolError> {
        self.busy.fetch_add(1, Ordering::SeqCst);
        let _busy = Busy(self);
        let params = CallToolRequestParams::new(tool.to_owned()).with_arguments(input);
        // A call that is given up is cancelled at the server too.
        match tokio::time::timeout(CALL_MAX, self.service.call_tool(params)).await {
            Ok(Ok(result)) => self.read(result),
            Ok(Err(error)) => {
                if self.service.is_transport_closed() && !matches!(self.process, Process::Elsewhere) {
                    self.last_words.wait().await;
                }
                let code =
                    if matches!(error, ServiceError::McpError(_)) { Code::Einval } else { Code::Epipe };
                Err(ToolError::new(code, self.in_words(&error)))
            }
            Err(_) => {
                let message = format!("{}.{tool} did not end within {} s", self.name, CALL_MAX.as_secs());
                Err(ToolError::new(Code::Etimedout, message))
            }
        }
    }

    /// Reads what a call gave. Secrets are redacted before the cut, so that one that stands across the limit is found whole.
    fn read(&self, result: CallToolResult) -> Result<Output, ToolError> {
        let text = in_text(&result);
        let (mut text, secrets) = self.redaction.text(text);
        if text.len() > OUTPUT_BYTES_MAX {
            let whole = text.len();
            text = format!("{}\n[cut: {whole} bytes in all]", cut(&text, OUTPUT_BYTES_MAX));
        }
        if result.is_error == Some(true) {
            return Err(ToolError::new(Code::Eio, text));
        }
        let mut output = Output::from(text);
        output.summary.redacted = Some(secrets).filter(|secrets| *secrets > 0);
        Ok(output)
    }

    /// Why something failed, with how the server ended if it has. What it was given is not in it.
    fn in_words(&self, error: &ServiceError) -> String {
        let said = match error {
            ServiceError::McpError(data) => format!("the MCP server {} said: {}", self.name, data.message),
            ServiceError::TransportClosed | ServiceError::TransportSend(_) => {
                let last = self.last_words.line(&self.redaction);
                let code = match &self.process {
                    Process::Caged(cage) => cage.ended().map(|ended| format!(" with code {}", ended.code)),
                    Process::Plain { .. } | Process::Elsewhere => None,
                };
                let mut said = format!("the MCP server {} ended{}", self.name, code.unwrap_or_default());
                if !last.is_empty() {
                    let _ = write!(said, "; the last it said was: {last}");
                }
                said + "; it is started again with the next call"
            }
            other => format!("the MCP server {}: {other}", self.name),
        };
        self.redaction.text(said).0
    }

    pub(super) fn freeze(&self) {
        if let Process::Caged(cage) = &self.process
            && let Err(error) = cage.freeze()
        {
            tracing::warn!(server = %self.name, %error, "an MCP server could not be frozen");
        }
    }

    pub(super) fn thaw(&self) {
        if let Process::Caged(cage) = &self.process
            && let Err(error) = cage.thaw()
        {
            tracing::warn!(server = %self.name, %error, "an MCP server could not be thawed");
        }
    }

    /// Closes the connection, which tells the program to end, and ends it when it does not.
    pub(super) async fn end(&self, patience: Duration) {
        self.thaw();
        self.service.cancellation_token().cancel();
        let until = Instant::now() + patience;
        match &self.process {
            Process::Caged(cage) => {
                while cage.ended().is_none() && Instant::now() < until {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                cage.kill();
                while cage.ended().is_none() {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
            Process::Plain { child, held } => {
                let has_ended = || lock(child).try_wait().is_ok_and(|ended| ended.is_some());
                while !has_ended() && Instant::now() < until {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                drop(lock(held).take());
                while !has_ended() {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
            Process::Elsewhere => {}
        }
    }
}

/// What a call gave, for a model to read. What is no text is named.
fn in_text(result: &CallToolResult) -> String {
    let mut parts: Vec<String> = Vec::new();
    for block in &result.content {
        parts.push(match block {
            ContentBlock::Text(text) => text.text.clone(),
            ContentBlock::Image(image) => not_shown("an image", &image.mime_type, &image.data),
            ContentBlock::Audio(audio) => not_shown("a sound", &audio.mime_type, &audio.data),
            ContentBlock::Resource(held) => match &held.resource {
                ResourceContents::TextResourceContents { uri, text, .. } => format!("[{uri}]\n{text}"),
                ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                    not_shown(uri, mime_type.as_deref().unwrap_or("bytes"), blob)
                }
                _ => "[a resource of a kind that is not known]".to_owned(),
            },
            ContentBlock::ResourceLink(link) => format!("[{} at {}]", link.name, link.uri),
            _ => "[something of a kind that is not known]".to_owned(),
        });
    }
    match (&result.structured_content, parts.is_empty()) {
        (Some(value), true) => value.to_string(),
        _ => parts.join("\n"),
    }
}

fn not_shown(what: &str, mime: &str, base64: &str) -> String {
    format!("[{what}, {mime}, about {} bytes, not shown]", base64.len() / 4 * 3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(result: Value) -> String {
        in_text(&serde_json::from_value(result).unwrap())
    }

    #[test]
    fn what_is_no_text_is_named() {
        let image = json!({ "type": "image", "data": "AAAAAAAA", "mimeType": "image/png" });
        let text = json!({ "type": "text", "text": "one" });
        assert_eq!(
            read(json!({ "content": [text, image] })),
            "one\n[an image, image/png, about 6 bytes, not shown]"
        );
        assert_eq!(read(json!({ "content": [], "structuredContent": { "a": 1 } })), "{\"a\":1}");
        let both =
            json!({ "content": [{ "type": "text", "text": "{\"a\":1}" }], "structuredContent": { "a": 1 } });
        assert_eq!(read(both), "{\"a\":1}", "once");
        assert_eq!(read(json!({ "content": [] })), "");
    }

    #[test]
    fn of_last_words_the_end_is_kept_without_secrets() {
        let words = LastWords::default();
        words.add(&vec![b'x'; SAID_BYTES_MAX]);
        words.add(b"\nthe token is a-long-secret-1\n\n");
        let redaction = Redaction::of_values([("T", "a-long-secret-1")]);
        assert_eq!(words.line(&redaction), "the token is [REDACTED:env:T]");
    }
}
