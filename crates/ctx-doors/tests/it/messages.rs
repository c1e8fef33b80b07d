//! Messages page by page: of a loaded session from memory, of another one from its log.

use ctx_session::Limits;
use serde_json::Value;

use crate::door::{TestDoor, until};

fn texts(page: &Value) -> Vec<&str> {
    page["items"].as_array().unwrap().iter().map(|m| m["content"].as_str().unwrap()).collect()
}

/// Ten messages and their answers.
async fn ten(door: &TestDoor) -> String {
    let id = door.session("{}").await;
    for n in 0..10 {
        door.post(&id, &format!("m{n}")).await;
        door.wait_for(&id, "idle").await;
    }
    id
}

/// Asks for pages in every way there is.
async fn both_ways(door: &TestDoor, id: &str) {
    let at = format!("/sessions/{id}/messages");
    let all = door.get(&at).await;
    assert_eq!(texts(&all).len(), 20);
    let newest = door.get(&format!("{at}?limit=3")).await;
    assert_eq!(texts(&newest), ["m8", "m9", "m9"]);
    let older = door.get(&format!("{at}?limit=3&cursor={}", newest["next"].as_str().unwrap())).await;
    assert_eq!(texts(&older), ["m7", "m7", "m8"]);
    let since = all["items"][16]["id"].as_str().unwrap();
    let after = door.get(&format!("{at}?since={since}&limit=2")).await;
    assert_eq!(texts(&after), ["m8", "m9"]);
    let rest = door.get(&format!("{at}?cursor={}", after["next"].as_str().unwrap())).await;
    assert_eq!((texts(&rest), &rest["next"]), (vec!["m9"], &Value::Null));
    let before = all["items"][2]["id"].as_str().unwrap();
    let first = door.get(&format!("{at}?before={before}")).await;
    assert_eq!((texts(&first), &first["next"]), (vec!["m0", "m0"], &Value::Null));
    for query in ["since=x", "before=01ARZ3NDEKTSV4RRFFQ69G5FAV", "cursor=c1", "since=x&before=x"] {
        assert_eq!(door.call("GET", &format!("{at}?{query}"), "").await.code(400), "EINVAL", "{query}");
    }
}

#[tokio::test]
async fn messages_of_a_loaded_session_are_read_both_ways() {
    let door = TestDoor::new().await;
    let id = ten(&door).await;
    both_ways(&door, &id).await;
}

/// Some of the messages are in memory, the others only in the log.
#[tokio::test]
async fn messages_that_memory_has_no_room_for_are_read_both_ways() {
    let door = TestDoor::with(Limits { live_ring_bytes: 4_000, ..Limits::default() }).await;
    let id = ten(&door).await;
    both_ways(&door, &id).await;
}

#[tokio::test]
async fn messages_of_a_session_that_was_unloaded_are_read_both_ways() {
    let door = TestDoor::with(Limits { idle_unload_ms: 0, ..Limits::default() }).await;
    let id = ten(&door).await;
    until("the session to be unloaded", async || (door.get("/status").await["loaded"] == 0).then_some(()))
        .await;
    both_ways(&door, &id).await;
    assert_eq!(door.get("/status").await["loaded"], 0, "reading loads nothing");
}

#[tokio::test]
async fn a_message_says_what_is_known_of_it() {
    let door = TestDoor::new().await;
    let id = door.session("{}").await;
    let body = r#"{"text":"hi","client_id":"mine"}"#;
    let posted = door.call("POST", &format!("/sessions/{id}/messages"), body).await.ok(202);
    door.wait_for(&id, "idle").await;
    let page = door.get(&format!("/sessions/{id}/messages")).await;
    let (asked, answer) = (&page["items"][0], &page["items"][1]);
    assert_eq!((&asked["id"], &asked["run_id"]), (&posted["message_id"], &posted["run_id"]));
    assert_eq!((&asked["role"], &asked["metadata"]["client_id"]), (&"user".into(), &"mine".into()));
    assert_eq!((&answer["role"], &answer["content"]), (&"assistant".into(), &"hi".into()));
    assert_eq!(answer["metadata"]["finish_reason"], "stop");
    assert!(asked["metadata"]["seq"].as_u64() < answer["metadata"]["seq"].as_u64(), "{page}");
}
