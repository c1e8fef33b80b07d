//! `ctx prompt`: the prompts of a paused session.

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

/// Show or edit what a paused session's model is told
///
/// An edit holds from the resume on, for this session alone; the agent's own files stay as they are. The model is
/// told that its prompt was changed.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx pause coder && ctx prompt edit coder && ctx resume coder
  ctx prompt show coder
  ctx prompt edit coder --file prompt.md
  ctx prompt show coder | sed 's/be brief/be thorough/' | ctx prompt edit coder --file -")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print a prompt as it stands at the checkpoint, edits included
    Show {
        #[command(flatten)]
        which: Which,
    },
    /// Edit a prompt at the checkpoint that the session is paused at, with $VISUAL or $EDITOR unless a file is given
    Edit {
        #[command(flatten)]
        which: Which,
        /// The new text; `-` is stdin, which is also read when it is no terminal
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
    },
}

#[derive(Debug, clap::Args)]
struct Which {
    /// agent/name, an id or the beginning of one; an agent alone means its current session
    #[arg(value_name = "SESSION")]
    session: String,
    /// Whose prompt
    #[arg(long, value_name = "NAME", default_value = "primary")]
    target: String,
    /// The checkpoint; an id or the beginning of one [default: the one that the session is paused at]
    #[arg(long, value_name = "ID")]
    checkpoint: Option<String>,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let api = Api::new(root);
    match args.what {
        What::Show { which } => {
            let (_, checkpoint) = at(root, &api, &which)?;
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
            Failure::new(Code::Ebusy, format!("{} is not paused", which.session))
                .hint("prompts are edited at a checkpoint: `ctx pause` makes one while a run goes on")
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
        return Err(Failure::new(Code::Enoent, format!("there is no prompt `{target}` here"))
            .hint(format!("there is {}", known.join(", "))));
    }
    let text = match edited {
        Some(edit) => edit.content.as_deref(),
        None => original.and_then(|prompt| prompt.content.as_deref()),
    };
    text.ok_or_else(|| Failure::new(Code::Eio, "the text of this prompt is gone from the disk"))
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
    if content == before {
        output::say("nothing was changed");
        return Ok(());
    }
    let path = format!("/sessions/{id}/checkpoints/{}/prompts/{}", checkpoint.id, which.target);
    let _: Checkpoint = api.put(&path, &PromptContent { content })?;
    output::say(format_args!("edited; it holds once `ctx resume {}` goes on", which.session));
    Ok(())
}

/// Has a person edit a text. Only they can read the file meanwhile.
fn in_editor(text: &str) -> Result<String, Failure> {
    let set = |name: &str| std::env::var(name).ok().filter(|editor| !editor.trim().is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    let failed = |error| Failure::io("cannot make a file to edit", error);
    let mut file = tempfile::Builder::new().prefix("ctx-prompt-").suffix(".md").tempfile().map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(failed)?;
    // An editor's setting may have arguments of its own, as a shell would read them.
    let status = Command::new("sh")
        .args(["-c", &format!("{editor} \"$1\""), "ctx"])
        .arg(file.path())
        .status()
        .map_err(|error| Failure::io(format!("{editor} does not start"), error))?;
    if !status.success() {
        return Err(Failure::new(Code::Einval, format!("{editor} ended with {status}; nothing was changed")));
    }
    std::fs::read_to_string(file.path()).map_err(|error| Failure::io("cannot read what was edited", error))
}
