//! The daemon's wiring.

use std::path::PathBuf;

use ctx_session::Code;

use crate::config::Config;
use crate::failure::Failure;

/// What the daemon is started with.
#[derive(Debug)]
pub struct Settings {
    pub root: PathBuf,
    /// The directory of the project `default`; absolute, and there.
    pub workspace: PathBuf,
    pub config: Config,
}

/// Runs the daemon until it is told to stop.
pub fn run(settings: Settings) -> Result<(), Failure> {
    let Settings { root, workspace, config } = settings;
    let what = format!("{} {} {:?}", root.display(), workspace.display(), config.log);
    Err(Failure::new(Code::Ehostdown, format!("the daemon is not wired yet: {what}")))
}
