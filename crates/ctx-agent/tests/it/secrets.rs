//! Secrets in what tools are given and give: nobody but the file has them.

use ctx_session::record::{ApprovalOutcome, ToolStatus};
use serde_json::{Value, json};

use crate::changes::Desk;
use crate::support::Log;

/// Never a token of anyone's.
const TOKEN: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
const KEY_LINE: &str = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj";

fn tool(name: &str, input: Value) -> Value {
    json!({ "tool": { "name": name, "input": input } })
}

#[tokio::test]
async fn no_tool_shows_a_secret_and_the_file_keeps_it() {
    let desk = Desk::new("allow fs.read\nallow fs.search");
    desk.root.put(".env", format!("A=1\nGITHUB_TOKEN={TOKEN}\nB=2\n"));
    let log = Log::answering(ApprovalOutcome::Allow);
    let steps = vec![
        tool("fs.read", json!({ "path": ".env" })),
        tool("fs.search", json!({ "pattern": "TOKEN" })),
        tool("fs.edit", json!({ "path": ".env", "edits": [{ "old": "A=1", "new": "A=2" }] })),
        tool("fs.write", json!({ "path": "new", "content": format!("token {TOKEN}\n") })),
        tool("fs.read", json!({ "path": format!("{TOKEN}/none") })),
        json!({ "text": "done" }),
    ];
    desk.play(1, steps, &log).await;
    let done = log.finished.lock().unwrap().clone();
    assert_eq!(done[0].output, "A=1\nGITHUB_TOKEN=[REDACTED:github-token]\nB=2\n");
    assert_eq!(done[0].summary.as_ref().unwrap().redacted, Some(1));
    assert!(done[1].output.contains(".env:2: GITHUB_TOKEN=[REDACTED:"), "{}", done[1].output);
    let diff = done[2].diff.as_ref().unwrap();
    assert!(diff.contains("-A=1\n+A=2\n GITHUB_TOKEN=[REDACTED:github-token]"), "{diff}");
    let all = format!("{done:?} {:?} {}", log.asked.lock().unwrap(), log.lines().join("\n"));
    assert!(!all.contains(TOKEN), "neither records, approvals nor the model have it: {all}");
    assert_eq!(desk.text(".env"), format!("A=2\nGITHUB_TOKEN={TOKEN}\nB=2\n"));
    assert_eq!(desk.text("new"), format!("token {TOKEN}\n"));
}

#[tokio::test]
async fn a_window_into_a_key_shows_nothing_of_it() {
    let desk = Desk::new("allow fs.*");
    let key =
        format!("-----BEGIN PRIVATE KEY-----\n{KEY_LINE}\n{KEY_LINE}\n-----END PRIVATE KEY-----\nafter\n");
    desk.root.put("key.pem", &key);
    let calls = [
        ("fs.read", json!({ "path": "key.pem", "offset": 2, "limit": 1 })),
        ("fs.read", json!({ "path": "key.pem", "offset": 3 })),
        ("fs.search", json!({ "pattern": "MIIE|after" })),
        ("fs.edit", json!({ "path": "key.pem", "edits": [{ "old": "after", "new": "later" }] })),
    ];
    let done = desk.of(1, &calls).await;
    assert!(done.iter().all(|call| call.status == ToolStatus::Ok), "{done:?}");
    assert!(!format!("{done:?}").contains("MIIE"), "{done:?}");
    assert!(done[1].output.contains("after") && done[2].output.contains("after"), "{done:?}");
    assert_eq!(desk.text("key.pem"), key.replace("after", "later"));
}

#[tokio::test]
async fn a_mark_is_not_written_where_a_secret_is() {
    let desk = Desk::new("allow fs.*");
    desk.root.put("f", format!("key = {TOKEN}\n"));
    desk.root.put("marked", "a [REDACTED:env:X] b\n");
    let done = desk
        .of(
            1,
            &[
                ("fs.read", json!({ "path": "f" })),
                ("fs.write", json!({ "path": "f", "content": "key = [REDACTED:github-token]\nmore\n" })),
                ("fs.edit", json!({ "path": "f", "edits": [{ "old": "key", "new": "[REDACTED:env:X]" }] })),
                (
                    "fs.edit",
                    json!({ "path": "f", "edits": [{ "old": "[REDACTED:github-token]", "new": "x" }] }),
                ),
                ("fs.write", json!({ "path": "new", "content": "[REDACTED:x]" })),
                ("fs.read", json!({ "path": "marked" })),
                ("fs.write", json!({ "path": "marked", "content": "b [REDACTED:env:X] a\n" })),
            ],
        )
        .await;
    for call in [1, 2, 4] {
        let told = &done[call].output;
        assert!(
            told.starts_with("EINVAL: the text has `[REDACTED:") && told.contains("leave it out"),
            "{told}"
        );
    }
    assert!(done[3].output.contains("stands for a secret that you were not shown"), "{}", done[3].output);
    assert_eq!(desk.text("f"), format!("key = {TOKEN}\n"));
    assert_eq!(desk.text("marked"), "b [REDACTED:env:X] a\n", "what stands in the file may be written");
}

#[tokio::test]
async fn redaction_can_be_switched_off_and_the_context_says_so() {
    let desk = Desk::new("allow fs.*");
    desk.root.control("redact", "off\n");
    desk.root.put("f", format!("{TOKEN}\n"));
    assert_eq!(desk.one("fs.read", json!({ "path": "f" })).await.output, format!("{TOKEN}\n"));
    let done = desk.one("fs.write", json!({ "path": "doc", "content": "[REDACTED:x]" })).await;
    assert_eq!(done.status, ToolStatus::Ok, "{}", done.output);
    let context = desk.root.prepare(None, None).unwrap().context;
    assert_eq!(context.redact.map(|redact| redact.as_str()), Some("off"));
    desk.root.control("redact", "maybe\n");
    let refusal = desk.root.prepare(None, None).unwrap_err();
    assert!(refusal.message.contains("redact:1:1: expected `on` or `off`"), "{}", refusal.message);
}
