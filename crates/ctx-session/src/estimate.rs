//! How much of a model's window a text is taken for. An estimate: providers count each in their own way.
//!
//! One place for it, so that what a compaction is said to have saved means the same to the agent loop that makes it, to
//! the rules that let an edited one take effect, and to whoever reads the record.

use serde_json::Value;

/// What a message costs besides its text.
pub const MESSAGE_TOKENS: u64 = 4;

/// How many tokens a text is taken for: one for four characters begun, so that anyone can check it by hand.
pub fn tokens(text: &str) -> u64 {
    (text.chars().count() as u64).div_ceil(4)
}

pub(crate) fn call_tokens(name: &str, input: &Value) -> u64 {
    tokens(name) + tokens(&input.to_string())
}

/// A share of the window, in four digits: it is shown to people and kept in the log.
pub fn share(tokens: u64, window: u64) -> f64 {
    (tokens as f64 / window.max(1) as f64 * 10_000.0).round() / 10_000.0
}

/// What is left of `used` tokens when so many go and a summary takes their place.
pub fn left(used: u64, gone: u64, summary: Option<&str>) -> u64 {
    used.saturating_sub(gone).saturating_add(summary.map_or(0, tokens))
}
