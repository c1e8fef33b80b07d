//! The MCP server: each tool call becomes one call on the shells.

use std::borrow::Cow;
use std::time::Duration;

use ctx_host::shell::ShellHost;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CustomRequest, CustomResult, ErrorCode,
    Implementation, InitializeRequestParams, InitializeResult, JsonObject, ListToolsResult,
    PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde::Serialize;
use serde_json::{Value, json};

use super::args::{CreateArgs, ExecArgs, NoArgs, OutputArgs, SessionArgs};
use super::failure::Failure;
use super::lines::LineLimits;
use super::outbox::Outbox;
use super::parse::{only_local, parse};
use super::schema::ToolName;
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
(cd, variables and functions carry over), close it with session_destroy. Long output is cut: read the rest with \
session_output, or ask for less with budget. There is no terminal and no input unless stdin is given, so use flags \
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
                only_local(&arguments)?;
                let args: CreateArgs = parse(arguments)?;
                if args.cwd.as_deref() == Some("") {
                    let message = "cwd: it must not be empty; leave it out to use the server's directory";
                    return Err(Failure::Arguments(message.to_owned()));
                }
                let id = self.host.create(args.into()).await?;
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
                let (id, request) = parse::<OutputArgs>(arguments)?.split();
                value(&self.output(id, request, context.ct).await?)
            }
            ToolName::Interrupt => {
                let args: SessionArgs = parse(arguments)?;
                value(&self.host.interrupt(&args.session_id)?)
            }
        }
    }
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

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let Some(tool) = ToolName::parse(&request.name) else {
            let text = self.host.shown(&format!("no tool `{}`", request.name));
            return Err(ErrorData::invalid_params(text, None));
        };
        let arguments = request.arguments.unwrap_or_default();
        let _in_use = self.held(&context);
        let result = match self.call(tool, arguments, context).await {
            Ok(answer) => CallToolResult::structured(answer),
            Err(failure) => failure.into_result(&self.host),
        };
        Ok(result.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use ctx_host::shell::{HostConfig, NoLog};
    use rmcp::ServiceExt;
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines, ReadHalf, WriteHalf, split};

    /// A host that speaks raw JSON lines.
    struct Caller {
        host: ShellHost,
        lines: Lines<BufReader<ReadHalf<tokio::io::DuplexStream>>>,
        out: WriteHalf<tokio::io::DuplexStream>,
        next: u64,
        _dir: tempfile::TempDir,
    }

    impl Caller {
        fn new() -> Caller {
            let dir = tempfile::tempdir().unwrap();
            let mut config = HostConfig::from_process(dir.path().join("spool"), "ctx test");
            config.limits.shells_max = 1;
            config.cwd = dir.path().to_owned();
            let host = ShellHost::new(config, Arc::new(NoLog)).unwrap();
            let (ours, theirs) = tokio::io::duplex(1 << 20);
            let name = ServerName { name: "ctx".to_owned(), version: "1.2.3".to_owned() };
            let server = McpServer::new(host.clone(), name);
            tokio::spawn(async move { server.serve(theirs).await.unwrap().waiting().await });
            let (read, out) = split(ours);
            Caller { host, lines: BufReader::new(read).lines(), out, next: 0, _dir: dir }
        }

        async fn say(&mut self, message: Value) {
            self.out.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        }

        async fn ask(&mut self, method: &str, params: Value) -> Value {
            self.next += 1;
            let id = self.next;
            self.say(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await;
            loop {
                let line = self.lines.next_line().await.unwrap().unwrap();
                let message: Value = serde_json::from_str(&line).unwrap();
                if message["id"] == id {
                    return message;
                }
            }
        }

        async fn hello(&mut self, version: &str) -> Value {
            let info = json!({"name": "test", "version": "1"});
            let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": info});
            let answer = self.ask("initialize", params).await["result"].clone();
            self.say(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
            answer
        }

        async fn tool(&mut self, name: &str, arguments: Value) -> Value {
            self.ask("tools/call", json!({"name": name, "arguments": arguments})).await["result"].clone()
        }
    }

    #[tokio::test]
    async fn the_older_protocol_is_spoken_and_the_server_has_its_own_name() {
        let mut caller = Caller::new();
        let hello = caller.hello("2025-06-18").await;
        assert_eq!(hello["protocolVersion"], "2025-06-18");
        assert_eq!(hello["serverInfo"], json!({"name": "ctx", "version": "1.2.3"}));
        let made = caller.tool("session_create", json!({})).await;
        assert_eq!(made["structuredContent"], json!({"session_id": "1_local"}));
        let ran = caller.tool("session_exec", json!({"session_id": "1_local", "command": "echo hi"})).await;
        assert_eq!(ran["structuredContent"]["stdout"], "hi\n");
        let text: Value = serde_json::from_str(ran["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, ran["structuredContent"], "the text says the same");
        caller.host.shutdown().await;
    }

    #[tokio::test]
    async fn a_protocol_with_batches_is_not_agreed_on() {
        for (asked, agreed) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-03-26", "2024-11-05"),
            ("2025-11-25", "2025-11-25"),
            ("2029-01-01", "2025-11-25"),
        ] {
            let mut caller = Caller::new();
            assert_eq!(caller.hello(asked).await["protocolVersion"], agreed, "{asked}");
        }
    }

    #[tokio::test]
    async fn what_a_tool_does_not_know_is_refused_and_limits_hold() {
        let mut caller = Caller::new();
        caller.hello("2025-11-25").await;
        caller.tool("session_create", json!({})).await;
        for (tool, arguments, code) in [
            ("session_create", json!({}), "EBUSY"),
            ("session_create", json!({"shells_max": 99}), "EINVAL"),
            ("session_create", json!({"policy": "/dev/null"}), "EINVAL"),
            (
                "session_create",
                json!({"transport": "ssh", "host": "-oProxyCommand=x"}),
                "EINVAL: transport: this version has only `local`",
            ),
            ("session_create", json!({"allow": []}), "EINVAL: the allow list is empty"),
            ("session_exec", json!({"session_id": "1_local", "command": "true", "log": "/tmp/x"}), "EINVAL"),
            ("session_exec", json!({"session_id": "1_local"}), "EINVAL"),
            (
                "session_exec",
                json!({"session_id": "1_local", "command": "x", "timeout_secs": 1e300}),
                "EINVAL",
            ),
            ("session_exec", json!({"session_id": "1_local", "command": "x", "timeout_secs": -1}), "EINVAL"),
            ("session_exec", json!({"session_id": "9_local", "command": "true"}), "ENOENT"),
            ("session_output", json!({"session_id": "1_local", "call": 7}), "ENOENT"),
            ("session_output", json!({"session_id": "1_local", "call": 1, "grep": "("}), "EINVAL"),
            (
                "session_exec",
                json!({"session_id": "1_local", "command": "x".repeat((1 << 20) + 1)}),
                "EMSGSIZE: the command",
            ),
            ("session_list", json!({"all": true}), "EINVAL"),
        ] {
            let answer = caller.tool(tool, arguments.clone()).await;
            let text = answer["content"][0]["text"].as_str().unwrap();
            assert_eq!(answer["isError"], true, "{tool} {text}");
            assert!(text.starts_with(code), "{tool}: {text}, not {code}");
        }
        let unknown = caller.ask("tools/call", json!({"name": "session_sudo", "arguments": {}})).await;
        assert!(unknown["error"]["code"].is_i64());
        caller.host.shutdown().await;
    }

    #[tokio::test]
    async fn arguments_of_a_wrong_type_are_named_and_null_is_as_good_as_nothing() {
        let mut caller = Caller::new();
        caller.hello("2025-11-25").await;
        for (arguments, field) in [
            (json!({"timeout_secs": "5"}), "timeout_secs"),
            (json!({"env": {"A": 5}}), "env.A"),
            (json!({"deny": ["rm", 7]}), "deny[1]"),
            (json!({"output_budget": {"keep": {"mode": "tail", "n": -1}}}), "output_budget.keep.n"),
            (json!({"cwd": ""}), "cwd"),
        ] {
            let answer = caller.tool("session_create", arguments.clone()).await;
            let text = answer["content"][0]["text"].as_str().unwrap();
            assert!(text.starts_with(&format!("EINVAL: {field}: ")), "{arguments}: {text}");
        }
        let nulls = json!({"transport": null, "cwd": null, "env": null, "allow": null, "deny": null,
                           "output_budget": null, "timeout_secs": null});
        assert_eq!(caller.tool("session_create", nulls).await["structuredContent"]["session_id"], "1_local");
        let nulls = json!({"session_id": "1_local", "command": "echo hi", "stdin": null, "merge": null,
                           "timeout_secs": null, "budget": {"keep": null, "max_chars": null,
                           "grep": {"pattern": "hi", "context": null}}});
        assert_eq!(caller.tool("session_exec", nulls).await["structuredContent"]["stdout"], "hi\n");
        let mut page = json!({"session_id": "1_local", "call": 1, "stream": null, "offset": null,
                              "limit": null, "grep": null});
        assert_eq!(caller.tool("session_output", page.clone()).await["structuredContent"]["text"], "hi\n");
        for limit in [json!(0), json!(262_145), json!(1.5), json!("7")] {
            page["limit"] = limit;
            let refused = caller.tool("session_output", page.clone()).await["content"][0]["text"].to_string();
            assert!(refused.contains("EINVAL: limit"), "{refused}");
        }
        caller.host.shutdown().await;
    }

    #[tokio::test]
    async fn a_whole_number_may_be_written_with_a_point() {
        let mut caller = Caller::new();
        caller.hello("2025-11-25").await;
        let budget = json!({"keep": {"mode": "head", "n": 3.0}, "max_chars": 1e3,
                            "grep": {"pattern": "2", "context": 1.0}});
        caller.tool("session_create", json!({"timeout_secs": 60.0, "output_budget": budget})).await;
        let ran = caller.tool("session_exec", json!({"session_id": "1_local", "command": "seq 9"})).await;
        assert_eq!(ran["structuredContent"]["stdout"], "1\n2\n3\n", "{ran}");
        let page = json!({"session_id": "1_local", "call": 1.0, "offset": 2.0, "limit": 4.0});
        let page = caller.tool("session_output", page).await;
        assert_eq!(page["structuredContent"]["text"], "2\n3\n", "{page}");
        let half = caller.tool("session_output", json!({"session_id": "1_local", "call": 1.5})).await;
        assert!(half["content"][0]["text"].as_str().unwrap().starts_with("EINVAL: call: "), "{half}");
        caller.host.shutdown().await;
    }

    #[tokio::test]
    async fn params_that_do_not_fit_are_told_from_a_method_that_is_not_there() {
        let mut caller = Caller::new();
        caller.hello("2025-11-25").await;
        for (method, params, code) in [
            ("tools/call", json!({}), -32602),
            ("tools/call", json!({"name": 7}), -32602),
            ("tools/call", json!({"name": "session_list", "arguments": 7}), -32602),
            ("tools/call", json!({"name": "session_sudo"}), -32602),
            ("tools/sell", json!({}), -32601),
        ] {
            let answer = caller.ask(method, params.clone()).await;
            assert_eq!(answer["error"]["code"], code, "{method} {params}: {answer}");
        }
        caller.host.shutdown().await;
    }

    #[tokio::test]
    async fn a_cancelled_request_stops_its_command() {
        let mut caller = Caller::new();
        caller.hello("2025-06-18").await;
        caller.tool("session_create", json!({})).await;
        let arguments = json!({"session_id": "1_local", "command": "sleep 300"});
        let call = json!({"name": "session_exec", "arguments": arguments});
        caller.say(json!({"jsonrpc": "2.0", "id": 77, "method": "tools/call", "params": call})).await;
        caller
            .say(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 77}}))
            .await;
        let after =
            caller.tool("session_exec", json!({"session_id": "1_local", "command": "echo free"})).await;
        assert_eq!(after["structuredContent"]["stdout"], "free\n");
        caller.host.shutdown().await;
    }
}
