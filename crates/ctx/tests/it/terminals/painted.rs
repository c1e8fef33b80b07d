//! Reattaching shows the same screen, cell by cell, as an emulator sees it that ctx has no part in.

use ctx_terminal::{FromHolder, Mode};

use super::{Terms, python};

/// What a client gets that attaches now, and the output up to that moment, paint the same.
#[track_caller]
fn same_screen(terms: &Terms, id: &str) {
    let mut holder = terms.holder(id, Mode::Watch, 0);
    let (offset, repaint) = holder
        .wait_for(|said| match said {
            FromHolder::Repaint { offset, bytes } => Some((offset, bytes)),
            _ => None,
        })
        .unwrap();
    let stream = terms.transcript(id);
    let until_then = &stream[..usize::try_from(offset).unwrap()];
    let (first, second) = (terms.path("stream"), terms.path("repaint"));
    std::fs::write(&first, until_then).unwrap();
    std::fs::write(&second, &repaint).unwrap();
    let mut compare = python("python");
    compare.args(["same_screen.py", "80", "24"]).arg(first).arg(second);
    let outcome = testkit::finish(&mut compare);
    assert_eq!(outcome.code, 0, "{id}:\n{}{}", outcome.stdout, outcome.stderr);
    assert_ne!(outcome.stdout, "0 lines\n");
}

/// Starts a program in a terminal that the emulator knows too.
fn run(terms: &Terms, name: &str, command: &[&str]) {
    terms.run(name, &[&["env", "TERM=screen-256color", "LANG=C.UTF-8", "LC_ALL=C.UTF-8"], command].concat());
}

#[test]
fn reattaching_to_an_editor_a_pager_a_monitor_and_a_shell_shows_the_same_screen() {
    let terms = Terms::start();
    let source = terms.path("long.rs");
    let lines: String =
        (0..200).map(|n| format!("fn number_{n}() -> &'static str {{ \"naïve 界 {n}\" }}\n")).collect();
    std::fs::write(&source, lines).unwrap();
    let source = source.to_str().unwrap();

    run(
        &terms,
        "vim",
        &["vim", "-u", "NONE", "-N", "-c", "syntax on", "-c", "set number ruler hlsearch", source],
    );
    terms.shows("vim", "number_0");
    same_screen(&terms, "vim");
    terms.ctx(&["term", "send", "vim", "50Gzz/naïve", "--enter"]).ok();
    terms.shows("vim", "number_55");
    terms.ctx(&["term", "send", "vim", ":split", "--enter"]).ok();
    same_screen(&terms, "vim");

    run(&terms, "less", &["less", "-N", source]);
    terms.shows("less", "number_0");
    terms.ctx(&["term", "send", "less", "  /界 1", "--enter"]).ok();
    terms.shows("less", "number_1");
    same_screen(&terms, "less");

    // It paints again and again: some moments of it.
    run(&terms, "htop", &["htop", "-d", "5"]);
    terms.shows("htop", "Load average");
    for _ in 0..5 {
        same_screen(&terms, "htop");
        terms.ctx(&["term", "send", "htop", "--key", "Down"]).ok();
    }

    run(&terms, "shell", &["bash", "--norc", "--noprofile"]);
    let colours = r"for i in 1 2 3 4 5 6 7; do printf '\033[%s;3%sm界e\xcc\x81 %s\033[0m \033[4%sm bg \033[0m' $i $i $i $i; done; seq 1 40; printf '\033[7mrev\033[0m \033[48;5;99m\033[K\033[0m\n'";
    terms.ctx(&["term", "send", "shell", colours, "--enter"]).ok();
    terms.shows("shell", "rev");
    same_screen(&terms, "shell");
    terms.ctx(&["term", "send", "shell", "ls --color=always / && echo do''ne", "--enter"]).ok();
    terms.shows("shell", "done");
    same_screen(&terms, "shell");
}

#[test]
fn the_scrollback_comes_before_the_screen() {
    let terms = Terms::start();
    terms.run("scroll", &["sh", "-c", "seq 1 300; cat"]);
    terms.shows("scroll", "300");
    let mut holder = terms.holder("scroll", Mode::Watch, 100);
    let repaint = holder.wait_for(|said| match said {
        FromHolder::Repaint { bytes, .. } => Some(String::from_utf8(bytes).unwrap()),
        _ => None,
    });
    let repaint = repaint.unwrap();
    // 23 lines and the cursor's are on the screen, a hundred above them.
    assert!(repaint.contains("178\r\n179\r\n") && repaint.contains("\r\n300\r\n"), "{repaint}");
    assert!(!repaint.contains("177\r\n"), "{repaint}");
}
