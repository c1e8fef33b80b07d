//! `ctx diff`: what a session changed in files.

use std::io::{IsTerminal, Write};

use ctx_api::http::{ChangedFile, Changes};

use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::render::diff;
use crate::root::Root;
use crate::{sessions, words};

/// Show the files that a session changed
///
/// Compares what was there before the session's first change with what was there after its last one, from the
/// snapshots around its runs. Changes that were taken back are not shown. `?` marks a file that someone else may
/// have changed during a run, `!` one that someone else changed between two runs.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx diff coder                  the current session, as a unified diff
  ctx diff coder --stat           only the names
  ctx diff coder > changes.patch  for `git apply`; what such a patch cannot have is named on stderr

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// Print only the names of the files
    #[arg(long)]
    stat: bool,
    /// Print JSON, with the diffs
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let path = format!("/sessions/{id}/changes?diff={}", !args.stat);
    let changes: Changes = Api::new(root).get(&path)?;
    if args.json {
        return output::json(&changes);
    }
    let Some(workspace) = &changes.workspace else {
        output::say(format_args!("no saved file changes in {}", args.session));
        return Ok(());
    };
    let (paint, is_terminal) = (Paint::for_stdout(), std::io::stdout().is_terminal());
    let (mut out, mut left_out) = (output::stdout(), Vec::new());
    for file in &changes.files {
        match &file.diff {
            // Not as it would be shown: a patch has the bytes of the files.
            Some(text) if !args.stat && !is_terminal => out.write_all(text.as_bytes())?,
            Some(text) if !args.stat => out.write_all(diff::text(text, "", paint).as_bytes())?,
            None if !args.stat && !is_terminal => {
                if !comes_with_others(file, &changes.files) {
                    left_out.push(output::plain(&file.path));
                }
            }
            _ => {
                let sign = match file.change.as_str() {
                    "created" => paint.green("A"),
                    "removed" => paint.red("D"),
                    _ => paint.yellow("M"),
                };
                let mark = match (file.mixed, file.uncertain) {
                    (true, _) => " !",
                    (false, true) => " ?",
                    (false, false) => "",
                };
                writeln!(out, "{sign} {}{mark}", output::plain(&file.path))?;
            }
        }
    }
    out.flush()?;
    for path in &left_out {
        output::say(format_args!("not in the patch: {path}"));
    }
    if !left_out.is_empty() {
        output::say(
            "a patch has text of up to 1 MiB a file, symbolic links, and of modes only whether a file is executable",
        );
    }
    output::say(format_args!("{} in {}", words::files(changes.files.len()), output::plain(workspace)));
    Ok(())
}

/// Whether it is a directory that comes or goes with the files in it.
fn comes_with_others(dir: &ChangedFile, files: &[ChangedFile]) -> bool {
    let is_in = |file: &ChangedFile| {
        file.change == dir.change
            && file.path.strip_prefix(&dir.path).is_some_and(|rest| rest.starts_with('/'))
    };
    dir.change != "changed" && files.iter().any(is_in)
}
