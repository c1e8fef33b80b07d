//! One model call: ask, ask again at a rate limit, and pass on what comes.

use std::time::Duration;

use ctx_session::command::Progress;
use ctx_session::model_name::in_api;
use ctx_session::record::{FinishReason, Usage};
use ctx_session::{Limits, MessageId};

use crate::cut;
use crate::model::{Event, Finish, Model, ModelError, Request, ToolCall};
use ctx_session::port::Stopped;
use ctx_session::port::{DeltaKind, Retry, RunPort};

/// What a model said in one call.
#[derive(Debug, Default)]
pub(super) struct Said {
    pub text: String,
    pub calls: Vec<ToolCall>,
    /// What the provider counted, if it did.
    pub usage: Option<Usage>,
    /// What is to be recorded of an answer with calls: it is written with the calls, at once.
    pub unrecorded: Vec<Progress>,
}

impl Said {
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.calls.is_empty()
    }
}

/// Calls the model, from the attempt that the request names on, over as many as the limits allow.
pub(super) async fn call(
    model: &dyn Model,
    request: &mut Request,
    step: u32,
    limits: &Limits,
    port: &dyn RunPort,
) -> Result<Said, CallError> {
    loop {
        let mut telling = Telling::new(port, request, step, limits.answer_bytes);
        let error = match telling.listen(model, request).await? {
            Ok(said) => return Ok(said),
            Err(error) => error,
        };
        // What was shown cannot be taken back, so only a call that said nothing is made again.
        if telling.message.is_none() && tries_again(&error, request, limits, port).await? {
            continue;
        }
        // What was shown is in the log before the model is asked again with less, and so is what was paid for.
        if matches!(error, ModelError::Overflow { .. }) || telling.usage.is_some() {
            telling.cut_off().await?;
        }
        return Err(CallError::Model(error));
    }
}

/// Whether a call that failed so is made once more: says so, waits as long as that takes, and counts the attempt.
pub(super) async fn tries_again(
    error: &ModelError,
    request: &mut Request,
    limits: &Limits,
    port: &dyn RunPort,
) -> Result<bool, Stopped> {
    let (attempt, attempts_max) = (request.attempt, limits.model_attempts.max(1));
    let Some(wait) = backoff(error, attempt, limits).filter(|_| attempt < attempts_max) else {
        return Ok(false);
    };
    let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
    let (code, reason, message) = (error.code(), error.reason().to_owned(), error.to_string());
    let retry = Retry { code, reason, message, attempt, attempts_max, wait_ms };
    port.progress(Progress::Retrying(retry)).await?;
    tokio::time::sleep(wait).await;
    // A paused session calls no model: this waits, or ends, until it is resumed.
    port.step().await?;
    request.attempt = attempt + 1;
    Ok(true)
}

/// Why a call came to nothing.
#[derive(Debug)]
pub(super) enum CallError {
    Model(ModelError),
    Stopped,
}

impl From<Stopped> for CallError {
    fn from(_: Stopped) -> CallError {
        CallError::Stopped
    }
}

/// How long to wait before the next attempt; `None` for errors that asking again does not mend.
fn backoff(error: &ModelError, attempt: u32, limits: &Limits) -> Option<Duration> {
    let max = Duration::from_millis(limits.model_retry_max_ms);
    match error {
        ModelError::RateLimit { retry_after, .. } | ModelError::Unavailable { retry_after, .. } => {
            let doubled = limits.model_retry_ms.saturating_mul(1 << (attempt - 1).min(20));
            let usual = Duration::from_millis(doubled).min(max);
            // Who asks for a longer wait than ours would refuse again.
            Some(retry_after.unwrap_or(usual)).filter(|wait| *wait <= max)
        }
        ModelError::Unreachable { .. }
        | ModelError::NoKey { .. }
        | ModelError::KeyRejected { .. }
        | ModelError::NoSuchModel { .. }
        | ModelError::NoQuota { .. }
        | ModelError::Protocol { .. }
        | ModelError::Refused { .. }
        | ModelError::Late { .. }
        | ModelError::Overflow { .. }
        | ModelError::BrokenStream { .. }
        | ModelError::Empty { .. }
        | ModelError::BadRequest { .. }
        | ModelError::BadSetup { .. } => None,
    }
}

/// What an event of an answer comes to.
enum Heard {
    More,
    End(Finish),
    Failed(ModelError),
}

/// Passes an answer on while it comes.
struct Telling<'a> {
    port: &'a dyn RunPort,
    model: String,
    step: u32,
    answer_bytes_max: usize,
    /// The message's id, once it has begun.
    message: Option<MessageId>,
    said: Said,
    calls_bytes: usize,
    reasoning: String,
    usage: Option<Usage>,
}

impl<'a> Telling<'a> {
    fn new(port: &'a dyn RunPort, request: &Request, step: u32, answer_bytes_max: usize) -> Telling<'a> {
        Telling {
            port,
            model: request.model.clone(),
            step,
            answer_bytes_max,
            message: None,
            said: Said::default(),
            calls_bytes: 0,
            reasoning: String::new(),
            usage: None,
        }
    }

    /// Hears an answer to its end. The outer error ends the run, the inner one is the model's.
    async fn listen(
        &mut self,
        model: &dyn Model,
        request: &Request,
    ) -> Result<Result<Said, ModelError>, Stopped> {
        let mut answer = match model.call(request.clone()).await {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error)),
        };
        loop {
            // A model and a listener that are always ready must not keep a stop from being seen.
            tokio::task::consume_budget().await;
            let heard = match answer.next().await {
                Ok(Some(event)) => self.hear(event).await?,
                Ok(None) => self.broke_off("it ended in the middle".to_owned()),
                Err(error) => Heard::Failed(error),
            };
            match heard {
                Heard::More => {}
                Heard::End(finish) => return Ok(Ok(self.finish(finish).await?)),
                Heard::Failed(error) => {
                    if !self.said.calls.is_empty() {
                        self.begin().await?;
                    }
                    self.keep_reasoning().await?;
                    return Ok(Err(error));
                }
            }
        }
    }

    fn broke_off(&self, detail: String) -> Heard {
        Heard::Failed(ModelError::BrokenStream { model: in_api(&self.model), detail })
    }

    /// Takes an event. Reasoning beyond the limit is dropped and the answer goes on; calls beyond it end the answer, because half a call cannot
    /// be made.
    async fn hear(&mut self, event: Event) -> Result<Heard, Stopped> {
        match event {
            Event::Text(text) => return self.hear_text(text).await,
            Event::Reasoning(text) => {
                let room = self.answer_bytes_max.saturating_sub(self.reasoning.len());
                let text = cut(&text, room).to_owned();
                if !text.is_empty() {
                    let message = self.begin().await?;
                    self.reasoning.push_str(&text);
                    self.port.delta(message, DeltaKind::Reasoning, text).await?;
                }
            }
            Event::ToolCall(call) => {
                self.calls_bytes =
                    self.calls_bytes.saturating_add(call.name.len() + call.input.to_string().len());
                self.said.calls.push(call);
                if self.calls_bytes > self.answer_bytes_max {
                    let max = self.answer_bytes_max;
                    return Ok(self.broke_off(format!("its tool calls have more than {max} bytes")));
                }
            }
            Event::Usage(usage) => self.usage = Some(self.usage.unwrap_or_default().plus(usage)),
            Event::Finish(finish) => return Ok(Heard::End(finish)),
        }
        Ok(Heard::More)
    }

    /// An answer beyond the limit ends here, as if the model had come to its own.
    async fn hear_text(&mut self, text: String) -> Result<Heard, Stopped> {
        if text.is_empty() {
            return Ok(Heard::More);
        }
        let room = self.answer_bytes_max.saturating_sub(self.said.text.len());
        let kept = cut(&text, room);
        let message = self.begin().await?;
        if !kept.is_empty() {
            self.said.text.push_str(kept);
            self.port.delta(message, DeltaKind::Text, kept.to_owned()).await?;
        }
        if kept.len() < text.len() { Ok(Heard::End(Finish::Length)) } else { Ok(Heard::More) }
    }

    /// The message begins with the first thing that is shown. Calls are not, until the answer is whole.
    async fn begin(&mut self) -> Result<MessageId, Stopped> {
        let (message_id, begun) = self.begun();
        if let Some(begun) = begun {
            self.port.progress(begun).await?;
        }
        Ok(message_id)
    }

    /// The message's id, and what is to be recorded of its beginning where that is not.
    fn begun(&mut self) -> (MessageId, Option<Progress>) {
        if let Some(message_id) = self.message {
            return (message_id, None);
        }
        let message_id = MessageId(self.port.new_id());
        self.message = Some(message_id);
        let (model, step) = (self.model.clone(), self.step);
        (message_id, Some(Progress::AssistantStarted { message_id, model, step }))
    }

    /// Ends the message. Whether the reason is `stop` or `tool_calls` follows from what the answer holds, because some servers name the wrong one.
    async fn finish(&mut self, finish: Finish) -> Result<Said, Stopped> {
        let mut said = std::mem::take(&mut self.said);
        said.usage = self.usage;
        // What was paid for is recorded, also when nothing was said; an answer that never began has nothing to record, and the
        // loop knows what to make of it.
        if self.message.is_none() && said.usage.is_none() && said.calls.is_empty() {
            return Ok(said);
        }
        let (message_id, begun) = self.begun();
        let finish_reason = match finish {
            Finish::Stop | Finish::ToolCalls if !said.calls.is_empty() => FinishReason::ToolCalls,
            Finish::ToolCalls => FinishReason::Stop,
            Finish::Stop | Finish::Length => finish.reason(),
        };
        let (text, usage) = (said.text.clone(), self.usage);
        let finished = Progress::AssistantFinished { message_id, text, finish_reason, usage };
        let all = begun.into_iter().chain(self.reasoned()).chain([finished]).collect();
        if said.calls.is_empty() {
            self.port.progress(Progress::together(all)).await?;
        } else {
            said.unrecorded = all;
        }
        Ok(said)
    }

    /// Ends a message that the model did not.
    async fn cut_off(&mut self) -> Result<(), Stopped> {
        let Some(message_id) = self.message.take() else { return Ok(()) };
        let Said { text, .. } = std::mem::take(&mut self.said);
        let (finish_reason, usage) = (FinishReason::Error, self.usage);
        self.port.progress(Progress::AssistantFinished { message_id, text, finish_reason, usage }).await
    }

    /// Reasoning is kept also when the answer after it broke off.
    async fn keep_reasoning(&mut self) -> Result<(), Stopped> {
        match self.reasoned() {
            Some(reasoned) => self.port.progress(reasoned).await,
            None => Ok(()),
        }
    }

    fn reasoned(&mut self) -> Option<Progress> {
        let message_id = self.message.filter(|_| !self.reasoning.is_empty())?;
        let text = std::mem::take(&mut self.reasoning);
        Some(Progress::ReasoningFinished { message_id, text })
    }
}
