//! Both directions between a person's terminal and a holder, until the program ends, the person leaves or either goes.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use ctx_terminal::{End, FromHolder, Hello, Mode, Size, ToHolder, ToHolderStream, VERSION, speak};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::keys::{Act, Keys};
use super::raw::{Raw, size};

/// How long the line with the keys is shown.
const HINT: Duration = Duration::from_secs(3);
/// What is read from the keyboard may wait for the holder.
const TYPED: usize = 16;

/// As what to attach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum As {
    Writer,
    Watcher,
}

/// How an attachment ended.
#[derive(Debug)]
pub enum Left {
    Detached,
    Ended(Box<End>),
    /// The holder is gone without a word.
    Lost,
    /// This process was told to go.
    Signalled,
}

/// Joins this terminal to a holder. The terminal is as it was when this returns.
pub fn attach(stream: StdStream, who: As) -> io::Result<Left> {
    let raw = Raw::take();
    // Who only watches needs no keyboard: what is shown may go to a pipe.
    if let (Err(error), As::Writer) = (&raw, who) {
        return Err(io::Error::new(error.kind(), "this is not a terminal"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let left = runtime.block_on(Attached::run(stream, who, raw.is_ok()));
    // The thread that reads the keyboard ends with the process.
    runtime.shutdown_background();
    drop(raw);
    left
}

struct Attached {
    holder: ToHolderStream,
    who: As,
    keys: Keys,
    /// The line with the keys is on the screen, until then.
    hint: Option<Instant>,
    is_shown: bool,
    is_terminal: bool,
}

impl Attached {
    async fn run(stream: StdStream, who: As, is_terminal: bool) -> io::Result<Left> {
        let mode = if who == As::Writer { Mode::Write } else { Mode::Watch };
        let hello = Hello { version: VERSION, mode, size: size(), scrollback: 0 };
        let (mut from_holder, holder) = speak(stream, hello).await?;
        let mut attached =
            Attached { holder, who, keys: Keys::default(), hint: None, is_shown: false, is_terminal };
        let mut typed = keyboard(is_terminal);
        let mut resized = signal(SignalKind::window_change())?;
        let mut told_to_go = Going::new()?;
        loop {
            let hint = attached.hint;
            tokio::select! {
                said = from_holder.hear() => match said? {
                    Some(said) => if let Some(left) = attached.show(said)? {
                        return Ok(left);
                    },
                    None => return Ok(Left::Lost),
                },
                Some(bytes) = typed.recv() => {
                    if attached.act(&bytes).await? {
                        return Ok(Left::Detached);
                    }
                }
                _ = resized.recv() => {
                    if let Some(size) = size() {
                        attached.tell(&ToHolder::Resize(size)).await?;
                    }
                }
                () = at(hint) => attached.hide_hint().await?,
                () = told_to_go.wait() => return Ok(Left::Signalled),
            }
        }
    }

    async fn tell(&mut self, said: &ToHolder) -> io::Result<()> {
        // A holder that is gone shows when its end is read.
        let _ = self.holder.tell(said).await;
        Ok(())
    }

    /// Shows what the holder says; Some: it was the last.
    fn show(&mut self, said: FromHolder) -> io::Result<Option<Left>> {
        match said {
            FromHolder::Output { bytes, .. } => put(&bytes)?,
            FromHolder::Repaint { bytes, .. } => {
                if !std::mem::replace(&mut self.is_shown, true) {
                    self.make_room()?;
                    put(&bytes)?;
                    self.show_hint()?;
                } else {
                    put(&bytes)?;
                }
            }
            FromHolder::Idle { idle_ms } => {
                self.overlay(&format!("nothing has happened here for {} minutes", idle_ms / 60_000))?;
            }
            FromHolder::End(end) => return Ok(Some(Left::Ended(Box::new(end)))),
            FromHolder::Refused(message) => return Err(io::Error::other(message)),
            // The bell is in the output already.
            FromHolder::Bell
            | FromHolder::Welcome(_)
            | FromHolder::Status(_)
            | FromHolder::Screen(_)
            | FromHolder::Unknown => {}
        }
        Ok(None)
    }

    /// What was on the screen before goes up into the scrollback instead of being painted over.
    fn make_room(&self) -> io::Result<()> {
        let Some(Size { rows, .. }) = size().filter(|_| self.is_terminal) else { return Ok(()) };
        put(format!("\x1b[{rows};1H{}", "\n".repeat(usize::from(rows))).as_bytes())
    }

    fn show_hint(&mut self) -> io::Result<()> {
        self.overlay(match self.who {
            As::Writer => "Ctrl-\\ d detaches, Ctrl-\\ Ctrl-\\ types it, Ctrl-\\ ? shows this",
            As::Watcher => "watching; Ctrl-\\ d or q leaves",
        })
    }

    /// A line over the last one, until a key is typed or a moment has passed.
    fn overlay(&mut self, text: &str) -> io::Result<()> {
        let Some(Size { cols, rows }) = size().filter(|_| self.is_terminal) else { return Ok(()) };
        let text: String = format!(" ctx: {text} ").chars().take(usize::from(cols)).collect();
        self.hint = Some(Instant::now() + HINT);
        put(format!("\x1b7\x1b[?6l\x1b[{rows};1H\x1b[0;7m{text}\x1b[0m\x1b8").as_bytes())
    }

    async fn hide_hint(&mut self) -> io::Result<()> {
        if self.hint.take().is_some() {
            self.tell(&ToHolder::Repaint).await?;
        }
        Ok(())
    }

    /// Does what was typed; true: the person leaves.
    async fn act(&mut self, bytes: &[u8]) -> io::Result<bool> {
        if self.who == As::Watcher && bytes.iter().any(|byte| matches!(byte, b'q' | 0x03)) {
            return Ok(true);
        }
        for act in self.keys.read(bytes) {
            match act {
                Act::Detach => return Ok(true),
                Act::Help => self.show_hint()?,
                Act::Send(bytes) if self.who == As::Writer => {
                    self.hide_hint().await?;
                    self.tell(&ToHolder::Input(bytes)).await?;
                }
                // Answers of the watching terminal are not for the program.
                Act::Send(_) => {}
            }
        }
        Ok(false)
    }
}

fn put(bytes: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(bytes)?;
    stdout.flush()
}

/// Reads the keyboard on a thread: a terminal that is not to wait would not wait for the shell behind us either.
fn keyboard(is_terminal: bool) -> mpsc::Receiver<Vec<u8>> {
    let (typed, reader) = mpsc::channel(TYPED);
    if is_terminal {
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = io::stdin().lock().read(&mut buffer) {
                if typed.blocking_send(buffer.get(..n).unwrap_or_default().to_vec()).is_err() {
                    break;
                }
            }
        });
    }
    reader
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Signals that end this process, after the terminal is given back.
struct Going([Signal; 4]);

impl Going {
    fn new() -> io::Result<Going> {
        let kinds =
            [SignalKind::terminate(), SignalKind::hangup(), SignalKind::interrupt(), SignalKind::quit()];
        let [a, b, c, d] = kinds.map(signal);
        Ok(Going([a?, b?, c?, d?]))
    }

    async fn wait(&mut self) {
        let [a, b, c, d] = &mut self.0;
        tokio::select! { _ = a.recv() => {} _ = b.recv() => {} _ = c.recv() => {} _ = d.recv() => {} }
    }
}
