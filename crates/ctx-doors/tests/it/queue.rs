//! Messages beyond the limits of running sessions: they are kept, and wait.

use ctx_session::Limits;
use serde_json::json;

use crate::door::TestDoor;

/// A session whose message waits behind two others, which run; and those.
async fn full(limits: Limits) -> (TestDoor, [String; 2], String) {
    let door = TestDoor::with(limits).await;
    let running = [door.session("{}").await, door.session("{}").await];
    for id in &running {
        assert_eq!(door.post(id, "hold").await["state"], "running", "under the limit");
    }
    let third = door.session("{}").await;
    (door, running, third)
}

fn two_per_project() -> Limits {
    Limits { running_per_project: 2, ..Limits::default() }
}

#[tokio::test]
async fn at_the_projects_limit_a_message_is_kept_and_waits() {
    let (door, running, third) = full(two_per_project()).await;
    let posted = door.post(&third, "later").await;
    assert_eq!(posted["state"], "queued");
    let shown = door.get(&format!("/sessions/{third}")).await;
    assert_eq!(
        (&shown["state"], &shown["queued"], &shown["reason"]),
        (&json!("queued"), &json!(true), &json!("concurrency_limit"))
    );
    assert_eq!(shown["limit"], json!({ "scope": "per_project", "running": 2, "limit": 2 }));
    let run = format!("/sessions/{third}/runs/{}", posted["run_id"].as_str().unwrap());
    assert_eq!(door.get(&run).await["state"], "pending");
    let messages = format!("/sessions/{third}/messages");
    assert_eq!(door.get(&messages).await["items"][0]["content"], "later");
    let resume = format!("/sessions/{third}/resume");
    assert_eq!(door.call("POST", &resume, "").await.code(409), "EBUSY", "still no slot");
    assert_eq!(door.call("POST", &messages, r#"{"text":"x"}"#).await.code(409), "EBUSY");
    // A slot frees: nothing starts by itself, the operator resumes.
    door.call("DELETE", &format!("/sessions/{}?confirm=true", running[0]), "").await.ok(204);
    assert_eq!(door.state(&third).await, "queued");
    assert_eq!(door.call("POST", &resume, "").await.ok(202)["run_id"], posted["run_id"]);
    door.wait_for(&third, "idle").await;
    assert_eq!(door.get(&messages).await["items"][1]["content"], "later");
}

#[tokio::test]
async fn a_discarded_message_is_superseded_and_its_run_cancelled() {
    let (door, _, third) = full(two_per_project()).await;
    let posted = door.post(&third, "never mind").await;
    let queued = format!("/sessions/{third}/queued-message");
    door.call("DELETE", &queued, "").await.ok(204);
    assert_eq!(door.state(&third).await, "idle");
    let message = &door.get(&format!("/sessions/{third}/messages")).await["items"][0];
    assert_eq!((&message["content"], &message["superseded"]), (&json!("never mind"), &json!(true)));
    assert_eq!(door.get(&format!("/sessions/{third}/messages?superseded=false")).await["items"], json!([]));
    let run = format!("/sessions/{third}/runs/{}", posted["run_id"].as_str().unwrap());
    assert_eq!(door.get(&run).await["state"], "cancelled");
    assert_eq!(door.call("DELETE", &queued, "").await.code(404), "ENOENT", "no queued messages");
}

#[tokio::test]
async fn at_the_operators_limit_a_message_waits_too() {
    let limits = Limits { running_per_project: 100, running_per_operator: 2, ..Limits::default() };
    let (door, _, third) = full(limits).await;
    assert_eq!(door.post(&third, "x").await["state"], "queued");
    assert_eq!(door.get(&format!("/sessions/{third}")).await["limit"]["scope"], "per_operator");
    let other = door.asked_by(54321);
    let theirs = other.session("{}").await;
    assert_eq!(other.post(&theirs, "x").await["state"], "running", "each operator has a limit of their own");
}
