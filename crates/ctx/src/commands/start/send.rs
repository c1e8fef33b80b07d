//! `ctx send`: sends one message and prints the answer.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use clap::ValueEnum;
use ctx_api::socket::Request;
use ctx_session::name::IMPORT_AGENTS;
use ctx_session::{Code, Name, Object};

use crate::consent::Consent;
use crate::failure::Failure;
use crate::root::Root;
use crate::talk::{End, Form, Interrupts, Show, Talk, Wait, client_id};
use crate::{chat, client, here, images, output, sessions};

/// Send a message and print the answer
///
/// Sends the text to the agent's session and streams the answer to stdout. The session is created if it does not
/// exist. If the first word is the name of an agent, the message goes to that agent; otherwise the word is part
/// of the text. Without text, or with `-`, the message is read from stdin.
///
/// At a terminal you are asked about a tool call that needs your approval, and what you type answers a model that paused to
/// ask. Without one nobody could answer, so such calls are denied at once: allow them with --yes or --allow, or send with
/// --detach and use `ctx approve`.
///
/// Ctrl-C cancels the run, a second one stops waiting for it; a message that is still queued stays in the queue.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx send hello                  to this directory's agent, in its current session
  ctx send coder \"why does the build fail?\" --session build
  git diff | ctx send coder -     the message from stdin
  ctx send --allow fs.edit \"fix the typo in README.md\"
  ctx send --detach \"run all tests\" && ctx log -f coder
  ctx send --json hello | jq -r 'select(.type == \"delta\") | .text'

exit codes: 0 success, 1 failed, cancelled or waiting for your review, 2 bad input,
            13 not allowed, 69 daemon or model not reachable, 70 internal error")]
pub struct Args {
    /// Agent and message; without an agent the message goes to this directory's
    #[arg(value_name = "AGENT TEXT")]
    words: Vec<String>,
    /// The agent; then all words are text
    #[arg(short, long, value_name = "AGENT")]
    agent: Option<String>,
    /// The session, by name or id [default: the current one, else `default`]
    #[arg(short, long, value_name = "SESSION")]
    session: Option<String>,
    /// Whether the session is kept
    #[arg(long, value_name = "SCOPE")]
    scope: Option<ScopeArg>,
    /// The space that the session is shared in
    #[arg(long, value_name = "NAME", conflicts_with = "scope")]
    space: Option<String>,
    /// Working directory, as a path that the agent sees
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Directory to work in, in place of this one, for a new session
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Model for this message and later ones, as provider:model
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Your id for the message; sending the same id again does not start a second run
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Image to show with the message (repeatable): PNG, JPEG, GIF or WebP. `@FILE.png` in the message does the same
    #[arg(short, long = "image", value_name = "FILE")]
    images: Vec<PathBuf>,
    #[command(flatten)]
    consent: Consent,
    /// Exit when the message is stored, and print the run's id; with --json, its frames so far
    #[arg(short, long)]
    detach: bool,
    /// Print the frames of the run, one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScopeArg {
    /// Kept, and visible to you alone
    Private,
    /// Deleted when this command ends
    Temp,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let (named, text) = agent_and_text(&args, root)?;
    let (agent, dir) = whose(named, &args, root)?;
    let temp = args.scope == Some(ScopeArg::Temp);
    if temp && args.detach {
        return Err(Failure::new(
            Code::Einval,
            "a temp session ends with its connection, so --detach cannot be used",
        )
        .hint("remove --detach or --scope temp"));
    }
    let session = match args.session {
        Some(session) if args.space.is_some() => session,
        Some(session) => session_for_socket(root, &agent, session)?,
        // Whichever session of theirs is current is not in the space.
        None if temp || args.space.is_some() => sessions::DEFAULT_SESSION.to_owned(),
        None => sessions::current_name(root, &agent)?,
    };
    let scope = if temp { Some("temp") } else { args.space.as_ref().map(|_| "shared") };
    let approvals = if args.detach { args.consent.given() } else { args.consent.given_or_absent() };
    let request = Request {
        op: Some("send".to_owned()),
        approvals,
        allow: args.consent.allow,
        net: args.consent.net,
        id: Some(args.id.unwrap_or_else(client_id)),
        session: Some(session),
        scope: scope.map(str::to_owned),
        space: args.space,
        cwd: args.cwd,
        dir,
        parts: images::read_with_named(&args.images, &text)?,
        input: Some(text),
        model_override: args.model,
        ..Request::default()
    };
    let wait = if args.detach { Wait::ForAcceptance } else { Wait::ForEnd };
    let form = if args.json { Form::Json } else { Form::Text };
    let end = client::runtime()?.block_on(async {
        let mut show = Show::new(form, agent.as_str());
        let mut interrupts = Interrupts::new()?;
        let mut talk = Talk::new(root, Object::Agent(agent.clone()));
        let end = talk.exchange(&request, wait, &mut show, &mut interrupts).await?;
        if let (End::Accepted, Form::Text, Some(run)) = (end, form, talk.last_run()) {
            show.data(run)?;
        }
        Ok::<End, Failure>(end)
    })?;
    match end {
        End::Ok | End::Accepted => Ok(()),
        End::Waits | End::Cancelled | End::Left => Err(Failure::Told { exit: 1 }),
        End::Failed(code) => Err(Failure::Told { exit: code.exit() }),
    }
}

/// The agent that gets the message, and the directory that it is about, where one is.
fn whose(named: Option<Name>, args: &Args, root: &Root) -> Result<(Name, Option<String>), Failure> {
    match named {
        Some(agent) => {
            let is_here = || here::agent(&root.path).is_some_and(|here| here.name == agent);
            let dir =
                (args.dir.is_some() || is_here()).then(|| here::dir(args.dir.as_deref())).transpose()?;
            if dir.is_none() {
                warn_of_other_directory(root, &agent, args.session.as_deref());
            }
            Ok((agent, dir))
        }
        None => {
            let (here, warnings) = chat::Here::quietly(root, args.dir.as_deref())?;
            let session =
                args.session.clone().map_or_else(|| sessions::current_name(root, &here.agent), Ok)?;
            let label = if session.contains('/') { session } else { format!("{}/{session}", here.agent) };
            here.warn(root, &label, &warnings);
            Ok((here.agent, Some(here.dir)))
        }
    }
}

/// Says that a session that is begun now works in its agent's directory. One that there is has its own, as it was said then.
fn warn_of_other_directory(root: &Root, agent: &Name, session: Option<&str>) {
    let is_new = || {
        let current = || sessions::current_name(root, agent);
        let session = session.map_or_else(current, |session| Ok(session.to_owned())).ok()?;
        let label = if session.contains('/') { session } else { format!("{agent}/{session}") };
        Some(root.reader().ok()?.resolve(sessions::own_uid(), &label).is_err())
    };
    if is_agent(root, agent.as_str()) && is_new() == Some(true) {
        output::say(format_args!(
            "{agent} works in the directory of its own project, not in this one; `--dir .` begins a session here"
        ));
    }
}

/// Who is named and what to say: from the words, or from stdin.
fn agent_and_text(args: &Args, root: &Root) -> Result<(Option<Name>, String), Failure> {
    let mut words = args.words.as_slice();
    let agent = match (&args.agent, words.split_first()) {
        (Some(agent), _) => Some(sessions::agent_name(agent)?),
        (None, Some((first, rest))) if is_agent(root, first) => {
            words = rest;
            Some(sessions::agent_name(first)?)
        }
        (None, _) => None,
    };
    let from_stdin = words.is_empty() || words == ["-"];
    let text = if from_stdin { read_stdin()? } else { words.join(" ") };
    if text.trim().is_empty() {
        return Err(Failure::new(Code::Einval, "the message is empty: give a text, or pipe one in"));
    }
    Ok((agent, text))
}

/// Whether the root has an agent of that name.
fn is_agent(root: &Root, word: &str) -> bool {
    let there = |suffix: &str| root.path.join("agent").join(format!("{word}{suffix}")).exists();
    Name::new(word).is_ok() && (there(".d") || there(".sock"))
}

fn read_stdin() -> Result<String, Failure> {
    let mut stdin = std::io::stdin();
    if stdin.is_terminal() {
        output::say("type the message; Ctrl-D sends it");
    }
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes).map_err(|error| Failure::io("stdin", error))?;
    String::from_utf8(bytes).map_err(|_| Failure::new(Code::Einval, "the message on stdin is not UTF-8"))
}

/// The socket takes a name or a whole id; the beginning or end of an id is looked up first.
pub fn session_for_socket(root: &Root, agent: &Name, session: String) -> Result<String, Failure> {
    if let Some((of, name)) = session.split_once('/') {
        // An imported session's agent is nobody here; any agent's socket takes the session's id.
        if IMPORT_AGENTS.contains(&of) {
            let reader = root.reader()?;
            let found = sessions::find(&reader, &session)?;
            return Ok(reader.meta(&found)?.id.to_string());
        }
        if of != agent.as_str() {
            return Err(Failure::new(
                Code::Einval,
                format!("session `{session}` does not belong to {agent}"),
            )
            .hint(format!("name the agent first: `ctx send {of} …`")));
        }
        return Ok(name.to_owned());
    }
    let Ok(reader) = root.reader() else { return Ok(session) };
    if reader.resolve(sessions::own_uid(), &format!("{agent}/{session}")).is_ok() {
        return Ok(session);
    }
    match reader.resolve(sessions::own_uid(), &session) {
        Ok(found) => Ok(reader.meta(&found)?.id.to_string()),
        Err(_) => Ok(session),
    }
}
