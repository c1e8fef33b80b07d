//! `ctx which`: where an object is.

use std::io::Write;

use crate::failure::Failure;
use crate::output;
use crate::root::Root;

/// Print the path of an agent, a model or a tool
///
/// Looks in the directories of CTX_PATH, separated by colons. Without it: your own tools and aliases in the root
/// (home/UID/tool and home/UID/model), then its tools, agents and models.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx which coder
  ctx which debug/echo
  $(ctx which fs.read) '{\"path\":\"README.md\"}'

exit codes: 0 success, 1 failed or not found, 2 bad name")]
pub struct Args {
    /// A name; provider/model for a model
    #[arg(value_name = "OBJECT")]
    name: String,
    /// Print the name and the path as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, root: &Root) -> Result<(), Failure> {
    let found = super::must_find(root, &args.name)?;
    if args.json {
        return output::json(&serde_json::json!({ "name": args.name, "path": found.path }));
    }
    let mut out = output::stdout();
    writeln!(out, "{}", found.path.display())?;
    out.flush()?;
    Ok(())
}
