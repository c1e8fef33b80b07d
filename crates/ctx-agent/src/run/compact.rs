//! Making a conversation shorter: how full the window is, which tool output could be shown as a reference, and which whole
//! exchanges could go. Pure.
//!
//! An exchange is a user's message and all that follows until the next one. The last one always stays (as
//! [`Ledger::last_exchange`](ctx_session::ledger::Ledger::last_exchange) has it), and so a tool call is never parted from
//! its result.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ctx_session::conversation::{Message, Part, Role, message_tokens, part_tokens};
use ctx_session::estimate::{MESSAGE_TOKENS, tokens};
use ctx_session::{CallId, Ulid};

use super::elide::elidable;
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

/// What can be made shorter.
#[derive(Debug, Clone, Copy)]
pub struct Talk<'a> {
    /// As the model is shown them.
    pub messages: &'a [Arc<Message>],
    /// What stays as it is.
    pub pinned: &'a HashSet<Ulid>,
    /// Whether the agent can read output back: only then may it be elided.
    pub reads_back: bool,
}

/// What can go.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Plan {
    /// Oldest first; a call and its result once.
    pub ids: Vec<Ulid>,
    pub messages: Vec<Arc<Message>>,
    /// What they are taken for.
    pub tokens: u64,
    /// Calls that stay and whose output is shown as a reference, oldest first.
    pub elided: Vec<CallId>,
    /// What that saves.
    pub saved: u64,
    /// There was more that could go than one record names.
    pub is_cut: bool,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.elided.is_empty()
    }

    /// By how much the request becomes shorter.
    pub fn gain(&self) -> u64 {
        self.tokens.saturating_add(self.saved)
    }
}

/// The most messages that one compaction takes: its record names them all, and a record has a limit.
const MESSAGES_MAX: usize = 100_000;

/// What brings `used` down to `goal`, or as far as can be: large output first, oldest first, shown as a reference; where
/// that is not enough, the oldest whole exchanges. What is pinned stays as it is.
pub fn plan(talk: &Talk<'_>, used: u64, goal: u64) -> Plan {
    let messages = talk.messages;
    let last = messages.iter().rposition(|message| message.role == Role::User).unwrap_or(messages.len());
    let old = messages.get(..last).unwrap_or_default();
    let mut plan = elide(talk, old, used, goal);
    drop_exchanges(&mut plan, old, talk.pinned, used, goal);
    plan
}

fn elide(talk: &Talk<'_>, old: &[Arc<Message>], used: u64, goal: u64) -> Plan {
    let mut plan = Plan::default();
    if !talk.reads_back {
        return plan;
    }
    for output in elidable(old, talk.pinned) {
        if used.saturating_sub(plan.saved) <= goal {
            break;
        }
        plan.elided.push(output.call);
        plan.saved += output.saves;
    }
    plan
}

/// Drops whole exchanges, oldest first. The limits are checked between exchanges only, so that a call keeps its result.
fn drop_exchanges(plan: &mut Plan, old: &[Arc<Message>], pinned: &HashSet<Ulid>, used: u64, goal: u64) {
    let saves: HashMap<CallId, u64> =
        elidable(old, pinned).map(|output| (output.call, output.saves)).collect();
    let mut gone: HashSet<Ulid> = HashSet::new();
    let mut rest = old;
    while !rest.is_empty() && used.saturating_sub(plan.gain()) > goal {
        if gone.len() >= MESSAGES_MAX {
            plan.is_cut = true;
            break;
        }
        // What stands before the first user's message goes with it: notes, and summaries of earlier times.
        let begin =
            rest.iter().position(|message| message.role == Role::User).map_or(rest.len(), |at| at + 1);
        let more = rest.iter().skip(begin).position(|message| message.role == Role::User);
        let end = more.map_or(rest.len(), |at| begin + at);
        let (exchange, after) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        for message in exchange.iter().filter(|message| !pinned.contains(&message.id)) {
            plan.tokens += message_tokens(message);
            if gone.insert(message.id) {
                plan.ids.push(message.id);
            }
            plan.messages.push(Arc::clone(message));
        }
        // What goes needs no reference.
        let unneeded = plan.elided.extract_if(.., |call| gone.contains(&call.0));
        plan.saved -= unneeded.filter_map(|call| saves.get(&call)).sum::<u64>();
        rest = after;
    }
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
                Part::Image(image) => image.in_words(),
                Part::ToolCall { call_id, name, input, provider: _ } => {
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
            caller: None,
        })
    }

    fn text(id: u128, role: Role, chars: usize) -> Arc<Message> {
        message(id, role, Part::Text { text: "x".repeat(chars) })
    }

    /// Three exchanges of 100 tokens each way, the second with a tool call.
    fn conversation() -> Vec<Arc<Message>> {
        let call = Part::ToolCall {
            call_id: Ulid(4),
            name: "fs.read".to_owned(),
            input: serde_json::json!({}),
            provider: None,
        };
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

    /// For an agent that reads nothing back.
    fn of(messages: &[Arc<Message>], pinned: &HashSet<Ulid>, used: u64, goal: u64) -> Plan {
        plan(&Talk { messages, pinned, reads_back: false }, used, goal)
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
        assert_eq!(ids(&of(&messages, &pinned, used, used - 1)), [2]);
        assert_eq!(ids(&of(&messages, &pinned, used, used - 150)), [2, 3, 5], "a call stays with its result");
        let all = messages.iter().map(|message| message.id).collect();
        assert!(of(&messages, &all, used, 0).is_empty());
    }

    fn ids(plan: &Plan) -> Vec<u128> {
        plan.ids.iter().map(|id| id.0).collect()
    }

    #[test]
    fn oldest_whole_exchanges_go_until_the_goal_is_reached() {
        let messages = conversation();
        let used = messages.iter().map(|message| message_tokens(message)).sum();
        assert_eq!(ids(&of(&messages, &free(), used, used)), [0; 0], "nothing has to go");
        assert_eq!(ids(&of(&messages, &free(), used, used - 1)), [1, 2]);
        assert_eq!(
            ids(&of(&messages, &free(), used, used - 300)),
            [1, 2, 3, 4, 5],
            "a call goes with its result"
        );
    }

    #[test]
    fn the_last_exchange_stays_whatever_the_goal() {
        let messages = conversation();
        assert_eq!(ids(&of(&messages, &free(), 10_000, 0)), [1, 2, 3, 4, 5]);
        assert!(of(&messages[6..], &free(), 10_000, 0).is_empty());
        assert!(of(&[], &free(), 10_000, 0).is_empty());
    }

    #[test]
    fn a_summary_at_the_front_goes_with_the_exchange_after_it() {
        let mut messages = conversation();
        messages.insert(0, text(9, Role::System, 40));
        assert_eq!(ids(&of(&messages, &free(), 1_000, 999)), [9, 1, 2]);
    }

    /// Two exchanges with a call each that gave much, and a third.
    fn with_output() -> Vec<Arc<Message>> {
        let call = |id: u128| Part::ToolCall {
            call_id: Ulid(id),
            name: "fs.read".to_owned(),
            input: serde_json::json!({}),
            provider: None,
        };
        let result = |id: u128| Part::ToolResult {
            call_id: Ulid(id),
            status: ToolStatus::Ok,
            text: "y".repeat(4_000),
        };
        vec![
            text(1, Role::User, 400),
            message(2, Role::Assistant, call(2)),
            message(2, Role::Tool, result(2)),
            text(3, Role::User, 400),
            message(4, Role::Assistant, call(4)),
            message(4, Role::Tool, result(4)),
            text(5, Role::User, 400),
            message(6, Role::Assistant, call(6)),
            message(6, Role::Tool, result(6)),
        ]
    }

    fn reading(messages: &[Arc<Message>], pinned: &HashSet<Ulid>, less: u64) -> (Vec<u128>, Vec<u128>) {
        let used: u64 = messages.iter().map(|message| message_tokens(message)).sum();
        let made = plan(&Talk { messages, pinned, reads_back: true }, used, used - less);
        let after = crate::run::elide::shown(messages.to_vec(), &made.elided.iter().map(|c| c.0).collect());
        let kept = after.iter().filter(|message| !made.ids.contains(&message.id));
        let left: u64 = kept.map(|message| message_tokens(message)).sum();
        assert_eq!(left, used - made.gain(), "what is said to be gained is");
        (made.elided.iter().map(|call| call.0.0).collect(), ids(&made))
    }

    #[test]
    fn large_output_becomes_a_reference_before_an_exchange_goes() {
        let messages = with_output();
        assert_eq!(reading(&messages, &free(), 0), (vec![], vec![]), "nothing has to go");
        assert_eq!(reading(&messages, &free(), 1), (vec![2], vec![]), "the oldest first");
        assert_eq!(reading(&messages, &free(), 1_000), (vec![2, 4], vec![]));
        assert_eq!(
            reading(&messages, &free(), 2_000),
            (vec![4], vec![1, 2]),
            "then exchanges go, and what went needs no reference"
        );
        assert_eq!(reading(&messages, &free(), 3_000), (vec![], vec![1, 2, 3, 4]), "the last one stays");
        assert_eq!(reading(&messages, &HashSet::from([Ulid(2)]), 1), (vec![4], vec![]), "a pin keeps output");
    }

    #[test]
    fn small_output_and_what_cannot_be_read_back_is_no_reference() {
        let messages = conversation();
        assert_eq!(reading(&messages, &free(), 1), (vec![], vec![1, 2]));
        let messages = with_output();
        let used = messages.iter().map(|message| message_tokens(message)).sum();
        assert!(of(&messages, &free(), used, used - 1).elided.is_empty());
    }
}
