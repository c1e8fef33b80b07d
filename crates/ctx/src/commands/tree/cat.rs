//! `ctx cat`: what an object's files say.

use std::io::Write;

use ctx_session::{Code, Name};

use crate::failure::Failure;
use crate::output;
use crate::root::Root;

/// Print an object, or one of its control files
///
/// The object alone prints its executable, which describes the object. An alias is followed first.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx cat coder                   what coder is
  ctx cat coder/prompt            its prompt
  ctx cat debug/echo/cap
  ctx cat fs.read/schema | jq .

exit codes: 0 success, 1 failed or not found, 2 bad name, 13 not allowed")]
pub struct Args {
    /// The object, and one of its control files
    #[arg(value_name = "OBJECT[/FILE]")]
    object: String,
    /// Print the path and the text as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args, root: &Root) -> Result<(), Failure> {
    let path = match super::find(root, &args.object)? {
        Some(found) => found.path,
        None => {
            let (object, file) =
                args.object.rsplit_once('/').ok_or_else(|| super::no_object(root, &args.object))?;
            Name::new(file).map_err(|rule| Failure::new(Code::Einval, format!("`{file}`: {rule}")))?;
            super::must_find(root, object)?.control_dir(root).join(file)
        }
    };
    let bytes = std::fs::read(&path).map_err(|error| Failure::io(path.display(), error))?;
    if args.json {
        let text = String::from_utf8_lossy(&bytes);
        return output::json(&serde_json::json!({ "path": path, "text": text }));
    }
    let mut out = output::stdout();
    out.write_all(&bytes)?;
    out.flush()?;
    Ok(())
}
