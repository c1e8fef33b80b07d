//! `ctx search`: full-text search over messages, with the index.

use std::io::Write;

use clap::ValueEnum;
use ctx_session::conversation::Role;
use ctx_session::{Name, Timestamp};
use ctx_views::db::{Hit, SearchQuery, SearchSort, Standing};
use serde_json::json;

use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{index, sessions, words};

/// Search messages in all your sessions
///
/// Searches messages and the first 4 KiB of tool output, best match first. A word finds itself, "several words"
/// in quotes find the phrase, begin* finds words with that beginning, -word and -"several words" exclude
/// messages. Text without spaces between words, such as Japanese, is found by any part of it.
///
/// Compacted messages are found. Messages removed from context by a rollback or a discard are found with
/// --superseded. It reads the index and needs no daemon, unless the root belongs to another user.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx search disk full
  ctx search '\"no space left\" -docker' --since 7d
  ctx search migrat* --agent coder --role assistant -n 5
  ctx search --json flaky | jq -r .session_id | sort -u
  ctx search --session coder/default -- 'panic*'

exit codes: 0 success, 1 failed or nothing found, 2 bad input, 13 not allowed, 69 no daemon,
            70 internal error")]
pub struct Args {
    /// Words to search for
    #[arg(value_name = "QUERY", required = true)]
    query: Vec<String>,
    /// Only sessions of this agent
    #[arg(long, value_name = "AGENT")]
    agent: Option<Name>,
    /// Only sessions of this project
    #[arg(long, value_name = "PROJECT")]
    project: Option<Name>,
    /// Only this session: agent/name, an id or the beginning of an id
    #[arg(short, long, value_name = "SESSION")]
    session: Option<String>,
    /// Only messages with this role
    #[arg(long, value_name = "ROLE")]
    role: Option<RoleWord>,
    /// Only messages since this time: a date in UTC (2026-11-15, 2026-11-15 06:00), or an age such as 12h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// Only messages before this time, given in the same way
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// Sort by time, newest first, instead of by match
    #[arg(long)]
    newest: bool,
    /// Also find messages removed from context by a rollback or a discard
    #[arg(long)]
    superseded: bool,
    /// At most N hits; 0 for no limit
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// The roles, to be typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RoleWord {
    User,
    Assistant,
    Subagent,
    System,
    Tool,
}

impl RoleWord {
    fn role(self) -> Role {
        match self {
            RoleWord::User => Role::User,
            RoleWord::Assistant => Role::Assistant,
            RoleWord::Subagent => Role::Subagent,
            RoleWord::System => Role::System,
            RoleWord::Tool => Role::Tool,
        }
    }
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let index = index::open(root)?;
    let reader = root.reader()?;
    let now = words::now();
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let session = args.session.as_deref().map(|word| sessions::find_id(root, word)).transpose()?;
    let query = SearchQuery {
        agent: args.agent,
        project: args.project,
        role: args.role.map(RoleWord::role),
        session,
        since: args.since.map(|moment| moment.seen_from(now)),
        until: args.until.map(|moment| moment.seen_from(now)),
        superseded: args.superseded,
        sort: if args.newest { SearchSort::Newest } else { SearchSort::Rank },
        ..SearchQuery::new(index::viewer(&reader)?, &args.query.join(" "), limit)
    };
    let page = index.search(&query)?;
    let mut out = output::stdout();
    for hit in &page.items {
        if args.json {
            writeln!(out, "{}", as_json(hit))?;
        } else {
            out.write_all(readable(hit, now, Paint::for_stdout()).as_bytes())?;
        }
    }
    out.flush()?;
    index.say_if_behind(root)?;
    if page.items.is_empty() {
        output::say("nothing found");
    }
    if page.items.len() < limit && !args.superseded && index.finds_taken_back(&query)? {
        output::say("--superseded also finds messages removed from context by a rollback or a discard");
    }
    if page.items.is_empty() {
        return Err(Failure::Told { exit: 1 });
    }
    if page.next.is_some() && !args.json {
        output::say(format_args!(
            "there are more; `-n {}` shows twice as many",
            args.limit.saturating_mul(2)
        ));
    }
    Ok(())
}

/// `coder/default`, or the name alone for a session with a model.
fn session_name(hit: &Hit) -> String {
    match &hit.agent {
        Some(agent) => format!("{agent}/{}", hit.session_name),
        None => hit.session_name.to_string(),
    }
}

fn as_json(hit: &Hit) -> serde_json::Value {
    let pieces: Vec<_> =
        hit.snippet.iter().map(|piece| json!({ "text": piece.text, "is_hit": piece.is_hit })).collect();
    json!({
        "session_id": hit.session, "session": session_name(hit), "title": hit.session_title, "agent": hit.agent,
        "project": hit.project, "seq": hit.seq, "message_id": hit.message, "run_id": hit.run,
        "role": hit.role.as_str(), "time": hit.time, "standing": standing_word(hit.standing), "score": hit.score,
        "snippet": pieces,
    })
}

fn standing_word(standing: Standing) -> &'static str {
    match standing {
        Standing::Counts => "counts",
        Standing::Compacted => "compacted",
        Standing::TakenBack => "taken_back",
    }
}

/// A line on where, and the words around the hit below it.
fn readable(hit: &Hit, now: Timestamp, paint: Paint) -> String {
    let role = hit.role.as_str();
    let role = match hit.role {
        Role::User => paint.cyan(role),
        Role::Assistant => paint.green(role),
        Role::Subagent | Role::System | Role::Tool => paint.dim(role),
    };
    let when = format!("{} ({} ago)", words::date_time(hit.time), words::age(now, hit.time));
    let place = paint.dim(&format!("{}#{}", hit.session, hit.seq));
    let standing = match hit.standing {
        Standing::Counts => String::new(),
        Standing::Compacted => paint.dim("  (compacted)"),
        Standing::TakenBack => paint.dim("  (removed from context)"),
    };
    let mut text = format!("{}  {role}  {when}  {place}{standing}\n    ", paint.bold(&session_name(hit)));
    for piece in &hit.snippet {
        // One line: a snippet is to be looked over, the message itself is a command away.
        let plain: String =
            output::plain(&piece.text).chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
        text.push_str(&if piece.is_hit { paint.yellow(&paint.bold(&plain)) } else { plain });
    }
    text.push_str("\n\n");
    text
}
