//! `ctx compact`: starts compactions, lists them, and answers proposed ones.

use std::collections::BTreeMap;
use std::io::Write;

use clap::{Subcommand, ValueEnum};
use ctx_api::http::{
    Compaction, CompactionApproval, CompactionChange, CompactionRow, List, Message, MessagePart,
    NewCompaction, Session, WentOn,
};
use ctx_session::record::{CompactionFlag, Strategy};
use ctx_session::{Code, CompactionId, SessionId, Timestamp, Ulid};

use super::checkpoints;
use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{ids, sessions, table, words};

/// Shorten the conversation that the model gets
///
/// First, large output of old tool calls is replaced by references that the agent can read back. If that is not
/// enough, the oldest exchanges are dropped or replaced by a summary. The last exchange always stays. Nothing is
/// deleted, and a rollback undoes a compaction. With the strategy `checkpoint` the compaction is only proposed:
/// the session pauses until you approve or reject it.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
#[command(after_help = "\
Examples:
  ctx compact coder               with the agent's own strategy
  ctx compact coder --strategy drop
  ctx compact list coder
  ctx compact approve coder --summary 'we agreed on the schema'
  ctx compact flag coder 01K9Y bad --notes 'forgot the schema'

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    #[command(subcommand)]
    what: Option<What>,
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION", required = true)]
    session: Option<String>,
    /// Strategy [default: the agent's own]
    #[arg(long, value_name = "STRATEGY")]
    strategy: Option<How>,
    /// Print the run as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum How {
    /// Drop the oldest exchanges
    Drop,
    /// Let the model write a summary of them
    Summarize,
    /// Let a command or a subagent of the project write the summary
    Delegate,
    /// Propose a compaction and pause for your decision
    Checkpoint,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Flag {
    Good,
    Bad,
    Neutral,
    /// Remove the flag
    None,
}

#[derive(Debug, Subcommand)]
enum What {
    /// List the compactions of a session, newest last
    List {
        /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
        #[arg(value_name = "SESSION")]
        session: String,
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show a compaction
    Show {
        #[command(flatten)]
        which: Which,
    },
    /// Approve a proposed compaction; the run continues
    Approve {
        #[command(flatten)]
        which: Which,
        /// Summary of the removed messages [default: the proposed one]
        #[arg(long, value_name = "TEXT")]
        summary: Option<String>,
        /// Message to remove, instead of the proposed ones (repeatable)
        #[arg(long = "message", value_name = "ID")]
        messages: Vec<Ulid>,
    },
    /// Reject a proposed compaction; the session becomes idle
    Reject {
        #[command(flatten)]
        which: Which,
    },
    /// Rate a compaction
    Flag {
        /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
        #[arg(value_name = "SESSION")]
        session: String,
        /// The compaction: an id or the beginning or end of an id
        #[arg(value_name = "COMPACTION")]
        compaction: String,
        /// Your rating
        #[arg(value_name = "FLAG")]
        flag: Flag,
        /// Notes on the rating
        #[arg(long, value_name = "TEXT")]
        notes: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Which {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// The compaction: an id or the beginning or end of an id [default: the waiting one, else the newest]
    #[arg(value_name = "COMPACTION")]
    compaction: Option<String>,
    /// Print it as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let api = Api::new(root);
    match args.what {
        None => {
            let session = args.session.unwrap_or_default();
            begin(root, &api, &session, args.strategy, args.json)
        }
        Some(What::List { session, json }) => list(&api, sessions::find_id(root, &session)?, json),
        Some(What::Show { which }) => {
            let (id, one) = chosen(root, &api, &which)?;
            if which.json { output::json(&one) } else { show(&api, id, &one) }
        }
        Some(What::Approve { which, summary, messages }) => {
            let superseded_message_ids = (!messages.is_empty()).then_some(messages);
            approve(root, &api, &which, &CompactionApproval { superseded_message_ids, summary })
        }
        Some(What::Reject { which }) => {
            let (id, one) = waiting(root, &api, &which)?;
            let done: Compaction = api.post(&format!("/sessions/{id}/compactions/{}/reject", one.id))?;
            if which.json {
                return output::json(&done);
            }
            output::say("rejected; the session is idle and nothing has changed");
            Ok(())
        }
        Some(What::Flag { session, compaction, flag, notes, json }) => {
            let id = sessions::find_id(root, &session)?;
            let compaction = find(&api, id, &compaction)?.id;
            let flag = match flag {
                Flag::Good => Some(CompactionFlag::Good),
                Flag::Bad => Some(CompactionFlag::Bad),
                Flag::Neutral => Some(CompactionFlag::Neutral),
                Flag::None => None,
            };
            let change = CompactionChange { operator_flag: Some(flag), operator_notes: notes.map(Some) };
            let flagged: Compaction =
                api.patch(&format!("/sessions/{id}/compactions/{compaction}"), &change)?;
            if json {
                return output::json(&flagged);
            }
            output::say("noted");
            Ok(())
        }
    }
}

fn begin(root: &Root, api: &Api<'_>, session: &str, how: Option<How>, json: bool) -> Result<(), Failure> {
    let id = sessions::find_id(root, session)?;
    let strategy = how.map(|how| match how {
        How::Drop => Strategy::Drop,
        How::Summarize => Strategy::Summarize,
        How::Delegate => Strategy::Delegate,
        How::Checkpoint => Strategy::Checkpoint,
    });
    let begun: WentOn = api.post_with(&format!("/sessions/{id}/compactions"), &NewCompaction { strategy })?;
    if json {
        return output::json(&begun);
    }
    output::say(format_args!("started; `ctx compact show {session}` shows the result"));
    Ok(())
}

fn approve(root: &Root, api: &Api<'_>, which: &Which, how: &CompactionApproval) -> Result<(), Failure> {
    let (id, one) = waiting(root, api, which)?;
    let done: WentOn = api.post_with(&format!("/sessions/{id}/compactions/{}/approve", one.id), how)?;
    if which.json {
        return output::json(&done);
    }
    match done.run_id {
        Some(run) => output::say(format_args!(
            "approved; run {run} continues, `ctx log -f {}` follows it",
            which.session
        )),
        None => output::say("approved; the session is idle"),
    }
    Ok(())
}

/// Every row, page by page, oldest first.
fn all(api: &Api<'_>, id: SessionId) -> Result<Vec<CompactionRow>, Failure> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/sessions/{id}/compactions?limit=1000{cursor}");
        let page: List<CompactionRow> = api.get(&path)?;
        all.extend(page.items);
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(all),
        }
    }
}

/// The compaction that was named, else the one that waits, else the newest.
fn chosen(root: &Root, api: &Api<'_>, which: &Which) -> Result<(SessionId, Compaction), Failure> {
    let id = sessions::find_id(root, &which.session)?;
    if let Some(found) = named_or_waiting(api, id, which)? {
        return Ok((id, found));
    }
    let newest = all(api, id)?.into_iter().rev().find_map(|row| match row {
        CompactionRow::Compaction(one) => Some(*one),
        CompactionRow::Aggregate(_) => None,
    });
    newest.map(|one| (id, one)).ok_or_else(|| {
        Failure::new(Code::Enoent, format!("{} has no compaction", which.session))
            .hint("`ctx compact SESSION` starts one")
    })
}

/// The compaction to be answered: the one that was named, else the one that waits.
fn waiting(root: &Root, api: &Api<'_>, which: &Which) -> Result<(SessionId, Compaction), Failure> {
    let id = sessions::find_id(root, &which.session)?;
    let found = named_or_waiting(api, id, which)?;
    found.map(|one| (id, one)).ok_or_else(|| {
        Failure::new(Code::Enoent, format!("no compaction waits for review in {}", which.session))
            .hint("`ctx compact SESSION --strategy checkpoint` proposes one")
    })
}

fn named_or_waiting(api: &Api<'_>, id: SessionId, which: &Which) -> Result<Option<Compaction>, Failure> {
    if let Some(word) = &which.compaction {
        return find(api, id, word).map(Some);
    }
    let Some(at) = api.get::<Session>(&format!("/sessions/{id}"))?.checkpoint else { return Ok(None) };
    let paused = checkpoints::all(api, id, false)?.into_iter().find(|one| one.id == at);
    Ok(paused.and_then(|one| one.compaction))
}

/// The compaction that an id, or the beginning of one, means.
fn find(api: &Api<'_>, id: SessionId, word: &str) -> Result<Compaction, Failure> {
    if let Ok(whole) = word.parse::<CompactionId>() {
        return api.get(&format!("/sessions/{id}/compactions/{whole}"));
    }
    let made = all(api, id)?.into_iter().filter_map(|row| match row {
        CompactionRow::Compaction(one) => Some(*one),
        CompactionRow::Aggregate(_) => None,
    });
    ids::one(made, |one| one.id.to_string(), word, ("compaction", "`ctx compact list` lists them"))
}

fn list(api: &Api<'_>, id: SessionId, json: bool) -> Result<(), Failure> {
    let rows = all(api, id)?;
    if json {
        return rows.iter().try_for_each(output::json);
    }
    if rows.is_empty() {
        output::say("no compactions");
    }
    let (now, paint) = (words::now(), Paint::for_stdout());
    let age = |millis: u64| words::age(now, Timestamp::from_millis(millis));
    let cells = rows.iter().map(|row| match row {
        CompactionRow::Aggregate(many) => {
            let what = format!("{} older compactions", many.count);
            [what, age(many.before), String::new(), String::new(), String::new()].map(table::Cell::new).into()
        }
        CompactionRow::Compaction(one) => {
            let state = if one.rolled_back { "undone" } else { &one.state };
            let painted = if state == "proposed" { paint.yellow(state) } else { state.to_owned() };
            let what = one.summary.as_deref().or(one.fallback_reason.as_deref()).unwrap_or_default();
            let effect = words::compaction(one.superseded_message_ids.len(), one.elided_call_ids.len());
            vec![
                table::Cell::new(one.id.to_string()),
                table::Cell::new(age(one.created_at)),
                table::Cell::new(one.strategy.as_str()),
                table::Cell::painted(state, painted),
                table::Cell::new(match what {
                    "" => effect,
                    what => format!("{effect}: {}", output::plain(what)),
                }),
            ]
        }
    });
    let head = ["COMPACTION", "AGE", "STRATEGY", "STATE", "WHAT"];
    let text = table::render(&head, cells.collect(), output::width(), paint);
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// Who said what, in a few words, of these messages.
fn said(api: &Api<'_>, id: SessionId, wanted: &[Ulid]) -> Result<BTreeMap<Ulid, String>, Failure> {
    let mut said = BTreeMap::new();
    let mut cursor = String::new();
    while !wanted.iter().all(|id| said.contains_key(id)) {
        let page: List<Message> = api.get(&format!("/sessions/{id}/messages?limit=1000{cursor}"))?;
        for message in page.items.into_iter().filter(|message| wanted.contains(&message.id)) {
            // A call and its result share an id: the call comes first, and says more.
            said.entry(message.id).or_insert_with(|| in_short(&message));
        }
        let Some(next) = page.next else { break };
        cursor = format!("&cursor={next}");
    }
    Ok(said)
}

fn in_short(message: &Message) -> String {
    let call = message.parts.iter().find_map(|part| match part {
        MessagePart::ToolCall { name, input, .. } => Some(format!("calls {name} {input}")),
        MessagePart::Text { .. } | MessagePart::Image { .. } | MessagePart::ToolResult { .. } => None,
    });
    let text = call.as_deref().unwrap_or(&message.content);
    format!("{}: {}", message.role.as_str(), words::shorten(&output::one_line(text), 60))
}

/// All that is known of one, for a person.
fn show(api: &Api<'_>, id: SessionId, one: &Compaction) -> Result<(), Failure> {
    let mut out = output::stdout();
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    writeln!(out, "{} {}", Paint::for_stdout().bold("compaction"), one.id)?;
    writeln!(out, "made       {}", words::date_time(Timestamp::from_millis(one.created_at)))?;
    writeln!(out, "strategy   {}", one.strategy.as_str())?;
    writeln!(out, "state      {}{}", one.state, if one.rolled_back { ", undone by a rollback" } else { "" })?;
    writeln!(out, "window     {} to {}", percent(one.threshold_estimate), percent(one.after_estimate))?;
    if let Some(reason) = &one.fallback_reason {
        writeln!(out, "fallback   {}", output::plain(reason))?;
    }
    if let Some(flag) = one.operator_flag {
        let flag = serde_json::to_value(flag).unwrap_or_default();
        writeln!(out, "flag       {}", flag.as_str().unwrap_or_default())?;
    }
    if let Some(notes) = &one.operator_notes {
        writeln!(out, "notes      {}", output::plain(notes))?;
    }
    let elided = one.elided_call_ids.iter().map(|call| call.0);
    let superseded = one.superseded_message_ids.iter().copied();
    let wanted: Vec<Ulid> = superseded.clone().chain(elided.clone()).collect();
    if wanted.is_empty() {
        writeln!(out, "messages   none: nothing to remove")?;
    }
    let said = said(api, id, &wanted)?;
    let all = superseded.map(|id| ("message", id)).chain(elided.map(|id| ("output of", id)));
    for (what, id) in all {
        let said = said.get(&id).map(String::as_str).unwrap_or_default();
        writeln!(out, "{}", format!("{what:<10} {id}  {said}").trim_end())?;
    }
    if let Some(summary) = &one.summary {
        writeln!(out, "\n{}", output::plain(summary))?;
    }
    out.flush()?;
    Ok(())
}
