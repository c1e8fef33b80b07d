//! `ctx search`: full-text search over messages, with the index.

use std::io::Write;
use std::path::PathBuf;

use clap::ValueEnum;
use ctx_interop::Agent;
use ctx_session::conversation::Role;
use ctx_session::{Code, Name, Timestamp};
use ctx_views::db::{Hit, SearchQuery, SearchSort, SessionHits, Standing};
use serde_json::json;

use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{index, sessions, words};

use crate::commands::sessions::import::{absolute, agent};

/// Hits that stand for a session.
const HITS: usize = 3;

/// Search messages in all your sessions, imported ones too
///
/// Searches messages and the first 4 KiB of tool output, and shows the sessions with the best matches, each with its
/// three best. A word finds itself, "several words" in quotes find the phrase, begin* finds words with that beginning,
/// -word and -"several words" exclude messages. Text without spaces between words, such as Japanese, is found by any
/// part of it. Of a word with thousands of matches the 2,000 that were indexed last are ranked together.
///
/// Compacted messages are found. Messages removed from context by a rollback, a discard or an undone import are found
/// with --superseded. It reads the index and needs no daemon, unless the root belongs to another user.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx search disk full
  ctx search '\"no space left\" -docker' --since 7d
  ctx search migrat* --from codex --dir . --branch main
  ctx search 'exit code' --tool shell.exec --newest
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
    /// Only sessions imported from this agent: codex, claude, opencode, goose, gemini or aider
    #[arg(long, value_name = "AGENT", value_parser = agent(), conflicts_with = "agent")]
    from: Option<Agent>,
    /// Only sessions of this project
    #[arg(long, value_name = "PROJECT")]
    project: Option<Name>,
    /// Only sessions that began in this directory or below it, or work there
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Only imported sessions that were on this branch
    #[arg(long, value_name = "BRANCH")]
    branch: Option<String>,
    /// Only this session: agent/name, an id or the beginning or end of an id
    #[arg(short, long, value_name = "SESSION")]
    session: Option<String>,
    /// Only messages with this role
    #[arg(long, value_name = "ROLE")]
    role: Option<RoleWord>,
    /// Only output of this tool
    #[arg(long, value_name = "TOOL")]
    tool: Option<String>,
    /// Only messages since this time: a date in UTC (2026-11-15, 2026-11-15 06:00), or an age such as 12h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// Only messages before this time, given in the same way
    #[arg(long, value_name = "TIME")]
    until: Option<Moment>,
    /// Sort by time, newest first, instead of by match
    #[arg(long)]
    newest: bool,
    /// Also find messages removed from context by a rollback, a discard or an undone import
    #[arg(long)]
    superseded: bool,
    /// At most N sessions, with --json at most N messages; 0 for no limit
    #[arg(short = 'n', long = "limit", value_name = "N", default_value_t = 20)]
    limit: usize,
    /// Print one JSON object per message
    #[arg(long)]
    json: bool,
    /// With --json: print one JSON object per session, with its best messages
    #[arg(long, requires = "json")]
    by_session: bool,
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
    sessions::note_unknown_agent(&reader, args.agent.as_ref())?;
    let now = words::now();
    let limit = if args.limit == 0 { usize::MAX } else { args.limit };
    let session = args.session.as_deref().map(|word| sessions::find_id(root, word)).transpose()?;
    let from = args.from.map(|from| Name::new(from.name())).transpose();
    let from = from.map_err(|rule| Failure::new(Code::Einval, rule.to_string()))?;
    let dir = args.dir.as_deref().map(absolute).transpose()?;
    let query = SearchQuery {
        agent: args.agent.or(from),
        project: args.project,
        dir: dir.map(|dir| dir.display().to_string()),
        branch: args.branch,
        tool: args.tool,
        role: args.role.map(RoleWord::role),
        session,
        since: args.since.map(|moment| moment.seen_from(now)),
        until: args.until.map(|moment| moment.seen_from(now)),
        superseded: args.superseded,
        sort: if args.newest { SearchSort::Newest } else { SearchSort::Rank },
        ..SearchQuery::new(index::viewer(&reader)?, &args.query.join(" "), limit)
    };
    let mut out = output::stdout();
    let (shown, more) = if args.json && !args.by_session {
        let page = index.search(&query)?;
        for hit in &page.items {
            writeln!(out, "{}", as_json(hit))?;
        }
        (page.items.len(), page.next.is_some())
    } else {
        let (found, more) = index.search_sessions(&query, HITS)?;
        for session in &found {
            if args.json {
                writeln!(out, "{}", session_as_json(session))?;
            } else {
                out.write_all(readable(session, now, Paint::for_stdout()).as_bytes())?;
            }
        }
        (found.len(), more)
    };
    out.flush()?;
    index.say_if_behind(root)?;
    if shown == 0 {
        output::say("nothing found");
    }
    if shown < limit && !args.superseded && index.finds_taken_back(&query)? {
        output::say(
            "--superseded also finds messages removed from context by a rollback, a discard or an undone import",
        );
    }
    if shown == 0 {
        return Err(Failure::Told { exit: 1 });
    }
    if more && !args.json {
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
        "project": hit.project, "cwd": hit.cwd, "seq": hit.seq, "message_id": hit.message, "run_id": hit.run,
        "role": hit.role.as_str(), "tool": hit.tool, "time": hit.time, "standing": standing_word(hit.standing), "score": hit.score,
        "snippet": pieces,
    })
}

/// A session with its best messages, each without what they have in common.
fn session_as_json(found: &SessionHits) -> serde_json::Value {
    let Some(first) = found.hits.first() else { return json!({}) };
    let common = ["session_id", "session", "title", "agent", "project", "cwd"];
    let hits = found.hits.iter().map(|hit| {
        let mut hit = as_json(hit);
        if let Some(hit) = hit.as_object_mut() {
            hit.retain(|name, _| !common.contains(&name.as_str()));
        }
        hit
    });
    json!({
        "session_id": first.session, "session": session_name(first), "title": first.session_title, "agent": first.agent,
        "project": first.project, "cwd": first.cwd, "matches": found.matches, "hits": hits.collect::<Vec<_>>(),
    })
}

fn standing_word(standing: Standing) -> &'static str {
    match standing {
        Standing::Counts => "counts",
        Standing::Compacted => "compacted",
        Standing::TakenBack => "taken_back",
    }
}

/// A line on the session, and below it for each hit who said it, when, and the words around.
fn readable(found: &SessionHits, now: Timestamp, paint: Paint) -> String {
    let Some(first) = found.hits.first() else { return String::new() };
    let mut text = paint.bold(&session_name(first));
    for more in [first.session_title.as_deref(), Some(first.cwd.as_str())].into_iter().flatten() {
        text.push_str(&format!("  {}", output::plain(more)));
    }
    text.push_str(&format!("  {}\n", paint.dim(&first.session.to_string())));
    for hit in &found.hits {
        text.push_str(&hit_line(hit, now, paint));
    }
    let others = found.matches.saturating_sub(found.hits.len() as u64);
    if others > 0 {
        text.push_str(&paint.dim(&format!("    and {others} more\n")));
    }
    text.push('\n');
    text
}

fn hit_line(hit: &Hit, now: Timestamp, paint: Paint) -> String {
    let role = hit.role.as_str();
    let role = match (hit.role, &hit.tool) {
        (Role::User, _) => paint.cyan(role),
        (Role::Assistant, _) => paint.green(role),
        (Role::Tool, Some(tool)) => paint.dim(&format!("{role} {}", output::plain(tool))),
        (Role::Subagent | Role::System | Role::Tool, _) => paint.dim(role),
    };
    let when = format!("{} ({} ago)", words::Clock::Local.show(hit.time), words::age(now, hit.time));
    let standing = match hit.standing {
        Standing::Counts => String::new(),
        Standing::Compacted => paint.dim("  (compacted)"),
        Standing::TakenBack => paint.dim("  (removed from context)"),
    };
    let mut text = format!("  {role}  {when}  {}{standing}\n    ", paint.dim(&format!("#{}", hit.seq)));
    for piece in &hit.snippet {
        // One line: a snippet is to be looked over, the message itself is a command away.
        let plain: String =
            output::plain(&piece.text).chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
        text.push_str(&if piece.is_hit { paint.yellow(&paint.bold(&plain)) } else { plain });
    }
    text.push('\n');
    text
}
