//! `ctx set`: changes a control file of an object.

use std::io::Read;
use std::sync::Arc;

use ctx_agent::model::Models;
use ctx_agent::object::{Thing, change};
use ctx_session::{Code, Limits};
use serde_json::json;

use crate::failure::Failure;
use crate::output;
use crate::root::Root;

/// Change a control file of an agent, a model or a tool
///
/// The form of the value is checked as on use. A bad one is refused with file and line, and nothing changes; a good one
/// replaces the old value and applies from the next run. A warning is printed for a model that does not exist.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx set coder model openai/gpt-4o
  ctx set coder prompt - < prompt.md
  ctx set fs.write policy 'deny fs.write *.lock'
  ctx set debug/script default script=/home/me/demo.json

exit codes: 0 success, 1 failed, not found or there already, 2 bad value or input, 13 not allowed, 70 internal error")]
pub struct Args {
    /// The agent, model or tool
    #[arg(value_name = "OBJECT")]
    object: String,
    /// The control file, such as model, prompt, policy, mount or env
    #[arg(value_name = "KEY")]
    key: String,
    /// Its text; - reads it from stdin
    #[arg(value_name = "VALUE", allow_hyphen_values = true)]
    value: String,
    /// Print what was set as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let found = super::must_find(root, &args.object)?;
    let Some(thing) = &found.thing else {
        let message = format!(
            "{} is a program of your own; edit the files in {}",
            args.object,
            found.control_dir(root).display()
        );
        return Err(Failure::new(Code::Einval, message));
    };
    let mut text = args.value;
    if text == "-" {
        text.clear();
        let read = std::io::stdin().read_to_string(&mut text);
        read.map_err(|error| Failure::io("stdin", error))?;
    }
    if !text.ends_with('\n') {
        text.push('\n');
    }
    change::set(&root.path, thing, &args.key, &text, &Limits::default()).map_err(super::refused)?;
    if matches!(thing, Thing::Agent(_)) && args.key == "model" {
        // A provider that is set up later brings its models in, so this is no reason to refuse it.
        let models = Models::new(root.path.clone(), Arc::new(Limits::default()));
        if let Err(error) = models.resolve(text.trim()) {
            output::say(format_args!("warning: {}", output::plain(&error.to_string())));
        }
    }
    if args.json {
        let set = json!({ "name": args.object, "key": args.key, "value": text.trim_end_matches('\n') });
        return output::json(&set);
    }
    Ok(())
}
