//! What is known of models, from a dated data file that ships with ctx. Models that are not in it work with the defaults below.

use std::sync::LazyLock;

use serde::Deserialize;

use super::wire::Counted;

/// The window of a model that nobody knows, in tokens. A smaller one shows by an overflow, which makes room.
pub const WINDOW_UNKNOWN: u64 = 128_000;

/// The file.
#[derive(Debug, Deserialize)]
pub struct File {
    /// When it was last looked over.
    pub date: String,
    pub models: Vec<Known>,
}

/// A model that is known.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Known {
    /// Whose it is, by the usual name of the provider.
    pub provider: String,
    pub id: String,
    /// Tokens of a request and its answer.
    pub window: u64,
    /// Tokens of an answer.
    pub output: u64,
    /// US dollars for a million tokens.
    pub price: Price,
    #[serde(default)]
    pub cap: Vec<String>,
    /// What `main` means for this provider.
    #[serde(default)]
    pub default: bool,
}

/// US dollars for a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
pub struct Price {
    pub input: f64,
    pub output: f64,
    /// Input from the cache; the usual price where none is named.
    pub cached: Option<f64>,
    /// Input that goes into the cache; the usual price where none is named.
    pub cache_write: Option<f64>,
    /// A request with more input tokens than this costs twice as much for its input, and half as much again for its output.
    pub long: Option<u64>,
}

static FILE: LazyLock<File> = LazyLock::new(|| {
    let empty = || File { date: String::new(), models: Vec::new() };
    // A test reads it.
    serde_json::from_str(include_str!("known.json")).unwrap_or_else(|_| empty())
});

/// The whole file.
pub fn file() -> &'static File {
    &FILE
}

/// What is known of a model, by the provider's name for it. A dated or preview version is its model.
pub fn find(id: &str) -> Option<&'static Known> {
    let bare = id.rsplit('/').next().unwrap_or(id);
    let is_version = |known: &&Known| {
        let tail = bare.strip_prefix(known.id.as_str()).and_then(|tail| tail.strip_prefix(['-', '@']));
        tail.is_some_and(|tail| {
            tail.starts_with(|c: char| c.is_ascii_digit())
                || tail.starts_with("latest")
                || tail.starts_with("preview")
        })
    };
    let exact = FILE.models.iter().find(|known| known.id == bare);
    exact.or_else(|| FILE.models.iter().filter(is_version).max_by_key(|known| known.id.len()))
}

/// The model that a provider begins with.
pub fn default_of(provider: &str) -> Option<&'static Known> {
    FILE.models.iter().find(|known| known.provider == provider && known.default)
}

impl Known {
    pub fn can(&self, what: &str) -> bool {
        self.cap.iter().any(|cap| cap == what)
    }
}

impl Price {
    /// What a call cost, in billionths of a dollar.
    pub fn of(&self, counted: &Counted) -> u64 {
        let fresh = counted.input.saturating_sub(counted.cached).saturating_sub(counted.cache_written);
        // A dollar for a million tokens is a thousand billionths for one.
        let cost = |tokens: u64, price: f64| tokens as f64 * price * 1_000.0;
        let input = cost(fresh, self.input)
            + cost(counted.cached, self.cached.unwrap_or(self.input))
            + cost(counted.cache_written, self.cache_write.unwrap_or(self.input));
        let output = cost(counted.output, self.output);
        let is_long = self.long.is_some_and(|long| counted.input > long);
        let sum = if is_long { 2.0 * input + 1.5 * output } else { input + output };
        sum.round() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_and_every_provider_with_models_has_one_default() {
        let file: File = serde_json::from_str(include_str!("known.json")).unwrap();
        assert_eq!(file.date.len(), "2025-01-01".len());
        for provider in ["openai", "anthropic", "gemini"] {
            let defaults = file.models.iter().filter(|known| known.provider == provider && known.default);
            assert_eq!(defaults.count(), 1, "{provider}");
        }
        for known in &file.models {
            assert!(known.window > known.output && known.output > 0, "{}", known.id);
            assert!(known.price.output >= known.price.input, "{}", known.id);
            assert_eq!(file.models.iter().filter(|other| other.id == known.id).count(), 1, "{}", known.id);
        }
    }

    #[test]
    fn a_version_is_its_model_and_another_model_is_not() {
        let id = |text: &str| find(text).map(|known| known.id.as_str());
        assert_eq!(id("gpt-4o-2024-08-06"), Some("gpt-4o"));
        assert_eq!(id("gpt-4o-mini"), Some("gpt-4o-mini"));
        assert_eq!(id("claude-sonnet-4-5-20250929"), Some("claude-sonnet-4-5"));
        assert_eq!(id("models/gemini-2.5-pro"), Some("gemini-2.5-pro"));
        assert_eq!(id("gpt-4o-audio"), None);
        assert_eq!(id("llama3.2"), None);
    }

    #[test]
    fn cached_tokens_cost_what_they_cost() {
        let (cached, cache_write, long) = (Some(0.3), Some(3.75), None);
        let price = Price { input: 3.0, output: 15.0, cached, cache_write, long };
        let counted = Counted { input: 1_000, output: 100, cached: 600, cache_written: 200 };
        let dollars = price.of(&counted) as f64 / 1e9;
        assert!((dollars - (200.0 * 3.0 + 600.0 * 0.3 + 200.0 * 3.75 + 100.0 * 15.0) / 1e6).abs() < 1e-9);
    }

    #[test]
    fn a_long_request_costs_more() {
        let (cached, cache_write, long) = (None, None, Some(200_000));
        let price = Price { input: 2.0, output: 12.0, cached, cache_write, long };
        let of = |input| price.of(&Counted { input, output: 1_000, ..Counted::default() });
        assert_eq!(of(200_000), 412_000_000);
        assert_eq!(of(300_000), 1_218_000_000);
    }
}
