//! A cage as a command line of `bwrap`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use super::value::{Access, Cage, Mount, Net};

/// The first descriptor that is passed to `bwrap`.
const FIRST_FD: i32 = 3;
/// The user inside. It is a name only: the rights are those of the cage's owner.
const UID: &str = "1000";

/// The arguments of `bwrap`, and what it reads from which descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandLine {
    pub args: Vec<OsString>,
    /// What `bwrap` reads, by descriptor.
    pub inputs: Vec<(i32, Vec<u8>)>,
    /// Where `bwrap` writes what became of the command.
    pub status_fd: i32,
    /// The command starts when this can be read.
    pub block_fd: i32,
}

/// Turns a cage and a command into a command line. The filters are those of [`super::filters`].
pub fn command_line(cage: &Cage, filters: &[Vec<u8>], command: &[OsString]) -> CommandLine {
    let mut line = Builder { args: Vec::new(), inputs: Vec::new(), next_fd: FIRST_FD };
    line.namespaces(cage.net);
    if !cage.has_terminal {
        // Otherwise the command is about to make a session of its own, with its terminal.
        line.args(["--new-session"]);
    }
    line.files(cage);
    line.args(["--chdir".as_ref(), cage.cwd.as_os_str()]);
    line.args(["--clearenv"]);
    line.variables(&cage.env);
    for filter in filters {
        let fd = line.input(filter.clone());
        line.args(["--add-seccomp-fd", &fd]);
    }
    let (status_fd, block_fd) = (line.next_fd, line.next_fd + 1);
    line.args(["--json-status-fd", &status_fd.to_string(), "--block-fd", &block_fd.to_string()]);
    line.args(["--"]);
    line.args(command);
    CommandLine { args: line.args, inputs: line.inputs, status_fd, block_fd }
}

struct Builder {
    args: Vec<OsString>,
    inputs: Vec<(i32, Vec<u8>)>,
    next_fd: i32,
}

impl Builder {
    fn args<T: AsRef<std::ffi::OsStr>>(&mut self, args: impl IntoIterator<Item = T>) {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
    }

    /// Something that `bwrap` reads; its descriptor.
    fn input(&mut self, bytes: Vec<u8>) -> String {
        let fd = self.next_fd;
        self.inputs.push((fd, bytes));
        self.next_fd += 1;
        fd.to_string()
    }

    /// Everybody on the machine can read a command line, and a value may be a secret: `bwrap` reads them from a file.
    fn variables(&mut self, env: &BTreeMap<String, String>) {
        let words = env.iter().flat_map(|(name, value)| ["--setenv", name, value]);
        let options: Vec<u8> = words.flat_map(|word| word.bytes().chain([0])).collect();
        let fd = self.input(options);
        self.args(["--args", &fd]);
    }

    /// These hold for every cage. `--disable-userns` makes a second user namespace in which no further one may be made.
    fn namespaces(&mut self, net: Net) {
        self.args(["--unshare-user", "--disable-userns", "--uid", UID, "--gid", UID]);
        self.args(["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]);
        if net == Net::None {
            self.args(["--unshare-net"]);
        }
        self.args(["--hostname", "cage", "--cap-drop", "ALL", "--die-with-parent"]);
    }

    fn files(&mut self, cage: &Cage) {
        let size = cage.limits.tmp_bytes.to_string();
        self.args(["--proc", "/proc", "--dev", "/dev"]);
        self.args(["--size", &size, "--perms", "1777", "--tmpfs", "/dev/shm"]);
        self.args(["--size", &size, "--perms", "1777", "--tmpfs", "/tmp"]);
        self.args(["--perms", "0755", "--dir", "/var", "--symlink", "/tmp", "/var/tmp", "--dir", "/run"]);
        if !cage.mounts.iter().any(|mount| mount.target == Path::new(Cage::HOME)) {
            self.args(["--size", &size, "--perms", "0700", "--tmpfs", Cage::HOME]);
        }
        for (path, text) in [
            ("/etc/passwd", format!("agent:x:{UID}:{UID}:agent:{}:/bin/sh\n", Cage::HOME)),
            ("/etc/group", format!("agent:x:{UID}:\n")),
        ] {
            let fd = self.input(text.into_bytes());
            self.args(["--perms", "0444", "--ro-bind-data", &fd, path]);
        }
        for Mount { source, target, access } in &cage.mounts {
            let option = match access {
                Access::Ro => "--ro-bind",
                Access::Rw => "--bind",
                Access::Link => "--symlink",
            };
            self.args([option.as_ref(), source.as_os_str(), target.as_os_str()]);
        }
        for path in &cage.covered {
            self.args(["--size".as_ref(), "4096".as_ref(), "--tmpfs".as_ref(), path.as_os_str()]);
            self.args(["--remount-ro".as_ref(), path.as_os_str()]);
        }
        // The root and /dev are file systems in memory that nobody limits.
        self.args(["--remount-ro", "/dev", "--remount-ro", "/"]);
    }
}
