//! What the model says of checkpoints, compactions and approvals.

use ctx_session::{Code, StateName};

use super::Expected::{self, NoChange, Refused, Written};
use super::{AGGREGATED, Approval, COMPACTIONS, Checkpoint, Compaction, Model, PROMPT};

impl Model {
    fn checkpoint_at(&self, back: usize) -> Option<usize> {
        self.checkpoints.len().checked_sub(back + 1)
    }

    fn compaction_at(&self, back: usize) -> Option<usize> {
        self.compactions.len().checked_sub(back + 1).filter(|at| *at >= self.aggregated)
    }

    fn make_checkpoint(&mut self, compaction: Option<usize>) -> Expected {
        self.paused = Some(self.checkpoints.len());
        self.checkpoints.push(Checkpoint {
            talk: self.talk.clone(),
            hash: PROMPT,
            compaction,
            resumed: false,
            rolled_back: false,
            superseded: None,
        });
        self.state = Some(StateName::Paused);
        Written
    }

    pub(super) fn pause(&mut self) -> Expected {
        match self.state() {
            StateName::Running => self.make_checkpoint(None),
            StateName::Idle | StateName::Queued | StateName::Paused => Refused(Code::Ebusy),
            StateName::Ended | StateName::Failed => Refused(Code::Eshutdown),
        }
    }

    pub(super) fn model_pause(&mut self, back: usize) -> Expected {
        match (self.state(), self.open_tool(back)) {
            (StateName::Running, Some(at)) => {
                self.open_tools.remove(at);
                self.make_checkpoint(None)
            }
            _ => NoChange,
        }
    }

    /// The checkpoint that the session is paused at, if it is the one that is meant.
    fn pause_point(&self, back: usize) -> Result<usize, Expected> {
        match self.checkpoint_at(back) {
            None => Err(Refused(Code::Enoent)),
            Some(_) if self.is_over() => Err(Refused(Code::Eshutdown)),
            Some(at) if self.paused == Some(at) => Ok(at),
            Some(_) => Err(Refused(Code::Ebusy)),
        }
    }

    pub(super) fn edit_prompt(&mut self, back: usize, hash: &'static str) -> Expected {
        match self.pause_point(back) {
            Err(refused) => refused,
            Ok(at) if self.checkpoints[at].hash == hash => NoChange,
            Ok(at) => {
                self.checkpoints[at].hash = hash;
                Written
            }
        }
    }

    pub(super) fn resume_at(&mut self, back: usize, full: bool) -> Expected {
        let at = match self.pause_point(back) {
            Err(refused) => return refused,
            Ok(at) => at,
        };
        if let Some(waiting) = self.waiting() {
            return self.approve(waiting, None, None, full);
        }
        let is_answered = self.answered && self.pending.is_empty() && self.open_tools.is_empty();
        if full && !is_answered {
            return Refused(Code::Ebusy);
        }
        self.leave(at);
        if is_answered {
            return self.settle("done", false, StateName::Idle);
        }
        self.state = Some(StateName::Running);
        Written
    }

    /// Goes on from a checkpoint; the agent is told when its prompts were changed there.
    fn leave(&mut self, at: usize) {
        self.paused = None;
        self.checkpoints[at].resumed = true;
        if self.checkpoints[at].hash != PROMPT {
            self.notes += 1;
            self.say(format!("n{}", self.notes));
        }
    }

    pub(super) fn rollback(&mut self, back: usize, partial: bool) -> Expected {
        let Some(at) = self.checkpoint_at(back) else { return Refused(Code::Enoent) };
        match self.state() {
            StateName::Idle | StateName::Paused => self.go_back(at, partial),
            StateName::Running | StateName::Queued => Refused(Code::Ebusy),
            StateName::Ended | StateName::Failed => Refused(Code::Eshutdown),
        }
    }

    fn go_back(&mut self, at: usize, partial: bool) -> Expected {
        self.turn_down();
        self.settle("cancelled", partial, StateName::Idle);
        self.talk = self.checkpoints[at].talk.clone();
        self.checkpoints[at].rolled_back = true;
        let now = self.checkpoints.len();
        for (index, checkpoint) in self.checkpoints.iter_mut().enumerate() {
            checkpoint.superseded = undone(checkpoint.superseded, index > at, at, now);
        }
        for compaction in &mut self.compactions {
            compaction.rolled_back = undone(compaction.rolled_back, compaction.since > at, at, now);
        }
        Written
    }

    /// What is proposed comes to nothing.
    pub(super) fn turn_down(&mut self) {
        if let Some(waiting) = self.waiting() {
            self.compactions[waiting].state = "rejected";
        }
    }

    /// The compaction that the session is paused for.
    pub fn waiting(&self) -> Option<usize> {
        self.checkpoints[self.paused?].compaction
    }

    pub(super) fn compact(&mut self, full: bool) -> Expected {
        match self.state() {
            StateName::Idle if !full => {
                self.archived = false;
                self.begin_run("running", true);
                Written
            }
            StateName::Idle | StateName::Running | StateName::Queued | StateName::Paused => {
                Refused(Code::Ebusy)
            }
            StateName::Ended | StateName::Failed => Refused(Code::Eshutdown),
        }
    }

    fn takes_the_last_exchange(&self, names: &[String]) -> bool {
        names.iter().any(|name| self.last_exchange().contains(name))
    }

    pub(super) fn compacted(&mut self, pick: u16, summary: bool, proposed: bool) -> Expected {
        if !self.is_worked_on() || self.state() == StateName::Paused {
            return NoChange;
        }
        let mut gone = self.picked(pick);
        if self.takes_the_last_exchange(&gone) || (summary && gone.is_empty()) {
            return Refused(Code::Einval);
        }
        if self.compactions.len() - self.aggregated >= COMPACTIONS {
            self.aggregated += AGGREGATED;
        }
        gone.retain(|name| !self.pins.contains(name));
        let summary = (summary && !gone.is_empty()).then_some("short");
        let (by_hand, since) = (self.is_compaction, self.checkpoints.len());
        let (state, flag, rolled_back) = ("proposed", "none", None);
        self.compactions.push(Compaction { gone, summary, state, flag, rolled_back, since, by_hand });
        let newest = self.compactions.len() - 1;
        if !proposed {
            self.take_effect(newest, None, None);
            return Written;
        }
        self.settle("done", false, StateName::Paused);
        self.make_checkpoint(Some(newest))
    }

    /// The summary stands where the first message stood that it replaces.
    fn take_effect(&mut self, at: usize, edited: Option<Vec<String>>, summary: Option<&'static str>) {
        let since = self.checkpoints.len();
        let compaction = &mut self.compactions[at];
        compaction.gone = edited.unwrap_or(std::mem::take(&mut compaction.gone));
        compaction.summary = summary.or(compaction.summary).filter(|text| !text.is_empty());
        (compaction.state, compaction.since) = ("applied", since);
        let gone = &compaction.gone;
        let Some(place) = self.talk.iter().position(|name| gone.contains(name)) else { return };
        self.talk.retain(|name| !gone.contains(name));
        if compaction.summary.is_some() {
            self.talk.insert(place, format!("s{}", at + 1));
        }
    }

    pub(super) fn approve_op(
        &mut self,
        back: usize,
        pick: Option<u16>,
        summary: Option<&'static str>,
        full: bool,
    ) -> Expected {
        match self.undecided(back) {
            Err(refused) => refused,
            Ok(at) => self.approve(at, pick.map(|pick| self.picked(pick)), summary, full),
        }
    }

    /// The compaction that is meant, if the session is paused for it.
    fn undecided(&self, back: usize) -> Result<usize, Expected> {
        match self.compaction_at(back) {
            None => Err(Refused(Code::Enoent)),
            Some(_) if self.is_over() => Err(Refused(Code::Eshutdown)),
            Some(at) if self.waiting() == Some(at) => Ok(at),
            Some(_) => Err(Refused(Code::Ebusy)),
        }
    }

    fn approve(
        &mut self,
        at: usize,
        edited: Option<Vec<String>>,
        summary: Option<&'static str>,
        full: bool,
    ) -> Expected {
        let by_hand = self.compactions[at].by_hand;
        if edited.as_ref().is_some_and(|names| names.iter().any(|name| self.pins.contains(name))) {
            return Refused(Code::Einval);
        }
        // What was pinned since it was proposed stays.
        let mut proposed = self.compactions[at].gone.clone();
        proposed.retain(|name| !self.pins.contains(name));
        let gone = edited.unwrap_or(proposed);
        let says_something = summary.is_some_and(|text| !text.is_empty());
        if self.takes_the_last_exchange(&gone) || (gone.is_empty() && says_something) {
            return Refused(Code::Einval);
        }
        if full && !by_hand {
            return Refused(Code::Ebusy);
        }
        self.take_effect(at, Some(gone), summary);
        let paused = self.paused.expect("it waits at a checkpoint");
        self.leave(paused);
        self.state = Some(StateName::Idle);
        if !by_hand {
            self.begin_run("running", false);
        }
        Written
    }

    pub(super) fn reject(&mut self, back: usize) -> Expected {
        match (self.undecided(back), self.paused) {
            (Ok(_), Some(paused)) => self.go_back(paused, false),
            (Ok(_), None) => panic!("it waits at a checkpoint"),
            (Err(refused), _) => refused,
        }
    }

    pub(super) fn flag(&mut self, back: usize, flag: &'static str) -> Expected {
        let Some(at) = self.compaction_at(back) else { return Refused(Code::Enoent) };
        let same = self.compactions[at].flag == flag;
        self.compactions[at].flag = flag;
        if same { NoChange } else { Written }
    }

    pub(super) fn ask(&mut self, back: usize) -> Expected {
        if !self.is_worked_on() {
            return NoChange;
        }
        let Some(at) = self.open_tool(back) else { return Refused(Code::Enoent) };
        let tool = self.open_tools[at].clone();
        if self.approvals.iter().any(|approval| approval.is_open && approval.tool == tool) {
            return Refused(Code::Eexist);
        }
        if self.state() == StateName::Paused {
            return NoChange;
        }
        self.asked += 1;
        let (name, run) = (format!("p{}", self.asked), self.runs.len());
        // Those of earlier runs are history.
        self.approvals.retain(|old| old.is_open || old.run == run);
        self.approvals.push(Approval { name, tool, run, is_open: true });
        Written
    }

    pub(super) fn answer(&mut self, back: usize, how: &'static str) -> Expected {
        let name = format!("p{}", self.asked.saturating_sub(back));
        let is_over = self.is_over();
        let state = self.state();
        let found = self.approvals.iter_mut().find(|approval| approval.name == name);
        match (found, how) {
            (None, "expire") => NoChange,
            (None, _) => Refused(Code::Enoent),
            (Some(approval), _) if approval.is_open && state == StateName::Running => {
                approval.is_open = false;
                Written
            }
            (Some(_), "expire") => NoChange,
            (Some(_), _) if is_over => Refused(Code::Eshutdown),
            (Some(_), _) => Refused(Code::Ebusy),
        }
    }
}

/// When something was undone that is, where the session goes back to a checkpoint: what came after that is, and what was
/// undone after it was made is not any more.
fn undone(before: Option<usize>, is_later: bool, at: usize, now: usize) -> Option<usize> {
    if is_later { before.or(Some(now)) } else { before.filter(|then| *then <= at) }
}
