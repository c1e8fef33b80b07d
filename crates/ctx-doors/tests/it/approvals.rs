//! Tool calls that wait for the operator, and for how long.

use std::time::Duration;

use serde_json::{Value, json};

use crate::door::{TestDoor, until};

/// A session whose run waits for an answer, and the approval.
async fn waiting(door: &TestDoor) -> (String, Value) {
    let id = door.session("{}").await;
    door.post(&id, "ask").await;
    let approval = until("the approval", async || {
        door.get(&format!("/sessions/{id}/approvals")).await["items"].as_array().unwrap().first().cloned()
    })
    .await;
    (id, approval)
}

async fn newest(door: &TestDoor, id: &str) -> Value {
    door.get(&format!("/sessions/{id}/approvals?all=true")).await["items"][0].clone()
}

/// What the tool gave.
async fn result(door: &TestDoor, id: &str) -> Value {
    door.wait_for(id, "idle").await;
    let messages = door.get(&format!("/sessions/{id}/messages")).await;
    let is_result = |message: &&Value| message["role"] == "tool";
    messages["items"].as_array().unwrap().iter().find(is_result).unwrap()["content"].clone()
}

fn at(id: &str, approval: &Value) -> String {
    format!("/sessions/{id}/approvals/{}", approval["id"].as_str().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_call_waits_five_minutes_and_not_a_millisecond_longer() {
    let door = TestDoor::new().await;
    let (id, approval) = waiting(&door).await;
    let created = approval["created_at"].as_u64().unwrap();
    assert_eq!(approval["expires_at"], created + 300_000);
    tokio::time::advance(Duration::from_millis(299_999)).await;
    assert_eq!(newest(&door, &id).await["state"], "pending");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(result(&door, &id).await, "timeout");
    let settled = newest(&door, &id).await;
    assert_eq!((&settled["state"], &settled["by"]), (&json!("timeout"), &Value::Null));
    assert_eq!(settled["settled_at"], created + 300_000);
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_time_is_the_answer() {
    let door = TestDoor::new().await;
    let (id, approval) = waiting(&door).await;
    tokio::time::advance(Duration::from_millis(299_999)).await;
    let done = door.call("POST", &at(&id, &approval), r#"{"decision":"allow"}"#).await.ok(200);
    assert_eq!((&done["state"], &done["by"]), (&json!("allow"), &json!(crate::door::ME)));
    tokio::time::advance(Duration::from_secs(600)).await;
    assert_eq!(result(&door, &id).await, "allow");
    let late = door.call("POST", &at(&id, &approval), r#"{"decision":"deny"}"#).await;
    assert_eq!(late.code(409), "EBUSY", "settled");
    assert_eq!(newest(&door, &id).await["state"], "allow");
}

#[tokio::test(start_paused = true)]
async fn while_the_session_is_paused_the_time_of_a_call_stands_still() {
    let door = TestDoor::new().await;
    let (id, approval) = waiting(&door).await;
    tokio::time::advance(Duration::from_secs(100)).await;
    let made = door.call("POST", &format!("/sessions/{id}/checkpoints"), "").await.ok(201);
    assert_eq!(newest(&door, &id).await["expires_at"], Value::Null);
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert_eq!(newest(&door, &id).await["state"], "pending");
    let resume = format!("/sessions/{id}/checkpoints/{}/resume", made["id"].as_str().unwrap());
    door.call("POST", &resume, "").await.ok(200);
    let wait = newest(&door, &id).await["expires_at"].as_u64().unwrap();
    assert_eq!(wait, approval["expires_at"].as_u64().unwrap() + 3_600_000, "the pause does not count");
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_settles_nothing() {
    let door = TestDoor::new().await;
    let (id, approval) = waiting(&door).await;
    let at = at(&id, &approval);
    let long = json!({ "decision": "deny", "note": "x".repeat(2_000) }).to_string();
    for body in ["{}", r#"{"decision":"maybe"}"#, r#"{"decision":"allow","why":"x"}"#, &long] {
        assert_eq!(door.call("POST", &at, body.to_owned()).await.code(400), "EINVAL", "{body}");
    }
    let allow = r#"{"decision":"allow"}"#;
    let missing = format!("/sessions/{id}/approvals/01ARZ3NDEKTSV4RRFFQ69G5FAV");
    assert_eq!(door.call("POST", &missing, allow).await.code(404), "ENOENT");
    let stranger = door.asked_by(54321);
    let list = format!("/sessions/{id}/approvals");
    assert_eq!(stranger.call("GET", &list, "").await.code(404), "ENOENT");
    assert_eq!(stranger.call("POST", &at, allow).await.code(404), "ENOENT");
    assert_eq!(newest(&door, &id).await["state"], "pending");
}
