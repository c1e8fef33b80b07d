//! The one client for a conversation: `ctx chat` and `ctx attach`.
//!
//! `hands` is what a person does, with the line `editor`, and `lines` what becomes of it; `drawn` erases what the editor
//! has drawn when the terminal gets another width; `frames` is what the daemon tells; `view` is what is shown, on the
//! `screen`; `connect` takes up the session's socket, also when it broke, and `past` reads what was missed; `slash` has the
//! commands; `answer` is how approvals and pauses are answered. Here they meet.

pub mod answer;
mod connect;
mod drawn;
mod editor;
mod frames;
mod hands;
mod known;
mod lines;
mod open;
mod past;
mod screen;
pub mod slash;
mod view;

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ctx_api::http::{NewMessage, NewPart, Session, SessionChange};
use ctx_session::SessionId;
use hyper::Method;

use crate::client::{self, As, LiveSocket, Place};
use crate::consent::Consent;
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::room::{self, Room};
use crate::root::Root;
use answer::{Asked, Questions, Verdict};
use connect::Arrival;
use hands::{Done, Hands};
pub use open::{Here, Opened, found_or_new};
use screen::Screen;
use view::View;

/// Text that streams in and stops in the middle of a row is shown after this time, and again when there is more of it.
const QUIET: Duration = Duration::from_millis(150);
/// The editor prints what it was given within this time; nothing tells when it has.
const LAST_ROWS: Duration = Duration::from_millis(50);

/// How soon a second Ctrl-C at the prompt comes that leaves.
const AGAIN_MAX: Duration = Duration::from_secs(5);

/// How to take part.
#[derive(Debug, Clone)]
pub struct Options {
    pub who: As,
    /// Past messages that are shown first. A script is shown none: it reads the answers.
    pub tail: usize,
    /// The model from the next message on.
    pub model: Option<String>,
    /// What is allowed in the runs of messages that are sent from here.
    pub consent: Consent,
    /// Images that go with the next message.
    pub parts: Vec<NewPart>,
}

/// Takes part in a session until the person leaves or the session ends; follows to other sessions.
pub fn run(root: &Root, opened: Opened, options: Options) -> Result<(), Failure> {
    let observes = options.who == As::Observer;
    let (reads, writes) = (std::io::stdin().is_terminal(), std::io::stdout().is_terminal());
    // A dumb terminal has no editor: it is read line by line.
    let at_editor = reads && writes && !observes && !output::is_dumb();
    let words = if at_editor { open::words(root) } else { editor::Words::default() };
    let runtime = client::runtime()?;
    let questions = Arc::new(Questions::default());
    let left = runtime.block_on(async {
        let (mut hands, printer) = match at_editor {
            true => {
                Hands::at_editor(words, questions.clone()).map(|(hands, printer)| (hands, Some(printer)))?
            }
            false => (Hands::plain()?, None),
        };
        let mut view = View::new(Screen::new(printer), Paint::for_stdout(), writes);
        view.answers_here = !observes;
        view.typed_is_shown = reads && !observes;
        let mut chat = Chat {
            root,
            id: opened.id,
            news: opened.news,
            is_script: !reads && !observes,
            who: options.who,
            view,
            at_editor,
            place: Place::default(),
            run: None,
            paused: None,
            warned: None,
            keeps_draft: false,
            has_failed: false,
            has_refused: false,
            is_ending: false,
            is_unseen: false,
            started: None,
            room: None,
            parts: options.parts.clone(),
            consent: options.consent.clone(),
            waiting: VecDeque::new(),
            asked: VecDeque::new(),
            was_asked: false,
            questions,
        };
        let left = chat.until_left(&options, &mut hands).await;
        // What is said next, such as an error, has a line of its own.
        chat.last_rows(&hands).await?;
        left?;
        // The failure was shown; a script hears of it by the exit code.
        if chat.is_script && (chat.has_failed || chat.has_refused) {
            Err(Failure::Told { exit: 1 })
        } else {
            Ok(())
        }
    });
    // The thread that reads the keyboard ends with the process.
    runtime.shutdown_background();
    left
}

struct Chat<'a> {
    root: &'a Root,
    id: SessionId,
    /// What is to be said of a session that was made for us.
    news: Option<String>,
    /// Lines come from a pipe: each is read when the session can take it.
    is_script: bool,
    who: As,
    view: View<Screen>,
    at_editor: bool,
    /// Up to where frames have been seen.
    place: Place,
    /// The run that goes on, waits in the queue or is paused.
    run: Option<String>,
    /// The checkpoint that the session is paused at.
    paused: Option<String>,
    /// When Ctrl-C was pressed while nothing ran, or a run was cancelled by it.
    warned: Option<Instant>,
    /// What was half typed when a run was cancelled stands at the next prompt again.
    keeps_draft: bool,
    /// The last run that was seen to end has failed.
    has_failed: bool,
    /// A line was a command that there is not, or a message that the daemon does not take: a script has failed then.
    has_refused: bool,
    /// The input has ended: leave when everything is answered.
    is_ending: bool,
    /// The terminal was closed while messages waited: leave when they are sent.
    is_unseen: bool,
    /// When we started the daemon that was gone.
    started: Option<Instant>,
    /// Our message waits for the end of another run.
    room: Option<Room>,
    /// Images that go with the next message.
    parts: Vec<NewPart>,
    consent: Consent,
    /// Typed, and not known to have arrived. Under its client id it can be sent again.
    waiting: VecDeque<NewMessage>,
    /// Tool calls that wait for an answer, oldest first.
    asked: VecDeque<Asked>,
    /// One of them was answered elsewhere, or is too late to be: a `y` that is typed now was meant for it.
    was_asked: bool,
    questions: Arc<Questions>,
}

enum Stayed {
    Left,
    Switched(Opened),
}

/// Why the view of one connection ended.
enum Over {
    /// We go.
    Left,
    Switch(Opened),
    /// It is to be taken up again.
    Broken,
    /// The same, and not at once: the daemon stops.
    Stopping,
    /// There is nothing more to see; why.
    Ended(&'static str),
    Lost(Failure),
}

impl Chat<'_> {
    async fn until_left(&mut self, options: &Options, hands: &mut Hands) -> Result<(), Failure> {
        if let Some(model) = &options.model {
            self.set_model(model).await?;
        }
        loop {
            match self.stay(options.tail, hands).await? {
                Stayed::Left => return Ok(()),
                Stayed::Switched(opened) => self.begin(opened, options.who)?,
            }
        }
    }

    /// The model from the next message on; the daemon refuses one that is not there.
    async fn set_model(&self, model: &str) -> Result<(), Failure> {
        let change =
            SessionChange { model_override: Some(Some(model.to_owned())), ..SessionChange::default() };
        let _: Session = self.request(Method::PUT, "", &change).await?;
        Ok(())
    }

    /// Everything of the session before is forgotten: what waited for it is not sent to another, and what was allowed in
    /// its runs is not allowed in those of another.
    fn begin(&mut self, opened: Opened, who: As) -> Result<(), Failure> {
        self.name_unsent()?;
        if !std::mem::take(&mut self.consent).is_empty() {
            self.view.notice("--yes, --allow and --net applied to the previous session only")?;
        }
        (self.id, self.news, self.who) = (opened.id, opened.news, who);
        (self.place, self.run, self.paused, self.room) = (Place::default(), None, None, None);
        (self.warned, self.keeps_draft, self.was_asked) = (None, false, false);
        self.parts.clear();
        self.asked.clear();
        self.view.begin();
        Ok(())
    }

    /// Says which messages were typed and will not be sent.
    fn name_unsent(&mut self) -> Result<(), Failure> {
        for message in std::mem::take(&mut self.waiting) {
            self.view.notice(&format!("not sent: {}", lines::shown(&message.text)))?;
        }
        Ok(())
    }

    async fn stay(&mut self, tail: usize, hands: &mut Hands) -> Result<Stayed, Failure> {
        let tail = if self.is_script { 0 } else { tail };
        let mut socket = self.enter(Arrival::First { tail }).await?;
        self.prompt(hands);
        loop {
            match self.watch(&mut socket, hands).await? {
                Over::Left => {
                    socket.close().await;
                    self.leave(hands).await?;
                    return Ok(Stayed::Left);
                }
                Over::Switch(opened) => {
                    socket.close().await;
                    return Ok(Stayed::Switched(opened));
                }
                // What a script has not said yet cannot be said any more.
                Over::Ended(why) if self.is_script => return Err(open::over(self.id, why)),
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

    fn prompt(&mut self, hands: &Hands) {
        let keeps_draft = std::mem::take(&mut self.keeps_draft);
        hands.go_on(&format!("{}> ", self.view.named), keeps_draft);
    }

    /// The editor is done with: what it has to print is printed, and its prompt goes. What was typed and not sent is
    /// said.
    async fn last_rows(&mut self, hands: &Hands) -> Result<(), Failure> {
        self.view.finish()?;
        if self.at_editor {
            self.at_editor = false;
            tokio::time::sleep(LAST_ROWS).await;
            hands.clear_prompt();
            self.view.out().leave_editor();
        }
        self.name_unsent()
    }

    async fn leave(&mut self, hands: &Hands) -> Result<(), Failure> {
        self.last_rows(hands).await?;
        if self.is_ending {
            return Ok(());
        }
        let named = &self.view.named;
        let back = match self.who {
            As::Operator => format!("left; the session continues, `ctx chat {named}` comes back"),
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
            if self.is_unseen && self.waiting.is_empty() && self.room.is_none() {
                return Ok(Over::Left);
            }
            if self.is_ending && self.is_asking() {
                let reason = "there is no more input, and nobody to ask".to_owned();
                self.answer(Verdict::Deny { reason: Some(reason) }).await?;
                continue;
            }
            let wants_line = self.wants_line();
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
                done = hands.next(wants_line) => done,
                () = room::counted(&mut self.room) => {
                    self.start_queued().await?;
                    continue;
                }
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

    /// A person may type at any time; the next line of a script is for what the session waits for.
    fn wants_line(&self) -> bool {
        if self.is_unseen {
            return false;
        }
        let is_free = self.run.is_none() && self.waiting.is_empty();
        !self.is_script || is_free || self.is_asking() || self.paused.is_some()
    }

    async fn on_done(&mut self, done: Done) -> Result<ControlFlow<Over>, Failure> {
        match done {
            Done::Leave | Done::HungUp if self.goes_on_unseen(&done)? => Ok(ControlFlow::Continue(())),
            Done::Leave | Done::HungUp => Ok(ControlFlow::Break(Over::Left)),
            Done::End => {
                self.is_ending = self.who != As::Observer;
                Ok(ControlFlow::Continue(()))
            }
            Done::Interrupt => self.interrupted().await,
            Done::NotText => {
                self.not_text()?;
                Ok(ControlFlow::Continue(()))
            }
            Done::Line(line) => self.on_line(line).await,
        }
    }

    fn not_text(&mut self) -> Result<(), Failure> {
        self.has_refused = true;
        Ok(self.view.notice("not sent: a line of the input is not UTF-8 text")?)
    }

    /// Whether the chat stays although its terminal is gone: messages that wait for the end of a run are sent first. A second
    /// hang-up changes nothing, as a shell that ends sends one after the kernel.
    fn goes_on_unseen(&mut self, done: &Done) -> Result<bool, Failure> {
        if self.is_unseen {
            return Ok(*done == Done::HungUp);
        }
        let is_gone = || rustix::termios::tcgetattr(std::io::stdin()).is_err();
        if !self.at_editor || self.waiting.is_empty() || !is_gone() {
            return Ok(false);
        }
        let nowhere = std::fs::File::options().write(true).open("/dev/null");
        let nowhere = nowhere.map_err(|error| Failure::io("/dev/null", error))?;
        let bent = rustix::stdio::dup2_stdout(&nowhere).and_then(|()| rustix::stdio::dup2_stderr(&nowhere));
        bent.map_err(|error| Failure::io("/dev/null", error.into()))?;
        (self.is_unseen, self.at_editor) = (true, false);
        self.view.out().leave_editor();
        Ok(true)
    }

    /// Ctrl-C or Escape: cancels the run; again, or where nothing runs twice, leaves.
    async fn interrupted(&mut self) -> Result<ControlFlow<Over>, Failure> {
        self.view.keyed();
        // A press that has been forgotten is no reason to leave, unless the run is still being cancelled.
        let again = self.warned.is_some_and(|when| self.run.is_some() || when.elapsed() < AGAIN_MAX);
        if self.who == As::Observer || again {
            return Ok(ControlFlow::Break(Over::Left));
        }
        self.warned = Some(Instant::now());
        match self.run {
            Some(_) => {
                self.keeps_draft = true;
                self.cancel().await?;
            }
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
}
