//! `ctx search`: full text over what was said, from the index.

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

/// Search what was said, in all your sessions
///
/// Looks in messages and in the beginning of tool output (4 KiB), the best match first. A word finds itself,
/// "several words" in quotes find themselves in a row, begin* finds what begins so, and -word or -"several words"
/// leave out what has them. Text without spaces between words, such as Japanese, is found by any part of it. What a compaction left out was said
/// all the same and is found; what a rollback took back is found with --superseded. It reads the index and needs no
/// daemon, but on a root that belongs to someone else. Leaves with 1 when nothing is found.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx search disk full
  ctx search '\"no space left\" -docker' --since 7d
  ctx search migrat* --agent coder --role assistant -n 5
  ctx search --json flaky | jq -r .session_id | sort -u
  ctx search --session coder/default -- 'panic*'")]
pub struct Args {
    /// What to look for
    #[arg(value_name = "QUERY", required = true)]
    query: Vec<String>,
    /// Only sessions with this agent
    #[arg(long, value_name = "AGENT")]
    agent: Option<Name>,
    /// Only sessions of this project
    #[arg(long, value_name = "PROJECT")]
    project: Option<Name>,
    /// Only this session: agent/name, an id or the beginning of one
    #[arg(short, long, value_name = "SESSION")]
    session: Option<String>,
    /// Only what this one said
    #[arg(long, value_name = "ROLE")]
    role: Option<RoleWord>,
    /// Only what was said since: a date (2026-11-15, 2026-11-15 06:00; in UTC), or a time before now such as 12h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// Only what was said before, given in the same way
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// The newest first, not the best match
    #[arg(long)]
    newest: bool,
    /// Also messages that a rollback or a discard took back
    #[arg(long)]
    superseded: bool,
    /// At most N hits; 0 for no limit
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print one JSON object a line
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
        output::say("--superseded also finds what a rollback or a discard took back");
    }
    if page.items.is_empty() {
        return Err(Failure::Told { exit: 1 });
    }
    if page.next.is_some() && !args.json {
        output::say(format_args!("there is more; `-n {}` shows twice as many", args.limit.saturating_mul(2)));
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
        Standing::TakenBack => paint.dim("  (taken back)"),
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
