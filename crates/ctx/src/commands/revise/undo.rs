//! `ctx undo`: takes back what a session's last run changed in files.

use std::io::Write;

use ctx_api::http::{FilesBack, Undo};

use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::{confirm, sessions, words};

/// Take back what the last run changed in files
///
/// Files that the run created are removed, the others are as they were before it. A file that was changed again since
/// is kept and named, and the next undo tries it again. The conversation stays as it is: `ctx rollback --files`
/// takes both back. Asked again, it takes back the run before. The current files are saved first, so you can reverse the undo. On a terminal the
/// command asks for confirmation; in a script, pass --yes.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx undo coder --dry-run        what would change
  ctx undo --yes coder
  ctx snapshots restore 01K9Y3R6K2QW1B7E0S4N8M5T2A

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// Only show what would change
    #[arg(long)]
    dry_run: bool,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
    let path = format!("/sessions/{id}/undo");
    if !args.yes && !args.dry_run {
        confirm::ask("taking files back", || {
            let would: FilesBack = api.post_with(&path, &Undo { dry_run: true })?;
            let files = words::files(would.changed.len());
            Ok(format!("Take back {files} in {}?", output::plain(&would.workspace)))
        })?;
    }
    let back: FilesBack = api.post_with(&path, &Undo { dry_run: args.dry_run })?;
    if args.json {
        return output::json(&back);
    }
    show(&back)
}

/// What went back, what was kept, and how to undo it.
pub fn show(back: &FilesBack) -> Result<(), Failure> {
    let paint = Paint::for_stdout();
    let mut out = output::stdout();
    for file in &back.changed {
        let mark =
            if back.uncertain.contains(&file.path) { "  someone else may have changed it" } else { "" };
        writeln!(out, "{:<8} {}{}", file.change, output::plain(&file.path), paint.dim(mark))?;
    }
    for kept in &back.kept {
        let kept_word = paint.yellow(&format!("{:<8}", "kept"));
        writeln!(out, "{kept_word} {}  {}", output::plain(&kept.path), paint.dim(&kept.why))?;
    }
    out.flush()?;
    for before in &back.unknown {
        output::say(format_args!(
            "what one run changed is not known and was left; `ctx snapshots restore {before}` makes all files as they were before it"
        ));
    }
    match back.undo {
        Some(undo) => output::say(format_args!(
            "{} changed, {} kept; `ctx snapshots restore {undo}` restores the files as they were before this command",
            words::files(back.changed.len()),
            back.kept.len()
        )),
        None => output::say(format_args!(
            "{} would change, {} kept",
            words::files(back.changed.len()),
            back.kept.len()
        )),
    }
    Ok(())
}
