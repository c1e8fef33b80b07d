//! `ctx chat`: a conversation at the terminal.

mod slash;

use std::io::IsTerminal;
use std::path::PathBuf;

use ctx_api::http::{Session, SessionChange};
use ctx_api::socket::Request;
use ctx_session::{Code, Name};
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

use crate::client::{self, Api};
use crate::failure::Failure;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::sessions;
use crate::talk::{End, Form, Interrupts, Show, Talk, Wait, client_id};
use slash::{HELP, Line};

/// Lines that are kept for the arrow keys.
const HISTORY_MAX: usize = 1_000;

/// Talk with an agent
///
/// Each line you type is a message; the answer streams below it. The daemon keeps the conversation: leave at any
/// time and continue with the same command, also after a restart of the daemon. Pasted text of several lines is
/// one message. Type /help for the other commands.
///
/// Ctrl-C cancels the run; a second Ctrl-C leaves. Ctrl-D leaves.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx chat                        continue with coder
  ctx chat coder --session fix-tests
  ctx chat coder/fix-tests --model debug:script

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no daemon, 70 internal error")]
pub struct Args {
    /// The agent, or a session as agent/name
    #[arg(value_name = "AGENT", default_value = sessions::DEFAULT_AGENT)]
    agent: String,
    /// The session, by name or id [default: the current one, else `default`]
    #[arg(short, long, value_name = "SESSION")]
    session: Option<String>,
    /// Working directory, as a path that the agent sees
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Model for this message and later ones, as provider:model
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    if !std::io::stdin().is_terminal() || !std::io::stdout().is_terminal() {
        return Err(Failure::new(Code::Einval, "chat needs a terminal").hint("in a script, use `ctx send`"));
    }
    let (agent, session) = match (args.agent.split_once('/'), args.session) {
        (Some((agent, name)), None) => (agent, Some(name.to_owned())),
        (Some(_), Some(_)) => {
            let message = "the session is given twice: as agent/name and with --session";
            return Err(Failure::new(Code::Einval, message));
        }
        (None, session) => (args.agent.as_str(), session),
    };
    let agent = sessions::agent_name(agent)?;
    let session = match session {
        Some(session) => super::send::session_for_socket(root, &agent, session)?,
        None => sessions::current_name(root, &agent)?,
    };
    if !root.is_up() {
        return Err(root.daemon_down());
    }
    let runtime = client::runtime()?;
    let interrupts = runtime.block_on(async { Interrupts::new() })?;
    let show = Show::new(Form::Text, agent.as_str());
    let talk = Talk::new(root, agent.clone());
    let mut chat =
        Chat { root, runtime, interrupts, show, talk, agent, session, cwd: args.cwd, model: args.model };
    chat.greet()?;
    chat.talk_on()
}

struct Chat<'a> {
    root: &'a Root,
    runtime: tokio::runtime::Runtime,
    interrupts: Interrupts,
    show: Show,
    talk: Talk<'a>,
    agent: Name,
    session: String,
    /// Said with the next message.
    cwd: Option<String>,
    model: Option<String>,
}

/// Whether the conversation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    GoOn,
    /// Ctrl-C was pressed once; once more leaves.
    Warned,
    Leave,
}

impl Chat<'_> {
    fn name(&self) -> String {
        format!("{}/{}", self.agent, self.session)
    }

    /// The session as the daemon sees it, if there is one yet.
    fn session(&self) -> Result<Option<Session>, Failure> {
        let id = match sessions::find_id(self.root, &self.name()) {
            Ok(id) => id,
            Err(Failure::Said { code: Code::Enoent, .. }) => return Ok(None),
            Err(failure) => return Err(failure),
        };
        let session: Session = Api::new(self.root).get(&format!("/sessions/{id}"))?;
        Ok(Some(session).filter(|session| !session.state.is_over()))
    }

    /// Says where we are, and joins a run that is going on.
    fn greet(&mut self) -> Result<(), Failure> {
        let paint = Paint::for_stderr();
        let about = match self.session()? {
            None => "a new session".to_owned(),
            Some(session) => {
                let model = session.model_override.as_ref().unwrap_or(&session.model);
                let title = session.title.as_ref().map(|title| format!(", {}", output::plain(title)));
                let about = format!("{}{}", model, title.unwrap_or_default());
                if let Some(run) = session.current_run.filter(|_| !session.queued) {
                    output::say(paint.dim(&format!("{}: {about}. A run is in progress:", self.name())));
                    self.watch(run.to_string());
                    return Ok(());
                }
                about
            }
        };
        output::say(paint.dim(&format!("{}: {about}. Type /help for commands.", self.name())));
        Ok(())
    }

    fn watch(&mut self, run: String) {
        self.interrupts.reset();
        let (talk, session) = (&mut self.talk, self.session.clone());
        let watched = self.runtime.block_on(talk.watch(&session, run, &mut self.show, &mut self.interrupts));
        if let Err(failure) = watched {
            failure.report();
        }
    }

    fn talk_on(&mut self) -> Result<(), Failure> {
        let mut editor = editor()?;
        let mut next = Next::GoOn;
        while next != Next::Leave {
            next = match editor.readline(&format!("{}> ", self.name())) {
                Ok(line) if line.trim().is_empty() => Next::GoOn,
                Ok(line) => {
                    remember(&mut editor, &line);
                    self.on_line(&line)
                }
                Err(ReadlineError::Interrupted) if next == Next::Warned => Next::Leave,
                Err(ReadlineError::Interrupted) => {
                    output::say("press Ctrl-C again to leave; the session is kept");
                    Next::Warned
                }
                Err(ReadlineError::Eof) => Next::Leave,
                Err(error) => return Err(Failure::new(Code::Eio, format!("the terminal: {error}"))),
            };
        }
        Ok(())
    }

    fn on_line(&mut self, line: &str) -> Next {
        let done = match slash::parse(line) {
            Line::Message(text) => return self.send(text),
            Line::Quit => return Next::Leave,
            Line::Help => {
                output::say(HELP);
                Ok(())
            }
            Line::Cancel => self.cancel(),
            Line::ShowSession => self.show_session(),
            Line::Session(name) => self.switch(name),
            Line::Title(title) => self.title(title),
            Line::Model(model) => {
                self.model = Some(model);
                output::say("from the next message on");
                Ok(())
            }
            Line::Unknown(word) => {
                output::say(format_args!(
                    "unknown command {word}; /help lists the commands, // sends a text that begins with /"
                ));
                Ok(())
            }
        };
        if let Err(failure) = done {
            failure.report();
        }
        Next::GoOn
    }

    fn send(&mut self, text: String) -> Next {
        let request = Request {
            op: Some("send".to_owned()),
            id: Some(client_id()),
            session: Some(self.session.clone()),
            cwd: self.cwd.clone(),
            input: Some(text),
            model_override: self.model.clone(),
            ..Request::default()
        };
        self.interrupts.reset();
        let exchange = self.talk.exchange(&request, Wait::ForEnd, &mut self.show, &mut self.interrupts);
        match self.runtime.block_on(exchange) {
            Ok(End::Ok | End::Waits | End::Failed(_) | End::Accepted) => {
                // They are part of the session now.
                self.cwd = None;
                self.model = None;
                Next::GoOn
            }
            Ok(End::Cancelled) => Next::Warned,
            Ok(End::Left) => Next::Leave,
            Err(failure) => {
                failure.report();
                output::say("the message was not sent; press the up arrow to get it back");
                Next::GoOn
            }
        }
    }

    fn cancel(&self) -> Result<(), Failure> {
        let nothing = || Failure::new(Code::Enoent, format!("nothing is running in {}", self.name()));
        let session = self.session()?.ok_or_else(nothing)?;
        let run = session.current_run.ok_or_else(nothing)?;
        let path = format!("/sessions/{}/runs/{run}/cancel", session.id);
        let _: ctx_api::http::Run = Api::new(self.root).post(&path)?;
        output::say("cancelled");
        Ok(())
    }

    fn show_session(&self) -> Result<(), Failure> {
        match self.session()? {
            None => {
                output::say(format_args!("{}: does not exist yet; the first message creates it", self.name()))
            }
            Some(session) => {
                let model = session.model_override.as_ref().unwrap_or(&session.model);
                let title = session.title.as_deref().unwrap_or("no title");
                output::say(format_args!(
                    "{} {}: {}, {model}, in {}, {}",
                    self.name(),
                    session.id,
                    session.state,
                    session.cwd,
                    output::plain(title)
                ));
            }
        }
        Ok(())
    }

    fn switch(&mut self, name: String) -> Result<(), Failure> {
        let name = super::send::session_for_socket(self.root, &self.agent, name)?;
        let checked = Name::of_session(&name);
        checked.map_err(|rule| Failure::new(Code::Einval, format!("`{name}`: {rule}")))?;
        self.session = name;
        self.greet()
    }

    fn title(&self, title: String) -> Result<(), Failure> {
        let missing = || Failure::new(Code::Enoent, "send a first message, then set the title");
        let session = self.session()?.ok_or_else(missing)?;
        let change = SessionChange { title: Some(title), ..SessionChange::default() };
        let _: Session = Api::new(self.root).put(&format!("/sessions/{}", session.id), &change)?;
        Ok(())
    }
}

/// Where the lines that were typed are kept. Without a place for them they are forgotten.
fn history_file() -> Option<PathBuf> {
    Some(crate::root::xdg("XDG_STATE_HOME", ".local/state").ok()?.join("ctx/chat_history"))
}

fn editor() -> Result<DefaultEditor, Failure> {
    let wrong = |error: ReadlineError| Failure::new(Code::Eio, format!("the terminal: {error}"));
    let config = rustyline::Config::builder()
        .max_history_size(HISTORY_MAX)
        .map_err(wrong)?
        .auto_add_history(false)
        .bracketed_paste(true)
        .build();
    let mut editor = DefaultEditor::with_config(config).map_err(wrong)?;
    if let Some(path) = history_file() {
        // The first time there is none.
        let _ = editor.load_history(&path);
    }
    Ok(editor)
}

/// A line for the arrow keys, also of the next chat. That it cannot be kept is no reason to stop talking.
fn remember(editor: &mut DefaultEditor, line: &str) {
    let _ = editor.add_history_entry(line);
    if let Some(path) = history_file() {
        let _ = path.parent().map(std::fs::create_dir_all);
        let _ = editor.append_history(&path);
    }
}
