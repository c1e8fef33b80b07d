//! The object runner: this program as the interpreter of the executables in a tree.
//!
//! Which object it is, and in which root, says the path of the executable. A model and an agent are asked over their
//! socket, by the client that `ctx send` is; a tool is run here, with the rights of whoever runs it.

mod input;
mod tool;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;

use clap::{CommandFactory, FromArgMatches, Parser};
use ctx_agent::object::{RUNNER, RUNNER_WORD, Thing};
use ctx_api::socket::Request;
use ctx_session::{Code, Object};
use serde_json::json;

use crate::consent::Consent;
use crate::failure::Failure;
use crate::root::Root;
use crate::talk::{End, Form, Interrupts, Show, Talk, Wait, client_id};
use crate::{client, commands, here, output};
use input::Input;

/// What stands behind an executable's name.
#[derive(Debug, Parser)]
#[command(disable_version_flag = true, max_term_width = 100)]
struct Args {
    /// Print the frames, one JSON object per line [default: where the output is no terminal]
    #[arg(long, conflicts_with = "text")]
    json: bool,
    /// Print readable text [default: on a terminal]
    #[arg(long)]
    text: bool,
    /// Keep the conversation, as this session of yours [default: it is gone with the answer]
    #[arg(short, long, value_name = "SESSION")]
    session: Option<String>,
    #[command(flatten)]
    consent: Consent,
    /// What is said or given; without it, stdin
    #[arg(value_name = "INPUT")]
    words: Vec<String>,
}

/// The words behind the runner's own, if this program was started as one.
pub fn asked() -> Option<Vec<OsString>> {
    let mut words = std::env::args_os();
    let program = words.next().map(PathBuf::from).unwrap_or_default();
    if program.file_name().is_some_and(|name| name == RUNNER) {
        return Some(words.collect());
    }
    words.next().filter(|word| word == RUNNER_WORD)?;
    Some(words.collect())
}

/// Runs the object whose executable is the first word.
pub fn run(words: Vec<OsString>) -> Result<(), Failure> {
    let mut words = words.into_iter();
    let Some(path) = words.next().map(PathBuf::from) else {
        return Err(Failure::new(Code::Einval, "the object runner is started by an executable of a tree")
            .hint("run the object itself, such as /ctx/model/debug/echo"));
    };
    let (root, thing) = Thing::at(&path).map_err(|error| Failure::new(Code::Enoent, error.to_string()))?;
    let root = Root { path: root };
    let name = path.display().to_string();
    let usage = usage(&root, &thing);
    let command = Args::command().bin_name(name.clone()).about(usage);
    let matches = command.clone().get_matches_from([OsString::from(name)].into_iter().chain(words));
    let args = Args::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let form = match (args.json, args.text) {
        (true, _) => Form::Json,
        (_, true) => Form::Text,
        _ if std::io::stdout().is_terminal() => Form::Text,
        _ => Form::Json,
    };
    let from_stdin = args.words.is_empty() || args.words == ["-"];
    let at_terminal = args.words.is_empty() && std::io::stdin().is_terminal();
    match (&thing, thing.object()) {
        (Thing::Agent(agent), _) if at_terminal => chat(root, agent.as_str(), args.session),
        (Thing::Tool(_), _) if at_terminal => {
            let mut command = command;
            writeln!(std::io::stdout(), "{}", command.render_help())?;
            Ok(())
        }
        (_, Some(object)) => {
            if from_stdin && std::io::stdin().is_terminal() {
                output::say("type the message; Ctrl-D sends it");
            }
            let input = Input::read(&args.words)?;
            ask(&root, &object, input, args, form)
        }
        (_, None) => tool::run(&root, &thing.name(), &Input::read(&args.words)?, form),
    }
}

/// One line on the object, and of a tool its arguments.
fn usage(root: &Root, thing: &Thing) -> String {
    let of = |name: &str| std::fs::read_to_string(root.path.join(thing.control_dir()).join(name)).ok();
    match thing {
        Thing::Agent(name) => format!("Give the agent {name} a task: text, or {{\"task\": TEXT}}"),
        Thing::Model { provider, model } => {
            format!(
                "Ask the model {provider}/{model}: text, or {{\"messages\": [{{\"role\", \"content\"}}]}}"
            )
        }
        Thing::Tool(name) => {
            let (about, schema) = (of("description").unwrap_or_default(), of("schema").unwrap_or_default());
            format!("{name}: {}\n\nINPUT is one JSON object:\n{}", about.trim(), schema.trim())
        }
    }
}

/// An agent without a task, at a terminal, is talked with.
fn chat(root: Root, agent: &str, session: Option<String>) -> Result<(), Failure> {
    if !root.is_up() {
        return Err(root.daemon_down());
    }
    let _ = client::hand_over(&root);
    let mut words = vec!["chat", agent];
    words.extend(session.as_deref().map(|session| ["--session", session]).into_iter().flatten());
    commands::start::chat::run(commands::start::chat::Args::of_words(&words)?, &root)
}

/// Asks a model or an agent, and prints what comes of it.
fn ask(root: &Root, object: &Object, input: Input, args: Args, form: Form) -> Result<(), Failure> {
    // The keys of this shell; a model without one says so.
    if !matches!(object, Object::Model { provider, .. } if provider.as_str() == "debug") && root.is_up() {
        let _ = client::hand_over(root);
    }
    let dir = match object {
        Object::Agent(agent) if here::agent(&root.path).is_some_and(|here| here.name == *agent) => {
            Some(here::dir(None)?)
        }
        Object::Agent(_) | Object::Model { .. } => None,
    };
    let approvals = args.consent.given_or_absent().filter(|_| object.agent().is_some());
    let request = Request {
        op: Some("send".to_owned()),
        id: Some(client_id()),
        dir,
        approvals,
        allow: args.consent.allow,
        net: args.consent.net,
        ..Request::default()
    };
    let request = input.request(object, args.session, request)?;
    let mut show = Show::new(form, &object.to_string());
    let asked = client::runtime()?.block_on(async {
        let mut interrupts = Interrupts::new()?;
        Talk::new(root, object.clone()).exchange(&request, Wait::ForEnd, &mut show, &mut interrupts).await
    });
    match asked {
        Ok(End::Ok | End::Accepted) => Ok(()),
        Ok(End::Waits | End::Cancelled | End::Left) => Err(Failure::Told { exit: 1 }),
        Ok(End::Failed(code)) => Err(Failure::Told { exit: code.exit() }),
        // Once there are frames, errors are frames too.
        Err(failure) => match (show.begun(), form, &failure) {
            (Some(run), Form::Json, Failure::Said { code, message, .. }) => {
                let mut out = std::io::stdout();
                writeln!(out, "{}", json!({"type": "error", "run": run, "code": code, "message": message}))?;
                writeln!(out, "{}", json!({"type": "done", "run": run, "status": "error"}))?;
                Err(failure)
            }
            _ => Err(failure),
        },
    }
}
