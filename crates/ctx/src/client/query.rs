//! A path of the API with a query, written so that any text comes through.

use std::fmt::Write;

/// A path and what is asked of it.
#[derive(Debug, Clone)]
pub struct Query {
    text: String,
    has_any: bool,
}

impl Query {
    pub fn new(path: &str) -> Query {
        Query { text: path.to_owned(), has_any: false }
    }

    #[must_use]
    pub fn with(mut self, key: &str, value: impl std::fmt::Display) -> Query {
        self.text.push(if self.has_any { '&' } else { '?' });
        self.has_any = true;
        self.text.push_str(key);
        self.text.push('=');
        for byte in value.to_string().bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                self.text.push(char::from(byte));
            } else {
                // Writing to a string cannot fail.
                let _ = write!(self.text, "%{byte:02X}");
            }
        }
        self
    }

    /// The same, where there is a value.
    #[must_use]
    pub fn with_some(self, key: &str, value: Option<impl std::fmt::Display>) -> Query {
        match value {
            Some(value) => self.with(key, value),
            None => self,
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_comes_through() {
        let query = Query::new("/search").with("q", "a&b=ü %\n").with("n", 5).with_some("x", None::<u8>);
        assert_eq!(query.as_str(), "/search?q=a%26b%3D%C3%BC%20%25%0A&n=5");
        assert_eq!(Query::new("/stats").as_str(), "/stats");
    }
}
