//! `--yes`, `--allow` and `--net`: what may be done in a run before anyone is asked.

use std::io::IsTerminal;

use ctx_session::command::RunNet;
use ctx_session::record::Approvals;

#[derive(Debug, Clone, Default, clap::Args)]
pub struct Consent {
    /// Allow everything in this run that would need your approval; the log says so
    #[arg(short, long)]
    yes: bool,
    /// Allow a tool in this run, such as 'fs.write' or 'fs.edit src/*'; can be given several times
    #[arg(long, value_name = "RULE")]
    pub allow: Vec<String>,
    /// Network of the commands in this run: none, or host for that of this machine
    #[arg(long, value_name = "NET", value_parser = net)]
    pub net: Option<RunNet>,
}

fn net(text: &str) -> Result<RunNet, String> {
    match text {
        "none" => Ok(RunNet::None),
        "host" => Ok(RunNet::Host),
        other => Err(format!("must be none or host, not `{other}`")),
    }
}

impl Consent {
    /// Whether nothing was allowed beforehand.
    pub fn is_empty(&self) -> bool {
        !self.yes && self.allow.is_empty() && self.net.is_none()
    }

    /// The answer to approvals that is sent with a message; None: the operator is asked.
    pub fn given(&self) -> Option<Approvals> {
        self.yes.then_some(Approvals::Allow)
    }

    /// The same of a command that waits for the run: where nobody sees the question, nobody answers it.
    pub fn given_or_absent(&self) -> Option<Approvals> {
        let is_seen = std::io::stdin().is_terminal() || std::io::stderr().is_terminal();
        self.given().or((!is_seen).then_some(Approvals::Deny))
    }
}
