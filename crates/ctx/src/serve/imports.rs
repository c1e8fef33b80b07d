//! Keeping up with other agents' stores: one child runs `ctx import --follow` for those that `[import] follow` names.
//!
//! It is a process of its own, so that whatever a foreign file holds is read outside the daemon.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use ctx_interop::Agent;
use ctx_session::Code;
use tokio::task::JoinHandle;

use crate::failure::Failure;

/// How long it is waited before a child that ended is started again.
const AGAIN: Duration = Duration::from_secs(10);

/// The agents that a setting names.
pub fn agents(setting: &str) -> Result<Vec<Agent>, Failure> {
    let unknown = |word: &str| {
        let known = Agent::ALL.map(Agent::name).join(", ");
        Failure::new(Code::Einval, format!("`import.follow` names `{word}`; it may name {known}"))
    };
    setting.split_whitespace().map(|word| Agent::of_name(word).ok_or_else(|| unknown(word))).collect()
}

/// Follows the stores of these agents until the task is dropped. None: there are none.
pub fn follow(root: &Path, agents: &[Agent]) -> Option<JoinHandle<()>> {
    if agents.is_empty() {
        return None;
    }
    let program = std::env::current_exe().ok()?;
    let mut args = vec!["import".to_owned(), "--follow".to_owned()];
    for agent in agents {
        args.extend(["--from".to_owned(), agent.name().to_owned()]);
    }
    let root = root.to_owned();
    Some(tokio::spawn(async move {
        loop {
            let mut command = tokio::process::Command::new(&program);
            command.args(&args).env("CTX_ROOT", &root).env("CTX_AUTOSTART", "false").kill_on_drop(true);
            command.stdin(Stdio::null()).stdout(Stdio::null());
            match command.spawn() {
                Ok(mut child) => {
                    let ended = child.wait().await;
                    tracing::warn!(?ended, "following other agents' sessions ended; it is started again");
                }
                Err(error) => tracing::warn!(%error, "other agents' sessions cannot be followed"),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }))
}
