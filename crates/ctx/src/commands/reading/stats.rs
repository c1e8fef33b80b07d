//! `ctx stats`: counts sessions, runs, messages, tools, tokens and what they cost, with the index.

use std::io::Write;

use clap::ValueEnum;
use ctx_api::http::TokenCount;
use ctx_session::Name;
use ctx_session::record::Usage;
use ctx_views::db::{Spent, Stats, StatsQuery};
use serde_json::json;

use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::table::{self, Cell};
use crate::{index, sessions, words};

/// Count sessions, runs, messages, tokens and cost
///
/// Counts sessions, runs, messages, tool calls, tokens, their cost and run time. With --by it lists tokens and cost by day, week,
/// model, project or agent; days and weeks are those of UTC. The cost of models without a known price is `unknown`. Imported sessions count with the tokens that their agent wrote down.
/// What a fork copied from its source is counted once. It reads the index and needs no daemon, unless the root belongs to another user.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx stats
  ctx stats coder --since 7d
  ctx stats --by day
  ctx stats --by model --project web
  ctx stats --json | jq .usage

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// Only sessions of this agent
    #[arg(value_name = "AGENT")]
    agent: Option<Name>,
    /// Only sessions of this project
    #[arg(long, value_name = "PROJECT")]
    project: Option<Name>,
    /// Only sessions changed since this time: a date, or an age such as 12h or 7d
    #[arg(long, value_name = "TIME")]
    since: Option<Moment>,
    /// List tokens and cost by day, week, model, project or agent
    #[arg(long, value_name = "WHAT")]
    by: Option<By>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    Day,
    Week,
    Model,
    Project,
    Agent,
}

impl By {
    fn rows(self, stats: &Stats) -> &[Spent] {
        match self {
            By::Day => &stats.by_day,
            By::Week => &stats.by_week,
            By::Model => &stats.by_model,
            By::Project => &stats.by_project,
            By::Agent => &stats.by_agent,
        }
    }

    fn head(self) -> &'static str {
        match self {
            By::Day => "DAY",
            By::Week => "WEEK",
            By::Model => "MODEL",
            By::Project => "PROJECT",
            By::Agent => "AGENT",
        }
    }
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let index = index::open(root)?;
    let reader = root.reader()?;
    sessions::note_unknown_agent(&reader, args.agent.as_ref())?;
    let viewer = index::viewer(&reader)?;
    let since = args.since.map(|moment| moment.seen_from(words::now()));
    let stats = index.stats(&StatsQuery { viewer, agent: args.agent, project: args.project, since })?;
    if args.json {
        output::json(&as_json(&stats))?;
    } else {
        let mut out = output::stdout();
        let paint = Paint::for_stdout();
        let text = args.by.map_or_else(|| readable(&stats, paint), |by| spent(by, &stats, paint));
        out.write_all(text.as_bytes())?;
        out.flush()?;
    }
    index.say_if_behind(root)
}

/// Everything there is, as JSON, after the index was built anew.
pub fn print_all(root: &Root) -> Result<(), Failure> {
    let viewer = index::viewer(&root.reader()?)?;
    let query = StatsQuery { viewer, agent: None, project: None, since: None };
    output::json(&as_json(&index::open(root)?.stats(&query)?))
}

/// Tokens and cost by one thing, a row each.
fn spent(by: By, stats: &Stats, paint: Paint) -> String {
    let cells = |word: &str, calls: u64, usage: Usage, unpriced: u64| {
        let words = [
            output::one_line(word),
            calls.to_string(),
            words::short_count(usage.input),
            words::short_count(usage.cached),
            words::short_count(usage.output),
            cost(usage, unpriced),
        ];
        words.into_iter().map(Cell::new).collect::<Vec<Cell>>()
    };
    let rows = by.rows(stats);
    let mut lines: Vec<Vec<Cell>> =
        rows.iter().map(|row| cells(&row.word, row.calls, row.usage, row.unpriced)).collect();
    let sum = rows.iter().fold(Usage::default(), |sum, row| sum.plus(row.usage));
    lines.push(cells("all", rows.iter().map(|row| row.calls).sum(), sum, stats.unpriced()));
    table::render(&[by.head(), "CALLS", "IN", "CACHED", "OUT", "COST"], lines, output::width(), paint)
}

/// What is known of it, and that there is more.
fn cost(usage: Usage, unpriced: u64) -> String {
    match (usage.cost_nano_usd, unpriced) {
        (_, 0) => usage.cost().to_string(),
        (0, _) => "unknown".to_owned(),
        (_, _) => format!("{} + unknown", usage.cost()),
    }
}

fn spent_json(rows: &[Spent]) -> Vec<serde_json::Value> {
    let one = |row: &Spent| {
        let mut line = json!(TokenCount::new(row.usage, row.unpriced));
        if let Some(fields) = line.as_object_mut() {
            fields.insert("key".to_owned(), row.word.clone().into());
            fields.insert("calls".to_owned(), row.calls.into());
        }
        line
    };
    rows.iter().map(one).collect()
}

fn as_json(stats: &Stats) -> serde_json::Value {
    let counts = |counts: &[(String, u64)]| -> serde_json::Map<String, serde_json::Value> {
        counts.iter().map(|(word, count)| (word.clone(), (*count).into())).collect()
    };
    let tools: Vec<_> = stats
        .tools
        .iter()
        .map(|tool| {
            json!({ "tool": tool.tool, "calls": tool.calls, "failed": tool.failed, "total_ms": tool.total_ms })
        })
        .collect();
    json!({
        "sessions": stats.sessions, "sessions_by_state": counts(&stats.sessions_by_state),
        "sessions_by_agent": counts(&stats.sessions_by_agent),
        "sessions_by_project": counts(&stats.sessions_by_project),
        "runs_by_state": counts(&stats.runs_by_state), "runs_by_model": counts(&stats.runs_by_model),
        "messages_by_role": counts(&stats.messages_by_role), "tools": tools,
        "usage": TokenCount::new(stats.usage, stats.unpriced()), "run_ms": stats.run_ms, "by_day": spent_json(&stats.by_day),
        "by_week": spent_json(&stats.by_week), "by_model": spent_json(&stats.by_model),
        "by_project": spent_json(&stats.by_project), "by_agent": spent_json(&stats.by_agent),
    })
}

fn readable(stats: &Stats, paint: Paint) -> String {
    let total = |counts: &[(String, u64)]| counts.iter().map(|(_, count)| count).sum::<u64>();
    let list = |counts: &[(String, u64)]| -> String {
        let shown = counts.iter().map(|(word, count)| format!("{} {count}", output::plain(word)));
        shown.collect::<Vec<_>>().join(", ")
    };
    let mut text = String::new();
    let mut line = |label: &str, count: Option<u64>, detail: String| {
        // Nothing to count by, and nothing counted.
        if count.is_none() && detail.is_empty() {
            return;
        }
        let count = count.map_or_else(String::new, |count| count.to_string());
        text.push_str(format!("{} {count:>10}  {detail}", paint.bold(&format!("{label:<10}"))).trim_end());
        text.push('\n');
    };
    line("sessions", Some(stats.sessions), list(&stats.sessions_by_state));
    line("  agents", None, list(&stats.sessions_by_agent));
    line("  projects", None, list(&stats.sessions_by_project));
    line("runs", Some(total(&stats.runs_by_state)), list(&stats.runs_by_state));
    line("  models", None, list(&stats.runs_by_model));
    line("messages", Some(total(&stats.messages_by_role)), list(&stats.messages_by_role));
    line("tokens", Some(stats.usage.input.saturating_add(stats.usage.output)), {
        format!("{} in, {} out", stats.usage.input, stats.usage.output)
    });
    if stats.usage.cost_nano_usd > 0 || stats.unpriced() > 0 {
        line("cost", None, cost(stats.usage, stats.unpriced()));
    }
    line("run time", None, format!("{:.1} s", stats.run_ms as f64 / 1_000.0));
    let calls: u64 = stats.tools.iter().map(|tool| tool.calls).sum();
    line("tool calls", Some(calls), String::new());
    for tool in &stats.tools {
        let failed = if tool.failed > 0 { format!(", {} failed", tool.failed) } else { String::new() };
        let took = format!("{} ms{failed}", tool.total_ms);
        line("", Some(tool.calls), format!("{} ({took})", output::plain(&tool.tool)));
    }
    text
}
