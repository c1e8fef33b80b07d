//! `ctx send`: one message, and the answer to it.

use std::io::{IsTerminal, Read};

use clap::ValueEnum;
use ctx_api::socket::Request;
use ctx_session::{Code, Name};

use crate::failure::Failure;
use crate::root::Root;
use crate::talk::{End, Form, Interrupts, Show, Talk, Wait, client_id};
use crate::{client, output, sessions};

/// Send a message and print the answer
///
/// The text goes to the agent's session, which is made if it is not there; the answer streams to stdout.
/// The first word is the agent if there is one of that name, else it is part of the text. Without text, or
/// with `-`, the message is read from stdin. Ctrl-C cancels the run, a second one leaves. The exit code is that
/// of the run: 0 when it did what it was asked to, 1 when it stopped because a compaction waits for review.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx send hello                  to coder, in its current session
  ctx send coder \"why does the build fail?\" --session build
  git diff | ctx send coder -     the message from stdin
  ctx send --detach \"run all tests\" && ctx log -f coder
  ctx send --json hello | jq -r 'select(.type == \"delta\") | .text'")]
pub struct Args {
    /// The agent and the message; the message alone goes to coder
    #[arg(value_name = "AGENT TEXT")]
    words: Vec<String>,
    /// The agent; all words are then text
    #[arg(short, long, value_name = "AGENT")]
    agent: Option<String>,
    /// The session, by name or id [default: the one last posted to, else `default`]
    #[arg(short, long, value_name = "SESSION")]
    session: Option<String>,
    /// Who sees the session and whether it is kept
    #[arg(long, value_name = "SCOPE")]
    scope: Option<ScopeArg>,
    /// The working directory, as the agent sees it
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// The model for this and later messages, as provider:model
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Your own id for the message: sending it again under the same id starts nothing new
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Leave as soon as the message is kept, and print the run's id
    #[arg(short, long, conflicts_with = "json")]
    detach: bool,
    /// Print the frames of the run, one JSON object a line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScopeArg {
    /// Yours alone, and kept
    Private,
    /// Kept only as long as this command runs
    Temp,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let (agent, text) = agent_and_text(&args, root)?;
    let temp = args.scope == Some(ScopeArg::Temp);
    if temp && args.detach {
        return Err(Failure::new(Code::Einval, "a temp session ends with its connection: it cannot be left")
            .hint("leave out --detach or --scope temp"));
    }
    let session = match args.session {
        Some(session) => session_for_socket(root, &agent, session)?,
        None if temp => sessions::DEFAULT_SESSION.to_owned(),
        None => sessions::current_name(root, &agent)?,
    };
    let request = Request {
        op: Some("send".to_owned()),
        id: Some(args.id.unwrap_or_else(client_id)),
        session: Some(session),
        scope: temp.then(|| "temp".to_owned()),
        cwd: args.cwd,
        input: Some(text),
        model_override: args.model,
        ..Request::default()
    };
    let wait = if args.detach { Wait::ForAcceptance } else { Wait::ForEnd };
    let form = if args.json { Form::Json } else { Form::Text };
    let end = client::runtime()?.block_on(async {
        let mut show = Show::new(form, agent.as_str());
        let mut interrupts = Interrupts::new()?;
        let mut talk = Talk::new(root, agent.clone());
        let end = talk.exchange(&request, wait, &mut show, &mut interrupts).await?;
        if let (End::Accepted, Some(run)) = (end, talk.last_run()) {
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

/// Who is meant and what to say: from the words, or from stdin.
fn agent_and_text(args: &Args, root: &Root) -> Result<(Name, String), Failure> {
    let mut words = args.words.as_slice();
    let agent = match (&args.agent, words.split_first()) {
        (Some(agent), _) => sessions::agent_name(agent)?,
        (None, Some((first, rest))) if is_agent(root, first) => {
            words = rest;
            sessions::agent_name(first)?
        }
        (None, _) => sessions::agent_name(sessions::DEFAULT_AGENT)?,
    };
    let from_stdin = words.is_empty() || words == ["-"];
    let text = if from_stdin { read_stdin()? } else { words.join(" ") };
    if text.trim().is_empty() {
        return Err(Failure::new(Code::Einval, "there is no message: give a text, or pipe one in"));
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
        output::say("reading the message from the terminal; Ctrl-D ends it");
    }
    let mut bytes = Vec::new();
    stdin.read_to_end(&mut bytes).map_err(|error| Failure::io("stdin", error))?;
    String::from_utf8(bytes).map_err(|_| Failure::new(Code::Einval, "the message on stdin is not UTF-8 text"))
}

/// The socket takes a name or a whole id; the beginning of an id is looked up first.
pub fn session_for_socket(root: &Root, agent: &Name, session: String) -> Result<String, Failure> {
    if let Some((of, name)) = session.split_once('/') {
        if of != agent.as_str() {
            return Err(Failure::new(Code::Einval, format!("session `{session}` is not one of {agent}"))
                .hint(format!("name the agent first: `ctx send {of} …`")));
        }
        return Ok(name.to_owned());
    }
    let Ok(reader) = root.reader() else { return Ok(session) };
    let named = reader.resolve(sessions::own_uid(), &format!("{agent}/{session}"));
    match (named, reader.resolve(sessions::own_uid(), &session)) {
        (Err(_), Ok(found)) => Ok(reader.meta(&found)?.id.to_string()),
        (Ok(_), _) | (Err(_), Err(_)) => Ok(session),
    }
}
