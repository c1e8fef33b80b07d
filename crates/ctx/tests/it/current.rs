//! Commands right after each other: what names no session means the one last posted to.

use crate::support::{daemon, json_lines};

#[test]
fn a_message_without_a_session_goes_to_the_one_last_posted_to() {
    let daemon = daemon();
    daemon.ctx(&["send", "first"]).ok();
    for round in 0..10 {
        let name = format!("s{round}");
        daemon.ctx(&["send", "--session", &name, &name]).ok();
        assert_eq!(daemon.ctx(&["latest"]).ok(), format!("{name}\n"));
        let frames = json_lines(&daemon.ctx(&["send", "--json", "follow"]).ok());
        assert_eq!(frames[0]["session"], name.as_str(), "{frames:?}");
        assert_eq!(
            json_lines(&daemon.ctx(&["ls", "--json"]).ok()).len(),
            round + 2,
            "a new session is listed"
        );
    }
}

#[test]
fn after_the_end_of_the_current_session_a_message_goes_to_the_one_posted_to_before() {
    let daemon = daemon();
    daemon.ctx(&["send", "--session", "older", "x"]).ok();
    daemon.ctx(&["send", "--session", "before", "x"]).ok();
    daemon.ctx(&["send", "--session", "cur", "x"]).ok();
    daemon.ctx(&["end", "coder/cur", "--yes"]).ok();
    let frames = json_lines(&daemon.ctx(&["send", "--json", "hello"]).ok());
    assert_eq!(frames[0]["session"], "before", "{frames:?}");
}

#[test]
fn after_the_end_of_the_only_session_it_can_be_read_and_a_message_begins_default() {
    let daemon = daemon();
    daemon.ctx(&["send", "--session", "only", "farewell"]).ok();
    daemon.ctx(&["end", "coder/only", "--yes"]).ok();
    assert_eq!(daemon.ctx(&["latest"]).ok(), "farewell\n");
    let frames = json_lines(&daemon.ctx(&["send", "--json", "hello"]).ok());
    assert_eq!(frames[0]["session"], "default", "{frames:?}");
}

#[test]
fn after_the_end_of_default_a_message_begins_it_anew() {
    let daemon = daemon();
    let old = json_lines(&daemon.ctx(&["send", "--json", "x"]).ok())[0]["session_id"].clone();
    daemon.ctx(&["end", "coder", "--yes"]).ok();
    let frames = json_lines(&daemon.ctx(&["send", "--json", "hello"]).ok());
    assert_eq!(frames[0]["session"], "default", "{frames:?}");
    assert_ne!(frames[0]["session_id"], old, "{frames:?}");
}
