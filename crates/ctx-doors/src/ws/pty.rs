//! The `pty` channel of a session's socket: what one client sees of the session's terminals, and what it types.
//!
//! A task per terminal speaks with its holder. A client that does not read makes the task wait and no one else: the holder
//! drops what it does not take and paints a fresh screen later.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ctx_api::ws::{Hello, PtyEncoding, PtyFields};
use ctx_engine::{Caller, Engine};
use ctx_session::{Code, Refusal, SessionId, TerminalId, Ulid};
use ctx_terminal::{End, FromHolder, Mode, Size, State, Terminal, Terminals, ToHolder, VERSION, speak};
use serde_json::{Value, json};
use tokio::sync::{broadcast, mpsc};

use super::rate::{Allowed, Rate};
use super::talk::{Left, Out};
use crate::http::{shown_terminal, size_of};

/// Pieces of output that wait to be sent to the client, and the size of one.
const PIECES: usize = 16;
const PIECE_BYTES: usize = 64 * 1024;
/// What a client typed that its holder has not taken.
const TYPED: usize = 256;
/// The bytes before the data of a binary frame: its kind, the terminal's id, the number.
const BINARY_HEAD: usize = 25;
const STDOUT: u8 = 1;
const STDIN: u8 = 2;

/// Input in a binary frame.
pub(super) fn binary_input(frame: &[u8]) -> Result<(Ulid, Vec<u8>), Refusal> {
    let head = frame.first_chunk::<BINARY_HEAD>().filter(|head| head.first() == Some(&STDIN));
    let bad =
        || Refusal::invalid("frame", "a binary frame is stdin: 2, the terminal's id, a number, the data");
    let [_, id @ ..] = head.ok_or_else(bad)?;
    let id = id.first_chunk::<16>().ok_or_else(bad)?;
    Ok((Ulid(u128::from_be_bytes(*id)), frame.get(BINARY_HEAD..).unwrap_or_default().to_vec()))
}

/// What a holder has to say to the client.
enum HolderMessage {
    /// It is attached, with so many lines above the screen.
    Attached(u64),
    Output(Vec<u8>),
    Throttled,
    Idle(u64),
    Resized(Size),
    Bell,
    /// None: the holder went without a word.
    Closed(Option<Box<End>>),
}

/// Something happened on the channel.
pub(super) enum PtyNews {
    HolderMessage(TerminalId, HolderNews),
    /// Terminals were opened or closed.
    Changed,
}

/// Hides the message from the socket's loop, which only passes it on.
pub(super) struct HolderNews(HolderMessage);

pub(super) struct Ptys {
    engine: Engine,
    terminals: Arc<Terminals>,
    session: SessionId,
    owner: u32,
    caller: Caller,
    /// False for one who only looks on.
    may_type: bool,
    encoding: PtyEncoding,
    scrollback: usize,
    seq: u64,
    /// The terminals that are shown, and whether they were there when the client came.
    shown: HashMap<TerminalId, (mpsc::Sender<ToHolder>, bool)>,
    messages_in: mpsc::Sender<(TerminalId, HolderMessage)>,
    messages: mpsc::Receiver<(TerminalId, HolderMessage)>,
    news: broadcast::Receiver<SessionId>,
}

impl Ptys {
    pub fn new(
        (engine, terminals): (&Engine, Arc<Terminals>),
        (session, caller): (SessionId, Caller),
        is_attached: bool,
        hello: &Hello,
    ) -> Ptys {
        let (messages_in, messages) = mpsc::channel(PIECES);
        // First the news, then a look, so that nothing is missed.
        let news = engine.terminal_news();
        let owner = engine.find(caller, session).map_or(caller.uid, |summary| summary.meta.owner);
        Ptys {
            engine: engine.clone(),
            terminals,
            session,
            owner,
            caller,
            // A terminal has its owner's rights: members of a space look on.
            may_type: is_attached && owner == caller.uid,
            encoding: hello.pty_encoding,
            scrollback: hello.scrollback.unwrap_or(usize::MAX),
            seq: 0,
            shown: HashMap::new(),
            messages_in,
            messages,
            news,
        }
    }

    /// The session's open terminals.
    pub async fn open(&self) -> Vec<Terminal> {
        let (terminals, owner, session) = (self.terminals.clone(), self.owner, self.session);
        let listed = tokio::task::spawn_blocking(move || terminals.of_session(owner, session)).await;
        let listed = listed.ok().and_then(Result::ok).unwrap_or_default();
        listed.into_iter().filter(|one| one.state != State::Closed).collect()
    }

    /// As the welcome has them.
    pub fn in_welcome(open: &[Terminal]) -> Vec<Value> {
        open.iter().filter_map(|one| serde_json::to_value(shown_terminal(one)).ok()).collect()
    }

    /// Shows these; those that the client does not know yet are announced, unless it has them from its welcome.
    pub async fn show(&mut self, out: &mut Out, open: Vec<Terminal>, is_first: bool) -> Result<(), Left> {
        for one in open {
            let id = TerminalId(one.about.id);
            if self.shown.contains_key(&id) {
                continue;
            }
            let (terminals, owner, terminal) = (self.terminals.clone(), self.owner, one.clone());
            let connected = tokio::task::spawn_blocking(move || terminals.connect(owner, &terminal)).await;
            // One that has ended meanwhile is not shown.
            let Ok(Ok(stream)) = connected else { continue };
            if !is_first {
                self.frame(out, "opened", id, json!({ "terminal": shown_terminal(&one) })).await?;
            }
            let mode = if self.may_type { Mode::Join } else { Mode::Watch };
            let limits = self.engine.limits();
            let scrollback = self.scrollback.min(limits.terminal_scrollback_lines);
            let hello = ctx_terminal::Hello { version: VERSION, mode, size: None, scrollback };
            let (typed, typing) = mpsc::channel(TYPED);
            let rate = Rate::new(limits.terminal_client_bytes, Instant::now());
            tokio::spawn(carry(stream, hello, rate, typing, id, self.messages_in.clone()));
            self.shown.insert(id, (typed, is_first));
        }
        Ok(())
    }

    /// The next thing that happens. Cancelling it loses nothing.
    pub async fn next(&mut self) -> PtyNews {
        loop {
            tokio::select! {
                Some((id, message)) = self.messages.recv() => return PtyNews::HolderMessage(id, HolderNews(message)),
                changed = self.news.recv() => match changed {
                    Ok(session) if session != self.session => {}
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => return PtyNews::Changed,
                    Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
                },
            }
        }
    }

    pub async fn on_news(&mut self, out: &mut Out, news: PtyNews) -> Result<(), Left> {
        match news {
            PtyNews::Changed => {
                let open = self.open().await;
                self.show(out, open, false).await
            }
            PtyNews::HolderMessage(id, HolderNews(message)) => self.pass_on(out, id, message).await,
        }
    }

    /// Sends what a holder said. A reattach is recorded only of a terminal that was open when the client came: for later ones it is the first.
    async fn pass_on(&mut self, out: &mut Out, id: TerminalId, message: HolderMessage) -> Result<(), Left> {
        match message {
            HolderMessage::Attached(lines) => {
                let was_there = self.shown.get(&id).is_some_and(|(_, was_there)| *was_there);
                if was_there && self.may_type {
                    let (engine, caller, session) = (self.engine.clone(), self.caller, self.session);
                    tokio::spawn(async move {
                        let noted = engine.terminal_reattached(caller, session, id, lines).await;
                        if let Err(refusal) = noted {
                            tracing::debug!(%session, %id, %refusal, "a reattach was not written");
                        }
                    });
                }
                Ok(())
            }
            HolderMessage::Output(bytes) if self.encoding == PtyEncoding::Binary => {
                self.seq += 1;
                let mut frame = Vec::with_capacity(BINARY_HEAD + bytes.len());
                frame.push(STDOUT);
                frame.extend_from_slice(&id.0.0.to_be_bytes());
                frame.extend_from_slice(&self.seq.to_be_bytes());
                frame.extend_from_slice(&bytes);
                out.binary(frame).await
            }
            HolderMessage::Output(bytes) => {
                self.frame(out, "stdout", id, json!({ "data": STANDARD.encode(&bytes) })).await
            }
            HolderMessage::Throttled => {
                let most = self.engine.limits().terminal_client_bytes;
                let message = format!("more than {most} bytes a second; a fresh screen follows");
                self.frame(out, "output_throttled", id, json!({ "message": message })).await
            }
            HolderMessage::Idle(idle_ms) => self.frame(out, "idle", id, json!({ "idle_ms": idle_ms })).await,
            HolderMessage::Resized(Size { cols, rows }) => {
                self.frame(out, "resized", id, json!({ "cols": cols, "rows": rows })).await
            }
            HolderMessage::Bell => self.frame(out, "bell", id, json!({})).await,
            HolderMessage::Closed(end) => {
                self.shown.remove(&id);
                let fields = match end {
                    Some(end) => {
                        json!({ "reason": end.reason, "exit_code": end.exit_code, "lines": end.lines })
                    }
                    None => json!({ "reason": "holder_lost", "exit_code": null, "lines": null }),
                };
                self.frame(out, "closed", id, fields).await
            }
        }
    }

    /// A frame whose fields are flat, as this channel has them.
    async fn frame(
        &mut self,
        out: &mut Out,
        kind: &str,
        id: TerminalId,
        mut fields: Value,
    ) -> Result<(), Left> {
        self.seq += 1;
        if let Some(fields) = fields.as_object_mut() {
            let head = json!({ "channel": "pty", "type": kind, "seq": self.seq, "pty_id": id });
            fields.extend(head.as_object().cloned().unwrap_or_default());
        }
        out.send([fields.to_string().into()]).await
    }

    /// Does what a frame of the client asks for.
    pub fn on_frame(&self, kind: &str, fields: &PtyFields) -> Result<(), Refusal> {
        let id = fields.pty_id.as_deref().and_then(|id| id.parse::<Ulid>().ok());
        let id = id.ok_or_else(|| Refusal::invalid("pty_id", "name a terminal"))?;
        match kind {
            "stdin" => {
                let data = fields.data.as_deref().and_then(|data| STANDARD.decode(data).ok());
                let bytes = data.ok_or_else(|| Refusal::invalid("data", "what is typed comes in base64"))?;
                self.type_into(id, ToHolder::Input(bytes))
            }
            "resize" => match (fields.cols, fields.rows) {
                (Some(_), Some(_)) => {
                    let size = size_of(fields.cols, fields.rows)?;
                    self.type_into(id, ToHolder::Resize(size))
                }
                _ => Err(Refusal::invalid("cols", "a size has columns and rows")),
            },
            other => Err(super::talk::cannot_send("pty", other)),
        }
    }

    pub fn on_binary(&self, id: Ulid, bytes: Vec<u8>) -> Result<(), Refusal> {
        self.type_into(id, ToHolder::Input(bytes))
    }

    /// Hands input to a terminal's task. It never waits for room, because the frames of the session come through the same loop.
    fn type_into(&self, id: Ulid, act: ToHolder) -> Result<(), Refusal> {
        if !self.may_type {
            return Err(Refusal::new(Code::Eacces, "an observer cannot type"));
        }
        let shown = self.shown.get(&TerminalId(id));
        let (typed, _) = shown.ok_or_else(|| Refusal::new(Code::Enoent, format!("no terminal {id}")))?;
        match typed.try_send(act) {
            // One that has just ended says so itself.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => Ok(()),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(Refusal::new(Code::Eagain, "the program does not take what is typed; type it again"))
            }
        }
    }
}

/// Both directions between a client and a holder, until either goes.
async fn carry(
    stream: std::os::unix::net::UnixStream,
    hello: ctx_terminal::Hello,
    mut rate: Rate,
    mut typing: mpsc::Receiver<ToHolder>,
    id: TerminalId,
    messages_in: mpsc::Sender<(TerminalId, HolderMessage)>,
) {
    let Ok((mut holder, mut to)) = speak(stream, hello).await else {
        let _ = messages_in.send((id, HolderMessage::Closed(None))).await;
        return;
    };
    let mut is_asked = false;
    loop {
        let due = rate.due().filter(|_| !is_asked);
        tokio::select! {
            said = holder.hear() => {
                let is_end = matches!(said, Ok(None | Some(FromHolder::End(_))) | Err(_));
                for message in heard(said.ok().flatten(), hello.scrollback, &mut rate, &mut is_asked) {
                    if messages_in.send((id, message)).await.is_err() {
                        return;
                    }
                }
                if is_end {
                    return;
                }
            }
            typed = typing.recv() => match typed {
                // A holder that is gone shows when its end is read.
                Some(act) => drop(to.tell(&act).await),
                None => return,
            },
            () = at(due) => {
                is_asked = true;
                let _ = to.tell(&ToHolder::Repaint).await;
            }
        }
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment.into()).await,
        None => std::future::pending().await,
    }
}

/// The messages for the client that follow from what its holder said.
fn heard(
    said: Option<FromHolder>,
    scrollback: usize,
    rate: &mut Rate,
    is_asked: &mut bool,
) -> Vec<HolderMessage> {
    let pieces =
        |bytes: &[u8]| bytes.chunks(PIECE_BYTES).map(|piece| HolderMessage::Output(piece.to_vec())).collect();
    match said {
        Some(FromHolder::Welcome(status)) => {
            vec![HolderMessage::Attached(status.scrollback.min(scrollback) as u64)]
        }
        Some(FromHolder::Output { bytes, .. }) => match rate.allow(bytes.len() as u64, Instant::now()) {
            Allowed::Send => pieces(&bytes),
            Allowed::Drop { begins: true } => vec![HolderMessage::Throttled],
            Allowed::Drop { begins: false } => Vec::new(),
        },
        Some(FromHolder::Repaint { bytes, .. }) => {
            *is_asked = false;
            rate.caught_up(Instant::now());
            pieces(&bytes)
        }
        Some(FromHolder::Idle { idle_ms }) => vec![HolderMessage::Idle(idle_ms)],
        Some(FromHolder::Resized(size)) => vec![HolderMessage::Resized(size)],
        Some(FromHolder::Bell) => vec![HolderMessage::Bell],
        Some(FromHolder::End(end)) => vec![HolderMessage::Closed(Some(Box::new(end)))],
        None | Some(FromHolder::Refused(_)) => vec![HolderMessage::Closed(None)],
        Some(FromHolder::Status(_) | FromHolder::Screen(_) | FromHolder::Unknown) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_frame_is_read_and_another_refused() {
        let id: Ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
        let frame = [&[STDIN][..], &id.0.to_be_bytes(), &7_u64.to_be_bytes(), b"ls\r"].concat();
        assert_eq!(binary_input(&frame), Ok((id, b"ls\r".to_vec())));
        assert!(binary_input(&frame[..20]).is_err());
        assert!(binary_input(&[&[STDOUT][..], &frame[1..]].concat()).is_err());
    }
}
