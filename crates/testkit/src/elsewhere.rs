//! A real sshd on loopback and a real container, for shells that are not on this machine. One of each serves all tests of
//! the process; they end when the process ends, because a helper waits on a pipe that only the process holds.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// The number of the user of [`Sshd::with_user`].
pub const USER: u32 = 54_777;

pub struct Sshd {
    pub dir: PathBuf,
    pub port: u16,
    pub fingerprint: String,
    _helper: Child,
}

pub struct Container {
    pub name: String,
    pub engine: PathBuf,
    _helper: Child,
}

fn done(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().expect("a server for tests");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("a server for tests")
}

/// A directory that the helper removes.
fn own_dir() -> PathBuf {
    let dir = tempfile::Builder::new().prefix("ctx-test-").tempdir().expect("a server for tests");
    dir.keep()
}

/// Runs a script that goes on until this process ends: the script reads the end of its stdin then.
fn helper(script: &str, dir: &Path) -> Child {
    let script = format!("trap '' INT TERM HUP\n{script}\nread -r _\n$end\nrm -rf \"$1\"\n");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "helper"]).arg(dir).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("a server for tests");
    let mut first = [0];
    child.stdout.as_mut().expect("a server for tests").read_exact(&mut first).expect("a server for tests");
    child
}

impl Sshd {
    pub fn shared() -> &'static Sshd {
        static SHARED: OnceLock<Sshd> = OnceLock::new();
        SHARED.get_or_init(|| Sshd::start(""))
    }

    /// A server of its own, with more lines in its configuration.
    pub fn start(config: &str) -> Sshd {
        Sshd::start_in(config, None)
    }

    /// The same with a user of its own, `ctxtest`, who has this shell and the password `sesame-7319`.
    pub fn with_user(shell: &str) -> Sshd {
        let dir = own_dir();
        let hash = done(Command::new("openssl").args(["passwd", "-6", "sesame-7319"]));
        let add = |file: &str, line: &str| {
            let text = std::fs::read_to_string(format!("/etc/{file}")).expect("a server for tests");
            std::fs::write(dir.join(file), format!("{}\n{line}\n", text.trim_end()))
                .expect("a server for tests");
        };
        add("passwd", &format!("ctxtest:x:{USER}:{USER}::/tmp:{shell}"));
        add("shadow", &format!("ctxtest:{}:19000:0:99999:7:::", hash.trim()));
        Sshd::start_in("PasswordAuthentication yes", Some(&dir))
    }

    /// The sshd processes of its connections.
    pub fn connections(&self) -> Vec<String> {
        let pgrep = |arguments: &[&str]| {
            let found = Command::new("pgrep").args(arguments).output().expect("pgrep");
            String::from_utf8(found.stdout).expect("numbers").split_whitespace().map(str::to_owned).collect()
        };
        let listening: Vec<String> = pgrep(&["-f", &format!("{}/config", self.dir.display())]);
        listening.iter().flat_map(|parent| pgrep(&["-P", parent, "sshd"])).collect()
    }

    /// The same with other accounts: the files in this directory are mounted over those in `/etc`, for this server alone.
    fn start_in(config: &str, etc: Option<&Path>) -> Sshd {
        let dir = own_dir();
        for name in ["host", "id"] {
            let mut keygen = Command::new("ssh-keygen");
            done(keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.join(name)));
        }
        std::fs::copy(dir.join("id.pub"), dir.join("authorized")).expect("a server for tests");
        let listed = done(Command::new("ssh-keygen").arg("-lf").arg(dir.join("host.pub")));
        let fingerprint = listed.split(' ').nth(1).expect("a server for tests").to_owned();
        // Where sshd runs as root it wants this directory, which a service makes otherwise.
        let _ = std::fs::create_dir_all("/run/sshd");
        let port = std::net::TcpListener::bind("127.0.0.1:0")
            .expect("a server for tests")
            .local_addr()
            .expect("a server for tests")
            .port();
        let path = dir.display();
        let text = format!(
            "{config}\nListenAddress 127.0.0.1\nPort {port}\nHostKey {path}/host\nAuthorizedKeysFile {path}/authorized\n\
             StrictModes no\nUsePAM no\nPidFile none\nMaxStartups 100\nMaxSessions 50\nPermitRootLogin yes\n"
        );
        std::fs::write(dir.join("config"), text).expect("a server for tests");
        let serve = "exec $(command -v sshd || echo /usr/sbin/sshd) -D -e -f \"$1/config\" 2>\"$1/log\"";
        let mounts = etc.map(|etc| {
            let mount = |file| format!("mount --bind {0}/{file} /etc/{file};", etc.display());
            format!("unshare -m sh -c '{}{}{serve}' sh \"$1\"", mount("passwd"), mount("shadow"))
        });
        let serve = mounts.unwrap_or_else(|| format!("({serve})"));
        let helper = helper(&format!("{serve} &\npid=$!\nend=\"kill -KILL $pid\"\necho"), &dir);
        super::until("sshd to listen", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
        Sshd { dir, port, fingerprint, _helper: helper }
    }
}

impl Container {
    pub fn shared() -> &'static Container {
        static SHARED: OnceLock<Container> = OnceLock::new();
        SHARED.get_or_init(Container::start)
    }

    /// busybox alone, with this machine's directory for temporary files and its processes.
    pub fn start() -> Container {
        let dir = own_dir();
        let path = dir.display();
        let engine = dir.join("engine");
        let store = "--storage-driver vfs --cgroup-manager cgroupfs --events-backend file --runtime runc";
        let text =
            format!("#!/bin/sh\nexec podman --root {path}/store --runroot {path}/run {store} \"$@\"\n");
        std::fs::write(&engine, text).expect("a server for tests");
        done(Command::new("chmod").arg("755").arg(&engine));
        let tmp = std::env::temp_dir();
        let image = format!(
            "mkdir -p {path}/image/bin {path}/image/tmp {path}/image/proc && cp \"$(command -v busybox)\" {path}/image/bin/busybox && \
             for a in $(busybox --list); do [ $a = busybox ] || ln -s busybox {path}/image/bin/$a; done && \
             tar -C {path}/image -c . | {path}/engine import - ctx-test:1 && \
             {path}/engine run -d --name box --network none --pid host --ulimit nofile=1024:1024 --ulimit nproc=4096:4096 \
             -v {tmp}:{tmp} ctx-test:1 /bin/sleep 100000",
            tmp = tmp.display()
        );
        done(Command::new("sh").args(["-ec", &image]));
        let helper = helper("end=\"$1/engine rm -f -t 0 box\"\necho", &dir);
        Container { name: "box".to_owned(), engine, _helper: helper }
    }
}
