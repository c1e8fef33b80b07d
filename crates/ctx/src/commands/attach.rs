//! `ctx attach`: follows a session live in the terminal, like `tmux attach`.
//!
//! `hands` is what a person does, `view` what is shown, `past` what is read of what was missed. Here the three meet the
//! session's socket, which is taken up again when it breaks.

mod hands;
mod past;
mod view;

use std::collections::VecDeque;
use std::io::{IsTerminal, Stdout};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ctx_api::http::{NewMessage, Posted, Session};
use ctx_session::{Code, SessionId};
use hyper::Method;
use serde_json::json;

use crate::client::{self, Api, As, LiveFrame, LiveSocket, Place};
use crate::failure::Failure;
use crate::output::Paint;
use crate::root::Root;
use crate::talk::client_id;
use crate::{output, sessions};
use hands::{Done, Hands};
use past::Past;
use view::View;

/// How long a daemon may be away before we give up on it.
const AWAY_MAX: Duration = Duration::from_secs(60);
/// How long our own place may be taken by a connection of ours that the daemon has not let go yet.
const BUSY_MAX: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(200);
/// Messages that wait for a daemon that is away.
const UNSENT_MAX: usize = 16;

/// Attach to a session and follow it live
///
/// Shows the last messages and then everything that happens. Each line you type is a message; pasted lines are
/// one message.
///
/// Ctrl-C cancels the run that is running or queued. When nothing runs, pressing it twice detaches. Ctrl-D,
/// Ctrl-\ or /detach leaves, and the session continues without you. One terminal or browser can be attached at a
/// time; any number can observe. An observer also leaves with Ctrl-C.
///
/// If the daemon restarts, `attach` waits up to a minute for it, then shows what you missed and sends what you
/// typed in the meantime.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx attach                      coder's current session
  ctx attach coder/fix-tests
  ctx attach coder/fix-tests --takeover
  ctx attach 01K9ZZ3F --observe | tee seen.txt

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The session: agent/name, an agent (its current session), an id or the beginning of an id
    #[arg(value_name = "SESSION", default_value = sessions::DEFAULT_AGENT)]
    session: String,
    /// Watch only; whoever is attached stays attached
    #[arg(long, conflicts_with = "takeover")]
    observe: bool,
    /// Detach whoever is attached and take over
    #[arg(long)]
    takeover: bool,
    /// Number of past messages to show first
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=1000))]
    tail: u16,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    if !args.observe && !std::io::stdin().is_terminal() {
        return Err(Failure::new(Code::Einval, "attach needs a terminal").hint(
            "use --observe to watch, `ctx send` to send a message, or `ctx log -f` to follow the log",
        ));
    }
    let who = if args.observe { As::Observer } else { As::Operator { takeover: args.takeover } };
    let runtime = client::runtime()?;
    let attached = runtime.block_on(async {
        let on_terminal = std::io::stdout().is_terminal();
        let view = View::new(std::io::stdout(), Paint::for_stdout(), on_terminal);
        let mut hands = Hands::new()?;
        let (place, unsent) = (Place::default(), VecDeque::new());
        let mut attach = Attach { root, id, who, view, place, run: None, warned: false, unsent };
        let stayed = attach.stay(usize::from(args.tail), &mut hands).await;
        // What is said next, such as an error, has a line of its own.
        attach.view.finish()?;
        stayed
    });
    // The thread that reads the keyboard ends with the process.
    runtime.shutdown_background();
    attached
}

struct Attach<'a> {
    root: &'a Root,
    id: SessionId,
    who: As,
    view: View<Stdout>,
    /// Up to where frames have been seen.
    place: Place,
    /// The run that goes on.
    run: Option<String>,
    /// Ctrl-C was pressed while nothing ran.
    warned: bool,
    /// Typed, and not known to have arrived. Under its client id it can be sent again.
    unsent: VecDeque<NewMessage>,
}

/// Why the view of one connection ended.
enum Over {
    /// We go.
    Left,
    /// It is to be taken up again.
    Broken,
    /// There is nothing more to see; why.
    Ended(&'static str),
    Lost(Failure),
}

/// How a connection came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// For the first time: with so many messages of the past.
    First { tail: usize },
    /// After a break; whether it was said that the daemon is away.
    Again { was_away: bool },
}

impl Attach<'_> {
    async fn stay(&mut self, tail: usize, hands: &mut Hands) -> Result<(), Failure> {
        let mut socket = self.enter(Arrival::First { tail }, hands).await?;
        // Who took over once does not do so again after a break: someone else may have meanwhile.
        if let As::Operator { takeover } = &mut self.who {
            *takeover = false;
        }
        loop {
            match self.watch(&mut socket, hands).await? {
                Over::Left => {
                    socket.close().await;
                    return self.leave();
                }
                Over::Ended(why) => {
                    self.view.notice(why)?;
                    return Ok(());
                }
                Over::Lost(failure) => return Err(failure),
                Over::Broken => {
                    drop(socket);
                    match self.come_back(hands).await? {
                        Some(back) => socket = back,
                        None => return self.leave(),
                    }
                }
            }
        }
    }

    fn leave(&mut self) -> Result<(), Failure> {
        for message in &self.unsent {
            let text = output::one_line(&message.text);
            self.view.notice(&format!("not sent: {}", crate::words::shorten(&text, 60)))?;
        }
        let named = &self.view.named;
        let back = match self.who {
            As::Operator { .. } => {
                format!("detached; the session continues, `ctx attach {named}` attaches again")
            }
            As::Observer => "detached; the session continues".to_owned(),
        };
        Ok(self.view.notice(&back)?)
    }

    /// Connects, and shows what was said before. A gap is read and no reason to wait.
    async fn enter(&mut self, arrival: Arrival, hands: &Hands) -> Result<LiveSocket, Failure> {
        loop {
            let mut socket = LiveSocket::connect(self.root, self.id, self.who, &self.place).await?;
            match socket.next().await {
                Some(frame) if frame.kind == "welcome" => {
                    self.welcome(&frame, arrival, hands).await?;
                    return Ok(socket);
                }
                Some(frame) if is_gap(&frame) && self.place.epoch.is_some() => self.place = Place::default(),
                Some(_) | None => {
                    return Err(Failure::new(
                        Code::Ehostdown,
                        "the daemon closed the connection before its first frame",
                    ));
                }
            }
        }
    }

    async fn welcome(&mut self, frame: &LiveFrame, arrival: Arrival, hands: &Hands) -> Result<(), Failure> {
        let (past, payload) = (Past { root: self.root, id: self.id }, &frame.payload);
        let session = past.session().await?;
        self.view.named = session
            .agent
            .as_ref()
            .map_or_else(|| session.id.to_string(), |agent| format!("{agent}/{}", session.name));
        if arrival == (Arrival::Again { was_away: true }) {
            self.view.notice("the daemon is back")?;
        }
        let is_anew = self.place.epoch.is_none();
        if is_anew {
            let at =
                |name: &str| payload.pointer(&format!("/server_seq/{name}")).and_then(|seq| seq.as_u64());
            let epoch = payload.get("epoch").and_then(|epoch| epoch.as_str()).map(str::to_owned);
            let (output, events) = (at("output").unwrap_or_default(), at("events").unwrap_or_default());
            match arrival {
                Arrival::First { tail } => past.show_tail(&mut self.view, tail).await?,
                Arrival::Again { .. } => past.show_missed(&mut self.view).await?,
            }
            self.place = Place { epoch, output, events };
            self.run = session.current_run.map(|run| run.to_string());
        }
        if let Arrival::First { .. } = arrival {
            self.greet(&session, hands)?;
        }
        if is_anew {
            past.show_waits(&mut self.view, &session).await?;
        }
        Ok(())
    }

    /// Where we are, and which keys do what.
    fn greet(&mut self, session: &Session, hands: &Hands) -> Result<(), Failure> {
        let title = session.title.as_ref().map(|title| format!(" ({})", output::one_line(title)));
        let keys = match (self.who, hands.can_type()) {
            _ if session.state.is_over() => "",
            (As::Operator { .. }, _) => "; Ctrl-C cancels the run, Ctrl-D detaches",
            (As::Observer, true) => ", observing; Ctrl-D leaves",
            (As::Observer, false) => ", observing",
        };
        let (named, title) = (&self.view.named, title.unwrap_or_default());
        Ok(self.view.notice(&format!("{named}{title}: {}{keys}", session.state.as_str()))?)
    }

    /// Shows frames and takes lines until something ends it.
    async fn watch(&mut self, socket: &mut LiveSocket, hands: &mut Hands) -> Result<Over, Failure> {
        while let Some(message) = self.unsent.pop_front() {
            if !self.post(message).await? {
                return Ok(Over::Broken);
            }
        }
        loop {
            let done = tokio::select! {
                frame = socket.next() => match frame {
                    None => return Ok(Over::Broken),
                    Some(frame) => match self.take(&frame)? {
                        ControlFlow::Continue(()) => {
                            if frame.kind == "ping" {
                                socket.control("pong", frame.payload).await;
                            }
                            continue;
                        }
                        ControlFlow::Break(over) => return Ok(over),
                    },
                },
                done = hands.next() => done,
            };
            match done {
                Done::Leave => return Ok(Over::Left),
                Done::Interrupt if self.interrupted(socket).await? => return Ok(Over::Left),
                Done::Interrupt => {}
                Done::Line(line) if line.trim() == "/detach" => return Ok(Over::Left),
                Done::Line(_) if self.who == As::Observer => {
                    self.view.notice("an observer cannot send messages; Ctrl-D leaves")?;
                }
                Done::Line(line) => {
                    let text = hands.rest_of_paste(line).await;
                    if let Some(message) = self.typed(text)
                        && !self.post(message).await?
                    {
                        return Ok(Over::Broken);
                    }
                }
            }
        }
    }

    fn take(&mut self, frame: &LiveFrame) -> Result<ControlFlow<Over>, Failure> {
        match frame.channel.as_str() {
            "output" => self.place.output = frame.seq,
            "events" => self.place.events = frame.seq,
            _ => return self.take_control(frame),
        }
        let said = |name: &str| frame.payload.get(name).and_then(|text| text.as_str());
        match frame.kind.as_str() {
            "run.created" | "run.context" => {
                self.run = said("run_id").map(str::to_owned);
                self.warned = false;
            }
            "run.completed" | "run.cancelled" => self.run = None,
            "session.state" if said("to_state") == Some("idle") => self.run = None,
            _ => {}
        }
        self.view.frame(frame)?;
        Ok(ControlFlow::Continue(()))
    }

    fn take_control(&mut self, frame: &LiveFrame) -> Result<ControlFlow<Over>, Failure> {
        let said = |name: &str| frame.payload.get(name).and_then(|text| text.as_str()).unwrap_or_default();
        match (frame.kind.as_str(), said("code")) {
            ("closing", "session_ended") => Ok(ControlFlow::Break(Over::Ended("the session has ended"))),
            ("closing", "session_failed") => {
                let failure = Failure::new(Code::Eshutdown, "the session has failed");
                let failure = failure.hint(format!(
                    "`ctx show {}` shows the reason; `ctx restart` starts a new session",
                    self.id
                ));
                Ok(ControlFlow::Break(Over::Lost(failure)))
            }
            ("closing", "taken_over") => {
                let failure = Failure::new(Code::Ebusy, "another client has taken over this session");
                let failure = failure.hint(format!(
                    "the session continues; `ctx attach {} --takeover` takes it back, --observe only watches",
                    self.view.named
                ));
                Ok(ControlFlow::Break(Over::Lost(failure)))
            }
            ("closing", _) => {
                if is_gap(frame) {
                    self.place = Place::default();
                }
                Ok(ControlFlow::Break(Over::Broken))
            }
            ("error", code) => {
                self.view.notice(&format!("{} ({code})", said("message")))?;
                Ok(ControlFlow::Continue(()))
            }
            _ => Ok(ControlFlow::Continue(())),
        }
    }

    /// Ctrl-C; true: leave.
    async fn interrupted(&mut self, socket: &mut LiveSocket) -> Result<bool, Failure> {
        self.view.keyed();
        match (&self.run, self.who) {
            (Some(run), As::Operator { .. }) => {
                socket.control("cancel", json!({ "run_id": run })).await;
                self.view.notice("cancelling")?;
                Ok(false)
            }
            (Some(_), As::Observer) => Ok(true),
            (None, _) if self.warned || self.who == As::Observer => Ok(true),
            (None, _) => {
                self.warned = true;
                self.view.notice("nothing is running; press Ctrl-C again or Ctrl-D to detach")?;
                Ok(false)
            }
        }
    }

    /// A message of what was typed, if it is one.
    fn typed(&mut self, text: String) -> Option<NewMessage> {
        let client_id = client_id();
        self.view.typed(&client_id);
        let is_empty = text.trim().is_empty();
        (!is_empty).then_some(NewMessage { text, client_id: Some(client_id), model_override: None })
    }

    /// False: the daemon broke off, and the message is kept until it is back.
    async fn post(&mut self, message: NewMessage) -> Result<bool, Failure> {
        let body =
            serde_json::to_vec(&message).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
        let path = format!("/sessions/{}/messages", self.id);
        match Api::new(self.root).ask::<Posted>(Method::POST, &path, Some(body)).await {
            Ok(posted) => self.run = Some(posted.run_id.to_string()),
            Err(Failure::Said { code: Code::Ehostdown, .. }) => {
                self.unsent.push_front(message);
                return Ok(false);
            }
            Err(Failure::Said { code, message, .. }) => {
                self.view.notice(&format!("not sent: {} ({code})", output::plain(&message)))?;
            }
            Err(other) => return Err(other),
        }
        Ok(true)
    }

    /// Takes the view up again, for as long as a daemon may take to come back. None: we left meanwhile.
    async fn come_back(&mut self, hands: &mut Hands) -> Result<Option<LiveSocket>, Failure> {
        let begun = Instant::now();
        let mut was_away = false;
        loop {
            let failure = match self.enter(Arrival::Again { was_away }, hands).await {
                Ok(socket) => return Ok(Some(socket)),
                Err(failure) => failure,
            };
            let may_take = match failure {
                Failure::Said { code: Code::Ehostdown, .. } => AWAY_MAX,
                Failure::Said { code: Code::Ebusy, .. } => BUSY_MAX,
                Failure::Said { .. } | Failure::Told { .. } | Failure::ReaderGone => return Err(failure),
            };
            if begun.elapsed() > may_take {
                return Err(failure);
            }
            if !was_away && may_take == AWAY_MAX {
                self.view.notice("the daemon does not answer; waiting for it")?;
                was_away = true;
            }
            if self.wait(hands).await?.is_break() {
                return Ok(None);
            }
        }
    }

    /// A while before the next try; what is typed meanwhile is kept.
    async fn wait(&mut self, hands: &mut Hands) -> Result<ControlFlow<()>, Failure> {
        let wait = tokio::time::sleep(RETRY);
        tokio::pin!(wait);
        loop {
            let line = tokio::select! {
                () = &mut wait => return Ok(ControlFlow::Continue(())),
                done = hands.next() => match done {
                    Done::Leave | Done::Interrupt => return Ok(ControlFlow::Break(())),
                    Done::Line(line) => line,
                },
            };
            if line.trim() == "/detach" {
                return Ok(ControlFlow::Break(()));
            }
            if self.who == As::Observer {
                continue;
            }
            let text = hands.rest_of_paste(line).await;
            let Some(message) = self.typed(text) else { continue };
            if self.unsent.len() < UNSENT_MAX {
                self.unsent.push_back(message);
                self.view.notice("the message is kept and sent when the daemon is back")?;
            } else {
                self.view.notice("not sent: too many messages are waiting for the daemon")?;
            }
        }
    }
}

/// Whether frames were missed that cannot be had any more: what they told is read.
fn is_gap(frame: &LiveFrame) -> bool {
    frame.kind == "closing"
        && frame.payload.get("code").and_then(|code| code.as_str()) == Some("resume_failed")
}
