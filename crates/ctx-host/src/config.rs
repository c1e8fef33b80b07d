//! What the operator decides about the shells of a server.

use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::frame::exports::Export;
use super::limits::ShellLimits;
use super::local::RunAs;
use super::local::caged::CageSetup;
use super::remote::RemoteConfig;
use super::workspace::SnapshotSetup;
use ctx_text::policy::Policy;

/// What shells are told instead of what the server's own environment says: there is no screen for an editor or a pager,
/// and a command that opens one would wait until its time is over.
const WITHOUT_SCREEN: [(&str, &str); 5] =
    [("EDITOR", "true"), ("GIT_EDITOR", "true"), ("VISUAL", "true"), ("GIT_PAGER", "cat"), ("PAGER", "cat")];

/// What the operator decides. Nothing of it can be reached through a tool's arguments.
#[derive(Debug, Clone)]
pub struct HostConfig {
    pub limits: ShellLimits,
    /// The program to run as a shell; bash, else sh, where none is named.
    pub program: Option<PathBuf>,
    /// What shells inherit.
    pub env: Vec<(String, Vec<u8>)>,
    /// Where shells start when nothing else is asked for.
    pub cwd: PathBuf,
    /// Where output is kept on disk while its shell lives.
    pub spool_dir: PathBuf,
    /// Which programs may run, whatever a caller asks for.
    pub policy: Policy,
    /// Name and version of the program, for the log.
    pub app: String,
    /// The user whose shells these are, where that is not the one we run as.
    pub run_as: Option<RunAs>,
    /// The cage that each shell has; its owner is the user whose shells these are.
    pub cage: Option<CageSetup>,
    /// Where snapshots of workspaces are kept; None: there are none.
    pub snapshots: Option<SnapshotSetup>,
    /// What is allowed on other machines and in containers.
    pub remote: RemoteConfig,
}

impl HostConfig {
    /// The usual limits, this process's environment and directory.
    pub fn from_process(spool_dir: PathBuf, app: &str) -> HostConfig {
        let env = std::env::vars_os()
            .filter_map(|(name, value)| name.into_string().ok().map(|name| (name, value.into_vec())));
        HostConfig {
            limits: ShellLimits::default(),
            program: None,
            env: env.collect(),
            cwd: std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/")),
            spool_dir,
            policy: Policy::open(),
            app: app.to_owned(),
            run_as: None,
            cage: None,
            snapshots: None,
            remote: RemoteConfig::default(),
        }
    }

    /// Shells whose programs open no editor and no pager.
    pub fn without_screen(mut self) -> HostConfig {
        self.env.retain(|(name, _)| WITHOUT_SCREEN.iter().all(|(set, _)| set != name));
        self.env.extend(WITHOUT_SCREEN.map(|(name, value)| (name.to_owned(), value.as_bytes().to_owned())));
        self
    }

    /// What shells elsewhere are told of that; the rest of their environment is the other side's.
    pub(super) fn screenless() -> Vec<Export> {
        let export = |(name, value): (&str, &str)| Export { name: name.to_owned(), value: value.into() };
        WITHOUT_SCREEN.map(export).into()
    }

    pub(super) fn exports(&self) -> Vec<Export> {
        let export = |(name, value): &(String, Vec<u8>)| Export { name: name.clone(), value: value.clone() };
        self.env.iter().map(export).collect()
    }

    pub(super) fn path(&self) -> std::ffi::OsString {
        let path = self.variable("PATH").unwrap_or(b"/usr/local/bin:/usr/bin:/bin");
        std::ffi::OsString::from_vec(path.to_vec())
    }

    /// A variable of the server's environment.
    pub(super) fn variable(&self, name: &str) -> Option<&[u8]> {
        self.env.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_slice())
    }
}
