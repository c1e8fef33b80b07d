//! A daemon, and a shell whose `$R` is its root.

use std::ops::{Deref, DerefMut};
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::{DaemonBuilder, Outcome, TestDaemon};

pub struct Tree(pub TestDaemon);

impl Deref for Tree {
    type Target = TestDaemon;

    fn deref(&self) -> &TestDaemon {
        &self.0
    }
}

impl DerefMut for Tree {
    fn deref_mut(&mut self) -> &mut TestDaemon {
        &mut self.0
    }
}

impl Tree {
    pub fn start() -> Tree {
        let tree = Tree(Tree::build().start());
        // The sockets of models come after those of agents, this one last.
        testkit::until("the models", || tree.root().join("model/debug/script.sock").exists().then_some(()));
        tree
    }

    pub fn build() -> DaemonBuilder {
        TestDaemon::build(env!("CARGO_BIN_EXE_ctx"))
    }

    /// What a shell makes of a script. It stands in the workspace.
    pub fn sh(&self, script: &str) -> Outcome {
        let mut command = Command::new("bash");
        command.args(["-o", "pipefail", "-c", script]).env("R", self.root()).stdin(Stdio::null());
        command.env("CTX_ROOT", self.root()).env("HOME", self.home()).current_dir(self.workspace());
        command.env("CTX_AUTOSTART", "false").env("UID_", own_uid().to_string());
        let output = command.output().expect("bash starts");
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Outcome {
            code: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    pub fn read(&self, below: &str) -> String {
        let path = self.root().join(below);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    pub fn write(&self, below: &str, text: &str) {
        std::fs::write(self.root().join(below), text).unwrap();
    }
}

pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The frames that were printed, a line each.
pub fn frames(text: &str) -> Vec<Value> {
    let frame = |line: &str| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    text.lines().map(frame).collect()
}

pub fn types(frames: &[Value]) -> Vec<&str> {
    frames.iter().map(|frame| frame["type"].as_str().unwrap()).collect()
}

/// The whole text of the deltas.
pub fn deltas(frames: &[Value]) -> String {
    let deltas = frames.iter().filter(|frame| frame["type"] == "delta");
    deltas.map(|frame| frame["text"].as_str().unwrap()).collect()
}
