//! Lines of JSON that may be damaged, and looking into JSON values whose shape is another program's business.

use ctx_session::Timestamp;
use serde_json::Value;
use std::borrow::Cow;

/// The lines of a file with their numbers, counted from 1. Empty lines are left out.
pub(crate) fn lines(bytes: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let mut rest = bytes;
    let mut number = 0;
    std::iter::from_fn(move || {
        while !rest.is_empty() {
            number += 1;
            let end = memchr::memchr(b'\n', rest);
            let (line, after) = match end {
                Some(end) => (rest.get(..end)?, rest.get(end + 1..)?),
                None => (rest, &[][..]),
            };
            rest = after;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if !line.is_empty() {
                return Some((number, line));
            }
        }
        None
    })
}

/// Why a line is not a record, in words that fit a report.
pub(crate) fn why_bad(line: &[u8], error: &serde_json::Error) -> String {
    if line.iter().all(|byte| *byte == 0) {
        return format!("{} NUL bytes in place of a record", line.len());
    }
    if let Err(error) = std::str::from_utf8(line) {
        return format!("not UTF-8 at byte {}", error.valid_up_to());
    }
    match error.classify() {
        serde_json::error::Category::Eof => "the record is cut off".to_owned(),
        _ => format!("not a record: {error}"),
    }
}

/// The text at a JSON pointer.
pub(crate) fn text<'v>(value: &'v Value, pointer: &str) -> Option<&'v str> {
    value.pointer(pointer)?.as_str()
}

pub(crate) fn owned(value: &Value, pointer: &str) -> Option<String> {
    text(value, pointer).map(str::to_owned)
}

pub(crate) fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or_default()
}

/// A point in time as programs write it: RFC 3339 in UTC, or a number of seconds or milliseconds.
pub(crate) fn time(value: &Value) -> Option<Timestamp> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.as_u64().map(epoch),
        _ => None,
    }
}

/// Seconds or milliseconds since the epoch: what would be before 1973 in milliseconds is in seconds.
pub(crate) fn epoch(number: u64) -> Timestamp {
    const SECONDS_BELOW: u64 = 100_000_000_000;
    Timestamp::from_millis(if number < SECONDS_BELOW { number.saturating_mul(1000) } else { number })
}

/// The words that stand for an image in a text: where it is, or what it is where its bytes are in the source itself.
pub(crate) fn image(media: Option<&str>, place: &str, file: &str, line: u64) -> String {
    match place.strip_prefix("data:") {
        Some(data) => {
            let media = media.or_else(|| data.split([';', ',']).next()).unwrap_or("image");
            let bytes = data.split_once(',').map_or(data, |(_, bytes)| bytes).len();
            format!("[image: {media}, {bytes} bytes as base64 in {file}:{line}]")
        }
        None if place.is_empty() => format!("[image: {}, in {file}:{line}]", media.unwrap_or("image")),
        None => format!("[image: {place}]"),
    }
}

/// Joins the parts of a message to one text.
pub(crate) fn join<'a>(parts: impl Iterator<Item = Cow<'a, str>>) -> String {
    let mut whole = String::new();
    for part in parts.filter(|part| !part.is_empty()) {
        if !whole.is_empty() {
            whole.push('\n');
        }
        whole.push_str(&part);
    }
    whole
}
