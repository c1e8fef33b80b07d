//! `ctx cage`: runs a command in a cage, and says what a cage allows.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use ctx_agent::cage::{CageFor, Ground};
use ctx_agent::control::mount as control;
use ctx_agent::project::{Cage as Wishes, Trust, read_project};
use ctx_cage::{
    Access, Cage, CageError, Io, Limits, Means, Mount, Net, RunningCage, find_bwrap, parse_mount, parse_size,
    parse_time, sweep,
};
use ctx_engine::port::{By, ProjectDir};
use ctx_session::Code;
use serde_json::json;

use crate::config::{self, CageConfig, Environment, FileArg};
use crate::failure::Failure;
use crate::root::Root;
use crate::{autostart, here, output, sessions, words};

/// Run a command in a cage, or show what a cage allows
///
/// A cage has the project of this directory at /work, a home of its own at /home/agent, the system's programs and
/// your toolchains read-only, and no network. Its processes have your rights, never root's,
/// and limits on memory, processes and time. [cage] in the config file adds mounts, PATH and variables; so does the
/// cage of the project file, once you trust it, for the project's agent and its subagents.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  ctx cage run -- make test
  ctx cage run --net host --memory 4G --walltime 10m -- npm ci
  ctx cage run --mount /srv/data:/data:ro -- ls /data
  ctx cage run --agent tester -- make test      in the cage of this project's subagent
  ctx cage explain coder          what coder's cage sees, may change and may use

exit codes: 0 success, 1 failed, 2 bad input, 13 not allowed, 69 no bubblewrap, 70 internal error;
            `run` exits with the command's own code, with 137 when a limit ended it,
            with 127 when the command could not be started")]
pub struct Args {
    #[command(subcommand)]
    command: Sub,
    #[command(flatten)]
    file: FileArg,
}

#[derive(Debug, clap::Subcommand)]
enum Sub {
    /// Run a command in an agent's cage
    ///
    /// Stdin, stdout and stderr are the command's. A limit that ended it is named on stderr.
    Run(RunArgs),
    /// Show which paths an agent's cage can read and write, its network, and what enforces its limits
    Explain {
        /// The agent
        #[arg(value_name = "AGENT", default_value = "coder")]
        agent: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Whose cage
    #[arg(long, value_name = "AGENT", default_value = "coder")]
    agent: String,
    /// Network: none or host [default: cage.net of the config file, none]
    #[arg(long, value_name = "NET", value_parser = parse_net)]
    net: Option<Net>,
    /// Limit of memory, such as 512M or 4G [default: 2G]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    memory: Option<u64>,
    /// Limit of time, such as 10s or 5m [default: 30m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    walltime: Option<Duration>,
    /// Also show this path, as SOURCE:TARGET:ro or SOURCE:TARGET:rw; may be given more than once
    #[arg(long, value_name = "MOUNT", value_parser = mount)]
    mount: Vec<Mount>,
    /// The command and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    command: Vec<OsString>,
}

fn parse_net(text: &str) -> Result<Net, String> {
    match text {
        "none" => Ok(Net::None),
        "host" => Ok(Net::Host),
        other => Err(format!("must be none or host, not `{other}`")),
    }
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

fn time(text: &str) -> Result<Duration, String> {
    parse_time(text).map_err(|error| error.to_string())
}

fn mount(text: &str) -> Result<Mount, String> {
    parse_mount(text).map_err(|error| error.to_string())
}

impl From<CageError> for Failure {
    fn from(error: CageError) -> Failure {
        let failure = Failure::new(error.code(), error.to_string());
        match error.hint() {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

pub fn run(args: Args, root: &Root) -> Result<(), Failure> {
    let settings = config::load(&args.file, &Environment::of_process())?.config.cage;
    match args.command {
        Sub::Run(run) => start(run, &settings, root),
        Sub::Explain { agent, json } => explain(&agent, &settings, root, json),
    }
}

fn start(args: RunArgs, settings: &CageConfig, root: &Root) -> Result<(), Failure> {
    let bwrap = find_bwrap(&std::env::var_os("PATH").unwrap_or_default())?;
    let walltime_ms = args.walltime.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let asked = Wishes {
        net: args.net,
        memory_bytes: args.memory,
        walltime_ms,
        mounts: args.mount,
        ..Wishes::default()
    };
    let cage = cage_of(&args.agent, &asked, settings, root)?;
    let means = Means::detect();
    sweep(&means, is_ended_run);
    let io = Io { stdin: Stdio::inherit(), stdout: Stdio::inherit(), stderr: Stdio::inherit() };
    ctx_agent::cage::make_home(&cage)?;
    let running = RunningCage::start(&bwrap, &cage, &means, &own_parent(), &args.command, io)?;
    let ended = running.wait();
    if let Some(limit) = ended.limit {
        let _ = writeln!(std::io::stderr(), "ctx: the cage was ended: {limit} reached");
        return Err(Failure::Told { exit: 137 });
    }
    if !ended.has_started {
        Failure::from(CageError::NotStarted { detail: "; bwrap has said why above".to_owned() }).report();
        return Err(Failure::Told { exit: 127 });
    }
    match u8::try_from(ended.code) {
        Ok(0) => Ok(()),
        Ok(exit) => Err(Failure::Told { exit }),
        Err(_) => Err(Failure::Told { exit: 1 }),
    }
}

/// Who is responsible for the cages of this process.
pub fn own_parent() -> String {
    format!("run-{}", std::process::id())
}

/// Whether the groups of this parent are those of a `ctx cage run` that has ended.
pub fn is_ended_run(parent: &str) -> bool {
    parent.strip_prefix("run-").is_some_and(|pid| !Path::new("/proc").join(pid).exists())
}

/// The cage of an agent in the project of this directory, as its runs have it, with what is asked for besides.
pub fn cage_of(agent: &str, asked: &Wishes, settings: &CageConfig, root: &Root) -> Result<Cage, Failure> {
    if agent.is_empty() || !agent.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c)) {
        return Err(Failure::new(Code::Einval, format!("`{agent}` is not the name of an agent")));
    }
    let here = PathBuf::from(here::dir(None)?);
    let uid = sessions::own_uid();
    let found = here::locate(&here, uid, &here::homes_of(uid), &root.path);
    let project = found.as_ref().map_or_else(|_| here.clone(), |found| PathBuf::from(&found.directory));
    let of_project = match found {
        Ok(ProjectDir { by: By::File, .. }) => project_wishes(agent, &project, root)?,
        _ => None,
    };
    if of_project.is_none()
        && agent != sessions::DEFAULT_AGENT
        && !root.path.join(format!("agent/{agent}.d")).is_dir()
    {
        let message = format!("no agent `{agent}` in this directory's project, and none in the tree");
        return Err(Failure::new(Code::Enoent, message));
    }
    let mount = control::Mount {
        source: project.clone(),
        target: PathBuf::from(Cage::WORK),
        access: control::Access::ReadWrite,
        links: control::Links::Follow,
    };
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let whose = CageFor { root: &root.path, agent, uid, user_home: home.as_deref(), mounts: &[mount] };
    let config = cage_wishes(settings)?;
    let walltime_ms =
        Limits::default().walltime.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
    let usual = Wishes { walltime_ms, ..Wishes::default() };
    let of_project = of_project.unwrap_or_default();
    let wishes: Vec<&Wishes> = [&config, &usual].into_iter().chain(&of_project).chain([asked]).collect();
    let mut cage = Ground::look(&whose)?.cage(&wishes);
    if let Ok(below) = here.strip_prefix(&project)
        && below != Path::new("")
    {
        cage.cwd = Path::new(Cage::WORK).join(below);
    }
    Ok(cage)
}

/// What the project file asks for this agent; None: it knows no such agent. It holds only for who trusts the file, as in a
/// run.
fn project_wishes(agent: &str, project: &Path, root: &Root) -> Result<Option<Vec<Wishes>>, Failure> {
    let limit = ctx_session::Limits::default().control_file_bytes;
    let looked = read_project(project, Trust::Anyone, limit, words::now());
    let found = looked.found.map_err(|problems| {
        let slug = looked.slug.as_ref().map_or_else(|| project.display().to_string(), ToString::to_string);
        Failure::from(ctx_session::project::invalid(&slug, &problems))
    })?;
    let spec = &found.snapshot.spec;
    let subagent = spec.subagents.iter().find(|(name, _)| name.as_str() == agent);
    let wishes = match subagent {
        Some((_, subagent)) => vec![spec.cage.clone(), subagent.cage.clone()],
        None if spec.primary.name.as_str() == agent => vec![spec.cage.clone()],
        None => return Ok(None),
    };
    if wishes.iter().all(Wishes::is_empty) {
        return Ok(Some(wishes));
    }
    let root = autostart::with_daemon(Root { path: root.path.clone() })?;
    let known = here::project(&root, &project.to_string_lossy())?;
    let is_this = known.dsl_hash.as_deref() == Some(found.file_hash.as_str());
    if !known.trusted || !is_this {
        let message = format!(
            "the project file of {} asks for a cage of its own, which holds only when you trust the file",
            spec.project
        );
        return Err(Failure::new(Code::Eacces, message).hint("read it, then run `ctx project trust`"));
    }
    Ok(Some(wishes))
}

/// `[cage]` of the config file, with the variables of this process.
pub fn cage_wishes(settings: &CageConfig) -> Result<Wishes, Failure> {
    let mounts: Result<Vec<Mount>, CageError> = settings.mounts.split_whitespace().map(parse_mount).collect();
    let names = settings.env.split_whitespace().filter(|name| *name != "PATH" && *name != "HOME");
    Ok(Wishes {
        net: Some(settings.net),
        mounts: mounts?,
        path: settings.path.split(':').filter(|path| !path.is_empty()).map(str::to_owned).collect(),
        env: names.filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?))).collect(),
        ..Wishes::default()
    })
}

fn explain(agent: &str, settings: &CageConfig, root: &Root, as_json: bool) -> Result<(), Failure> {
    let cage = cage_of(agent, &Wishes::default(), settings, root)?;
    let means = Means::detect();
    let bwrap = find_bwrap(&std::env::var_os("PATH").unwrap_or_default());
    if as_json {
        let bwrap = bwrap.ok().map(|path| path.display().to_string());
        let summary = means.to_string();
        return output::json(&json!({
            "agent": agent, "cage": cage, "bwrap": bwrap, "means": means, "held_by": summary,
        }));
    }
    let mut out = output::stdout();
    write!(out, "{}", explained(agent, &cage, &means, bwrap.is_ok()))?;
    out.flush()?;
    Ok(())
}

fn explained(agent: &str, cage: &Cage, means: &Means, has_bwrap: bool) -> String {
    let of = |access: Access| {
        let mounts = cage.mounts.iter().filter(move |mount| mount.access == access);
        mounts.map(|Mount { source, target, .. }| match source == target {
            true => format!("  {}\n", target.display()),
            false => format!("  {} (the host's {})\n", target.display(), source.display()),
        })
    };
    let limits = &cage.limits;
    let mut text = format!("cage of {agent}, with the rights of uid {}\n\nwritable\n", cage.owner.uid());
    text.extend(of(Access::Rw));
    let has_home = cage.mounts.iter().any(|mount| mount.target == Path::new(Cage::HOME));
    text.push_str(if has_home { "" } else { "  /home/agent (in memory, until the command ends)\n" });
    text.push_str("  /tmp (in memory, until the command ends)\n\nread-only\n");
    text.extend(of(Access::Ro));
    text.push_str(match cage.net {
        Net::None => "\nnetwork\n  none\n",
        Net::Host => "\nnetwork\n  the host's, with all that listens on it\n",
    });
    text.push_str("\nenvironment\n");
    text.extend(cage.env.iter().map(|(name, value)| format!("  {name}={value}\n")));
    let walltime = limits.walltime.map_or("none".to_owned(), |time| format!("{} s", time.as_secs_f64()));
    text.push_str(&format!(
        "\nlimits\n  memory     {} MiB\n  processes  {}\n  walltime   {walltime}\n  /tmp       {} MiB\n  held by    {means}\n",
        limits.memory_bytes >> 20,
        limits.processes,
        limits.tmp_bytes >> 20,
    ));
    if !has_bwrap {
        text.push_str(&format!("\n{}\n", CageError::NoBwrap));
    }
    text
}
