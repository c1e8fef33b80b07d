//! Lists of sessions, and whose sessions they are.

use serde_json::{Value, json};

use crate::door::TestDoor;

const LIST: &str = "/projects/default/sessions";

fn names(page: &Value) -> Vec<String> {
    page["items"].as_array().unwrap().iter().map(|s| s["name"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_list_stays_while_new_sessions_come() {
    let door = TestDoor::new().await;
    for n in 0..5 {
        door.session(&json!({ "name": format!("n{n}") }).to_string()).await;
    }
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = door.get(&format!("{LIST}?limit=2{cursor}")).await;
        seen.extend(names(&page));
        door.session("{}").await;
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen, ["n4", "n3", "n2", "n1", "n0"]);
}

#[tokio::test]
async fn a_list_has_what_its_filters_say_at_once() {
    let door = TestDoor::new().await;
    door.session(r#"{"name":"elsewhere","cwd":"/"}"#).await;
    let busy = door.session(r#"{"name":"busy"}"#).await;
    door.post(&busy, "hold").await;
    let over = door.session(r#"{"name":"over"}"#).await;
    door.call("DELETE", &format!("/sessions/{over}?confirm=true"), "").await.ok(204);
    let hidden = door.session(r#"{"name":"hidden"}"#).await;
    door.call("PUT", &format!("/sessions/{hidden}"), r#"{"archived":true}"#).await.ok(200);
    for (query, wanted) in [
        ("", vec!["over", "busy", "elsewhere"]),
        ("archived=true", vec!["hidden", "over", "busy", "elsewhere"]),
        ("state=running", vec!["busy"]),
        ("state=ended", vec!["over"]),
        ("state=idle", vec!["elsewhere"]),
        ("cwd=%2F", vec!["elsewhere"]),
        ("agent=coder&state=running", vec!["busy"]),
        ("agent=nobody", vec![]),
    ] {
        assert_eq!(names(&door.get(&format!("{LIST}?{query}")).await), wanted, "{query}");
    }
    for query in ["state=asleep", "cursor=x", "limit=many", "colour=red"] {
        assert_eq!(door.call("GET", &format!("{LIST}?{query}"), "").await.code(400), "EINVAL", "{query}");
    }
}

#[tokio::test]
async fn a_session_of_another_user_is_not_there() {
    let door = TestDoor::new().await;
    let id = door.session("{}").await;
    door.post(&id, "a secret").await;
    door.wait_for(&id, "idle").await;
    let stranger = door.asked_by(54321);
    for (method, path) in [
        ("GET", format!("/sessions/{id}")),
        ("PUT", format!("/sessions/{id}")),
        ("DELETE", format!("/sessions/{id}?confirm=true")),
        ("GET", format!("/sessions/{id}/messages")),
        ("GET", format!("/sessions/{id}/runs")),
    ] {
        assert_eq!(stranger.call(method, &path, "{}").await.code(404), "ENOENT", "{method} {path}");
    }
    let post = stranger.call("POST", &format!("/sessions/{id}/messages"), r#"{"text":"x"}"#).await;
    assert_eq!(post.code(404), "ENOENT");
    assert_eq!(stranger.get(LIST).await["items"], json!([]));
    // The daemon's own user sees all.
    assert_eq!(door.asked_by(0).get(&format!("/sessions/{id}")).await["owner"], crate::door::ME);
    assert_eq!(door.state(&id).await, "idle");
}
