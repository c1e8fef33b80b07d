//! `ctx project`: directories that the daemon knows as projects, and the files that describe them.

mod check;
mod init;

use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use ctx_api::http::{List, NewProject, Project, ProjectState, ProjectTrust};
use ctx_session::Code;
use ctx_session::project::Problem;

use crate::autostart;
use crate::client::Api;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::table::{self, Cell};

/// Create, check, trust, register and remove projects
///
/// Every directory that you work in is a project. A .ctx/project.yaml in it describes its agent: model, prompt, tools,
/// policy. Without one the agent has the settings of coder. It answers to `ctx send -a NAME` from everywhere.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx project init                write .ctx/project.yaml and a prompt here
  ctx project check               validate the files; needs no daemon
  ctx project add                 register this directory
  ctx project trust               agree to what this project's file grants
  ctx project ls
  ctx project rm music

exit codes: 0 success, 1 failed, 2 bad input or invalid file, 13 not allowed, 69 no daemon,
            70 internal error")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Write a valid project file and a prompt to start with
    Init {
        /// The project's directory
        #[arg(value_name = "DIR", default_value = ".")]
        directory: PathBuf,
        /// Name of the project [default: the directory's name]
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Register a directory; a file with errors is reported and can be fixed later
    Add {
        /// The project's directory
        #[arg(value_name = "DIR", default_value = ".")]
        directory: PathBuf,
        /// Print the project as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the projects
    #[command(alias = "list")]
    Ls {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Validate a project's files, with line and column of each error; needs no daemon
    Check {
        /// The project's directory
        #[arg(value_name = "DIR", default_value = ".")]
        directory: PathBuf,
        /// Print one JSON object per error
        #[arg(long)]
        json: bool,
    },
    /// Agree to what a project file grants: its allow rules, the programs that it names, its cages
    ///
    /// A project file may have come with a clone. What it grants holds only after you agreed to it, and again after it
    /// has changed. It prints what the file grants and asks.
    Trust {
        /// The project: its name or its directory
        #[arg(value_name = "PROJECT", default_value = ".")]
        project: String,
        /// Do not ask
        #[arg(short, long)]
        yes: bool,
        /// Print the project as JSON
        #[arg(long)]
        json: bool,
    },
    /// Unregister a project; its directory and its sessions are kept
    Rm {
        /// The project's name, as `ctx project ls` shows it
        #[arg(value_name = "PROJECT")]
        name: String,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
        /// Print the removed project as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the JSON schema of project files
    Schema,
}

pub fn run(args: Args, root: impl FnOnce() -> Result<Root, Failure>) -> Result<(), Failure> {
    match args.what {
        What::Init { directory, name, json } => init::run(&directory, name.as_deref(), json),
        What::Check { directory, json } => check::run(&directory, root().ok(), json),
        What::Schema => {
            write!(std::io::stdout(), "{}", ctx_agent::project::SCHEMA)?;
            Ok(())
        }
        What::Add { directory, json } => add(&autostart::with_daemon(root()?)?, &directory, json),
        What::Ls { json } => list(&autostart::with_daemon(root()?)?, json),
        What::Trust { project, yes, json } => trust(&autostart::with_daemon(root()?)?, &project, yes, json),
        What::Rm { name, yes, json } => remove(&autostart::with_daemon(root()?)?, &name, yes, json),
    }
}

/// A directory as it is registered: whole, so that the daemon finds it from wherever it works.
fn whole(directory: &Path) -> Result<PathBuf, Failure> {
    std::fs::canonicalize(directory).map_err(|error| Failure::io(directory.display(), error))
}

fn add(root: &Root, directory: &Path, json: bool) -> Result<(), Failure> {
    let directory = whole(directory)?;
    let Some(text) = directory.to_str() else {
        return Err(Failure::new(Code::Einval, "the directory's name is not UTF-8; use another directory"));
    };
    let new = NewProject { directory: Some(text.to_owned()), ..NewProject::default() };
    let project: Project = Api::new(root).post_with("/projects", &new)?;
    if json {
        output::json(&project)?;
    } else {
        writeln!(std::io::stdout(), "{}", project.id)?;
    }
    match project.state {
        ProjectState::Ready => {
            let agent = project.agent.as_ref().map(ToString::to_string).unwrap_or_default();
            output::say(format_args!(
                "{} is ready; `ctx send -a {agent} hello` starts a session",
                project.id
            ));
            if !project.trusted {
                let grants = project.grants.join("; ");
                output::say(format_args!(
                    "it grants: {}; `ctx project trust {}` agrees to that",
                    output::one_line(&grants),
                    project.id
                ));
            }
            Ok(())
        }
        ProjectState::Invalid => {
            let problem = |error: &ctx_api::http::ProjectError| Problem {
                file: error.file.clone(),
                line: error.line,
                column: error.column,
                message: error.message.clone(),
            };
            let problems: Vec<Problem> = project.errors.iter().map(problem).collect();
            let mut stderr = std::io::stderr();
            let _ = check::tell(&directory, &problems, Paint::for_stderr(), &mut stderr);
            let message = format!("{} is registered, but its file is invalid", project.id);
            Err(Failure::new(Code::Ebadmsg, message).hint("fix the file; it reloads automatically"))
        }
    }
}

fn trust(root: &Root, word: &str, yes: bool, json: bool) -> Result<(), Failure> {
    let api = Api::new(root);
    let is_name = ctx_session::Name::new(word).is_ok() && !Path::new(word).is_dir();
    let project: Project = if is_name {
        named(&api, word)?
    } else {
        let dir = Some(crate::here::dir(Some(Path::new(word)))?);
        api.post_with("/projects", &NewProject { dir, ..NewProject::default() })?
    };
    if project.state == ProjectState::Ready && !project.trusted {
        if yes {
            let trust = ProjectTrust { hash: project.dsl_hash.clone() };
            let _: Project = api.post_with(&format!("/projects/{}/trust", project.id), &trust)?;
        } else if !std::io::stdin().is_terminal() {
            let message = format!("{} grants: {}", project.id, project.grants.join("; "));
            return Err(Failure::new(Code::Einval, message).hint("pass --yes to agree to it"));
        } else if !crate::here::agree(&api, &project)? {
            output::say("nothing was changed");
            return Err(Failure::Told { exit: 1 });
        }
    }
    let project: Project = api.get(&format!("/projects/{}", project.id))?;
    if json {
        output::json(&project)?;
    }
    match project.state {
        ProjectState::Ready if project.grants.is_empty() => {
            output::say(format_args!("the project {} grants nothing that needs your agreement", project.id));
        }
        ProjectState::Ready => output::say(format_args!("you trust the project file of {}", project.id)),
        ProjectState::Invalid => {
            let message = format!("the project file of {} is invalid", project.id);
            return Err(Failure::new(Code::Ebadmsg, message).hint("`ctx project check` shows every error"));
        }
    }
    Ok(())
}

fn list(root: &Root, json: bool) -> Result<(), Failure> {
    let projects = all(&Api::new(root))?;
    let mut out = output::stdout();
    let paint = Paint::for_stdout();
    if json {
        for project in &projects {
            let line = serde_json::to_string(project);
            writeln!(out, "{}", line.map_err(|error| Failure::new(Code::Eio, error.to_string()))?)?;
        }
    } else {
        let rows = projects.iter().map(|project| row(project, paint)).collect();
        let head = ["PROJECT", "STATE", "AGENT", "DIRECTORY"];
        out.write_all(table::render(&head, rows, output::width(), paint).as_bytes())?;
    }
    out.flush()?;
    Ok(())
}

fn row(project: &Project, paint: Paint) -> Vec<Cell> {
    let state = match project.state {
        ProjectState::Ready if !project.trusted => Cell::painted("not trusted", paint.yellow("not trusted")),
        ProjectState::Ready => Cell::painted("ready", paint.green("ready")),
        ProjectState::Invalid => Cell::painted("invalid", paint.red("invalid")),
    };
    let agent = project.agent.as_ref().map(ToString::to_string).unwrap_or_default();
    vec![
        Cell::new(project.id.to_string()),
        state,
        Cell::new(agent),
        Cell::new(output::one_line(&project.directory)),
    ]
}

/// Every project, page after page.
fn all(api: &Api<'_>) -> Result<Vec<Project>, Failure> {
    let mut projects = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let cursor = next.map(|next| format!("&cursor={next}")).unwrap_or_default();
        let page: List<Project> = api.get(&format!("/projects?limit=1000{cursor}"))?;
        projects.extend(page.items);
        next = page.next;
        if next.is_none() {
            return Ok(projects);
        }
    }
}

/// The project of this name.
fn named(api: &Api<'_>, name: &str) -> Result<Project, Failure> {
    api.get(&format!("/projects/{name}")).map_err(|failure: Failure| match &failure {
        Failure::Said { code: Code::Enoent, .. } => failure
            .did_you_mean(name, all(api).unwrap_or_default().iter().map(|project| project.id.as_str()))
            .hint("`ctx project ls` lists the projects"),
        _ => failure,
    })
}

fn remove(root: &Root, name: &str, yes: bool, json: bool) -> Result<(), Failure> {
    let name = ctx_session::Name::new(name)
        .map_err(|rule| Failure::new(Code::Einval, format!("`{name}` is not a project's name: {rule}")))?;
    let api = Api::new(root);
    let project = named(&api, name.as_str())?;
    if !yes {
        if !std::io::stdin().is_terminal() {
            return Err(
                Failure::new(Code::Einval, "removing a project needs confirmation").hint("pass --yes")
            );
        }
        if !confirmed(&project)? {
            output::say("nothing was changed");
            return Err(Failure::Told { exit: 1 });
        }
    }
    api.delete(&format!("/projects/{name}"))?;
    if json {
        return output::json(&project);
    }
    output::say(format_args!("removed {name}; its directory and its sessions are kept"));
    Ok(())
}

fn confirmed(project: &Project) -> Result<bool, Failure> {
    let mut stderr = std::io::stderr();
    // Asked on stderr: stdout is for data.
    let _ = write!(stderr, "Remove {} ({})? [y/N] ", project.id, output::one_line(&project.directory));
    let _ = stderr.flush();
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer).map_err(|error| Failure::io("stdin", error))?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
