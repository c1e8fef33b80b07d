//! `ctx approve`: answers a tool call that waits for the operator.

use std::io::Write;

use ctx_api::http::{Approval, ApprovalAnswer, Decision, List};
use ctx_session::{Code, SessionId, Timestamp};

use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{sessions, table, words};

/// Allow or deny a tool call that waits
///
/// A policy line `ask TOOL` makes the agent ask before it uses a tool. A single call that waits is answered without
/// its id; of several, they are listed. What nobody answers in time is denied (`limits.approval_ms`).
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx approve coder --list        what waits
  ctx approve coder               allow the only one
  ctx approve coder 01K9Y --deny --note 'not that file'")]
pub struct Args {
    /// agent/name, an id or the beginning of one; an agent alone means its current session
    #[arg(value_name = "SESSION")]
    session: String,
    /// An id or the beginning of one [default: the only one that waits]
    #[arg(value_name = "APPROVAL")]
    approval: Option<String>,
    /// Do not let it happen
    #[arg(long)]
    deny: bool,
    /// What the model is told with the answer
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
    /// Only list what waits
    #[arg(long, conflicts_with_all = ["approval", "deny", "note"])]
    list: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
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
                format!("nothing waits for an answer in {}", args.session),
            ));
        }
        (None, many) => {
            list(many, args.json)?;
            let message = format!("{} calls wait for an answer: say which", many.len());
            return Err(Failure::new(Code::Einval, message).hint("give the id of one"));
        }
    };
    let decision = if args.deny { Decision::Deny } else { Decision::Allow };
    let answer = ApprovalAnswer { decision, note: args.note };
    let done: Approval = api.post_with(&format!("/sessions/{id}/approvals/{}", one.id), &answer)?;
    if args.json {
        return output::json(&done);
    }
    let how = if args.deny { "denied" } else { "allowed" };
    output::say(format_args!("{how}: {}", call(&done)));
    Ok(())
}

/// What is to be done, on one line.
fn call(one: &Approval) -> String {
    let input = words::shorten(&one.input.to_string(), 200);
    let subject = one.subject.clone().unwrap_or(input);
    output::one_line(&format!("{} {subject}", one.tool))
}

/// The approval that an id, or the beginning of one, means; also one that is settled, to be told so.
fn find(api: &Api<'_>, id: SessionId, word: &str) -> Result<Approval, Failure> {
    let all: List<Approval> = api.get(&format!("/sessions/{id}/approvals?all=true"))?;
    let begin = word.to_ascii_uppercase();
    let mut found = all.items.into_iter().filter(|one| one.id.to_string().starts_with(&begin));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(Failure::new(Code::Enoent, format!("there is no approval {word} in this session"))
            .hint("`ctx approve --list` shows what waits")),
        (Some(_), Some(_)) => Err(Failure::new(Code::Einval, format!("several approvals begin with {word}"))
            .hint("write more of its id")),
    }
}

fn list(waiting: &[Approval], json: bool) -> Result<(), Failure> {
    if json {
        return waiting.iter().try_for_each(output::json);
    }
    if waiting.is_empty() {
        output::say("nothing waits for an answer");
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
    let text = table::render(&head, rows.collect(), output::width(), Paint::for_stdout());
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(())
}
