//! What an entry of `mcp` means, in a project file and in the config file.

use std::collections::BTreeMap;

use serde_json::Value;

use super::cage::{cage, is_variable};
use super::read::Complaints;
use super::spec::{Given, McpServer};
use super::yaml::{At, Kind, Node};

/// The first parts of our own tools' names.
const OWN: [&str; 8] = ["fs", "output", "shell", "terminal", "agent", "checkpoint", "todo", "issue"];

/// Reads an entry of a file that is no project file; or all that is wrong with it, in one line.
pub fn read_mcp(name: &str, entry: &Value) -> Result<McpServer, String> {
    let mut complaints = Complaints::default();
    let server = mcp_server(&mut complaints, &node(entry), &format!("mcp.{name}"));
    match server {
        Some(server) if complaints.is_empty() => Ok(server),
        _ => {
            let said: Vec<String> =
                complaints.into_sorted().into_iter().map(|(_, message)| message).collect();
            Err(said.join("; "))
        }
    }
}

/// A value without places: whoever complains of it names one.
fn node(value: &Value) -> Node {
    let kind = match value {
        Value::Null => Kind::Null,
        Value::Bool(value) => Kind::Bool(*value),
        Value::Number(number) => Kind::Number(number.to_string()),
        Value::String(text) => Kind::Text(text.clone()),
        Value::Array(items) => Kind::List(items.iter().map(node).collect()),
        Value::Object(fields) => {
            let pair = |(key, value): (&String, &Value)| {
                (Node { at: At::START, kind: Kind::Text(key.clone()) }, node(value))
            };
            Kind::Map(fields.iter().map(pair).collect())
        }
    };
    Node { at: At::START, kind }
}

/// Reads an entry; `name` is `mcp.` and the server's.
pub(super) fn mcp_server(complaints: &mut Complaints, node: &Node, name: &str) -> Option<McpServer> {
    let fields = complaints.fields(node, name, &["command", "url", "env", "headers", "cage"]);
    if !matches!(node.kind, Kind::Map(_)) {
        return None;
    }
    let server = name.strip_prefix("mcp.").unwrap_or(name);
    if server.contains('.') || OWN.contains(&server) {
        let message =
            format!("`{server}` cannot be a server: it has a dot, or is the beginning of tools that ctx has");
        complaints.add(node.at, message);
    }
    let command = fields.get("command").map(|node| complaints.command(node, &format!("{name}.command")));
    let url = fields.get("url").map(|node| url(complaints, node, &format!("{name}.url")));
    let env = fields.get("env").map(|node| values(complaints, node, &format!("{name}.env"), env_name));
    let headers =
        fields.get("headers").map(|node| values(complaints, node, &format!("{name}.headers"), header_name));
    let cage = fields.get("cage").map(|node| cage(complaints, node, &format!("{name}.cage")));
    let mut stray = |key: &str, with: &str| {
        if let Some(at) = fields.key_at(key) {
            complaints.add(at, format!("`{name}.{key}` is for a server with `{with}`"));
        }
    };
    let (command, url) = match (command, url) {
        (Some(command), None) => {
            stray("headers", "url");
            (command?, None)
        }
        (None, Some(url)) => {
            stray("env", "command");
            stray("cage", "command");
            (Vec::new(), Some(url?))
        }
        (Some(_), Some(_)) => {
            complaints.add(node.at, format!("`{name}` can have `command` or `url`, not both"));
            return None;
        }
        (None, None) => {
            complaints.add(node.at, format!("`{name}` needs `command` or `url`"));
            return None;
        }
    };
    let (env, headers) = (env.unwrap_or_default(), headers.unwrap_or_default());
    Some(McpServer { command, url, env, headers, cage: cage.unwrap_or_default() })
}

/// The address of a server. A password in it would be shown wherever the address is.
fn url(complaints: &mut Complaints, node: &Node, name: &str) -> Option<String> {
    let text = complaints.text(node, name)?;
    let rest = text.strip_prefix("http://").or(text.strip_prefix("https://"));
    let host = rest.map(|rest| rest.split('/').next().unwrap_or_default());
    let is_good = host.is_some_and(|host| !host.is_empty() && !host.contains('@'))
        && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    if !is_good {
        complaints.add(node.at, format!("`{name}` must be a URL with http or https, and without a password"));
        return None;
    }
    Some(text.to_owned())
}

fn env_name(name: &str) -> Result<(), &'static str> {
    match is_variable(name) && !["PATH", "HOME"].contains(&name) {
        true => Ok(()),
        false => Err("a variable has letters, digits and _, and is not PATH or HOME"),
    }
}

fn header_name(name: &str) -> Result<(), &'static str> {
    match !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_')) {
        true => Ok(()),
        false => Err("a header has letters, digits, - and _"),
    }
}

fn values(
    complaints: &mut Complaints,
    node: &Node,
    name: &str,
    check: fn(&str) -> Result<(), &'static str>,
) -> BTreeMap<String, Given> {
    let mut found = BTreeMap::new();
    for (key, at, value) in complaints.entries(node, name) {
        if let Err(rule) = check(key) {
            complaints.add(at, format!("`{name}`: {rule}"));
        } else if let Some(given) = given(complaints, value, &format!("{name}.{key}")) {
            found.insert(key.to_owned(), given);
        }
    }
    found
}

fn given(complaints: &mut Complaints, node: &Node, name: &str) -> Option<Given> {
    let plain = |complaints: &mut Complaints, node: &Node, name: &str| {
        let text = complaints.text(node, name)?.to_owned();
        if text.contains(['\0', '\n', '\r']) {
            complaints.add(node.at, format!("`{name}` must be one line without NUL bytes"));
            return None;
        }
        Some(text)
    };
    if !matches!(node.kind, Kind::Map(_)) {
        return plain(complaints, node, name).map(Given::Text);
    }
    let fields = complaints.fields(node, name, &["from_env", "prefix"]);
    let Some(variable) = fields.get("from_env") else {
        complaints.add(node.at, format!("`{name}` must be a text or `{{from_env: VARIABLE}}`"));
        return None;
    };
    let from_env = complaints.text(variable, &format!("{name}.from_env"))?.to_owned();
    if !is_variable(&from_env) {
        complaints.add(variable.at, format!("`{name}.from_env` must be the name of a variable"));
        return None;
    }
    let prefix = match fields.get("prefix") {
        Some(node) => plain(complaints, node, &format!("{name}.prefix"))?,
        None => String::new(),
    };
    Some(Given::FromEnv { from_env, prefix })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_entry_is_a_program_or_an_address() {
        let server =
            read_mcp("gh", &json!({ "command": ["gh-mcp"], "env": { "A": { "from_env": "B" }, "C": "d" } }));
        let server = server.unwrap();
        assert_eq!((server.command.as_slice(), server.url.as_deref()), (&["gh-mcp".to_owned()][..], None));
        assert_eq!(server.variables().collect::<Vec<_>>(), ["B"]);
        let header = json!({ "Authorization": { "from_env": "T", "prefix": "Bearer " } });
        let server = read_mcp("web", &json!({ "url": "https://x/mcp", "headers": header })).unwrap();
        assert_eq!(server.variables().collect::<Vec<_>>(), ["T"]);
    }

    #[test]
    fn what_is_wrong_with_an_entry_is_named() {
        for (name, entry, part) in [
            ("a", json!({}), "`mcp.a` needs `command` or `url`"),
            ("a", json!({ "command": ["x"], "url": "http://x" }), "not both"),
            ("a", json!({ "command": [] }), "must name a program"),
            ("a", json!({ "url": "ftp://x" }), "must be a URL"),
            ("a", json!({ "url": "http://me:secret@x/" }), "without a password"),
            ("a", json!({ "url": "http://x", "env": {} }), "`mcp.a.env` is for a server with `command`"),
            ("a", json!({ "command": ["x"], "headers": {} }), "`mcp.a.headers` is for a server with `url`"),
            ("a", json!({ "command": ["x"], "env": { "PATH": "x" } }), "is not PATH or HOME"),
            (
                "a",
                json!({ "command": ["x"], "env": { "A": { "from": "B" } } }),
                "the keys are from_env, prefix",
            ),
            ("a", json!({ "command": ["x"], "cage": { "net": "some" } }), "must be one of none, host"),
            ("a", json!({ "comand": ["x"] }), "did you mean `command`?"),
            ("fs", json!({ "command": ["x"] }), "`fs` cannot be a server"),
            ("a.b", json!({ "command": ["x"] }), "`a.b` cannot be a server"),
        ] {
            let error = read_mcp(name, &entry).unwrap_err();
            assert!(error.contains(part), "{entry}: {error}");
        }
    }
}
