//! What the operator has done with a session, as its log tells it: checkpoints, prompt edits, compactions, approvals.
//!
//! Follows records only; what is allowed when is decided in [`crate::rules`]. The index stores the items as they are here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::{ApprovalId, CallId, CheckpointId, CompactionId, MessageId, RunId, SubagentId, Ulid};
use crate::record::{
    ApprovalBody, ApprovalOutcome, ApprovalRequested, ApprovalScope, ApprovalSettled, Body, CheckpointBody,
    CheckpointCreated, Compaction, CompactionApproved, CompactionBody, CompactionFlag, Context, FinishReason,
    MessageBody, PromptEdited, PromptRef, Record, Rejection, RunBody, RunKind, SessionBody, SnapshotState,
    StateName, SubagentBody,
};
use crate::time::Timestamp;
use crate::word_enum::word_enum;

/// A pause of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    pub created: CheckpointCreated,
    pub seq: u64,
    pub created_at: Timestamp,
    /// Edits made here, newest last; they hold once the session is resumed.
    pub edits: Vec<Edit>,
    pub resumed_at: Option<Timestamp>,
    pub rolled_back: bool,
    /// The earlier checkpoint that a rollback went to.
    pub superseded_by: Option<CheckpointId>,
    /// The record of that rollback.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub superseded_at: Option<u64>,
}

/// An edited prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    pub edited: PromptEdited,
    pub at: Timestamp,
}

impl Checkpoint {
    pub fn id(&self) -> CheckpointId {
        self.created.checkpoint_id
    }

    /// The hash of a prompt as it stands at this checkpoint, edits included.
    pub fn prompt(&self, target: &str) -> Option<&str> {
        let edited = self.edits.iter().rev().find(|edit| edit.edited.target == target);
        let edited = edited.map(|edit| edit.edited.new_hash.as_str());
        let original = || self.created.prompts.iter().find(|prompt| prompt.target == target);
        edited.or_else(|| original().map(|prompt| prompt.hash.as_str()))
    }

    /// The prompts that are other than when the session was paused.
    pub fn edited_prompts(&self) -> Vec<PromptRef> {
        let changed = self.created.prompts.iter().filter_map(|prompt| {
            let now = self.prompt(&prompt.target)?;
            (now != prompt.hash).then(|| PromptRef { target: prompt.target.clone(), hash: now.to_owned() })
        });
        changed.collect()
    }
}

word_enum! {
    /// Where a compaction stands.
    CompactionState {
        /// Waits for the operator.
        Proposed = "proposed",
        Applied = "applied",
        Rejected = "rejected",
    }
}

/// A compaction, with what became of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Compacted {
    pub made: Arc<Compaction>,
    pub seq: u64,
    pub created_at: Timestamp,
    pub state: CompactionState,
    /// What the operator approved, when a proposal was.
    pub approved: Option<Arc<CompactionApproved>>,
    /// Why it came to nothing, when a proposal did.
    pub rejected: Option<Rejection>,
    pub flag: Option<CompactionFlag>,
    pub notes: Option<String>,
    pub rolled_back: bool,
    /// The record that went back to before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolled_back_at: Option<u64>,
}

impl Compacted {
    pub fn id(&self) -> CompactionId {
        self.made.compaction_id
    }

    /// What it superseded, or would while it waits: as the operator approved it, or else as it was made. One that was
    /// rejected supersedes nothing.
    pub fn superseded(&self) -> &[Ulid] {
        if self.rejected.is_some() {
            return &[];
        }
        let approved = self.approved.as_ref().map(|approved| &approved.superseded_message_ids);
        approved.unwrap_or(&self.made.superseded_message_ids)
    }

    /// The tool calls whose output it elided, likewise.
    pub fn elided(&self) -> &[CallId] {
        if self.rejected.is_some() {
            return &[];
        }
        let approved = self.approved.as_ref().map(|approved| &approved.elided_call_ids);
        approved.unwrap_or(&self.made.elided_call_ids)
    }

    /// The text that stands for what it superseded, likewise.
    pub fn summary(&self) -> Option<&str> {
        match &self.approved {
            _ if self.rejected.is_some() => None,
            Some(approved) => approved.summary.as_deref(),
            None => self.made.summary.as_deref(),
        }
    }

    /// The message of that text, once there is one.
    pub fn summary_message(&self) -> Option<MessageId> {
        match (&self.approved, self.state) {
            (Some(approved), _) => approved.summary_message_id,
            (None, CompactionState::Applied) => self.made.summary_message_id,
            (None, CompactionState::Proposed | CompactionState::Rejected) => None,
        }
    }

    /// Why it did not go as its strategy wanted, if it did not.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.rejected.map(Rejection::as_str).or(self.made.fallback_reason.as_deref())
    }

    pub fn fallback_occurred(&self) -> bool {
        self.rejected.is_some() || self.made.fallback_occurred
    }

    /// The fraction of the window after it: as it took effect, or as it was proposed.
    pub fn after_estimate(&self) -> f64 {
        let approved = self.approved.as_ref().and_then(|approved| approved.after_estimate);
        approved.unwrap_or(self.made.after_estimate)
    }

    fn reject(&mut self, why: Rejection) {
        self.state = CompactionState::Rejected;
        self.rejected = Some(why);
    }
}

/// Compactions that are listed as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aggregate {
    pub count: u32,
    pub before: Timestamp,
}

/// A tool call that waits, or waited, for the operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Approval {
    pub asked: ApprovalRequested,
    pub created_at: Timestamp,
    pub clock: ApprovalClock,
    pub settled: Option<(ApprovalSettled, Timestamp)>,
}

/// How long an approval waits, or a subagent works. Its time stands still while the session is paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalClock {
    /// When it times out, pauses included.
    Until(Timestamp),
    /// The session is paused: milliseconds that are left when it goes on.
    Left(u64),
}

impl ApprovalClock {
    pub fn expires_at(self) -> Option<Timestamp> {
        match self {
            ApprovalClock::Until(time) => Some(time),
            ApprovalClock::Left(_) => None,
        }
    }

    pub(crate) fn stop(self, now: Timestamp) -> ApprovalClock {
        match self {
            ApprovalClock::Until(time) => ApprovalClock::Left(time.millis_since(now)),
            ApprovalClock::Left(_) => self,
        }
    }

    pub(crate) fn start(self, now: Timestamp) -> ApprovalClock {
        match self {
            ApprovalClock::Left(left) => {
                ApprovalClock::Until(Timestamp::from_millis(now.as_millis().saturating_add(left)))
            }
            ApprovalClock::Until(_) => self,
        }
    }
}

/// Which prompts hold besides those of the agent's own files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prompts {
    /// Those of the newest run.
    pub in_effect: Vec<PromptRef>,
    /// Edited at a checkpoint: they hold for this session from then on. By target.
    edited: BTreeMap<String, String>,
    /// Those of the checkpoint that was rolled back to: they hold for the next run.
    next: BTreeMap<String, String>,
}

impl Prompts {
    /// What the next run takes instead of what its agent's files say.
    pub fn for_next_run(&self) -> Vec<PromptRef> {
        let mut all = self.edited.clone();
        all.extend(self.next.clone());
        all.into_iter().map(|(target, hash)| PromptRef { target, hash }).collect()
    }
}

/// The whole of it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Control {
    pub checkpoints: Vec<Checkpoint>,
    pub compactions: Vec<Compacted>,
    pub aggregates: Vec<Aggregate>,
    /// Approvals of the newest run that asked for one, and all that are open.
    pub approvals: Vec<Approval>,
    /// What the operator allowed until the session ends: a tool, and the pattern of the rule that asked.
    granted: BTreeSet<(String, Option<String>)>,
    pub prompts: Prompts,
    /// Under what the newest run works: it goes on under the same when it was paused.
    pub context: Option<Arc<Context>>,
    /// What was edited in effect when a checkpoint was made, to go back to.
    edited_at: BTreeMap<CheckpointId, BTreeMap<String, String>>,
    /// The newest run that was begun for a compaction alone.
    compacting: Option<RunId>,
    /// The checkpoint where prompts were edited, until a model has answered under them.
    pub(crate) just_edited: Option<CheckpointId>,
}

impl Control {
    pub fn checkpoint(&self, id: CheckpointId) -> Option<&Checkpoint> {
        self.checkpoints.iter().rev().find(|checkpoint| checkpoint.id() == id)
    }

    /// The checkpoints that are not in the active list any more, and the newest `limit`, which are.
    pub fn archived_and_active(&self, limit: usize) -> (&[Checkpoint], &[Checkpoint]) {
        self.checkpoints.split_at(self.checkpoints.len().saturating_sub(limit))
    }

    pub fn compaction(&self, id: CompactionId) -> Option<&Compacted> {
        self.compactions.iter().rev().find(|compaction| compaction.id() == id)
    }

    /// The proposed compaction that a session was paused for at this checkpoint, while it is undecided.
    pub fn proposed_at(&self, checkpoint: &Checkpoint) -> Option<&Compacted> {
        let found = self.compaction(checkpoint.created.compaction_id?)?;
        (found.state == CompactionState::Proposed).then_some(found)
    }

    /// Whether the newest compaction is a proposal for a full window that the operator turned down, or approved so that
    /// the window stayed full.
    pub fn is_declined(&self) -> bool {
        let Some(newest) = self.compactions.last().filter(|newest| !newest.rolled_back) else { return false };
        let upper = newest.made.window_upper;
        match (newest.rejected, &newest.approved) {
            (Some(why), _) => why == Rejection::OperatorRejected && newest.made.threshold_estimate >= upper,
            (None, Some(_)) => newest.after_estimate() >= upper,
            (None, None) => false,
        }
    }

    pub fn approval(&self, id: ApprovalId) -> Option<&Approval> {
        self.approvals.iter().rev().find(|approval| approval.asked.approval_id == id)
    }

    pub fn open_approvals(&self) -> impl Iterator<Item = &Approval> {
        self.approvals.iter().filter(|approval| approval.settled.is_none())
    }

    /// Whether the operator allowed what this rule asks for until the session ends.
    pub fn is_granted(&self, tool: &str, pattern: Option<&str>) -> bool {
        self.granted.iter().any(|(known, of)| known == tool && of.as_deref() == pattern)
    }

    /// The approval that a tool call waits for.
    pub fn open_approval_of(&self, call: CallId) -> Option<&Approval> {
        self.open_approvals().find(|approval| approval.asked.call_id == call)
    }

    /// Goes on from items that were stored. What only the next run asks for (prompts, context) is not stored.
    pub fn stored(
        checkpoints: Vec<Checkpoint>,
        compactions: Vec<Compacted>,
        approvals: Vec<Approval>,
    ) -> Control {
        Control { checkpoints, compactions, approvals, ..Control::default() }
    }

    pub fn apply(&mut self, record: &Record) {
        match &record.body {
            Body::Checkpoint(body) => self.apply_checkpoint(body, record),
            Body::Compaction(body) => self.apply_compaction(body, record),
            Body::Approval(ApprovalBody::Requested(asked)) => self.asked(asked, record),
            Body::Approval(ApprovalBody::Settled(settled)) => self.settled(settled, record.time),
            Body::Run(RunBody::Context(context)) => {
                self.prompts.in_effect = context.prompts.clone();
                self.context = Some(Arc::new((**context).clone()));
                // The next run is the next that works on a message.
                if self.compacting != Some(context.turn_id) {
                    self.prompts.next.clear();
                }
            }
            Body::Run(RunBody::Created(created)) => {
                if created.kind == RunKind::Compaction {
                    self.compacting = Some(created.turn_id);
                }
            }
            Body::Run(RunBody::Finished(end)) => self.run_ended(end.turn_id, record.time),
            Body::Run(RunBody::Cancelled(end)) => self.run_ended(end.turn_id, record.time),
            Body::Run(RunBody::Failed(end)) => self.run_ended(end.turn_id, record.time),
            Body::Session(SessionBody::StateChanged(change)) => self.follow_pause(change.to, record.time),
            // What was copied from the source of a fork is history: nothing of it waits any more.
            Body::Session(SessionBody::Forked(_)) => {
                self.interrupt(record.time, |_| true);
                // What was allowed was allowed in the source.
                self.granted.clear();
                let open = self.compactions.iter_mut().filter(|c| c.state == CompactionState::Proposed);
                open.for_each(|compaction| compaction.reject(Rejection::SessionForked));
            }
            Body::Subagent(SubagentBody::Exited(exited)) => self.subagent_exited(exited.invocation_id),
            Body::Message(MessageBody::AssistantFinished(said))
                if said.caller.is_none() && said.finish_reason != FinishReason::Error =>
            {
                self.just_edited = None;
            }
            Body::Session(_)
            | Body::Run(RunBody::QueuedDiscarded(_) | RunBody::Retrying(_) | RunBody::Noticed(_))
            | Body::Message(_)
            | Body::Tool(_)
            | Body::Terminal(_)
            | Body::Subagent(_) => {}
        }
    }

    fn apply_checkpoint(&mut self, body: &CheckpointBody, record: &Record) {
        match body {
            CheckpointBody::Created(created) => self.create(created, record),
            CheckpointBody::PromptEdited(edited) => {
                let at = record.time;
                self.change_checkpoint(edited.checkpoint_id, |checkpoint| {
                    checkpoint.edits.push(Edit { edited: edited.clone(), at });
                });
            }
            CheckpointBody::Resumed(resumed) => {
                self.just_edited = (!resumed.prompts.is_empty()).then_some(resumed.checkpoint_id);
                for prompt in &resumed.prompts {
                    self.prompts.edited.insert(prompt.target.clone(), prompt.hash.clone());
                }
                let time = record.time;
                self.change_checkpoint(resumed.checkpoint_id, |checkpoint| {
                    checkpoint.resumed_at = Some(time)
                });
            }
            CheckpointBody::RolledBack(back) => {
                self.just_edited = None;
                self.roll_back(back.checkpoint_id, record.seq);
            }
        }
    }

    fn apply_compaction(&mut self, body: &CompactionBody, record: &Record) {
        match body {
            CompactionBody::Recorded(made) => self.compacted(made, record),
            CompactionBody::Approved(approved) => {
                let approved = Arc::new(approved.clone());
                self.change_compaction(approved.compaction_id, |compaction| {
                    compaction.state = CompactionState::Applied;
                    compaction.approved = Some(approved.clone());
                });
            }
            CompactionBody::Rejected(rejected) => {
                self.change_compaction(rejected.compaction_id, |c| c.reject(rejected.reason));
            }
            CompactionBody::Flagged(flagged) => {
                self.change_compaction(flagged.compaction_id, |compaction| {
                    compaction.flag = flagged.flag;
                    compaction.notes.clone_from(&flagged.notes);
                });
            }
            CompactionBody::Aggregated(aggregated) => {
                let count = usize::try_from(aggregated.count).unwrap_or(usize::MAX);
                self.compactions.drain(..count.min(self.compactions.len()));
                self.aggregates.push(Aggregate { count: aggregated.count, before: aggregated.before });
            }
        }
    }

    /// One that ends while the session is paused, with its daemon, is not suspended any more.
    fn subagent_exited(&mut self, id: SubagentId) {
        let newest = self.checkpoints.last_mut();
        let Some(at) = newest.filter(|at| at.resumed_at.is_none() && !at.rolled_back) else { return };
        for snapshot in at.created.active_subagents.iter_mut().filter(|one| one.invocation_id == id) {
            snapshot.state = SnapshotState::Exited;
        }
    }

    /// The clocks of approvals that wait stop with a pause and go on with its end.
    fn follow_pause(&mut self, to: StateName, now: Timestamp) {
        for approval in self.approvals.iter_mut().filter(|approval| approval.settled.is_none()) {
            approval.clock = match to {
                StateName::Paused => approval.clock.stop(now),
                StateName::Running
                | StateName::Idle
                | StateName::Queued
                | StateName::Ended
                | StateName::Failed => approval.clock.start(now),
            };
        }
    }

    /// Proposed compactions that nobody has decided on.
    pub fn proposed(&self) -> impl Iterator<Item = &Compacted> {
        self.compactions.iter().filter(|compaction| compaction.state == CompactionState::Proposed)
    }

    fn create(&mut self, created: &CheckpointCreated, record: &Record) {
        self.edited_at.insert(created.checkpoint_id, self.prompts.edited.clone());
        self.checkpoints.push(Checkpoint {
            created: created.clone(),
            seq: record.seq,
            created_at: record.time,
            edits: Vec::new(),
            resumed_at: None,
            rolled_back: false,
            superseded_by: None,
            superseded_at: None,
        });
    }

    /// Everything after the checkpoint is history, and what a later rollback had made history of counts again.
    fn roll_back(&mut self, id: CheckpointId, now: u64) {
        let Some(target) = self.checkpoint(id) else { return };
        let (seq, prompts) = (target.seq, target.created.prompts.clone());
        self.prompts.edited = self.edited_at.get(&id).cloned().unwrap_or_default();
        self.prompts.next = prompts.into_iter().map(|prompt| (prompt.target, prompt.hash)).collect();
        for checkpoint in &mut self.checkpoints {
            if checkpoint.id() == id {
                checkpoint.rolled_back = true;
            }
            if checkpoint.seq > seq && checkpoint.superseded_by.is_none() {
                (checkpoint.superseded_by, checkpoint.superseded_at) = (Some(id), Some(now));
            } else if checkpoint.seq <= seq && checkpoint.superseded_at.is_some_and(|at| at > seq) {
                (checkpoint.superseded_by, checkpoint.superseded_at) = (None, None);
            }
        }
        for compaction in &mut self.compactions {
            // One that was approved took effect after its own checkpoint.
            let is_of_it = compaction.made.checkpoint_id == Some(id) && compaction.approved.is_some();
            if compaction.seq > seq || is_of_it {
                compaction.rolled_back_at = compaction.rolled_back_at.or(Some(now));
            } else if compaction.rolled_back_at.is_some_and(|at| at > seq) {
                compaction.rolled_back_at = None;
            }
            compaction.rolled_back = compaction.rolled_back_at.is_some();
        }
    }

    fn compacted(&mut self, made: &Compaction, record: &Record) {
        // A repeated line must not bring a proposal back that is settled.
        if self.compaction(made.compaction_id).is_some() {
            return;
        }
        self.compactions.push(Compacted {
            made: Arc::new(made.clone()),
            seq: record.seq,
            created_at: record.time,
            state: if made.proposed { CompactionState::Proposed } else { CompactionState::Applied },
            approved: None,
            rejected: None,
            flag: None,
            notes: None,
            rolled_back: false,
            rolled_back_at: None,
        });
    }

    /// Approvals of earlier runs are history, which the log has.
    fn asked(&mut self, asked: &ApprovalRequested, record: &Record) {
        self.approvals.retain(|old| old.settled.is_none() || old.asked.turn_id == asked.turn_id);
        let clock = ApprovalClock::Until(asked.expires_at);
        self.approvals.push(Approval { asked: asked.clone(), created_at: record.time, clock, settled: None });
    }

    fn settled(&mut self, settled: &ApprovalSettled, time: Timestamp) {
        let open = self
            .approvals
            .iter_mut()
            .find(|approval| approval.asked.approval_id == settled.approval_id && approval.settled.is_none());
        let Some(approval) = open else { return };
        approval.settled = Some((settled.clone(), time));
        if (settled.outcome, settled.scope) == (ApprovalOutcome::Allow, ApprovalScope::Session) {
            let ApprovalRequested { tool, pattern, .. } = &approval.asked;
            self.granted.insert((tool.clone(), pattern.clone()));
        }
    }

    /// Damage may have taken the record that settled an approval; its run is over all the same.
    fn run_ended(&mut self, run: RunId, time: Timestamp) {
        self.interrupt(time, |approval| approval.asked.turn_id == run);
    }

    /// Nobody waits any more for an answer to these.
    fn interrupt(&mut self, time: Timestamp, which: impl Fn(&Approval) -> bool) {
        for approval in self.approvals.iter_mut().filter(|a| a.settled.is_none() && which(a)) {
            let (turn_id, approval_id) = (approval.asked.turn_id, approval.asked.approval_id);
            let outcome = ApprovalOutcome::Interrupted;
            let scope = ApprovalScope::Call;
            let settled = ApprovalSettled { turn_id, approval_id, outcome, scope, by: None, note: None };
            approval.settled = Some((settled, time));
        }
    }

    fn change_checkpoint(&mut self, id: CheckpointId, change: impl FnOnce(&mut Checkpoint)) {
        if let Some(found) = self.checkpoints.iter_mut().rev().find(|checkpoint| checkpoint.id() == id) {
            change(found);
        }
    }

    fn change_compaction(&mut self, id: CompactionId, change: impl FnOnce(&mut Compacted)) {
        if let Some(found) = self.compactions.iter_mut().rev().find(|compaction| compaction.id() == id) {
            change(found);
        }
    }
}
