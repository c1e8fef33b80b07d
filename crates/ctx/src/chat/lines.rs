//! What becomes of a line: a message that is sent now or later, an answer, or a command.

use std::ops::ControlFlow;

use ctx_api::http::{NewMessage, Posted};
use ctx_session::Code;

use super::answer::{self, Stage, Verdict};
use super::past::Past;
use super::slash::{self, Act, Line};
use super::{Chat, Over, open};
use crate::client::As;
use crate::failure::Failure;
use crate::talk::client_id;
use crate::{images, output};

/// Messages that wait: for the end of a run, or for a daemon that is away.
const WAITING_MAX: usize = 16;

/// A message in a line about it.
pub(super) fn shown(text: &str) -> String {
    crate::words::shorten(&output::one_line(text), 60)
}

impl Chat<'_> {
    pub(super) async fn on_line(&mut self, line: String) -> Result<ControlFlow<Over>, Failure> {
        if line.trim().is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        self.warned = None;
        let text = match slash::parse(&line) {
            Line::Command { act: Act::Leave, .. } => return Ok(ControlFlow::Break(Over::Left)),
            _ if self.who == As::Observer => {
                self.view.notice("an observer cannot send messages; Ctrl-D leaves")?;
                return Ok(ControlFlow::Continue(()));
            }
            Line::Command { act, rest } => return self.command(act, rest).await,
            Line::Wrong(why) if self.is_script => {
                // In a pipe only the conversation is data.
                self.has_refused = true;
                output::say(&why);
                return Ok(ControlFlow::Continue(()));
            }
            Line::Wrong(why) => {
                self.view.notice(&why)?;
                return Ok(ControlFlow::Continue(()));
            }
            Line::Message(text) => text,
        };
        let was_asked = std::mem::take(&mut self.was_asked) || self.stage() == Some(Stage::Answered);
        let verdict = answer::verdict(&text);
        let is_for_none =
            self.is_of_earlier() && (self.is_asking() && verdict.is_some() || self.paused.is_some());
        if is_for_none {
            let why = if was_asked {
                "the call was answered already"
            } else {
                "it was begun before this was asked"
            };
            self.view.notice(&format!(
                "not sent: {why}; type it again (Up brings it back) to answer what is asked now"
            ))?;
        } else if let (true, Some(verdict)) = (self.is_asking(), &verdict) {
            self.answer(verdict.clone()).await?;
        } else if was_asked && verdict.is_some() {
            let why = "the call was answered already; type it again to send it as a message";
            self.view.notice(&format!("not sent: {why}"))?;
        } else if self.is_asking() && self.is_script {
            let reason = Some("the next line of the input is no answer".to_owned());
            self.answer(Verdict::Deny { reason }).await?;
            self.keep(text)?;
        } else if let Some(checkpoint) = self.paused.clone() {
            self.go_on_with(&checkpoint, text).await?;
        } else {
            self.keep(text)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// A message that is sent now, or when the session can take it.
    pub(super) fn keep(&mut self, text: String) -> Result<(), Failure> {
        if self.waiting.len() >= WAITING_MAX {
            return Ok(self.view.notice("not sent: too many messages are waiting")?);
        }
        let named = match images::read(&images::named_in(&text)) {
            Ok(named) => named,
            Err(Failure::Said { message, .. }) => {
                return Ok(self.view.notice(&format!("not sent: {}", output::one_line(&message)))?);
            }
            Err(failure) => return Err(failure),
        };
        let mut parts = std::mem::take(&mut self.parts);
        parts.extend(named);
        let client_id = client_id();
        if self.run.is_some() && self.at_editor {
            // It is shown again in its place in the conversation, when it is sent.
            let shown = shown(&text);
            self.view.notice(&format!("waiting for the end of the run: {shown}; /drop takes it back"))?;
        } else {
            self.view.typed(&client_id);
        }
        let (approvals, allow) = (self.consent.given(), self.consent.allow.clone());
        let client_id = Some(client_id);
        self.waiting.push_back(NewMessage {
            text,
            parts,
            client_id,
            model_override: None,
            approvals,
            allow,
            net: self.consent.net,
        });
        Ok(())
    }

    async fn command(&mut self, act: Act, rest: String) -> Result<ControlFlow<Over>, Failure> {
        match act {
            Act::Leave => return Ok(ControlFlow::Break(Over::Left)),
            Act::Help => slash::help(output::width()).iter().try_for_each(|line| self.view.line(line))?,
            Act::Cancel if self.run.is_none() => self.view.notice("nothing is running")?,
            Act::Cancel => self.cancel().await?,
            Act::Model => match self.set_model(&rest).await {
                Ok(()) => self.view.notice(&format!("{rest} from the next message on"))?,
                Err(Failure::Said { message, .. }) => self.view.notice(&output::plain(&message))?,
                Err(other) => return Err(other),
            },
            Act::Drop => match self.waiting.pop_back() {
                Some(message) => {
                    self.view.notice(&format!("not sent: {}", shown(&message.text)))?;
                }
                None => self.view.notice("no message is waiting")?,
            },
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
                    Ok(Ok(opened)) => return Ok(ControlFlow::Break(Over::Switch(opened))),
                    Ok(Err(Failure::Said { message, hint, .. })) => {
                        let hint = hint.map(|hint| format!("; {hint}")).unwrap_or_default();
                        self.view.notice(&format!("{message}{hint}"))?;
                    }
                    Ok(Err(other)) => return Err(other),
                    Err(error) => return Err(Failure::new(Code::Eio, error.to_string())),
                }
            }
            Act::Run(template) => self.run_ctx(template, &rest, true).await?,
            Act::Told(template) => self.run_ctx(template, &rest, false).await?,
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Runs a command of this program on the session and shows what it prints; where the session's own frames tell of
    /// what it does, only if it failed.
    async fn run_ctx(&mut self, template: &[&str], rest: &str, is_shown: bool) -> Result<(), Failure> {
        let program =
            std::env::current_exe().map_err(|error| Failure::io("the path of this program", error))?;
        let words = slash::arguments(template, &self.id.to_string(), rest);
        let ran = tokio::process::Command::new(program)
            .args(words)
            .env("CTX_ROOT", &self.root.path)
            // It writes into a pipe, and what it writes is shown here.
            .env(output::SHOWN_WIDTH, output::width().unwrap_or_default().to_string())
            .stdin(std::process::Stdio::null())
            .output()
            .await
            .map_err(|error| Failure::io("ctx", error))?;
        if ran.status.success() && !is_shown {
            return Ok(());
        }
        for text in [ran.stdout, ran.stderr] {
            String::from_utf8_lossy(&text).lines().try_for_each(|line| self.view.line(line))?;
        }
        Ok(())
    }

    /// Sends the first message that waits, if the session can take one. False: the daemon broke off.
    pub(super) async fn send_waiting(&mut self) -> Result<bool, Failure> {
        if self.run.is_some() {
            return Ok(true);
        }
        let Some(message) = self.waiting.front() else { return Ok(true) };
        match self.tell::<Posted>("/messages", message).await {
            Ok(posted) => {
                self.waiting.pop_front();
                // It had arrived, and its answer was lost: of a run that is over no frame tells any more.
                match posted.state.as_str() {
                    "failed" => self.has_failed = true,
                    "done" | "cancelled" => {}
                    _ => self.run = Some(posted.run_id.to_string()),
                }
            }
            Err(Failure::Said { code: Code::Ehostdown, .. }) => return Ok(false),
            // Someone else was faster; the message waits for the end of that run.
            Err(Failure::Said { code: Code::Ebusy, .. }) if self.is_busy().await? => {}
            Err(Failure::Said { code: Code::Eshutdown, message, .. }) if self.is_script => {
                let why = message.split(';').next().unwrap_or_default();
                return Err(open::over(self.id, &output::plain(why)));
            }
            Err(Failure::Said { code, message, .. }) => {
                self.waiting.pop_front();
                self.has_refused = true;
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
