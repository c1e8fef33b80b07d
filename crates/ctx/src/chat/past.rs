//! What happened before a connection, or between two: read over HTTP, and shown as if it had been seen.
//!
//! Frames that came meanwhile wait at the socket; what they repeat is known to the view by its id.

use std::collections::VecDeque;

use ctx_api::http::{Approval, Checkpoint, List, Message, Run, Session};
use ctx_session::SessionId;
use hyper::Method;
use serde::de::DeserializeOwned;

use super::answer::{Asked, Stage};
use super::view::View;
use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;

/// As much as one page has.
const PAGE: usize = 1_000;

/// The session, as it is read.
pub struct Past<'a> {
    pub root: &'a Root,
    pub id: SessionId,
}

impl Past<'_> {
    async fn get<T: DeserializeOwned>(&self, below: &str) -> Result<T, Failure> {
        Api::new(self.root).ask(Method::GET, &format!("/sessions/{}{below}", self.id), None).await
    }

    pub async fn session(&self) -> Result<Session, Failure> {
        self.get("").await
    }

    /// The last messages that count, for who comes for the first time.
    pub async fn show_tail<W: std::io::Write>(&self, view: &mut View<W>, tail: usize) -> Result<(), Failure> {
        let page: List<Message> =
            self.get(&format!("/messages?superseded=false&limit={}", tail.max(1))).await?;
        let mut messages: VecDeque<Message> = page.items.into();
        let Some(newest) = messages.back() else { return Ok(()) };
        // What stands for lost records belongs to no run.
        let of_run = |message: &&Message| message.metadata.damage.is_none();
        if tail == 0 && of_run(&newest) {
            let run: Run = self.get(&format!("/runs/{}", newest.run_id)).await?;
            view.passed(newest, &run);
            return Ok(());
        }
        let newest = newest.id.to_string();
        let first_run = messages.iter().find(of_run).map(|first| first.run_id.to_string());
        let mut runs = self.runs_from(first_run.as_deref()).await?;
        // What was said while the runs were read comes before their ends.
        messages.extend(self.messages_since(Some(&newest), "superseded=false&").await?);
        show(view, messages, &mut runs)
    }

    /// Everything since the last that was shown, each once.
    pub async fn show_missed<W: std::io::Write>(&self, view: &mut View<W>) -> Result<(), Failure> {
        let mut runs = self.runs_from(view.run.as_deref()).await?;
        let messages = self.messages_since(view.last.as_deref(), "").await?;
        show(view, messages, &mut runs)
    }

    /// Every message after this one, unless `only` some are wanted: who watched has seen also those that do not count any
    /// more. None: every message.
    async fn messages_since(&self, last: Option<&str>, only: &str) -> Result<VecDeque<Message>, Failure> {
        let mut messages = VecDeque::new();
        let mut place = last.map_or(String::new(), |last| format!("&since={last}"));
        loop {
            let page: List<Message> = self.get(&format!("/messages?{only}limit={PAGE}{place}")).await?;
            match last {
                Some(_) => messages.extend(page.items),
                // Without a place to begin at, pages go from the newest back.
                None => page.items.into_iter().rev().for_each(|message| messages.push_front(message)),
            }
            match page.next {
                Some(next) => place = format!("&cursor={next}"),
                None => return Ok(messages),
            }
        }
    }

    /// This run and those after it, oldest first; None: every run.
    async fn runs_from(&self, first: Option<&str>) -> Result<VecDeque<Run>, Failure> {
        let mut runs = VecDeque::new();
        let mut place = String::new();
        if let Some(first) = first {
            runs.push_back(self.get(&format!("/runs/{first}")).await?);
            place = format!("&cursor={first}");
        }
        loop {
            let page: List<Run> = self.get(&format!("/runs?limit={PAGE}{place}")).await?;
            runs.extend(page.items);
            match page.next {
                Some(next) => place = format!("&cursor={next}"),
                None => return Ok(runs),
            }
        }
    }

    /// What it waits for, and how that is answered; the calls that wait.
    pub async fn show_waits<W: std::io::Write>(
        &self,
        view: &mut View<W>,
        session: &Session,
    ) -> Result<Vec<Asked>, Failure> {
        if let Some(id) = session.checkpoint {
            let checkpoint: Checkpoint = self.get(&format!("/checkpoints/{id}")).await?;
            view.paused(&id.to_string(), checkpoint.reason.as_deref())?;
        }
        let mut waiting = Vec::new();
        if session.pending_approvals > 0 {
            let asked: List<Approval> = self.get("/approvals").await?;
            for one in asked.items.iter().filter(|one| one.state == "pending") {
                waiting.push(Asked {
                    id: one.id.to_string(),
                    tool: one.tool.clone(),
                    subject: one.subject.clone(),
                    diff: one.diff.clone(),
                    stage: Stage::New,
                });
            }
        }
        Ok(waiting)
    }
}

/// Messages in order, and after the last of each run how it ended.
fn show<W: std::io::Write>(
    view: &mut View<W>,
    messages: VecDeque<Message>,
    runs: &mut VecDeque<Run>,
) -> Result<(), Failure> {
    for message in messages {
        // Those before the message's own are over. One that is not in the list began after the list was read.
        while runs.front().is_some_and(|run| run.id != message.run_id)
            && runs.iter().any(|run| run.id == message.run_id)
        {
            if let Some(run) = runs.pop_front() {
                view.ended(&run)?;
            }
        }
        view.message(&message)?;
    }
    for run in runs.drain(..) {
        view.ended(&run)?;
    }
    Ok(())
}
