//! A worker that does what the message says: `hold` goes on until it is stopped, `ask` makes a call that needs an approval and
//! shows what came of it; anything else it repeats.

use std::sync::Arc;

use ctx_engine::port::{Job, Prepare, Prepared, Worker};
use ctx_session::command::{ApprovalAsk, FinishedTool, Outcome, Progress, RunContext, StartedTool};
use ctx_session::conversation::Role;
use ctx_session::port::{RunPort, Stopped};
use ctx_session::record::{CancelReason, FinishReason, ToolStatus};
use ctx_session::{CallId, MessageId, Name, Refusal};
use futures_util::future::BoxFuture;
use serde_json::json;
use tokio_util::sync::CancellationToken;

const MODEL: &str = "test/hands";

pub struct Hands;

impl Worker for Hands {
    fn prepare(&self, ask: &Prepare) -> Result<Prepared, Refusal> {
        if let Some(model) = ask.model_override.as_deref().filter(|model| *model != MODEL) {
            return Err(Refusal::invalid("model_override", format!("unknown model {model}")));
        }
        let context = RunContext {
            model: MODEL.to_owned(),
            cwd: ask.cwd.clone().unwrap_or_else(|| "/work".to_owned()),
            policy: Vec::new(),
            cage: None,
            sources: Vec::new(),
            prompts: Vec::new(),
            redact: None,
            approvals: None,
        };
        let project = Name::new("default").unwrap();
        Ok(Prepared {
            project,
            context,
            prompts: Vec::new(),
            delegates: false,
            workspace: None,
            handle: Arc::new(()),
        })
    }

    fn run(&self, _: Job, port: Arc<dyn RunPort>, stop: CancellationToken) -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            let stopped = Outcome::Cancelled { reason: CancelReason::Operator, by: None };
            let Ok(step) = port.step().await else { return stopped };
            let asked = step.messages.iter().rfind(|message| message.role == Role::User);
            let text = asked.map(|message| message.text()).unwrap_or_default();
            let done = match text.as_str() {
                "hold" => {
                    stop.cancelled().await;
                    return stopped;
                }
                "ask" => call(&*port).await,
                text => say(&*port, text, FinishReason::Stop).await,
            };
            done.map_or(stopped, |()| Outcome::Done)
        })
    }
}

async fn say(port: &dyn RunPort, text: &str, finish_reason: FinishReason) -> Result<(), Stopped> {
    let message_id = MessageId(port.new_id());
    port.progress(Progress::AssistantStarted { message_id, model: MODEL.to_owned(), step: 1 }).await?;
    let text = text.to_owned();
    port.progress(Progress::AssistantFinished { message_id, text, finish_reason, usage: None }).await
}

async fn call(port: &dyn RunPort) -> Result<(), Stopped> {
    say(port, "", FinishReason::ToolCalls).await?;
    let call_id = CallId(port.new_id());
    let name = "fs.read".to_owned();
    let input = json!({ "path": "/work/note.txt" });
    let tool = StartedTool { call_id, provider_call_id: None, name: name.clone(), input, provider: None };
    port.progress(Progress::ToolsStarted(vec![tool])).await?;
    let ask = ApprovalAsk {
        call: call_id,
        tool: name,
        subject: Some("/work/note.txt".to_owned()),
        pattern: None,
        diff: None,
        is_answerable: true,
    };
    let approved = port.approval(ask).await?;
    let finished = FinishedTool::new(call_id, ToolStatus::Ok, 1, approved.outcome.as_str());
    port.progress(Progress::ToolFinished(Box::new(finished))).await?;
    say(port, "all done", FinishReason::Stop).await
}
