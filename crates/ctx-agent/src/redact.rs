//! Taking secrets out of what tools are given and give, before it is stored, shown or sent to a model.
//!
//! The rules are those of shells (`ctx_text::redact`). What a file says is never changed by them.

use std::fmt;
use std::sync::Arc;

use ctx_text::redact::{Redactor, Secrets};
use serde_json::Value;

/// How one agent's tools redact.
#[derive(Clone)]
pub struct Redaction(Option<Arc<Secrets>>);

impl fmt::Debug for Redaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_on() { "Redaction(on)" } else { "Redaction(off)" })
    }
}

impl Redaction {
    /// What the agent's description says when it says `redact: off`.
    pub fn off() -> Redaction {
        Redaction(None)
    }

    /// The rules, and the values of those variables that are secrets.
    pub fn on<N: AsRef<str>, V: AsRef<[u8]>>(env: impl IntoIterator<Item = (N, V)>) -> Redaction {
        Redaction(Some(Arc::new(Secrets::from_env(env))))
    }

    /// The rules, and all of these values, whatever the variables are called.
    pub fn of_values<N: AsRef<str>, V: AsRef<[u8]>>(values: impl IntoIterator<Item = (N, V)>) -> Redaction {
        Redaction(Some(Arc::new(Secrets::from_values(values))))
    }

    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// A filter for a text that comes in pieces; None: it is shown as it is.
    pub fn filter(&self) -> Option<Redactor> {
        self.0.as_ref().map(|secrets| Redactor::new(Arc::clone(secrets)))
    }

    /// A text without its secrets, and how many there were.
    pub fn text(&self, text: String) -> (String, u64) {
        let Some(mut filter) = self.filter() else { return (text, 0) };
        let mut out = Vec::with_capacity(text.len());
        filter.push(text.as_bytes(), &mut out);
        filter.finish(&mut out);
        (String::from_utf8_lossy(&out).into_owned(), filter.redactions())
    }

    /// The same for every text in a value.
    pub fn json(&self, value: Value) -> Value {
        match value {
            _ if !self.is_on() => value,
            Value::String(text) => Value::String(self.text(text).0),
            Value::Array(items) => Value::Array(items.into_iter().map(|item| self.json(item)).collect()),
            Value::Object(fields) => {
                Value::Object(fields.into_iter().map(|(name, field)| (name, self.json(field))).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => value,
        }
    }
}
