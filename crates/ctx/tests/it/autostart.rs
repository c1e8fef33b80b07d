//! A daemon that is just there: started by the first command, in the background, by systemd; and stopped.

use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use testkit::{Outcome, Place, Pty, finish, until};

use crate::support::{SLOW, place};

/// A place in which commands start a daemon; whatever happens, it does not outlive the test.
struct Auto(Place);

impl Auto {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.0.command(args);
        // A port of the machine is not ours to take.
        command.env("CTX_AUTOSTART", "true").env("CTX_SERVE_LISTEN", "127.0.0.1:0").stdin(Stdio::null());
        command
    }

    fn ctx(&self, args: &[&str]) -> Outcome {
        finish(&mut self.command(args))
    }

    /// Ends the daemon with SIGKILL.
    fn kill(&self) {
        let status: serde_json::Value = serde_json::from_str(&self.ctx(&["status", "--json"]).ok()).unwrap();
        let pid = i32::try_from(status["pid"].as_i64().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
    }
}

impl Drop for Auto {
    fn drop(&mut self) {
        self.ctx(&["stop"]);
    }
}

#[test]
fn the_first_command_starts_the_daemon_and_says_so_in_one_line() {
    let auto = Auto(place());
    let first = auto.ctx(&["send", "hello"]);
    assert_eq!((first.code, first.stdout.as_str()), (0, "hello\n"), "{}", first.stderr);
    assert_eq!(first.stderr.lines().count(), 1, "{}", first.stderr);
    assert!(first.stderr.starts_with("started the daemon (pid "), "{}", first.stderr);
    let second = auto.ctx(&["send", "again"]);
    assert_eq!((second.stdout.as_str(), second.stderr.as_str()), ("again\n", ""));
    let log = std::fs::read_to_string(auto.0.root().join(".state/daemon.log")).unwrap();
    assert!(log.contains("is up"), "{log}");
    assert!(auto.ctx(&["stop"]).stderr.contains("stopped the daemon"));
    assert!(auto.ctx(&["stop"]).stderr.contains("no daemon is running"));
    // What only reads needs none, and `status` tells the truth.
    assert!(auto.ctx(&["history"]).ok().contains("again"));
    auto.ctx(&["status"]).fails(69);
}

#[test]
fn a_daemon_that_a_script_has_started_does_not_keep_its_lock() {
    let auto = Auto(place());
    let lock = auto.0.path("lock");
    // The shell becomes the command, whose descriptors close with it; only what it has started can hold the lock then.
    let with_lock = format!("exec 9>'{}' && flock -n 9 && exec \"$@\"", lock.display());
    let mut script = Command::new("sh");
    script.args(["-c", &with_lock, "sh"]).arg(env!("CARGO_BIN_EXE_ctx")).args(["send", "hello"]);
    auto.0.set_environment(&mut script);
    script.env("CTX_AUTOSTART", "true").env("CTX_SERVE_LISTEN", "127.0.0.1:0").stdin(Stdio::null());
    assert_eq!(finish(&mut script).ok(), "hello\n");
    auto.ctx(&["status"]).ok();
    finish(Command::new("flock").arg("-n").arg(&lock).arg("true")).ok();
}

#[test]
fn a_chat_starts_a_daemon_that_was_killed_and_sends_what_was_typed_meanwhile() {
    let auto = Auto(place());
    let environment = [("CTX_AUTOSTART", "true"), ("CTX_SERVE_LISTEN", "127.0.0.1:0")];
    let mut pty = Pty::ctx_with(&auto.0, &["chat"], &environment);
    pty.wait_for("> ");
    auto.kill();
    pty.type_keys("still there\r");
    pty.wait_for("[started the daemon (pid ");
    pty.wait_for("[the daemon is back]");
    until("the message", || (auto.ctx(&["latest"]).stdout == "still there\n").then_some(()));
    // Who stops it has a reason to.
    auto.ctx(&["stop"]).ok();
    pty.wait_for("[the daemon was stopped; waiting for it");
    pty.type_keys("too late\r");
    pty.wait_for("sent when the daemon is back");
    pty.type_keys("\x04");
    pty.wait_for("[not sent: too late]");
    assert_eq!(pty.wait(), 0);
    assert!(auto.ctx(&["stop"]).stderr.contains("no daemon is running"));
}

#[test]
fn a_send_starts_a_daemon_that_was_killed_and_says_what_became_of_the_run() {
    let auto = Auto(place());
    let environment = [("CTX_AUTOSTART", "true"), ("CTX_SERVE_LISTEN", "127.0.0.1:0")];
    let mut pty = Pty::ctx_with(&auto.0, &["send", "--model", "debug:script", SLOW], &environment);
    pty.wait_for("begun");
    auto.kill();
    pty.wait_for("started the daemon (pid ");
    pty.wait_for("the daemon is back");
    pty.wait_for("the daemon stopped during this run");
    assert_eq!(pty.wait(), 1);
    assert!(auto.ctx(&["ls"]).stdout.contains("failed: "), "and it needs its operator");
}

#[test]
fn many_first_commands_start_one_daemon() {
    let auto = Auto(place());
    let start = |n: usize| {
        let name = format!("s{n}");
        let mut command = auto.command(&["send", "--detach", "--session", &name, "hello"]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = (0..8).map(start).collect();
    let ended: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let said: Vec<_> = ended.iter().map(|one| String::from_utf8_lossy(&one.stderr).into_owned()).collect();
    assert!(ended.iter().all(|one| one.status.success()), "{said:?}");
    assert_eq!(said.iter().filter(|said| said.contains("started the daemon")).count(), 1, "{said:?}");
}

#[test]
fn a_command_waits_for_a_daemon_that_is_starting() {
    let auto = Auto(place());
    for _ in 0..3 {
        // As in a guide that is pasted: the daemon in the background, the next command at once.
        let mut daemon = auto.command(&["serve"]);
        let mut daemon = daemon.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        assert_eq!(auto.ctx(&["send", "hello"]).ok(), "hello\n");
        auto.ctx(&["stop"]).ok();
        // On a busy machine the command may have been first, and this one is about to take the root.
        daemon.kill().unwrap();
        daemon.wait().unwrap();
    }
}

#[test]
fn it_is_off_by_the_config_file_and_by_the_environment() {
    let place = place();
    let said = place.ctx(&["send", "hello"]).fails(69);
    assert!(said.contains("ctx serve --detach"), "{said}");
    let config = place.home().join(".config/ctx");
    std::fs::create_dir_all(&config).unwrap();
    let ask = |text: &str| {
        std::fs::write(config.join("config.toml"), text).unwrap();
        finish(place.command(&["send", "hello"]).env_remove("CTX_AUTOSTART").stdin(Stdio::null()))
    };
    assert!(ask("autostart = false\n").fails(69).contains("no daemon is running"));
    assert!(ask("autostart = 1\n").fails(2).contains("`autostart` must be true or false, not integer"));
    assert!(!place.root().exists(), "nothing was made");
}

#[test]
fn a_daemon_in_the_background_says_that_it_is_up_or_why_it_is_not() {
    let auto = Auto(place());
    let detach = auto.ctx(&["serve", "--detach"]);
    assert!(detach.stderr.starts_with("the daemon is up (pid "), "{}", detach.stderr);
    auto.ctx(&["status"]).ok();
    let second = auto.ctx(&["serve", "--detach"]).fails(69);
    assert!(second.contains("another daemon (pid "), "{second}");
    auto.ctx(&["stop"]).ok();
    let wrong = auto.ctx(&["serve", "--detach", "--workspace", "/nowhere"]).fails(1);
    assert!(wrong.contains("/nowhere"), "{wrong}");
}

#[test]
fn the_unit_of_systemd_is_written_and_enabled() {
    use std::os::unix::fs::PermissionsExt;
    let place = place();
    let bin = place.path("bin");
    std::fs::create_dir(&bin).unwrap();
    let systemctl = bin.join("systemctl");
    std::fs::write(&systemctl, "#!/bin/sh\necho \"$@\" >> \"$HOME/asked\"\n").unwrap();
    std::fs::set_permissions(&systemctl, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let install = place
        .command(&["serve", "--install", "--log-level", "debug", "--no-cage"])
        .env("PATH", path)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(install.stderr).unwrap();
    assert!(install.status.success() && said.contains("loginctl enable-linger"), "{said}");
    let unit = std::fs::read_to_string(place.home().join(".config/systemd/user/ctx.service")).unwrap();
    assert!(unit.contains("KillMode=process\nDelegate=yes\n"), "{unit}");
    let started = format!("serve --root {} --log-level debug --no-cage\n", place.root().display());
    assert!(unit.contains(&started), "{unit}");
    let asked = std::fs::read_to_string(place.home().join("asked")).unwrap();
    assert_eq!(asked, "--user daemon-reload\n--user enable ctx.service\n");
}

#[test]
fn a_stopped_root_can_be_used_at_once() {
    let auto = Auto(place());
    auto.ctx(&["send", "hello"]).ok();
    auto.ctx(&["stop"]).ok();
    // The lock of the root went with the process.
    auto.ctx(&["reindex", "--quiet"]).ok();
    until("the session to be listed", || auto.ctx(&["ls"]).ok().contains("work/default").then_some(()));
}
