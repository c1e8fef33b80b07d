//! How to make `ctx mcp` known to the common MCP hosts: the text to paste, and where.
//!
//! Pure text. It writes no file of another program, because those files hold more than our entry.

use std::fmt;

use serde_json::Value;

/// The name under which a host lists the server.
const SERVER: &str = "ctx";

/// How long a host is told to wait for an answer, where it can be told: a minute longer than any command may run, so
/// that it is the shell that stops a command and the host that hears of it.
const WAIT_SECS: u32 = 6 * 60 * 60 + 60;

/// An MCP host that ctx knows how to set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Host {
    ClaudeCode,
    Codex,
    Cursor,
    VsCode,
    Gemini,
    Opencode,
    Goose,
    Qwen,
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
    /// For which other version of the host another text is right, and that text.
    pub other: Option<(&'static str, String)>,
}

impl Host {
    pub const ALL: [Host; 8] = [
        Host::ClaudeCode,
        Host::Codex,
        Host::Cursor,
        Host::VsCode,
        Host::Gemini,
        Host::Opencode,
        Host::Goose,
        Host::Qwen,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Host::ClaudeCode => "claude-code",
            Host::Codex => "codex",
            Host::Cursor => "cursor",
            Host::VsCode => "vscode",
            Host::Gemini => "gemini",
            Host::Opencode => "opencode",
            Host::Goose => "goose",
            Host::Qwen => "qwen",
        }
    }

    /// What else people call it.
    pub fn other_names(self) -> &'static [&'static str] {
        match self {
            Host::ClaudeCode => &["claude", "claudecode", "claude code"],
            Host::Codex => &["codex-cli"],
            Host::Cursor => &[],
            Host::VsCode => &["vs-code", "vs code", "code", "copilot"],
            Host::Gemini => &["gemini-cli"],
            Host::Opencode => &["open-code"],
            Host::Goose => &["goose-cli"],
            Host::Qwen => &["qwen-code", "qwen code"],
        }
    }

    /// How to set up this host with the ctx binary at `ctx` and these arguments, `mcp` first.
    pub fn setup(self, ctx: &str, args: &[String]) -> Setup {
        let words = [ctx].into_iter().chain(args.iter().map(String::as_str));
        let path = Value::from(ctx);
        let list = json_list(args.iter().map(String::as_str));
        let plain = format!(r#"{{ "command": {path}, "args": {list} }}"#);
        let typed = format!(r#"{{ "type": "stdio", "command": {path}, "args": {list} }}"#);
        let wait = format!(r#""timeout": {WAIT_SECS}000"#);
        let setup = |command: Option<String>, file, text| Setup { command, file, text, other: None };
        match self {
            Host::ClaudeCode => {
                // `claude mcp add` cannot set the last two.
                let entry = with(&with(&typed, &wait), r#""alwaysLoad": true"#);
                let words = shell_quoted(&entry);
                setup(
                    Some(format!("claude mcp add-json --scope user {SERVER} {words}")),
                    ".mcp.json in the project",
                    servers("mcpServers", &entry),
                )
            }
            // `codex mcp add` cannot set the time, and one minute, which older versions wait, is less than a command may take.
            Host::Codex => setup(None, "~/.codex/config.toml", codex_table(&path, &list)),
            Host::Cursor => setup(
                None,
                "~/.cursor/mcp.json, or .cursor/mcp.json in the project",
                servers("mcpServers", &plain),
            ),
            Host::VsCode => {
                let named = format!(r#"{{"name":"{SERVER}","command":{path},"args":{list}}}"#);
                setup(
                    Some(format!("code --add-mcp {}", shell_quoted(&named))),
                    ".vscode/mcp.json in the project",
                    servers("servers", &typed),
                )
            }
            // Qwen Code came of Gemini CLI, and is set up in the same way.
            Host::Gemini | Host::Qwen => {
                let (program, file) = match self {
                    Host::Qwen => ("qwen", "~/.qwen/settings.json, or .qwen/settings.json in the project"),
                    _ => ("gemini", "~/.gemini/settings.json, or .gemini/settings.json in the project"),
                };
                let words = gemini_words(ctx, args);
                setup(
                    Some(format!("{program} mcp add --scope user --timeout {WAIT_SECS}000 {SERVER} {words}")),
                    file,
                    servers("mcpServers", &with(&plain, &wait)),
                )
            }
            // What `goose configure` asks for one by one.
            Host::Goose => setup(None, "~/.config/goose/config.yaml", goose_extension(&path, &list)),
            Host::Opencode => {
                let all = json_list(words);
                let first = format!(r#"{{ "type": "local", "command": {all}, "enabled": true }}"#);
                let wait_each = format!(r#""timeout": {{ "request": {WAIT_SECS}000 }}"#);
                let second = with(&format!(r#"{{ "type": "local", "command": {all} }}"#), &wait_each);
                let second = format!(r#"{{ "servers": {{ "{SERVER}": {second} }} }}"#);
                Setup {
                    command: None,
                    file: "opencode.json in the project, or ~/.config/opencode/opencode.json",
                    text: servers("mcp", &with(&first, &wait)),
                    other: Some(("opencode 2", format!("{{\n  \"mcp\": {second}\n}}"))),
                }
            }
        }
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Setup { command, file, text, other } = self;
        match command {
            Some(command) => writeln!(f, "run:\n\n{command}\n\nor put this into {file}:\n\n{text}")?,
            None => writeln!(f, "put this into {file}:\n\n{text}")?,
        }
        match other {
            Some((version, text)) => writeln!(f, "\nfor {version}, this:\n\n{text}"),
            None => Ok(()),
        }
    }
}

/// A file with one server in it, written out so that the order of the keys is ours.
fn servers(key: &str, entry: &str) -> String {
    format!("{{\n  \"{key}\": {{\n    \"{SERVER}\": {entry}\n  }}\n}}")
}

/// An entry with one more field.
fn with(entry: &str, field: &str) -> String {
    entry.strip_suffix(" }").map_or_else(|| entry.to_owned(), |open| format!("{open}, {field} }}"))
}

fn json_list<'a>(words: impl Iterator<Item = &'a str>) -> String {
    let words: Vec<String> = words.map(|word| Value::from(word).to_string()).collect();
    format!("[{}]", words.join(", "))
}

/// A JSON string is a TOML string too, and a list of them a list.
fn codex_table(path: &Value, list: &str) -> String {
    format!("[mcp_servers.{SERVER}]\ncommand = {path}\nargs = {list}\ntool_timeout_sec = {WAIT_SECS}")
}

/// A JSON string is a YAML string too, and a list of them a list.
fn goose_extension(path: &Value, list: &str) -> String {
    let fields = [
        format!("name: {SERVER}"),
        "type: stdio".to_owned(),
        "enabled: true".to_owned(),
        format!("cmd: {path}"),
        format!("args: {list}"),
        format!("timeout: {WAIT_SECS}"),
    ];
    let fields = fields.map(|field| format!("\n    {field}")).concat();
    format!("extensions:\n  {SERVER}:{fields}")
}

/// What begins with a dash would be taken for an option of Gemini's own.
fn gemini_words(ctx: &str, args: &[String]) -> String {
    let has_options = args.iter().any(|arg| arg.starts_with('-'));
    let words = [ctx].into_iter().chain(has_options.then_some("--")).chain(args.iter().map(String::as_str));
    words.map(shell_quoted).collect::<Vec<_>>().join(" ")
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

    fn mcp() -> Vec<String> {
        vec!["mcp".to_owned()]
    }

    #[test]
    fn a_command_and_a_file_for_claude_code() {
        let want = r#"run:

claude mcp add-json --scope user ctx '{ "type": "stdio", "command": "/usr/bin/ctx", "args": ["mcp"], "timeout": 21660000, "alwaysLoad": true }'

or put this into .mcp.json in the project:

{
  "mcpServers": {
    "ctx": { "type": "stdio", "command": "/usr/bin/ctx", "args": ["mcp"], "timeout": 21660000, "alwaysLoad": true }
  }
}
"#;
        assert_eq!(Host::ClaudeCode.setup("/usr/bin/ctx", &mcp()).to_string(), want);
    }

    #[test]
    fn codex_gets_a_table_that_is_toml() {
        let want = r#"[mcp_servers.ctx]
command = "/opt/my \"ctx\""
args = ["mcp"]
tool_timeout_sec = 21660"#;
        assert_eq!(Host::Codex.setup("/opt/my \"ctx\"", &mcp()).text, want);
    }

    #[test]
    fn goose_gets_an_extension_and_qwen_what_gemini_gets() {
        let want = r#"put this into ~/.config/goose/config.yaml:

extensions:
  ctx:
    name: ctx
    type: stdio
    enabled: true
    cmd: "/x/ctx"
    args: ["mcp"]
    timeout: 21660
"#;
        assert_eq!(Host::Goose.setup("/x/ctx", &mcp()).to_string(), want);
        let (qwen, gemini) = (Host::Qwen.setup("/x/ctx", &mcp()), Host::Gemini.setup("/x/ctx", &mcp()));
        assert_eq!(qwen.command.unwrap(), gemini.command.unwrap().replace("gemini", "qwen"));
        assert_eq!(qwen.text, gemini.text);
    }

    #[test]
    fn every_json_text_is_json_and_names_the_binary() {
        for host in Host::ALL {
            let setup = host.setup("/a b/ctx", &mcp());
            assert!(setup.text.contains("/a b/ctx"), "{host:?}");
            if !matches!(host, Host::Codex | Host::Goose) {
                let value: Value = serde_json::from_str(&setup.text).unwrap();
                let server = value
                    .pointer("/mcpServers/ctx")
                    .or(value.pointer("/servers/ctx"))
                    .or(value.pointer("/mcp/ctx"));
                let server = server.unwrap();
                assert!(server.get("command").is_some(), "{host:?}");
                let waits = server.get("timeout").and_then(Value::as_u64);
                // These two have no setting for it.
                let wanted = (!matches!(host, Host::Cursor | Host::VsCode)).then_some(21_660_000);
                assert_eq!(waits, wanted, "{host:?}");
            }
        }
    }

    #[test]
    fn a_host_waits_longer_than_any_command_may_run() {
        let longest = ctx_host::ShellLimits::default().timeout_max.as_secs();
        assert!(u64::from(WAIT_SECS) >= longest + 30, "{WAIT_SECS} and {longest}");
    }

    #[test]
    fn opencode_wants_one_array() {
        let setup = Host::Opencode.setup("/x/ctx", &mcp());
        let value: Value = serde_json::from_str(&setup.text).unwrap();
        assert_eq!(value.pointer("/mcp/ctx/command"), Some(&json!(["/x/ctx", "mcp"])));
        let (version, text) = setup.other.clone().unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let wait = json!({"request": WAIT_SECS * 1000});
        let server = json!({"type": "local", "command": ["/x/ctx", "mcp"], "timeout": wait});
        assert_eq!(
            value,
            json!({"mcp": {"servers": {"ctx": server}}}),
            "its second version has no `enabled`"
        );
        assert!(setup.to_string().contains(&format!("for {version}, this:\n\n{text}\n")));
    }

    #[test]
    fn options_are_in_every_form() {
        let args = ["mcp", "--root", "/r r", "--max-shells", "3"].map(str::to_owned);
        for host in Host::ALL {
            let setup = host.setup("/x/ctx", &args);
            let texts = [Some(setup.text), setup.other.map(|(_, text)| text)];
            for text in texts.into_iter().flatten() {
                assert!(
                    text.contains(r#""mcp", "--root", "/r r", "--max-shells", "3"]"#),
                    "{host:?}: {text}"
                );
            }
            if let Some(command) = setup.command {
                assert!(command.contains("/r r") && command.contains("max-shells"), "{host:?}: {command}");
            }
        }
        let command = Host::ClaudeCode.setup("/it's/ctx", &args).command.unwrap();
        assert!(
            command.contains(r#"add-json --scope user ctx '{ "type": "stdio", "command": "/it'\''s/ctx""#),
            "{command}"
        );
        assert_eq!(Host::Codex.setup("/x/ctx", &args).command, None, "it would leave Codex's own time");
    }

    #[test]
    fn commands_are_quoted_for_a_shell() {
        let command = Host::Gemini.setup("/it's/ctx", &mcp()).command.unwrap();
        assert_eq!(command, r"gemini mcp add --scope user --timeout 21660000 ctx '/it'\''s/ctx' mcp");
        let command = Host::VsCode.setup("/x/ctx", &mcp()).command.unwrap();
        assert_eq!(command, r#"code --add-mcp '{"name":"ctx","command":"/x/ctx","args":["mcp"]}'"#);
    }

    #[test]
    fn no_name_means_two_hosts() {
        let mut names: Vec<&str> =
            Host::ALL.iter().flat_map(|host| [&[host.name()], host.other_names()].concat()).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
