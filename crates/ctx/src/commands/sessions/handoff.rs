//! `ctx handoff`: writes a session into another agent's store, where that agent resumes it.

use std::io::Write;
use std::path::{Path, PathBuf};

use ctx_interop::Agent;
use ctx_interop::hand_over::hand_over;
use ctx_interop::write::{Handoff, said};
use ctx_session::record::{Body, ToolBody};
use ctx_session::{Code, Record, Session};
use serde_json::json;

use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions, words};

/// Hand a session on to another agent
///
/// Writes the conversation into the store of Codex, Claude Code or OpenCode as a new session, and prints the command
/// that resumes it there. Any session can be handed on: one of ctx, or one that was imported. The session itself does
/// not change, and nothing in the other agent's store does.
///
/// Messages, tool calls and their results go along. Text that nobody typed and the model's reasoning do not.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx handoff coder --to codex           the current session of coder
  ctx handoff claude/4c2b31bd-9abe-43c1-961e-a77fb4f6b12c --to codex
  eval \"$(ctx handoff coder --to claude)\"

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// The agent that goes on with it
    #[arg(long, value_name = "AGENT")]
    to: Target,
    /// The home directory that has the other agent's store [default: yours]
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Print the new session as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Target {
    Codex,
    Claude,
    Opencode,
}

impl Target {
    fn agent(self) -> Agent {
        match self {
            Target::Codex => Agent::Codex,
            Target::Claude => Agent::Claude,
            Target::Opencode => Agent::Opencode,
        }
    }
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let reader = root.reader()?;
    let found = sessions::find(&reader, &args.session)?;
    let session = reader.replay(&found)?;
    let mut records = reader.records(&found)?;
    // The other agent gets the whole output, which is beside the log.
    let outputs = reader.outputs(&found)?;
    for record in &mut records {
        if let Record { body: Body::Tool(ToolBody::Finished(tool)), .. } = record
            && let Some(whole) = outputs.whole(tool.call_id.0)
        {
            tool.output = whole?;
        }
    }
    let origin = |name: &str| session.meta.origin.as_ref()?.get(name)?.as_str().map(str::to_owned);
    let handoff = Handoff {
        cwd: directory(&session),
        title: session.title.clone().or_else(|| session.preview.clone()),
        branch: origin("branch"),
        model: origin("model"),
        at: words::now(),
        random: random()?,
        events: said(&records),
    };
    if handoff.events.is_empty() {
        return Err(Failure::new(Code::Einval, format!("{found} has no messages to hand on")));
    }
    let agent = args.to.agent();
    let home = home(agent, args.home)?;
    let handed =
        hand_over(agent, &home, &handoff).map_err(|error| Failure::io("cannot hand it on", error))?;
    if args.json {
        return output::json(&json!({
            "agent": agent, "native_id": handed.id, "path": handed.path, "cwd": handoff.cwd, "resume": handed.resume,
        }));
    }
    writeln!(std::io::stdout(), "cd {} && {}", quoted(&handoff.cwd), handed.resume.join(" "))?;
    output::say(format_args!("{found} is a session of {agent} now: {}", handed.path.display()));
    Ok(())
}

/// The directory on this machine that a session works in: an agent of ours sees it as another.
fn directory(session: &Session) -> String {
    let meta = &session.meta;
    let below = Path::new(&session.cwd).strip_prefix(ctx_agent::project::WORK).ok();
    match (&meta.workspace, below) {
        (Some(workspace), Some(below)) => {
            let path: PathBuf = Path::new(&workspace.directory).join(below).components().collect();
            path.display().to_string()
        }
        (None, Some(_)) if meta.origin.is_none() => meta.dir.clone().unwrap_or_else(|| session.cwd.clone()),
        _ => session.cwd.clone(),
    }
}

/// Where the agent keeps its sessions.
fn home(agent: Agent, given: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let variable = match agent {
        Agent::Codex => Some("CODEX_HOME"),
        Agent::Claude => Some("CLAUDE_CONFIG_DIR"),
        _ => None,
    };
    let set = variable.and_then(std::env::var_os).map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(PathBuf::from);
    given.or(set).or_else(home).ok_or_else(|| Failure::new(Code::Einval, "HOME is not set; use --home"))
}

/// A word for a shell.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

fn random() -> Result<u128, Failure> {
    let mut bytes = [0u8; 16];
    let broken = |error: rustix::io::Errno| Failure::io("random numbers", error.into());
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(broken)?;
    Ok(u128::from_le_bytes(bytes))
}
