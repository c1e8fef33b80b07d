//! The line editor of the chat: history, several lines, pastes as one piece, completion.
//!
//! It runs on a thread of its own and hands over one line at a time. The next line is read only when it is asked for, so
//! that whoever leaves leaves the terminal as it was.

use std::cell::{Cell, RefCell};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::process::{Signal, kill_current_process_group};
use rustix::termios::{InputModes, LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use rustyline::completion::{Completer, Pair};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::FileHistory;
use rustyline::validate::Validator;
use rustyline::{Cmd, Context, Editor, Event, ExternalPrinter, Helper, KeyCode, KeyEvent, Modifiers};
use rustyline::{ConditionalEventHandler, EventContext, EventHandler, RepeatCount};
use tokio::sync::mpsc;

use super::answer::Questions;
use super::drawn::{self, Drawn};
use super::hands::Done;
use super::screen::{Last, Printer, Row};
use super::slash;
use crate::failure::Failure;
use ctx_session::Code;

/// Lines that are kept for the arrow keys.
const HISTORY_MAX: usize = 1_000;
/// How long an Escape may be the beginning of another key.
const ESCAPE_MS: u16 = 50;
/// How long a signal to stop may take to reach the process.
const STOP: std::time::Duration = std::time::Duration::from_millis(50);
/// Most files that are offered at once.
const FILES_MAX: usize = 200;

/// A line that is asked for.
pub struct Ask {
    pub prompt: String,
    /// It begins with what stood there when a key interrupted the line before.
    pub keeps_draft: bool,
    /// Keys wait that were pressed before.
    pub is_typed_ahead: bool,
}

/// The editor as the chat sees it.
pub struct Typing {
    lines: mpsc::Receiver<Done>,
    ask: std::sync::mpsc::Sender<Ask>,
    questions: Arc<Questions>,
    /// Whether a prompt stands on the screen.
    reads: Cell<bool>,
    /// The terminal as it was before.
    before: Option<Termios>,
}

impl Typing {
    /// Reads the next line.
    pub fn go_on(&self, prompt: &str, keeps_draft: bool) {
        let is_typed_ahead = rustix::io::ioctl_fionread(std::io::stdin()).is_ok_and(|bytes| bytes > 0);
        self.questions.ask_line();
        let ask = Ask { prompt: prompt.to_owned(), keeps_draft, is_typed_ahead };
        // A thread that has gone has said so.
        self.reads.set(self.ask.send(ask).is_ok());
    }

    /// Nothing is lost if this is dropped before it returns.
    pub async fn next(&mut self) -> Done {
        let done = self.lines.recv().await.unwrap_or(Done::Leave);
        self.reads.set(false);
        done
    }

    pub fn clear_prompt(&self) {
        if self.reads.get() {
            // The row of the prompt, and the mode in which the terminal marks pastes. Nobody may be looking any more.
            let mut stdout = std::io::stdout();
            let _ = stdout.write_all(b"\r\x1b[K\x1b[?2004l").and_then(|()| stdout.flush());
        }
    }
}

impl Drop for Typing {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A terminal that is gone needs nothing back.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// What Tab offers behind `/session`, `/model` and so on.
#[derive(Debug, Clone, Default)]
pub struct Words {
    pub sessions: Vec<String>,
    pub models: Vec<String>,
}

/// Starts the thread. The printer writes above the line that is being edited.
pub fn start(words: Words, questions: Arc<Questions>) -> Result<(Typing, Printer), Failure> {
    let before = keep_keys();
    let turn = Turn::default();
    let draft = Draft::default();
    let assist = Assist::new(words, turn.clone(), questions.clone());
    let mut editor = editor(assist, before.clone(), &draft).map_err(wrong)?;
    let mut printer = editor.create_external_printer().map_err(wrong)?;
    let (to_chat, lines) = mpsc::channel(1);
    let (ask, asked) = std::sync::mpsc::channel::<Ask>();
    let read = turn.clone();
    std::thread::spawn(move || {
        while let Ok(Ask { prompt, keeps_draft, is_typed_ahead }) = asked.recv() {
            let (left, right) = std::mem::take(&mut *ctx_journal::lock(&draft));
            let (left, right) = if keeps_draft { (left, right) } else { Default::default() };
            if let Some(assist) = editor.helper() {
                assist.begin(&prompt, is_typed_ahead || !left.is_empty() || !right.is_empty());
            }
            let line = editor.readline_with_initial(&prompt, (&left, &right));
            next_turn(&read);
            let done = match line {
                Ok(line) => {
                    remember(&mut editor, &line);
                    Done::Line(line)
                }
                Err(ReadlineError::Interrupted) => Done::Interrupt,
                Err(_) => Done::Leave,
            };
            if to_chat.blocking_send(done).is_err() {
                return;
            }
        }
    });
    // The editor takes a row only while it reads a line, and whoever prints waits for that. The chat must not: it is the
    // one who asks for the next line.
    let (rows, to_print) = std::sync::mpsc::channel::<Row>();
    std::thread::spawn(move || {
        let mut last = Last::default();
        while let Ok(row) = to_print.recv() {
            let now = (turn.load(Ordering::SeqCst), crate::output::width());
            if let Some(text) = last.printed(row, now)
                && printer.print(text).is_err()
            {
                return;
            }
        }
    });
    let print: Printer =
        Box::new(move |row| rows.send(row).map_err(|_| std::io::Error::from(std::io::ErrorKind::BrokenPipe)));
    Ok((Typing { lines, ask, questions, reads: Cell::new(false), before }, print))
}

/// Counts what puts the editor's own rows below those that were printed: a line that was entered, a list of completions, a
/// stay in the background.
type Turn = Arc<AtomicU64>;

fn next_turn(turn: &Turn) {
    turn.fetch_add(1, Ordering::SeqCst);
}

/// Keys that are pressed while no line is read wait for the next one: they are not shown, and Ctrl-C is a key like
/// others. The terminal as it was before; None: it is gone.
fn keep_keys() -> Option<Termios> {
    let stdin = std::io::stdin();
    let before = tcgetattr(&stdin).ok()?;
    let mut ours = before.clone();
    ours.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG | LocalModes::IEXTEN);
    ours.input_modes.remove(InputModes::ICRNL);
    tcsetattr(&stdin, OptionalActions::Now, &ours).ok()?;
    Some(before)
}

fn wrong(error: ReadlineError) -> Failure {
    Failure::new(Code::Eio, format!("the terminal: {error}"))
}

fn editor(
    assist: Assist,
    before: Option<Termios>,
    draft: &Draft,
) -> rustyline::Result<Editor<Assist, FileHistory>> {
    let config = rustyline::Config::builder()
        .max_history_size(HISTORY_MAX)?
        .auto_add_history(false)
        .bracketed_paste(true)
        .keyseq_timeout(Some(ESCAPE_MS))
        .completion_type(rustyline::CompletionType::List)
        .build();
    let mut editor = Editor::with_config(config)?;
    let turn = assist.turn.clone();
    editor.set_helper(Some(assist));
    let bind = |key: KeyEvent| Event::KeySeq(vec![key]);
    for key in [KeyEvent(KeyCode::Esc, Modifiers::NONE), KeyEvent::ctrl('C')] {
        let interrupt = EventHandler::Conditional(Box::new(Interrupt { draft: draft.clone() }));
        editor.bind_sequence(bind(key), interrupt);
    }
    editor.bind_sequence(bind(KeyEvent::alt('\r')), Cmd::Newline);
    editor.bind_sequence(bind(KeyEvent(KeyCode::Enter, Modifiers::ALT)), Cmd::Newline);
    editor.bind_sequence(bind(KeyEvent::ctrl('\\')), Cmd::EndOfFile);
    if let Some(before) = before {
        let suspend = EventHandler::Conditional(Box::new(Suspend { before, turn }));
        editor.bind_sequence(bind(KeyEvent::ctrl('Z')), suspend);
    }
    if let Some(path) = history_file() {
        // The first time there is none.
        let _ = editor.load_history(&path);
    }
    Ok(editor)
}

/// Where the lines that were typed are kept. Without a place for them they are forgotten.
fn history_file() -> Option<PathBuf> {
    Some(crate::root::xdg("XDG_STATE_HOME", ".local/state").ok()?.join("ctx/chat_history"))
}

/// A line for the arrow keys, also of the next chat. That it cannot be kept is no reason to stop talking.
fn remember(editor: &mut Editor<Assist, FileHistory>, line: &str) {
    if line.trim().is_empty() {
        return;
    }
    let _ = editor.add_history_entry(line);
    if let Some(path) = history_file() {
        let _ = path.parent().map(std::fs::create_dir_all);
        let _ = editor.append_history(&path);
    }
}

struct Assist {
    words: Words,
    turn: Turn,
    questions: Arc<Questions>,
    /// Nothing stands behind the prompt.
    is_empty: Cell<bool>,
    drawn: RefCell<Drawn>,
    rewraps: bool,
}

impl Assist {
    fn new(words: Words, turn: Turn, questions: Arc<Questions>) -> Assist {
        let (is_empty, drawn) = (Cell::new(true), RefCell::default());
        Assist { words, turn, questions, is_empty, drawn, rewraps: drawn::is_rewrapping() }
    }

    /// A line is about to be read; it is begun already if keys wait or a draft stands there.
    fn begin(&self, prompt: &str, is_begun: bool) {
        self.is_empty.set(!is_begun);
        self.drawn.borrow_mut().begin(prompt);
    }
}

/// What stood before and behind the cursor when a key interrupted the line.
type Draft = Arc<Mutex<(String, String)>>;

/// Escape and Ctrl-C end the line; only the chat knows whether what was typed is to stay.
struct Interrupt {
    draft: Draft,
}

impl ConditionalEventHandler for Interrupt {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, context: &EventContext<'_>) -> Option<Cmd> {
        let (left, right) = context.line().split_at_checked(context.pos()).unwrap_or((context.line(), ""));
        *ctx_journal::lock(&self.draft) = (left.to_owned(), right.to_owned());
        Some(Cmd::Interrupt)
    }
}

/// Ctrl-Z: the shell gets the terminal as it was before the chat, not as the chat keeps it between two lines.
struct Suspend {
    before: Termios,
    turn: Turn,
}

impl ConditionalEventHandler for Suspend {
    fn handle(&self, _: &Event, _: RepeatCount, _: bool, _: &EventContext<'_>) -> Option<Cmd> {
        next_turn(&self.turn);
        let stdin = std::io::stdin();
        let ours = tcgetattr(&stdin).ok()?;
        tcsetattr(&stdin, OptionalActions::Now, &self.before).ok()?;
        let _ = kill_current_process_group(Signal::TSTP);
        // Another thread may take the signal, so the stop comes a moment after the call; this one must not go on before.
        std::thread::sleep(STOP);
        tcsetattr(&stdin, OptionalActions::Now, &ours).ok()?;
        Some(Cmd::Repaint)
    }
}

impl Helper for Assist {}
impl Highlighter for Assist {}
impl Validator for Assist {}

/// The editor asks for a hint before it draws a line that has changed, or that a new width of the terminal has moved. It gets
/// none; nothing else tells when a line was begun, and what has to be erased.
impl Hinter for Assist {
    type Hint = String;

    fn hint(&self, line: &str, at: usize, _: &Context<'_>) -> Option<String> {
        if self.is_empty.replace(line.is_empty()) && !line.is_empty() {
            self.questions.begin_line();
        }
        let (turn, columns) = (self.turn.load(Ordering::SeqCst), crate::output::width().unwrap_or(80));
        if let Some(erase) = self.drawn.borrow_mut().before(line, at, columns, turn, self.rewraps) {
            let mut stdout = std::io::stdout();
            // The editor writes next, and notices when the terminal is gone.
            let _ = stdout.write_all(erase.as_bytes()).and_then(|()| stdout.flush());
        }
        None
    }
}

impl Completer for Assist {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        next_turn(&self.turn);
        let typed = line.get(..at).unwrap_or(line);
        let (start, found) = candidates(typed, &self.words, &|dir| entries(dir));
        Ok((start, found.into_iter().map(|word| Pair { display: word.clone(), replacement: word }).collect()))
    }
}

/// Where the word that is completed begins, and what it may become.
fn candidates(typed: &str, words: &Words, files: &dyn Fn(&Path) -> Vec<String>) -> (usize, Vec<String>) {
    let start = typed.rfind(char::is_whitespace).map_or(0, |blank| blank + 1);
    let word = typed.get(start..).unwrap_or_default();
    let beginning_so = |all: &mut dyn Iterator<Item = &str>| -> Vec<String> {
        all.filter(|one| one.starts_with(word)).map(str::to_owned).collect()
    };
    if let Some(path) = word.strip_prefix('@') {
        let dir = path.rsplit_once('/').map_or("", |(dir, _)| dir);
        let at = if dir.is_empty() { String::new() } else { format!("{dir}/") };
        let from = if path.starts_with('/') && dir.is_empty() { "/" } else { dir };
        let names = files(Path::new(if from.is_empty() { "." } else { from }));
        // Hidden ones are offered to who asks for them.
        let asks_hidden = path.rsplit('/').next().is_some_and(|name| name.starts_with('.'));
        let shown = names.into_iter().filter(|name| asks_hidden || !name.starts_with('.'));
        let whole = shown.map(|name| format!("@{at}{name}")).filter(|one| one.starts_with(word));
        return (start, whole.take(FILES_MAX).collect());
    }
    if start == 0 && word.starts_with('/') {
        return (start, beginning_so(&mut slash::TABLE.iter().map(|row| row.word)));
    }
    match typed.split_whitespace().next() {
        Some("/session") => (start, beginning_so(&mut words.sessions.iter().map(String::as_str))),
        Some("/model") => (start, beginning_so(&mut words.models.iter().map(String::as_str))),
        _ => (start, Vec::new()),
    }
}

/// What is in a directory, sorted; directories with a slash.
fn entries(dir: &Path) -> Vec<String> {
    let Ok(found) = std::fs::read_dir(dir) else { return Vec::new() };
    let name = |entry: std::fs::DirEntry| {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        Some(format!("{}{}", entry.file_name().to_str()?, if is_dir { "/" } else { "" }))
    };
    let mut names: Vec<String> = found.filter_map(Result::ok).filter_map(name).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tab_completes_commands_files_sessions_and_models() {
        let words = Words {
            sessions: vec!["coder/default".to_owned(), "coder/plan".to_owned()],
            models: vec!["debug:echo".to_owned()],
        };
        let files = |dir: &Path| match dir.to_str() {
            Some(".") => vec!["src/".to_owned(), "notes.md".to_owned()],
            Some("src") => vec!["main.rs".to_owned()],
            _ => Vec::new(),
        };
        for (typed, start, wanted) in [
            ("/rol", 0, vec!["/rollback"]),
            ("look at @no", 8, vec!["@notes.md"]),
            ("@src/m", 0, vec!["@src/main.rs"]),
            ("/session coder/p", 9, vec!["coder/plan"]),
            ("/model d", 7, vec!["debug:echo"]),
            ("hello /rol", 6, vec![]),
        ] {
            assert_eq!(
                candidates(typed, &words, &files),
                (start, wanted.iter().map(ToString::to_string).collect())
            );
        }
    }
}
