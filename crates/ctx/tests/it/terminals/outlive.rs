//! What a terminal outlives, and what ends it.

use std::os::unix::process::CommandExt;
use std::path::Path;

use ctx_terminal::{FromHolder, Mode, connect};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{SmallDisk, finish, moment, rounds, until};

use super::{Terms, build};
use crate::support::json_lines;

/// The process behind a socket.
fn peer(socket: &str) -> Pid {
    let stream = connect(Path::new(socket)).unwrap();
    rustix::net::sockopt::socket_peercred(&stream).unwrap().pid
}

#[test]
fn programs_do_not_notice_that_the_daemon_is_killed() {
    let mut terms = Terms::start();
    let stop = terms.path("stop");
    let count =
        format!("i=0; until [ -e {} ]; do i=$((i + 1)); echo line $i; sleep 0.01; done", stop.display());
    terms.run("count", &["sh", "-c", &count]);
    terms.run("seq", &["sh", "-c", "seq 1 200000; read end"]);
    terms.run("edit", &["vim", "-u", "NONE", "-N"]);
    terms.shows("edit", "VIM");
    terms.ctx(&["term", "send", "edit", "ihello from vim"]).ok();
    for round in rounds(5) {
        std::thread::sleep(std::time::Duration::from_millis(moment(round, 200)));
        terms.kill();
        terms.start_again();
        let typed = format!(" {round}");
        terms.ctx(&["term", "send", "edit", &typed]).ok();
        terms.shows(
            "edit",
            &format!("hello from vim{}", (0..=round).map(|n| format!(" {n}")).collect::<String>()),
        );
    }
    std::fs::write(&stop, "").unwrap();
    let ended = terms.ended("count");
    assert_eq!((&ended["exit_code"], &ended["reason"]), (&0.into(), &"exited".into()));
    // Not a byte is missing, and none is there twice.
    let shown = String::from_utf8(terms.transcript("count")).unwrap();
    let expected: String = (1..=shown.lines().count()).map(|n| format!("line {n}\r\n")).collect();
    assert_eq!(shown, expected);
    terms.shows("seq", "200000");
    let expected: String = (1..=200_000).map(|n| format!("{n}\r\n")).collect();
    assert!(terms.transcript("seq") == expected.as_bytes(), "the numbers are whole");
    terms.ctx(&["term", "send", "edit", "--key", "Escape"]).ok();
    terms.ctx(&["term", "send", "edit", ":q!", "--enter"]).ok();
    assert_eq!(terms.ended("edit")["exit_code"], 0);
}

#[test]
fn a_killed_holder_closes_its_terminal_and_nothing_else() {
    let terms = Terms::start();
    terms.run("gone", &["sh", "-c", "echo before; sleep 1000"]);
    terms.run("stays", &["cat"]);
    terms.shows("gone", "before");
    kill_process(peer(terms.listed("gone")["socket"].as_str().unwrap()), Signal::KILL).unwrap();
    let ended = terms.ended("gone");
    assert_eq!((&ended["exit_code"], &ended["reason"]), (&serde_json::Value::Null, &"holder_lost".into()));
    assert_eq!(terms.transcript("gone"), b"before\r\n");
    assert_eq!(terms.screen("gone"), "before\n");
    assert!(terms.ctx(&["term", "attach", "gone"]).fails(1).contains("its holder was killed"));
    terms.ctx(&["term", "send", "stays", "here", "--enter"]).ok();
    terms.shows("stays", "here");
}

#[test]
fn much_output_takes_bounded_memory_and_a_client_that_never_reads_stops_nothing() {
    let terms = Terms::start();
    let megabytes = rounds(20).end;
    let lines = format!(
        "yes 'a line of output that is as long as lines often are, more or less' | head -c {megabytes}M; echo; echo done"
    );
    terms.run("much", &["sh", "-c", &format!("read go; {lines}; read end")]);
    // It says hello and reads nothing more.
    let mut lazy = terms.holder("much", Mode::Write, 0);
    let pid = peer(terms.listed("much")["socket"].as_str().unwrap());
    terms.ctx(&["term", "send", "much", "go", "--enter"]).ok();
    terms.shows("much", "done");
    let peak = peak_kib(pid);
    assert!(peak < 64 * 1024, "{peak} kB");
    // When it reads at last, it gets to see the end: a fresh screen.
    lazy.set_timeout(Some(testkit::DEADLINE)).unwrap();
    lazy.wait_for(|said| match said {
        FromHolder::Repaint { bytes, .. } => String::from_utf8_lossy(&bytes).contains("done").then_some(()),
        _ => None,
    })
    .unwrap();
    terms.ctx(&["term", "send", "much", "--key", "Enter"]).ok();
    terms.ended("much");
    // Every byte is in the transcript, with a return before each line's end.
    let written = terms.transcript("much").iter().filter(|byte| **byte != b'\r').count() as u64;
    assert!(written >= megabytes * 1024 * 1024, "{written}");
}

/// The peak of a holder's memory.
fn peak_kib(pid: Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_sequence_without_an_end_and_endless_marks_take_bounded_memory() {
    let terms = Terms::start();
    let osc =
        r"printf '\033]1337;File='; yes AAAAAAAAAAAAAAA | tr -d '\n' | head -c 100M; printf '\007osc done'";
    let marks = r"yes $(printf '\314\201') | tr -d '\n' | head -c 20M; echo marks done";
    terms.run("endless", &["sh", "-c", &format!("read go; {osc}; {marks}; read end")]);
    let pid = peer(terms.listed("endless")["socket"].as_str().unwrap());
    terms.ctx(&["term", "send", "endless", "go", "--enter"]).ok();
    terms.shows("endless", "marks done");
    assert!(terms.screen("endless").contains("osc done"));
    let peak = peak_kib(pid);
    assert!(peak < 96 * 1024, "{peak} kB");
    assert!(terms.transcript("endless").len() > 120 * 1024 * 1024, "the transcript has all of it");
}

#[test]
fn a_holder_and_its_program_keep_nothing_open_that_the_daemon_was_started_with() {
    let daemon = build();
    let lock = daemon.place().path("held");
    std::fs::write(&lock, "").unwrap();
    let open = format!("exec 9<'{}' && exec \"$@\"", lock.display());
    let terms = Terms { daemon: daemon.under(&["sh", "-c", &open, "sh"]).start() };
    let shown = terms.run("clean", &["sh", "-c", "ls -l /proc/self/fd; echo listed; cat"]);
    let screen = terms.shows(&shown, "listed");
    assert!(!screen.contains("held"), "{screen}");
    let has = |pid: &str| {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
        fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).any(|path| path == lock)
    };
    assert!(has(&terms.pid().to_string()), "the daemon has it");
    let holder = peer(terms.listed("clean")["socket"].as_str().unwrap());
    assert!(!has(&holder.as_raw_nonzero().to_string()));
}

const ANN: u32 = 54_401;
const BOB: u32 = 54_402;

#[test]
fn another_user_has_no_part_in_a_terminal() {
    let mut terms = Terms { daemon: build().start() };
    let as_user = |terms: &Terms, uid: u32, args: &[&str]| {
        finish(terms.command(args).uid(uid).gid(uid).stdin(std::process::Stdio::null()))
    };
    let id =
        as_user(&terms, ANN, &["term", "run", "--detach", "--name", "mine", "--", "sh", "-c", "id -u; cat"])
            .ok();
    let id = id.trim();
    until("the program runs as its user", || {
        as_user(&terms, ANN, &["term", "screen", "mine"]).ok().contains("54401").then_some(())
    });
    let mine = &json_lines(&as_user(&terms, ANN, &["term", "ls", "--json"]).ok())[0];
    for args in
        [["term", "screen", id], ["term", "attach", id], ["term", "close", id], ["term", "export", id]]
    {
        as_user(&terms, BOB, &args).fails(1);
    }
    assert_eq!(as_user(&terms, BOB, &["term", "ls", "--all", "--json"]).ok(), "");
    // Nor by the holder's own files.
    let dir = Path::new(mine["socket"].as_str().unwrap()).parent().unwrap();
    for file in ["sock", "transcript", "about.json"] {
        let tried = format!("socat -u OPEN:{0} - || socat - UNIX-CONNECT:{0}", dir.join(file).display());
        let mut command = std::process::Command::new("sh");
        let outcome = finish(command.args(["-c", &tried]).uid(BOB).gid(BOB));
        assert!(
            outcome.code != 0 && outcome.stderr.contains("Permission denied"),
            "{file}: {}",
            outcome.stderr
        );
    }
    terms.kill();
    terms.start_again();
    as_user(&terms, ANN, &["term", "close", "mine"]).ok();
}

#[test]
fn a_holder_that_is_stopped_does_not_hold_up_a_list() {
    let terms = Terms::start();
    terms.run("stopped", &["cat"]);
    let holder = peer(terms.listed("stopped")["socket"].as_str().unwrap());
    kill_process(holder, Signal::STOP).unwrap();
    let listed = [["term", "ls"].as_slice(), &["ls"]].map(|list| {
        let begun = std::time::Instant::now();
        (terms.ctx(list).ok(), begun.elapsed())
    });
    kill_process(holder, Signal::CONT).unwrap();
    for (listed, took) in listed {
        assert!(listed.contains("stopped"), "{listed}");
        // An answer that is needed is waited for so long.
        assert!(took < std::time::Duration::from_secs(5), "{took:?}");
    }
}

#[test]
fn a_program_that_ends_on_a_full_disk_has_its_exit_code_and_its_last_screen() {
    let terms = Terms::start();
    let hold = terms.root().join(".state/hold");
    // The holder ends before its disk goes.
    let (disk, terms) = (SmallDisk::mount(&hold, 1024), terms);
    // The text of the second does not fit into what is kept free.
    for (name, cols, program, exit, shown) in [
        ("usual", "80", "echo shown; read line; exit 3", 3, "shown"),
        ("large", "1000", "head -c 190000 /dev/zero | tr '\\0' x; echo end; read line; exit 4", 4, "\nend"),
    ] {
        let size = ["--cols", cols, "--rows", "200"];
        let run = [&["term", "run", "--detach", "--name", name], &size[..], &["--", "sh", "-c", program]];
        terms.ctx(&run.concat()).ok();
        terms.shows(name, shown);
        let socket = terms.listed(name)["socket"].as_str().unwrap().to_owned();
        disk.fill();
        terms.ctx(&["term", "send", name, "--enter"]).ok();
        until("the end of the holder", || (!Path::new(&socket).exists()).then_some(()));
        disk.free();
        let ended = terms.ended(name);
        assert_eq!((&ended["exit_code"], &ended["reason"]), (&exit.into(), &"exited".into()));
        assert!(terms.ctx(&["term", "ls", "--all"]).ok().contains(&format!("exited {exit}")));
        assert!(terms.screen(name).contains(shown), "{}", terms.screen(name));
    }
}

#[test]
fn a_full_disk_leaves_a_gap_and_everybody_is_told() {
    let terms = Terms::start();
    let hold = terms.root().join(".state/hold");
    // The holder ends before its disk goes.
    let (disk, terms) = (SmallDisk::mount(&hold, 1024), terms);
    terms.run("full", &["sh", "-c", "while read line; do seq 3000; echo said $line; done"]);
    let say = |word: &str| {
        terms.ctx(&["term", "send", "full", word, "--enter"]).ok();
        terms.shows("full", &format!("said {word}"));
    };
    say("before");
    assert_eq!(terms.listed("full")["transcript_error"], serde_json::Value::Null);
    disk.fill();
    say("meanwhile");
    let why = terms.listed("full")["transcript_error"].to_string();
    assert!(why.contains("No space left"), "{why}");
    assert!(terms.ctx(&["term", "ls"]).ok().contains("output not kept"));
    disk.free();
    say("after");
    let export = terms.ctx(&["term", "export", "full", "--to", "text"]);
    assert!(export.stderr.contains("bytes of output are missing here"), "{}", export.stderr);
    for said in ["said before", "bytes of output are missing here", "said after"] {
        assert!(export.stdout.contains(said), "{said}");
    }
    assert!(terms.ctx(&["term", "replay", "full", "--speed", "0"]).stderr.contains("missing here"));
    terms.ctx(&["term", "close", "full"]).ok();
    assert!(terms.ended("full")["transcript_error"].to_string().contains("No space left"));
}
