//! How the operator's settings become a host of shells: for `ctx mcp`, and for the shells inside the daemon.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ctx_doors::mcp::ServerName;
use ctx_host::{HostConfig, RemoteConfig};
use ctx_session::Code;
use ctx_text::policy::Policy;

use crate::config::{FirstUse, Shells};
use crate::failure::Failure;

/// Where keys for other machines lie in a home directory.
pub const KEY_DIR: &str = ".ssh";

/// The longest policy file.
const POLICY_BYTES_MAX: u64 = 1 << 20;

/// What the MCP server calls itself.
pub fn server_name() -> ServerName {
    ServerName { name: "ctx".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

/// A host's configuration with the limits, the policy and the program that the operator wants.
pub fn host_config(spool_dir: PathBuf, settings: &Shells) -> Result<HostConfig, Failure> {
    let mut config = HostConfig::from_process(spool_dir, concat!("ctx ", env!("CARGO_PKG_VERSION")));
    config = config.without_screen();
    config.limits.shells_max = usize::try_from(settings.max.get()).unwrap_or(usize::MAX);
    config.limits.idle_max = Duration::from_secs(u64::from(settings.idle_secs.get()));
    config.program = named(&settings.program);
    config.remote = RemoteConfig {
        hosts: settings.ssh.hosts.clone(),
        users: settings.ssh.users.clone(),
        containers: settings.containers.clone(),
        first_use: settings.ssh.first_use == FirstUse::Accept,
        ssh_config: named(&settings.ssh.config),
        key_dir: named(&settings.key_dir)
            .or_else(|| std::env::home_dir().map(|home| home.join(KEY_DIR)))
            .unwrap_or_default(),
        engine: named(&settings.container_engine),
        ..RemoteConfig::default()
    };
    if let Some(path) = named(&settings.policy_file) {
        config.policy = policy(&path)?;
    }
    Ok(config)
}

/// A path that is empty is none.
pub fn named(path: &Option<PathBuf>) -> Option<PathBuf> {
    path.clone().filter(|path| !path.as_os_str().is_empty())
}

/// The directory that we start in may be anything: a relative path would be another file in each.
pub fn check_policy_path(settings: &Shells) -> Result<(), Failure> {
    match named(&settings.policy_file) {
        Some(path) if !path.is_absolute() => {
            let message = format!("shells.policy_file must be an absolute path, not `{}`", path.display());
            Err(Failure::new(Code::Einval, message).hint("`ctx config show` shows where it is set"))
        }
        Some(_) | None => Ok(()),
    }
}

/// A policy that cannot be read stops the server: without it, commands would run that must not.
fn policy(path: &Path) -> Result<Policy, Failure> {
    let wrong = |message: String| Failure::new(Code::Ebadmsg, format!("{}: {message}", path.display()));
    let bytes = whole_file(path)
        .map_err(|error| Failure::io(path.display(), error))?
        .map_err(|why| wrong(why.to_owned()))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        wrong(format!("line {line} of the policy is not UTF-8"))
    })?;
    let policy = Policy::parse(text).map_err(|error| wrong(error.to_string()))?;
    match policy.is_open() {
        true => Err(wrong("it has no rule; write `allow *` if all programs may run".to_owned())),
        false => Ok(policy),
    }
}

/// What a file holds, or why it is none that holds a policy. Others can be opened without an end, or never end.
fn whole_file(path: &Path) -> std::io::Result<Result<Vec<u8>, &'static str>> {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    // A pipe with nobody at its other end would be waited for.
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(Err("it is not a regular file; a policy is a text file with `allow` and `deny` lines"));
    }
    let mut bytes = Vec::new();
    file.take(POLICY_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > POLICY_BYTES_MAX {
        return Ok(Err("it is longer than 1 MiB, the limit for a policy"));
    }
    Ok(Ok(bytes))
}
