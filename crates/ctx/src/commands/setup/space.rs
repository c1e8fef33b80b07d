//! `ctx space`: spaces, in which sessions are shared with the members of a group.

use std::io::Write;

use ctx_api::http::{List, NewSpace, Space};
use ctx_session::{Code, Name, Timestamp};

use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::table::{self, Cell};
use crate::words;

/// Share sessions with the members of a group
///
/// The members of a space's group list, read and resume the sessions that are kept in it; for everyone else they do
/// not exist. Membership is checked at every request. A shared session acts with the rights of its owner, whoever
/// sends the message, so only let people into a space whom you trust with its sessions.
///
/// The daemon's owner may name any group; others one that they are in.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx space new team --group developers
  ctx send --space team --session review \"what is left to do?\"
  ctx space ls
  ctx space rm team               only if no session is kept in it

exit codes: 0 success, 1 failed or not found, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Create a space for the members of a group
    New {
        /// The new space's name
        #[arg(value_name = "NAME")]
        name: String,
        /// The group, by name or number
        #[arg(long, value_name = "GROUP")]
        group: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// List the spaces that you are let into
    #[command(alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a space in which no session is kept
    Rm {
        /// The space
        #[arg(value_name = "NAME")]
        name: String,
        /// Print the removed space as JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let api = Api::new(root);
    match args.what {
        What::New { name, group, json } => {
            let made: Space = api.post_with("/spaces", &NewSpace { name, group })?;
            if json {
                return output::json(&made);
            }
            output::say(format_args!(
                "the members of {} ({}) share the space {}",
                made.group, made.gid, made.name
            ));
            Ok(())
        }
        What::Ls { json } => list(api.get("/spaces")?, json),
        What::Rm { name, json } => {
            let name =
                Name::new(&name).map_err(|rule| Failure::new(Code::Einval, format!("{name}: {rule}")))?;
            let before: Option<List<Space>> = if json { Some(api.get("/spaces")?) } else { None };
            api.delete(&format!("/spaces/{name}"))?;
            output::json_lines(
                before.iter().flat_map(|list| &list.items).filter(|space| space.name == *name.as_str()),
            )
        }
    }
}

fn list(spaces: List<Space>, json: bool) -> Result<(), Failure> {
    if json {
        return spaces.items.iter().try_for_each(output::json);
    }
    let row = |space: Space| {
        let made = words::date_time(Timestamp::from_millis(space.created_at));
        let group = format!("{} ({})", output::one_line(&space.group), space.gid);
        [space.name, group, space.created_by.to_string(), made].map(Cell::new).into()
    };
    let rows: Vec<Vec<Cell>> = spaces.items.into_iter().map(row).collect();
    let mut out = output::stdout();
    let head = ["NAME", "GROUP", "BY UID", "CREATED"];
    out.write_all(table::render(&head, rows, output::width(), Paint::for_stdout()).as_bytes())?;
    out.flush()?;
    Ok(())
}
