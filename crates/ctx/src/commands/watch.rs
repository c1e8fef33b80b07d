//! `ctx watch`: what shells do, as lines.

use std::collections::HashMap;
use std::io::Write;
use std::time::Duration;

use ctx_journal::Entry;

use crate::commands::shells::transcript;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::shell_logs::{Shelf, id_of};

/// How often the logs are looked at: other programs write them.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Print what shells do
///
/// The transcripts of all shells, one after another; with --follow, what they do from now on, as it happens.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx watch --follow              until Ctrl-C
  ctx watch --follow --json | jq -r 'select(.type == \"shell_exec_started\") | .command'")]
pub struct Args {
    /// Go on with what happens next, and leave out what was before
    #[arg(short, long)]
    follow: bool,
    /// The records as they are in the logs, one a line
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let mut watch = Watch { seen: HashMap::new(), last: String::new(), json: args.json };
    if !args.follow {
        return watch.look(root, true);
    }
    watch.look(root, false)?;
    loop {
        output::pause(LOOK_EVERY)?;
        watch.look(root, true)?;
    }
}

struct Watch {
    /// The file's length and the next seq of each log.
    seen: HashMap<String, (u64, u64)>,
    /// The log whose lines were printed last.
    last: String,
    json: bool,
}

impl Watch {
    /// Reads what is new in all logs and prints it.
    fn look(&mut self, root: &Root, print: bool) -> Result<(), Failure> {
        let mut out = output::stdout();
        for shelf in Shelf::for_reading(root)? {
            for log in shelf.logs()? {
                let key = shelf.dir.join(log.as_str()).to_string_lossy().into_owned();
                let size = shelf.size(&log);
                let (known, from) = self.seen.get(&key).copied().unwrap_or((0, 0));
                if size == known {
                    continue;
                }
                let mut text = String::new();
                let next = shelf.read(&log, from, &mut |entry| text.push_str(&self.line(entry)))?;
                self.seen.insert(key, (size, next));
                if print && !text.is_empty() {
                    if !self.json && self.last != id_of(&log) {
                        writeln!(out, "{}", Paint::for_stdout().bold(&format!("== {} ==", id_of(&log))))?;
                        id_of(&log).clone_into(&mut self.last);
                    }
                    out.write_all(text.as_bytes())?;
                }
            }
        }
        out.flush()?;
        Ok(())
    }

    fn line(&self, entry: &Entry) -> String {
        if self.json { format!("{}\n", entry.text) } else { transcript(entry, Paint::for_stdout()) }
    }
}
