//! `ctx run`: one task, in a session of its own.

use std::io::{IsTerminal, Read};
use std::path::PathBuf;

use ctx_api::socket::Request;
use ctx_session::{Code, Object};

use crate::client::{self, hand_over};
use crate::consent::Consent;
use crate::failure::Failure;
use crate::root::Root;
use crate::talk::{End, Form, Interrupts, Show, Talk, Wait, client_id};
use crate::{chat, images, output};

/// Do one task in a new session
///
/// Sends the task to a new session in this directory's project and shows the work until it is done. What is piped in becomes part of the task. Closing the
/// terminal does not end the run; `ctx attach` shows it again.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx run \"why does the build fail?\"
  git diff | ctx run \"write a commit message for this change\"
  ctx run --model anthropic:claude-sonnet-4-5 \"explain src/main.rs\"
  ctx run --yes \"fix the failing test\"
  ctx run --image shot.png \"why is this button cut off?\"
  ctx run --detach \"find dead code\"

exit codes: 0 success, 1 failed or waiting for your review, 2 bad input,
            13 not allowed or key refused, 69 daemon or model not reachable,
            70 internal error, 130 cancelled")]
pub struct Args {
    /// The task
    #[arg(value_name = "TASK")]
    words: Vec<String>,
    /// Model, as provider:model
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    /// Session to go on with, in place of a new one
    #[arg(short, long, value_name = "SESSION")]
    session: Option<String>,
    /// Image to show with the task (repeatable): PNG, JPEG, GIF or WebP. `@FILE.png` in the task does the same
    #[arg(short, long = "image", value_name = "FILE")]
    images: Vec<PathBuf>,
    #[command(flatten)]
    consent: Consent,
    /// Exit when the task is stored, and print how to see it; with --json, its frames so far
    #[arg(short, long)]
    detach: bool,
    /// Print the frames of the run, one JSON object per line
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let text = task(&args.words)?;
    let handed = hand_over(root)?;
    if let (None, Some(failure)) = (&args.model, client::no_main(&handed)) {
        return Err(failure);
    }
    let chat::Here { agent, dir } = chat::Here::of(root, None)?;
    let session = match args.session {
        Some(session) => super::send::session_for_socket(root, &agent, session)?,
        None => new_name(),
    };
    let approvals = if args.detach { args.consent.given() } else { args.consent.given_or_absent() };
    let request = Request {
        op: Some("send".to_owned()),
        approvals,
        allow: args.consent.allow,
        net: args.consent.net,
        id: Some(client_id()),
        session: Some(session.clone()),
        dir: Some(dir),
        parts: images::read_with_named(&args.images, &text)?,
        input: Some(text),
        model_override: args.model,
        ..Request::default()
    };
    let wait = if args.detach { Wait::ForAcceptance } else { Wait::ForEnd };
    let form = if args.json { Form::Json } else { Form::Text };
    let end = client::runtime()?.block_on(async {
        let mut show = Show::new(form, agent.as_str()).with_work();
        if request.model_override.is_none() {
            show = show.expecting_a_model();
        }
        let mut interrupts = Interrupts::new()?;
        Talk::new(root, Object::Agent(agent.clone()))
            .exchange(&request, wait, &mut show, &mut interrupts)
            .await
    })?;
    match end {
        End::Ok => Ok(()),
        End::Accepted => {
            output::say(format_args!("the run goes on; `ctx attach {agent}/{session}` shows it"));
            Ok(())
        }
        End::Waits | End::Left => Err(Failure::Told { exit: 1 }),
        End::Cancelled => Err(Failure::Told { exit: 130 }),
        End::Failed(code) => {
            if form == Form::Text {
                output::say(format_args!(
                    "session {agent}/{session}: `ctx retry {agent}/{session}` tries again"
                ));
            }
            Err(Failure::Told { exit: code.exit() })
        }
    }
}

/// The task, with what is piped in below it.
fn task(words: &[String]) -> Result<String, Failure> {
    let mut text = words.join(" ");
    let mut stdin = std::io::stdin();
    if !stdin.is_terminal() {
        let mut piped = Vec::new();
        stdin.read_to_end(&mut piped).map_err(|error| Failure::io("stdin", error))?;
        let piped = String::from_utf8(piped)
            .map_err(|_| Failure::new(Code::Einval, "what is piped in is not UTF-8 text"))?;
        if !piped.trim().is_empty() {
            let gap = if text.is_empty() { "" } else { "\n\n" };
            text = format!("{text}{gap}{piped}");
        }
    }
    if text.trim().is_empty() {
        return Err(Failure::new(Code::Einval, "the task is empty: give it as text, or pipe it in"));
    }
    Ok(text)
}

/// A name for a new session: the end of a new id.
fn new_name() -> String {
    let id = client_id().to_lowercase();
    let tail = id.get(id.len().saturating_sub(8)..).unwrap_or(&id);
    format!("run-{tail}")
}
