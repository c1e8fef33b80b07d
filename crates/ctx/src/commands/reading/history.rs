//! `ctx history`: prints the conversation from the session's log, and reads only as much as it prints.

use std::collections::VecDeque;
use std::io::Write;

use ctx_session::conversation::{Message, Part};
use ctx_views::read::{Said, Wanted};

use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::render::terminal;
use crate::root::Root;
use crate::said;
use crate::sessions::Which;
use crate::words::{self, Clock};

/// Print the conversation of a session
///
/// Prints the messages oldest first, read from the session's log. Messages removed from context by a rollback, a
/// compaction or a discard are left out; a summary stands in place of compacted ones. --all prints them too,
/// dimmed. A run that failed or was cancelled says why. It needs no daemon. With --json it prints
/// the messages as the API does, one on a line.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx history                     this directory's current session
  ctx history coder -n 4          its last four messages
  ctx history coder --all         also messages removed from context
  ctx history --json | jq -r 'select(.role == \"user\") | .content'
  ctx history coder/fix-tests | less

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 70 internal error")]
pub struct Args {
    #[command(flatten)]
    which: Which,
    /// Only the last N messages
    #[arg(short = 'n', long = "last", value_name = "N")]
    last: Option<usize>,
    /// Also print messages removed from context
    #[arg(short, long)]
    all: bool,
    /// Print times in UTC, not in local time
    #[arg(long)]
    utc: bool,
    /// Print one JSON object per message
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let reader = root.reader()?;
    let session = args.which.find(&reader)?;
    let mut out = output::stdout();
    if args.json {
        let messages = said::messages(&reader, &session, args.all)?;
        each(messages, args.last, |message| Ok(writeln!(out, "{}", output::json_line(message)?)?))?;
    } else {
        let wanted = if args.all { Wanted::All } else { Wanted::Counting };
        let paint = Paint::for_stdout();
        let messages = reader.conversation(&session, wanted)?;
        let clock = Clock::new(args.utc);
        each(messages, args.last, |said| Ok(write!(out, "{}", message_text(said, clock, paint))?))?;
    }
    out.flush()?;
    Ok(())
}

/// Does something with every item, or with the last `n`, keeping no more than those.
fn each<T, E: Into<Failure>>(
    items: impl Iterator<Item = Result<T, E>>,
    last: Option<usize>,
    mut print: impl FnMut(&T) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut kept = VecDeque::new();
    for item in items {
        match last {
            None => print(&item.map_err(Into::into)?)?,
            Some(n) => {
                kept.push_back(item.map_err(Into::into)?);
                if kept.len() > n {
                    kept.pop_front();
                }
            }
        }
    }
    kept.iter().try_for_each(print)
}

/// A message for a person, its line ends included.
fn message_text(said: &Said, clock: Clock, paint: Paint) -> String {
    let message = &said.message;
    let head = terminal::who_and_when(said, clock, paint) + "\n";
    let body = parts_text(message);
    let end = said.ended.as_ref().map(|ended| terminal::how_it_ended(ended, paint) + "\n");
    let end = end.unwrap_or_default() + "\n";
    if !said.superseded() {
        return head + &body + &end;
    }
    let dimmed: Vec<String> = body.lines().map(|line| paint.dim(line) + "\n").collect();
    head + &dimmed.concat() + &end
}

fn parts_text(message: &Message) -> String {
    let mut text = String::new();
    for part in &message.content {
        match part {
            Part::Text { text: said } => {
                text.push_str(output::plain(said).trim_end_matches('\n'));
                text.push('\n');
            }
            Part::Image(image) => text.push_str(&format!("{}\n", output::one_line(&image.in_words()))),
            Part::ToolCall { name, input, .. } => {
                text.push_str(&format!(
                    "→ {name} {}\n",
                    words::shorten(&output::plain(&input.to_string()), 200)
                ));
            }
            Part::ToolResult { status, text: output, .. } => {
                text.push_str(&format!("← {status}\n{}\n", output::plain(output).trim_end_matches('\n')));
            }
        }
    }
    text
}
