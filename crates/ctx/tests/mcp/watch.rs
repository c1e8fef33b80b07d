//! `ctx watch` on a terminal, in tmux: what a person sees of real shells and sessions, and the terminal afterwards.

use std::process::{Command, Stdio};

use testkit::{DEADLINE, TestDaemon, finish, until};

use crate::support::{CTX, Host};

/// A tmux server of its own with a shell in it, which goes with the value.
struct Tmux<'a> {
    daemon: &'a TestDaemon,
}

impl Tmux<'_> {
    fn start(daemon: &TestDaemon) -> Tmux<'_> {
        let tmux = Tmux { daemon };
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "24", "sh -i"]);
        tmux.run(&["set", "-g", "set-clipboard", "on"]);
        tmux.see("$");
        tmux
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.daemon.path("tmux")).stdin(Stdio::null());
        command.env_clear().current_dir(self.daemon.workspace());
        let bin = std::path::Path::new(CTX).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("TERM", "xterm-256color").env("PS1", "$ ").env("SHELL", "/bin/sh");
        command.env("LC_ALL", "C.UTF-8").env("HOME", self.daemon.home()).env("CTX_ROOT", self.daemon.root());
        command
    }

    fn run(&self, args: &[&str]) -> String {
        finish(self.command().args(args)).ok()
    }

    fn type_keys(&self, keys: &str) {
        self.run(&["send-keys", "-l", keys]);
    }

    fn key(&self, key: &str) {
        self.run(&["send-keys", key]);
    }

    fn screen(&self) -> String {
        self.run(&["capture-pane", "-p"])
    }

    /// Waits until a text stands on the screen; the screen.
    #[track_caller]
    fn see(&self, text: &str) -> String {
        let begun = std::time::Instant::now();
        loop {
            let screen = self.screen();
            if screen.contains(text) {
                // To be looked at, with `--nocapture`.
                println!("--- {text}\n{screen}");
                return screen;
            }
            assert!(begun.elapsed() < DEADLINE, "no {text:?} on\n{screen}");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// The terminal is as it was: no other screen, a cursor, lines and echo.
    fn is_given_back(&self, mark: &str) {
        // What is typed before the shell has the terminal again would be the program's.
        until("the shell's screen", || {
            (self.run(&["display", "-p", "#{alternate_on} #{cursor_flag}"]) == "0 1\n").then_some(())
        });
        self.type_keys(&format!("stty -a; echo {mark}"));
        self.key("Enter");
        let screen = self.see(&format!("\n{mark}\n"));
        assert!(screen.contains(" icanon ") && screen.contains(" echo "), "{screen}");
    }
}

impl Drop for Tmux<'_> {
    fn drop(&mut self) {
        let _ = self.command().arg("kill-server").output();
    }
}

#[test]
fn shells_and_sessions_are_watched_live_and_the_terminal_is_given_back() {
    let daemon = TestDaemon::start(CTX);
    let mut host = Host::start(&daemon);
    let shell = host.create();
    host.exec(&shell, "seq -f 'number %g' 100");
    host.exec(&shell, "echo 漢字; ls /nowhere");
    host.exec(&shell, "echo quiet");
    let tmux = Tmux::start(&daemon);
    tmux.type_keys("ctx watch");
    tmux.key("Enter");

    // The list, the transcript with its long output folded, and what happens from now on.
    let screen = tmux.see("$ echo quiet");
    assert!(screen.contains("1_local") && screen.contains("… 90 lines, Enter opens them"), "{screen}");
    host.exec(&shell, "echo live $((40 + 2))");
    tmux.see("live 42");
    host.exec_soon(&shell, "echo begun; sleep 600");
    tmux.see("running");
    daemon.ctx(&["send", "hello, watcher"]).ok();
    tmux.see("coder/default");

    // To the failed command, its output opened, and copied.
    tmux.key("e");
    let screen = tmux.see("▌$ echo 漢字; ls /nowhere");
    assert!(screen.contains("▌漢字") && screen.contains("▌exit code 2"), "{screen}");
    tmux.key("Enter");
    tmux.see("lines 1 to 4 of 4");
    tmux.key("y");
    tmux.see("copied ");
    assert!(tmux.run(&["show-buffer"]).starts_with("漢字\nls: "), "{}", tmux.run(&["show-buffer"]));
    tmux.key("Escape");
    tmux.see("shells and sessions");

    // A search finds what is folded; in the open output it goes there.
    tmux.type_keys("/number 57");
    tmux.key("Enter");
    tmux.see("▌$ seq");
    tmux.key("Enter");
    tmux.see("lines 1 to 22 of 102");
    tmux.key("n");
    tmux.see("lines 58 to 79 of 102");
    tmux.key("Escape");
    tmux.key("Escape");

    // Another size: one side at a time, wide characters and all.
    tmux.run(&["resize-window", "-x", "40", "-y", "12"]);
    tmux.key("e");
    let screen = tmux.see("▌漢字");
    assert!(!screen.contains("shells and sessions"), "{screen}");
    tmux.key("Tab");
    tmux.see("shells and sessions: 2");
    tmux.run(&["resize-window", "-x", "100", "-y", "24"]);
    tmux.see("│");

    // A session's conversation, chosen by a filter.
    tmux.type_keys("fcoder");
    tmux.key("Enter");
    tmux.see("1 of 2 with `coder`");
    let screen = tmux.see("hello, watcher");
    assert!(screen.contains("user ") && screen.contains("assistant "), "{screen}");

    // Ctrl-C, a signal and Ctrl-Z give the terminal back.
    tmux.key("C-c");
    tmux.see("$ ctx watch\n$");
    tmux.is_given_back("after-ctrl-c");
    tmux.type_keys("clear; NO_COLOR=1 sh -c 'echo $$ >watch.pid; exec ctx watch'");
    tmux.key("Enter");
    tmux.see("│");
    tmux.key("e");
    let coloured = tmux.run(&["capture-pane", "-p", "-e"]);
    assert!(!coloured.contains("[31m") && !coloured.contains("[38;"), "{coloured}");
    tmux.key("C-z");
    tmux.see("Stopped");
    tmux.is_given_back("stopped");
    tmux.type_keys("fg");
    tmux.key("Enter");
    tmux.see("│");
    let pid = std::fs::read_to_string(daemon.workspace().join("watch.pid")).unwrap();
    finish(Command::new("kill").args(["-TERM", pid.trim()])).ok();
    tmux.see("exec ctx watch\"\n$");
    tmux.is_given_back("after-term");
}
