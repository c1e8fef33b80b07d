//! What a model is called: `provider:model` in records and at every door, `provider/model` in paths, links and control files
//! of the tree, and in memory. An alias, which has neither, is called the same everywhere.

use serde::{Deserialize, Deserializer, Serializer};

/// As records and doors have it.
pub fn in_api(name: &str) -> String {
    match separator(name) {
        Some('/') => name.replacen('/', ":", 1),
        Some(_) | None => name.to_owned(),
    }
}

/// As the tree has it.
pub fn in_tree(name: &str) -> String {
    match separator(name) {
        Some(':') => name.replacen(':', "/", 1),
        Some(_) | None => name.to_owned(),
    }
}

/// The provider of a model, however it is written; an alias does not say it.
pub fn provider(name: &str) -> Option<&str> {
    name.split_once([':', '/']).map(|(provider, _)| provider)
}

/// What stands behind the provider: a model's own name may have the other one in it.
fn separator(name: &str) -> Option<char> {
    name.chars().find(|c| matches!(c, ':' | '/'))
}

/// For `#[serde(with = …)]`: written as records have it, and read as they have it or had it before.
pub fn serialize<S: Serializer>(name: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&in_api(name))
}

/// See [`serialize`].
pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    String::deserialize(deserializer).map(|name| in_tree(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_called_after_its_provider_and_an_alias_as_it_stands() {
        for (tree, api) in [
            ("debug/echo", "debug:echo"),
            ("fast", "fast"),
            ("ollama/llama3:8b", "ollama:llama3:8b"),
            ("router/anthropic/claude", "router:anthropic/claude"),
        ] {
            for name in [tree, api] {
                assert_eq!((in_api(name), in_tree(name)), (api.to_owned(), tree.to_owned()));
            }
        }
        assert_eq!(
            (provider("debug:echo"), provider("a/b/c"), provider("fast")),
            (Some("debug"), Some("a"), None)
        );
    }
}
