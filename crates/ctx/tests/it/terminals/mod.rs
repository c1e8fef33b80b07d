//! Terminals: programs that outlive the window, the connection and the daemon.

mod attached;
mod outlive;
mod painted;
mod past;
mod scripted;
mod sessions;

use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::Command;

use ctx_terminal::{
    ChunkKind, Connection, FromHolder, Hello, Mode, ToHolder, VERSION, connect, open_transcript,
};
use serde_json::Value;
use testkit::{TestDaemon, until};

use crate::support::{build, daemon, json_lines};

/// A daemon whose terminals end with the test.
struct Terms {
    daemon: TestDaemon,
}

impl Terms {
    fn start() -> Terms {
        Terms { daemon: daemon() }
    }

    /// One terminal as `ls` shows it.
    fn listed(&self, id: &str) -> Value {
        let all = json_lines(&self.ctx(&["term", "ls", "--all", "--json"]).ok());
        // The newest of a name.
        let found = all.into_iter().rfind(|one| one["id"] == id || one["name"] == id);
        found.unwrap_or_else(|| panic!("no terminal {id}"))
    }

    /// Starts a program in the background; its id.
    fn run(&self, name: &str, command: &[&str]) -> String {
        let args =
            [&["term", "run", "--detach", "--name", name, "--cols", "80", "--rows", "24", "--"], command];
        self.ctx(&args.concat()).ok().trim().to_owned()
    }

    fn screen(&self, id: &str) -> String {
        self.ctx(&["term", "screen", id]).ok()
    }

    /// Waits until the screen has a text.
    #[track_caller]
    fn shows(&self, id: &str, text: &str) -> String {
        until(&format!("`{text}` on the screen of {id}"), || {
            Some(self.screen(id)).filter(|screen| screen.contains(text))
        })
    }

    /// Waits until it has ended; how.
    fn ended(&self, id: &str) -> Value {
        until(&format!("the end of {id}"), || Some(self.listed(id)).filter(|one| one["state"] == "closed"))
    }

    /// A connection of its own to the holder.
    fn holder(&self, id: &str, mode: Mode, scrollback: usize) -> Connection {
        let socket = self.listed(id)["socket"].as_str().unwrap().to_owned();
        let hello = Hello { version: VERSION, mode, size: None, scrollback };
        Connection::new(connect(Path::new(&socket)).unwrap(), hello).unwrap()
    }

    /// Every byte that a program wrote.
    fn transcript(&self, id: &str) -> Vec<u8> {
        let path = self.listed(id)["transcript"].as_str().unwrap().to_owned();
        let mut all = Vec::new();
        for chunk in open_transcript(Path::new(&path)).unwrap() {
            if let ChunkKind::Output(bytes) = chunk.unwrap().kind {
                all.extend_from_slice(&bytes);
            }
        }
        all
    }
}

impl Deref for Terms {
    type Target = TestDaemon;

    fn deref(&self) -> &TestDaemon {
        &self.daemon
    }
}

impl DerefMut for Terms {
    fn deref_mut(&mut self) -> &mut TestDaemon {
        &mut self.daemon
    }
}

impl Drop for Terms {
    fn drop(&mut self) {
        // Without the daemon, which may be gone: the holders themselves are told.
        for socket in sockets(self.daemon.root()) {
            let hello = Hello { version: VERSION, mode: Mode::Ask, size: None, scrollback: 0 };
            let close = || {
                let Ok(stream) = connect(&socket) else { return Some(()) };
                // A holder that is already ending resets the connection; the next attempt finds its socket gone.
                let mut holder = Connection::new(stream, hello).ok()?;
                holder.send(&ToHolder::Close).ok()?;
                holder.wait_for(|said| matches!(said, FromHolder::End(_)).then_some(())).ok()
            };
            if std::thread::panicking() {
                close();
            } else {
                until("the end of a holder", close);
            }
        }
    }
}

/// The sockets of all holders of a root.
fn sockets(root: &Path) -> Vec<PathBuf> {
    let below = |dir: &Path| -> Vec<PathBuf> {
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let users = below(&root.join(".state/hold"));
    users.iter().flat_map(|user| below(user)).map(|dir| dir.join("sock")).collect()
}

/// A program of the test clients.
fn python(program: &str) -> Command {
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().to_owned();
    let program = repository.join("target/test-venv/bin").join(program);
    assert!(program.exists(), "no test clients: `scripts/setup test` installs them");
    let mut command = Command::new(program);
    command.current_dir(repository.join("tests/python"));
    command
}
