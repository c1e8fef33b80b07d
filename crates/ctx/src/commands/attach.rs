//! `ctx attach`: a session live in the terminal, like `tmux attach`.
//!
//! The terminal stays as it is: lines are edited by the kernel, Ctrl-C and Ctrl-\ are signals. So there is nothing to
//! restore, however this ends.

mod view;

use std::io::{IsTerminal, Stdout};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ctx_api::http::{List, Message, NewMessage, Posted, Session};
use ctx_session::{Code, SessionId};
use hyper::Method;
use serde_json::json;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;

use crate::client::{self, Api, As, LiveFrame, LiveSocket, Place};
use crate::failure::Failure;
use crate::output::Paint;
use crate::root::Root;
use crate::talk::client_id;
use crate::{output, sessions};
use view::View;

/// How long a daemon may be away before we give up on it.
const AWAY_MAX: Duration = Duration::from_secs(60);
const RETRY: Duration = Duration::from_millis(200);
/// Lines that come this close to each other were pasted: one message.
const PASTE: Duration = Duration::from_millis(30);
/// Lines that wait to be read.
const LINES: usize = 256;

/// Attach to a session
///
/// Shows the last messages and then all that happens, as it happens. A line you type is a message. Ctrl-C cancels the
/// run. Ctrl-D, Ctrl-\ or /detach leaves; the session goes on without you. After a restart of the daemon the view is
/// taken up where it was. One terminal or browser is attached at a time; any number may observe.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx attach                      coder, the session last posted to
  ctx attach coder/fix-tests
  ctx attach coder/fix-tests --takeover
  ctx attach 01K9ZZ3F --observe | tee seen.txt")]
pub struct Args {
    /// The session: agent/name, an agent, an id or the beginning of one
    #[arg(value_name = "SESSION", default_value = sessions::DEFAULT_AGENT)]
    session: String,
    /// Look on: nothing can be typed, and others stay attached
    #[arg(long, conflicts_with = "takeover")]
    observe: bool,
    /// Take the place of whoever is attached
    #[arg(long)]
    takeover: bool,
    /// Messages of the past to begin with
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(0..=1000))]
    tail: u16,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let id = sessions::find_id(root, &args.session)?;
    if !args.observe && !std::io::stdin().is_terminal() {
        return Err(Failure::new(Code::Einval, "attaching needs a terminal to type at")
            .hint("`--observe` only watches, `ctx send` posts a message, `ctx log -f` follows"));
    }
    let who = if args.observe { As::Observer } else { As::Operator { takeover: args.takeover } };
    let runtime = client::runtime()?;
    let attached = runtime.block_on(async {
        let on_terminal = std::io::stdout().is_terminal();
        let view = View::new(std::io::stdout(), Paint::for_stdout(), on_terminal);
        let mut hands = Hands::new(!args.observe)?;
        let mut attach = Attach { root, id, who, view, place: Place::default(), run: None, warned: false };
        attach.stay(usize::from(args.tail), &mut hands).await
    });
    // The thread that reads the keyboard ends with the process.
    runtime.shutdown_background();
    attached
}

/// What a person does: lines and keys.
struct Hands {
    lines: Option<mpsc::Receiver<String>>,
    interrupt: Signal,
    quit: Signal,
    terminate: Signal,
    hangup: Signal,
}

/// What was done.
enum Done {
    Line(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, Ctrl-\, or the terminal is gone.
    Leave,
}

impl Hands {
    fn new(may_type: bool) -> Result<Hands, Failure> {
        let on = |kind| signal(kind).map_err(|error| Failure::io("cannot listen for signals", error));
        let reads = may_type && std::io::stdin().is_terminal();
        Ok(Hands {
            lines: reads.then(keyboard),
            interrupt: on(SignalKind::interrupt())?,
            quit: on(SignalKind::quit())?,
            terminate: on(SignalKind::terminate())?,
            hangup: on(SignalKind::hangup())?,
        })
    }

    /// Nothing is lost if this is dropped before it returns, but for the lines of an unfinished paste.
    async fn next(&mut self) -> Done {
        let line = async {
            match &mut self.lines {
                Some(lines) => lines.recv().await,
                None => std::future::pending().await,
            }
        };
        let first = tokio::select! {
            line = line => line,
            _ = self.interrupt.recv() => return Done::Interrupt,
            _ = self.quit.recv() => return Done::Leave,
            _ = self.terminate.recv() => return Done::Leave,
            _ = self.hangup.recv() => return Done::Leave,
        };
        first.map_or(Done::Leave, Done::Line)
    }

    /// The lines that came with a paste behind its first.
    async fn rest_of_paste(&mut self, first: String) -> String {
        let mut text = first;
        let Some(lines) = &mut self.lines else { return text };
        while let Ok(Some(line)) = tokio::time::timeout(PASTE, lines.recv()).await {
            text.push('\n');
            text.push_str(&line);
        }
        text
    }
}

/// Reads lines on a thread of its own, because a terminal cannot be waited for otherwise.
fn keyboard() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(LINES);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
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

impl Attach<'_> {
    async fn stay(&mut self, tail: usize, hands: &mut Hands) -> Result<(), Failure> {
        let mut socket = self.connect().await?;
        self.welcome(&mut socket, Some(tail)).await?;
        loop {
            match self.watch(&mut socket, hands).await? {
                Over::Left => {
                    socket.close().await;
                    self.view.notice("detached; the session goes on")?;
                    return Ok(());
                }
                Over::Ended(why) => {
                    self.view.notice(why)?;
                    return Ok(());
                }
                Over::Lost(failure) => return Err(failure),
                Over::Broken => match self.come_back(hands).await? {
                    Some(back) => socket = back,
                    None => return Ok(()),
                },
            }
        }
    }

    async fn connect(&self) -> Result<LiveSocket, Failure> {
        LiveSocket::connect(self.root, self.id, self.who, &self.place).await
    }

    /// Takes the welcome, and shows what was said before. `tail`: how much of it, for who comes for the first time.
    async fn welcome(&mut self, socket: &mut LiveSocket, tail: Option<usize>) -> Result<(), Failure> {
        let first = socket.next().await;
        let Some(first) = first.filter(|frame| frame.kind == "welcome") else {
            return Err(Failure::new(Code::Ehostdown, "the daemon broke off before its welcome"));
        };
        let at =
            |name: &str| first.payload.pointer(&format!("/server_seq/{name}")).and_then(|seq| seq.as_u64());
        if self.place.epoch.is_none() {
            self.place.epoch = first.payload.get("epoch").and_then(|epoch| epoch.as_str()).map(str::to_owned);
            (self.place.output, self.place.events) =
                (at("output").unwrap_or_default(), at("events").unwrap_or_default());
            self.past(tail).await?;
        }
        let session: Session = self.get(&format!("/sessions/{}", self.id)).await?;
        self.run = session.current_run.map(|run| run.to_string());
        if tail.is_some() {
            let title = session.title.unwrap_or_else(|| session.name.to_string());
            let keys = match (self.who, std::io::stdin().is_terminal()) {
                (As::Operator { .. }, true) => "Ctrl-C cancels the run, Ctrl-D detaches",
                (As::Operator { .. }, false) | (As::Observer, _) => "Ctrl-D or Ctrl-\\ leaves",
            };
            self.view.notice(&format!("{title}: {}; {keys}", session.state.as_str()))?;
        }
        Ok(())
    }

    /// The newest messages, or those since the last one that was shown.
    async fn past(&mut self, tail: Option<usize>) -> Result<(), Failure> {
        if tail == Some(0) {
            return Ok(());
        }
        let since = self.view.last.as_ref().map(|id| format!("?limit=1000&since={id}"));
        let query = since.unwrap_or_else(|| format!("?limit={}", tail.unwrap_or(20)));
        let page: List<Message> = self.get(&format!("/sessions/{}/messages{query}", self.id)).await?;
        for message in page.items.iter().filter(|message| !message.superseded) {
            self.view.message(message)?;
        }
        Ok(())
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        Api::new(self.root).ask(Method::GET, path, None).await
    }

    /// Shows frames and takes lines until something ends it.
    async fn watch(&mut self, socket: &mut LiveSocket, hands: &mut Hands) -> Result<Over, Failure> {
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
                Done::Line(line) => {
                    let text = hands.rest_of_paste(line).await;
                    self.send(text).await?;
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
        match frame.kind.as_str() {
            "run.created" | "run.context" => {
                self.run = frame.payload.get("run_id").and_then(|run| run.as_str()).map(str::to_owned);
                self.warned = false;
            }
            "run.completed" | "run.cancelled" => self.run = None,
            _ => {}
        }
        self.view.frame(frame)?;
        Ok(ControlFlow::Continue(()))
    }

    fn take_control(&mut self, frame: &LiveFrame) -> Result<ControlFlow<Over>, Failure> {
        let said = |name: &str| frame.payload.get(name).and_then(|text| text.as_str()).unwrap_or_default();
        match (frame.kind.as_str(), said("code")) {
            ("closing", "session_ended") => Ok(ControlFlow::Break(Over::Ended("the session has ended"))),
            ("closing", "session_failed") => Ok(ControlFlow::Break(Over::Ended("the session has failed"))),
            ("closing", "taken_over") => {
                let failure = Failure::new(Code::Ebusy, "someone else has taken over this session");
                let failure = failure.hint("`ctx attach --takeover` takes it back; it goes on meanwhile");
                Ok(ControlFlow::Break(Over::Lost(failure)))
            }
            ("closing", "resume_failed") => {
                // What was missed is read as messages.
                self.place = Place::default();
                Ok(ControlFlow::Break(Over::Broken))
            }
            ("closing", _) => Ok(ControlFlow::Break(Over::Broken)),
            ("error", code) => {
                self.view.notice(&format!("{} ({code})", said("message")))?;
                Ok(ControlFlow::Continue(()))
            }
            _ => Ok(ControlFlow::Continue(())),
        }
    }

    /// Ctrl-C; true: leave.
    async fn interrupted(&mut self, socket: &mut LiveSocket) -> Result<bool, Failure> {
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
                self.view.notice("nothing runs; Ctrl-D or Ctrl-C once more detaches")?;
                Ok(false)
            }
        }
    }

    async fn send(&mut self, text: String) -> Result<(), Failure> {
        if text.trim().is_empty() {
            return Ok(());
        }
        let client_id = client_id();
        self.view.typed(&client_id);
        let new = NewMessage { text, client_id: Some(client_id), model_override: None };
        let body = serde_json::to_vec(&new).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
        let path = format!("/sessions/{}/messages", self.id);
        match Api::new(self.root).ask::<Posted>(Method::POST, &path, Some(body)).await {
            Ok(posted) => self.run = Some(posted.run_id.to_string()),
            Err(Failure::Said { code, message, .. }) => {
                self.view.notice(&format!("not sent: {} ({code})", output::plain(&message)))?;
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Takes the view up again, for as long as a daemon may take to come back. None: we left meanwhile.
    async fn come_back(&mut self, hands: &mut Hands) -> Result<Option<LiveSocket>, Failure> {
        let begun = Instant::now();
        let mut said = false;
        loop {
            let tried = match self.connect().await {
                Ok(mut socket) => self.come_in(&mut socket).await.map(|()| socket),
                Err(failure) => Err(failure),
            };
            let failure = match tried {
                Ok(socket) => {
                    if said {
                        self.view.notice("back")?;
                    }
                    return Ok(Some(socket));
                }
                Err(failure) => failure,
            };
            let passes = matches!(failure, Failure::Said { code: Code::Ehostdown | Code::Ebusy, .. });
            if !passes || begun.elapsed() > AWAY_MAX {
                return Err(failure);
            }
            if !said {
                self.view.notice("the daemon is away; waiting for it")?;
                said = true;
            }
            let wait = tokio::time::sleep(RETRY);
            tokio::pin!(wait);
            loop {
                tokio::select! {
                    () = &mut wait => break,
                    done = hands.next() => match done {
                        Done::Leave | Done::Interrupt => return Ok(None),
                        Done::Line(_) => self.view.notice("not sent: the daemon is away")?,
                    },
                }
            }
        }
    }

    /// After a break: the welcome, or the news that something was missed and has to be read.
    async fn come_in(&mut self, socket: &mut LiveSocket) -> Result<(), Failure> {
        match self.welcome(socket, None).await {
            Err(failure) if self.place.epoch.is_some() => {
                // Another epoch: the next try begins anew, and reads what was said meanwhile.
                self.place = Place::default();
                Err(failure)
            }
            welcomed => welcomed,
        }
    }
}
