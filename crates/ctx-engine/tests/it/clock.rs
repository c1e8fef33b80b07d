//! A clock that jumps back, while the daemon runs and between two of them.

use ctx_session::{Limits, RunState};

use super::world::{ME, World, every_run_ends_once};

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_jumps_back_changes_no_order_and_makes_no_time_negative() {
    let world = World::new().await;
    let id = world.session("default").await;
    world.clock.set(1_800_000_000_000);
    assert_eq!(world.say(id, "m1", "one").await, RunState::Done);
    let held = world.post(id, "m2", "hold").await.unwrap();
    world.clock.set(1_000);
    assert_eq!(world.engine.cancel(ME, id, held.run).await.unwrap(), RunState::Cancelled);
    assert_eq!(world.say(id, "m3", "three").await, RunState::Done);
    let session = world.engine.look(ME, id).await.unwrap();
    let runs: Vec<_> = session.runs().map(|run| run.id).collect();
    assert!(runs.is_sorted(), "ids grow within a daemon, whatever the clock says");
    assert_eq!(session.updated_at.as_millis(), 1_800_000_000_000, "a session does not grow younger");
    let log = world.log("default");
    every_run_ends_once(&log);
    let cancelled = log.iter().find(|record| record["type"] == "cancelled").unwrap();
    assert_eq!(cancelled["duration_ms"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_that_starts_in_the_past_goes_on_with_the_sessions_of_the_future() {
    let world = World::new().await;
    let id = world.session("default").await;
    let first = world.post(id, "m1", "one").await.unwrap();
    world.end_of(id, &first).await;
    let open = world.post(id, "m2", "hold").await.unwrap();
    // Gone without a word, and the next one lives ten years earlier.
    let disk = world.disk.now().kill();
    let world = World::on(disk, Limits::default()).await;
    world.clock.set(1_400_000_000_000);
    let id = world.find("default");
    let session = world.engine.look(ME, id).await.unwrap();
    assert!(matches!(session.run(open.run).unwrap().state, RunState::Failed(_)));
    assert_eq!(world.post(id, "m1", "one").await.unwrap().run, first.run);
    let next = world.post(id, "m3", "three").await.unwrap();
    assert_eq!(world.end_of(id, &next).await, RunState::Done);
    let session = world.engine.look(ME, id).await.unwrap();
    let order: Vec<_> = session.runs().map(|run| run.id).collect();
    assert_eq!(order, [first.run, open.run, next.run], "in the order of the log");
    every_run_ends_once(&world.log("default"));
}
