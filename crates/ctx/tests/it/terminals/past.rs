//! What a terminal has shown, shown again; and a person's terminal after it.

use ctx_terminal::{CursorKeys, Model, Size};
use rustix::process::Signal;
use testkit::{Pty, until};

use super::Terms;

/// What a program leaves behind that does not clean up.
const MODES: &str = r"\033[?1049h\033[?1003h\033[?25l\033[?1h";
/// DSR, DA, a colour, the clipboard, a capability, a mode.
const QUESTIONS: &str =
    r"as\033[6nke\033[cd\033]11;?\007 \033]52;c;?\007no\033P+q544e\033\\thi\033[?2026$png";

/// That a terminal which was shown this is as it was before.
#[track_caller]
fn is_given_back(shown: &str) {
    let mut screen = Model::new(Size::new(80, 24));
    screen.feed(shown.as_bytes());
    let seen = screen.screen();
    assert!(!seen.alternate && seen.cursor.visible, "{shown:?}");
    assert_eq!(screen.cursor_keys(), CursorKeys::Normal, "{shown:?}");
    assert!(shown.rfind("\x1b[?1003l") > shown.rfind("\x1b[?1003h"), "{shown:?}");
}

#[test]
fn a_replay_that_is_told_to_go_gives_the_terminal_back() {
    let terms = Terms::start();
    let count = "i=0; while [ $i -lt 100 ]; do i=$((i + 1)); echo $i; sleep 0.01; done";
    terms.run("count", &["sh", "-c", &format!("printf '{MODES}here'; {count}")]);
    terms.ended("count");
    // Every pause is a second long: it would go on for minutes.
    let slowly = ["term", "replay", "count", "--speed", "0.0001", "--pause-max", "1"];
    for tell in [|person: &mut Pty| person.type_keys("\x03"), |person: &mut Pty| person.signal(Signal::TERM)]
    {
        let mut person = Pty::ctx(&terms, &slowly);
        person.wait_for("here");
        tell(&mut person);
        assert_eq!(person.wait(), 1);
        assert!(!person.shown().contains("\n100\r"), "{}", person.shown());
        is_given_back(person.shown());
    }
}

#[test]
fn a_replay_asks_the_terminal_nothing() {
    let terms = Terms::start();
    terms.run("asks", &["printf", QUESTIONS]);
    terms.ended("asks");
    assert!(terms.transcript("asks").starts_with(b"as\x1b[6nke"));
    let mut person = Pty::ctx(&terms, &["term", "replay", "asks", "--speed", "0"]);
    assert_eq!(person.wait(), 0);
    assert!(person.shown().contains("asked nothing"), "{:?}", person.shown());
}

#[test]
fn what_ended_before_anyone_could_attach_asks_nothing_and_leaves_nothing() {
    let terms = Terms::start();
    until("a program that is faster than whoever attaches", || {
        let mut person = Pty::ctx(&terms, &["term", "run", "--", "printf", &format!("{MODES}{QUESTIONS}")]);
        assert_eq!(person.wait(), 0);
        is_given_back(person.shown());
        // Whoever attaches makes room for a fresh screen, unless the holder has no time for that any more.
        let is_attached = person.shown().contains("\n\n\n");
        assert!(is_attached || !person.shown().contains("\x1b[6n"), "{:?}", person.shown());
        (!is_attached && person.shown().contains("asked nothing")).then_some(())
    });
}

#[test]
fn a_watcher_without_a_keyboard_is_asked_nothing_and_gets_its_terminal_back() {
    let terms = Terms::start();
    let program = format!("printf '{MODES}here'; read go; printf '{QUESTIONS}'; exec cat");
    terms.run("inner", &["sh", "-c", &program]);
    terms.run("window", &["sh"]);
    let ctx = env!("CARGO_BIN_EXE_ctx");
    let watch = format!("CTX_AUTOSTART=false CTX_ROOT={} {ctx} term watch inner", terms.root().display());
    terms.ctx(&["term", "send", "window", &format!("{watch} </dev/null; echo ba''ck"), "--enter"]).ok();
    terms.shows("window", "watching; Ctrl-C leaves");
    terms.ctx(&["term", "send", "inner", "--enter"]).ok();
    terms.shows("window", "asked nothing");
    terms.ctx(&["term", "send", "window", "--key", "C-c"]).ok();
    terms.shows("window", "back");
    let shown = String::from_utf8(terms.transcript("window")).unwrap();
    is_given_back(&shown);
    assert!(!shown.contains("\x1b[6n"), "{shown:?}");
}
