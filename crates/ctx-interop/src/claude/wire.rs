//! The records of Claude Code as they stand in a line.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// What every record may have. Bodies are read only where they are needed.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Line<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub subtype: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub uuid: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub parent_uuid: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub timestamp: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub session_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub agent_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub cwd: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub git_branch: Option<Cow<'a, str>>,
    #[serde(default)]
    pub is_sidechain: Option<bool>,
    #[serde(default)]
    pub is_meta: Option<bool>,
    #[serde(default)]
    pub is_compact_summary: Option<bool>,
    #[serde(default)]
    pub is_api_error_message: Option<bool>,
    #[serde(borrow, default)]
    pub ai_title: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub custom_title: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub summary: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub attachment: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub tool_use_result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Message<'a> {
    #[serde(borrow, default)]
    pub id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub model: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub stop_reason: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub usage: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub content: Option<&'a RawValue>,
}

#[derive(Deserialize, Clone, Copy)]
pub(super) struct Usage {
    #[serde(default)]
    pub input_tokens: u64,
    #[serde(default)]
    pub output_tokens: u64,
    #[serde(default)]
    pub cache_read_input_tokens: Option<u64>,
    #[serde(default)]
    pub cache_creation_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
pub(super) struct Block<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub thinking: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub name: Option<Cow<'a, str>>,
    #[serde(default)]
    pub input: Option<Value>,
    #[serde(borrow, default)]
    pub tool_use_id: Option<Cow<'a, str>>,
    #[serde(default)]
    pub is_error: Option<bool>,
    #[serde(default)]
    pub content: Option<Value>,
    #[serde(default)]
    pub source: Option<Value>,
}

/// The blocks of a message; a plain string is one text.
pub(super) fn blocks(content: Option<&RawValue>) -> Result<Vec<Block<'_>>, serde_json::Error> {
    let Some(content) = content.map(RawValue::get) else { return Ok(Vec::new()) };
    if !content.starts_with('"') {
        return serde_json::from_str(content);
    }
    let text = serde_json::from_str::<Cow<'_, str>>(content)?;
    Ok(vec![Block {
        kind: Cow::Borrowed("text"),
        text: Some(text),
        thinking: None,
        id: None,
        name: None,
        input: None,
        tool_use_id: None,
        is_error: None,
        content: None,
        source: None,
    }])
}
