//! How the operator's settings become a host of shells: for `ctx mcp`, and for the shells inside the daemon.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ctx_doors::mcp::ServerName;
use ctx_host::shell::HostConfig;
use ctx_host::shell::text::fence::Policy;
use ctx_session::Code;

use crate::config::Shells;
use crate::failure::Failure;

/// What the MCP server calls itself.
pub fn server_name() -> ServerName {
    ServerName { name: "ctx".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() }
}

/// A host's configuration with the limits, the policy and the program that the operator wants.
pub fn host_config(spool_dir: PathBuf, settings: &Shells) -> Result<HostConfig, Failure> {
    let mut config = HostConfig::from_process(spool_dir, concat!("ctx ", env!("CARGO_PKG_VERSION")));
    config.limits.shells_max = usize::try_from(settings.max.get()).unwrap_or(usize::MAX);
    config.limits.idle_max = Duration::from_secs(u64::from(settings.idle_secs.get()));
    config.program = named(&settings.program);
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
            Err(Failure::new(Code::Einval, message).hint("`ctx config show` says where it is set"))
        }
        Some(_) | None => Ok(()),
    }
}

/// A policy that cannot be read stops the server: without it, commands would run that must not.
fn policy(path: &Path) -> Result<Policy, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::io(path.display(), error))?;
    Policy::parse(&text).map_err(|error| Failure::new(Code::Ebadmsg, format!("{}: {error}", path.display())))
}
