//! A result as text: fields and output in lines, for hosts that cut or drop one long line, and for models that read it.
//!
//! The structured content says all of it; the text leaves out what is as it usually is.

use ctx_text::budget::shortened;
use serde_json::Value;

use super::schema::ToolName;

/// Bytes of an answer with both its forms. Some hosts end the connection over a longer line.
const ANSWER_BYTES_MAX: usize = (1 << 20) - (16 << 10);
/// Characters of a stream that are tried one after the other until the answer fits.
const STREAM_CHARS: [usize; 4] = [200_000, 100_000, 50_000, 25_000];
const STREAMS: [&str; 3] = ["late_output", "stdout", "stderr"];

/// The text of an answer.
pub(super) fn text_of(tool: ToolName, answer: &Value) -> String {
    match tool {
        ToolName::Exec => {
            let always = ["call", "exit_code", "duration_ms", "cwd"];
            let unusual = ["timed_out", "shell_restarted", "truncated", "hint"];
            lines(answer, &always, &unusual, &STREAMS)
        }
        ToolName::Output => {
            lines(answer, &["offset", "total_bytes"], &["next_offset", "lost_bytes", "hint"], &["text"])
        }
        ToolName::Create
        | ToolName::List
        | ToolName::Destroy
        | ToolName::Interrupt
        | ToolName::Checkpoint
        | ToolName::Checkpoints
        | ToolName::Restore => answer.to_string(),
    }
}

fn lines(answer: &Value, always: &[&str], unusual: &[&str], streams: &[&str]) -> String {
    let is_usual = |value: &Value| matches!(value, Value::Null | Value::Bool(false));
    let field = |name: &&str| answer.get(*name).map(|value| (name.to_string(), value));
    let unusual = unusual.iter().filter_map(field).filter(|(_, value)| !is_usual(value));
    let mut text = String::new();
    for (name, value) in always.iter().filter_map(field).chain(unusual) {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        text.push_str(&format!("{name}: {value}\n"));
    }
    for name in streams {
        let stream = answer.get(*name).and_then(Value::as_str).unwrap_or_default();
        if !stream.is_empty() {
            let end = if stream.ends_with('\n') { "" } else { "\n" };
            text.push_str(&format!("{name}:\n{stream}{end}"));
        }
    }
    text
}

/// Shortens what a command printed until the answer fits on the wire, and says so.
pub(super) fn fit(answer: &mut Value) {
    let bytes = |answer: &Value| {
        let streams = STREAMS.iter().filter_map(|name| answer.get(*name)).map(|text| text.to_string().len());
        answer.to_string().len() + streams.sum::<usize>()
    };
    if bytes(answer) <= ANSWER_BYTES_MAX {
        return;
    }
    for chars in STREAM_CHARS {
        if bytes(answer) <= ANSWER_BYTES_MAX {
            break;
        }
        for name in STREAMS {
            if let Some(Value::String(stream)) = answer.get_mut(name) {
                *stream = shortened(stream, chars);
            }
        }
        if let Some(truncated) = answer.get_mut("truncated") {
            *truncated = Value::Bool(true);
        }
    }
    add_hint(answer, "the answer was too long to send: session_output has the rest");
}

/// Says one thing more.
pub(super) fn add_hint(answer: &mut Value, more: &str) {
    let Value::Object(fields) = answer else { return };
    let hint = match fields.get("hint").and_then(Value::as_str) {
        Some(hint) => format!("{hint}; {more}"),
        None => more.to_owned(),
    };
    fields.insert("hint".to_owned(), Value::String(hint));
}
