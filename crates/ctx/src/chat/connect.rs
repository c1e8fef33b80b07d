//! Connects the chat with the session's socket, for the first time and after a break, and shows where it is.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use ctx_api::http::Session;
use ctx_session::{Code, StateName};

use super::Chat;
use super::hands::{Done, Hands};
use super::past::Past;
use super::slash::{self, Act, Line};
use crate::client::{As, LiveFrame, LiveSocket, Place};
use crate::failure::Failure;
use crate::{autostart, output};

/// How long a daemon may be away before we give up on it.
const AWAY_MAX: Duration = Duration::from_secs(60);
const RETRY_FIRST: Duration = Duration::from_millis(200);
const RETRY_MAX: Duration = Duration::from_secs(3);

/// How a connection came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Arrival {
    /// For the first time: with so many messages of the past.
    First { tail: usize },
    /// After a break; whether it was said that the daemon is away.
    Again { was_away: bool },
}

impl Chat<'_> {
    /// Connects, and shows what was said before. A gap is read and no reason to wait.
    pub(super) async fn enter(&mut self, arrival: Arrival) -> Result<LiveSocket, Failure> {
        loop {
            let mut socket = match LiveSocket::connect(self.root, self.id, self.who, &self.place).await {
                // Someone else has the operator's place, or too many had it; whoever talks over the API needs none.
                Err(Failure::Said { code: Code::Ebusy | Code::Eagain, .. }) => {
                    LiveSocket::connect(self.root, self.id, As::Observer, &self.place).await?
                }
                connected => connected?,
            };
            match socket.next().await {
                Some(frame) if frame.kind == "welcome" => {
                    self.welcome(&frame, arrival).await?;
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

    async fn welcome(&mut self, frame: &LiveFrame, arrival: Arrival) -> Result<(), Failure> {
        let (past, payload) = (Past { root: self.root, id: self.id }, &frame.payload);
        let session = past.session().await?;
        self.view.named = crate::sessions::label(&session);
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
            let paused =
                session.checkpoint.map(|id| id.to_string()).filter(|_| session.state == StateName::Paused);
            if paused.is_some() && paused != self.paused {
                self.questions.show();
            }
            self.paused = paused;
        }
        if let Arrival::First { .. } = arrival {
            self.greet(&session)?;
        }
        if is_anew {
            let asked = past.show_waits(&mut self.view, &session).await?;
            match self.who {
                As::Operator => self.asked = asked.into(),
                As::Observer => asked.iter().try_for_each(|one| {
                    self.view.asks(&one.id, &one.tool, one.subject.as_deref(), one.diff.as_deref())
                })?,
            }
        }
        self.show_question()?;
        match self.who {
            _ if !session.queued => {}
            As::Operator => self.wait_for_room(session.limit).await?,
            As::Observer => self.view.notice(&crate::waits::queued(&self.view.named, session.limit))?,
        }
        Ok(())
    }

    /// Where we are, and which keys do what.
    fn greet(&mut self, session: &Session) -> Result<(), Failure> {
        let model = session.model_override.as_ref().unwrap_or(&session.model);
        let title = session.title.as_ref().map(|title| format!(" ({})", output::one_line(title)));
        let keys = match self.who {
            _ if session.state.is_over() => "",
            As::Operator if self.at_editor => "; /help lists commands, Ctrl-D leaves",
            As::Operator => "",
            As::Observer => ", observing; Ctrl-D leaves",
        };
        let (named, title) = (&self.view.named, title.unwrap_or_default());
        let news = self.news.take();
        let state = news.as_deref().unwrap_or(session.state.as_str());
        let line = format!("{named}{title}: {}, {state}{keys}", output::one_line(model));
        if let Some(damage) = session.damage {
            let what = format!("{} records of this session are damaged or lost", damage.lines);
            self.view
                .notice(&format!("{what}; `ctx doctor` names the place, `ctx repair` saves what it can"))?;
        }
        // In a pipe only the conversation is data.
        if self.at_editor || self.who == As::Observer { Ok(self.view.notice(&line)?) } else { Ok(()) }
    }

    /// Takes the view up again, for as long as a daemon may take to come back. None: we left meanwhile. A daemon that was
    /// not stopped by someone is started again.
    pub(super) async fn come_back(
        &mut self,
        hands: &mut Hands,
        was_stopped: bool,
    ) -> Result<Option<LiveSocket>, Failure> {
        let begun = Instant::now();
        let mut was_away = false;
        let mut pause = RETRY_FIRST;
        if was_stopped && self.meanwhile(hands, tokio::time::sleep(pause)).await?.is_break() {
            return Ok(None);
        }
        loop {
            let failure = match self.enter(Arrival::Again { was_away }).await {
                Ok(socket) => return Ok(Some(socket)),
                Err(failure) => failure,
            };
            let is_away = matches!(failure, Failure::Said { code: Code::Ehostdown, .. });
            if !is_away || begun.elapsed() > AWAY_MAX {
                return Err(failure);
            }
            if !was_away {
                self.view.notice(match was_stopped {
                    true => "the daemon was stopped; waiting for it (`ctx serve --detach` starts it)",
                    false => "the daemon does not answer; waiting for it",
                })?;
                was_away = true;
            }
            // One that has just been started and is gone again would be gone again.
            if !was_stopped && self.started.is_none_or(|started| started.elapsed() > AWAY_MAX) {
                match self.start_daemon(hands).await? {
                    ControlFlow::Continue(true) => continue,
                    ControlFlow::Continue(false) => {}
                    ControlFlow::Break(()) => return Ok(None),
                }
            }
            if self.meanwhile(hands, tokio::time::sleep(pause)).await?.is_break() {
                return Ok(None);
            }
            pause = (pause * 2).min(RETRY_MAX);
        }
    }

    /// Starts a daemon, if the configuration allows it; whether one is there now.
    async fn start_daemon(&mut self, hands: &mut Hands) -> Result<ControlFlow<(), bool>, Failure> {
        self.started = Some(Instant::now());
        let root = self.root.clone();
        let starting = tokio::task::spawn_blocking(move || {
            let pid = autostart::ensure(&root)?;
            // A model without a key says so when it is asked.
            let _ = crate::client::hand_over(&root);
            Ok::<_, Failure>(pid)
        });
        let started = match self.meanwhile(hands, starting).await? {
            ControlFlow::Continue(started) => started,
            ControlFlow::Break(()) => return Ok(ControlFlow::Break(())),
        };
        match started.map_err(|error| Failure::new(Code::Eio, error.to_string()))? {
            Ok(pid) => {
                pid.map_or(Ok(()), |pid| self.view.notice(&autostart::started(pid)))?;
                Ok(ControlFlow::Continue(true))
            }
            Err(Failure::Said { code: Code::Ehostdown, .. }) => Ok(ControlFlow::Continue(false)),
            Err(failure) => Err(failure),
        }
    }

    /// Until this is done, what is typed is kept. The lines of a script wait where they are.
    async fn meanwhile<T>(
        &mut self,
        hands: &mut Hands,
        work: impl Future<Output = T>,
    ) -> Result<ControlFlow<(), T>, Failure> {
        tokio::pin!(work);
        loop {
            let line = tokio::select! {
                done = &mut work => return Ok(ControlFlow::Continue(done)),
                done = hands.next(!self.is_script && !self.is_unseen) => match done {
                    Done::HungUp if self.is_unseen => continue,
                    Done::Leave | Done::HungUp | Done::Interrupt => return Ok(ControlFlow::Break(())),
                    Done::NotText => {
                        self.not_text()?;
                        continue;
                    }
                    Done::End => {
                        self.is_ending = true;
                        continue;
                    }
                    Done::Line(line) => line,
                },
            };
            match slash::parse(&line) {
                Line::Command { act: Act::Leave, .. } => return Ok(ControlFlow::Break(())),
                Line::Message(text) if self.is_answer(&text) => self.ask_again_later()?,
                Line::Message(text) if self.paused.is_some() && !text.trim().is_empty() => {
                    let why = "the daemon is away; type it again (Up brings it back) when it is back";
                    self.view.notice(&format!("the answer was not sent: {why}"))?;
                }
                Line::Message(text) if !text.trim().is_empty() && self.who != As::Observer => {
                    self.keep(text)?;
                    self.view.notice("the message is kept and sent when the daemon is back")?;
                }
                Line::Message(_) => {}
                Line::Command { .. } | Line::Wrong(_) => {
                    self.view.notice("commands need the daemon, which does not answer")?;
                }
            }
            self.prompt(hands);
        }
    }
}

/// Whether frames were missed that cannot be had any more: what they told is read.
pub(super) fn is_gap(frame: &LiveFrame) -> bool {
    frame.kind == "closing"
        && frame.payload.get("code").and_then(|code| code.as_str()) == Some("resume_failed")
}
