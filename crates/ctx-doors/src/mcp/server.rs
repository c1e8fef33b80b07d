//! The MCP server: each tool call becomes one call on the shells.

use std::time::{Duration, Instant};

use ctx_host::shell::{ExecRequest, ExecResult, Progress, ShellError, ShellHost};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation, JsonObject,
    ListToolsResult, PaginatedRequestParams, ProgressNotificationParam, ProgressToken, ServerCapabilities,
    ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, Peer, RoleServer, ServerHandler};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::args::{CreateArgs, ExecArgs, NoArgs, OutputArgs, SessionArgs};
use super::schema::ToolName;

/// How often a caller that asked for progress hears of it.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

const INSTRUCTIONS: &str = "Stateful shells. Open one with session_create, run commands in it with session_exec \
(cd, variables and functions carry over), close it with session_destroy. Long output is cut: read the rest with \
session_output, or ask for less with budget. There is no terminal and no input unless stdin is given, so use flags \
such as -y or --no-pager instead of answering questions. Put servers in the background with their output in a file.";

/// What the server calls itself.
#[derive(Debug, Clone)]
pub struct ServerName {
    pub name: String,
    pub version: String,
}

/// The door to a host's shells.
#[derive(Clone)]
pub struct McpServer {
    host: ShellHost,
    name: ServerName,
}

/// What a tool call comes to.
type Outcome = Result<Value, Failure>;

/// Why a tool call has no result; a model reads it and can do better.
enum Failure {
    Arguments(String),
    Shell(ShellError),
    Internal(String),
    /// Nobody waits for the answer any more.
    Cancelled,
}

impl From<ShellError> for Failure {
    fn from(error: ShellError) -> Self {
        Failure::Shell(error)
    }
}

impl Failure {
    fn into_result(self) -> CallToolResult {
        let text = match self {
            Failure::Arguments(message) => format!("EINVAL: {message}"),
            Failure::Shell(error) => format!("{}: {error}", error.code()),
            Failure::Internal(message) => format!("EIO: {message}"),
            Failure::Cancelled => "EINTR: the request was cancelled".to_owned(),
        };
        CallToolResult::error(vec![ContentBlock::text(text)])
    }
}

impl McpServer {
    pub fn new(host: ShellHost, name: ServerName) -> Self {
        McpServer { host, name }
    }

    async fn call(
        &self,
        tool: ToolName,
        arguments: JsonObject,
        context: RequestContext<RoleServer>,
    ) -> Outcome {
        match tool {
            ToolName::Create => {
                let args: CreateArgs = parse(arguments)?;
                let id = self.host.create(args.into()).await?;
                Ok(json!({ "session_id": id }))
            }
            ToolName::Exec => {
                let (id, request) = parse::<ExecArgs>(arguments)?.split();
                value(&self.exec(&id, request, context).await?)
            }
            ToolName::List => {
                let NoArgs {} = parse(arguments)?;
                Ok(json!({ "sessions": value(&self.host.list())? }))
            }
            ToolName::Destroy => {
                let args: SessionArgs = parse(arguments)?;
                self.host.destroy(&args.session_id).await?;
                Ok(json!({ "destroyed": true }))
            }
            ToolName::Output => {
                let (id, request) = parse::<OutputArgs>(arguments)?.split();
                let host = self.host.clone();
                // A pattern may have to look through a gigabyte: not on a thread that serves others.
                let work = tokio::task::spawn_blocking(move || host.output(&id, &request));
                let page = work.await.map_err(|error| Failure::Internal(error.to_string()))??;
                value(&page)
            }
            ToolName::Interrupt => {
                let args: SessionArgs = parse(arguments)?;
                value(&self.host.interrupt(&args.session_id)?)
            }
        }
    }

    /// Runs a command; tells of its progress where asked to, and stops it when the request is cancelled.
    async fn exec(
        &self,
        id: &str,
        request: ExecRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ExecResult, Failure> {
        let Some(token) = context.meta.get_progress_token() else {
            return tokio::select! {
                result = self.host.exec(id, request, None) => Ok(result?),
                () = context.ct.cancelled() => Err(Failure::Cancelled),
            };
        };
        let (sender, seen) = watch::channel(Progress::default());
        let teller = Teller { peer: context.peer, token, started: Instant::now(), seen };
        let command = self.host.exec(id, request, Some(sender));
        let mut ticks = tokio::time::interval(PROGRESS_EVERY);
        tokio::pin!(command);
        loop {
            tokio::select! {
                result = &mut command => {
                    teller.tell().await;
                    return Ok(result?);
                }
                _ = ticks.tick() => teller.tell().await,
                () = context.ct.cancelled() => return Err(Failure::Cancelled),
            }
        }
    }
}

/// Sends progress notifications for one command.
struct Teller {
    peer: Peer<RoleServer>,
    token: ProgressToken,
    started: Instant,
    seen: watch::Receiver<Progress>,
}

impl Teller {
    async fn tell(&self) {
        let Progress { stdout_bytes, stderr_bytes } = *self.seen.borrow();
        let elapsed = self.started.elapsed().as_secs_f64();
        let message = format!("{elapsed:.1} s, {stdout_bytes} bytes of stdout, {stderr_bytes} of stderr");
        let note = ProgressNotificationParam::new(self.token.clone(), elapsed).with_message(message);
        if let Err(error) = self.peer.notify_progress(note).await {
            tracing::debug!(%error, "a progress notification was not sent");
        }
    }
}

fn parse<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, Failure> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| Failure::Arguments(error.to_string()))
}

fn value<T: Serialize>(answer: &T) -> Outcome {
    serde_json::to_value(answer).map_err(|error| Failure::Internal(error.to_string()))
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new(self.name.name.clone(), self.name.version.clone());
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(ToolName::ALL.map(ToolName::tool).to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        ToolName::parse(name).map(ToolName::tool)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = ToolName::parse(&request.name) else {
            return Err(ErrorData::invalid_params(format!("no tool `{}`", request.name), None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let result = match self.call(tool, arguments, context).await {
            Ok(answer) => CallToolResult::structured(answer),
            Err(failure) => failure.into_result(),
        };
        Ok(result.into())
    }
}
