//! Workers that misbehave: they break, or they do not hear.

use std::time::{Duration, Instant};

use ctx_session::{Limits, RunState};

use super::world::{ME, World, every_run_ends_once};
use ctx_journal::sim::SimDisk;

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_panics_fails_its_run_and_nothing_else() {
    let world = World::new().await;
    let id = world.session("default").await;
    let RunState::Failed(failure) = world.say(id, "m1", "panic").await else { panic!("a failure") };
    assert_eq!(failure.reason, "worker_panicked");
    assert_eq!(world.say(id, "m2", "goes on").await, RunState::Done);
    every_run_ends_once(&world.log("default"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_that_does_not_hear_is_given_up_after_the_grace_time() {
    let limits = Limits { stop_grace_ms: 100, ..Limits::default() };
    let world = World::on(SimDisk::new(), limits).await;
    let id = world.session("default").await;
    let posted = world.post(id, "m1", "deaf").await.unwrap();
    world.sees(id, "default", "assistant_started", 1).await;
    let asked = Instant::now();
    assert_eq!(world.engine.cancel(ME, id, posted.run).await.unwrap(), RunState::Cancelled);
    assert!(asked.elapsed() >= Duration::from_millis(100));
    assert_eq!(world.engine.counts().borrow().total, 0);
    assert_eq!(world.say(id, "m2", "goes on").await, RunState::Done);
    every_run_ends_once(&world.log("default"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_does_not_wait_for_the_deaf_and_leaves_nothing_open() {
    let limits = Limits { stop_grace_ms: 100, ..Limits::default() };
    let world = World::on(SimDisk::new(), limits).await;
    let (deaf, idle) = (world.session("deaf").await, world.session("idle").await);
    world.post(deaf, "m1", "deaf").await.unwrap();
    assert_eq!(world.say(idle, "m1", "x").await, RunState::Done);
    world.engine.shut_down().await;
    let log = world.log("deaf");
    every_run_ends_once(&log);
    let failed = log.iter().find(|record| record["type"] == "failed").unwrap();
    assert_eq!(failed["reason"], "daemon_shutdown");
    let refused = world.post(idle, "m2", "too late").await.unwrap_err();
    assert_eq!(refused.code, ctx_session::Code::Ehostdown);
}
