//! Bodies that cannot be used are refused with a code and the field to blame, and change nothing.

use serde_json::json;

use crate::door::TestDoor;

#[tokio::test]
async fn wrong_bodies_are_refused_and_nothing_is_made() {
    let door = TestDoor::new().await;
    let id = door.session("{}").await;
    let at = format!("/sessions/{id}/messages");
    let deep = "[".repeat(100_000);
    let deep_text = format!("{{\"text\":{}1{}}}", "[".repeat(5_000), "]".repeat(5_000));
    let number = format!("{{\"text\":{}}}", "9".repeat(400));
    for body in [
        "",
        "{",
        "[]",
        "null",
        "5",
        r#""text""#,
        r#"{"text":5}"#,
        r#"{"text":null}"#,
        r#"{"txt":"x"}"#,
        r#"{"text":"x","extra":1}"#,
        r#"{"text":"x","client_id":{}}"#,
        r#"{"text":""}"#,
        r#"{"text":"x","model_override":"no:such"}"#,
        r#"{"text":"\ud800"}"#,
        &deep,
        &deep_text,
        &number,
    ] {
        let start: String = body.chars().take(60).collect();
        assert_eq!(door.call("POST", &at, body.to_owned()).await.code(400), "EINVAL", "{start}");
    }
    let not_text = b"{\"text\":\"\xff\xfe\"}".to_vec();
    assert_eq!(door.call("POST", &at, not_text).await.code(400), "EINVAL");
    let long = json!({ "text": "x".repeat(600 * 1024) }).to_string();
    assert_eq!(door.call("POST", &at, long).await.code(413), "EMSGSIZE", "longer than a message may be");
    let blank = vec![b' '; 5 << 20];
    assert_eq!(door.call("POST", &at, blank).await.code(413), "EMSGSIZE", "longer than a body may be");
    assert_eq!(door.get(&at).await["items"], json!([]));
    assert_eq!(door.state(&id).await, "idle");
}

#[tokio::test]
async fn what_has_no_route_or_no_such_method_says_so() {
    let door = TestDoor::new().await;
    let id = door.session("{}").await;
    assert_eq!(door.call("GET", "/nowhere", "").await.code(404), "ENOENT");
    assert_eq!(door.call("GET", "/sessions/not-an-id", "").await.code(404), "ENOENT");
    assert_eq!(door.call("GET", "/projects/no%20name/sessions", "").await.code(404), "ENOENT");
    assert_eq!(door.call("PATCH", &format!("/sessions/{id}"), "{}").await.code(405), "EINVAL");
    let unconfirmed = door.call("DELETE", &format!("/sessions/{id}"), "").await;
    assert_eq!(unconfirmed.code(400), "EINVAL", "it cannot be undone");
    assert_eq!(door.state(&id).await, "idle");
}
