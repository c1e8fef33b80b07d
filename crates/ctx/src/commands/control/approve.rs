//! `ctx approve`: allows or denies a tool call that waits for the operator.

use std::io::Write;

use ctx_api::http::{Approval, ApprovalAnswer, Decision, List};
use ctx_session::record::ApprovalScope;
use ctx_session::{Code, SessionId, Timestamp};

use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{ids, render, sessions, table, words};

/// Allow or deny a waiting tool call
///
/// A policy line `ask TOOL` makes the agent wait for your approval before it uses a tool. If one call waits, its
/// id is not needed; if several wait, they are listed. Without a session, every waiting call of every session is listed. A call that nobody answers within `limits.approval_ms` is
/// denied.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx approve                     list everything that waits
  ctx approve coder --list        list the waiting calls
  ctx approve coder               allow the only waiting call
  ctx approve coder --always      allow it and its like until the session ends
  ctx approve coder 01K9Y --deny --note 'not that file'

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: Option<String>,
    /// The approval: an id or the beginning or end of an id [default: the only waiting call]
    #[arg(value_name = "APPROVAL")]
    approval: Option<String>,
    /// Deny the call instead of allowing it
    #[arg(long, requires = "session")]
    deny: bool,
    /// Also allow, until the session ends, every call that the same line of the policy asks for
    #[arg(long, requires = "session", conflicts_with = "deny")]
    always: bool,
    /// Note for the model
    #[arg(long, value_name = "TEXT", requires = "session")]
    note: Option<String>,
    /// Only list the waiting calls
    #[arg(long, requires = "session", conflicts_with_all = ["approval", "deny", "always", "note"])]
    list: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let api = Api::new(root);
    let Some(session) = &args.session else {
        return list_all(&api, args.json);
    };
    let id = sessions::find_id(root, session)?;
    let waiting: Vec<Approval> = api.get::<List<Approval>>(&format!("/sessions/{id}/approvals"))?.items;
    if args.list {
        return list(&waiting, args.json);
    }
    let one = match (&args.approval, waiting.as_slice()) {
        (Some(word), _) => find(&api, id, word)?,
        (None, [one]) => one.clone(),
        (None, []) => {
            return Err(Failure::new(
                Code::Enoent,
                format!("no tool call waits for an approval in {session}"),
            ));
        }
        (None, many) => {
            list(many, args.json)?;
            let message = format!("{} tool calls wait for an approval; choose one", many.len());
            return Err(Failure::new(Code::Einval, message).hint("name one by its id"));
        }
    };
    let decision = if args.deny { Decision::Deny } else { Decision::Allow };
    let scope = args.always.then_some(ApprovalScope::Session);
    let answer = ApprovalAnswer { decision, scope, note: args.note };
    let done: Approval = api.post_with(&format!("/sessions/{id}/approvals/{}", one.id), &answer)?;
    if args.json {
        return output::json(&done);
    }
    let how = if args.deny { "denied" } else { "allowed" };
    output::say(format_args!("{how}: {}", call(&done)));
    if args.always {
        let of = done.pattern.as_ref().map(|pattern| format!(" {pattern}")).unwrap_or_default();
        output::say(format_args!("until the session ends, {}{of} is not asked for again", done.tool));
    }
    Ok(())
}

/// Every waiting call of the caller's sessions.
fn list_all(api: &Api<'_>, json: bool) -> Result<(), Failure> {
    let mut rows = Vec::new();
    let mut now_waiting = Vec::new();
    for session in sessions::running(api)?.into_iter().filter(|session| session.pending_approvals > 0) {
        let waiting: List<Approval> = api.get(&format!("/sessions/{}/approvals", session.id))?;
        for one in waiting.items {
            rows.push(vec![
                table::Cell::new(sessions::label(&session)),
                table::Cell::new(words::age(words::now(), Timestamp::from_millis(one.created_at))),
                table::Cell::new(one.id.to_string()),
                table::Cell::new(call(&one)),
            ]);
            now_waiting.push(one);
        }
    }
    if json {
        return now_waiting.iter().try_for_each(output::json);
    }
    if rows.is_empty() {
        output::say("no tool call waits for an approval");
        return Ok(());
    }
    let head = ["SESSION", "WAITS", "APPROVAL", "CALL"];
    let text = table::render(&head, rows, output::width(), Paint::for_stdout());
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}

/// What to do, on one line.
fn call(one: &Approval) -> String {
    let input = words::shorten(&one.input.to_string(), 200);
    let subject = one.subject.clone().unwrap_or(input);
    output::one_line(&format!("{} {subject}", one.tool))
}

/// The approval that an id, or the beginning of one, means; also one that is settled, to be told so.
fn find(api: &Api<'_>, id: SessionId, word: &str) -> Result<Approval, Failure> {
    let all: List<Approval> = api.get(&format!("/sessions/{id}/approvals?all=true"))?;
    let hint = "`ctx approve --list` lists the waiting calls";
    ids::one(all.items, |one| one.id.to_string(), word, ("approval", hint))
}

fn list(waiting: &[Approval], json: bool) -> Result<(), Failure> {
    if json {
        return waiting.iter().try_for_each(output::json);
    }
    if waiting.is_empty() {
        output::say("no tool call waits for an approval");
    }
    let now = words::now();
    let left = |one: &Approval| match one.expires_at {
        Some(end) => words::duration(end.saturating_sub(now.as_millis())),
        None => "paused".to_owned(),
    };
    let rows = waiting.iter().map(|one| {
        vec![
            table::Cell::new(one.id.to_string()),
            table::Cell::new(words::age(now, Timestamp::from_millis(one.created_at))),
            table::Cell::new(left(one)),
            table::Cell::new(call(one)),
        ]
    });
    let head = ["APPROVAL", "WAITS", "LEFT", "CALL"];
    let paint = Paint::for_stdout();
    let mut text = table::render(&head, rows.collect(), output::width(), paint);
    for one in waiting {
        if let Some(diff) = &one.diff {
            text += &format!("\n{} would change:\n{}", one.id, render::diff::text(diff, "  ", paint));
        }
    }
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
