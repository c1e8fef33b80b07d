//! What the keys of a project file mean. The shape is that of the published schema, and a test holds the two together.

use std::collections::BTreeMap;

use ctx_session::Name;
use ctx_session::project::{Compaction, Delegate, Problem, Strategy};
use ctx_session::record::Redact;

use super::PROJECT_FILE;
use super::cage::cage;
use super::mcp::mcp_server;
use super::read::{Complaints, Fields};
use super::spec::{Host, McpServer, Plays, Primary, ProjectLimits, ProjectSpec, Subagent, TOOLS};
use super::yaml::{At, Kind, Node, load};
use crate::control::policy::Rule;
use crate::control::short;
use crate::model::registry::ModelName;
use crate::nearest::nearest;

const STEPS_MAX: u32 = 10_000;
const RUNNING_MAX: u32 = 10_000;
/// The model of a primary that names none: an alias that every root has.
const DEFAULT_MODEL: &str = "main";

/// A file that was found right.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    pub spec: ProjectSpec,
    /// Where the project is named.
    pub project_at: At,
    /// Where the primary's name comes from.
    pub agent_at: At,
    pub named: Named,
}

/// What a file names that lies elsewhere. It is known of a file with errors too, so that all of them are found at once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Named {
    pub prompts: Vec<PromptAt>,
    /// The primary's model, and where it is named; the default where the primary begins.
    pub model: Option<(String, At)>,
    pub subagent_models: Vec<(String, At)>,
}

/// A prompt file that is named, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct PromptAt {
    pub path: String,
    pub at: At,
}

/// Reads the text of a project file; or everything that is wrong with it, in order.
pub fn parse(text: &str) -> Result<Parsed, Vec<Problem>> {
    parse_with_names(text).map_err(|(problems, _)| problems)
}

pub(super) fn parse_with_names(text: &str) -> Result<Parsed, (Vec<Problem>, Named)> {
    let mut reading = Reading::default();
    let parsed = load(text, &mut reading.complaints).and_then(|root| reading.file(&root));
    match parsed {
        Some(parsed) if reading.complaints.is_empty() => Ok(parsed),
        _ => {
            if reading.complaints.is_empty() {
                let message = "the file is empty; start with `version: 1` and `project: NAME`";
                reading.complaints.add(At::START, message);
            }
            Err((problems(reading.complaints), reading.named))
        }
    }
}

/// The name that a file gives its project, even if all else in it is wrong.
pub(super) fn slug_of(text: &str) -> Option<Name> {
    let Kind::Map(pairs) = load(text, &mut Complaints::default())?.kind else { return None };
    pairs.iter().find_map(|(key, value)| match (&key.kind, &value.kind) {
        (Kind::Text(key), Kind::Text(slug)) if key == "project" => Name::new(slug).ok(),
        _ => None,
    })
}

/// The document as JSON, for whoever holds it against the schema; None when it is no YAML.
pub fn as_json(text: &str) -> Option<serde_json::Value> {
    load(text, &mut Complaints::default()).map(|root| root.to_json())
}

fn problems(complaints: Complaints) -> Vec<Problem> {
    let problem = |(at, message): (At, String)| problem_at(at, message);
    complaints.into_sorted().into_iter().map(problem).collect()
}

/// A problem in the project file.
pub(super) fn problem_at(at: At, message: impl Into<String>) -> Problem {
    Problem { file: PROJECT_FILE.to_owned(), line: at.line, column: at.column, message: message.into() }
}

#[derive(Default)]
struct Reading {
    complaints: Complaints,
    named: Named,
}

impl Reading {
    /// Reads all keys before it gives up at a missing one, so that all problems are reported at once. Subagents and servers come
    /// before the primary, which may name them.
    fn file(&mut self, root: &Node) -> Option<Parsed> {
        let known =
            ["version", "project", "primary", "subagents", "policy", "mcp", "hosts", "limits", "cage"];
        if !matches!(root.kind, Kind::Map(_)) {
            let message = format!("a project file is a mapping of keys to values, not {}", root.kind.what());
            self.complaints.add(root.at, message);
            return None;
        }
        let fields = self.complaints.fields(root, "", &known);
        if let Some(version) = self.required(&fields, "", "version") {
            self.version(version);
        }
        let project_node = self.required(&fields, "", "project");
        let project = project_node.and_then(|node| self.name(node, "project"));
        let subagents = self.named(fields.get("subagents"), "subagents", Reading::subagent);
        let mcp = self.named(fields.get("mcp"), "mcp", Reading::mcp_server);
        let primary_node = self.required(&fields, "", "primary");
        let project_at = project_node.map_or(At::START, |node| node.at);
        let (primary, agent_at) =
            primary_node.and_then(|node| self.primary(node, project.as_ref(), &subagents, &mcp)).unzip();
        let policy = self.policy(fields.get("policy"), "policy");
        let hosts = self.named(fields.get("hosts"), "hosts", Reading::host);
        let limits = self.limits(fields.get("limits"));
        let cage =
            fields.get("cage").map(|node| cage(&mut self.complaints, node, "cage")).unwrap_or_default();
        let spec =
            ProjectSpec { project: project?, primary: primary?, subagents, policy, mcp, hosts, limits, cage };
        let agent_at = agent_at.flatten().unwrap_or(project_at);
        Some(Parsed { spec, project_at, agent_at, named: self.named.clone() })
    }

    fn required<'a>(&mut self, fields: &Fields<'a>, name: &str, key: &str) -> Option<&'a Node> {
        let found = fields.get(key);
        if found.is_none() {
            let place = if name.is_empty() { String::new() } else { format!(" in `{name}`") };
            self.complaints.add(fields.at, format!("`{key}` is missing{place}"));
        }
        found
    }

    fn version(&mut self, node: &Node) {
        match &node.kind {
            Kind::Number(text) if text == "1" => {}
            Kind::Number(text) => {
                let message = format!("this ctx reads version 1 of project files, not {}", short(text));
                self.complaints.add(node.at, message);
            }
            _ => drop(self.complaints.whole(node, "version", 1, 1)),
        }
    }

    fn name(&mut self, node: &Node, what: &str) -> Option<Name> {
        let text = self.complaints.text(node, what)?;
        self.named_text(text, node.at, what)
    }

    fn named_text(&mut self, text: &str, at: At, what: &str) -> Option<Name> {
        match Name::new(text) {
            Ok(name) => Some(name),
            Err(rule) => {
                self.complaints.add(at, format!("`{}` cannot be used for `{what}`: {rule}", short(text)));
                None
            }
        }
    }

    /// A mapping from names that the file chooses itself.
    fn named<T>(
        &mut self,
        node: Option<&Node>,
        what: &'static str,
        read: impl Fn(&mut Reading, &Node, &str) -> Option<T>,
    ) -> BTreeMap<Name, T> {
        let Some(node) = node else { return BTreeMap::new() };
        let mut found = BTreeMap::new();
        for (key, at, value) in self.complaints.entries(node, what) {
            let name = self.named_text(key, at, what);
            let value = read(self, value, &format!("{what}.{}", short(key)));
            if let (Some(name), Some(value)) = (name, value) {
                found.insert(name, value);
            }
        }
        found
    }

    fn primary(
        &mut self,
        node: &Node,
        project: Option<&Name>,
        subagents: &BTreeMap<Name, Subagent>,
        mcp: &BTreeMap<Name, McpServer>,
    ) -> Option<(Primary, Option<At>)> {
        let known = ["name", "model", "prompt", "tools", "compaction", "max_steps", "redact"];
        let fields = self.complaints.fields(node, "primary", &known);
        let own_name = fields.get("name").map(|node| (self.name(node, "primary.name"), node.at));
        let model = match fields.get("model") {
            Some(node) => self.model(node, "primary.model").map(|model| (model, node.at)),
            None => Some((DEFAULT_MODEL.to_owned(), node.at)),
        };
        self.named.model.clone_from(&model);
        let prompt = fields.get("prompt").and_then(|node| self.prompt(node, "primary.prompt"));
        let tools = fields.get("tools").map(|node| self.tools(node, mcp));
        let compaction = fields.get("compaction").and_then(|node| self.compaction(node, subagents));
        let max_steps = fields
            .get("max_steps")
            .and_then(|node| self.complaints.whole(node, "primary.max_steps", 1, STEPS_MAX));
        let redact = fields.get("redact").and_then(|node| self.redact(node));
        let (name, at) = match own_name {
            Some((name, at)) => (name, Some(at)),
            None => (project.cloned(), None),
        };
        let primary = Primary {
            name: name?,
            model: model.map_or_else(|| DEFAULT_MODEL.to_owned(), |(model, _)| model),
            prompt,
            tools,
            compaction: compaction.unwrap_or_default(),
            max_steps,
            redact,
        };
        Some((primary, at))
    }

    fn redact(&mut self, node: &Node) -> Option<Redact> {
        let text = self.complaints.text(node, "primary.redact")?;
        let found = Redact::ALL.into_iter().find(|word| word.as_str() == text);
        if found.is_none() {
            let problem = format!("`primary.redact` is `on` or `off`, not `{}`", short(text));
            self.complaints.add(node.at, problem);
        }
        found
    }

    fn model(&mut self, node: &Node, what: &str) -> Option<String> {
        let text = self.complaints.text(node, what)?;
        match ModelName::parse(text) {
            Ok(_) => Some(text.to_owned()),
            Err(error) => {
                self.complaints.add(node.at, error.to_string());
                None
            }
        }
    }

    /// The path of a file beneath the project; whether it is there is seen when it is read.
    fn prompt(&mut self, node: &Node, what: &str) -> Option<String> {
        let text = self.complaints.text(node, what)?;
        if text.is_empty() || text.starts_with('/') || text.contains('\0') {
            let message =
                format!("`{what}` must be a path beneath the project's directory, not `{}`", short(text));
            self.complaints.add(node.at, message);
            return None;
        }
        if leads_out(text) {
            let message =
                format!("{} is outside of the project's directory; move the file inside", short(text));
            self.complaints.add(node.at, message);
            return None;
        }
        self.named.prompts.push(PromptAt { path: text.to_owned(), at: node.at });
        Some(text.to_owned())
    }

    /// Reads the list of tools. A tool of an MCP server is not checked: which tools a server has is known only when it runs.
    fn tools(&mut self, node: &Node, mcp: &BTreeMap<Name, McpServer>) -> Vec<String> {
        let mut tools: Vec<String> = Vec::new();
        for item in self.complaints.list(node, "primary.tools") {
            let Some(tool) = self.complaints.text(item, "primary.tools") else { continue };
            let of_server = tool.split_once('.').is_some_and(|(server, rest)| {
                !rest.is_empty() && mcp.keys().any(|name| name.as_str() == server)
            });
            if tools.iter().any(|known| known == tool) {
                self.complaints.add(item.at, format!("duplicate `{}`", short(tool)));
            } else if of_server || TOOLS.contains(&tool) {
                tools.push(tool.to_owned());
            } else {
                let hint = match nearest(tool, TOOLS.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => {
                        format!("the tools are {}, and SERVER.TOOL of the servers in `mcp`", TOOLS.join(", "))
                    }
                };
                self.complaints.add(item.at, format!("unknown tool `{}`; {hint}", short(tool)));
            }
        }
        tools
    }

    fn compaction(&mut self, node: &Node, subagents: &BTreeMap<Name, Subagent>) -> Option<Compaction> {
        let name = "primary.compaction";
        let fields = self.complaints.fields(node, name, &["upper", "lower", "strategy", "delegate"]);
        let mut made = Compaction::default();
        let upper = fields.get("upper").map(|node| self.complaints.share(node, "compaction.upper"));
        let lower = fields.get("lower").map(|node| self.complaints.share(node, "compaction.lower"));
        made.upper = upper.flatten().unwrap_or(made.upper);
        made.lower = lower.flatten().unwrap_or(made.lower);
        // One that was complained of is not compared as well.
        if made.lower >= made.upper && upper != Some(None) && lower != Some(None) {
            let at = fields.get("lower").or(fields.get("upper")).map_or(node.at, |node| node.at);
            let message =
                format!("`lower` must be less than `upper`: {} is not less than {}", made.lower, made.upper);
            self.complaints.add(at, message);
        }
        if let Some(node) = fields.get("strategy") {
            let words = Strategy::ALL.map(|strategy| (strategy.as_str(), strategy));
            let strategy = self.complaints.word(node, "compaction.strategy", &words);
            made.strategy = strategy.unwrap_or(made.strategy);
        }
        made.delegate = fields.get("delegate").and_then(|node| self.delegate(node, subagents));
        match (made.strategy, fields.get("delegate")) {
            (Strategy::Delegate, None) => {
                let message =
                    "the strategy `delegate` needs `delegate`: a subagent, or a program and its arguments";
                self.complaints.add(fields.get("strategy").map_or(node.at, |node| node.at), message);
            }
            (Strategy::Delegate, Some(_)) | (_, None) => {}
            (Strategy::Drop | Strategy::Summarize | Strategy::Checkpoint, Some(_)) => {
                let at = fields.key_at("delegate").unwrap_or(node.at);
                self.complaints.add(at, "`delegate` is only for the strategy `delegate`");
            }
        }
        Some(made)
    }

    fn delegate(&mut self, node: &Node, subagents: &BTreeMap<Name, Subagent>) -> Option<Delegate> {
        let Kind::Text(name) = &node.kind else {
            return self.complaints.command(node, "compaction.delegate").map(Delegate::Command);
        };
        if subagents.keys().any(|known| known.as_str() == name) {
            return Some(Delegate::Subagent(name.clone()));
        }
        let message = format!("unknown subagent `{}`; name one, or write a command as a list", short(name));
        self.complaints.add(node.at, message);
        None
    }

    fn subagent(&mut self, node: &Node, name: &str) -> Option<Subagent> {
        let fields = self.complaints.fields(node, name, &["model", "prompt", "terminal", "acp", "cage"]);
        let model = fields.get("model").map(|node| {
            let model = self.model(node, &format!("{name}.model"))?;
            self.named.subagent_models.push((model.clone(), node.at));
            Some(model)
        });
        let prompt = fields.get("prompt").map(|node| self.prompt(node, &format!("{name}.prompt")));
        let acp = fields.get("acp").map(|node| self.complaints.command(node, &format!("{name}.acp")));
        let terminal =
            fields.get("terminal").and_then(|node| self.complaints.flag(node, &format!("{name}.terminal")));
        let cage = fields.get("cage").map(|node| cage(&mut self.complaints, node, &format!("{name}.cage")));
        let plays = match (model, acp) {
            (Some(_), Some(_)) => {
                let at = fields.key_at("acp").unwrap_or(node.at);
                self.complaints.add(at, format!("`{name}` can have `model` or `acp`, not both"));
                None
            }
            (None, Some(command)) => {
                if prompt.is_some() {
                    let at = fields.key_at("prompt").unwrap_or(node.at);
                    self.complaints.add(at, "a program that speaks ACP has its own prompt; remove `prompt`");
                }
                command.map(|command| Plays::Acp { command })
            }
            (Some(model), None) => model.map(|model| Plays::Model { model, prompt: prompt.flatten() }),
            (None, None) => {
                if matches!(node.kind, Kind::Map(_)) {
                    self.complaints.add(node.at, format!("`{name}` needs `model` or `acp`"));
                }
                None
            }
        };
        Some(Subagent { plays: plays?, terminal: terminal.unwrap_or(false), cage: cage.unwrap_or_default() })
    }

    fn host(&mut self, node: &Node, name: &str) -> Option<Host> {
        let fields = self.complaints.fields(node, name, &["ssh", "policy"]);
        let policy = self.policy(fields.get("policy"), &format!("{name}.policy"));
        let Some(ssh) = fields.get("ssh") else {
            if matches!(node.kind, Kind::Map(_)) {
                self.complaints.add(node.at, format!("`{name}` needs `ssh`: user@host"));
            }
            return None;
        };
        let text = self.complaints.text(ssh, &format!("{name}.ssh"))?;
        let host = Host { ssh: text.to_owned(), policy };
        if let Err(error) = host.request().check() {
            self.complaints.add(ssh.at, format!("`{name}.ssh` must be [user@]host[:port]: {error}"));
            return None;
        }
        Some(host)
    }

    /// Reads the rules. One with a line end is refused, because policies are recorded and shown line by line.
    fn policy(&mut self, node: Option<&Node>, name: &str) -> Vec<String> {
        let Some(node) = node else { return Vec::new() };
        let mut lines = Vec::new();
        for item in self.complaints.list(node, name) {
            let Some(line) = self.complaints.text(item, name) else { continue };
            let one_line =
                if line.contains(['\n', '\r']) { Err("a rule is one line".to_owned()) } else { Ok(()) };
            match one_line.and_then(|()| line.parse::<Rule>()) {
                Ok(rule) => {
                    if let Some(near) = misspelt(&rule.tool) {
                        let tool = short(&rule.tool);
                        self.complaints
                            .add(item.at, format!("unknown tool `{tool}`; did you mean `{near}`?"));
                    }
                    lines.push(rule.to_string());
                }
                Err(problem) => self.complaints.add(item.at, problem),
            }
        }
        lines
    }

    fn mcp_server(&mut self, node: &Node, name: &str) -> Option<McpServer> {
        mcp_server(&mut self.complaints, node, name)
    }

    fn limits(&mut self, node: Option<&Node>) -> ProjectLimits {
        let Some(node) = node else { return ProjectLimits::default() };
        let fields = self.complaints.fields(node, "limits", &["running_per_project"]);
        let running = fields
            .get("running_per_project")
            .and_then(|node| self.complaints.whole(node, "limits.running_per_project", 1, RUNNING_MAX));
        ProjectLimits { running_per_project: running }
    }
}

/// The tool of ours that a rule's tool is a misspelling of: a rule that matches nothing denies nothing. Other names may be those
/// of MCP servers and of own tools, and globs match what they match.
fn misspelt(tool: &str) -> Option<&'static str> {
    let is_known = TOOLS.contains(&tool) || tool.contains(['*', '?']);
    if is_known { None } else { nearest(tool, TOOLS.iter().copied()) }
}

/// Whether a path beside the project file, which is one directory down, leads out of the project.
fn leads_out(path: &str) -> bool {
    let mut depth = 1;
    path.split('/').any(|name| {
        match name {
            "" | "." => {}
            ".." => depth -= 1,
            _ => depth += 1,
        }
        depth < 0
    })
}
