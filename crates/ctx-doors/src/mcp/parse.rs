//! From the JSON of a tool call to its arguments, or to words that say what is wrong with them.

use rmcp::model::JsonObject;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Arguments that a tool does not take, in words for a model.
#[derive(Debug)]
pub(super) struct BadArguments(pub String);

/// Takes out the arguments that a tool does not know, for there are hosts that add their own to every call; says which
/// those were.
pub(super) fn take_unknown(known: &JsonObject, arguments: &mut JsonObject) -> Option<String> {
    let is_known = |name: &String| known.contains_key(name);
    let unknown: Vec<String> =
        arguments.keys().filter(|name| !is_known(name)).map(|name| format!("`{}`", brief(name))).collect();
    arguments.retain(|name, _| is_known(name));
    let known: Vec<&str> = known.keys().map(String::as_str).collect();
    (!unknown.is_empty()).then(|| {
        let there_are = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        format!("unknown arguments were ignored: {}; there are: {there_are}", unknown.join(", "))
    })
}

/// A name that a caller made up may have any length.
fn brief(name: &str) -> String {
    name.chars().take(40).collect()
}

/// To JSON Schema, and to many a caller, 2.0 is an integer.
fn with_whole_numbers(value: Value) -> Value {
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() <= WHOLE_MAX => {
                Value::from(float as i64)
            }
            _ => Value::Number(number),
        },
        Value::Array(values) => values.into_iter().map(with_whole_numbers).collect(),
        Value::Object(fields) => {
            Value::Object(fields.into_iter().map(|(key, value)| (key, with_whole_numbers(value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

pub(super) fn parse<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, BadArguments> {
    let arguments = with_whole_numbers(Value::Object(arguments));
    serde_path_to_error::deserialize(arguments).map_err(|error| {
        let place = error.path().to_string();
        let inner = in_words_of_json(&error.into_inner().to_string());
        BadArguments(match place.as_str() {
            "." => inner,
            field => format!("{field}: {inner}"),
        })
    })
}

/// What serde says it expected, in words that are not Rust's.
fn in_words_of_json(said: &str) -> String {
    let Some((before, expected)) = said.rsplit_once("expected ") else { return said.to_owned() };
    let word = match expected {
        "u64" | "u32" | "usize" => "a whole number, 0 or more",
        "a nonzero u64" => "a whole number, 1 or more",
        "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        text if text.starts_with("struct ") => "an object",
        other => other,
    };
    format!("{before}expected {word}")
}
