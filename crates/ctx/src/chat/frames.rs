//! What the daemon tells of the session, and what that means for who takes part.

use std::ops::ControlFlow;

use ctx_session::Code;
use ctx_session::record::LimitHit;

use super::answer::{Asked, Stage};
use super::connect::is_gap;
use super::{Chat, Over};
use crate::client::{As, LiveFrame, Place};
use crate::failure::Failure;
use crate::room::{self, Room};
use crate::{output, waits};

impl Chat<'_> {
    pub(super) async fn take(&mut self, frame: &LiveFrame) -> Result<ControlFlow<Over>, Failure> {
        match frame.channel.as_str() {
            "output" => self.place.output = frame.seq,
            "events" => self.place.events = frame.seq,
            _ => return self.take_control(frame),
        }
        let said = |name: &str| frame.payload.get(name).and_then(|text| text.as_str());
        match frame.kind.as_str() {
            "run.created" | "run.context" => {
                self.run = said("run_id").map(str::to_owned);
                self.warned = None;
                if frame.kind == "run.context" {
                    self.room = None;
                }
            }
            "session.queued" if self.who != As::Observer => {
                let limit = frame.payload.get("limit").cloned();
                let limit = limit.and_then(|limit| serde_json::from_value(limit).ok());
                self.wait_for_room(limit).await?;
                return Ok(ControlFlow::Continue(()));
            }
            // The end of another run than ours was seen already.
            "run.completed" | "run.cancelled" if self.run.as_deref() == said("run_id") => {
                (self.run, self.paused, self.room) = (None, None, None);
                self.has_failed = said("state") == Some("failed");
            }
            "session.queued_discarded" => (self.run, self.room) = (None, None),
            "checkpoint.created" => {
                self.paused = said("checkpoint_id").map(str::to_owned);
                self.questions.show();
            }
            "checkpoint.resumed" | "checkpoint.rolled_back" => self.paused = None,
            "approval.requested" if self.who != As::Observer => {
                let text = |name: &str| said(name).unwrap_or_default().to_owned();
                let part = |name: &str| said(name).map(str::to_owned);
                self.asked.push_back(Asked {
                    id: text("approval_id"),
                    tool: text("tool"),
                    subject: part("subject"),
                    diff: part("diff"),
                    stage: Stage::New,
                });
                self.show_question()?;
                return Ok(ControlFlow::Continue(()));
            }
            "approval.settled" => {
                let is_it = |one: &Asked| Some(one.id.as_str()) == said("approval_id");
                self.was_asked |= self.asked.iter().any(|one| is_it(one) && one.stage == Stage::Shown);
                self.asked.retain(|one| !is_it(one));
            }
            _ => {}
        }
        self.view.frame(frame)?;
        if frame.kind == "approval.settled" {
            self.show_question()?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn take_control(&mut self, frame: &LiveFrame) -> Result<ControlFlow<Over>, Failure> {
        let said = |name: &str| frame.payload.get(name).and_then(|text| text.as_str()).unwrap_or_default();
        match (frame.kind.as_str(), said("code")) {
            ("closing", "session_ended") => Ok(ControlFlow::Break(Over::Ended("the session has ended"))),
            ("closing", "session_failed") => {
                let failure = Failure::new(Code::Eshutdown, "the session has failed");
                let failure = failure.hint(format!(
                    "`ctx show {}` shows the reason; `ctx restart` starts a new session",
                    self.id
                ));
                Ok(ControlFlow::Break(Over::Lost(failure)))
            }
            ("closing", "shutdown") => Ok(ControlFlow::Break(Over::Stopping)),
            // Also where another client has taken our place: we go on beside it.
            ("closing", _) => {
                if is_gap(frame) {
                    self.place = Place::default();
                }
                Ok(ControlFlow::Break(Over::Broken))
            }
            ("error", code) => {
                self.view.notice(&format!("{} ({code})", said("message")))?;
                Ok(ControlFlow::Continue(()))
            }
            _ => Ok(ControlFlow::Continue(())),
        }
    }

    /// The message is queued: it is started from here when another run has ended.
    pub(super) async fn wait_for_room(&mut self, limit: Option<LimitHit>) -> Result<(), Failure> {
        let place = room::place(self.root, &self.id.to_string()).await;
        self.room = Some(Room::watch(self.root).await);
        Ok(self.view.notice(&waits::queued_here(limit, place))?)
    }

    /// A run has ended somewhere.
    pub(super) async fn start_queued(&mut self) -> Result<(), Failure> {
        match room::start(self.root, &self.id.to_string()).await {
            // No room; or the daemon goes, and the connection breaks and is taken up.
            Ok(false) | Err(Failure::Said { code: Code::Ehostdown, .. }) => Ok(()),
            Ok(true) => {
                self.room = None;
                Ok(())
            }
            // Another client has started or dropped it: frames tell.
            Err(Failure::Said { code: Code::Enoent, .. }) => {
                self.room = None;
                Ok(())
            }
            Err(Failure::Said { message, code, .. }) => {
                self.room = None;
                Ok(self.view.notice(&format!("{} ({code})", output::plain(&message)))?)
            }
            Err(other) => Err(other),
        }
    }
}
