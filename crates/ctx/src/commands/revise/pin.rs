//! `ctx pin`: protects a message from compaction.

use ctx_api::http::{List, Message, Pin};
use ctx_session::Ulid;

use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{ids, output, sessions};

/// Protect a message from compaction
///
/// A pinned message stays in context, however full the model's window becomes. A tool call is pinned together
/// with its result. A rollback to before the message still removes it.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx history coder --json        messages with their ids
  ctx pin coder 01K9Y3R6K2QW1B7E0S4N8M5T2A
  ctx pin coder 01K9Y3R6K2QW1B7E0S4N8M5T2A --off

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// The message's id; the beginning or end of the id is enough for the newest thousand messages
    #[arg(value_name = "MESSAGE")]
    message: String,
    /// Remove the pin
    #[arg(long)]
    off: bool,
    /// Print the pin as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    let api = Api::new(root);
    let message = match args.message.parse::<Ulid>() {
        Ok(message) => message,
        Err(_) => find(&api, &format!("/sessions/{id}/messages?limit=1000&superseded=false"), &args.message)?,
    };
    let path = format!("/sessions/{id}/messages/{message}/pin");
    let pin = if args.off {
        api.delete(&path)?;
        Pin { message_id: message, pinned: false }
    } else {
        api.put(&path, &serde_json::json!({}))?
    };
    match pin.pinned {
        _ if args.json => return output::json(&pin),
        false => output::say(format_args!("{message} is not pinned")),
        true => output::say(format_args!("{message} is pinned; compactions keep it")),
    }
    Ok(())
}

fn find(api: &Api, path: &str, word: &str) -> Result<Ulid, Failure> {
    let list: List<Message> = api.get(path)?;
    let hint = "`ctx history SESSION --json` shows their ids";
    Ok(ids::one(list.items, |message| message.id.to_string(), word, ("message", hint))?.id)
}
