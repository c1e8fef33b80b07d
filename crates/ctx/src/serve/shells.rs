//! The daemon's shells: whose they are, what they run as, and where their logs are.
//!
//! A shell runs as the user it was made for, or not at all. For its own user the daemon makes shells as `ctx mcp` does;
//! for others only root can, and then the shell has that user's uid and group, their home, and nothing of the
//! daemon's environment.

use std::collections::HashMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ctx_cage::rights::{Rights, RightsError};
use ctx_doors::shells::{LogPiece, ShellSource};
use ctx_host::{HostConfig, RunAs, ShellHost};
use ctx_journal::Owner;
use ctx_session::{Code, Refusal, Ulid};

use super::passwd::{self, User};
use crate::config::Config;
use crate::failure::Failure;
use crate::root::Root;
use crate::shell_host::{KEY_DIR, check_policy_path, host_config};
use crate::shell_logs::{JournalShellLog, Shelf};
use crate::snapshots;

const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

pub(super) struct Source {
    shelf: Arc<Shelf>,
    /// A writer for each user.
    logs: Mutex<HashMap<u32, Arc<JournalShellLog>>>,
    /// What every host has; the workspace is where the daemon's own user begins.
    config: HostConfig,
    /// Where other users' shells read what is handed to them.
    scratch_dir: PathBuf,
    uid: u32,
}

impl Source {
    pub fn new(root: &Path, workspace: Option<&Path>, config: &Config) -> Result<Source, Failure> {
        let settings = &config.shells;
        check_policy_path(settings)?;
        let dir = root.join(".state/shell");
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir);
        made.map_err(|error| Failure::io(dir.display(), error))?;
        let shelf = Arc::new(Shelf::in_root(root)?);
        let root_of_logs = Root { path: root.to_owned() };
        let setup = snapshots::of_shells(&root.join(".state"), &root_of_logs, &config.snapshots, settings);
        let mut config = host_config(shelf.spool_dir(), settings)?;
        config.snapshots = Some(setup);
        let home = || std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_dir());
        config.cwd = workspace.map(Path::to_owned).or_else(home).unwrap_or_else(|| PathBuf::from("/"));
        Ok(Source {
            logs: Mutex::default(),
            shelf,
            config,
            scratch_dir: root.join(".state/scratch"),
            uid: rustix::process::geteuid().as_raw(),
        })
    }

    fn logs(&self) -> MutexGuard<'_, HashMap<u32, Arc<JournalShellLog>>> {
        self.logs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn logs_of(&self, owner: Owner) -> Arc<JournalShellLog> {
        let new = || Arc::new(JournalShellLog::for_owner(Arc::clone(&self.shelf), owner));
        Arc::clone(self.logs().entry(owner.uid).or_insert_with(new))
    }

    /// The configuration for another user's shells.
    fn config_for(&self, user: &User, rights: Rights) -> Result<HostConfig, RightsError> {
        let home = rights.act(|| home_of(user))?;
        let mut env: Vec<(String, Vec<u8>)> = clean_env(user, &home)
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into_bytes()))
            .collect();
        let inherited = |(name, _): &&(String, Vec<u8>)| matches!(name.as_str(), "LANG" | "TZ");
        env.extend(self.config.env.iter().filter(inherited).cloned());
        let scratch_dir = self.scratch_dir.clone();
        let run_as = RunAs { uid: user.uid, gid: user.gid, rights, scratch_dir };
        // Keys are the user's own, unless the operator has named a directory for all.
        let mut remote = self.config.remote.clone();
        if Some(&remote.key_dir) == std::env::home_dir().map(|own| own.join(KEY_DIR)).as_ref() {
            remote.key_dir = home.join(KEY_DIR);
        }
        Ok(HostConfig { env, cwd: home, run_as: Some(run_as), remote, ..self.config.clone() }
            .without_screen())
    }
}

pub(super) fn home_of(user: &User) -> PathBuf {
    if user.home.is_dir() { user.home.clone() } else { PathBuf::from("/") }
}

/// What a program of another user finds in its environment: nothing of the daemon's.
pub(super) fn clean_env(user: &User, home: &Path) -> [(&'static str, String); 5] {
    [
        ("PATH", PATH.to_owned()),
        ("HOME", home.to_string_lossy().into_owned()),
        ("USER", user.name.clone()),
        ("LOGNAME", user.name.clone()),
        ("SHELL", user.shell.clone()),
    ]
}

impl ShellSource for Source {
    fn host(&self, uid: u32) -> Result<ShellHost, Refusal> {
        let made = if uid == self.uid {
            let owner = Owner::own();
            ShellHost::new(self.config.clone(), self.logs_of(owner))
        } else if self.uid != 0 {
            let message =
                "this daemon does not run as root, so it cannot run shells as you; run `ctx mcp` yourself";
            return Err(Refusal::new(Code::Eacces, message));
        } else {
            let user = passwd::user(uid).ok_or_else(|| {
                let message =
                    format!("uid {uid} is not a user of this machine, so no shell can run as this user");
                Refusal::new(Code::Eacces, message)
            })?;
            let owner = Owner::user(user.uid, user.gid);
            ShellHost::new(self.config_for(&user, Rights::of(uid)?)?, self.logs_of(owner))
        };
        made.map_err(|error| Refusal::new(error.code(), error.to_string()))
    }

    fn owner(&self, log: Ulid) -> Option<u32> {
        let path = self.shelf.path_of(log).ok()?;
        self.shelf.kept_for(&path)
    }

    fn piece(&self, log: Ulid, from: u64, bytes: usize) -> Result<LogPiece, Refusal> {
        // What is written is synced a moment later; who asks for it now is not told less than has happened.
        for logs in self.logs().values() {
            logs.sync(log);
        }
        self.shelf
            .piece(log, from, bytes)
            .map(|(text, next)| LogPiece { text, next })
            .map_err(|error| Refusal::new(Code::Eio, error.message))
    }
}
