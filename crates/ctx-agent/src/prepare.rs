//! Getting a run ready: everything that can be wrong with an agent is found before a message is accepted.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctx_cage::rights::Rights;
use ctx_session::command::{RunContext, RunWishes};
use ctx_session::conversation::Role;
use ctx_session::port::{Instructions, Recorded};
use ctx_session::project::Strategy;
use ctx_session::record::{Approvals, PromptRef, Redact, Source, Workspace};
use ctx_session::{Code, Limits, Name, Refusal};

use crate::cage::{CageAsk, CageFor, Cages};
use crate::control::mount::{Access, Links, Mount};
use crate::control::policy::{Policy, Rule};
use crate::control::{ControlDir, ControlError, default_path, short};
use crate::describe::{Description, control_dir, describe, describe_model, describe_snapshot};
use crate::instructions;
use crate::model::registry::{FindError, ModelId};
use crate::model::{Models, Turn};
use crate::object::change::policy_of;
use crate::project::{Cage as Wishes, McpServer, PROJECT_FILE, Plays, Snapshot, TOOLS, WORK};
use crate::redact::Redaction;
use crate::sha256_hex;
use crate::tool::own::{self, OwnTool};
use crate::view::{View, resolve_cwd};

/// The name of the prompt of the agent that a session talks to.
pub const PRIMARY: &str = "primary";

/// What a run is to be prepared for.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The root of the tree.
    pub root: &'a Path,
    pub agent: &'a Name,
    /// The project's files as the session keeps them, where they describe the agent.
    pub snapshot: Option<&'a Snapshot>,
    /// The session's owner: whose root the agent sees.
    pub owner: u32,
    /// The owner's rights: with which all files are opened that the agent sees.
    pub rights: &'a Rights,
    /// The session's own model, when it has one: a name in any form.
    pub model_override: Option<&'a str>,
    /// Where the session works; the agent's own place when none is named.
    pub cwd: Option<&'a str>,
    /// Texts that the session has in place of the agent's own prompts, by target.
    pub prompts: &'a [(String, String)],
    /// What holds for this run alone.
    pub wishes: &'a RunWishes,
    /// What the run worked under before it was paused.
    pub recorded: Option<&'a Recorded>,
    pub cage: CageAsk<'a>,
    pub limits: &'a Limits,
    pub place: Place<'a>,
    /// MCP servers that the owner has besides those of the project.
    pub own_servers: &'a BTreeMap<Name, McpServer>,
}

/// Which directory of the machine the agent works in, where no project file says it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place<'a> {
    /// The session's own.
    pub workspace: Option<&'a Workspace>,
    /// What it gets when it has none and the agent's mount table has none.
    pub offered: Option<&'a Workspace>,
    /// The host directory that a new session begins in: without a `cwd`, that place in the workspace.
    pub dir: Option<&'a str>,
}

/// An agent as it was when a run was prepared.
#[derive(Debug, Clone)]
pub struct Agent {
    pub description: Description,
    pub view: Arc<View>,
    /// What holds for its cages.
    pub cages: Cages,
    /// Whose session it works for.
    pub owner: u32,
    /// The prompts in effect: its own, and those of its subagents.
    pub prompts: Vec<PromptText>,
    /// How its tools redact.
    pub redaction: Redaction,
    /// Tools of the session's owner.
    pub own_tools: Vec<OwnTool>,
}

impl Agent {
    /// The model and the prompt of a subagent that is to sum up.
    pub fn subagent(&self, name: &str) -> Result<(String, String), String> {
        let settings = &self.description.settings;
        let found = settings.subagents.iter().find(|(known, _)| known.as_str() == name);
        match found.map(|(_, subagent)| &subagent.plays) {
            Some(Plays::Model { model, .. }) => {
                let prompt = self.prompts.iter().find(|prompt| prompt.target == name);
                Ok((model.clone(), prompt.map(|prompt| prompt.text.clone()).unwrap_or_default()))
            }
            Some(Plays::Acp { .. }) => Err(format!("the subagent `{name}` has no model")),
            None => Err(format!("no subagent `{name}`")),
        }
    }

    /// Where a path that the agent sees is on the machine: in the deepest of its mounts, or at the top.
    pub(crate) fn on_machine(&self, path: &str) -> PathBuf {
        let mounts = self.description.mounts.iter();
        let found = mounts.filter_map(|mount| {
            let below = Path::new(path).strip_prefix(&mount.target).ok()?;
            Some((mount.target.components().count(), mount.source.join(below)))
        });
        found.max_by_key(|(depth, _)| *depth).map_or(PathBuf::from("/"), |(_, source)| source)
    }

    /// Where a command of the project file runs, if it may.
    pub(crate) fn place_of_commands(&self) -> Result<Option<&Path>, String> {
        crate::run::may_run(self.owner, self.description.settings.commands_by)?;
        Ok(self.description.mounts.first().map(|mount| mount.source.as_path()))
    }
}

/// A run that can begin.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub context: RunContext,
    /// The texts behind `context.prompts`, to be stored as blobs.
    pub prompts: Vec<PromptText>,
    /// The instruction files in `context.sources`; their texts likewise.
    pub instructions: Vec<Instructions>,
    /// What the model is given: the prompt, then the instruction files of the project.
    pub prompt: String,
    pub agent: Arc<Agent>,
    /// What the agent has as its workspace.
    pub workspace: Option<Workspace>,
    /// What was said before the session began.
    pub earlier: Vec<Turn>,
}

impl Prepared {
    /// The same for a subagent: its own model and prompt, in the same place and under the same policy. It proposes nothing to
    /// the operator: where the primary's window would wait for them, its own drops what it can do without.
    pub fn of_subagent(&self, name: &str, models: &Models) -> Result<Prepared, String> {
        let (model, prompt) = self.agent.subagent(name)?;
        let model =
            models.resolve_for(&model, self.agent.owner).map_err(|error| error.to_string())?.to_string();
        let mut description = self.agent.description.clone();
        description.settings.max_steps = None;
        if description.settings.compaction.strategy == Strategy::Checkpoint {
            description.settings.compaction.strategy = Strategy::Drop;
        }
        let agent = Agent { description, ..Agent::clone(&self.agent) };
        Ok(Prepared {
            context: RunContext { model, ..self.context.clone() },
            prompts: self.prompts.clone(),
            instructions: self.instructions.clone(),
            prompt: instructions::join(&prompt, &self.instructions),
            agent: Arc::new(agent),
            workspace: self.workspace.clone(),
            earlier: Vec::new(),
        })
    }
}

/// A prompt and its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptText {
    pub target: String,
    /// SHA-256 of the text, in hex.
    pub hash: String,
    pub text: String,
}

/// Reads what describes the agent, resolves its model and checks the working directory. Blocks on the disk.
pub fn prepare(ask: &Ask<'_>, models: &Models) -> Result<Prepared, Refusal> {
    let description = match ask.snapshot {
        Some(snapshot) => describe_snapshot(snapshot)?,
        None => describe_live(ask)?,
    };
    let (description, workspace) = with_workspace(description, ask);
    let description = with_prompts(description, ask.prompts);
    let description = match ask.recorded {
        Some(recorded) => Description { policy: recorded_policy(&recorded.policy)?, ..description },
        None => with_allowed(description, &ask.wishes.allow)?,
    };
    let description = with_servers(description, ask.own_servers);
    let description = match ask.recorded {
        Some(_) => description,
        None => with_tool_policies(description, ask)?,
    };
    let approvals = ask.recorded.map_or(ask.wishes.approvals, |recorded| recorded.approvals);
    let model = match ask.model_override {
        Some(name) => usable(models, name, ask.owner)?,
        None => usable(models, &description.model, ask.owner).map_err(|error| blame_own_model(ask, error))?,
    };
    let root = description.root.clone().unwrap_or_else(|| default_root(ask));
    let view = View::open(&root, &description.mounts, ask.rights.clone())?;
    let begins = begin_in(workspace.as_ref(), ask.place.dir);
    let cwd = ask.cwd.or(begins.as_deref()).unwrap_or(&description.cwd);
    let cwd = resolve_cwd(&view, cwd)?;
    let found = match ask.recorded.and_then(|recorded| recorded.instructions.clone()) {
        Some(recorded) => recorded,
        None => instructions::find(&view, &cwd, ask.limits.instruction_file_bytes),
    };
    Ok(ready(ask, description, model, Seen { view, cwd, workspace, found }, approvals))
}

/// The same for a session on a model's socket: the model alone. Where its client works is kept, and not looked at.
pub fn prepare_model(
    ask: &Ask<'_>,
    model: &str,
    earlier: Vec<Turn>,
    models: &Models,
) -> Result<Prepared, Refusal> {
    if ask.model_override.is_some() {
        let message = "this is a session with a model; begin one with the other model on its own socket";
        return Err(Refusal::invalid("model_override", message));
    }
    let cwd = ask.cwd.unwrap_or("/").to_owned();
    if !cwd.starts_with('/') {
        return Err(Refusal::invalid("cwd", format!("`{}` is not an absolute path", short(&cwd))));
    }
    let model = usable(models, model, ask.owner)?;
    let description = with_prompts(describe_model(&model), ask.prompts);
    let view = View::open(
        &ask.root.join(format!("home/{}/model/{model}.d/root", ask.owner)),
        &[],
        ask.rights.clone(),
    )?;
    let seen = Seen { view, cwd, workspace: None, found: Vec::new() };
    let (system, earlier): (Vec<_>, Vec<_>) = earlier.into_iter().partition(|turn| turn.role == Role::System);
    let mut prepared = ready(ask, description, model, seen, None);
    for turn in system {
        prepared.prompt = [prepared.prompt, turn.text()].join("\n").trim().to_owned();
    }
    Ok(Prepared { earlier, ..prepared })
}

/// What was looked up for a run.
struct Seen {
    view: View,
    cwd: String,
    workspace: Option<Workspace>,
    found: Vec<Instructions>,
}

/// Puts together what was looked up. Nothing fails here: all that can refuse a run was checked before.
fn ready(
    ask: &Ask<'_>,
    description: Description,
    model: ModelId,
    seen: Seen,
    approvals: Option<Approvals>,
) -> Prepared {
    let Seen { view, cwd, workspace, found } = seen;
    let prompts = prompts_of(&description, ask.prompts);
    let hash = sha256_hex(description.prompt.as_bytes());
    let source = Source {
        kind: "prompt".to_owned(),
        path: description.prompt_path.clone(),
        hash,
        truncated: false,
        scope: Some("agent".to_owned()),
        error: None,
    };
    let prompt = instructions::join(&description.prompt, &found);
    let files = found.iter().map(|file| file.source.clone());
    let servers = description.settings.mcp.iter().map(|(name, server)| server_source(name, server, ask));
    let sources = std::iter::once(source).chain(files).chain(servers).collect();
    let own_tools = match description.settings.is_model {
        true => Vec::new(),
        false => own::find(ask.root, ask.owner, ask.rights),
    };
    let cages = cages_of(&description, ask, !own_tools.is_empty());
    let context = RunContext {
        model: model.to_string(),
        cwd,
        policy: description.policy.lines(),
        cage: Some(cages.in_words()),
        sources,
        prompts: prompts
            .iter()
            .map(|prompt| PromptRef { target: prompt.target.clone(), hash: prompt.hash.clone() })
            .collect(),
        redact: description.settings.redact.filter(|redact| *redact == Redact::Off),
        approvals,
    };
    let view = Arc::new(view);
    let redaction = redaction_of(&description);
    let prompts_of_agent = prompts.clone();
    let agent = Arc::new(Agent {
        description,
        view,
        cages,
        owner: ask.owner,
        prompts: prompts_of_agent,
        redaction,
        own_tools,
    });
    let instructions = found.into_iter().filter(|file| file.source.error.is_none()).collect();
    Prepared { context, prompts, instructions, prompt, agent, workspace, earlier: Vec::new() }
}

/// An agent as control files describe it now: its own, or those of the agent that describes it.
fn describe_live(ask: &Ask<'_>) -> Result<Description, Refusal> {
    let described_by = ask.place.workspace.and_then(|workspace| workspace.described_by.as_ref());
    let by = described_by.unwrap_or(ask.agent);
    let description = describe(ask.root, by, ask.limits).map_err(|error| no_agent(by, error))?;
    Ok(match described_by {
        // The agent of a project without a file is called as its project is.
        Some(_) => Description { agent: ask.agent.clone(), project: ask.agent.clone(), ..description },
        None => description,
    })
}

/// The description with the workspace of the session in its place, and what that is.
fn with_workspace(mut description: Description, ask: &Ask<'_>) -> (Description, Option<Workspace>) {
    let is_work = |mount: &Mount| mount.target == Path::new(WORK);
    let of_table = description.mounts.iter().find(|mount| is_work(mount)).and_then(|mount| {
        let read_only = mount.access == Access::ReadOnly;
        Some(Workspace { directory: mount.source.to_str()?.to_owned(), read_only, described_by: None })
    });
    if ask.snapshot.is_some() {
        return (description, of_table);
    }
    let given = ask.place.workspace.or(ask.place.offered.filter(|_| of_table.is_none()));
    if let Some(workspace) = given {
        let is_fixed = workspace.described_by.is_some() || workspace.read_only;
        let mount = Mount {
            source: PathBuf::from(&workspace.directory),
            target: PathBuf::from(WORK),
            access: if workspace.read_only { Access::ReadOnly } else { Access::ReadWrite },
            // A client's directory was resolved when the session began.
            links: if is_fixed { Links::Refuse } else { Links::Follow },
        };
        description.mounts.retain(|mount| !is_work(mount));
        description.mounts.push(mount);
    } else if of_table.is_none() && Path::new(&description.cwd).starts_with(WORK) {
        // Without a workspace it begins in its own root.
        "/".clone_into(&mut description.cwd);
    }
    (description, given.cloned().or(of_table))
}

/// Where a host directory is in the workspace, as the agent sees it.
fn begin_in(workspace: Option<&Workspace>, dir: Option<&str>) -> Option<String> {
    let below = Path::new(dir?).strip_prefix(&workspace?.directory).ok()?;
    Some(Path::new(WORK).join(below).to_str()?.trim_end_matches('/').to_owned())
}

/// The values that an agent's tools must not show are those of its own variables, and of the daemon's.
fn redaction_of(description: &Description) -> Redaction {
    match description.settings.redact {
        Some(Redact::Off) => Redaction::off(),
        Some(Redact::On) | None => {
            let daemon =
                std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
            let daemon = daemon.filter_map(|(name, value)| Some((name, value.into_string().ok()?)));
            Redaction::on(description.env.iter().cloned().chain(daemon))
        }
    }
}

/// What holds for the agent's cages. Its own variables and paths are those of its control files.
fn cages_of(description: &Description, ask: &Ask<'_>, has_own_tools: bool) -> Cages {
    let whose = CageFor {
        root: ask.root,
        agent: description.agent.as_str(),
        uid: ask.owner,
        user_home: ask.cage.user_home,
        mounts: &description.mounts,
    };
    // The system's directories are in the path of every cage, behind those of toolchains.
    let own_path = description.path.iter().filter(|path| !default_path().contains(path));
    let agent = Wishes {
        env: description.env.iter().cloned().collect(),
        path: own_path.filter_map(|path| path.to_str().map(str::to_owned)).collect(),
        mounts: match has_own_tools {
            true => vec![ctx_cage::Mount::ro(own::dir_of(ask.root, ask.owner), own::IN_CAGE)],
            false => Vec::new(),
        },
        ..Wishes::default()
    };
    Cages::look(&whose, &ask.cage, agent, (&description.project, &description.settings.cage))
}

/// The prompts in effect: the agent's own, and of its subagents that are models, which may have none yet. Where the
/// session has a text in place of a subagent's, that one.
fn prompts_of(description: &Description, in_place: &[(String, String)]) -> Vec<PromptText> {
    let settings = &description.settings;
    let own = (PRIMARY.to_owned(), description.prompt.clone());
    let of_subagents = settings.subagents.iter().filter_map(|(name, subagent)| match &subagent.plays {
        Plays::Model { prompt, .. } if name.as_str() != PRIMARY => {
            let edited = in_place.iter().find(|(target, _)| target == name.as_str()).map(|(_, text)| text);
            let file = || prompt.as_ref().and_then(|path| settings.prompts.get(path));
            Some((name.to_string(), edited.or_else(file).cloned().unwrap_or_default()))
        }
        // The name of the agent's own prompt is taken; what an ACP agent is told is its own business.
        Plays::Model { .. } | Plays::Acp { .. } => None,
    });
    let all = std::iter::once(own).chain(of_subagents);
    all.map(|(target, text)| PromptText { hash: sha256_hex(text.as_bytes()), target, text }).collect()
}

/// The model of a name. One that cannot be opened would fail the run later; now it can still be refused.
fn usable(models: &Models, name: &str, owner: u32) -> Result<ModelId, FindError> {
    let model = models.resolve_for(name, owner)?;
    models.open_for(&model, owner)?;
    Ok(model)
}

/// A model that the agent's own files name is not the request's fault: the file and its key are named.
fn blame_own_model(ask: &Ask<'_>, error: FindError) -> Refusal {
    if matches!(error, FindError::Io { .. } | FindError::Control(_)) {
        return error.into();
    }
    if ask.snapshot.is_some() {
        let message = format!(
            "`primary.model` of {PROJECT_FILE}: {error}; fix it and restart the session, or set its model_override"
        );
        return Refusal::new(Code::Ebadmsg, message);
    }
    let described_by = ask.place.workspace.and_then(|workspace| workspace.described_by.as_ref());
    let dir = control_dir(described_by.unwrap_or(ask.agent));
    let read =
        ControlDir::open(ask.root, &dir, ask.limits.control_file_bytes).and_then(|dir| dir.read("model"));
    let written = read.ok().flatten();
    let line = written.as_ref().and_then(|control| Some((control, control.lines().next()?)));
    match line {
        Some((control, line)) => control.bad(line, error.to_string()).into(),
        None => Refusal::new(Code::Ebadmsg, format!("{dir}/model names no model, and {error}")),
    }
}

fn recorded_policy(lines: &[String]) -> Result<Policy, Refusal> {
    let rules: Result<Vec<_>, String> = lines.iter().map(|line| line.parse()).collect();
    let rules = rules.map_err(|problem| {
        Refusal::new(Code::Ebadmsg, format!("the policy that the run began under cannot be read: {problem}"))
    })?;
    Ok(Policy { rules })
}

/// What a message allows for its run stands before the policy.
fn with_allowed(mut description: Description, allow: &[String]) -> Result<Description, Refusal> {
    let rules: Result<Vec<Rule>, String> = allow.iter().map(|rule| format!("allow {rule}").parse()).collect();
    let rules = rules
        .map_err(|problem| Refusal::invalid("allow", format!("`TOOL [PATTERN]` is wanted: {problem}")))?;
    description.policy.rules.splice(0..0, rules);
    Ok(description)
}

/// What the files of tools say holds where the agent's own policy says nothing.
fn with_tool_policies(mut description: Description, ask: &Ask<'_>) -> Result<Description, Refusal> {
    for tool in TOOLS {
        let Ok(name) = Name::new(tool) else { continue };
        match policy_of(ask.root, &name, ask.limits) {
            Ok(rules) => description.policy.rules.extend(rules),
            // A tree without the tool's directory has no such policy.
            Err(refusal) if refusal.code == Code::Enoent => {}
            Err(refusal) => return Err(refusal),
        }
    }
    Ok(description)
}

/// The owner's MCP servers beside those of the project, which hold before them.
fn with_servers(mut description: Description, own: &BTreeMap<Name, McpServer>) -> Description {
    for (name, server) in own {
        description.settings.mcp.entry(name.clone()).or_insert_with(|| server.clone());
    }
    description
}

/// An MCP server in the `context` record: its hash is that of its entry.
fn server_source(name: &Name, server: &McpServer, ask: &Ask<'_>) -> Source {
    let is_own = ask.own_servers.get(name) == Some(server);
    Source {
        kind: "mcp_server".to_owned(),
        path: name.to_string(),
        hash: sha256_hex(serde_json::to_string(server).unwrap_or_default().as_bytes()),
        truncated: false,
        scope: Some(if is_own { "operator" } else { "project" }.to_owned()),
        error: None,
    }
}

/// A prompt that was edited for the session stands in place of the agent's own.
fn with_prompts(description: Description, prompts: &[(String, String)]) -> Description {
    match prompts.iter().find(|(target, _)| target == PRIMARY) {
        Some((_, prompt)) => Description { prompt: prompt.clone(), ..description },
        None => description,
    }
}

fn no_agent(agent: &Name, error: ControlError) -> Refusal {
    match error {
        ControlError::NoDirectory { dir } => {
            let message = format!("no agent `{agent}`: {dir} does not exist");
            Refusal::new(Code::Enoent, message).blaming("agent")
        }
        other => other.into(),
    }
}

fn default_root(ask: &Ask<'_>) -> PathBuf {
    ask.root.join(format!("home/{}/agent/{}/root", ask.owner, ask.agent))
}
