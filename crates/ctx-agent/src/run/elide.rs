//! Large output of old tool calls, shown as a reference that the agent can read back. Pure.
//!
//! The call and the fact that it gave something stay in the conversation; its text is a line that says how much stood there
//! and how to read it again. Which calls that holds for is in the log: a compaction names them.

use std::collections::HashSet;
use std::sync::Arc;

use ctx_session::conversation::{Message, Part, reference};
use ctx_session::estimate::tokens;
use ctx_session::{CallId, Ulid};

/// Output that is taken for more than this is large: a reference costs a tenth of it.
const LARGE_TOKENS: u64 = 256;

/// The conversation as the model is shown it.
pub(super) fn shown(messages: Vec<Arc<Message>>, elided: &HashSet<Ulid>) -> Vec<Arc<Message>> {
    if elided.is_empty() {
        return messages;
    }
    let show = |message: Arc<Message>| match refer(&message) {
        Some(content) if elided.contains(&message.id) => {
            Arc::new(Message { content, ..Message::clone(&message) })
        }
        Some(_) | None => message,
    };
    messages.into_iter().map(show).collect()
}

/// A result with references in place of its text; None where the message is no result.
fn refer(message: &Message) -> Option<Vec<Part>> {
    let refer = |part: &Part| match part {
        Part::ToolResult { call_id, status, text } => Some(Part::ToolResult {
            call_id: *call_id,
            status: *status,
            text: reference(*call_id, text.len()),
        }),
        Part::Text { .. } | Part::Image(_) | Part::ToolCall { .. } => None,
    };
    message.content.iter().map(refer).collect()
}

/// Output that could be elided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Elidable {
    pub call: CallId,
    /// Tokens that the reference saves.
    pub saves: u64,
}

/// The large output in these messages that is not pinned, oldest first.
pub(super) fn elidable<'a>(
    messages: &'a [Arc<Message>],
    pinned: &'a HashSet<Ulid>,
) -> impl Iterator<Item = Elidable> + 'a {
    let parts = messages.iter().filter(|message| !pinned.contains(&message.id)).flat_map(|m| &m.content);
    parts.filter_map(|part| match part {
        Part::ToolResult { call_id, text, .. } => {
            let whole = tokens(text);
            let saves = whole.saturating_sub(tokens(&reference(*call_id, text.len())));
            (whole > LARGE_TOKENS).then_some(Elidable { call: CallId(*call_id), saves })
        }
        Part::Text { .. } | Part::Image(_) | Part::ToolCall { .. } => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tool::output::OUTPUT_READ;

    #[test]
    fn a_reference_names_the_tool_that_reads_it_back_and_is_short() {
        let said = reference(Ulid(u128::MAX), usize::MAX);
        assert!(said.contains(OUTPUT_READ) && said.contains(&Ulid(u128::MAX).to_string()), "{said}");
        assert!(tokens(&said) < LARGE_TOKENS / 4, "{said}");
    }
}
