//! Getting a run ready: everything that can be wrong with an agent is found before a message is accepted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ctx_session::command::RunContext;
use ctx_session::record::{PromptRef, Source};
use ctx_session::{Code, Limits, Name, Refusal};

use crate::describe::control::ControlError;
use crate::describe::{Description, describe, describe_snapshot};
use crate::instructions;
use crate::model::Models;
use crate::project::Snapshot;
use crate::sha256_hex;
use crate::view::{View, resolve_cwd};

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
    pub limits: &'a Limits,
}

/// An agent as it was when a run was prepared.
#[derive(Debug)]
pub struct Agent {
    pub description: Description,
    pub view: Arc<View>,
}

/// A run that can begin.
#[derive(Debug, Clone)]
pub struct Prepared {
    pub context: RunContext,
    /// The texts behind `context.prompts`, to be stored as blobs.
    pub prompts: Vec<PromptText>,
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
    let model = models.resolve(ask.model_override.unwrap_or(&description.model))?;
    // A model that cannot be opened would fail the run later; now it can still be refused.
    models.open(&model)?;
    let root = description.root.clone().unwrap_or_else(|| default_root(ask));
    let view = View::open(&root, &description.mounts)?;
    let cwd = resolve_cwd(&view, ask.cwd.unwrap_or(&description.cwd))?;
    let hash = sha256_hex(description.prompt.as_bytes());
    let source = Source {
        kind: "prompt".to_owned(),
        path: description.prompt_path.clone(),
        hash: hash.clone(),
        truncated: false,
    };
    let text = PromptText { target: "primary".to_owned(), hash, text: description.prompt.clone() };
    let found = instructions::find(&view, &cwd, ask.limits.instruction_file_bytes);
    let prompt = instructions::join(&description.prompt, &found);
    let sources = std::iter::once(source).chain(found.into_iter().map(|file| file.source)).collect();
    let context = RunContext {
        model: model.to_string(),
        cwd,
        policy: description.policy.lines(),
        cage: None,
        sources,
        prompts: vec![PromptRef { target: text.target.clone(), hash: text.hash.clone() }],
    };
    let agent = Arc::new(Agent { description, view: Arc::new(view) });
    Ok(Prepared { context, prompts: vec![text], prompt, agent })
}

fn no_agent(agent: &Name, error: ControlError) -> Refusal {
    match error {
        ControlError::NoDirectory { dir } => {
            let message = format!("no agent `{agent}`: there is no {dir}");
            Refusal { field: Some("agent"), ..Refusal::new(Code::Enoent, message) }
        }
        other => other.into(),
    }
}

fn default_root(ask: &Ask<'_>) -> PathBuf {
    ask.root.join(format!("home/{}/agent/{}/root", ask.owner, ask.agent))
}
