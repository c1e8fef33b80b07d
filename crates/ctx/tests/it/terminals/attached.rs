//! Terminals as people use them: attached from a terminal of their own.

use ctx_terminal::{Model, Size};
use testkit::{Pty, until};

use super::Terms;

/// `Ctrl-\`.
const PREFIX: &str = "\x1c";

#[test]
fn a_person_attaches_detaches_and_comes_back() {
    let terms = Terms::start();
    let mut first = Pty::ctx(&terms, &["term", "run", "--name", "shell", "--", "sh"]);
    first.wait_for("Ctrl-\\ d detaches");
    first.type_keys("echo first $((1 + 1))\r");
    first.wait_for("first 2");
    assert_eq!(terms.listed("shell")["state"], "active");
    first.type_keys(&format!("{PREFIX}d"));
    assert_eq!(first.wait(), 0);
    assert!(first.shown().contains("ctx term attach shell"), "{}", first.shown());
    // The terminal is given back without a trace of what the program set.
    assert!(first.shown().contains("\x1b[?2004l\x1b[=0;1u\x1b[0 q\x1b[?25h"), "{}", first.shown());
    until("detached", || (terms.listed("shell")["state"] == "detached").then_some(()));
    let mut second = Pty::ctx(&terms, &["term", "attach", "shell"]);
    second.wait_for("first 2");
    second.type_keys("exit 5\r");
    // A program's code is that of the attached command.
    assert_eq!(second.wait(), 5);
}

#[test]
fn the_line_with_the_keys_goes_with_the_program_and_with_the_person() {
    let terms = Terms::start();
    let keys = "Ctrl-\\ d detaches";
    let mut ended = Pty::ctx(&terms, &["term", "run", "--name", "short", "--", "sh", "-c", "read line"]);
    ended.wait_for(keys);
    terms.ctx(&["term", "send", "short", "--enter"]).ok();
    assert_eq!(ended.wait(), 0);
    let mut left = Pty::ctx(&terms, &["term", "run", "--", "cat"]);
    left.wait_for(keys);
    left.type_keys(&format!("{PREFIX}d"));
    assert_eq!(left.wait(), 0);
    for person in [ended, left] {
        let mut screen = Model::new(Size::new(80, 24));
        screen.feed(person.shown().as_bytes());
        let all = String::from_utf8(screen.repaint(usize::MAX)).unwrap();
        assert!(!all.contains(keys), "{all}");
    }
}

#[test]
fn a_watcher_sees_and_does_not_type_and_who_types_has_the_keyboard() {
    let terms = Terms::start();
    let mut writer = Pty::ctx(&terms, &["term", "run", "--name", "both", "--", "cat"]);
    writer.wait_for("Ctrl-\\ d detaches");
    let mut watcher = Pty::ctx(&terms, &["term", "watch", "both"]);
    watcher.wait_for("watching");
    assert_eq!(terms.listed("both")["attached"], 2);
    watcher.type_keys("from the watcher\r");
    writer.type_keys("from the writer\r");
    watcher.wait_for("from the writer");
    let mut last = Pty::ctx(&terms, &["term", "attach", "both"]);
    last.wait_for("from the writer");
    last.type_keys("from the last\r");
    writer.wait_for("from the last");
    // What a terminal may say by itself takes nothing; a key does.
    writer.type_keys("\x1b[?1;2c");
    last.type_keys("still the last\r");
    writer.wait_for("still the last");
    // Both may be read as one.
    until("the first to have the keyboard", || {
        writer.type_keys("from the first\r");
        terms.screen("both").contains("from the first").then_some(())
    });
    last.type_keys(&format!("{PREFIX}d"));
    assert_eq!(last.wait(), 0);
    writer.type_keys("mine again\r");
    let screen = terms.shows("both", "mine again");
    assert!(!screen.contains("watcher") && !screen.contains("1;2c"), "{screen}");
    watcher.type_keys("q");
    assert_eq!(watcher.wait(), 0);
}

#[test]
fn a_paste_takes_the_keyboard_whole() {
    let terms = Terms::start();
    let mut first = Pty::ctx(&terms, &["term", "run", "--name", "paste", "--", "cat", "-v"]);
    first.wait_for("Ctrl-\\ d detaches");
    let mut second = Pty::ctx(&terms, &["term", "attach", "paste"]);
    second.wait_for("Ctrl-\\ d detaches");
    second.type_keys("mine\r");
    terms.shows("paste", "mine\nmine");
    // More than is read at once.
    let lines: Vec<String> = (1..=400).map(|n| format!("pasted line {n}\r")).collect();
    first.type_keys(&format!("\x1b[200~{}\x1b[201~", lines.concat()));
    first.wait_for("pasted line 400");
    let shown = String::from_utf8(terms.transcript("paste")).unwrap();
    assert!(shown.contains("^[[200~pasted line 1\r\n"), "{shown}");
    // A key that begins with an escape takes it too.
    // A terminal that nobody reads takes no keys.
    second.wait_for("pasted line 400");
    second.type_keys("\x1b[A");
    // What the program says of the lines before may scroll its echo away.
    terms.ctx(&["term", "send", "paste", "--enter"]).ok();
    terms.shows("paste", "^[[A");
}

#[test]
fn the_prefix_works_where_the_program_has_asked_for_other_keys_and_these_come_and_go_with_it() {
    let terms = Terms::start();
    let program = "printf 'here\\033[>4;2m\\033[>7u\\033[?2031h'; exec cat";
    let mut first = Pty::ctx(&terms, &["term", "run", "--name", "vim", "--", "sh", "-c", program]);
    first.wait_for("here");
    // As Codex's terminal sends it, with Caps Lock on: the key, its release, `d`.
    first.type_keys("\x1b[92;69:1u\x1b[92;69:3u\x1b[100;65u");
    assert_eq!(first.wait(), 0);
    first.wait_for("\x1b[?2031l\x1b[>4m");
    let mut second = Pty::ctx(&terms, &["term", "attach", "vim"]);
    second.wait_for("\x1b[?2031h\x1b[>4;2m");
    second.wait_for("\x1b[=7;1u");
    // As xterm sends it.
    second.type_keys("\x1b[27;5;92~d");
    assert_eq!(second.wait(), 0);
    assert!(!terms.screen("vim").contains('['), "{}", terms.screen("vim"));
}

/// What a person sees in a window of 80 by 24.
fn seen(person: &Pty) -> String {
    let mut screen = Model::new(Size::new(80, 24));
    screen.feed(person.shown().as_bytes());
    screen.screen().text
}

#[test]
fn a_window_that_is_too_small_shows_what_fits_and_says_so() {
    let terms = Terms::start();
    let long = |word: &str| word.repeat(100);
    let program = format!("echo {}; echo below; exec cat", long("a"));
    let size = ["--cols", "120", "--rows", "30"];
    let run = [&["term", "run", "--detach", "--name", "wide"], &size[..], &["--", "sh", "-c", &program]];
    terms.ctx(&run.concat()).ok();
    terms.shows("wide", "below");
    let mut watcher = Pty::ctx(&terms, &["term", "watch", "wide"]);
    watcher.wait_for("cut: 120x30 in 80x24; make the window larger; q leaves");
    terms.ctx(&["term", "send", "wide", &long("b"), "--enter"]).ok();
    // Once typed, and once by the program.
    watcher.wait_for("bbb");
    until("the line of the program", || {
        watcher.wait_for("\x1b[5;1H");
        let rows: Vec<String> = seen(&watcher).lines().take(4).map(str::to_owned).collect();
        let wanted = [&long("a")[..80], "below", &long("b")[..80], &long("b")[..80]];
        (rows == wanted).then_some(())
    });
    // Somebody with a window of that size takes the keyboard: it fits.
    let mut person = Pty::ctx(&terms, &["term", "attach", "wide"]);
    person.wait_for("Ctrl-\\ d detaches");
    person.type_keys(&format!("{}\r", long("c")));
    until("a line that wraps", || {
        watcher.wait_for("cc");
        seen(&watcher).contains(&format!("{}\n{}", &long("c")[..80], &long("c")[..20])).then_some(())
    });
}

#[test]
fn questions_of_the_program_are_answered_once() {
    let terms = Terms::start();
    // Asks where the cursor is, and shows the answers that come within a moment of each other.
    let ask = "read go; stty raw -echo; printf '\\033[6n'; head -c 6 | od -c; stty sane; echo asked; cat";
    terms.run("alone", &["sh", "-c", ask]);
    terms.ctx(&["term", "send", "alone", "--enter"]).ok();
    terms.shows("alone", "asked");
    assert!(terms.screen("alone").contains("[   2   ;   1   R"), "{}", terms.screen("alone"));
    // With a client it is the client's terminal that answers: here, the test.
    let mut person = Pty::ctx(&terms, &["term", "run", "--name", "with", "--", "sh", "-c", ask]);
    person.wait_for("Ctrl-\\ d detaches");
    person.type_keys("\r");
    person.wait_for("\x1b[6n");
    person.type_keys("\x1b[9;9R");
    person.wait_for("asked");
    assert!(terms.screen("with").contains("[   9   ;   9   R"), "{}", terms.screen("with"));
}

#[test]
fn a_terminal_is_not_shown_in_one_that_it_shows() {
    let terms = Terms::start();
    let ctx = env!("CARGO_BIN_EXE_ctx");
    let mut person = Pty::ctx(&terms, &["term", "run", "--name", "outer", "--", "sh"]);
    person.wait_for("Ctrl-\\ d detaches");
    person.type_keys(&format!("{ctx} term run --name inner -- sh\r"));
    until("the inner one", || {
        (terms.listed("outer")["attached"] == 1 && terms.ctx(&["term", "ls"]).ok().contains("inner"))
            .then_some(())
    });
    person.wait_for("Ctrl-\\ d detaches");
    for name in ["outer", "inner"] {
        person.type_keys(&format!("{ctx} term attach {name}\r"));
        person.wait_for(&format!("the terminal `{name}` shows this one"));
    }
    // Nobody sees this one there.
    person.type_keys(&format!("{ctx} term run --detach --name beside -- sh\r"));
    until("the one beside", || terms.ctx(&["term", "ls"]).ok().contains("beside").then_some(()));
    terms.ctx(&["term", "send", "beside", "echo in $CTX_TERMINAL.", "--enter"]).ok();
    terms.shows("beside", &format!("in {}.", terms.listed("beside")["id"].as_str().unwrap()));
}

/// A server of tmux, which outlives its clients too.
struct Tmux(std::path::PathBuf);

impl Drop for Tmux {
    fn drop(&mut self) {
        let mut command = std::process::Command::new("tmux");
        let _ = command.arg("-S").arg(&self.0).arg("kill-server").output();
    }
}

#[test]
fn tmux_works_inside_and_outside() {
    let terms = Terms::start();
    let server = Tmux(terms.path("tmux.sock"));
    let socket = server.0.to_str().unwrap();
    terms.run("inside", &["tmux", "-S", socket, "-f", "/dev/null", "new-session", "-s", "in"]);
    terms.shows("inside", "[in]");
    terms.ctx(&["term", "send", "inside", "echo in $((2 + 3))", "--enter"]).ok();
    terms.shows("inside", "in 5");
    // Some program had the alternate screen here: tmux puts the cursor back there whenever that is left.
    let editor = "printf '\\033[H\\033[?1049h\\033[?1049l'";
    terms.ctx(&["term", "send", "inside", editor, "--enter"]).ok();
    // Outside: a window of that same tmux has a terminal of ctx attached.
    terms.run("outer", &["sh"]);
    let ctx = env!("CARGO_BIN_EXE_ctx");
    let attach = format!("CTX_AUTOSTART=false CTX_ROOT={} {ctx} term attach outer", terms.root().display());
    let attach = format!("{attach}; echo ba''ck");
    terms.ctx(&["term", "send", "inside", &attach, "--enter"]).ok();
    terms.shows("inside", "Ctrl-\\ d detaches");
    terms.ctx(&["term", "send", "inside", "echo out $((3 + 4))", "--enter"]).ok();
    terms.shows("outer", "out 7");
    terms.shows("inside", "out 7");
    // The size is that of the pane: one row is tmux's own.
    assert_eq!(terms.listed("outer")["rows"], 23);
    // When the program ends, the prompt is below what it showed.
    terms.ctx(&["term", "send", "inside", "exit", "--enter"]).ok();
    terms.ended("outer");
    // What is typed before the client has given the terminal back is the client's.
    terms.shows("inside", "back");
    terms.ctx(&["term", "send", "inside", "echo in $((4 + 5))", "--enter"]).ok();
    let screen = terms.shows("inside", "in 9");
    let shown = screen.split_once("out 7").unwrap_or_else(|| panic!("{screen}"));
    assert!(shown.1.contains("in 9"), "{screen}");
}
