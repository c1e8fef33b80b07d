//! The context pack: the conversation as a model is shown it.
//!
//! Neighbouring pieces of one speaker become one turn, and every tool call has its result right after it: providers
//! refuse a request where one stands without the other.

use std::collections::HashMap;
use std::sync::Arc;

use ctx_session::Ulid;
use ctx_session::conversation::{Message, Part, Role};
use ctx_session::record::ToolStatus;

use crate::model::Turn;
use crate::tool::todo::TODO;

/// A conversation in the order in which it is sent: what a call gave stands right after the calls of its answer, whatever
/// the log has between them (a notice at a resume, a summary of a neighbour). A result without its call is left out.
pub fn in_order(messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let mut results: HashMap<Ulid, &Arc<Message>> = HashMap::new();
    for message in messages.iter().filter(|message| message.role == Role::Tool) {
        results.entry(message.id).or_insert(message);
    }
    let mut ordered = Vec::with_capacity(messages.len());
    let mut open: Vec<Ulid> = Vec::new();
    let settle = |open: &mut Vec<Ulid>, ordered: &mut Vec<Arc<Message>>| {
        ordered.extend(open.drain(..).filter_map(|call| results.get(&call)).map(|result| Arc::clone(result)));
    };
    for message in messages {
        let is_call = message.content.iter().any(|part| matches!(part, Part::ToolCall { .. }));
        match message.role {
            // Either it is the first of an answer's, and all of them come now, or it stands already.
            Role::Tool if open.contains(&message.id) => settle(&mut open, &mut ordered),
            Role::Tool => {}
            Role::Assistant if is_call => {
                open.push(message.id);
                ordered.push(Arc::clone(message));
            }
            Role::User | Role::Assistant | Role::Subagent | Role::System => {
                settle(&mut open, &mut ordered);
                ordered.push(Arc::clone(message));
            }
        }
    }
    settle(&mut open, &mut ordered);
    ordered
}

/// A conversation without the answers that were cut off and are given anew: in the log, and to whoever reads along, they
/// stay. An answer that made no calls is its run's last; where another one follows it, it was cut off. `is_asked`: the model
/// is about to be asked for an answer, and so what the conversation ends with was none.
pub fn without_cut_off(messages: Vec<Arc<Message>>, is_asked: bool) -> Vec<Arc<Message>> {
    let is_text = |message: &Message| {
        message.role == Role::Assistant
            && message.content.iter().all(|part| matches!(part, Part::Text { .. }))
    };
    let mut kept: Vec<Arc<Message>> = Vec::with_capacity(messages.len());
    // What follows, notices aside.
    let mut next: Option<Arc<Message>> = None;
    for message in messages.into_iter().rev() {
        let is_cut_off = is_text(&message)
            && next.as_ref().map_or(is_asked, |next| is_text(next) && next.run == message.run);
        if !is_cut_off {
            if message.role != Role::System {
                next = Some(Arc::clone(&message));
            }
            kept.push(message);
        }
    }
    kept.reverse();
    kept
}

/// The turns of a conversation that is [in order](in_order).
pub fn pack(messages: &[Arc<Message>]) -> Vec<Turn> {
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
                Part::Text { .. } | Part::Image(_) => close(&mut turns, &mut open),
            }
            push(&mut turns, message.role, part.clone());
        }
    }
    close(&mut turns, &mut open);
    turns
}

/// Whether the last thing in the conversation is what a tool gave, notices aside.
pub fn ends_with_results(turns: &[Turn]) -> bool {
    let last = turns.iter().rev().find(|turn| turn.role != Role::System);
    last.is_some_and(|turn| turn.role == Role::Tool)
}

/// The reminder of open todos: it goes to the model and is stored nowhere. Not when the step before was about them.
pub fn reminder(todos: &[String], turns: &[Turn]) -> Option<Turn> {
    if todos.is_empty() || ends_with_todo(turns) {
        return None;
    }
    let mut text = "Open todos of the bound issue; keep them up to date with the todo tool:".to_owned();
    for todo in todos {
        text += &format!("\n{todo}");
    }
    Some(Turn { role: Role::System, content: vec![Part::Text { text }] })
}

/// Whether the step before made a todo call.
fn ends_with_todo(turns: &[Turn]) -> bool {
    let mut last = turns.iter().rev();
    let (Some(results), Some(calls)) = (last.next(), last.next()) else { return false };
    let is_todo = |part: &Part| matches!(part, Part::ToolCall { name, .. } if name == TODO);
    results.role == Role::Tool && calls.content.iter().any(is_todo)
}

/// One speaker's neighbouring pieces are one turn; two messages of a user stay two.
fn push(turns: &mut Vec<Turn>, role: Role, part: Part) {
    match turns.last_mut() {
        Some(last)
            if last.role == role
                && (matches!(role, Role::Assistant | Role::Tool) || matches!(part, Part::Image(_))) =>
        {
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
