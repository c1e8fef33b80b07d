//! Reads values out of a YAML tree. A wrong value is reported and reading continues, so that all errors of a file are
//! reported at once.

use super::yaml::{At, Kind, Node};
use crate::control::short;
use crate::nearest::nearest;

/// How many problems of one file are reported: a file of nothing but mistakes must not fill answers and memory.
const COMPLAINTS_MAX: usize = 100;

/// What was found wrong.
#[derive(Debug, Default)]
pub struct Complaints {
    found: Vec<(At, String)>,
}

impl Complaints {
    pub fn add(&mut self, at: At, message: impl Into<String>) {
        match self.found.len() {
            n if n < COMPLAINTS_MAX => self.found.push((at, message.into())),
            COMPLAINTS_MAX => self
                .found
                .push((at, format!("there are more than {COMPLAINTS_MAX} problems; fix these first"))),
            _ => {}
        }
    }

    pub fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    /// In the order of the file.
    pub fn into_sorted(mut self) -> Vec<(At, String)> {
        self.found.sort();
        self.found.dedup();
        self.found
    }

    fn wants(&mut self, node: &Node, name: &str, what: &str) {
        let quotes = match (&node.kind, what.starts_with("a text")) {
            (Kind::Number(text), true) => format!("; write \"{}\" with quotes", short(text)),
            (Kind::Bool(value), true) => format!("; write \"{value}\" with quotes"),
            _ => String::new(),
        };
        self.add(node.at, format!("`{name}` must be {what}, not {}{quotes}", node.kind.what()));
    }

    pub fn text<'a>(&mut self, node: &'a Node, name: &str) -> Option<&'a str> {
        match &node.kind {
            Kind::Text(text) => Some(text),
            _ => {
                self.wants(node, name, "a text");
                None
            }
        }
    }

    pub fn flag(&mut self, node: &Node, name: &str) -> Option<bool> {
        match &node.kind {
            Kind::Bool(value) => Some(*value),
            _ => {
                self.wants(node, name, "true or false");
                None
            }
        }
    }

    /// A whole number between two.
    pub fn whole(&mut self, node: &Node, name: &str, least: u32, most: u32) -> Option<u32> {
        let Kind::Number(text) = &node.kind else {
            self.wants(node, name, "a whole number");
            return None;
        };
        match text.parse::<u32>() {
            Ok(number) if (least..=most).contains(&number) => Some(number),
            _ => {
                let message =
                    format!("`{name}` must be a whole number from {least} to {most}, not {}", short(text));
                self.add(node.at, message);
                None
            }
        }
    }

    /// A share: more than 0, at most 1.
    pub fn share(&mut self, node: &Node, name: &str) -> Option<f64> {
        let Kind::Number(text) = &node.kind else {
            self.wants(node, name, "a number");
            return None;
        };
        match text.parse::<f64>() {
            Ok(share) if share > 0.0 && share <= 1.0 => Some(share),
            _ => {
                let message = format!("`{name}` must be more than 0 and at most 1, not {}", short(text));
                self.add(node.at, message);
                None
            }
        }
    }

    pub fn list<'a>(&mut self, node: &'a Node, name: &str) -> &'a [Node] {
        match &node.kind {
            Kind::List(items) => items,
            _ => {
                self.wants(node, name, "a list");
                &[]
            }
        }
    }

    /// A list of texts with at least one, none of them empty: a command.
    pub fn command(&mut self, node: &Node, name: &str) -> Option<Vec<String>> {
        let Kind::List(items) = &node.kind else {
            self.wants(node, name, "a list: a program and its arguments");
            return None;
        };
        let words: Vec<Option<String>> =
            items.iter().map(|item| self.text(item, name).map(str::to_owned)).collect();
        if words.first().is_none_or(|first| first.as_deref().is_some_and(str::is_empty)) {
            self.add(node.at, format!("`{name}` must name a program"));
            return None;
        }
        let has_nul = |word: &Option<String>| word.as_ref().is_some_and(|word| word.contains('\0'));
        if words.iter().any(has_nul) {
            self.add(node.at, format!("`{name}` holds a NUL byte"));
            return None;
        }
        words.into_iter().collect()
    }

    /// One of a few words.
    pub fn word<T: Copy>(&mut self, node: &Node, name: &str, words: &[(&str, T)]) -> Option<T> {
        let text = self.text(node, name)?;
        let found = words.iter().find(|(word, _)| *word == text);
        if found.is_none() {
            let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
            self.add(node.at, format!("`{name}` must be one of {}, not `{}`", known.join(", "), short(text)));
        }
        found.map(|(_, value)| *value)
    }

    /// The entries of a mapping whose keys are texts, each key once.
    pub fn entries<'a>(&mut self, node: &'a Node, name: &str) -> Vec<(&'a str, At, &'a Node)> {
        let Kind::Map(pairs) = &node.kind else {
            self.wants(node, name, "a mapping");
            return Vec::new();
        };
        let mut entries: Vec<(&str, At, &Node)> = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            let Kind::Text(text) = &key.kind else {
                self.add(key.at, format!("a key must be a text, not {}", key.kind.what()));
                continue;
            };
            match entries.iter().find(|(known, _, _)| known == text) {
                Some((_, first, _)) => {
                    let message = format!("duplicate `{}`; first on line {}", short(text), first.line);
                    self.add(key.at, message);
                }
                None => entries.push((text, key.at, value)),
            }
        }
        entries
    }

    /// The fields of a mapping whose keys are known.
    pub fn fields<'a>(&mut self, node: &'a Node, name: &str, known: &[&'static str]) -> Fields<'a> {
        let mut entries = self.entries(node, name);
        entries.retain(|(key, at, _)| {
            if known.contains(key) {
                return true;
            }
            let place = if name.is_empty() { String::new() } else { format!(" in `{name}`") };
            let hint = match nearest(key, known.iter().copied()) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("the keys are {}", known.join(", ")),
            };
            self.add(*at, format!("unknown key `{}`{place}; {hint}", short(key)));
            false
        });
        Fields { at: node.at, entries }
    }
}

/// The known fields of a mapping.
pub struct Fields<'a> {
    pub at: At,
    entries: Vec<(&'a str, At, &'a Node)>,
}

impl<'a> Fields<'a> {
    pub fn get(&self, key: &str) -> Option<&'a Node> {
        self.entries.iter().find(|(known, _, _)| *known == key).map(|(_, _, node)| *node)
    }

    /// Where the key itself stands.
    pub fn key_at(&self, key: &str) -> Option<At> {
        self.entries.iter().find(|(known, _, _)| *known == key).map(|(_, at, _)| *at)
    }
}
