//! The context pack: the conversation as a model is shown it.
//!
//! Neighbouring pieces of one speaker become one turn, and every tool call has its result right after it: providers
//! refuse a request where one stands without the other.

use ctx_session::conversation::{Message, Part, Role};
use ctx_session::record::ToolStatus;
use ctx_session::{CallId, Ulid};

use crate::model::{ToolCall, Turn};

/// A tool call that is settled: what was asked, and what came of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Settled {
    pub call_id: CallId,
    pub call: ToolCall,
    pub status: ToolStatus,
    pub output: String,
}

/// The turns of a conversation, as they are in the log or as the loop has them: both give the same.
pub fn pack(messages: &[Message]) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    // Calls whose result has not come yet.
    let mut open: Vec<Ulid> = Vec::new();
    for message in messages {
        for part in &message.content {
            match part {
                Part::ToolCall { call_id, .. } => open.push(*call_id),
                // A result without its call says nothing to a model.
                Part::ToolResult { call_id, .. } if !open.contains(call_id) => continue,
                Part::ToolResult { call_id, .. } => open.retain(|id| id != call_id),
                Part::Text { .. } => close(&mut turns, &mut open),
            }
            push(&mut turns, message.role, part.clone());
        }
    }
    close(&mut turns, &mut open);
    turns
}

/// Adds a finished step: what the model said, its calls, their results.
pub fn extend(turns: &mut Vec<Turn>, text: &str, settled: Vec<Settled>) {
    if !text.is_empty() {
        push(turns, Role::Assistant, Part::Text { text: text.to_owned() });
    }
    let mut results = Vec::with_capacity(settled.len());
    for Settled { call_id, call, status, output } in settled {
        let call_id = call_id.0;
        push(turns, Role::Assistant, Part::ToolCall { call_id, name: call.name, input: call.input });
        results.push(Part::ToolResult { call_id, status, text: output });
    }
    for result in results {
        push(turns, Role::Tool, result);
    }
}

/// Whether the last thing in the conversation is what a tool gave.
pub fn ends_with_results(turns: &[Turn]) -> bool {
    turns.last().is_some_and(|turn| turn.role == Role::Tool)
}

/// One speaker's neighbouring pieces are one turn; two messages of a user stay two.
fn push(turns: &mut Vec<Turn>, role: Role, part: Part) {
    match turns.last_mut() {
        Some(last) if last.role == role && matches!(role, Role::Assistant | Role::Tool) => {
            last.content.push(part)
        }
        Some(_) | None => turns.push(Turn { role, content: vec![part] }),
    }
}

/// Gives calls that never came to a result one that says so.
fn close(turns: &mut Vec<Turn>, open: &mut Vec<Ulid>) {
    for call_id in open.drain(..) {
        let text = "the run ended before this tool did".to_owned();
        push(turns, Role::Tool, Part::ToolResult { call_id, status: ToolStatus::Interrupted, text });
    }
}
