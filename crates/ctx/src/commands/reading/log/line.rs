//! Formats a record as one readable line. Pure.

use ctx_api::model::in_api;
use ctx_journal::{Entry, LOST};
use ctx_session::record::{
    ApprovalBody, ApprovalScope, Approvals, Body, CheckpointBody, CompactionBody, Decoded, FinishReason,
    MessageBody, Redact, RunBody, RunCreated, RunKind, SessionBody, SubagentBody, SubagentState,
    TerminalBody, ToolBody, ToolStatus,
};
use serde::Serialize;

use crate::output::{self, Paint};
use crate::{waits, words};

/// Longest piece of text in a line.
const TEXT_MAX: usize = 120;

/// Whether no record can follow this one.
pub fn is_end(entry: &Entry) -> bool {
    match Body::decode(&entry.kind, &entry.text) {
        Decoded::Known(Body::Session(SessionBody::StateChanged(change))) => change.to.is_over(),
        Decoded::Known(_) | Decoded::Unknown | Decoded::Malformed(_) => false,
    }
}

/// `2026-11-15 06:00:00 #12 user "hello"`.
pub fn readable(entry: &Entry, paint: Paint) -> String {
    let when = paint.dim(&words::date_time(entry.time));
    let seq = paint.dim(&format!("#{}", entry.seq));
    let what = match Body::decode(&entry.kind, &entry.text) {
        Decoded::Known(body) => describe(&body, paint),
        Decoded::Unknown if entry.kind == LOST => paint.yellow(&lost(entry)),
        Decoded::Unknown => paint.dim(&format!("{} (written by a newer ctx)", entry.kind)),
        Decoded::Malformed(why) => paint.red(&format!("{} (cannot be read: {why})", entry.kind)),
    };
    output::unturned(&format!("{when} {seq} {what}"))
}

/// What a repair has left in place of records that are gone.
fn lost(entry: &Entry) -> String {
    let through = serde_json::from_str::<serde_json::Value>(&entry.text).ok();
    let through = through.and_then(|record| record.get("through")?.as_u64()).unwrap_or(entry.seq);
    match through == entry.seq {
        true => format!("record {through} is lost; `ctx repair` put this in its place"),
        false => format!("records {} to {through} are lost; `ctx repair` put this in their place", entry.seq),
    }
}

/// What a subagent says or does, with its name before it.
fn describe(body: &Body, paint: Paint) -> String {
    match body.caller() {
        Some(caller) => format!("{} {}", paint.bold(&safe(&caller.name)), describe_plain(body, paint)),
        None => describe_plain(body, paint),
    }
}

fn describe_plain(body: &Body, paint: Paint) -> String {
    match body {
        Body::Session(SessionBody::Bound(_) | SessionBody::Unbound(_)) => {
            describe_control(body, paint).unwrap_or_default()
        }
        Body::Session(body) => describe_session(body, paint),
        Body::Run(body) => describe_run(body, paint),
        Body::Message(MessageBody::User(user)) => {
            let images: String =
                user.images.iter().map(|image| format!(" {}", safe(&image.in_words()))).collect();
            format!("{} {}{images}", paint.cyan("user"), quote(&user.text))
        }
        Body::Message(MessageBody::AssistantStarted(started)) => {
            format!("assistant began, step {}", started.step)
        }
        Body::Message(MessageBody::AssistantFinished(done)) if done.text.is_empty() => {
            "assistant called tools".to_owned()
        }
        Body::Message(MessageBody::AssistantFinished(done)) => {
            let cut = if done.finish_reason == FinishReason::Length {
                " [cut off at the output limit]"
            } else {
                ""
            };
            format!("{} {}{cut}", paint.green("assistant"), quote(&done.text))
        }
        Body::Message(MessageBody::ReasoningFinished(done)) => {
            paint.dim(&format!("reasoning {}", quote(&done.text)))
        }
        Body::Tool(ToolBody::Started(tool)) => {
            format!("→ {} {}", tool.name, words::shorten(&tool.input.to_string(), TEXT_MAX))
        }
        Body::Tool(ToolBody::Finished(tool)) => {
            let status = match tool.status {
                ToolStatus::Ok => "ok".to_owned(),
                ToolStatus::Error => paint.red("error"),
                ToolStatus::Interrupted => paint.yellow("interrupted"),
                ToolStatus::Skipped => paint.yellow("skipped"),
            };
            let what = tool.summary.as_ref().map(words::summary).unwrap_or_default();
            format!("← {status} after {} ms{what} {}", tool.duration_ms, quote(&tool.output))
        }
        Body::Message(MessageBody::System(note)) => format!("{} {}", paint.dim("system"), quote(&note.text)),
        Body::Subagent(body) => describe_subagent(body, paint),
        Body::Terminal(body) => describe_terminal(body),
        Body::Checkpoint(_)
        | Body::Compaction(_)
        | Body::Approval(_)
        | Body::Tool(ToolBody::Pending(_))
        | Body::Message(MessageBody::Pinned(_)) => describe_control(body, paint).unwrap_or_default(),
    }
}

fn describe_session(body: &SessionBody, paint: Paint) -> String {
    match body {
        SessionBody::Meta(meta) => {
            let with = meta.agent.as_ref().map_or("a model".to_owned(), ToString::to_string);
            format!("session {} with {with}, {} ({})", meta.name, in_api(&meta.model), meta.session_id)
        }
        SessionBody::StateChanged(change) => {
            let limit = change.limit.map(|limit| format!(", {} of {} run", limit.running, limit.limit));
            let why = change.trigger.as_str();
            format!("{} → {} ({why}{})", change.from, change.to, limit.unwrap_or_default())
        }
        SessionBody::Renamed(renamed) => format!("title {}", quote(&renamed.title)),
        SessionBody::ModelSet(set) => {
            format!("model {}", set.model.as_deref().unwrap_or("as the agent has it"))
        }
        SessionBody::CwdChanged(changed) => format!("cwd {}", safe(&changed.cwd)),
        SessionBody::Attached(attached) => format!("uid {} attached", attached.user),
        SessionBody::Detached(gone) => {
            format!("uid {} detached: {}", gone.user, word(&gone.reason))
        }
        SessionBody::Archived(away) => (if away.archived { "archived" } else { "brought back" }).to_owned(),
        SessionBody::Imported(import) if !import.restored.is_empty() => {
            format!("{} records imported, {} messages count again", import.records, import.restored.len())
        }
        SessionBody::Imported(import) => format!("{} records imported", import.records),
        SessionBody::ImportUndone(undone) => {
            format!("import taken back: {} messages no longer count", undone.superseded.len())
        }
        SessionBody::Requested(_) => "asked for with a key: done once".to_owned(),
        SessionBody::Forked(_) => "forked: from here on a session of its own".to_owned(),
        SessionBody::Failed(failure) => {
            let what = format!("session failed: {} {}", failure.code, failure.reason);
            paint.red(&format!("{what}: {}", safe(&failure.message)))
        }
        // What belongs to the control of a session is described there.
        SessionBody::Bound(_) | SessionBody::Unbound(_) => String::new(),
    }
}

fn describe_run(body: &RunBody, paint: Paint) -> String {
    match body {
        RunBody::Context(context) => {
            let asked = match context.approvals {
                Some(Approvals::Allow) => ", everything is allowed (--yes)",
                Some(Approvals::Deny) => ", what needs an approval is denied (no terminal)",
                None => "",
            };
            let shown = if context.redact == Some(Redact::Off) { ", secrets are not redacted" } else { "" };
            format!("context: {} in {}{asked}{shown}", in_api(&context.model), context.cwd)
        }
        RunBody::Created(run) => format!("run {} created{}", run.turn_id, purpose(run)),
        RunBody::Finished(end) => {
            let (read, written) = (end.usage.input, end.usage.output);
            let why = end.finish_reason.map(|why| format!(", {}", word(&why))).unwrap_or_default();
            let cost = match end.usage.cost_nano_usd {
                0 => String::new(),
                _ => format!(", {}", end.usage.cost()),
            };
            format!("run done after {} ms, {read} tokens in, {written} out{cost}{why}", end.duration_ms)
        }
        RunBody::Retrying(retry) => {
            paint.yellow(&waits::retrying(&retry.message, retry.attempt, retry.attempts_max, retry.wait_ms))
        }
        RunBody::Noticed(noticed) => paint.yellow(&safe(&noticed.message)),
        RunBody::Cancelled(end) => paint.yellow(&format!("run cancelled: {}", word(&end.reason))),
        RunBody::Failed(end) => {
            paint.red(&format!("run failed: {} {}: {}", end.code, end.reason, safe(&end.message)))
        }
        RunBody::QueuedDiscarded(discarded) => {
            format!("queued message {} discarded", discarded.message_id)
        }
    }
}

/// What a run is for, where no message says it.
fn purpose(run: &RunCreated) -> String {
    match (run.kind, run.continues) {
        (RunKind::Message, _) => String::new(),
        (RunKind::Compaction, _) => " to compact".to_owned(),
        (RunKind::Continuation, Some(before)) => format!(" to go on with {before}"),
        (RunKind::Continuation, None) => " to go on".to_owned(),
    }
}

fn describe_subagent(body: &SubagentBody, paint: Paint) -> String {
    match body {
        SubagentBody::Spawned(spawned) => {
            let (name, model) = (paint.bold(&safe(&spawned.name)), safe(&in_api(&spawned.model)));
            let limits = words::subagent_limits(spawned);
            format!("subagent {name} spawned with {model} ({limits}): {}", quote(&spawned.prompt))
        }
        SubagentBody::Running(running) => {
            let cage = running.cage_id.as_deref().map(|cage| format!(" in cage {}", safe(cage)));
            format!("subagent {} running{}", paint.bold(&safe(&running.name)), cage.unwrap_or_default())
        }
        SubagentBody::Exited(exited) => {
            let state = match exited.state {
                SubagentState::Done => "done".to_owned(),
                state => paint.red(state.as_str()),
            };
            let why = exited.message.as_deref().map(|why| format!(": {}", safe(why))).unwrap_or_default();
            let name = paint.bold(&safe(&exited.name));
            format!("subagent {name} {state} after {} ms{why}", exited.duration_ms)
        }
    }
}

/// What the operator does with a session; nothing for any other record.
fn describe_control(body: &Body, paint: Paint) -> Option<String> {
    let line = match body {
        Body::Tool(ToolBody::Pending(tool)) => {
            let input = words::shorten(&tool.input.to_string(), TEXT_MAX);
            paint.yellow(&format!("⏸ {} {input}", tool.name))
        }
        Body::Checkpoint(CheckpointBody::Created(made)) => {
            let reason =
                made.reason.as_deref().map(|reason| format!(": {}", safe(reason))).unwrap_or_default();
            let by = made.created_by.as_str();
            paint.yellow(&format!("checkpoint {} by {by}{reason}", made.checkpoint_id))
        }
        Body::Checkpoint(CheckpointBody::PromptEdited(edit)) => {
            format!("prompt of {} edited: {}", safe(&edit.target), edit.new_hash)
        }
        Body::Checkpoint(CheckpointBody::Resumed(resumed)) => {
            let edited: Vec<String> = resumed.prompts.iter().map(|prompt| safe(&prompt.target)).collect();
            let with =
                if edited.is_empty() { String::new() } else { " with an edited prompt of ".to_owned() };
            format!("checkpoint {} resumed{with}{}", resumed.checkpoint_id, edited.join(", "))
        }
        Body::Checkpoint(CheckpointBody::RolledBack(back)) => {
            let (gone, again) = (back.superseded.len(), back.restored.len());
            let what = format!("rolled back to {}", back.checkpoint_id);
            paint.yellow(&format!("{what}: {gone} messages superseded, {again} restored"))
        }
        Body::Compaction(CompactionBody::Recorded(made)) => {
            let what = if made.proposed { "compaction proposed" } else { "compacted" };
            let how = made.strategy.as_str();
            let effect = words::compaction(made.superseded_message_ids.len(), made.elided_call_ids.len());
            let (before, after) = (made.threshold_estimate * 100.0, made.after_estimate * 100.0);
            let line = format!("{what} by {how}: {effect}, from {before:.0} to {after:.0} % of the window");
            let summary = made.summary.as_deref().filter(|_| !made.proposed);
            line + &summary.map(|summary| format!(", {}", quote(summary))).unwrap_or_default()
        }
        Body::Compaction(CompactionBody::Approved(approved)) => {
            let effect =
                words::compaction(approved.superseded_message_ids.len(), approved.elided_call_ids.len());
            let summary = approved.summary.as_deref().map(|summary| format!(", {}", quote(summary)));
            let summary = summary.unwrap_or_default();
            format!("compaction {} approved: {effect}{summary}", approved.compaction_id)
        }
        Body::Compaction(CompactionBody::Rejected(no)) => format!("compaction {} rejected", no.compaction_id),
        Body::Compaction(CompactionBody::Flagged(said)) => {
            let flag = said.flag.map(|flag| word(&flag)).unwrap_or_else(|| "nothing".to_owned());
            format!("compaction {} flagged {flag}", said.compaction_id)
        }
        Body::Compaction(CompactionBody::Aggregated(all)) => {
            format!("{} older compactions are listed as one", all.count)
        }
        Body::Approval(ApprovalBody::Requested(ask)) => {
            let on = ask.subject.as_deref().map(|on| format!(" on {}", safe(on))).unwrap_or_default();
            paint.yellow(&format!("approval {} wanted for {}{on}", ask.approval_id, safe(&ask.tool)))
        }
        Body::Approval(ApprovalBody::Settled(end)) => {
            let scope = if end.scope == ApprovalScope::Session { " until the session ends" } else { "" };
            format!("approval {}: {}{scope}", end.approval_id, end.outcome.as_str())
        }
        Body::Session(SessionBody::Bound(bound)) => format!("bound to issue {}", bound.issue_id),
        Body::Session(SessionBody::Unbound(bound)) => format!("unbound from issue {}", bound.issue_id),
        Body::Message(MessageBody::Pinned(pin)) => {
            format!("message {} {}", pin.message_id, if pin.pinned { "pinned" } else { "unpinned" })
        }
        _ => return None,
    };
    Some(line)
}

/// A closed word as the log writes it.
fn word(value: &impl Serialize) -> String {
    let text = serde_json::to_value(value).ok().and_then(|value| value.as_str().map(str::to_owned));
    text.unwrap_or_default().replace('_', " ")
}

fn quote(text: &str) -> String {
    format!("\"{}\"", words::shorten(text, TEXT_MAX))
}

fn safe(text: &str) -> String {
    words::shorten(&output::plain(text), TEXT_MAX)
}

fn describe_terminal(body: &TerminalBody) -> String {
    match body {
        TerminalBody::Opened(opened) => {
            let by = opened.caller.as_ref().map(|by| format!(" by {}", safe(&by.name))).unwrap_or_default();
            format!("terminal {} opened{by}: {}", opened.pty_id, safe(&opened.command.join(" ")))
        }
        TerminalBody::Closed(closed) => {
            let code = closed.exit_code.map(|code| format!(", exit code {code}")).unwrap_or_default();
            let lines = closed.transcript_lines;
            format!("terminal {} closed: {}{code}, {lines} lines", closed.pty_id, closed.reason.as_str())
        }
        TerminalBody::Reattached(back) => {
            format!(
                "terminal {} attached again, {} lines above its screen",
                back.pty_id, back.scrollback_lines
            )
        }
    }
}
