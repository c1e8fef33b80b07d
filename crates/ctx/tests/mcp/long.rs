//! Requests that are longer than any command with its stdin may be.

use serde_json::json;

use crate::support::{Host, place};

#[test]
fn a_request_that_is_too_long_is_answered_and_the_next_one_is_served() {
    let place = place();
    let mut host = Host::start(&place);
    let shell = host.create();
    let stdin = "x".repeat(110 << 20);
    let arguments = json!({"session_id": shell, "command": "wc -c", "stdin": stdin});
    let answer = host.request("tools/call", json!({"name": "session_exec", "arguments": arguments}));
    assert_eq!(answer["error"]["code"], -32600, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("longer than 108003328 bytes"), "{message}");
    assert_eq!(host.exec(&shell, "echo still here")["stdout"], "still here\n");
}
