//! Sessions that cannot be brought back are failed, and say what to do.

use std::sync::atomic::Ordering;

use ctx_engine::NewFork;
use ctx_session::{Code, Limits, Name, RunState, StateName};

use super::world::{ME, World, eventually};

/// What a session is shown as.
async fn shown(
    world: &World,
    id: ctx_session::SessionId,
) -> (StateName, Option<ctx_session::record::Failure>) {
    let (summary, details) = world.engine.show(ME, id).await.unwrap();
    let failure = match &details.state {
        ctx_session::State::Failed(failure) => Some(failure.clone()),
        _ => None,
    };
    assert_eq!(summary.state, details.state.name());
    (summary.state, failure)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_driver_panics_three_times_in_a_row_is_failed_in_its_log() {
    let world = World::new().await;
    let (id, other) = (world.session("default").await, world.session("other").await);
    assert_eq!(world.say(id, "m0", "hello").await, RunState::Done);
    let posted = world.post(id, "m1", "hold").await.unwrap();
    world.breaks.store(true, Ordering::SeqCst);
    // Each time the driver dies in the middle, and its session is taken up again.
    world.engine.checkpoint(ME, id, None, None).await.unwrap_err();
    eventually("the pause", async || {
        world.engine.look(ME, id).await.ok().filter(|session| session.state.name() == StateName::Paused)
    })
    .await;
    let _ = world.engine.cancel(ME, id, posted.run).await;
    eventually("the cancel", async || {
        world.engine.look(ME, id).await.ok().filter(|session| session.state.name() == StateName::Idle)
    })
    .await;
    assert_eq!(shown(&world, id).await, (StateName::Idle, None), "twice is not three times");
    world.post(id, "m2", "hold").await.unwrap();
    world.engine.checkpoint(ME, id, None, None).await.unwrap_err();
    world.breaks.store(false, Ordering::SeqCst);
    let failure = eventually("the session to be failed", async || shown(&world, id).await.1).await;
    assert_eq!((failure.code, failure.reason.as_str()), (Code::Eio, "driver_panicked"));
    for advice in ["ctx fork", "ctx repair", "ctx end"] {
        assert!(failure.message.contains(advice), "{failure:?}");
    }
    let refused = world.post(id, "m3", "anybody there?").await.unwrap_err();
    assert_eq!(refused.code, Code::Eshutdown, "{refused:?}");
    let log = world.log("default");
    assert!(log.iter().any(|record| record["type"] == "session_failed"), "{log:?}");
    assert_eq!(world.say(other, "m1", "unharmed").await, RunState::Done);
    // What it advises can be done.
    let new = NewFork { name: Some(Name::new("copy").unwrap()), ..NewFork::default() };
    let copy = world.engine.fork(ME, id, new).await.unwrap();
    assert_eq!(world.say(copy, "m4", "goes on").await, RunState::Done);
    // It is so after a restart.
    world.engine.shut_down().await;
    let again = World::on(world.disk.clone(), Limits::default()).await;
    assert_eq!(shown(&again, id).await.0, StateName::Failed);
    again.engine.end(ME, id).await.unwrap();
    assert_eq!(shown(&again, id).await.0, StateName::Ended);
}

#[tokio::test(flavor = "multi_thread")]
async fn panics_with_work_done_in_between_are_not_in_a_row() {
    let world = World::new().await;
    let id = world.session("default").await;
    for n in 0..4 {
        let posted = eventually("a post", async || world.post(id, &format!("h{n}"), "hold").await.ok()).await;
        world.breaks.store(true, Ordering::SeqCst);
        world.engine.checkpoint(ME, id, None, None).await.unwrap_err();
        world.breaks.store(false, Ordering::SeqCst);
        eventually("the cancel", async || world.engine.cancel(ME, id, posted.run).await.ok()).await;
        assert_eq!(world.say(id, &format!("m{n}"), "hello").await, RunState::Done);
    }
    assert_eq!(shown(&world, id).await, (StateName::Idle, None));
}
