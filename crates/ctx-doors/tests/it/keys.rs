//! Requests with an `Idempotency-Key`: done once.

use axum::body::Body;
use axum::http::Request;

use crate::door::{Answer, TestDoor};

const LIST: &str = "/projects/default/sessions";

async fn create(door: &TestDoor, key: &str, body: &'static str) -> Answer {
    let request =
        Request::builder().method("POST").uri(format!("/api/v1{LIST}")).header("Idempotency-Key", key);
    door.send(request.body(Body::from(body)).unwrap()).await
}

#[tokio::test]
async fn a_session_is_made_once_for_a_key_also_by_requests_at_the_same_time() {
    let door = TestDoor::new().await;
    let (first, second, third) =
        tokio::join!(create(&door, "k", "{}"), create(&door, "k", "{}"), create(&door, "k", "{}"));
    let id = first.ok(201)["id"].clone();
    assert_eq!((&second.ok(201)["id"], &third.ok(201)["id"]), (&id, &id));
    assert_eq!(create(&door, "k", "{}").await.ok(201)["id"], id, "and later");
    assert_eq!(door.get(LIST).await["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_key_is_of_one_user_and_one_request() {
    let door = TestDoor::new().await;
    let mine = create(&door, "k", "{}").await.ok(201)["id"].clone();
    assert_eq!(create(&door, "k", r#"{"name":"x"}"#).await.code(400), "EINVAL", "another request");
    let other = create(&door.asked_by(54321), "k", "{}").await.ok(201)["id"].clone();
    assert_ne!(mine, other);
    assert_eq!(create(&door, &"k".repeat(300), "{}").await.code(400), "EINVAL", "too long");
    assert_eq!(door.get(LIST).await["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_request_that_was_refused_may_be_sent_again_with_its_key() {
    let door = TestDoor::new().await;
    let bad = r#"{"scope":"elsewhere"}"#;
    assert_eq!(create(&door, "k", bad).await.code(400), "EINVAL");
    create(&door, "k", "{}").await.ok(201);
}
