//! Shells elsewhere: on another machine by ssh, or in a container by docker or podman.
//!
//! Both carry channels with three byte streams, and both run the same two scripts on the other side ([`far`]). So the
//! frame, the markers and the behaviour are those of a shell on this machine; what is done here by `/proc` and signals
//! is done there by the control channel.

mod connection;
mod container;
mod control;
mod far;
mod files;
mod private;
mod ssh;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;

use self::connection::RemoteConnection;
use self::container::Container;
pub(crate) use self::files::may_be_workspace;
use self::private::PrivateDir;
pub(crate) use self::private::remove_left;
pub use self::ssh::SshRequest;
use self::ssh::{Machine, Resolved};
use super::config::HostConfig;
use super::error::ShellError;
use super::local::caged::CageSlot;
use super::transport::{Connection, Transport};
use ctx_cage::find;
use ctx_cage::rights::Rights;

/// How often the two sides look for signs of life.
const BEAT: Duration = Duration::from_secs(15);
/// The most of what ssh or an engine says that an error repeats.
const COMPLAINT_MAX: usize = 300;
/// The longest answer to a question that is asked before connecting.
const ANSWER_BYTES_MAX: u64 = 256 * 1024;

/// What the operator decides about shells elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteConfig {
    /// The hosts, users and containers that may be gone to; any, where there is no list.
    pub hosts: Option<Vec<String>>,
    pub users: Option<Vec<String>>,
    pub containers: Option<Vec<String>>,
    /// Whether a host whose key is not known is trusted when it is first met.
    pub first_use: bool,
    /// A file that ssh reads instead of the user's config.
    pub ssh_config: Option<PathBuf>,
    /// Where `key_path` may lie.
    pub key_dir: PathBuf,
    /// The program that runs commands in containers; docker, else podman, where none is named.
    pub engine: Option<PathBuf>,
    pub beat: Duration,
}

impl Default for RemoteConfig {
    fn default() -> RemoteConfig {
        RemoteConfig {
            hosts: None,
            users: None,
            containers: None,
            first_use: false,
            ssh_config: None,
            key_dir: PathBuf::from("/nonexistent"),
            engine: None,
            beat: BEAT,
        }
    }
}

/// Where a new shell is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Destination {
    #[default]
    Local,
    Ssh(SshRequest),
    Container(String),
}

/// Where a new shell is to be, as callers say it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DestinationArgs {
    /// `local`, `ssh` or `docker`.
    pub transport: Option<String>,
    pub host: Option<String>,
    pub user: Option<String>,
    pub port: Option<u16>,
    pub key_path: Option<String>,
    pub password: Option<String>,
    pub fingerprint: Option<String>,
    pub container: Option<String>,
}

impl TryFrom<DestinationArgs> for Destination {
    type Error = ShellError;

    fn try_from(args: DestinationArgs) -> Result<Destination, ShellError> {
        let DestinationArgs { transport, host, user, port, key_path, password, fingerprint, container } =
            args;
        let needs = |field: &'static str, transport: &str| {
            ShellError::invalid(field, format!("{field} must be given with the transport `{transport}`"))
        };
        let transport = transport.unwrap_or_else(|| "local".to_owned());
        let of_ssh = [
            ("host", host.is_some()),
            ("user", user.is_some()),
            ("port", port.is_some()),
            ("key_path", key_path.is_some()),
            ("password", password.is_some()),
            ("fingerprint", fingerprint.is_some()),
        ];
        let foreign = match transport.as_str() {
            "ssh" => container.is_some().then_some("container"),
            "docker" => of_ssh.iter().find(|(_, given)| *given).map(|(field, _)| *field),
            "local" => {
                let given = of_ssh.iter().find(|(_, given)| *given).map(|(field, _)| *field);
                given.or(container.is_some().then_some("container"))
            }
            other => {
                let shown: String = other.chars().take(40).collect();
                return Err(ShellError::invalid(
                    "transport",
                    format!("transport must be local, ssh or docker, not `{}`", shown.escape_debug()),
                ));
            }
        };
        if let Some(field) = foreign {
            return Err(ShellError::invalid(
                field,
                format!("{field} means nothing with the transport `{transport}`"),
            ));
        }
        match transport.as_str() {
            "ssh" => {
                let host = host.ok_or_else(|| needs("host", "ssh"))?;
                Ok(Destination::Ssh(SshRequest { host, user, port, key_path, password, fingerprint }))
            }
            "docker" => container.map(Destination::Container).ok_or_else(|| needs("container", "docker")),
            _ => Ok(Destination::Local),
        }
    }
}

/// The way to one machine or container.
#[derive(Debug, Clone)]
pub(super) struct RemoteTransport {
    way: Arc<Way>,
}

#[derive(Debug)]
struct Way {
    program: PathBuf,
    env: Vec<(String, OsString)>,
    user: Option<(u32, u32)>,
    /// With these we look for files that the user names.
    rights: Rights,
    to: To,
    beat: Duration,
}

#[derive(Debug)]
enum To {
    Machine(Box<Machine>),
    Container(Container),
}

impl RemoteTransport {
    /// Checks what was asked for; none for a shell on this machine. Nothing is connected yet.
    pub async fn new(to: &Destination, config: &HostConfig) -> Result<Option<RemoteTransport>, ShellError> {
        use std::os::unix::ffi::OsStringExt;
        let remote = &config.remote;
        if *to != Destination::Local && config.cage.is_some() {
            let message = "the shells of this server run in cages, which are on this machine".to_owned();
            return Err(ShellError::Denied { message });
        }
        let path = config.path();
        let env = config.env.iter().map(|(name, value)| (name.clone(), OsString::from_vec(value.clone())));
        let mut way = Way {
            program: PathBuf::new(),
            env: env.collect(),
            user: config.run_as.as_ref().map(|user| (user.uid, user.gid)),
            rights: config.run_as.as_ref().map_or_else(Rights::own, |user| user.rights.clone()),
            to: To::Container(Container { name: String::new() }),
            beat: remote.beat,
        };
        match to {
            Destination::Local => return Ok(None),
            Destination::Ssh(request) => {
                let key = ssh::check(request, remote, &way.rights)?;
                way.program = find("ssh", &path).ok_or_else(|| missing("no ssh", "openssh-client"))?;
                let said = output(way.command(Machine::question(request, remote))).await?;
                if !said.status.success() {
                    let why = String::from_utf8_lossy(&said.stderr);
                    return Err(ShellError::invalid(
                        "host",
                        format!("ssh does not accept this: {}", short(&why)),
                    ));
                }
                let resolved = Resolved::read(&String::from_utf8_lossy(&said.stdout));
                way.to = To::Machine(Box::new(Machine::new(request.clone(), key, resolved, remote)?));
            }
            Destination::Container(name) => {
                let container = Container::new(name, remote)?;
                let engine = match &remote.engine {
                    Some(engine) => find(engine, &path),
                    None => find("docker", &path).or_else(|| find("podman", &path)),
                };
                way.program = engine.ok_or_else(|| missing("neither docker nor podman", "podman"))?;
                let said = output(way.command(container.question())).await?;
                let [answer, complaint] =
                    [&said.stdout, &said.stderr].map(|text| String::from_utf8_lossy(text));
                container.is_running(said.status.success(), &answer, &complaint)?;
                way.to = To::Container(container);
            }
        }
        Ok(Some(RemoteTransport { way: Arc::new(way) }))
    }
}

impl Transport for RemoteTransport {
    fn name(&self) -> &'static str {
        match self.way.to {
            To::Machine(_) => "ssh",
            To::Container(_) => "docker",
        }
    }

    fn label(&self) -> String {
        let name = match &self.way.to {
            To::Machine(machine) => machine.name(),
            To::Container(container) => container.name.clone(),
        };
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-@:".contains(c) { c } else { '_' };
        format!("{}_{}", self.name(), name.chars().map(plain).collect::<String>())
    }

    fn connect(&self, _n: u64, _cage: Option<Arc<CageSlot>>) -> Result<Box<dyn Connection>, ShellError> {
        Ok(Box::new(RemoteConnection::new(Arc::clone(&self.way), PrivateDir::new(self.way.rights.clone())?)))
    }
}

impl Way {
    /// A process of ours, with its user's rights and no terminal.
    fn command(&self, words: Vec<OsString>) -> Command {
        let mut command = std::process::Command::new(&self.program);
        {
            use std::os::unix::process::CommandExt;
            command.process_group(0);
            if let Some((uid, gid)) = self.user {
                command.uid(uid).gid(gid);
            }
        }
        command.args(words).env_clear().envs(self.env.iter().map(|(name, value)| (name, value)));
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut command = Command::from(command);
        command.kill_on_drop(true);
        command
    }

    /// The channel that the others depend on.
    fn first(&self, dir: &PrivateDir) -> Result<Command, ShellError> {
        let mut command = match &self.to {
            To::Machine(machine) => {
                let mut command = self.command(machine.first(dir, far::INTERPRETER)?);
                command.envs(machine.env(dir));
                command
            }
            To::Container(container) => self.command(container.channel(far::INTERPRETER)),
        };
        command.stdin(Stdio::piped());
        Ok(command)
    }

    fn further(&self, dir: &PrivateDir, words: &str) -> Command {
        let mut command = match &self.to {
            To::Machine(machine) => self.command(machine.further(dir, words)),
            To::Container(container) => self.command(container.channel(words)),
        };
        command.stdin(Stdio::piped());
        command
    }

    fn failure(&self, said: &str) -> ShellError {
        match &self.to {
            To::Machine(machine) => machine.failure(said),
            To::Container(container) => container.failure(said),
        }
    }

    /// We were let in, and the other side ended without the words of our script.
    fn no_shell(&self, told: &str) -> ShellError {
        let place = match &self.to {
            To::Machine(machine) => machine.name(),
            To::Container(container) => container.name.clone(),
        };
        let told = if told.is_empty() { String::new() } else { format!(" ({})", short(told)) };
        let message = format!(
            "the login to `{place}` works, but it runs no commands{told}: its user needs a login shell that does"
        );
        ShellError::Unreachable { message }
    }
}

/// What a short question to ssh or to an engine gives. What a user's config makes ssh run may say anything, for ever.
async fn output(mut command: Command) -> Result<std::process::Output, ShellError> {
    let failed = |error: std::io::Error| ShellError::Unreachable {
        message: format!("it cannot be asked for: {error}"),
    };
    let mut child = command.spawn().map_err(failed)?;
    let group = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let streams = (child.stdout.take(), child.stderr.take());
    let (Some(out), Some(err)) = streams else { return Err(failed(std::io::ErrorKind::BrokenPipe.into())) };
    let said = async { tokio::try_join!(at_most(out, &mut stdout), at_most(err, &mut stderr)).map(drop) };
    let why = match tokio::time::timeout(BEAT, said).await {
        Ok(Ok(())) => None,
        Ok(Err(TooLong)) => Some("the answer about it is too long"),
        Err(_) => Some("no answer about it within 15 seconds"),
    };
    if let Some(message) = why {
        // It has not been waited for, so the group is still its own; all that it has started goes with it.
        if let Some(group) = group {
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        return Err(ShellError::Unreachable { message: message.to_owned() });
    }
    let status = tokio::time::timeout(BEAT, child.wait()).await;
    let status = status.map_err(|_| ShellError::Unreachable { message: "it did not end".to_owned() })?;
    Ok(std::process::Output { status: status.map_err(failed)?, stdout, stderr })
}

struct TooLong;

async fn at_most(from: impl AsyncRead + Unpin, to: &mut Vec<u8>) -> Result<(), TooLong> {
    // One that breaks off has said what it has said.
    let _ = from.take(ANSWER_BYTES_MAX).read_to_end(to).await;
    if to.len() as u64 == ANSWER_BYTES_MAX { Err(TooLong) } else { Ok(()) }
}

fn missing(what: &str, package: &str) -> ShellError {
    ShellError::Unreachable { message: format!("{what} was found in PATH: install {package}") }
}

fn is_allowed(list: Option<&[String]>, name: &str) -> bool {
    list.is_none_or(|list| list.iter().any(|allowed| allowed == name))
}

/// A name that no program can take for an option or for two words.
fn checked_name(field: &'static str, name: &str, plain: fn(char) -> bool) -> Result<(), ShellError> {
    if name.is_empty() || name.len() > 255 || name.starts_with('-') || !name.chars().all(plain) {
        let shown: String = name.chars().take(80).collect();
        return Err(ShellError::invalid(
            field,
            format!("{field} `{}` is not a name that can be used", shown.escape_debug()),
        ));
    }
    Ok(())
}

fn unreachable(what: &str, said: &str) -> ShellError {
    ShellError::Unreachable { message: format!("{what} cannot be reached: {}", short(said)) }
}

/// The last line that says something.
fn short(said: &str) -> String {
    let line = said.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or("no reason was given");
    line.chars().filter(|c| !c.is_control()).take(COMPLAINT_MAX).collect()
}
