//! `ctx mcp-server`: the MCP servers whose tools agents are given.

use std::collections::BTreeMap;
use std::io::Write;

use ctx_agent::project::{Given, McpServer, read_mcp};
use ctx_session::{Code, Name};
use serde_json::{Map, Value, json};

use super::model::{own_config, write_section};
use crate::client::tell_of_servers;
use crate::config::{self, Environment, FileArg};
use crate::failure::Failure;
use crate::here;
use crate::output::{self, Paint};
use crate::root::Root;
use crate::table::{self, Cell};

/// Give agents the tools of MCP servers
///
/// A server is a program, which runs in the session's cage, or an address that speaks streamable HTTP. Its tools are called SERVER.TOOL, and every
/// use of them needs your approval unless a policy allows it. `add` writes a section `[mcp.NAME]` of the config file, for all your sessions;
/// a project file can name servers for its project.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx mcp-server add time -- uvx mcp-server-time
  ctx mcp-server add github --env GITHUB_TOKEN --net host -- github-mcp-server stdio
  ctx mcp-server add docs --url https://example.org/mcp --header-env Authorization=DOCS_TOKEN
  ctx mcp-server ls
  ctx mcp-server rm time

exit codes: 0 success, 1 failed, 2 bad input, 70 internal error")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Add a server to the config file
    Add(Add),
    /// List the servers of the config file and of this directory's project file
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a server from the config file
    Rm {
        /// The server, as `ctx mcp-server ls` shows it
        #[arg(value_name = "SERVER")]
        name: String,
        /// Print the removed server as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct Add {
    /// What the server is called; the first half of its tools' names
    #[arg(value_name = "SERVER")]
    name: String,
    /// Program and its arguments
    #[arg(value_name = "COMMAND", last = true, required_unless_present = "url")]
    command: Vec<String>,
    /// Address of a server that speaks streamable HTTP
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    url: Option<String>,
    /// Variable of your shell that the program is given, also as NAME=VARIABLE; can be given several times
    #[arg(long, value_name = "VARIABLE", conflicts_with = "url")]
    env: Vec<String>,
    /// Header that is sent with every request, as NAME=VALUE; can be given several times
    #[arg(long, value_name = "HEADER", requires = "url")]
    header: Vec<String>,
    /// Header whose value is in a variable of your shell, as NAME=VARIABLE; a bearer token for Authorization
    #[arg(long, value_name = "HEADER", requires = "url")]
    header_env: Vec<String>,
    /// Network of the program: none, or host for that of this machine
    #[arg(long, value_name = "NET", value_parser = ["none", "host"], conflicts_with = "url")]
    net: Option<String>,
    /// Print the server as JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args, root: Root) -> Result<(), Failure> {
    match args.what {
        What::Add(add) => add_server(add, &root),
        What::Ls { json } => list(&root, json),
        What::Rm { name, json } => remove(&name, &root, json),
    }
}

fn configured() -> Result<BTreeMap<Name, McpServer>, Failure> {
    Ok(config::load(&FileArg::of_environment(), &Environment::of_process())?.config.mcp)
}

fn add_server(add: Add, root: &Root) -> Result<(), Failure> {
    let bad = |message: String| Failure::new(Code::Einval, message);
    let name = Name::new(&add.name)
        .map_err(|rule| bad(format!("`{}` is not a server's name: {rule}", output::plain(&add.name))))?;
    let entry = entry(&add)?;
    read_mcp(name.as_str(), &entry).map_err(|problem| bad(output::plain(&problem).to_string()))?;
    let path = own_config()?;
    if configured()?.contains_key(&name) {
        let message = format!("[mcp.{name}] is in {} already", path.display());
        return Err(Failure::new(Code::Eexist, message).hint("edit it there, or remove it first"));
    }
    write_section(&path, &section(&name, &entry))?;
    output::say(format_args!("wrote [mcp.{name}] to {}", path.display()));
    if add.json
        && let Some(server) = configured()?.get(&name)
    {
        output::json(&object(&name, "config", server))?;
    }
    tell(root)
}

/// A daemon that runs looks at the file again; the next one reads it anyway.
fn tell(root: &Root) -> Result<(), Failure> {
    if root.is_up() { tell_of_servers(root, BTreeMap::new()) } else { Ok(()) }
}

/// `NAME=VALUE`
fn pair(text: &str) -> Result<(String, String), Failure> {
    let wanted = || Failure::new(Code::Einval, format!("`{}` must be NAME=VALUE", output::plain(text)));
    let (name, value) = text.split_once('=').ok_or_else(wanted)?;
    Ok((name.to_owned(), value.to_owned()))
}

fn entry(add: &Add) -> Result<Value, Failure> {
    let mut entry = Map::new();
    let mut env = Map::new();
    for text in &add.env {
        let (name, variable) = if text.contains('=') { pair(text)? } else { (text.clone(), text.clone()) };
        env.insert(name, json!({ "from_env": variable }));
    }
    let mut headers = Map::new();
    for text in &add.header {
        let (name, value) = pair(text)?;
        headers.insert(name, Value::from(value));
    }
    for text in &add.header_env {
        let (name, variable) = pair(text)?;
        let is_token = name.eq_ignore_ascii_case("authorization");
        let given = match is_token {
            true => json!({ "from_env": variable, "prefix": "Bearer " }),
            false => json!({ "from_env": variable }),
        };
        headers.insert(name, given);
    }
    match &add.url {
        Some(url) => drop(entry.insert("url".to_owned(), Value::from(url.as_str()))),
        None => drop(entry.insert("command".to_owned(), Value::from(add.command.clone()))),
    }
    for (key, fields) in [("env", env), ("headers", headers)] {
        if !fields.is_empty() {
            entry.insert(key.to_owned(), Value::Object(fields));
        }
    }
    if let Some(net) = &add.net {
        entry.insert("cage".to_owned(), json!({ "net": net }));
    }
    Ok(Value::Object(entry))
}

/// The section as it is written.
fn section(name: &Name, entry: &Value) -> String {
    let mut text = format!("\n[mcp.{name}]\n");
    for (key, value) in entry.as_object().into_iter().flatten() {
        text.push_str(&format!("{key} = {}\n", toml_of(value)));
    }
    text
}

/// A value in one line: strings of JSON are strings of TOML.
fn toml_of(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{} = {}", Value::from(key.as_str()), toml_of(value)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(toml_of).collect::<Vec<_>>().join(", ")),
        plain => plain.to_string(),
    }
}

fn remove(name: &str, root: &Root, json: bool) -> Result<(), Failure> {
    let (path, before) = (own_config()?, configured()?);
    let shown = output::plain(name).to_string();
    let Some(known) = Name::new(name).ok().filter(|name| before.contains_key(name)) else {
        return Err(Failure::new(Code::Enoent, format!("there is no [mcp.{shown}] in {}", path.display()))
            .hint("`ctx mcp-server ls` lists the servers"));
    };
    let failed = |error| Failure::io(path.display(), error);
    let old = std::fs::read_to_string(&path).map_err(failed)?;
    let new = without(&old, name);
    let after = config::mcp_of(&path, &new);
    let is_right = after.is_ok_and(|after| {
        !after.contains_key(&known)
            && before.iter().all(|(name, server)| *name == known || after.get(name) == Some(server))
    });
    if !is_right {
        return Err(Failure::new(Code::Einval, format!("[mcp.{name}] cannot be removed by itself"))
            .hint(format!("edit {} by hand", path.display())));
    }
    let aside = path.with_extension("toml.new");
    std::fs::write(&aside, new).map_err(failed)?;
    std::fs::rename(&aside, &path).map_err(failed)?;
    output::say(format_args!("removed [mcp.{name}] from {}", path.display()));
    if json && let Some(server) = before.get(&known) {
        output::json(&object(&known, "config", server))?;
    }
    tell(root)
}

/// The file without a section and the sections below it.
fn without(text: &str, name: &str) -> String {
    let (own, below) = (format!("[mcp.{name}]"), format!("[mcp.{name}."));
    let mut is_in = false;
    let mut kept = String::new();
    for line in text.split_inclusive('\n') {
        let head = line.trim_start();
        if head.starts_with('[') {
            is_in = head.starts_with(&own) || head.starts_with(&below);
        }
        if !is_in {
            kept.push_str(line);
        }
    }
    kept
}

fn list(root: &Root, json: bool) -> Result<(), Failure> {
    let (own, project) = (configured()?, here::mcp_servers(&root.path));
    let own = own
        .into_iter()
        .filter(|(name, _)| !project.contains_key(name))
        .map(|(name, server)| (name, "config", server));
    let project = project.iter().map(|(name, server)| (name.clone(), "project", server.clone()));
    let mut servers: Vec<(Name, &str, McpServer)> = own.chain(project).collect();
    servers.sort_by(|a, b| a.0.cmp(&b.0));
    if json {
        return output::json_lines(servers.iter().map(|(name, from, server)| object(name, from, server)));
    }
    let row = |(name, from, server): (Name, &str, McpServer)| {
        let what = server.url.clone().unwrap_or_else(|| server.command.join(" "));
        let given: Vec<String> =
            server.env.iter().chain(&server.headers).map(|(name, given)| in_words(name, given)).collect();
        let given = if given.is_empty() { "-".to_owned() } else { given.join(" ") };
        [name.to_string(), from.to_owned(), what, given].map(|text| Cell::new(output::one_line(&text))).into()
    };
    let rows: Vec<Vec<Cell>> = servers.into_iter().map(row).collect();
    let mut out = output::stdout();
    let head = ["SERVER", "FROM", "PROGRAM OR ADDRESS", "GIVEN"];
    out.write_all(table::render(&head, rows, output::width(), Paint::for_stdout()).as_bytes())?;
    out.flush()?;
    Ok(())
}

/// A server with its name and whether the config file or the project file has it.
fn object(name: &Name, from: &str, server: &McpServer) -> Value {
    let mut object = serde_json::to_value(server).unwrap_or_default();
    if let Some(fields) = object.as_object_mut() {
        fields.insert("name".to_owned(), Value::from(name.as_str()));
        fields.insert("from".to_owned(), Value::from(from));
    }
    object
}

/// What a server is given, without values.
fn in_words(name: &str, given: &Given) -> String {
    match given {
        Given::Text(_) => name.to_owned(),
        Given::FromEnv { from_env, .. } => format!("{name}=${from_env}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_goes_with_what_is_below_it_and_nothing_else() {
        let text = "a = 1\n[mcp.x]\ncommand = [\"x\"]\n[mcp.x.env]\nA = \"b\"\n# kept?\n[mcp.xy]\nurl = \"http://y\"\n";
        assert_eq!(without(text, "x"), "a = 1\n[mcp.xy]\nurl = \"http://y\"\n");
        assert_eq!(without(text, "y"), text);
    }
}
