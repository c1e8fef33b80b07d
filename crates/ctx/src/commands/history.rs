//! `ctx history`: the conversation, from the session's files, read no further than it is asked for.

use std::collections::VecDeque;
use std::io::Write;

use ctx_session::conversation::{Message, Part, Role};
use ctx_session::record::ToolStatus;
use ctx_views::read::{Line, MessageLine, ReadError};

use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::sessions::Which;
use crate::words;

/// Print the conversation of a session
///
/// Oldest first, from messages.jsonl. Works without a daemon, and `ctx history | head` reads no more of a long
/// history than it shows. With --json, the lines of the file as they stand.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx history                     coder's current session
  ctx history coder -n 4          its last four messages
  ctx history --json | jq -r 'select(.role == \"user\") | .content[0].text'
  ctx history coder/fix-tests | less")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Only the last N messages
    #[arg(short = 'n', long = "last", value_name = "N")]
    last: Option<usize>,
    /// Print the lines of messages.jsonl
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let reader = root.reader()?;
    let session = args.which.find(&reader)?;
    let lines = reader.messages(&session)?;
    match args.last {
        None => print(lines, args.json),
        Some(n) => print(last(lines, n)?.into_iter().map(Ok), args.json),
    }
}

/// The last `n` lines, keeping no more than those.
fn last(
    lines: impl Iterator<Item = Result<MessageLine, ReadError>>,
    n: usize,
) -> Result<VecDeque<MessageLine>, ReadError> {
    let mut kept = VecDeque::new();
    for line in lines {
        kept.push_back(line?);
        if kept.len() > n {
            kept.pop_front();
        }
    }
    Ok(kept)
}

fn print(lines: impl Iterator<Item = Result<MessageLine, ReadError>>, json: bool) -> Result<(), Failure> {
    let mut out = output::stdout();
    let paint = Paint::for_stdout();
    for line in lines {
        let line = line?;
        if json {
            writeln!(out, "{}", line.text)?;
        } else {
            write!(out, "{}", readable(&line, paint))?;
        }
    }
    out.flush()?;
    Ok(())
}

/// A message for a person, its line ends included.
fn readable(line: &MessageLine, paint: Paint) -> String {
    match line.read() {
        Line::Said(message) => message_text(&message, paint),
        Line::Superseded { ids } => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            paint.dim(&format!("(no longer counts: {})", ids.join(", "))) + "\n\n"
        }
        Line::Restored { ids } => {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            paint.dim(&format!("(counts again: {})", ids.join(", "))) + "\n\n"
        }
        Line::Unknown => paint.dim("(a line this version cannot read)") + "\n\n",
    }
}

fn message_text(message: &Message, paint: Paint) -> String {
    let who = match message.role {
        Role::User => paint.cyan("user"),
        Role::Assistant => paint.green("assistant"),
        Role::Subagent => paint.green("subagent"),
        Role::System => paint.yellow("system"),
        Role::Tool => paint.dim("tool"),
    };
    let mut text = format!("{who} {}\n", paint.dim(&words::date_time(message.time)));
    for part in &message.content {
        match part {
            Part::Text { text: said } => {
                text.push_str(output::plain(said).trim_end_matches('\n'));
                text.push('\n');
            }
            Part::ToolCall { name, input, .. } => {
                text.push_str(&format!(
                    "→ {name} {}\n",
                    words::shorten(&output::plain(&input.to_string()), 200)
                ));
            }
            Part::ToolResult { status, text: output, .. } => {
                let status = match status {
                    ToolStatus::Ok => "ok",
                    ToolStatus::Error => "error",
                    ToolStatus::Interrupted => "interrupted",
                };
                text.push_str(&format!("← {status}\n{}\n", output::plain(output).trim_end_matches('\n')));
            }
        }
    }
    text.push('\n');
    text
}
