//! What a provider's refusal means: from a status and a body, or from an error inside a stream, to one of our errors. Pure.

use std::time::Duration;

use serde_json::Value;

use crate::cut;
use crate::model::ModelError;

/// An answer that is none.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    /// As the user calls it.
    pub model: &'a str,
    pub status: u16,
    pub content_type: &'a str,
    pub retry_after: Option<Duration>,
    pub body: &'a str,
}

/// The most of a provider's message that is shown.
const DETAIL_BYTES_MAX: usize = 400;

/// How providers say that a conversation does not fit.
const OVERFLOW: &[&str] = &[
    "context_length_exceeded",
    "maximum context length",
    "context length",
    "context window",
    "context size",
    "prompt is too long",
    "exceed context limit",
    "exceeds the maximum number of tokens",
    "input is too long",
    "too many tokens",
    "request_too_large",
];

/// How they say that there is no money left.
const QUOTA: &[&str] =
    &["insufficient_quota", "billing", "credit balance", "payment required", "spending limit"];

/// How they say that they do not know the key.
const KEY: &[&str] =
    &["api_key_invalid", "api key not valid", "invalid_api_key", "incorrect api key", "authentication_error"];

impl Refused<'_> {
    pub fn error(&self) -> ModelError {
        let said = serde_json::from_str::<Value>(self.body).ok().and_then(|body| error_of(&body).cloned());
        match said {
            Some(said) => of_error(self.model, Some(self.status), self.retry_after, &said),
            None => self.without_words(),
        }
    }

    fn without_words(&self) -> ModelError {
        let model = self.model.to_owned();
        let status = self.status;
        match status {
            // The page of a proxy in between says nothing of the key.
            400..=499 if self.is_page() => ModelError::Protocol { model, detail: self.not_ours() },
            401 | 403 => key_rejected(model, status),
            402 => ModelError::NoQuota { model, detail: format!("it answered {status}") },
            429 => rate_limit(model, format!("it answered {status}"), self.retry_after),
            408 | 500..=599 => unavailable(model, status, format!("it answered {status}"), self.retry_after),
            _ => ModelError::Protocol { model, detail: self.not_ours() },
        }
    }

    fn is_page(&self) -> bool {
        self.content_type.starts_with("text/html")
    }

    /// What came instead of an answer of this provider.
    pub fn not_ours(&self) -> String {
        let kind = self.content_type.split(';').next().unwrap_or_default().trim();
        let status = self.status;
        let what = match kind {
            "text/html" => "a web page, as a proxy or a login page would".to_owned(),
            "" => "something without a content type".to_owned(),
            kind => format!("{kind}, which is not its format"),
        };
        format!("status {status} with {what}; check base_url, and the proxy if there is one")
    }
}

/// The error object of a body, in whichever of the providers' forms.
pub fn error_of(body: &Value) -> Option<&Value> {
    match body {
        Value::Array(list) => list.first().and_then(error_of),
        Value::Object(fields) => fields
            .get("error")
            .or_else(|| fields.get("detail"))
            .filter(|error| !error.is_null())
            .or_else(|| (fields.get("object").and_then(Value::as_str) == Some("error")).then_some(body)),
        _ => None,
    }
}

/// What an error object means; without a status it came inside a stream.
pub fn of_error(
    model: &str,
    status: Option<u16>,
    retry_after: Option<Duration>,
    error: &Value,
) -> ModelError {
    let model = model.to_owned();
    let text = |key: &str| match error.get(key) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(_) | None => String::new(),
    };
    let message = match error {
        Value::String(message) => message.clone(),
        _ => text("message"),
    };
    let kinds = [text("code"), text("type"), text("status"), reason(error)].join(" ").to_lowercase();
    let all = format!("{kinds} {}", message.to_lowercase());
    let says = |words: &[&str]| words.iter().any(|word| all.contains(word));
    let detail = shown(if message.is_empty() { &kinds } else { &message });
    let number = status.or_else(|| text("code").parse().ok()).unwrap_or(0);
    if says(KEY) || number == 401 {
        return key_rejected(model, number);
    }
    // A key that is known but may not do this: the provider says what.
    if number == 403 {
        return ModelError::KeyRejected { model, detail };
    }
    // Google speaks of billing also at a limit by the minute, and says then how long to wait.
    let is_short = retry_delay(error).is_some() && !error.to_string().contains("PerDay");
    if (says(QUOTA) && !is_short) || number == 402 {
        return ModelError::NoQuota { model, detail };
    }
    if number == 429 || says(&["rate_limit", "resource_exhausted", "too many requests"]) {
        return rate_limit(model, detail, retry_after.or_else(|| retry_delay(error)));
    }
    // A server that has too much to do may speak of its own context.
    if matches!(number, 0 | 400 | 413 | 422) && (says(OVERFLOW) || number == 413) {
        return ModelError::Overflow { model, detail };
    }
    let no_model = says(&["model_not_found", "no such model"])
        || (all.contains("model")
            && says(&["not found", "not_found", "does not exist", "not supported for"]));
    if no_model && matches!(number, 0 | 400 | 404) {
        return ModelError::NoSuchModel { model, detail };
    }
    if says(&["overloaded", "unavailable"])
        || matches!(number, 408 | 500..=599)
        || says(&["server_error", "api_error", "internal"])
    {
        return unavailable(model, number, detail, retry_after);
    }
    match status {
        Some(404 | 405) => {
            let detail = format!("status {number}: {detail}; check base_url");
            ModelError::Protocol { model, detail }
        }
        Some(_) => ModelError::BadRequest { model, detail },
        None => ModelError::BrokenStream { model, detail },
    }
}

/// Google's further words for an error.
fn reason(error: &Value) -> String {
    let details = error.get("details").and_then(Value::as_array).into_iter().flatten();
    let reasons = details.filter_map(|detail| detail.get("reason").and_then(Value::as_str));
    reasons.collect::<Vec<_>>().join(" ")
}

/// Google's way to say when to come again: `"retryDelay": "37s"`.
fn retry_delay(error: &Value) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let text = details.iter().find_map(|detail| detail.get("retryDelay")?.as_str())?;
    seconds(text.strip_suffix('s')?)
}

/// How long to wait as headers say it: a number of seconds, or the date until when, seen from the provider's own clock.
pub fn wait_of(text: &str, its_now: Option<&str>) -> Option<Duration> {
    const DAY: Duration = Duration::from_secs(86_400);
    let date = |text: &str| httpdate::parse_http_date(text.trim()).ok();
    let wait = match date(text) {
        Some(until) => Some(until.duration_since(date(its_now?)?).unwrap_or_default()),
        None => seconds(text.trim()),
    };
    wait.map(|wait| wait.min(DAY))
}

fn seconds(text: &str) -> Option<Duration> {
    text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
}

/// The provider's words are not repeated: they may quote the key.
fn key_rejected(model: String, status: u16) -> ModelError {
    ModelError::KeyRejected { model, detail: format!("it answered {status}") }
}

fn rate_limit(model: String, detail: String, retry_after: Option<Duration>) -> ModelError {
    ModelError::RateLimit { model, detail, retry_after }
}

fn unavailable(model: String, status: u16, detail: String, retry_after: Option<Duration>) -> ModelError {
    let is_overloaded = matches!(status, 503 | 529) || detail.to_lowercase().contains("overloaded");
    let reason = if is_overloaded { "overloaded" } else { "server_error" };
    ModelError::Unavailable { model, reason, detail, retry_after }
}

/// A provider's message in one line.
pub fn shown(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let kept = cut(&line, DETAIL_BYTES_MAX);
    if kept.len() < line.len() { format!("{kept}…") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_number_of_seconds_or_a_date() {
        let now = Some("Wed, 18 Nov 2026 07:00:00 GMT");
        let wait = |text| wait_of(text, now).map(|wait| wait.as_secs_f64());
        assert_eq!(wait(" 2.5 "), Some(2.5));
        assert_eq!(wait("Wed, 18 Nov 2026 07:00:30 GMT"), Some(30.0));
        assert_eq!(wait("Wed, 18 Nov 2026 06:00:00 GMT"), Some(0.0), "it is over");
        assert_eq!(wait("9e9"), Some(86_400.0));
        for bad in ["-1", "inf", "soon", ""] {
            assert_eq!(wait(bad), None, "{bad}");
        }
    }
}
