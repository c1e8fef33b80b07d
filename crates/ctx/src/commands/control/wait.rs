//! `ctx wait`: returns when sessions are in the state that is asked for. It follows their events and does not poll.

use std::time::Duration;

use ctx_api::http::{Run, Session};
use ctx_session::{Code, SessionId, StateName};
use hyper::Method;

use crate::client::{self, Api, As, LiveSocket, Place};
use crate::failure::Failure;
use crate::root::Root;
use crate::{output, sessions, talk};

/// Wait for sessions to be idle, paused, ended, or to need you
///
/// Waits for one session after the other. Waiting for `idle` also ends when a session cannot become idle without you
/// (it is paused, queued, needs an approval, or has failed), and when its run failed: both exit with 1 and say so.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx wait coder/build && ctx latest coder/build
  ctx wait coder/build coder/docs --timeout 600
  ctx wait coder/build --for approval && ctx approve coder/build

exit codes: 0 success, 1 failed (also: it needs you, its run failed, or the time is over),
            2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The sessions: agent/name, a name, an agent (its current session), or part of an id
    #[arg(value_name = "SESSION", required = true)]
    sessions: Vec<String>,
    /// What to wait for
    #[arg(long = "for", value_name = "STATE", default_value = "idle")]
    wanted: Wanted,
    /// Give up after this many seconds; with 0, look once
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<u64>,
    /// Print each session as it is then, one JSON object per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Wanted {
    /// No run is going on
    Idle,
    /// Paused at a checkpoint
    Paused,
    /// A tool call waits for an approval
    Approval,
    /// Ended or failed
    Ended,
}

/// Whether a session is where it is wanted.
#[derive(Debug, PartialEq, Eq)]
enum Look {
    There,
    NotYet,
    /// It will not get there by itself; why.
    Never(String),
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let ids: Vec<(SessionId, String)> = args
        .sessions
        .iter()
        .map(|word| Ok((sessions::find_id(root, word)?, word.clone())))
        .collect::<Result<_, Failure>>()?;
    let all = async {
        for (id, word) in &ids {
            let waited = match args.timeout {
                Some(0) => look_once(root, *id, word, args.wanted).await,
                _ => wait_patiently(root, *id, word, args.wanted).await,
            };
            if args.json && !matches!(waited, Err(Failure::Said { .. })) {
                let path = format!("/sessions/{id}");
                output::json(&Api::new(root).ask::<Session>(Method::GET, &path, None).await?)?;
            }
            waited?;
        }
        Ok(())
    };
    client::runtime()?.block_on(async {
        match args.timeout {
            None | Some(0) => all.await,
            Some(seconds) => tokio::time::timeout(Duration::from_secs(seconds), all)
                .await
                .unwrap_or_else(|_| Err(still(args.wanted, seconds))),
        }
    })
}

/// `90`, or as people write it, `90s`.
fn seconds(text: &str) -> Result<u64, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    number.parse().map_err(|_| "a whole number of seconds, such as 90 or 90s".to_owned())
}

fn still(wanted: Wanted, seconds: u64) -> Failure {
    let message = match wanted {
        Wanted::Idle => format!("still running after {seconds} s"),
        Wanted::Paused => format!("not paused after {seconds} s"),
        Wanted::Approval => format!("no approval was asked for in {seconds} s"),
        Wanted::Ended => format!("not ended after {seconds} s"),
    };
    Failure::new(Code::Etimedout, message)
}

/// A daemon that was killed is started again; the run that it had has failed then.
async fn wait_patiently(root: &Root, id: SessionId, word: &str, wanted: Wanted) -> Result<(), Failure> {
    match wait_for(root, id, word, wanted).await {
        Err(Failure::Said { code: Code::Ehostdown, .. }) => {
            talk::start_daemon(root).await?;
            wait_for(root, id, word, wanted).await
        }
        waited => waited,
    }
}

/// Without waiting: it is there now, or it is not.
async fn look_once(root: &Root, id: SessionId, word: &str, wanted: Wanted) -> Result<(), Failure> {
    if is_there(root, id, word, wanted).await? { Ok(()) } else { Err(still(wanted, 0)) }
}

/// Whether a session is where it is wanted; the failure says that it will not get there by itself.
async fn is_there(root: &Root, id: SessionId, word: &str, wanted: Wanted) -> Result<bool, Failure> {
    let session: Session = Api::new(root).ask(Method::GET, &format!("/sessions/{id}"), None).await?;
    match look(&session, wanted) {
        Look::There if wanted == Wanted::Idle => run_ended_well(root, id, word).await.map(|()| true),
        Look::There => Ok(true),
        Look::Never(why) => {
            output::say(format_args!("{word}: {why}"));
            Err(Failure::Told { exit: 1 })
        }
        Look::NotYet => Ok(false),
    }
}

async fn wait_for(root: &Root, id: SessionId, word: &str, wanted: Wanted) -> Result<(), Failure> {
    loop {
        match LiveSocket::connect(root, id, As::Observer, &Place::default()).await {
            Ok(mut socket) => {
                while has_news(&mut socket).await? {
                    if is_there(root, id, word, wanted).await? {
                        return Ok(());
                    }
                }
            }
            // A session that is over takes no connections.
            Err(Failure::Said { code: Code::Eshutdown, .. }) => {}
            Err(failure) => return Err(failure),
        }
        if is_there(root, id, word, wanted).await? {
            return Ok(());
        }
    }
}

/// Returns when there is a reason to look: something has happened to the session, or what happens is heard from now on.
/// False: the connection is over.
async fn has_news(socket: &mut LiveSocket) -> Result<bool, Failure> {
    while let Some(frame) = socket.next().await {
        match frame.kind.as_str() {
            // Who stops the daemon has a reason to: it is not started again.
            "closing" if frame.payload.get("code").is_some_and(|code| code == "shutdown") => {
                output::say("the daemon was stopped; `ctx serve --detach` starts it");
                return Err(Failure::Told { exit: Code::Ehostdown.exit() });
            }
            "ping" => socket.control("pong", frame.payload).await,
            // A look before this could come before the daemon had read our hello, and what came between would be missed.
            "welcome" => return Ok(true),
            // Text that streams in changes nothing.
            _ if frame.channel == "events" => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

fn look(session: &Session, wanted: Wanted) -> Look {
    let state = session.state;
    let asks = session.pending_approvals > 0;
    match wanted {
        Wanted::Ended if state.is_over() => Look::There,
        Wanted::Ended => Look::NotYet,
        _ if state.is_over() => Look::Never(format!("the session has {state}")),
        Wanted::Paused if state == StateName::Paused => Look::There,
        Wanted::Approval if asks => Look::There,
        Wanted::Paused | Wanted::Approval => Look::NotYet,
        Wanted::Idle => match state {
            StateName::Idle => Look::There,
            _ if asks => Look::Never("it needs an approval; `ctx approve` lists what waits".to_owned()),
            StateName::Paused => Look::Never("it is paused; `ctx resume` continues".to_owned()),
            StateName::Queued => {
                Look::Never("it is queued; `ctx resume` starts it when there is room".to_owned())
            }
            StateName::Running | StateName::Ended | StateName::Failed => Look::NotYet,
        },
    }
}

/// An idle session whose last run failed is no success.
async fn run_ended_well(root: &Root, id: SessionId, word: &str) -> Result<(), Failure> {
    let mut last: Option<Run> = None;
    let mut cursor = String::new();
    loop {
        let path = format!("/sessions/{id}/runs?limit=1000{cursor}");
        let page: ctx_api::http::List<Run> = Api::new(root).ask(Method::GET, &path, None).await?;
        last = page.items.into_iter().next_back().or(last);
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let failed = last.filter(|run| run.state == "failed").and_then(|run| run.error);
    match failed {
        None => Ok(()),
        Some(error) => {
            output::say(format_args!(
                "{word}: the run failed: {} ({})",
                output::plain(&error.message),
                error.code
            ));
            Err(Failure::Told { exit: 1 })
        }
    }
}
