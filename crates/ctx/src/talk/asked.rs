//! Questions that are answered where `ctx run` and `ctx send` were typed: calls that wait for an approval, and the pause of a
//! model that asks. A line of the terminal answers the question that was shown last. They are shown one at a time, and
//! what was typed before a question is no answer to it.

use std::collections::VecDeque;
use std::io::{BufRead, IsTerminal};

use ctx_api::http::{Approval, ApprovalAnswer, Resume, WentOn};
use ctx_api::socket::Frame;
use ctx_session::Code;
use ctx_session::record::COMPACTION_PENDING;
use hyper::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use crate::chat::answer::verdict;
use crate::client::Api;
use crate::failure::Failure;
use crate::output;
use crate::root::Root;

/// A frame that asks, and the session that it is of.
#[derive(Debug)]
struct Question {
    session_id: String,
    frame: Frame,
    is_shown: bool,
}

/// The questions that wait for an answer from this terminal, oldest first.
#[derive(Debug, Default)]
pub struct Asked {
    waiting: VecDeque<Question>,
    lines: Option<mpsc::UnboundedReceiver<String>>,
}

/// Whether somebody can read a question here and type an answer.
pub fn can_answer() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Whether a frame asks something that a typed line answers.
pub fn asks(frame: &Frame) -> bool {
    match frame {
        Frame::Approval { .. } => true,
        Frame::Paused { reason, .. } => reason.as_deref().is_some_and(|reason| reason != COMPACTION_PENDING),
        _ => false,
    }
}

impl Asked {
    /// Takes a frame that asks, and takes back the questions that a frame answers: another client was faster.
    pub fn hear(&mut self, session_id: Option<&str>, frame: &Frame) {
        match (frame, session_id) {
            (frame, Some(session_id)) if asks(frame) => {
                self.drop_pauses();
                let session_id = session_id.to_owned();
                self.waiting.push_back(Question { session_id, frame: frame.clone(), is_shown: false });
            }
            (Frame::ToolResult { call: ended, .. }, _) => self
                .waiting
                .retain(|question| !matches!(&question.frame, Frame::Approval { call, .. } if call == ended)),
            // The run goes on.
            (Frame::Start { .. } | Frame::ToolCall { .. } | Frame::Delta { .. }, _) => self.drop_pauses(),
            _ => {}
        }
    }

    fn drop_pauses(&mut self) {
        self.waiting.retain(|question| !matches!(question.frame, Frame::Paused { .. }));
    }

    /// The oldest question, to be shown now, if it was not shown yet.
    pub fn take_unshown(&mut self) -> Option<Frame> {
        let question = self.waiting.front_mut().filter(|question| !question.is_shown)?;
        question.is_shown = true;
        let frame = question.frame.clone();
        self.forget_lines();
        Some(frame)
    }

    /// Lines are read from the first question on, by a thread that ends with the program.
    fn forget_lines(&mut self) {
        output::forget_typed();
        match &mut self.lines {
            Some(lines) => while lines.try_recv().is_ok() {},
            None => {
                let (send, lines) = mpsc::unbounded_channel();
                self.lines = Some(lines);
                std::thread::spawn(move || {
                    let lines = std::io::stdin().lock().lines().map_while(Result::ok);
                    lines.take_while(|line| send.send(line.clone()).is_ok()).for_each(drop);
                });
            }
        }
    }

    /// The next line that is typed while a question waits.
    pub async fn line(&mut self) -> String {
        if let Some(lines) = self.lines.as_mut().filter(|_| !self.waiting.is_empty())
            && let Some(line) = lines.recv().await
        {
            return line;
        }
        std::future::pending().await
    }

    /// Sends the answer. What is none is said, and the question waits on.
    pub async fn answer(&mut self, root: &Root, line: &str) -> Result<(), Failure> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let Some(Question { session_id, frame, .. }) = self.waiting.front() else { return Ok(()) };
        let below = format!("/sessions/{session_id}");
        let sent = match frame {
            Frame::Approval { approval, .. } => {
                let Some(said) = verdict(line) else {
                    output::say("answer with y, n, n REASON or a");
                    return Ok(());
                };
                let path = format!("{below}/approvals/{approval}");
                post::<Approval>(root, &path, &ApprovalAnswer::from(said)).await
            }
            Frame::Paused { checkpoint, .. } => {
                let path = format!("{below}/checkpoints/{checkpoint}/resume");
                let resume = Resume { resolve: false, message: Some(line.to_owned()) };
                post::<WentOn>(root, &path, &resume).await
            }
            _ => Ok(()),
        };
        self.waiting.pop_front();
        match sent {
            // Another client was faster, or it waited too long.
            Err(Failure::Said { message, .. }) => {
                output::say(output::plain(&message));
                Ok(())
            }
            other => other,
        }
    }
}

async fn post<T: DeserializeOwned>(root: &Root, path: &str, body: &impl Serialize) -> Result<(), Failure> {
    let body = serde_json::to_vec(body).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
    Api::new(root).ask::<T>(Method::POST, path, Some(body)).await.map(drop)
}
