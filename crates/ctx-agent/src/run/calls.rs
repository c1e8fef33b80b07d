//! Performs tool calls: each is recorded, judged by the policy, made, and its result recorded, in order.
//!
//! A call that cannot be made is no failure of the run: the model is told why and goes on. Secrets are taken out of what
//! is recorded, asked and answered; a call itself is made with what the model wrote.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ctx_session::command::{ApprovalAsk, Approved, FinishedTool, Progress, StartedTool};
use ctx_session::issue::IssueAct;
use ctx_session::port::{RunPort, Stopped};
use ctx_session::record::{ApprovalOutcome, Approvals, BlobRef, ToolStatus};
use ctx_session::{CallId, Code};
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesOrdered;
use serde_json::Value;
use tokio::time::Instant;

use super::End;
use super::subagent::Dispatcher;
use crate::control::policy::{Effects, Verdict};
use crate::cut;
use crate::model::ToolCall;
use crate::tool::checkpoint::CHECKPOINT;
use crate::tool::dispatch::DISPATCH;
use crate::tool::output::OUTPUT_READ;
use crate::tool::shell::SHELL_EXEC;
use crate::tool::{NOBODY_TO_ASK, Output, Plan, PlanHost, Scope, Tool, ToolError, Tools, Work};

/// Performs the calls of one answer. All of them are recorded as started first, with what is still to be recorded of the
/// answer: they belong to one message. Those behind a checkpoint begin after it.
pub(super) async fn perform(
    mut unrecorded: Vec<Progress>,
    calls: &[StartedTool],
    tools: &Tools,
    scope: &Arc<Scope>,
    dispatcher: &Dispatcher<'_>,
    port: &dyn RunPort,
) -> Result<(), End> {
    let shown = |calls: &[StartedTool]| -> Vec<StartedTool> {
        let redacted = |call: &StartedTool| StartedTool {
            input: scope.redaction.json(call.input.clone()),
            ..call.clone()
        };
        calls.iter().map(redacted).collect()
    };
    let mut rest = calls;
    while !rest.is_empty() {
        let pause = rest.iter().position(|call| call.name == CHECKPOINT);
        let (now, behind) =
            rest.split_at_checked(pause.map_or(rest.len(), |at| at + 1)).unwrap_or((rest, &[]));
        let begun = match behind {
            [] => Progress::ToolsStarted(shown(now)),
            [_, ..] => Progress::ToolsStartedUpTo { calls: shown(now), behind: shown(behind) },
        };
        unrecorded.push(begun);
        port.progress(Progress::together(std::mem::take(&mut unrecorded))).await?;
        let desk = Desk { tools, scope, dispatcher, port };
        match are_apart(now, tools, scope) {
            true => desk.make_side_by_side(now).await?,
            false => desk.make_in_turn(now).await?,
        }
        rest = behind;
    }
    Ok(())
}

/// The calls of an answer, each with an id of ours.
pub(super) fn started(calls: Vec<ToolCall>, port: &dyn RunPort) -> Vec<StartedTool> {
    let with_id = calls.into_iter().map(|call| {
        let ToolCall { provider_call_id, name, input, provider } = call;
        StartedTool { call_id: CallId(port.new_id()), provider_call_id, name, input, provider }
    });
    with_id.collect()
}

/// Whether calls can be made at once: each of them can stand beside others, and none changes what another one names.
fn are_apart(calls: &[StartedTool], tools: &Tools, scope: &Scope) -> bool {
    let known: Option<Vec<_>> = calls.iter().map(|call| tools.get(&call.name).ok()).collect();
    let Some(known) = known.filter(|known| known.iter().all(|tool| tool.runs_in_parallel())) else {
        return false;
    };
    // What each names, and whether it changes it. `a` and `./a` are one; a call that names nothing meets nobody.
    let touched: Vec<(PathBuf, bool)> = calls
        .iter()
        .zip(&known)
        .filter_map(|(call, tool)| {
            let named = match call.input.get("path") {
                Some(path) => path.as_str()?,
                None if call.name.starts_with("fs.") => "",
                None => return None,
            };
            Some((scope.cwd.join(named).components().collect(), tool.effects() == Effects::Some))
        })
        .collect();
    let meet = |(one, changes): &(PathBuf, bool), (other, other_changes): &(PathBuf, bool)| {
        (*changes || *other_changes) && (one.starts_with(other) || other.starts_with(one))
    };
    let mut pairs = touched
        .iter()
        .enumerate()
        .flat_map(|(at, one)| touched.iter().skip(at + 1).map(move |other| (one, other)));
    !pairs.any(|(one, other)| meet(one, other))
}

/// What became of a call.
enum Made {
    Gave(Output),
    Failed(ToolError),
    /// Its result is in the log.
    SettledAlready,
}

impl From<Result<Output, ToolError>> for Made {
    fn from(result: Result<Output, ToolError>) -> Made {
        match result {
            Ok(output) => Made::Gave(output),
            Err(error) => Made::Failed(error),
        }
    }
}

/// What calls are made with.
#[derive(Clone, Copy)]
struct Desk<'a> {
    tools: &'a Tools,
    scope: &'a Arc<Scope>,
    dispatcher: &'a Dispatcher<'a>,
    port: &'a dyn RunPort,
}

impl Desk<'_> {
    async fn make_in_turn(self, calls: &[StartedTool]) -> Result<(), End> {
        for call in calls {
            let (made, lasted) = self.make(call).await?;
            self.record(call, made, lasted).await?;
        }
        Ok(())
    }

    /// All are made at once; the results are recorded in the order of the calls, but for those of subagents.
    async fn make_side_by_side(self, calls: &[StartedTool]) -> Result<(), End> {
        // Subagents work for long: what one has found is recorded when it ends.
        if calls.iter().all(|call| call.name == DISPATCH) {
            let one = |call| async move {
                let (made, lasted) = self.make(call).await?;
                self.record(call, made, lasted).await
            };
            return try_join_all(calls.iter().map(one)).await.map(drop);
        }
        let mut all: FuturesOrdered<_> = calls.iter().map(|call| self.make(call)).collect();
        for call in calls {
            if let Some(made) = all.next().await {
                let (made, lasted) = made?;
                self.record(call, made, lasted).await?;
            }
        }
        Ok(())
    }

    async fn make(self, call: &StartedTool) -> Result<(Made, Duration), End> {
        let begin = Instant::now();
        let made = self.judge_and_make(call).await?;
        Ok((made, begin.elapsed()))
    }

    /// Records a result. Secrets are redacted before the output is cut, so that neither the preview nor the blob has one.
    async fn record(self, call: &StartedTool, made: Made, lasted: Duration) -> Result<(), End> {
        let (status, made) = match made {
            Made::Gave(output) => (ToolStatus::Ok, output),
            Made::Failed(error) => (ToolStatus::Error, error.to_string().into()),
            Made::SettledAlready => return Ok(()),
        };
        let call_id = call.call_id;
        let back = self.tools.get(OUTPUT_READ).is_ok().then_some(call_id);
        let Output { text, diff, mut summary } = made;
        let (text, secrets) = self.scope.redaction.text(text);
        let diff = diff.map(|diff| self.scope.redaction.text(diff).0);
        summary.redacted = Some(summary.redacted.unwrap_or_default() + secrets).filter(|all| *all > 0);
        let (output, blob) = self.fit(text, back).await?;
        let (diff, diff_blob) = match diff {
            Some(diff) => self.fit(diff, None).await.map(|(diff, blob)| (Some(diff), blob))?,
            None => (None, None),
        };
        let truncated = blob.is_some();
        let duration_ms = u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX);
        let summary = Some(summary).filter(|summary| !summary.is_empty());
        let finished =
            FinishedTool { call_id, status, duration_ms, output, truncated, blob, diff, diff_blob, summary };
        Ok(self.port.progress(Progress::ToolFinished(Box::new(finished))).await?)
    }

    /// Plans a call, asks for permission, has the files saved and then does the work. The files are saved after the permission, so that a
    /// denied call costs nothing.
    async fn judge_and_make(self, call: &StartedTool) -> Result<Made, End> {
        let tool = match self.tools.get(&call.name) {
            Ok(tool) => tool,
            Err(error) => return Ok(Made::Failed(error)),
        };
        let effects = tool.effects();
        let plan = match plan(tool, call.input.clone(), self.scope).await {
            Ok(plan) => plan,
            Err(error) => return Ok(Made::Failed(error)),
        };
        let Plan { subjects, diff, host, work } = plan;
        let needs_operator = matches!(&work, Work::Issue(act) if act.needs_operator());
        if needs_operator && let Err(refusal) = self.port.issue(IssueAct::Read).await? {
            // Nobody is asked about an issue that is not there.
            return Ok(Made::Failed(ToolError::new(refusal.code, refusal.message)));
        }
        let said = match self.permit(call, effects, needs_operator, &subjects, diff, host.as_ref()).await? {
            Ok(said) => said.unwrap_or_default(),
            Err(error) => return Ok(Made::Failed(error)),
        };
        if effects == Effects::Some {
            let files = &self.scope.services.files;
            if let Some(notice) = files.before(self.scope.session, &call.name, &subjects).await {
                self.port.progress(notice).await?;
            }
        }
        match work {
            Work::Do(work) => {
                if call.name == SHELL_EXEC && host.is_none() {
                    self.dispatcher.enter_cage(self.scope, self.port).await?;
                }
                Ok(work.await.map(|output| noted(output, &said)).into())
            }
            Work::Checkpoint { reason } => {
                self.port.checkpoint(call.call_id, reason).await?;
                Ok(Made::SettledAlready)
            }
            Work::Output(window) => {
                let told = self.port.output(window.call).await?;
                let told = told.map_err(|refusal| ToolError::new(refusal.code, refusal.message));
                Ok(told.and_then(|whole| window.of(&whole)).map(|output| noted(output.into(), &said)).into())
            }
            Work::Dispatch(asked) => {
                let told = self.dispatcher.dispatch(call.call_id, asked, self.port).await?;
                Ok(told.map(|text| noted(text.into(), &said)).into())
            }
            Work::Terminal(open, start) => {
                let opened = self.port.open_terminal(open, start).await?;
                let opened = opened.map_err(|refusal| ToolError::new(refusal.code, refusal.message));
                Ok(opened.map(|id| noted(id.to_string().into(), &said)).into())
            }
            Work::Issue(act) => {
                let told = self.port.issue(act).await?;
                let told = told.map_err(|refusal| ToolError::new(refusal.code, refusal.message));
                Ok(told.map(|text| noted(text.into(), &said)).into())
            }
        }
    }

    /// Whether the policy, and where it wants to be asked the operator, lets a call be made; with the operator's note, if
    /// there is one. What needs the operator is not allowed by a rule.
    async fn permit(
        self,
        call: &StartedTool,
        effects: Effects,
        needs_operator: bool,
        subjects: &[String],
        diff: Option<String>,
        host: Option<&PlanHost>,
    ) -> Result<Result<Option<String>, ToolError>, Stopped> {
        let policy = host.map_or(&*self.scope.policy, |host| &host.policy);
        // What was allowed for the session here was not allowed there.
        let asked = host.map_or_else(|| call.name.clone(), |host| format!("{}@{}", call.name, host.name));
        let tool = &asked;
        let subject = subjects.first();
        let on = subject.map(|subject| format!(" on {subject}")).unwrap_or_default();
        let denied = |message| Ok(Err(ToolError::new(Code::Eacces, message)));
        let fits = |tool: &str| subject.is_some_and(|command| policy.fits_all_programs(tool, command));
        let verdict = match policy.decide(&call.name, effects, subjects) {
            Verdict::Allow if needs_operator => Verdict::Ask,
            Verdict::Allow if host.is_some() && !fits(&call.name) => Verdict::Ask,
            verdict => verdict,
        };
        match (verdict, self.scope.approvals) {
            (Verdict::Allow, _) | (Verdict::Ask, Some(Approvals::Allow)) => return Ok(Ok(None)),
            (Verdict::Deny, _) => return denied(format!("the policy denies {tool}{on}; do without it")),
            (Verdict::Ask, Some(Approvals::Deny) | None) => {}
        }
        let redacted = |text: String| self.scope.redaction.text(text).0;
        let ask = ApprovalAsk {
            call: call.call_id,
            tool: asked.clone(),
            subject: subject.cloned().map(redacted),
            pattern: policy.rule_for(&call.name, subjects).and_then(|rule| rule.pattern.clone()),
            diff: diff.map(|diff| cut(&redacted(diff), self.scope.limits.tool_output_bytes).to_owned()),
            is_answerable: self.scope.approvals.is_none(),
        };
        let rule = match host {
            Some(_) => "with a rule in the `policy` of the host".to_owned(),
            None => format!("with --allow {tool}"),
        };
        let Approved { outcome, note } = self.port.approval(ask).await?;
        let said = note.as_ref().map(|note| format!("\n[the operator: {note}]"));
        let note = note.map(|note| format!(": {note}")).unwrap_or_default();
        match outcome {
            ApprovalOutcome::Allow => Ok(Ok(said)),
            ApprovalOutcome::Deny if self.scope.approvals == Some(Approvals::Deny) => denied(format!(
                "{tool}{on} {NOBODY_TO_ASK}; the operator can send with --yes, {rule}, or with --detach \
                 and use `ctx approve`"
            )),
            ApprovalOutcome::Deny => denied(format!("the operator denied {tool}{on}{note}; do without it")),
            ApprovalOutcome::Timeout | ApprovalOutcome::Interrupted => {
                denied(format!("nobody approved {tool}{on} in time; do without it, or ask again later"))
            }
        }
    }

    /// Output that is too large is kept whole as a blob; the model gets its beginning and is told so, and how it can read
    /// the rest.
    async fn fit(self, text: String, back: Option<CallId>) -> Result<(String, Option<BlobRef>), Stopped> {
        let bytes_max = self.scope.limits.tool_output_bytes;
        if text.len() <= bytes_max {
            return Ok((text, None));
        }
        let blob = self.port.store_blob(text.as_bytes().to_vec()).await?;
        let note = |shown: usize| match back {
            Some(call) => format!(
                "\n[output cut at {shown} of {} bytes; read on with {OUTPUT_READ}, call_id {call}, offset {shown}]",
                text.len()
            ),
            None => format!("\n[output cut: {} bytes in all, kept as blob {}]", text.len(), blob.sha256),
        };
        // The longest that the note can be is that of the whole.
        let mut preview = cut(&text, bytes_max.saturating_sub(note(text.len()).len())).to_owned();
        let note = note(preview.len());
        preview.push_str(&note);
        Ok((preview, Some(blob)))
    }
}

/// With what the operator said when they allowed it.
fn noted(mut output: Output, said: &str) -> Output {
    output.text.push_str(said);
    output
}

/// Planning looks at the disk, so it is done off the async threads.
async fn plan(tool: Arc<dyn Tool>, input: Value, scope: &Arc<Scope>) -> Result<Plan, ToolError> {
    let scope = Arc::clone(scope);
    match tokio::task::spawn_blocking(move || tool.plan(input, &scope)).await {
        Ok(plan) => plan,
        Err(error) => Err(ToolError::new(Code::Eio, format!("the tool stopped working: {error}"))),
    }
}
