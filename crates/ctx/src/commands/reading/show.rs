//! `ctx show`: formats a conversation for reading in a terminal.

use std::io::{IsTerminal, Write};
use std::ops::ControlFlow;
use std::path::Path;

use ctx_api::http::{Checkpoint, Session};
use ctx_journal::{Entry, Journal};
use ctx_session::project::DEFAULT_PROJECT;
use ctx_session::record::{CompactionBody, Decoded, MessageBody, PluginCost, RunBody, SubagentBody, Usage};
use ctx_session::{Body, Code, StateName};
use ctx_views::read::SessionRef;

use crate::client::Api;
use crate::commands::revise::checkpoints;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::render::Transcript;
use crate::render::pager::{Paged, Pager};
use crate::render::terminal::{Look, show};
use crate::root::Root;
use crate::words::{self, Clock};
use crate::{said, sessions};

/// Width of lines where the terminal does not say, and at most: longer ones are hard to read.
const WIDTH: usize = 80;
const WIDTH_MAX: usize = 100;

/// Show a conversation, formatted for reading
///
/// Formats Markdown, folds long tool output and, on a terminal, opens a pager ($PAGER, or less). In a pipe the
/// output is plain text. It needs no daemon.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx show coder                  the current session
  ctx show coder/fix-tests --full
  ctx show --context coder        what its last run worked under
  PAGER=cat ctx show 01K9X

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION", default_value = sessions::HERE, hide_default_value = true)]
    session: String,
    /// Show tool output in full, and messages removed from context
    #[arg(long)]
    full: bool,
    /// Show what the last run worked under instead: model, directory, instruction files, prompts, policy
    #[arg(long)]
    context: bool,
    /// Show times in UTC, not in local time
    #[arg(long)]
    utc: bool,
    /// Print without a pager
    #[arg(long)]
    no_pager: bool,
    /// Print the session as JSON, then a line for each message
    #[arg(long, conflicts_with = "context")]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let reader = root.reader()?;
    let session = sessions::find(&reader, &args.session)?;
    if args.context {
        return show_context(root, &session);
    }
    if args.json {
        return show_json(root, &session, args.full);
    }
    let transcript = Transcript::open(&reader, &session)?;
    let on_terminal = std::io::stdout().is_terminal();
    let look = Look {
        paint: Paint::for_stdout(),
        width: on_terminal.then(|| output::width().unwrap_or(WIDTH).min(WIDTH_MAX)),
        full: args.full,
        stale: is_stale(root, &transcript),
        clock: Clock::new(args.utc),
        usage: usage(root, &session)?,
    };
    let pager = if on_terminal && !args.no_pager { Pager::open() } else { None };
    if let Some(mut pager) = pager {
        let shown = show(&transcript, look, &mut pager)
            .and_then(|()| subagents(root, &session, &mut pager))
            .and_then(|()| paused(root, &transcript, &mut pager));
        match (pager.close()?, shown) {
            // Whoever has read enough quits, and the rest is not wanted.
            (Paged::Shown, Err(Failure::ReaderGone)) => return Ok(()),
            (Paged::Shown, shown) => return shown,
            (Paged::NotRun, _) => {}
        }
    }
    let mut out = output::stdout();
    show(&transcript, look, &mut out)?;
    subagents(root, &session, &mut out)?;
    paused(root, &transcript, &mut out)?;
    out.flush()?;
    Ok(())
}

/// The API's objects: the session, and its messages.
fn show_json(root: &Root, session: &SessionRef, all: bool) -> Result<(), Failure> {
    let reader = root.reader()?;
    let mut out = output::stdout();
    writeln!(out, "{}", super::ls::json_of(root, reader.summary(session)?)?)?;
    for message in said::messages(&reader, session, all)? {
        writeln!(out, "{}", output::json_line(&message?)?)?;
    }
    out.flush()?;
    Ok(())
}

/// What the session's model calls have cost, by its log.
fn usage(root: &Root, session: &SessionRef) -> Result<Usage, Failure> {
    let mut sum = Usage::default();
    let add = &mut |entry: Entry| {
        if matches!(entry.kind.as_str(), "assistant_finished" | "compaction") {
            sum = match Body::decode(&entry.kind, &entry.text) {
                Decoded::Known(Body::Message(MessageBody::AssistantFinished(message))) => {
                    sum.plus(message.usage.unwrap_or_default())
                }
                Decoded::Known(Body::Compaction(CompactionBody::Recorded(made))) => {
                    sum.plus(made.plugin_cost.as_ref().map(PluginCost::usage).unwrap_or_default())
                }
                _ => sum,
            };
        }
        ControlFlow::Continue(())
    };
    root.journal()?.read(&session.log()?, 0, add).map_err(ctx_views::ViewError::from)?;
    Ok(sum)
}

/// What the newest `context` record says.
fn show_context(root: &Root, session: &SessionRef) -> Result<(), Failure> {
    let mut found = None;
    let look = &mut |entry: Entry| match Body::decode(&entry.kind, &entry.text) {
        Decoded::Known(Body::Run(RunBody::Context(context))) => {
            found = Some(context);
            ControlFlow::Break(())
        }
        _ => ControlFlow::Continue(()),
    };
    root.journal()?.read_back(&session.log()?, look).map_err(ctx_views::ViewError::from)?;
    let context = found.ok_or_else(|| Failure::new(Code::Enoent, "this session has had no run yet"))?;
    let (mut out, paint) = (output::stdout(), Paint::for_stdout());
    writeln!(out, "model      {}", output::one_line(&ctx_api::model::in_api(&context.model)))?;
    writeln!(out, "directory  {}", output::one_line(&context.cwd))?;
    let (servers, files): (Vec<_>, Vec<_>) =
        context.sources.iter().partition(|source| source.kind == "mcp_server");
    for source in files {
        let scope = source.scope.as_deref().map(|scope| format!(" ({})", output::one_line(scope)));
        let (path, scope) = (output::one_line(&source.path), scope.unwrap_or_default());
        let hash = source.hash.get(..12).unwrap_or(&source.hash);
        match &source.error {
            Some(error) => {
                let error = paint.red(&format!("not loaded: {}", output::one_line(error)));
                writeln!(out, "file       {path}{scope} {error}")?;
            }
            None => {
                let cut = if source.truncated { ", cut" } else { "" };
                writeln!(out, "file       {path}{scope} {hash}{cut}")?;
            }
        }
    }
    for server in servers {
        let hash = server.hash.get(..12).unwrap_or(&server.hash);
        let scope = server.scope.as_deref().unwrap_or_default();
        writeln!(out, "mcp        {} ({}) {hash}", output::one_line(&server.path), output::one_line(scope))?;
    }
    if let Some(tools) = tools_sent(&root.path.join(session.path())) {
        writeln!(out, "tools      {}", output::one_line(&tools.join(" ")))?;
    }
    for prompt in &context.prompts {
        let hash = prompt.hash.get(..12).unwrap_or(&prompt.hash);
        writeln!(out, "prompt     {} {hash}", output::one_line(&prompt.target))?;
    }
    if let Some(cage) = &context.cage {
        writeln!(out, "cage       {}", output::one_line(cage))?;
    }
    if let Some(approvals) = context.approvals {
        writeln!(out, "approvals  {approvals}")?;
    }
    for line in &context.policy {
        writeln!(out, "policy     {}", output::one_line(line))?;
    }
    out.flush()?;
    Ok(())
}

/// The subagents of the newest run: what they might use, their cages, and their ends.
fn subagents(root: &Root, session: &SessionRef, out: &mut impl Write) -> Result<(), Failure> {
    let mut found: Vec<SubagentBody> = Vec::new();
    let look = &mut |entry: Entry| match Body::decode(&entry.kind, &entry.text) {
        Decoded::Known(Body::Run(RunBody::Created(_))) => ControlFlow::Break(()),
        Decoded::Known(Body::Subagent(body)) => {
            found.push(body);
            ControlFlow::Continue(())
        }
        _ => ControlFlow::Continue(()),
    };
    root.journal()?.read_back(&session.log()?, look).map_err(ctx_views::ViewError::from)?;
    let paint = Paint::for_stdout();
    for spawned in found.iter().rev().filter_map(|body| match body {
        SubagentBody::Spawned(spawned) => Some(spawned),
        SubagentBody::Running(_) | SubagentBody::Exited(_) => None,
    }) {
        let cage = found.iter().find_map(|body| match body {
            SubagentBody::Running(one) if one.invocation_id == spawned.invocation_id => one.cage_id.clone(),
            _ => None,
        });
        let end = found.iter().find_map(|body| match body {
            SubagentBody::Exited(one) if one.invocation_id == spawned.invocation_id => Some(one),
            _ => None,
        });
        let state = end.map_or("at work", |end| end.state.as_str());
        let why =
            end.and_then(|end| end.message.as_deref()).map(|why| format!(": {}", output::one_line(why)));
        let cage = cage.map(|cage| format!(", cage {}", output::one_line(&cage)));
        let (name, limits) = (output::one_line(&spawned.name), words::subagent_limits(spawned));
        let line = format!(
            "subagent {name} {state} ({limits}{}){}",
            cage.unwrap_or_default(),
            why.unwrap_or_default()
        );
        writeln!(out, "{}", paint.dim(&line))?;
    }
    Ok(())
}

/// The tools that the last model call was offered, as `context/pack.json` has them.
fn tools_sent(dir: &Path) -> Option<Vec<String>> {
    let pack = std::fs::read(dir.join("context/pack.json")).ok()?;
    let pack: serde_json::Value = serde_json::from_slice(&pack).ok()?;
    let names = pack.get("tools")?.as_array()?.iter();
    Some(names.filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

/// Of a session that is paused: at which checkpoint, and how that found its subagents. Only the daemon knows.
fn paused(root: &Root, transcript: &Transcript<'_>, out: &mut impl Write) -> Result<(), Failure> {
    let meta = &transcript.summary.meta;
    if meta.state != StateName::Paused || !root.is_up() {
        return Ok(());
    }
    let api = Api::new(root);
    let Ok(session) = api.get::<Session>(&format!("/sessions/{}", meta.id)) else { return Ok(()) };
    let Some(id) = session.checkpoint else { return Ok(()) };
    let Ok(at) = api.get::<Checkpoint>(&format!("/sessions/{}/checkpoints/{id}", meta.id)) else {
        return Ok(());
    };
    let paint = Paint::for_stdout();
    writeln!(out, "{}", paint.yellow(&format!("paused at checkpoint {id}")))?;
    for subagent in &at.active_subagents {
        writeln!(out, "  subagent {}", checkpoints::of_subagent(subagent))?;
    }
    Ok(())
}

/// Only the daemon knows: it reads the project's file.
fn is_stale(root: &Root, transcript: &Transcript<'_>) -> bool {
    let meta = &transcript.summary.meta;
    if meta.project.as_str() == DEFAULT_PROJECT || !root.is_up() {
        return false;
    }
    let session = Api::new(root).get::<Session>(&format!("/sessions/{}", meta.id));
    session.is_ok_and(|session| session.stale)
}
