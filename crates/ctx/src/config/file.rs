//! Reads `config.toml`: which keys it sets, to what, and where. Places are kept so that every complaint has a
//! line and a column.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::keys::{KEYS, Key, Kind, SECTIONS};
use super::mcp;
use super::providers::{self, Provider};
use ctx_agent::nearest::nearest;
use ctx_agent::project::McpServer;
use ctx_session::Name;

/// A key that a file sets.
#[derive(Debug)]
pub struct Set {
    pub key: &'static Key,
    pub value: Value,
    pub line: usize,
    pub column: usize,
}

/// Something in a file that cannot stay as it is.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{}:{line}:{column}: {message}", path.display())]
pub struct FileError {
    pub path: PathBuf,
    pub line: usize,
    pub column: usize,
    pub message: String,
    pub hint: Option<String>,
}

/// What a file says.
#[derive(Debug)]
pub struct Said {
    /// In its own order.
    pub sets: Vec<Set>,
    pub mcp: BTreeMap<Name, McpServer>,
    pub models: BTreeMap<String, Provider>,
}

/// What the text of a file says.
pub fn read(path: &Path, text: &str) -> Result<Said, FileError> {
    let source = Source { path, text };
    let table = DeTable::parse(text).map_err(|error| {
        let message = error.message().lines().collect::<Vec<_>>().join("; ");
        source.wrong(error.span().unwrap_or(0..0), message, None)
    })?;
    let mut sets = Vec::new();
    let (mut mcp, mut models) = (BTreeMap::new(), BTreeMap::new());
    for (section, keys) in table.get_ref() {
        let name: &str = section.get_ref();
        if let Some(key) = KEYS.iter().find(|key| key.section.is_empty() && key.name == name) {
            sets.push(source.set(key, keys)?);
            continue;
        }
        if let ("models", Some(section)) = (name, keys.get_ref().as_table()) {
            models = providers::read(&source, section)?;
            continue;
        }
        if let ("mcp", Some(section)) = (name, keys.get_ref().as_table()) {
            mcp = mcp::read(&source, section)?;
            continue;
        }
        if !SECTIONS.iter().any(|(known, _)| *known == name) {
            return Err(source.unknown_section(name, section.span()));
        }
        let Some(keys_of) = keys.get_ref().as_table() else {
            let message = format!("`{name}` is a section: write [{name}] and its keys below it");
            return Err(source.wrong(section.span(), message, None));
        };
        section_of(&source, name, keys_of, &mut sets)?;
    }
    sets.sort_by_key(|set| (set.line, set.column));
    Ok(Said { sets, mcp, models })
}

/// The keys of a section, and of those below it.
fn section_of(
    source: &Source<'_>,
    name: &str,
    table: &DeTable<'_>,
    sets: &mut Vec<Set>,
) -> Result<(), FileError> {
    for (key, value) in table {
        let below = format!("{name}.{}", key.get_ref());
        if let Some(table) = value.get_ref().as_table()
            && SECTIONS.iter().any(|(known, _)| *known == below)
        {
            section_of(source, &below, table, sets)?;
            continue;
        }
        let Some(known) = KEYS.iter().find(|known| known.section == name && known.name == key.get_ref())
        else {
            return Err(source.unknown_key(name, key.get_ref(), key.span()));
        };
        sets.push(source.set(known, value)?);
    }
    Ok(())
}

/// An amount of US dollars.
pub(super) fn dollars(text: &str) -> Result<Value, String> {
    let amount = text.trim().replace('_', "").parse().ok().and_then(ctx_session::Usd::of_dollars);
    let wrong = || format!("must be an amount of dollars of at least 0, not `{text}`");
    amount.map(|amount| Value::from(amount.dollars())).ok_or_else(wrong)
}

/// Names that are compared as a whole. No names at all, where no list is written, are no list.
pub(super) fn allowed<'a>(names: impl Iterator<Item = &'a str>) -> Result<Value, String> {
    let names: Vec<&str> = names.collect();
    let is_odd = |name: &&&str| name.is_empty() || name.contains(['*', '?', ' ', '\t', '\n']);
    if let Some(odd) = names.iter().find(is_odd) {
        return Err(format!("has `{}`, which is no name: names are compared as a whole", odd.escape_debug()));
    }
    Ok(if names.is_empty() { Value::from("") } else { Value::from(names) })
}

/// The value as the config's structs want it, or what would have been right.
fn value_of(kind: Kind, value: &DeValue<'_>) -> Result<Value, String> {
    match (kind, value) {
        (Kind::Number | Kind::Count, DeValue::Integer(digits)) => {
            let least = kind.least();
            u64::from_str_radix(digits.as_str(), digits.radix())
                .ok()
                .filter(|number| *number >= least)
                .map(Value::from)
                .ok_or_else(|| format!("must be a whole number of at least {least}, not {digits}"))
        }
        (Kind::Number | Kind::Count, other) => {
            Err(format!("must be a whole number, not {}", other.type_str()))
        }
        (Kind::Dollars, DeValue::Integer(digits)) if digits.radix() == 10 => dollars(digits.as_str()),
        (Kind::Dollars, DeValue::Float(digits)) => dollars(digits.as_str()),
        (Kind::Dollars, other) => Err(format!("must be an amount of dollars, not {}", other.type_str())),
        (Kind::Text, DeValue::String(text)) => Ok(Value::from(text.as_ref())),
        (Kind::Text, other) => Err(format!("must be a string, not {}", other.type_str())),
        (Kind::Allowed, DeValue::String(text)) => allowed(text.split_whitespace()),
        (Kind::Words | Kind::Allowed, DeValue::Array(items)) => {
            let words: Option<Vec<&str>> = items.iter().map(|item| item.get_ref().as_str()).collect();
            let words = words.ok_or_else(|| "must be a list of strings".to_owned())?;
            match (kind, words.as_slice()) {
                (Kind::Allowed, []) => Ok(Value::Array(Vec::new())),
                (Kind::Allowed, words) => allowed(words.iter().copied()),
                (_, words) => Ok(Value::from(words.join(" "))),
            }
        }
        (Kind::Words, DeValue::String(text)) => Ok(Value::from(text.as_ref())),
        (Kind::Words | Kind::Allowed, other) => {
            Err(format!("must be a list of strings, not {}", other.type_str()))
        }
        (Kind::Flag, DeValue::Boolean(flag)) => Ok(Value::from(*flag)),
        (Kind::Flag, other) => Err(format!("must be true or false, not {}", other.type_str())),
        (Kind::OneOf(words), DeValue::String(text)) if words.contains(&text.as_ref()) => {
            Ok(Value::from(text.as_ref()))
        }
        (Kind::OneOf(words), DeValue::String(text)) => {
            Err(format!("must be one of {}, not \"{text}\"", words.join(", ")))
        }
        (Kind::OneOf(words), other) => {
            Err(format!("must be one of {}, not {}", words.join(", "), other.type_str()))
        }
    }
}

pub(super) struct Source<'a> {
    path: &'a Path,
    text: &'a str,
}

impl Source<'_> {
    /// A key with its value, where that is of the right kind.
    fn set(&self, key: &'static Key, value: &Spanned<DeValue<'_>>) -> Result<Set, FileError> {
        let (line, column) = self.place(value.span().start);
        let value = value_of(key.kind, value.get_ref())
            .map_err(|wanted| self.wrong(value.span(), format!("`{}` {wanted}", key.path()), None))?;
        Ok(Set { key, value, line, column })
    }

    /// Line and column of a byte, both from 1; columns count characters.
    fn place(&self, at: usize) -> (usize, usize) {
        let before = self.text.get(..at).unwrap_or(self.text);
        let line_start = before.rfind('\n').map_or(0, |lf| lf + 1);
        let in_line = before.get(line_start..).unwrap_or_default();
        (before.matches('\n').count() + 1, in_line.chars().count() + 1)
    }

    pub(super) fn wrong(&self, span: Range<usize>, message: String, hint: Option<String>) -> FileError {
        let (line, column) = self.place(span.start);
        FileError { path: self.path.to_owned(), line, column, message, hint }
    }

    fn unknown_section(&self, name: &str, span: Range<usize>) -> FileError {
        let known: Vec<&str> =
            SECTIONS.iter().map(|(section, _)| *section).chain(["mcp", "models"]).collect();
        let hint = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the sections are {}", known.join(", ")),
        };
        self.wrong(span, format!("unknown section `{name}`"), Some(hint))
    }

    fn unknown_key(&self, section: &str, name: &str, span: Range<usize>) -> FileError {
        let known: Vec<&str> = KEYS.iter().filter(|key| key.section == section).map(|key| key.name).collect();
        let hint = match nearest(name, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("`ctx config init` writes a file with every key of [{section}]"),
        };
        self.wrong(span, format!("unknown key `{name}` in [{section}]"), Some(hint))
    }
}
