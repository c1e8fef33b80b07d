//! The MCP server: each tool call becomes one call on the shells.

use std::borrow::Cow;
use std::time::Duration;

use ctx_host::ShellHost;
use ctx_session::Ulid;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, CustomRequest, CustomResult,
    ErrorCode, Implementation, InitializeRequestParams, InitializeResult, JsonObject, ListPromptsResult,
    ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Serialize;
use serde_json::{Value, json};

use super::args::{
    CheckpointArgs, CreateArgs, ExecArgs, NoArgs, OutputArgs, PAGE_BYTES_MAX, RestoreArgs, SessionArgs,
};
use super::failure::Failure;
use super::lines::LineLimits;
use super::outbox::Outbox;
use super::parse::{parse, take_unknown};
use super::schema::ToolName;
use super::text::{add_hint, fit, text_of};
use super::uses::{Hold, Uses};

/// The methods of this server that have params which may not fit.
const METHODS_WITH_PARAMS: [&str; 4] = ["initialize", "tools/list", "tools/call", "server/discover"];

/// Requests other than commands that may be under way.
const OTHERS_MAX: usize = 1024;

/// The protocols that are spoken. Not 2025-03-26: it is the one with batches, which the SDK does not know.
const PROTOCOLS: &[ProtocolVersion] = &[
    ProtocolVersion::V_2024_11_05,
    ProtocolVersion::V_2025_06_18,
    ProtocolVersion::V_2025_11_25,
    ProtocolVersion::V_2026_07_28,
];

const INSTRUCTIONS: &str = "Stateful shells. Open one with session_create, run commands in it with session_exec \
(bash; cd, variables and functions carry over), close it with session_destroy. With a workspace, session_checkpoint \
saves its files and session_restore brings them back. Long output is cut: read the rest with \
session_output, also of a command that still runs, or ask for less with budget. There is no terminal and no input unless stdin is given, so use flags \
such as -y or --no-pager instead of answering questions. Put servers in the background with their output in a file.";

const NOT_BASH: &str = " The shell is not bash: arrays, [[ ]], <( ) and set -o pipefail are not there.";

/// What the server calls itself.
#[derive(Debug, Clone)]
pub struct ServerName {
    pub name: String,
    pub version: String,
}

/// The door to a host's shells.
#[derive(Clone)]
pub struct McpServer {
    pub(super) host: ShellHost,
    name: ServerName,
    /// Over HTTP: which sessions have a call under way.
    uses: Uses,
    /// Over stdio: what waits to be written.
    outbox: Outbox,
}

/// What a tool call comes to.
type Outcome = Result<Value, Failure>;

impl McpServer {
    pub fn new(host: ShellHost, name: ServerName) -> Self {
        let outbox = Outbox::new(host.hold());
        McpServer { host, name, uses: Uses::default(), outbox }
    }

    pub(super) fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    pub(super) fn uses(&self) -> &Uses {
        &self.uses
    }

    /// How long a shell may be idle.
    pub(super) fn idle_max(&self) -> Duration {
        self.host.limits().idle_max
    }

    /// The session that a call came in with stays until the call is over, also when nobody waits for the answer. None
    /// over stdio.
    fn held(&self, context: &RequestContext<RoleServer>) -> Option<Hold> {
        let parts = context.extensions.get::<axum::http::request::Parts>()?;
        let session = parts.headers.get(super::http::SESSION)?.to_str().ok()?;
        Some(self.uses.hold(session.into()))
    }

    /// The longest request may hold a command and its stdin within their limits: a byte of text takes up to six in
    /// JSON. All commands that may wait can be under way, and others besides.
    pub(super) fn line_limits(&self) -> LineLimits {
        let limits = self.host.limits();
        LineLimits {
            bytes_max: 6 * (limits.command_bytes_max + limits.stdin_bytes_max) + (1 << 20),
            unanswered_max: limits.shells_max.saturating_mul(limits.waiting_max + 1) + OTHERS_MAX,
        }
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
                if args.cwd.as_deref() == Some("") {
                    let message = "cwd: it must not be empty; leave it out to use the server's directory";
                    return Err(Failure::Arguments(message.to_owned()));
                }
                let id = self.host.create(args.try_into()?).await?;
                if context.ct.is_cancelled() {
                    // Nobody is told its name.
                    self.host.destroy(&id).await?;
                    return Err(Failure::Cancelled);
                }
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
                let args: OutputArgs = parse(arguments)?;
                if args.limit.is_some_and(|limit| limit.get() > PAGE_BYTES_MAX) {
                    return Err(Failure::Arguments(format!("limit: it must be at most {PAGE_BYTES_MAX}")));
                }
                let (id, request) = args.split();
                value(&self.output(id, request, context.ct).await?)
            }
            ToolName::Checkpoint => {
                let CheckpointArgs { session_id, label } = parse(arguments)?;
                let id = self.host.checkpoint(&session_id, label).await?;
                Ok(json!({ "checkpoint_id": id }))
            }
            ToolName::Checkpoints => {
                let args: SessionArgs = parse(arguments)?;
                Ok(json!({ "checkpoints": value(&self.host.checkpoints(&args.session_id).await?)? }))
            }
            ToolName::Restore => {
                let RestoreArgs { session_id, checkpoint_id, dry_run } = parse(arguments)?;
                let bad = |_| {
                    let message = "checkpoint_id: it is what session_checkpoint returned; session_checkpoints lists them";
                    Failure::Arguments(message.to_owned())
                };
                let checkpoint = checkpoint_id.map(|id| id.parse::<Ulid>().map_err(bad)).transpose()?;
                value(&self.host.restore(&session_id, checkpoint, dry_run.unwrap_or(false)).await?)
            }
            ToolName::Interrupt => {
                let args: SessionArgs = parse(arguments)?;
                value(&self.host.interrupt(&args.session_id)?)
            }
        }
    }
}

/// The SDK would answer with an empty list, as if there could be some.
fn not_declared(method: &str) -> ErrorData {
    ErrorData::new(
        ErrorCode::METHOD_NOT_FOUND,
        format!("no method `{method}`: this server has tools only"),
        None,
    )
}

fn value<T: Serialize>(answer: &T) -> Outcome {
    serde_json::to_value(answer).map_err(|error| Failure::Internal(error.to_string()))
}

impl ServerHandler for McpServer {
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(PROTOCOLS)
    }

    /// A host of an older protocol than we speak is offered the one before, which it knows; others our newest.
    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        let is_older = request.protocol_version.as_str() < ProtocolVersion::V_2025_06_18.as_str();
        let mut info = self.negotiate_initialize(&request)?;
        if is_older {
            info.protocol_version = ProtocolVersion::V_2024_11_05;
        }
        context.peer.set_peer_info(request);
        Ok(info)
    }

    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new(self.name.name.clone(), self.name.version.clone());
        let posix = if self.host.is_bash() { "" } else { NOT_BASH };
        info.instructions = Some(format!("{INSTRUCTIONS}{posix}"));
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(ToolName::ALL.map(ToolName::tool).to_vec()))
    }

    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(not_declared("prompts/list"))
    }

    async fn list_resources(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        Err(not_declared("resources/list"))
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Err(not_declared("resources/templates/list"))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        ToolName::parse(name).map(ToolName::tool)
    }

    /// A request that the SDK takes for none of its own: one it does not know, or one whose params do not fit.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        if !METHODS_WITH_PARAMS.contains(&method.as_str()) {
            let text = self.host.shown(&format!("no method `{method}`"));
            return Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, text, None));
        }
        let wanted = "for tools/call, {\"name\": the tool's, \"arguments\": an object}";
        Err(ErrorData::invalid_params(format!("invalid params for `{method}`; {wanted}"), None))
    }

    /// The answer is cut before its text is made of it, so that both forms have the same output.
    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = ToolName::parse(&request.name) else {
            let text = self.host.shown(&format!("no tool `{}`", request.name));
            return Err(ErrorData::invalid_params(text, None));
        };
        let mut arguments = request.arguments.unwrap_or_default();
        let ignored = take_unknown(&tool.arguments(), &mut arguments);
        let _in_use = self.held(&context);
        let result = match self.call(tool, arguments, context).await {
            Ok(mut answer) => {
                fit(&mut answer);
                if let Some(ignored) = ignored {
                    add_hint(&mut answer, &self.host.shown(&ignored));
                }
                let text = text_of(tool, &answer);
                let mut result = CallToolResult::structured(answer);
                result.content = vec![ContentBlock::text(text)];
                result
            }
            Err(failure) => failure.into_result(&self.host),
        };
        Ok(result.into())
    }
}

#[cfg(test)]
mod tests;
