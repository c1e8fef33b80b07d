//! `ctx prompt`: shows and edits the prompts of a paused session.

use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::Subcommand;
use ctx_api::http::{Checkpoint, PromptContent, Session};
use ctx_session::{Code, SessionId};

use super::checkpoints;
use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions};

/// Show or edit the prompts of a paused session
///
/// An edit applies to this session only, from its resume on; the agent's own files do not change. The model is
/// informed that its prompt was edited.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx pause coder && ctx prompt edit coder && ctx resume coder
  ctx prompt show coder
  ctx prompt edit coder --file prompt.md
  ctx prompt show coder | sed 's/be brief/be thorough/' | ctx prompt edit coder --file -

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print a prompt as it is at the checkpoint, with edits
    Show {
        #[command(flatten)]
        which: Which,
    },
    /// Edit a prompt of a paused session, with $VISUAL or $EDITOR or from a file
    Edit {
        #[command(flatten)]
        which: Which,
        /// File with the new text; `-` is stdin, also the default if stdin is not a terminal
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
struct Which {
    /// The session: agent/name, an agent (its current session), an id or the beginning or end of an id
    #[arg(value_name = "SESSION")]
    session: String,
    /// Agent whose prompt it is
    #[arg(long, value_name = "NAME", default_value = "primary")]
    target: String,
    /// The checkpoint: an id or the beginning or end of an id [default: where the session is paused]
    #[arg(long, value_name = "ID")]
    checkpoint: Option<String>,
    /// Print the checkpoint as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let api = Api::new(root);
    match args.what {
        What::Show { which } => {
            let (_, checkpoint) = at(root, &api, &which)?;
            if which.json {
                return output::json(&checkpoint);
            }
            std::io::stdout().write_all(text_of(&checkpoint, &which.target)?.as_bytes())?;
            Ok(())
        }
        What::Edit { which, file } => edit(root, &api, &which, file.as_deref()),
    }
}

/// The checkpoint that is meant, with its texts.
fn at(root: &Root, api: &Api<'_>, which: &Which) -> Result<(SessionId, Checkpoint), Failure> {
    let id = sessions::find_id(root, &which.session)?;
    let checkpoint = match &which.checkpoint {
        Some(word) => checkpoints::find(api, id, word)?,
        None => api.get::<Session>(&format!("/sessions/{id}"))?.checkpoint.ok_or_else(|| {
            Failure::new(Code::Ebusy, format!("{} is not paused", which.session)).hint(
                "prompts are edited at a checkpoint; `ctx pause` creates one while a run is in progress",
            )
        })?,
    };
    Ok((id, api.get(&format!("/sessions/{id}/checkpoints/{checkpoint}"))?))
}

/// A prompt as it stands: as it was edited last, else as it was.
fn text_of<'a>(checkpoint: &'a Checkpoint, target: &str) -> Result<&'a str, Failure> {
    let edited = checkpoint.prompt_edits.iter().rev().find(|edit| edit.target == target);
    let original = checkpoint.prompts_in_effect.iter().find(|prompt| prompt.target == target);
    if edited.is_none() && original.is_none() {
        let known: Vec<&str> =
            checkpoint.prompts_in_effect.iter().map(|prompt| prompt.target.as_str()).collect();
        return Err(Failure::new(Code::Enoent, format!("no prompt `{target}` here"))
            .hint(format!("available: {}", known.join(", "))));
    }
    let text = match edited {
        Some(edit) => edit.content.as_deref(),
        None => original.and_then(|prompt| prompt.content.as_deref()),
    };
    text.ok_or_else(|| {
        Failure::new(
            Code::Eio,
            "the text of this prompt is missing on disk; `ctx doctor --deep` names the file",
        )
    })
}

fn edit(root: &Root, api: &Api<'_>, which: &Which, file: Option<&Path>) -> Result<(), Failure> {
    let (id, checkpoint) = at(root, api, which)?;
    let before = text_of(&checkpoint, &which.target)?;
    let content = match file {
        Some(path) if path.as_os_str() != "-" => std::fs::read_to_string(path)
            .map_err(|error| Failure::io(format!("cannot read {}", path.display()), error))?,
        None if std::io::stdin().is_terminal() => in_editor(before)?,
        Some(_) | None => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| Failure::io("stdin", error))?;
            text
        }
    };
    if content == before && which.json {
        return output::json(&checkpoint);
    }
    if content == before {
        output::say("nothing was changed");
        return Ok(());
    }
    let path = format!("/sessions/{id}/checkpoints/{}/prompts/{}", checkpoint.id, which.target);
    let edited: Checkpoint = api.put(&path, &PromptContent { content })?;
    if which.json {
        return output::json(&edited);
    }
    output::say(format_args!("edited; it applies when `ctx resume {}` continues the run", which.session));
    Ok(())
}

/// Has a person edit a text. Only they can read the file meanwhile.
fn in_editor(text: &str) -> Result<String, Failure> {
    let set = |name: &str| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    let failed = |error| Failure::io("cannot create a file to edit", error);
    let mut file = tempfile::Builder::new().prefix("ctx-prompt-").suffix(".md").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    // An editor's setting may have arguments of its own, as a shell would read them.
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "ctx"])
        .arg(file.path())
        .status()
        .map_err(|error| Failure::io(format!("cannot start {editor}"), error))?;
    if !status.success() {
        return Err(Failure::new(
            Code::Einval,
            format!("{editor} exited with {status}; nothing was changed"),
        ));
    }
    std::fs::read_to_string(file.path()).map_err(|error| Failure::io("cannot read the edited file", error))
}
