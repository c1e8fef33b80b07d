//! Images in posted messages: what is taken, what is shown of them, and what is refused without a trace.

use serde_json::json;

use crate::support::Http;

fn path(id: &str, what: &str) -> String {
    format!("/sessions/{id}/{what}")
}

const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

#[test]
fn an_image_is_a_part_of_its_message() {
    let http = Http::start();
    let id = http.playing();
    let post = json!({ "text": "look", "parts": [
        { "type": "image", "mime": "image/png", "data": PNG }, { "type": "text", "text": "closely" },
    ] });
    http.call("POST", &path(&id, "messages"), Some(&post.to_string())).json(202);
    http.wait_for(&id, "idle");
    let said = http.call("GET", &path(&id, "messages"), None).json(200);
    let message = &said["items"][0];
    assert_eq!(message["content"].as_str().unwrap(), "look\n\nclosely");
    assert_eq!(message["parts"][1]["mime"], "image/png", "{message}");
    assert_eq!(message["parts"][1]["size"], 70, "{message}");
}

#[test]
fn what_is_no_image_is_refused_and_changes_nothing() {
    let http = Http::start();
    let id = http.playing();
    let image = |mime: &str, data: &str| json!({ "type": "image", "mime": mime, "data": data });
    let large = PNG.repeat(60_000);
    for (parts, status, words) in [
        (json!([image("image/png", "%%%")]), 400, "not base64"),
        (json!([image("image/bmp", PNG)]), 400, "must be one of"),
        (json!([image("image/jpeg", PNG)]), 400, "and is image/png"),
        (json!([image("image/png", "aGVsbG8=")]), 400, "is no image"),
        (json!([{ "type": "video", "data": PNG }]), 400, ""),
        (json!(vec![image("image/png", PNG); 9]), 400, "at most 8 images"),
        (json!([image("image/png", &large)]), 413, ""),
    ] {
        let post = json!({ "text": "look", "parts": parts }).to_string();
        let answer = http.call("POST", &path(&id, "messages"), Some(&post));
        let error = answer.json(status);
        assert!(error["error"]["message"].as_str().unwrap().contains(words), "{words}: {error}");
    }
    let said = http.call("GET", &path(&id, "messages"), None).json(200);
    assert_eq!(said["items"], json!([]));
}
