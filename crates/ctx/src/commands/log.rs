//! `ctx log`: the records of a session, and those that are still to come.

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
/// Every record, one line each: what was said, what ran, how it ended, who came and went. The log is the truth
/// that all else is derived from. Works without a daemon. With -f, goes on until the session is over.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx log coder                   the current session of coder
  ctx log -f coder/fix-tests      and what happens next
  ctx log --json 01K9X | jq 'select(.type == \"failed\")'")]
pub struct Args {
    /// agent/name, an id or the beginning of one; an agent alone means its current session
    #[arg(value_name = "SESSION", default_value = sessions::DEFAULT_AGENT)]
    session: String,
    /// Go on with new records until the session is over
    #[arg(short, long)]
    follow: bool,
    /// Print the lines of events.jsonl as they stand
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
