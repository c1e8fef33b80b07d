//! The one client for a conversation: `ctx chat` and `ctx attach`.
//!
//! `hands` is what a person does, with the line `editor`; `view` is what is shown, on the `screen`; `connect` takes up
//! the session's socket, also when it broke, and `past` reads what was missed; `slash` has the commands; `answer` is how
//! approvals and pauses are answered. Here they meet.

pub mod answer;
mod connect;
mod editor;
mod hands;
mod known;
mod open;
mod past;
mod screen;
pub mod slash;
mod view;

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::time::Duration;

use ctx_api::http::{NewMessage, NewPart, Posted};
use ctx_session::{Code, SessionId};

use crate::client::{self, As, LiveFrame, LiveSocket, Place};
use crate::consent::Consent;
use crate::failure::Failure;
use crate::images;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::talk::client_id;
use answer::Asked;
use connect::{Arrival, is_gap};
use hands::{Done, Hands};
pub use open::{Here, existing, found_or_new};
use past::Past;
use screen::Screen;
use slash::{Act, Line};
use view::View;

/// Text that streams in and stops in the middle of a row is shown after this time, and again when there is more of it.
const QUIET: Duration = Duration::from_millis(150);
/// The editor prints what it was given within this time; nothing tells when it has.
const LAST_ROWS: Duration = Duration::from_millis(50);
/// Messages that wait: for the end of a run, or for a daemon that is away.
const WAITING_MAX: usize = 16;

/// How to take part.
#[derive(Debug, Clone)]
pub struct Options {
    pub who: As,
    /// Where another client is attached: take part beside it instead of being refused.
    pub joins: bool,
    /// Past messages that are shown first.
    pub tail: usize,
    /// The model of the next message.
    pub model: Option<String>,
    /// What is allowed in the runs of messages that are sent from here.
    pub consent: Consent,
    /// Images that go with the next message.
    pub parts: Vec<NewPart>,
}

/// Takes part in a session until the person leaves or the session ends; follows to other sessions.
pub fn run(root: &Root, id: SessionId, options: Options) -> Result<(), Failure> {
    let observes = options.who == As::Observer;
    let (reads, writes) = (std::io::stdin().is_terminal(), std::io::stdout().is_terminal());
    let at_editor = reads && writes && !observes;
    let words = if at_editor { open::words(root) } else { editor::Words::default() };
    let runtime = client::runtime()?;
    let left = runtime.block_on(async {
        let (mut hands, printer) = match at_editor {
            true => Hands::at_editor(words).map(|(hands, printer)| (hands, Some(printer)))?,
            false => (Hands::plain()?, None),
        };
        let mut view = View::new(Screen::new(printer), Paint::for_stdout(), writes);
        view.answers_here = !observes;
        view.typed_is_shown = reads && !observes;
        let mut chat = Chat {
            root,
            id,
            who: options.who,
            joins: options.joins,
            view,
            at_editor,
            place: Place::default(),
            run: None,
            paused: None,
            warned: false,
            is_ending: false,
            model: options.model,
            parts: options.parts,
            consent: options.consent,
            waiting: VecDeque::new(),
            asked: VecDeque::new(),
        };
        let left = loop {
            match chat.stay(options.tail, &mut hands).await {
                Ok(Stayed::Left) => break Ok(()),
                Ok(Stayed::Switched(id)) => chat.begin(id, options.who),
                Err(failure) => break Err(failure),
            }
        };
        // What is said next, such as an error, has a line of its own.
        chat.last_rows(&hands).await?;
        left
    });
    // The thread that reads the keyboard ends with the process.
    runtime.shutdown_background();
    left
}

struct Chat<'a> {
    root: &'a Root,
    id: SessionId,
    who: As,
    joins: bool,
    view: View<Screen>,
    at_editor: bool,
    /// Up to where frames have been seen.
    place: Place,
    /// The run that goes on, waits in the queue or is paused.
    run: Option<String>,
    /// The checkpoint that the session is paused at.
    paused: Option<String>,
    /// Ctrl-C was pressed while nothing ran, or a run was cancelled by it.
    warned: bool,
    /// The input has ended: leave when everything is answered.
    is_ending: bool,
    model: Option<String>,
    /// Images that go with the next message.
    parts: Vec<NewPart>,
    consent: Consent,
    /// Typed, and not known to have arrived. Under its client id it can be sent again.
    waiting: VecDeque<NewMessage>,
    /// Tool calls that wait for an answer, oldest first.
    asked: VecDeque<Asked>,
}

enum Stayed {
    Left,
    Switched(SessionId),
}

/// Why the view of one connection ended.
enum Over {
    /// We go.
    Left,
    Switch(SessionId),
    /// It is to be taken up again.
    Broken,
    /// The same, and not at once: the daemon stops.
    Stopping,
    /// There is nothing more to see; why.
    Ended(&'static str),
    Lost(Failure),
}

impl Chat<'_> {
    /// Everything of the session before is forgotten.
    fn begin(&mut self, id: SessionId, who: As) {
        (self.id, self.who) = (id, who);
        (self.place, self.run, self.paused) = (Place::default(), None, None);
        self.asked.clear();
        self.view.begin();
    }

    async fn stay(&mut self, tail: usize, hands: &mut Hands) -> Result<Stayed, Failure> {
        let mut socket = self.enter(Arrival::First { tail }).await?;
        // Who took over once does not do so again after a break: someone else may have meanwhile.
        if let As::Operator { takeover } = &mut self.who {
            *takeover = false;
        }
        self.prompt(hands);
        loop {
            match self.watch(&mut socket, hands).await? {
                Over::Left => {
                    socket.close().await;
                    self.leave(hands).await?;
                    return Ok(Stayed::Left);
                }
                Over::Switch(id) => {
                    socket.close().await;
                    return Ok(Stayed::Switched(id));
                }
                Over::Ended(why) => {
                    self.last_rows(hands).await?;
                    self.view.notice(why)?;
                    return Ok(Stayed::Left);
                }
                Over::Lost(failure) => return Err(failure),
                broken @ (Over::Broken | Over::Stopping) => {
                    drop(socket);
                    match self.come_back(hands, matches!(broken, Over::Stopping)).await? {
                        Some(back) => socket = back,
                        None => {
                            self.leave(hands).await?;
                            return Ok(Stayed::Left);
                        }
                    }
                }
            }
        }
    }

    fn prompt(&self, hands: &Hands) {
        hands.go_on(&format!("{}> ", self.view.named));
    }

    /// The editor is done with: what it has to print is printed, and its prompt goes.
    async fn last_rows(&mut self, hands: &Hands) -> Result<(), Failure> {
        self.view.finish()?;
        if self.at_editor {
            self.at_editor = false;
            tokio::time::sleep(LAST_ROWS).await;
            hands.clear_prompt();
            self.view.out().leave_editor();
        }
        Ok(())
    }

    async fn leave(&mut self, hands: &Hands) -> Result<(), Failure> {
        self.last_rows(hands).await?;
        for message in &self.waiting {
            let text = output::one_line(&message.text);
            self.view.notice(&format!("not sent: {}", crate::words::shorten(&text, 60)))?;
        }
        if self.is_ending {
            return Ok(());
        }
        let named = &self.view.named;
        let back = match self.who {
            As::Operator { .. } => format!("left; the session continues, `ctx chat {named}` comes back"),
            As::Observer => "left; the session continues".to_owned(),
        };
        Ok(self.view.notice(&back)?)
    }

    /// Shows frames and takes lines until something ends it.
    async fn watch(&mut self, socket: &mut LiveSocket, hands: &mut Hands) -> Result<Over, Failure> {
        loop {
            if !self.send_waiting().await? {
                return Ok(Over::Broken);
            }
            if self.is_ending && self.run.is_none() && self.waiting.is_empty() {
                return Ok(Over::Left);
            }
            let done = tokio::select! {
                frame = socket.next() => match frame {
                    None => return Ok(Over::Broken),
                    Some(frame) => match self.take(&frame).await? {
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
                () = tokio::time::sleep(QUIET), if self.view.out().has_part() => {
                    self.view.out().show_part()?;
                    continue;
                }
            };
            if let ControlFlow::Break(over) = self.on_done(done).await? {
                return Ok(over);
            }
            self.prompt(hands);
        }
    }

    async fn on_done(&mut self, done: Done) -> Result<ControlFlow<Over>, Failure> {
        match done {
            Done::Leave => Ok(ControlFlow::Break(Over::Left)),
            Done::End => {
                self.is_ending = self.who != As::Observer;
                Ok(ControlFlow::Continue(()))
            }
            Done::Interrupt => self.interrupted().await,
            Done::Line(line) => self.on_line(line).await,
        }
    }

    async fn on_line(&mut self, line: String) -> Result<ControlFlow<Over>, Failure> {
        if line.trim().is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        self.warned = false;
        let text = match slash::parse(&line) {
            Line::Command { act: Act::Leave, .. } => return Ok(ControlFlow::Break(Over::Left)),
            _ if self.who == As::Observer => {
                self.view.notice("an observer cannot send messages; Ctrl-D leaves")?;
                return Ok(ControlFlow::Continue(()));
            }
            Line::Command { act, rest } => return self.command(act, rest).await,
            Line::Wrong(why) => {
                self.view.notice(&why)?;
                return Ok(ControlFlow::Continue(()));
            }
            Line::Message(text) => text,
        };
        if let (false, Some(verdict)) = (self.asked.is_empty(), answer::verdict(&text)) {
            self.answer(verdict).await?;
        } else if let Some(checkpoint) = self.paused.clone() {
            self.go_on_with(&checkpoint, text).await?;
        } else {
            self.keep(text)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A message that is sent now, or when the session can take it.
    fn keep(&mut self, text: String) -> Result<(), Failure> {
        if self.waiting.len() >= WAITING_MAX {
            return Ok(self.view.notice("not sent: too many messages are waiting")?);
        }
        let client_id = client_id();
        if self.run.is_some() && self.at_editor {
            // It is shown again in its place in the conversation, when it is sent.
            let shown = crate::words::shorten(&output::one_line(&text), 60);
            self.view.notice(&format!("waiting for the end of the run: {shown}"))?;
        } else {
            self.view.typed(&client_id);
        }
        let model_override = self.model.take().map(Some);
        let (approvals, allow) = (self.consent.given(), self.consent.allow.clone());
        let client_id = Some(client_id);
        let mut parts = std::mem::take(&mut self.parts);
        match images::read(&images::named_in(&text)) {
            Ok(named) => parts.extend(named),
            Err(Failure::Said { message, .. }) => {
                self.view.notice(&format!("not sent: {}", output::one_line(&message)))?;
                self.parts = parts;
                return Ok(());
            }
            Err(failure) => return Err(failure),
        }
        self.waiting.push_back(NewMessage {
            text,
            parts,
            client_id,
            model_override,
            approvals,
            allow,
            net: self.consent.net,
        });
        Ok(())
    }

    async fn command(&mut self, act: Act, rest: String) -> Result<ControlFlow<Over>, Failure> {
        match act {
            Act::Leave => return Ok(ControlFlow::Break(Over::Left)),
            Act::Help => slash::help().iter().try_for_each(|line| self.view.line(line))?,
            Act::Cancel if self.run.is_none() => self.view.notice("nothing is running")?,
            Act::Cancel => self.cancel().await?,
            Act::Model => {
                self.view.notice(&format!("{rest} from the next message on"))?;
                self.model = Some(rest);
            }
            Act::Switch if rest.is_empty() => {
                let line = format!("{} {}", self.view.named, self.id);
                self.view.line(&line)?;
            }
            Act::Switch => {
                let root = self.root.clone();
                // It asks the daemon over a connection of its own, which waits.
                let found =
                    tokio::task::spawn_blocking(move || open::found_or_new(&root, &rest, None, None)).await;
                match found {
                    Ok(Ok(id)) => return Ok(ControlFlow::Break(Over::Switch(id))),
                    Ok(Err(Failure::Said { message, .. })) => self.view.notice(&message)?,
                    Ok(Err(other)) => return Err(other),
                    Err(error) => return Err(Failure::new(Code::Eio, error.to_string())),
                }
            }
            Act::Run(template) => self.run_ctx(template, &rest).await?,
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Runs a command of this program on the session and shows what it prints.
    async fn run_ctx(&mut self, template: &[&str], rest: &str) -> Result<(), Failure> {
        let program =
            std::env::current_exe().map_err(|error| Failure::io("the path of this program", error))?;
        let words = slash::arguments(template, &self.id.to_string(), rest);
        let ran = tokio::process::Command::new(program)
            .args(words)
            .env("CTX_ROOT", &self.root.path)
            .stdin(std::process::Stdio::null())
            .output()
            .await
            .map_err(|error| Failure::io("ctx", error))?;
        for text in [ran.stdout, ran.stderr] {
            String::from_utf8_lossy(&text).lines().try_for_each(|line| self.view.line(line))?;
        }
        Ok(())
    }

    async fn take(&mut self, frame: &LiveFrame) -> Result<ControlFlow<Over>, Failure> {
        match frame.channel.as_str() {
            "output" => self.place.output = frame.seq,
            "events" => self.place.events = frame.seq,
            _ => return self.take_control(frame),
        }
        let said = |name: &str| frame.payload.get(name).and_then(|text| text.as_str());
        let mut asked = None;
        match frame.kind.as_str() {
            "run.created" | "run.context" => {
                self.run = said("run_id").map(str::to_owned);
                self.warned = false;
            }
            // The end of another run than ours was seen already.
            "run.completed" | "run.cancelled" if self.run.as_deref() == said("run_id") => {
                (self.run, self.paused) = (None, None);
            }
            "session.queued_discarded" => self.run = None,
            "checkpoint.created" => self.paused = said("checkpoint_id").map(str::to_owned),
            "checkpoint.resumed" | "checkpoint.rolled_back" => self.paused = None,
            "approval.requested" => {
                let text = |name: &str| said(name).unwrap_or_default().to_owned();
                asked = Some(Asked { id: text("approval_id"), tool: text("tool") });
            }
            "approval.settled" => self.asked.retain(|one| Some(one.id.as_str()) != said("approval_id")),
            _ => {}
        }
        self.view.frame(frame)?;
        if let Some(asked) = asked.filter(|_| self.who != As::Observer) {
            self.asked.push_back(asked);
        }
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
                    "the session continues; `ctx attach {} --takeover` takes it back, `ctx chat` joins in",
                    self.view.named
                ));
                Ok(ControlFlow::Break(Over::Lost(failure)))
            }
            ("closing", "shutdown") => Ok(ControlFlow::Break(Over::Stopping)),
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

    /// Ctrl-C or Escape: cancels the run; again, or where nothing runs twice, leaves.
    async fn interrupted(&mut self) -> Result<ControlFlow<Over>, Failure> {
        self.view.keyed();
        if self.who == As::Observer || self.warned {
            return Ok(ControlFlow::Break(Over::Left));
        }
        self.warned = true;
        match self.run {
            Some(_) => self.cancel().await?,
            None => self.view.notice("nothing is running; press Ctrl-C again or Ctrl-D to leave")?,
        }
        Ok(ControlFlow::Continue(()))
    }

    async fn cancel(&mut self) -> Result<(), Failure> {
        let Some(run) = self.run.clone() else { return Ok(()) };
        self.view.notice("cancelling; Ctrl-C again leaves")?;
        match self.tell::<serde_json::Value>(&format!("/runs/{run}/cancel"), &serde_json::json!({})).await {
            Ok(_) => Ok(()),
            Err(Failure::Said { message, .. }) => Ok(self.view.notice(&output::plain(&message))?),
            Err(other) => Err(other),
        }
    }

    /// Sends the first message that waits, if the session can take one. False: the daemon broke off.
    async fn send_waiting(&mut self) -> Result<bool, Failure> {
        if self.run.is_some() {
            return Ok(true);
        }
        let Some(message) = self.waiting.front() else { return Ok(true) };
        match self.tell::<Posted>("/messages", message).await {
            Ok(posted) => {
                self.run = Some(posted.run_id.to_string());
                self.waiting.pop_front();
            }
            Err(Failure::Said { code: Code::Ehostdown, .. }) => return Ok(false),
            // Someone else was faster; the message waits for the end of that run.
            Err(Failure::Said { code: Code::Ebusy, .. }) if self.is_busy().await? => {}
            Err(Failure::Said { code, message, .. }) => {
                self.waiting.pop_front();
                self.view.notice(&format!("not sent: {} ({code})", output::plain(&message)))?;
            }
            Err(other) => return Err(other),
        }
        Ok(true)
    }

    /// Whether the session has a run, whose end will be shown.
    async fn is_busy(&mut self) -> Result<bool, Failure> {
        let session = Past { root: self.root, id: self.id }.session().await?;
        self.run = session.current_run.map(|run| run.to_string());
        Ok(self.run.is_some())
    }
}
