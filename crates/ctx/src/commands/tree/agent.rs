//! `ctx agent`: agents that control files describe.

use std::io::Write;
use std::time::Duration;

use ctx_agent::describe::{agents, describe};
use ctx_agent::object::Thing;
use ctx_agent::object::change::{self, AGENT_FILES};
use ctx_agent::project::shown_for;
use ctx_session::{Code, Limits, Name};
use serde::Serialize;

use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::table::{self, Cell};
use crate::{confirm, sessions};

/// How long a daemon may take to open the socket of a new agent, and how soon that is looked at again.
const OPENED_WITHIN: Duration = Duration::from_secs(5);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// Create, change, remove and list agents
///
/// An agent is a directory of small files, agent/NAME.d in the root: its model, prompt, policy, mount table and more. The
/// agent of a project is described by the project's file instead, and only shown there.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx agent new reviewer --model openai/gpt-4o --prompt \"You review changes.\"
  ctx agent edit reviewer         its prompt, in your editor
  ctx agent edit reviewer mount   its mount table
  ctx agent ls
  ctx agent rm reviewer --yes     its sessions stay

exit codes: 0 success, 1 failed, not found or there already, 2 bad value or input, 13 not allowed, 70 internal error")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Create an agent, as a copy of another
    New {
        /// The new agent's name
        #[arg(value_name = "NAME")]
        name: String,
        /// The agent to copy
        #[arg(long, value_name = "AGENT", default_value = sessions::DEFAULT_AGENT)]
        from: String,
        /// Its model: provider/model or an alias
        #[arg(long, value_name = "MODEL")]
        model: Option<String>,
        /// Its prompt
        #[arg(long, value_name = "TEXT")]
        prompt: Option<String>,
        /// Print the agent as JSON
        #[arg(long)]
        json: bool,
    },
    /// Change a control file in your editor
    Edit {
        /// The agent
        #[arg(value_name = "AGENT")]
        name: String,
        /// The file
        #[arg(value_name = "FILE", default_value = "prompt")]
        file: String,
        /// Print the agent as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove an agent; its sessions stay
    Rm {
        /// The agent
        #[arg(value_name = "AGENT")]
        name: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        /// Print the removed agent as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the agents
    #[command(alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    match args.what {
        What::New { name, from, model, prompt, json } => {
            let (name, from) = (super::agent_name(&name)?, super::agent_name(&from)?);
            super::must_be_agent(root, &from)?;
            new(root, &name, &from, [("model", model), ("prompt", prompt)])?;
            if json {
                return output::json(&look(root, &name));
            }
            output::say(format_args!(
                "{} is there; `ctx chat {name}` talks with it",
                root.path.join("agent").join(name.as_str()).display()
            ));
            Ok(())
        }
        What::Edit { name, file, json } => {
            let name = super::agent_name(&name)?;
            super::must_be_agent(root, &name)?;
            edit(root, &name, &file)?;
            if json { output::json(&look(root, &name)) } else { Ok(()) }
        }
        What::Rm { name, yes, json } => {
            let name = super::agent_name(&name)?;
            super::must_be_agent(root, &name)?;
            if !yes {
                confirm::ask("removing an agent", || {
                    Ok(format!("remove the agent {name}? Its sessions stay"))
                })?;
            }
            let before = look(root, &name);
            change::remove_agent(&root.path, &name).map_err(super::refused)?;
            if json { output::json(&before) } else { Ok(()) }
        }
        What::Ls { json } => list(root, json),
    }
}

fn new(root: &Root, name: &Name, from: &Name, given: [(&str, Option<String>); 2]) -> Result<(), Failure> {
    let limits = Limits::default();
    let mut files = Vec::new();
    for file in AGENT_FILES {
        let named = given.iter().find(|(key, _)| *key == file).and_then(|(_, value)| value.as_ref());
        let text = match named {
            Some(value) => format!("{}\n", value.trim_end_matches('\n')),
            None => change::agent_file(&root.path, from, file, &limits).map_err(super::refused)?,
        };
        // What it is copied from may not have all of them.
        if named.is_some() || root.path.join(format!("agent/{from}.d/{file}")).exists() {
            files.push((file.to_owned(), text));
        }
    }
    change::new_agent(&root.path, name, &files, &limits).map_err(super::refused)?;
    // A daemon that runs opens its socket when it next looks: whoever names the agent then finds it.
    let socket = root.path.join(format!("agent/{name}.sock"));
    let until = std::time::Instant::now() + OPENED_WITHIN;
    while root.is_up() && !socket.exists() && std::time::Instant::now() < until {
        std::thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Opens a copy in the editor; what is saved is checked and takes the file's place.
fn edit(root: &Root, name: &Name, file: &str) -> Result<(), Failure> {
    let limits = Limits::default();
    // Before the editor opens: what was written there would have no place.
    change::may_change(&root.path, &Thing::Agent(name.clone()), file).map_err(super::refused)?;
    let old = change::agent_file(&root.path, name, file, &limits).map_err(super::refused)?;
    let copy = std::env::temp_dir().join(format!("ctx-{name}-{file}-{}", std::process::id()));
    let failed = |error| Failure::io(copy.display(), error);
    std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .open(&copy)
        .map_err(failed)?
        .write_all(old.as_bytes())
        .map_err(failed)?;
    let set = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    let editor = set("VISUAL").or_else(|| set("EDITOR")).unwrap_or_else(|| "vi".to_owned());
    // An editor may be given with options, as git takes it.
    let ended =
        std::process::Command::new("sh").args(["-c", &format!("{editor} \"$1\""), "sh"]).arg(&copy).status();
    let ended = ended.map_err(|error| Failure::io(&editor, error))?;
    if !ended.success() {
        let _ = std::fs::remove_file(&copy);
        return Err(Failure::new(Code::Eio, format!("{editor} ended with {ended}; nothing was changed")));
    }
    let new = std::fs::read_to_string(&copy).map_err(failed)?;
    if new == old {
        let _ = std::fs::remove_file(&copy);
        output::say("nothing was changed");
        return Ok(());
    }
    let thing = Thing::Agent(name.clone());
    match change::set(&root.path, &thing, file, &new, &limits) {
        Ok(()) => {
            let _ = std::fs::remove_file(&copy);
            Ok(())
        }
        Err(refusal) => {
            Err(super::refused(refusal).hint(format!("what you wrote is kept in {}", copy.display())))
        }
    }
}

/// An agent of the list.
#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    model: Option<String>,
    project: Option<String>,
    /// Whose project describes it; None: its control files do.
    described_by_project: bool,
    /// `ready`, or what is wrong.
    status: String,
}

fn list(root: &Root, json: bool) -> Result<(), Failure> {
    let found = agents(&root.path).map_err(|error| Failure::io(root.path.display(), error))?;
    let listed: Vec<Listed> = found.into_iter().map(|name| look(root, &name)).collect();
    if json {
        return output::json_lines(&listed);
    }
    let row = |agent: Listed| {
        let cells = [
            agent.name,
            agent.model.unwrap_or_default(),
            agent.project.unwrap_or_default(),
            output::one_line(&agent.status),
        ];
        cells.map(Cell::new).into()
    };
    let rows = listed.into_iter().map(row).collect();
    let mut out = output::stdout();
    let head = ["NAME", "MODEL", "PROJECT", "STATUS"];
    out.write_all(table::render(&head, rows, output::width(), Paint::for_stdout()).as_bytes())?;
    out.flush()?;
    Ok(())
}

fn look(root: &Root, name: &Name) -> Listed {
    let shown = shown_for(&root.path, name);
    let found = describe(&root.path, name, &Limits::default());
    let status = match &found {
        // A project's own word on it is in its file; what others may not read stays theirs.
        Ok(_) | Err(_) if shown.is_some() => {
            let text = std::fs::read_to_string(root.path.join(format!("agent/{name}.d/status")));
            text.map_or_else(|_| "not yours".to_owned(), |text| text.trim_end().to_owned())
        }
        Ok(_) => "ready".to_owned(),
        Err(error) => format!("invalid: {error}"),
    };
    Listed {
        name: name.to_string(),
        model: found.as_ref().ok().map(|found| found.model.clone()),
        project: shown
            .as_ref()
            .map(ToString::to_string)
            .or_else(|| found.ok().map(|found| found.project.to_string())),
        described_by_project: shown.is_some(),
        status,
    }
}
