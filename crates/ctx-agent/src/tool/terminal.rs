//! `terminal.open`, `write`, `read`, `close`: programs that need a terminal, in the agent's cage.
//!
//! An agent uses the terminals that agents of its session have opened, never those of the operator, which may be in no cage.

use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

use ctx_session::port::{OpenTerminal, TerminalStart};
use ctx_session::record::ToolSummary;
use ctx_session::{Code, Refusal, SessionId, Timestamp};
use ctx_terminal::{
    CursorKeys, NewTerminal, OfSession, Size, State, Terminal, TerminalError, Terminals, Waiting, typed,
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Output, Plan, Scope, Tool, ToolError, Work, arguments, blocking};
use crate::control::policy::Effects;
use crate::model::ToolSpec;
use crate::shells::{AgentShells, ShellWant};

const SIZE: Size = Size { cols: 80, rows: 24 };

/// A terminal of a session, and in what it runs.
#[derive(Debug)]
pub struct Wanted {
    pub session: SessionId,
    pub want: ShellWant,
    pub name: Option<String>,
    pub command: Vec<String>,
    pub size: Size,
    pub is_agents: bool,
    pub now: fn() -> Timestamp,
}

/// How to start it under the id that its session's log gives it.
pub fn starter(
    terminals: Arc<Terminals>,
    shells: &AgentShells,
    wanted: Wanted,
) -> Result<TerminalStart, Refusal> {
    let Wanted { session, want, name, command, size, is_agents, now } = wanted;
    let cage = want.cage.map(|cage| shells.ready(&cage).map(|bwrap| (cage, bwrap))).transpose()?;
    Ok(Box::new(move |id| {
        let of = OfSession { id: id.0, session, is_agents, cage };
        let (cwd, created_at) = (Some(want.cwd), now());
        let new = NewTerminal { name, command, cwd, env: None, size, created_at, of: Some(of) };
        terminals.open(want.uid, new).map(drop).map_err(|error| refusal(&error))
    }))
}

fn refusal(error: &TerminalError) -> Refusal {
    Refusal::new(error.code(), error.to_string())
}

#[derive(Debug)]
pub struct TerminalOpen;

#[derive(Debug)]
pub struct TerminalWrite;

#[derive(Debug)]
pub struct TerminalRead;

#[derive(Debug)]
pub struct TerminalClose;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenInput {
    command: String,
    #[serde(default)]
    cols: Option<u16>,
    #[serde(default)]
    rows: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteInput {
    id: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    keys: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IdInput {
    id: String,
}

fn spec(name: &str, description: &str, properties: Value, required: &[&str]) -> ToolSpec {
    let schema = json!({
        "type": "object", "properties": properties, "required": required, "additionalProperties": false
    });
    ToolSpec { name: name.to_owned(), description: description.to_owned(), schema }
}

impl Tool for TerminalOpen {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "command": {"type": "string", "description": "run by sh: an editor, a REPL, a program that asks"},
            "cols": {"type": "integer", "minimum": 2, "maximum": 1000, "description": "default 80"},
            "rows": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "default 24"}
        });
        let description = "Starts a program that needs a terminal, in one of its own, and returns the terminal's id. It goes on \
                           between your calls; the operator sees it too. For plain commands use shell.exec.";
        spec("terminal.open", description, properties, &["command"])
    }

    fn effects(&self) -> Effects {
        Effects::Some
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let input: OpenInput = arguments(&self.spec(), input)?;
        let want = scope.shell.want.clone()?;
        let missing = || ToolError::new(Code::Ehostdown, "this daemon has no terminals for agents");
        let shells = scope.services.shells.as_deref().ok_or_else(missing)?;
        let wanted = Wanted {
            session: scope.session,
            name: None,
            command: ["/bin/sh", "-c", &input.command].map(str::to_owned).to_vec(),
            size: Size::new(input.cols.unwrap_or(SIZE.cols), input.rows.unwrap_or(SIZE.rows)),
            is_agents: true,
            now: scope.services.now.ok_or_else(missing)?,
            want,
        };
        let open =
            OpenTerminal { name: None, command: wanted.command.clone(), caged: wanted.want.cage.is_some() };
        let start = starter(Arc::clone(terminals(scope)?), shells, wanted)?;
        Ok(Plan::new(vec![input.command], Work::Terminal(open, start)))
    }
}

impl Tool for TerminalWrite {
    fn spec(&self) -> ToolSpec {
        let properties = json!({
            "id": {"type": "string"},
            "text": {"type": "string", "description": "typed as it is"},
            "keys": {"type": "array", "items": {"type": "string"},
                "description": "keys after it: Enter, Tab, Escape, Up, PageUp, F5, C-c, M-x, S-Tab, or a character"}
        });
        spec("terminal.write", "Types into a terminal that you have opened.", properties, &["id"])
    }

    fn effects(&self) -> Effects {
        Effects::Some
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let input: WriteInput = arguments(&self.spec(), input)?;
        typed(&input.text, &input.keys, CursorKeys::Normal).map_err(|error| refusal(&error))?;
        let subject = [vec![input.text.clone()], input.keys.clone()].concat().join(" ");
        let scope = Arc::clone(scope);
        let work = blocking(move || {
            let (uid, found) = find(&scope, &input.id)?;
            let typed = terminals(&scope)?.send(uid, &found, &input.text, &input.keys);
            typed.map_err(|error| refusal(&error))?;
            Ok("typed; terminal.read shows the screen".to_owned().into())
        });
        Ok(Plan::new(vec![subject], work))
    }
}

impl Tool for TerminalRead {
    fn spec(&self) -> ToolSpec {
        let properties = json!({"id": {"type": "string"}});
        spec("terminal.read", "Reads the screen of a terminal that you have opened.", properties, &["id"])
    }

    fn effects(&self) -> Effects {
        Effects::None
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let IdInput { id } = arguments(&self.spec(), input)?;
        let (subject, scope) = (id.clone(), Arc::clone(scope));
        let work = blocking(move || {
            let (uid, found) = find(&scope, &id)?;
            let screen = terminals(&scope)?.screen(uid, &found).map_err(|error| refusal(&error))?;
            let mut text = screen.text;
            let (row, col) = (screen.cursor.row + 1, screen.cursor.col + 1);
            let _ = write!(text, "\n[{}; cursor at row {row}, column {col}]", state(&found));
            Ok(text.into())
        });
        Ok(Plan::new(vec![subject], work))
    }
}

impl Tool for TerminalClose {
    fn spec(&self) -> ToolSpec {
        let properties = json!({"id": {"type": "string"}});
        let description = "Ends the program of a terminal that you have opened, and returns its exit code.";
        spec("terminal.close", description, properties, &["id"])
    }

    fn effects(&self) -> Effects {
        Effects::None
    }

    fn plan(&self, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
        let IdInput { id } = arguments(&self.spec(), input)?;
        let (subject, scope) = (id.clone(), Arc::clone(scope));
        let work = blocking(move || {
            let (uid, found) = find(&scope, &id)?;
            let closed = terminals(&scope)?.close(uid, &found.about.id.to_string());
            let closed = closed.map_err(|error| refusal(&error))?;
            let exit_code = closed.end.as_ref().and_then(|end| end.exit_code);
            let summary = ToolSummary { exit_code, ..ToolSummary::default() };
            Ok(Output { text: format!("[{}]", state(&closed)), diff: None, summary })
        });
        Ok(Plan::new(vec![subject], work))
    }
}

fn state(terminal: &Terminal) -> String {
    let exit_code = terminal.end.as_ref().and_then(|end| end.exit_code);
    match (terminal.state, exit_code, terminal.status.as_ref().and_then(|status| status.waiting)) {
        (State::Closed, Some(code), _) => format!("exited with code {code}"),
        (State::Closed, None, _) => "closed".to_owned(),
        (_, _, Some(Waiting::Bell)) => "it rings".to_owned(),
        (_, _, Some(Waiting::Input)) => "silent; it may wait for input".to_owned(),
        (_, _, None) => "busy".to_owned(),
    }
}

fn terminals(scope: &Scope) -> Result<&Arc<Terminals>, ToolError> {
    let terminals = scope.services.terminals.as_ref();
    terminals.ok_or_else(|| ToolError::new(Code::Ehostdown, "this daemon has no terminals for agents"))
}

/// A terminal that this session's agents have opened, and whose it is.
fn find(scope: &Scope, id: &str) -> Result<(u32, Terminal), ToolError> {
    let uid = scope.shell.want.as_ref().map_err(Clone::clone)?.uid;
    let missing = || ToolError::new(Code::Enoent, format!("you have opened no terminal `{id}`"));
    let id: ctx_session::Ulid = id.parse().map_err(|_| missing())?;
    let found = terminals(scope)?.find(uid, &id.to_string()).map_err(|_| missing())?;
    let is_ours = found.about.session == Some(scope.session) && found.about.is_agents;
    is_ours.then_some((uid, found)).ok_or_else(missing)
}

/// Where an operator's terminal of a session runs that is in no cage.
pub fn uncaged(uid: u32, dir: Option<PathBuf>, home: Option<PathBuf>) -> ShellWant {
    let cwd = dir.or_else(|| home.clone()).unwrap_or_else(|| PathBuf::from("/"));
    ShellWant { cage: None, uid, cwd, home, host: None }
}
