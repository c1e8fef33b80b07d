//! The records of Codex as they stand in a line.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::json::{owned, text};

#[derive(Deserialize)]
pub(super) struct Line<'a> {
    #[serde(borrow, default)]
    pub timestamp: Option<Cow<'a, str>>,
    pub ordinal: Option<u64>,
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    #[serde(borrow)]
    pub payload: &'a RawValue,
}

/// A `response_item`. All strings are borrowed where they have no escapes.
#[derive(Deserialize)]
pub(super) struct Item<'a> {
    #[serde(borrow, rename = "type")]
    pub kind: Cow<'a, str>,
    #[serde(borrow, default)]
    pub id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub name: Option<Cow<'a, str>>,
    /// A string of JSON, or JSON itself.
    #[serde(borrow, default)]
    pub arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pub summary: Option<&'a RawValue>,
    #[serde(default)]
    pub input: Option<Value>,
    #[serde(default)]
    pub action: Option<Value>,
    #[serde(default)]
    pub output: Option<Value>,
    #[serde(borrow, default, rename = "internal_chat_message_metadata_passthrough")]
    pub metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
pub(super) struct Part<'a> {
    #[serde(borrow, default)]
    pub text: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub image_url: Option<Cow<'a, str>>,
}

/// The parts of a message's or a summary's content; a plain string is one part.
pub(super) fn parts(content: Option<&RawValue>) -> Vec<Part<'_>> {
    let Some(content) = content.map(RawValue::get) else { return Vec::new() };
    if let Ok(text) = serde_json::from_str::<Cow<'_, str>>(content) {
        return vec![Part { text: Some(text), image_url: None }];
    }
    if let Ok(parts) = serde_json::from_str(content) {
        return parts;
    }
    // A part of another shape: what has a text is read, and the rest is named.
    let values: Vec<Value> = serde_json::from_str(content).unwrap_or_default();
    let part = |value: Value| {
        let url = text(&value, "/image_url/url").or(text(&value, "/image_url")).map(str::to_owned);
        let text = owned(&value, "/text").or(owned(&value, "/text/value")).map(Cow::Owned);
        Part { text, image_url: url.map(Cow::Owned) }
    };
    values.into_iter().map(part).collect()
}
