//! The first five minutes of a newcomer, in tmux: what a person sees, on a real screen.
//!
//! tmux interprets the escape sequences, so these tests compare what stands on the screen, not what was written to it.

use std::cell::RefCell;
use std::process::{Command, Stdio};

use serde_json::json;
use testkit::{Place, finish, until};

use crate::recording::Recording;
use crate::support::place;

/// A tmux server of its own, with a fresh home and no daemon. It and the daemon go with the value.
struct Tmux {
    place: Place,
    recording: RefCell<Recording>,
}

impl Tmux {
    /// Runs a command in a first window of this size, from a shell with job control.
    fn start(columns: u16, words: &str) -> Tmux {
        let tmux = Tmux { place: place(), recording: RefCell::new(Recording::new()) };
        let columns = columns.to_string();
        tmux.run(&["-f", "/dev/null", "new-session", "-d", "-x", &columns, "-y", "40", "sh -i"]);
        tmux.see(0, "$ ");
        tmux.say(0, &format!("ctx {words}"));
        tmux
    }

    /// A second window, split off beside the first or below it.
    fn split(&self, words: &str) {
        let command = self.line(words);
        self.run(&["split-window", "-v", &command]);
    }

    /// `ctx` with these words, in a shell that stays when it ends.
    fn line(&self, words: &str) -> String {
        format!("ctx {words}; exec sh")
    }

    fn command(&self) -> Command {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(self.place.path("tmux")).stdin(Stdio::null());
        command.env_clear().current_dir(self.place.workspace());
        let bin = std::path::Path::new(env!("CARGO_BIN_EXE_ctx")).parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).env("TERM", "xterm-256color");
        command.env("LC_ALL", "C.UTF-8").env("PS1", "$ ").env("SHELL", "/bin/sh");
        command.env("HOME", self.place.home()).env("CTX_ROOT", self.place.root());
        // A port of the machine is not ours to take.
        command.env("CTX_SERVE_LISTEN", "127.0.0.1:0");
        command
    }

    fn run(&self, args: &[&str]) -> String {
        finish(self.command().args(args)).ok()
    }

    /// Types a line in a window.
    fn say(&self, window: usize, text: &str) {
        let target = format!(":0.{window}");
        self.run(&["send-keys", "-t", &target, "-l", text]);
        self.run(&["send-keys", "-t", &target, "Enter"]);
    }

    /// Answers a question that is on the screen, as somebody who has read it.
    fn answer(&self, window: usize, text: &str) {
        std::thread::sleep(testkit::READING);
        self.say(window, text);
    }

    fn key(&self, window: usize, key: &str) {
        self.run(&["send-keys", "-t", &format!(":0.{window}"), key]);
    }

    /// What stands in a window, with what has scrolled out of it.
    fn screen(&self, window: usize) -> String {
        self.run(&["capture-pane", "-p", "-J", "-S", "-", "-t", &format!(":0.{window}")])
    }

    /// Waits until a text stands in a window.
    #[track_caller]
    fn see(&self, window: usize, text: &str) {
        let begun = std::time::Instant::now();
        while !self.screen(window).contains(text) {
            assert!(begun.elapsed() < testkit::DEADLINE, "no {text:?} on\n{}", self.screen(window));
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        if window == 0 {
            self.recording.borrow_mut().add(|| self.run(&["capture-pane", "-p", "-e", "-t", ":0.0"]));
        }
    }

    fn ctx(&self, args: &[&str]) -> testkit::Outcome {
        self.place.ctx(args)
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.ctx(&["stop"]);
        let _ = self.command().arg("kill-server").output();
    }
}

fn script(steps: serde_json::Value) -> String {
    json!({ "script": steps }).to_string()
}

#[test]
fn the_first_five_minutes() {
    let tmux = Tmux::start(100, "chat");
    // Nothing was set up: the daemon starts by itself.
    tmux.see(0, "started the daemon");
    tmux.see(0, "work/default> ");
    tmux.say(0, "hello, coder");
    tmux.see(0, "work/default> hello, coder\nhello, coder\n");
    // An approval.
    std::fs::write(tmux.place.root().join("agent/coder.d/policy"), "ask fs.list\n").unwrap();
    tmux.say(0, "/model debug:script");
    tmux.see(0, "from the next message on");
    let list = json!({ "tool": { "name": "fs.list", "input": { "path": "/work" } } });
    tmux.say(0, &script(json!([list, { "text": "that is all there is" }])));
    tmux.see(0, "[approval needed: fs.list /work? y yes, n no");
    tmux.answer(0, "y");
    tmux.see(0, "[answered: allow]");
    tmux.see(0, "\nthat is all there is\n");
    // A cancel.
    tmux.ctx(&["wait", "work"]).ok();
    tmux.say(0, &script(json!([{ "text": "this takes long" }, { "sleep_ms": 600_000 }])));
    tmux.see(0, "\nthis takes long\n");
    tmux.key(0, "Escape");
    tmux.see(0, "[cancelled]");
    // A pause, a fork, a rollback, a search.
    tmux.say(0, &script(json!([{ "text": "before" }, { "sleep_ms": 600_000 }])));
    tmux.see(0, "\nbefore\n");
    tmux.say(0, "/pause have a look");
    tmux.see(0, "[paused: have a look. Type your answer");
    tmux.say(0, "/fork try");
    tmux.see(0, "work/try was forked from work/default");
    tmux.say(0, "/rollback");
    tmux.see(0, "[rolled back: later messages were removed");
    tmux.say(0, "/search hello");
    tmux.see(0, "work/default  /work  01");
    // A second window shows the same.
    tmux.split("chat");
    tmux.see(1, "> hello, coder\nhello, coder\n");
    tmux.ctx(&["wait", "work"]).ok();
    tmux.say(1, "/model debug:echo");
    tmux.see(1, "from the next message on");
    tmux.say(1, "said below");
    tmux.see(1, "work/default> said below\nsaid below\n");
    tmux.see(0, "> said below\nsaid below\n");
    // A restart of the daemon.
    tmux.ctx(&["stop"]).ok();
    tmux.see(0, "[the daemon was stopped; waiting for it");
    tmux.ctx(&["serve", "--detach", "--listen", "127.0.0.1:0"]).ok();
    tmux.see(0, "[the daemon is back]");
    tmux.see(1, "[the daemon is back]");
    tmux.say(0, "still here");
    tmux.see(0, "work/default> still here\nstill here\n");
    tmux.key(0, "C-d");
    tmux.see(0, "[left; the session continues, `ctx chat work/default` comes back]\n$");
    tmux.recording.borrow().write(100, 40, "[answered: allow]");
}

#[test]
fn a_resized_or_suspended_terminal_loses_no_word_and_breaks_none() {
    // Forty columns, and characters that take two of them.
    let tmux = Tmux::start(40, "chat");
    tmux.see(0, "work/default> ");
    // The run stops in the middle, until it is allowed to go on.
    std::fs::write(tmux.place.root().join("agent/coder.d/policy"), "ask fs.list\n").unwrap();
    tmux.say(0, "/model debug:script");
    tmux.see(0, "from the next");
    let words: Vec<String> = (0..60).map(|n| format!("word{n}日本語")).collect();
    let pieces: Vec<_> = words.iter().map(|word| json!({ "text": format!("{word} ") })).collect();
    let (first, second) = pieces.split_at(30);
    let mut steps = first.to_vec();
    steps.push(json!({ "tool": { "name": "fs.list", "input": { "path": "/work" } } }));
    steps.extend_from_slice(second);
    tmux.say(0, &script(json!(steps)));
    tmux.see(0, "[approval needed: fs.list /work?");
    tmux.run(&["resize-window", "-x", "90"]);
    tmux.say(0, "typed meanwhile");
    tmux.see(0, "[waiting for the end of the run: typed meanwhile; ");
    tmux.answer(0, "y");
    tmux.see(0, "\n> typed meanwhile");
    let screen = tmux.screen(0);
    let answer = &screen[screen.rfind("}]}").unwrap()..];
    let mut rest = answer;
    for word in &words {
        let at = rest.find(word.as_str());
        let at = at.unwrap_or_else(|| panic!("{word} is lost or broken in\n{screen}"));
        rest = &rest[at + word.len()..];
    }
    // Suspended and taken up again.
    tmux.ctx(&["wait", "work"]);
    tmux.key(0, "C-z");
    tmux.see(0, "Stopped");
    tmux.say(0, "fg");
    tmux.see(0, "ctx chat\nwork/default> ");
    tmux.say(0, "back again");
    until("the message", || tmux.ctx(&["history"]).ok().contains("back again").then_some(()));
}

#[test]
fn in_another_width_a_draft_of_several_rows_stands_there_once_and_what_is_above_stays() {
    let tmux = Tmux::start(40, "chat");
    tmux.see(0, "work/default> ");
    tmux.say(0, "line one to keep");
    let kept = "work/default> line one to keep\nline one to keep\n";
    tmux.see(0, kept);
    let mut draft = "a draft of more than one row, which goes on for sixty-five letters".to_owned();
    tmux.run(&["send-keys", "-t", ":0.0", "-l", &draft]);
    tmux.see(0, &draft);
    let written = tmux.place.path("written");
    let count = || std::fs::metadata(&written).map_or(0, |file| file.len());
    tmux.run(&["pipe-pane", "-t", ":0.0", &format!("cat > {}", written.display())]);
    for columns in ["25", "70", "33", "100"] {
        let before = count();
        tmux.run(&["resize-window", "-x", columns]);
        until("the editor to have drawn its line anew", || (count() > before).then_some(()));
        tmux.run(&["send-keys", "-t", ":0.0", "-l", "x"]);
        draft.push('x');
        tmux.see(0, &format!("{kept}work/default> {draft}"));
        let screen = tmux.screen(0);
        assert_eq!(screen.matches("a draft").count(), 1, "{columns}:\n{screen}");
    }
}

#[test]
fn a_model_that_pauses_breaks_no_row_and_two_terminals_show_the_same() {
    let tmux = Tmux::start(60, "chat");
    tmux.see(0, "work/default> ");
    tmux.split("chat work/default");
    tmux.see(1, "work/default> ");
    tmux.say(0, "/model debug:script");
    tmux.see(0, "from the next");
    let words: Vec<String> = (0..12).map(|n| format!("word{n}")).collect();
    let mut steps = vec![json!({"text": "un"}), json!({"sleep_ms": 400}), json!({"text": "believ"})];
    steps.extend([json!({"sleep_ms": 400}), json!({"text": "able,\n"})]);
    for word in &words {
        steps.extend([json!({"text": format!(" {word}")}), json!({"sleep_ms": 250})]);
    }
    steps.push(json!({"text": " the\u{20}end."}));
    tmux.say(0, &script(json!(steps)));
    // What has come is shown before the row is full.
    tmux.see(1, "\nunbel");
    let wanted =
        "unbelievable,\n word0 word1 word2 word3 word4 word5 word6 word7 word8\nword9 word10 word11 the end.";
    for window in [0, 1] {
        tmux.see(window, "word11 the end.");
        let screen = tmux.screen(window);
        let rows: Vec<&str> = screen.lines().map(str::trim_end).collect();
        assert!(rows.join("\n").contains(&format!("\n{wanted}\n")), "{window} has broken rows:\n{screen}");
    }
}
