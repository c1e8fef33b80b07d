//! Getting a run ready: everything that can be wrong with an agent is found before a message is accepted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctx_session::command::RunContext;
use ctx_session::port::Recorded;
use ctx_session::record::{PromptRef, Source};
use ctx_session::{Code, Limits, Name, Refusal};

use crate::control::policy::Policy;
use crate::control::{ControlDir, ControlError};
use crate::describe::{Description, control_dir, describe, describe_snapshot};
use crate::instructions;
use crate::model::Models;
use crate::model::registry::{FindError, ModelId};
use crate::project::{PROJECT_FILE, Plays, Snapshot};
use crate::sha256_hex;
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
    /// The session's own model, when it has one: a name in any form.
    pub model_override: Option<&'a str>,
    /// Where the session works; the agent's own place when none is named.
    pub cwd: Option<&'a str>,
    /// Texts that the session has in place of the agent's own prompts, by target.
    pub prompts: &'a [(String, String)],
    /// What the run worked under before it was paused.
    pub recorded: Option<&'a Recorded>,
    pub limits: &'a Limits,
}

/// An agent as it was when a run was prepared.
#[derive(Debug)]
pub struct Agent {
    pub description: Description,
    pub view: Arc<View>,
    /// Whose session it works for.
    pub owner: u32,
    /// The prompts in effect: its own, and those of its subagents.
    pub prompts: Vec<PromptText>,
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

    /// Where a command of the operator's runs. Only the daemon's own user may have one run: it is not caged.
    pub(crate) fn place_of_commands(&self) -> Result<Option<&Path>, String> {
        if rustix::process::geteuid().as_raw() != self.owner {
            return Err("only sessions of the daemon's own user can delegate to a command".to_owned());
        }
        Ok(self.description.mounts.first().map(|mount| mount.source.as_path()))
    }
}

/// A run that can begin.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub context: RunContext,
    /// The texts behind `context.prompts`, to be stored as blobs.
    pub prompts: Vec<PromptText>,
    /// The texts of the instruction files in `context.sources`, likewise.
    pub instructions: Vec<String>,
    /// What the model is given: the prompt, then the instruction files of the project.
    pub prompt: String,
    pub agent: Arc<Agent>,
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
        None => describe(ask.root, ask.agent, ask.limits).map_err(|error| no_agent(ask.agent, error))?,
    };
    let description = with_prompts(description, ask.prompts);
    let description = match ask.recorded {
        Some(recorded) => Description { policy: recorded_policy(&recorded.policy)?, ..description },
        None => description,
    };
    let model = match ask.model_override {
        Some(name) => usable(models, name)?,
        None => usable(models, &description.model).map_err(|error| blame_own_model(ask, error))?,
    };
    let root = description.root.clone().unwrap_or_else(|| default_root(ask));
    let view = View::open(&root, &description.mounts)?;
    let cwd = resolve_cwd(&view, ask.cwd.unwrap_or(&description.cwd))?;
    let prompts = prompts_of(&description, ask.prompts);
    let hash = sha256_hex(description.prompt.as_bytes());
    let source =
        Source { kind: "prompt".to_owned(), path: description.prompt_path.clone(), hash, truncated: false };
    let found = match ask.recorded.and_then(|recorded| recorded.instructions.clone()) {
        Some(recorded) => recorded,
        None => instructions::find(&view, &cwd, ask.limits.instruction_file_bytes),
    };
    let prompt = instructions::join(&description.prompt, &found);
    let sources = std::iter::once(source).chain(found.iter().map(|file| file.source.clone())).collect();
    let context = RunContext {
        model: model.to_string(),
        cwd,
        policy: description.policy.lines(),
        cage: None,
        sources,
        prompts: prompts
            .iter()
            .map(|prompt| PromptRef { target: prompt.target.clone(), hash: prompt.hash.clone() })
            .collect(),
    };
    let view = Arc::new(view);
    let agent = Arc::new(Agent { description, view, owner: ask.owner, prompts: prompts.clone() });
    let instructions = found.into_iter().map(|file| file.text).collect();
    Ok(Prepared { context, prompts, instructions, prompt, agent })
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
fn usable(models: &Models, name: &str) -> Result<ModelId, FindError> {
    let model = models.resolve(name)?;
    models.open(&model)?;
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
    let dir = control_dir(ask.agent);
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
