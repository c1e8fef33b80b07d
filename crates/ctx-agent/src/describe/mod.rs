//! What an agent is. Its control files in `agent/<name>.d/` say it, and edits apply from the next run on; or it is the
//! primary of a project, and the project's files as a session keeps them say it.

pub mod fresh;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use ctx_session::project::{Compaction, DEFAULT_PROJECT};
use ctx_session::record::Redact;
use ctx_session::{Limits, Name};

pub use crate::control::control_dir;
use crate::control::mount::{Access, Links, Mount};
use crate::control::policy::Policy;
use crate::control::{ControlDir, ControlError, absolute_path, default_path, key_value, short};
use crate::model::ModelId;
use crate::project::{Cage, Host, McpServer, OWN, PROJECT_FILE, Snapshot, Subagent, TOOLS, WORK};

/// The model of agents that name none: an alias that every root has.
const DEFAULT_MODEL: &str = "main";
const DEFAULT_CWD: &str = "/";

/// An agent as its control files describe it.
#[derive(Debug, Clone, PartialEq)]
pub struct Description {
    pub agent: Name,
    /// Who may change the agent; the daemon's user when nobody is named.
    pub owner: Option<u32>,
    /// As whom its processes run; the session's owner when nobody is named.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// The directory that the agent sees as `/`; `home/<uid>/agent/<agent>/root` when none is named.
    pub root: Option<PathBuf>,
    /// Where it works when a client names no place, as the agent sees it.
    pub cwd: String,
    pub env: Vec<(String, String)>,
    /// Where it looks for programs.
    pub path: Vec<PathBuf>,
    pub mounts: Vec<Mount>,
    /// `provider/model` or an alias.
    pub model: String,
    pub policy: Policy,
    pub prompt: String,
    /// Where the prompt came from, for the `context` record.
    pub prompt_path: String,
    pub project: Name,
    pub settings: Settings,
}

/// What a project file says of an agent besides. An agent with control files has the defaults.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Settings {
    /// The tools it may be given; None: all that there are.
    pub tools: Option<Vec<String>>,
    /// Model calls of one run; None: the daemon's limit.
    pub max_steps: Option<u32>,
    /// Whether secrets are taken out of what tools give; None: they are.
    pub redact: Option<Redact>,
    pub compaction: Compaction,
    /// Whose the file is that names commands; None: not known, or it names none.
    pub commands_by: Option<u32>,
    /// What the project file asks of cages.
    pub cage: Cage,
    pub subagents: BTreeMap<Name, Subagent>,
    pub mcp: BTreeMap<Name, McpServer>,
    pub hosts: BTreeMap<Name, Host>,
    /// The texts of the prompts, by their path as the file has it.
    pub prompts: BTreeMap<String, String>,
    /// A model by itself: what it wants called is told, and nothing is.
    pub is_model: bool,
}

/// Reads the control files of an agent. The first bad one is reported with file, line and column.
pub fn describe(root: &Path, agent: &Name, limits: &Limits) -> Result<Description, ControlError> {
    let dir = ControlDir::open(root, &control_dir(agent), limits.control_file_bytes)?;
    let project = dir.value("project", |text| {
        Name::new(text).map_err(|rule| format!("`{}` is not a project's name: {rule}", short(text)))
    })?;
    Ok(Description {
        agent: agent.clone(),
        owner: dir.value("owner", id)?,
        uid: dir.value("uid", id)?,
        gid: dir.value("gid", id)?,
        root: dir.value("root", absolute_path)?,
        cwd: dir.value("cwd", view_path)?.unwrap_or_else(|| DEFAULT_CWD.to_owned()),
        env: dir.items("env", key_value)?,
        path: dir.items("path", absolute_path)?,
        mounts: mounts(&dir)?,
        model: dir.value("model", model_name)?.unwrap_or_else(|| DEFAULT_MODEL.to_owned()),
        policy: Policy { rules: dir.items("policy", str::parse)? },
        prompt: dir.read("prompt")?.map(|control| control.text).unwrap_or_default(),
        prompt_path: format!("{}/prompt", control_dir(agent)),
        settings: Settings {
            tools: tools(&dir)?,
            redact: dir.value("redact", redact)?,
            ..Settings::default()
        },
        project: match project {
            Some(name) => name,
            None => default_project(),
        },
    })
}

/// A project's primary, as the snapshot says that a session keeps.
pub fn describe_snapshot(snapshot: &Snapshot) -> Result<Description, ControlError> {
    let spec = &snapshot.spec;
    // Each line was found right when the file was read.
    let rules: Result<Vec<_>, String> = spec.policy.iter().map(|line| line.parse()).collect();
    let rules = rules.map_err(|problem| ControlError::BadValue {
        file: PROJECT_FILE.to_owned(),
        line: 1,
        column: 1,
        problem,
    })?;
    let mount = Mount {
        source: PathBuf::from(&snapshot.directory),
        target: PathBuf::from(WORK),
        access: Access::ReadWrite,
        // It was resolved when the project was registered.
        links: Links::Refuse,
    };
    Ok(Description {
        agent: spec.primary.name.clone(),
        owner: None,
        uid: None,
        gid: None,
        root: None,
        cwd: WORK.to_owned(),
        env: Vec::new(),
        path: default_path(),
        mounts: vec![mount],
        model: spec.primary.model.clone(),
        policy: Policy { rules },
        prompt: snapshot.prompt().to_owned(),
        prompt_path: spec.primary.prompt.clone().unwrap_or_else(|| PROJECT_FILE.to_owned()),
        project: spec.project.clone(),
        settings: Settings {
            tools: spec.primary.tools.clone(),
            max_steps: spec.primary.max_steps,
            redact: spec.primary.redact,
            compaction: spec.primary.compaction.clone(),
            commands_by: snapshot.commands_by,
            cage: spec.cage.clone(),
            subagents: spec.subagents.clone(),
            mcp: spec.mcp.clone(),
            hosts: spec.hosts.clone(),
            prompts: snapshot.prompts.clone(),
            is_model: false,
        },
    })
}

/// A model by itself, for a session on its socket: it has no prompt, sees no files, and has no tools.
pub fn describe_model(model: &ModelId) -> Description {
    Description {
        agent: model.model.clone(),
        owner: None,
        uid: None,
        gid: None,
        root: None,
        cwd: DEFAULT_CWD.to_owned(),
        env: Vec::new(),
        path: Vec::new(),
        mounts: Vec::new(),
        model: model.to_string(),
        policy: Policy::default(),
        prompt: String::new(),
        prompt_path: format!("model/{model}.d"),
        project: default_project(),
        settings: Settings { tools: Some(Vec::new()), is_model: true, ..Settings::default() },
    }
}

/// The agents that have a control directory, in order of name.
pub fn agents(root: &Path) -> std::io::Result<Vec<Name>> {
    let entries = match std::fs::read_dir(root.join("agent")) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        let file_name = entry.file_name();
        let stem = file_name.to_str().and_then(|name| name.strip_suffix(".d"));
        if let Some(name) = stem.and_then(|stem| Name::new(stem).ok())
            && entry.file_type()?.is_dir()
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// The project `default`.
#[expect(clippy::expect_used, reason = "the word is a constant of ours and a good name")]
fn default_project() -> Name {
    Name::new(DEFAULT_PROJECT).expect("`default` is a name")
}

/// Two mounts on one target would hide one of them.
fn mounts(dir: &ControlDir) -> Result<Vec<Mount>, ControlError> {
    let Some(control) = dir.read("mount")? else { return Ok(Vec::new()) };
    let mut mounts: Vec<Mount> = Vec::new();
    for line in control.lines() {
        let mount = Mount::parse(line.text).map_err(|problem| control.bad(line, problem))?;
        if mounts.iter().any(|other| other.target == mount.target) {
            let problem = format!("`{}` is mounted twice", mount.target.display());
            return Err(control.bad(line, problem));
        }
        mounts.push(mount);
    }
    Ok(mounts)
}

fn id(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        // The last one means "no id" to the kernel.
        Ok(u32::MAX) | Err(_) => Err(format!("expected a numeric id, found `{}`", short(text))),
        Ok(id) => Ok(id),
    }
}

/// The tools that the file names, one a line; None: there is no such file.
fn tools(dir: &ControlDir) -> Result<Option<Vec<String>>, ControlError> {
    if dir.read("tools")?.is_none() {
        return Ok(None);
    }
    let known = |text: &str| match TOOLS.contains(&text) || text == OWN {
        true => Ok(text.to_owned()),
        false => Err(format!(
            "there is no tool `{}`; the tools are {}, and {OWN} for those of the operator",
            short(text),
            TOOLS.join(", ")
        )),
    };
    dir.items("tools", known).map(Some)
}

fn redact(text: &str) -> Result<Redact, String> {
    let found = Redact::ALL.into_iter().find(|word| word.as_str() == text);
    found.ok_or_else(|| format!("expected `on` or `off`, found `{}`", short(text)))
}

fn view_path(text: &str) -> Result<String, String> {
    absolute_path(text).map(|_| text.to_owned())
}

fn model_name(text: &str) -> Result<String, String> {
    crate::model::registry::ModelName::parse(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}
