//! What the machine knows of a user whose programs run in terminals.

use std::path::PathBuf;

use ctx_cage::rights::NO_GROUP;

/// What the machine knows of a user.
pub(super) struct Account {
    pub gid: u32,
    name: String,
    pub home: PathBuf,
    shell: String,
}

impl Account {
    /// May ask the network.
    pub fn of(uid: u32) -> Account {
        match nix::unistd::User::from_uid(uid.into()) {
            Ok(Some(user)) => Account {
                gid: user.gid.as_raw(),
                name: user.name,
                home: if user.dir.is_dir() { user.dir } else { PathBuf::from("/") },
                shell: user.shell.to_string_lossy().into_owned(),
            },
            // Who has no account is in no group: the number may be that of a group of others.
            _ => Account {
                gid: NO_GROUP,
                name: uid.to_string(),
                home: PathBuf::from("/"),
                shell: "/bin/sh".to_owned(),
            },
        }
    }

    /// The environment of a program whose caller has none to give.
    pub fn env(&self) -> Vec<(String, String)> {
        let pairs = [
            ("PATH", "/usr/local/bin:/usr/bin:/bin"),
            ("HOME", &self.home.to_string_lossy()),
            ("USER", &self.name),
            ("LOGNAME", &self.name),
            ("SHELL", &self.shell),
            ("TERM", "xterm-256color"),
            ("LANG", "C.UTF-8"),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}
