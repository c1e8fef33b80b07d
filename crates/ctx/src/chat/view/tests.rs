//! What the view shows of frames, on a terminal and in a pipe.

use serde_json::json;

use super::*;

fn frame(kind: &str, payload: Value) -> LiveFrame {
    LiveFrame { channel: "output".to_owned(), kind: kind.to_owned(), seq: 1, payload }
}

fn shown(on_terminal: bool, frames: &[LiveFrame]) -> String {
    let mut view = View::new(Vec::new(), Paint::off(), on_terminal);
    view.typed("mine");
    for frame in frames {
        view.frame(frame).unwrap();
    }
    String::from_utf8(view.out).unwrap()
}

fn delta(text: &str) -> LiveFrame {
    frame("delta", json!({ "message_id": "m", "text": text }))
}

fn message(role: &str, id: &str, content: &str) -> LiveFrame {
    frame("message", json!({ "id": id, "role": role, "content": content, "client_id": id }))
}

#[test]
fn text_is_shown_once_as_it_comes_and_whole_for_who_came_late() {
    let whole = message("assistant", "m", "hello");
    assert_eq!(shown(false, &[delta("hel"), delta("lo"), whole.clone()]), "hello\n");
    assert_eq!(shown(false, &[delta("lo"), whole.clone()]), "lo\nhello\n");
    assert_eq!(shown(false, &[whole.clone(), whole.clone(), delta("late")]), "hello\n");
}

#[test]
fn what_was_typed_here_is_not_said_again() {
    let frames = [message("user", "mine", "typed"), message("user", "theirs", "from elsewhere")];
    assert_eq!(shown(false, &frames), "> from elsewhere\n");
}

#[test]
fn what_interrupts_a_message_makes_it_be_shown_whole() {
    let notice = frame("session.renamed", json!({ "title": "t" }));
    let whole = message("assistant", "m", "hello");
    let shown = shown(false, &[delta("hel"), notice, whole]);
    assert_eq!(shown, "hel\n[the title is now t]\nhello\n");
}

#[test]
fn what_was_read_and_comes_again_as_frames_is_shown_once() {
    let started = frame("tool_started", json!({ "call_id": "c", "name": "t", "input": {} }));
    let finished = frame("tool_finished", json!({ "call_id": "c", "status": "ok", "output": "o" }));
    let failed = frame(
        "run.completed",
        json!({ "run_id": "r", "state": "failed", "error": { "message": "no", "code": "EIO" } }),
    );
    let frames = [started, finished, failed];
    let twice = [frames.clone(), frames].concat();
    assert_eq!(shown(false, &twice), "→ t {}\n← ok o\n[the run failed: no (EIO)]\n");
}

#[test]
fn a_step_that_said_nothing_is_no_place_to_go_on_from() {
    let mut view = View::new(Vec::new(), Paint::off(), false);
    view.frame(&message("assistant", "said", "x")).unwrap();
    view.frame(&message("assistant", "nothing", "")).unwrap();
    assert_eq!(view.last.as_deref(), Some("said"));
}

#[test]
fn a_terminal_is_kept_from_escape_sequences_and_a_pipe_gets_the_bytes() {
    let red = message("assistant", "m", "\x1b[31mred");
    assert_eq!(shown(true, std::slice::from_ref(&red)), "\u{fffd}[31mred\n");
    assert_eq!(shown(false, &[red]), "\x1b[31mred\n");
}

#[test]
fn what_subagents_do_has_their_name_and_what_they_say_comes_whole() {
    let caller = json!({ "name": "tester", "invocation_id": "i" });
    let frames = [
        frame("subagent.spawned", json!({ "name": "tester" })),
        frame("tool_started", json!({ "call_id": "c", "name": "t", "input": {}, "caller": caller })),
        frame("delta", json!({ "message_id": "m", "text": "two ", "caller": caller })),
        frame("tool_finished", json!({ "call_id": "c", "status": "ok", "output": "o", "caller": caller })),
        frame("message", json!({ "id": "m", "role": "subagent", "content": "two fail", "caller": caller })),
        frame("subagent.exited", json!({ "name": "tester", "state": "done" })),
        frame("subagent.exited", json!({ "name": "slow", "state": "killed", "message": "too slow" })),
    ];
    let wanted =
        "▸ tester begins\ntester → t {}\ntester ← ok o\ntester | two fail\n▸ tester done\n[too slow]\n";
    assert_eq!(shown(false, &frames), wanted);
}

#[test]
fn tools_and_the_end_of_a_run_have_lines_of_their_own() {
    let frames = [
        delta("let me see"),
        frame("tool_started", json!({ "name": "fs.list", "input": { "path": "/" } })),
        frame("tool_finished", json!({ "status": "ok", "output": "a\nb" })),
        frame("run.cancelled", json!({})),
    ];
    let wanted = "let me see\n→ fs.list {\"path\":\"/\"}\n← ok a b\n[cancelled]\n";
    assert_eq!(shown(false, &frames), wanted);
}

#[test]
fn reasoning_is_shown_on_a_terminal_on_lines_of_its_own() {
    let thought = |text: &str| frame("reasoning_delta", json!({ "message_id": "m", "text": text }));
    let frames =
        [thought("let me "), thought("see"), delta("hel"), delta("lo"), message("assistant", "m", "hello")];
    assert_eq!(shown(true, &frames), "let me see\nhello\n");
    assert_eq!(shown(false, &frames), "hello\n");
    let whole = [thought("see"), message("assistant", "m", "hello")];
    assert_eq!(shown(true, &whole), "see\nhello\n");
}
