//! `ctx stats`: counts sessions, runs, messages, tools and tokens, with the index.

use std::io::Write;

use ctx_session::Name;
use ctx_views::db::{Stats, StatsQuery};
use serde_json::json;

use crate::failure::Failure;
use crate::moment::Moment;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{index, words};

/// Count sessions, runs, messages and tokens
///
/// Counts sessions, runs, messages, tool calls, tokens and run time. What a fork copied from its source is
/// counted once. It reads the index and needs no daemon, unless the root belongs to another user.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx stats
  ctx stats coder --since 7d
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
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let index = index::open(root)?;
    let viewer = index::viewer(&root.reader()?)?;
    let since = args.since.map(|moment| moment.seen_from(words::now()));
    let stats = index.stats(&StatsQuery { viewer, agent: args.agent, project: args.project, since })?;
    if args.json {
        output::json(&as_json(&stats))?;
    } else {
        let mut out = output::stdout();
        out.write_all(readable(&stats, Paint::for_stdout()).as_bytes())?;
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
        "usage": { "input": stats.usage.input, "output": stats.usage.output }, "run_ms": stats.run_ms,
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
