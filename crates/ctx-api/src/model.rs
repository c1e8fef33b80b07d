//! What a model is called: `provider/model` in the tree and in records, `provider:model` over HTTP and WebSockets.
//! An alias, which has neither, is called the same everywhere.

/// As the API has it.
pub fn in_api(name: &str) -> String {
    name.replacen('/', ":", 1)
}

/// As the tree has it.
pub fn in_tree(name: &str) -> String {
    name.replacen(':', "/", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_called_after_its_provider_and_an_alias_as_it_stands() {
        assert_eq!((in_api("debug/echo"), in_api("fast")), ("debug:echo".to_owned(), "fast".to_owned()));
        assert_eq!((in_tree("debug:echo"), in_tree("fast")), ("debug/echo".to_owned(), "fast".to_owned()));
        // As it is typed by those who know the tree.
        assert_eq!(in_api("debug:echo"), "debug:echo");
    }
}
