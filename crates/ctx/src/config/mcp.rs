//! `[mcp.<server>]`: MCP servers of the operator's own, for all their sessions. An entry says what one of a project file says.

use std::collections::BTreeMap;

use ctx_agent::project::{McpServer, read_mcp};
use ctx_session::Name;
use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::file::{FileError, Source};

/// What the section says, by the server's name.
pub(super) fn read(
    source: &Source<'_>,
    section: &DeTable<'_>,
) -> Result<BTreeMap<Name, McpServer>, FileError> {
    let mut servers = BTreeMap::new();
    for (name, value) in section {
        let word: &str = name.get_ref();
        let wrong = |message: String| source.wrong(name.span(), message, None);
        let known =
            Name::new(word).map_err(|rule| wrong(format!("`{word}` is not a server's name: {rule}")))?;
        let server = read_mcp(word, &json(value.get_ref())).map_err(wrong)?;
        servers.insert(known, server);
    }
    Ok(servers)
}

/// Numbers as they are written: no entry has one.
fn json(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => Value::from(text.as_ref()),
        DeValue::Boolean(flag) => Value::from(*flag),
        DeValue::Array(items) => Value::Array(items.iter().map(|item| json(item.get_ref())).collect()),
        DeValue::Table(fields) => {
            let pair =
                |(key, value): (&toml::Spanned<std::borrow::Cow<'_, str>>, &toml::Spanned<DeValue<'_>>)| {
                    (key.get_ref().to_string(), json(value.get_ref()))
                };
            Value::Object(fields.iter().map(pair).collect())
        }
        DeValue::Integer(number) => Value::from(number.to_string().parse::<u64>().unwrap_or_default()),
        DeValue::Float(_) | DeValue::Datetime(_) => Value::Null,
    }
}
