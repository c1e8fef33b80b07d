//! Approvals that are answered where `ctx run` and `ctx send` were typed: a line of the terminal is the answer to the oldest
//! call that waits. Lines are read from the first question on, by a thread that ends with the program.

use std::collections::VecDeque;
use std::io::{BufRead, IsTerminal};

use ctx_api::http::{Approval, ApprovalAnswer};
use ctx_session::Code;
use hyper::Method;
use tokio::sync::mpsc;

use crate::chat::answer::verdict;
use crate::client::Api;
use crate::failure::Failure;
use crate::output;
use crate::root::Root;

/// The calls that wait for an answer from this terminal.
#[derive(Debug, Default)]
pub struct Asked {
    /// Their approvals, each with its session.
    waiting: VecDeque<(String, String)>,
    lines: Option<mpsc::UnboundedReceiver<String>>,
}

/// Whether somebody can read a question here and type an answer.
pub fn can_answer() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

impl Asked {
    /// A call waits.
    pub fn add(&mut self, session_id: &str, approval: &str) {
        self.waiting.push_back((session_id.to_owned(), approval.to_owned()));
        if self.lines.is_none() {
            let (send, lines) = mpsc::unbounded_channel();
            self.lines = Some(lines);
            std::thread::spawn(move || {
                let lines = std::io::stdin().lock().lines().map_while(Result::ok);
                lines.take_while(|line| send.send(line.clone()).is_ok()).for_each(drop);
            });
        }
    }

    /// The next line that is typed while a call waits.
    pub async fn line(&mut self) -> String {
        if let Some(lines) = self.lines.as_mut().filter(|_| !self.waiting.is_empty())
            && let Some(line) = lines.recv().await
        {
            return line;
        }
        std::future::pending().await
    }

    /// Sends the answer. What is none is said, and the call waits on.
    pub async fn answer(&mut self, root: &Root, line: &str) -> Result<(), Failure> {
        let Some(said) = verdict(line) else {
            if !line.trim().is_empty() {
                output::say("answer with y, n, n REASON or a");
            }
            return Ok(());
        };
        let Some((session, approval)) = self.waiting.pop_front() else { return Ok(()) };
        let answer = ApprovalAnswer::from(said);
        let body = serde_json::to_vec(&answer).map_err(|error| Failure::new(Code::Eio, error.to_string()))?;
        let path = format!("/sessions/{session}/approvals/{approval}");
        match Api::new(root).ask::<Approval>(Method::POST, &path, Some(body)).await {
            Ok(_) => Ok(()),
            // Another client was faster, or it waited too long.
            Err(Failure::Said { message, .. }) => {
                output::say(output::plain(&message));
                Ok(())
            }
            Err(other) => Err(other),
        }
    }
}
