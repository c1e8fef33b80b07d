//! Making a conversation shorter: how full the window is, and which whole exchanges could go. Pure.
//!
//! An exchange is a user's message and all that follows until the next one. The last one always stays (as
//! [`Ledger::last_exchange`](ctx_session::ledger::Ledger::last_exchange) has it), and so a tool call is never parted from
//! its result.

use std::collections::HashSet;
use std::sync::Arc;

use ctx_session::Ulid;
use ctx_session::conversation::{Message, Part, Role};
use ctx_session::estimate::{MESSAGE_TOKENS, message_tokens, part_tokens, tokens};

use crate::model::{Request, Turn};

/// The tokens that a request is taken for.
pub fn request_tokens(request: &Request) -> u64 {
    let turns = request.messages.iter().map(turn_tokens).sum::<u64>();
    tokens(&request.prompt) + tools_tokens(request) + turns
}

pub(super) fn tools_tokens(request: &Request) -> u64 {
    request.tools.iter().map(|tool| tokens(&tool.description) + tokens(&tool.schema.to_string())).sum()
}

fn turn_tokens(turn: &Turn) -> u64 {
    MESSAGE_TOKENS + turn.content.iter().map(part_tokens).sum::<u64>()
}

/// What can go.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Oldest first; a call and its result once.
    pub ids: Vec<Ulid>,
    pub messages: Vec<Arc<Message>>,
    /// What they are taken for.
    pub tokens: u64,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

/// The oldest whole exchanges that bring `used` down to `goal`, or as far as they can; what is pinned in them stays.
pub fn plan(messages: &[Arc<Message>], pinned: &HashSet<Ulid>, used: u64, goal: u64) -> Plan {
    let last = messages.iter().rposition(|message| message.role == Role::User).unwrap_or(messages.len());
    let mut plan = Plan::default();
    let mut rest = messages.get(..last).unwrap_or_default();
    while !rest.is_empty() && used.saturating_sub(plan.tokens) > goal {
        // What stands before the first user's message goes with it: notes, and summaries of earlier times.
        let begin =
            rest.iter().position(|message| message.role == Role::User).map_or(rest.len(), |at| at + 1);
        let more = rest.iter().skip(begin).position(|message| message.role == Role::User);
        let end = more.map_or(rest.len(), |at| begin + at);
        let (exchange, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        for message in exchange.iter().filter(|message| !pinned.contains(&message.id)) {
            plan.tokens += message_tokens(message);
            if !plan.ids.contains(&message.id) {
                plan.ids.push(message.id);
            }
            plan.messages.push(Arc::clone(message));
        }
        rest = after;
    }
    plan
}

/// What is to be summed up, as text for a model.
pub fn transcript(messages: &[Arc<Message>]) -> String {
    let mut text = String::new();
    for message in messages {
        let who = match message.role {
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Subagent => "subagent",
            Role::System => "system",
            Role::Tool => "tool",
        };
        for part in &message.content {
            let said = match part {
                Part::Text { text } | Part::ToolResult { text, .. } => text.clone(),
                Part::ToolCall { call_id, name, input } => {
                    format!("calls {name} with {input} (call_id {call_id})")
                }
            };
            text += &format!("{who}: {said}\n");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use ctx_session::record::ToolStatus;
    use ctx_session::{RunId, Timestamp};

    fn message(id: u128, role: Role, part: Part) -> Arc<Message> {
        let time = Timestamp::from_millis(0);
        Arc::new(Message {
            seq: id as u64,
            id: Ulid(id),
            run: RunId(Ulid(1)),
            role,
            content: vec![part],
            time,
        })
    }

    fn text(id: u128, role: Role, chars: usize) -> Arc<Message> {
        message(id, role, Part::Text { text: "x".repeat(chars) })
    }

    /// Three exchanges of 100 tokens each way, the second with a tool call.
    fn conversation() -> Vec<Arc<Message>> {
        let call =
            Part::ToolCall { call_id: Ulid(4), name: "fs.read".to_owned(), input: serde_json::json!({}) };
        let result = Part::ToolResult { call_id: Ulid(4), status: ToolStatus::Ok, text: "y".repeat(400) };
        vec![
            text(1, Role::User, 400),
            text(2, Role::Assistant, 400),
            text(3, Role::User, 400),
            message(4, Role::Assistant, call),
            message(4, Role::Tool, result),
            text(5, Role::Assistant, 400),
            text(6, Role::User, 400),
        ]
    }

    /// Nothing is pinned.
    fn free() -> HashSet<Ulid> {
        HashSet::new()
    }

    #[test]
    fn what_is_pinned_stays_and_more_goes_instead() {
        let messages = conversation();
        let used = messages.iter().map(|message| message_tokens(message)).sum();
        let pinned = HashSet::from([Ulid(1), Ulid(4)]);
        assert_eq!(ids(&plan(&messages, &pinned, used, used - 1)), [2]);
        assert_eq!(
            ids(&plan(&messages, &pinned, used, used - 150)),
            [2, 3, 5],
            "a call stays with its result"
        );
        let all = messages.iter().map(|message| message.id).collect();
        assert!(plan(&messages, &all, used, 0).is_empty());
    }

    fn ids(plan: &Plan) -> Vec<u128> {
        plan.ids.iter().map(|id| id.0).collect()
    }

    #[test]
    fn oldest_whole_exchanges_go_until_the_goal_is_reached() {
        let messages = conversation();
        let used = messages.iter().map(|message| message_tokens(message)).sum();
        assert_eq!(ids(&plan(&messages, &free(), used, used)), [0; 0], "nothing has to go");
        assert_eq!(ids(&plan(&messages, &free(), used, used - 1)), [1, 2]);
        assert_eq!(
            ids(&plan(&messages, &free(), used, used - 300)),
            [1, 2, 3, 4, 5],
            "a call goes with its result"
        );
    }

    #[test]
    fn the_last_exchange_stays_whatever_the_goal() {
        let messages = conversation();
        assert_eq!(ids(&plan(&messages, &free(), 10_000, 0)), [1, 2, 3, 4, 5]);
        assert!(plan(&messages[6..], &free(), 10_000, 0).is_empty());
        assert!(plan(&[], &free(), 10_000, 0).is_empty());
    }

    #[test]
    fn a_summary_at_the_front_goes_with_the_exchange_after_it() {
        let mut messages = conversation();
        messages.insert(0, text(9, Role::System, 40));
        assert_eq!(ids(&plan(&messages, &free(), 1_000, 999)), [9, 1, 2]);
    }
}
