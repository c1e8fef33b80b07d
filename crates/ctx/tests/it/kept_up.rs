//! Views while the daemon is up: what is removed or repaired under it is made again at once, not at the next start.

use testkit::{Place, TestDaemon, until};

use crate::support::{build, json_lines};

/// A daemon that lets idle sessions go soon.
fn quick() -> TestDaemon {
    build().env("CTX_LIMITS_IDLE_UNLOAD_MS", "50").start()
}

fn hits(place: &Place, text: &str) -> usize {
    json_lines(&place.ctx(&["search", "--json", text]).stdout).len()
}

#[test]
fn repair_of_everything_leaves_what_is_sound_to_the_daemon_and_mends_the_rest() {
    let daemon = quick();
    for (session, text) in
        [("sound", "no problems found"), ("broken", "needle one"), ("broken", "needle two")]
    {
        daemon.ctx(&["send", "--session", session, text]).ok();
    }
    let told = daemon.ctx(&["repair", "--all", "--apply"]);
    assert!(told.code == 0 && told.stderr.contains("nothing to repair"), "{told:?}");
    assert!(!told.stderr.contains("in use"), "what is sound is not asked for: {told:?}");

    until("the words to be searchable", || (hits(&daemon, "needle") == 4).then_some(()));
    let log = daemon.session_dir("broken").join("events.jsonl");
    // Two records run together: a scan finds neither.
    let whole = std::fs::read_to_string(&log).unwrap();
    let (before, after) = whole.split_at(whole.find("needle two").unwrap());
    std::fs::write(&log, format!("{before}{}", after.replacen('\n', "", 1))).unwrap();
    // An idle session is let go of soon, and waited for.
    let done = daemon.ctx(&["repair", "--all", "--apply"]);
    assert!(done.code == 0 && done.stdout.contains("before-repair"), "{done:?}");
    // Nobody has used the session since.
    for name in ["messages.jsonl", "latest.md", "state"] {
        assert!(daemon.session_dir("broken").join(name).exists(), "{name} is made again at once");
    }
    until("the index to have read it again", || {
        let told = daemon.ctx(&["search", "needle"]);
        (hits(&daemon, "needle") == 4 && !told.stderr.contains("not complete")).then_some(())
    });
    daemon.ctx(&["doctor"]).ok();
}

#[test]
fn an_index_that_is_removed_under_the_daemon_is_made_again() {
    let daemon = quick();
    daemon.ctx(&["send", "a needle"]).ok();
    until("the words to be searchable", || (hits(&daemon, "needle") == 2).then_some(()));
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(daemon.root().join(format!(".state/index.db{suffix}")));
    }
    let told = daemon.ctx(&["search", "needle"]);
    if told.code != 0 {
        assert!(told.stderr.contains("try again") && !told.stderr.contains("reindex"), "{told:?}");
    }
    until("the index to be there again", || (hits(&daemon, "needle") == 2).then_some(()));
    daemon.ctx(&["send", "a second needle"]).ok();
    until("what comes after to be in it", || (hits(&daemon, "second") == 2).then_some(()));
    daemon.ctx(&["doctor"]).ok();
}
