//! `ctx checkpoints`: lists the checkpoints of a session, or shows one.

use std::io::Write;

use ctx_api::http::{Checkpoint, List, PendingToolCall, Session, SubagentSnapshot};
use ctx_session::{CheckpointId, SessionId, Timestamp};

use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{ids, sessions, table, words};

/// List the checkpoints of a session, or show one
///
/// Lists the checkpoints, newest last. With an id, shows one: its reason, the tool calls in flight, the prompts
/// and the compaction that waits for review.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx checkpoints coder           the current session
  ctx checkpoints coder 01K9Y     one checkpoint
  ctx checkpoints coder --archived --json

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// Show this checkpoint; an id or the beginning or end of an id
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: Option<String>,
    /// List the archived checkpoints instead: those beyond the newest 50
    #[arg(long, conflicts_with = "checkpoint")]
    archived: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
    if let Some(word) = &args.checkpoint {
        let one: Checkpoint = api.get(&format!("/sessions/{id}/checkpoints/{}", find(&api, id, word)?))?;
        return if args.json { output::json(&one) } else { show(&one) };
    }
    let listed = all(&api, id, args.archived)?;
    if args.json {
        return listed.iter().try_for_each(output::json);
    }
    let current = api.get::<Session>(&format!("/sessions/{id}"))?.checkpoint;
    if listed.is_empty() {
        output::say("no checkpoints; `ctx pause` creates one while a run is in progress");
    }
    let (now, paint) = (words::now(), Paint::for_stdout());
    let rows = listed.iter().map(|one| {
        let state = state(one, current);
        let painted = if state == "paused here" { paint.yellow(state) } else { state.to_owned() };
        vec![
            table::Cell::new(one.id.to_string()),
            table::Cell::new(words::age(now, Timestamp::from_millis(one.created_at))),
            table::Cell::new(one.created_by.clone()),
            table::Cell::painted(state, painted),
            table::Cell::new(output::one_line(one.reason.as_deref().unwrap_or_default())),
        ]
    });
    let text = table::render(
        &["CHECKPOINT", "AGE", "BY", "STATE", "REASON"],
        rows.collect(),
        output::width(),
        paint,
    );
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// In a word or two.
fn state(one: &Checkpoint, current: Option<CheckpointId>) -> &'static str {
    if current == Some(one.id) {
        return "paused here";
    }
    match (one.superseded_by, one.rolled_back, one.resumed_at) {
        (Some(_), _, _) => "superseded",
        (None, true, _) => "rolled back to",
        (None, false, Some(_)) => "resumed",
        (None, false, None) => "left",
    }
}

/// Every checkpoint of a session, page by page, oldest first.
pub fn all(api: &Api<'_>, id: SessionId, archived: bool) -> Result<Vec<Checkpoint>, Failure> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/sessions/{id}/checkpoints?limit=1000&archived={archived}{cursor}");
        let page: List<Checkpoint> = api.get(&path)?;
        all.extend(page.items);
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(all),
        }
    }
}

/// The checkpoint that an id, or the beginning of one, means.
pub fn find(api: &Api<'_>, id: SessionId, word: &str) -> Result<CheckpointId, Failure> {
    if let Ok(whole) = word.parse() {
        return Ok(whole);
    }
    let mut known = all(api, id, true)?;
    known.extend(all(api, id, false)?);
    let found =
        ids::one(known, |one| one.id.to_string(), word, ("checkpoint", "`ctx checkpoints` lists them"))?;
    Ok(found.id)
}

/// All that is known of one, for a person.
fn show(one: &Checkpoint) -> Result<(), Failure> {
    let paint = Paint::for_stdout();
    let mut out = output::stdout();
    let date = |millis: u64| words::date_time(Timestamp::from_millis(millis));
    writeln!(out, "{} {}", paint.bold("checkpoint"), one.id)?;
    writeln!(out, "run        {}", one.run_id)?;
    writeln!(out, "made       {} by {}", date(one.created_at), one.created_by)?;
    if let Some(reason) = &one.reason {
        writeln!(out, "reason     {}", output::plain(reason))?;
    }
    if let Some(message) = one.message_history_cursor {
        writeln!(out, "message    {message}")?;
    }
    if let Some(resumed) = one.resumed_at {
        writeln!(out, "resumed    {}", date(resumed))?;
    }
    if one.rolled_back {
        writeln!(out, "rolled back to")?;
    }
    if let Some(other) = one.superseded_by {
        writeln!(out, "superseded by a rollback to {other}")?;
    }
    for call in one.pending_tool_calls.iter().flatten() {
        writeln!(out, "tool call  {}", line(call))?;
    }
    for subagent in &one.active_subagents {
        writeln!(out, "subagent   {}", of_subagent(subagent))?;
    }
    for prompt in &one.prompts_in_effect {
        writeln!(out, "prompt     {} {}", prompt.target, words::shorten(&prompt.content_hash, 12))?;
    }
    for edit in &one.prompt_edits {
        let hash = words::shorten(&edit.new_hash, 12);
        writeln!(out, "edited     {} {hash} at {} by uid {}", edit.target, date(edit.at), edit.by)?;
    }
    if let Some(compaction) = &one.compaction {
        let effect =
            words::compaction(compaction.superseded_message_ids.len(), compaction.elided_call_ids.len());
        writeln!(out, "compaction {} is {}: {effect}", compaction.id, compaction.state)?;
    }
    out.flush()?;
    Ok(())
}

/// A subagent as the pause found it, on one line.
pub fn of_subagent(kept: &SubagentSnapshot) -> String {
    let output = words::shorten(&output::one_line(&kept.last_output), 120);
    let output = if output.is_empty() { output } else { format!(": {output}") };
    let cage = kept.cage_id.as_ref().map(|cage| format!(" in cage {}", output::one_line(cage)));
    format!("{} {}{}{output}", output::one_line(&kept.name), kept.state, cage.unwrap_or_default())
}

fn line(call: &PendingToolCall) -> String {
    let input = words::shorten(&call.input.to_string(), 60);
    format!("{} {} {}", output::plain(&call.name), output::plain(&input), call.state)
}
