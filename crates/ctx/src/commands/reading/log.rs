//! `ctx log`: prints the records of a session and follows new ones.

mod follow;
mod line;

use std::io::Write;
use std::ops::ControlFlow;

use ctx_journal::{FileJournal, Journal};
use ctx_views::read::SessionRef;

use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::sessions;
use follow::Follow;

/// Print the log of a session
///
/// Prints one line per record, oldest first: messages, tool calls, state changes, checkpoints, attached clients.
/// The log is the source of every other file. It needs no daemon. With -f it keeps printing new records until the
/// session ends.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx log coder                   coder's current session
  ctx log -f coder/fix-tests      keep printing new records
  ctx log --json 01K9X | jq 'select(.type == \"failed\")'

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION", default_value = sessions::HERE, hide_default_value = true)]
    session: String,
    /// Keep printing new records until the session ends
    #[arg(short, long)]
    follow: bool,
    /// Print the lines of events.jsonl unchanged
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let reader = root.reader()?;
    let session = sessions::find(&reader, &args.session)?;
    let id = reader.meta(&session)?.id;
    let mut printer = Printer { journal: root.journal()?, next: 0, over: false, json: args.json };
    if !args.follow {
        printer.print_new(&session)?;
        return Ok(());
    }
    // Watching begins before reading, so that nothing falls between the two.
    let mut follow = Follow::start(root, reader, session, id)?;
    loop {
        follow.read_with(&mut |session| printer.print_new(session))?;
        if printer.over {
            return Ok(());
        }
        follow.wait()?;
    }
}

/// Prints records that were not printed yet.
struct Printer {
    journal: std::sync::Arc<FileJournal>,
    /// The seq of the first record that was not printed.
    next: u64,
    /// The session will have no more records.
    over: bool,
    json: bool,
}

impl Printer {
    fn print_new(&mut self, session: &SessionRef) -> Result<(), Failure> {
        let log = session.log()?;
        let (mut out, paint) = (output::stdout(), Paint::for_stdout());
        let mut wrong = None;
        let read = self.journal.clone().read(&log, self.next, &mut |entry| {
            self.next = entry.seq + 1;
            self.over |= line::is_end(&entry);
            let text = if self.json { entry.text } else { line::readable(&entry, paint) };
            match writeln!(out, "{text}") {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    wrong = Some(error);
                    ControlFlow::Break(())
                }
            }
        });
        if let Some(error) = wrong {
            return Err(error.into());
        }
        for damage in read.map_err(ctx_views::ViewError::from)? {
            output::say(format_args!("{log}: {damage}"));
        }
        out.flush()?;
        Ok(())
    }
}
