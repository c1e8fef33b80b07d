//! How to make `ctx mcp` known to the common MCP hosts: the text to paste, and where.
//!
//! Pure text. It writes no file of another program, because those files hold more than our entry.

use std::fmt;

use serde_json::Value;

/// The name under which a host lists the server.
const SERVER: &str = "ctx";

/// A command may run for minutes; Codex gives up on a tool after one unless told otherwise.
const CODEX_TIMEOUT_SECS: u32 = 600;

/// An MCP host that ctx knows how to set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    ClaudeCode,
    Codex,
    Cursor,
    VsCode,
    Gemini,
    Opencode,
}

/// A host's name that ctx does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ctx does not know the MCP host {name:?}; it knows {}", known())]
pub struct UnknownHost {
    pub name: String,
}

/// What to do to set up a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setup {
    /// One command that does it all, where the host has one.
    pub command: Option<String>,
    /// The file that holds the host's servers.
    pub file: &'static str,
    /// What to put into the file.
    pub text: String,
}

impl Host {
    pub const ALL: [Host; 6] =
        [Host::ClaudeCode, Host::Codex, Host::Cursor, Host::VsCode, Host::Gemini, Host::Opencode];

    pub fn name(self) -> &'static str {
        match self {
            Host::ClaudeCode => "claude-code",
            Host::Codex => "codex",
            Host::Cursor => "cursor",
            Host::VsCode => "vscode",
            Host::Gemini => "gemini",
            Host::Opencode => "opencode",
        }
    }

    /// Finds a host by its name, however people write it: `claude`, `VS Code`, `gemini-cli`.
    pub fn parse(name: &str) -> Result<Host, UnknownHost> {
        let plain: String = name.to_lowercase().chars().filter(char::is_ascii_alphanumeric).collect();
        let host = match plain.as_str() {
            "claudecode" | "claude" => Host::ClaudeCode,
            "codex" | "codexcli" => Host::Codex,
            "cursor" => Host::Cursor,
            "vscode" | "code" | "copilot" => Host::VsCode,
            "gemini" | "geminicli" => Host::Gemini,
            "opencode" => Host::Opencode,
            _ => return Err(UnknownHost { name: name.to_owned() }),
        };
        Ok(host)
    }

    /// How to set up this host with the ctx binary at `ctx`.
    pub fn setup(self, ctx: &str) -> Setup {
        let word = shell_quoted(ctx);
        let path = Value::from(ctx);
        let plain = format!(r#"{{ "command": {path}, "args": ["mcp"] }}"#);
        let typed = format!(r#"{{ "type": "stdio", "command": {path}, "args": ["mcp"] }}"#);
        match self {
            Host::ClaudeCode => Setup {
                command: Some(format!("claude mcp add --scope user {SERVER} -- {word} mcp")),
                file: ".mcp.json in the project",
                text: servers("mcpServers", &typed),
            },
            Host::Codex => Setup {
                command: Some(format!("codex mcp add {SERVER} -- {word} mcp")),
                file: "~/.codex/config.toml",
                text: codex_table(&path),
            },
            Host::Cursor => Setup {
                command: None,
                file: "~/.cursor/mcp.json, or .cursor/mcp.json in the project",
                text: servers("mcpServers", &plain),
            },
            Host::VsCode => Setup {
                command: Some(format!("code --add-mcp {}", shell_quoted(&named(&path)))),
                file: ".vscode/mcp.json in the project",
                text: servers("servers", &typed),
            },
            Host::Gemini => Setup {
                command: Some(format!("gemini mcp add --scope user {SERVER} {word} mcp")),
                file: "~/.gemini/settings.json, or .gemini/settings.json in the project",
                text: servers("mcpServers", &plain),
            },
            Host::Opencode => Setup {
                command: None,
                file: "opencode.json in the project, or ~/.config/opencode/opencode.json",
                text: servers(
                    "mcp",
                    &format!(r#"{{ "type": "local", "command": [{path}, "mcp"], "enabled": true }}"#),
                ),
            },
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { command, file, text } = self;
        match command {
            Some(command) => writeln!(f, "Run this:\n\n{command}\n\nOr add this to {file}:\n\n{text}"),
            None => writeln!(f, "Add this to {file}:\n\n{text}"),
        }
    }
}

fn known() -> String {
    Host::ALL.map(Host::name).join(", ")
}

/// A file with one server in it, written out so that the order of the keys is ours.
fn servers(key: &str, entry: &str) -> String {
    format!("{{\n  \"{key}\": {{\n    \"{SERVER}\": {entry}\n  }}\n}}")
}

fn named(path: &Value) -> String {
    format!(r#"{{"name":"{SERVER}","command":{path},"args":["mcp"]}}"#)
}

/// A JSON string is a TOML string too.
fn codex_table(path: &Value) -> String {
    format!(
        "[mcp_servers.{SERVER}]\ncommand = {path}\nargs = [\"mcp\"]\ntool_timeout_sec = {CODEX_TIMEOUT_SECS}"
    )
}

/// The text as one word of a POSIX shell.
fn shell_quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,=".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_command_and_a_file_for_claude_code() {
        let want = r#"Run this:

claude mcp add --scope user ctx -- /usr/bin/ctx mcp

Or add this to .mcp.json in the project:

{
  "mcpServers": {
    "ctx": { "type": "stdio", "command": "/usr/bin/ctx", "args": ["mcp"] }
  }
}
"#;
        assert_eq!(Host::ClaudeCode.setup("/usr/bin/ctx").to_string(), want);
    }

    #[test]
    fn codex_gets_a_table_that_is_toml() {
        let want = r#"[mcp_servers.ctx]
command = "/opt/my \"ctx\""
args = ["mcp"]
tool_timeout_sec = 600"#;
        assert_eq!(Host::Codex.setup("/opt/my \"ctx\"").text, want);
    }

    #[test]
    fn every_json_text_is_json_and_names_the_binary() {
        for host in Host::ALL {
            let setup = host.setup("/a b/ctx");
            assert!(setup.text.contains("/a b/ctx"), "{host:?}");
            if host != Host::Codex {
                let value: Value = serde_json::from_str(&setup.text).unwrap();
                let server = value
                    .pointer("/mcpServers/ctx")
                    .or(value.pointer("/servers/ctx"))
                    .or(value.pointer("/mcp/ctx"));
                assert!(server.is_some_and(|server| server.get("command").is_some()), "{host:?}");
            }
        }
    }

    #[test]
    fn opencode_wants_one_array() {
        let value: Value = serde_json::from_str(&Host::Opencode.setup("/x/ctx").text).unwrap();
        assert_eq!(value.pointer("/mcp/ctx/command"), Some(&json!(["/x/ctx", "mcp"])));
    }

    #[test]
    fn commands_are_quoted_for_a_shell() {
        let command = Host::Gemini.setup("/it's/ctx").command.unwrap();
        assert_eq!(command, r"gemini mcp add --scope user ctx '/it'\''s/ctx' mcp");
        let command = Host::VsCode.setup("/x/ctx").command.unwrap();
        assert_eq!(command, r#"code --add-mcp '{"name":"ctx","command":"/x/ctx","args":["mcp"]}'"#);
    }

    #[test]
    fn names_are_found_however_they_are_written() {
        for host in Host::ALL {
            assert_eq!(Host::parse(host.name()), Ok(host));
        }
        assert_eq!(Host::parse("Claude"), Ok(Host::ClaudeCode));
        assert_eq!(Host::parse("VS Code"), Ok(Host::VsCode));
        assert_eq!(Host::parse("gemini-cli"), Ok(Host::Gemini));
        let error = Host::parse("emacs").unwrap_err().to_string();
        assert!(
            error.contains("emacs") && error.contains("claude-code, codex, cursor, vscode, gemini, opencode"),
            "{error}"
        );
    }
}
