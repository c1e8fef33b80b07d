//! Disks that fail under the engine: nothing acknowledged is lost, and sessions are taken up again.

use std::time::Duration;

use ctx_journal::sim::{Fault, Op, SimDisk};
use ctx_session::command::Change;
use ctx_session::record::RunBody;
use ctx_session::{Body, Code, Limits, RunState, StateName};

use super::world::{ME, World, eventually, every_run_ends_once, times_there};

#[tokio::test(flavor = "multi_thread")]
async fn a_log_that_cannot_be_synced_is_named_and_taken_up_again_and_others_go_on() {
    let world = World::new().await;
    let (broken, other) = (world.session("broken").await, world.session("other").await);
    assert_eq!(world.say(broken, "m1", "kept").await, RunState::Done);
    world.disk.fail(Op::Sync, 0, Fault::Io);
    let refused = world.post(broken, "m2", "in doubt").await.unwrap_err();
    assert_eq!(refused.code, Code::Eio);
    assert!(refused.message.contains("session/broken/events.jsonl"), "{refused:?}");
    assert_eq!(world.say(other, "m1", "unharmed").await, RunState::Done);
    // The client does what it was told: it sends once more, under the same id.
    let posted =
        eventually("the session to be taken up", async || world.post(broken, "m2", "in doubt").await.ok())
            .await;
    world.end_of(broken, &posted).await;
    assert_eq!(world.say(broken, "m3", "goes on").await, RunState::Done);
    let log = world.log("broken");
    every_run_ends_once(&log);
    assert_eq!(["m1", "m2", "m3"].map(|id| times_there(&log, id)), [1, 1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_log_fails_is_failed_and_its_followers_see_the_end() {
    let world = World::new().await;
    let id = world.session("default").await;
    let mut follow = world.engine.follow(ME, id, None).await.unwrap();
    // The post is one sync, the first step of the run the next.
    world.disk.fail(Op::Sync, 1, Fault::Io);
    let posted = world.post(id, "m1", "steps 5").await.unwrap();
    let mut last = None;
    let failure = loop {
        let next =
            tokio::time::timeout(Duration::from_secs(60), follow.next()).await.expect("an event in time");
        let event = next.unwrap().expect("the session is not over");
        assert!(last < Some(event.id()), "events grow strictly");
        last = Some(event.id());
        if let ctx_engine::Event::Record(record) = event
            && let Body::Run(RunBody::Failed(failed)) = &record.body
        {
            break failed.clone();
        }
    };
    assert_eq!((failure.turn_id, failure.reason.as_str()), (posted.run, "storage_failure"));
    assert_eq!(world.say(id, "m2", "goes on").await, RunState::Done);
    assert_eq!(world.engine.counts().borrow().total, 0, "its place is free");
    every_run_ends_once(&world.log("default"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_fails_and_whenever_every_acknowledged_message_is_there_once() {
    for (op, fault) in [
        (Op::Sync, Fault::Io),
        (Op::Write, Fault::Io),
        (Op::Write, Fault::NoSpace),
        (Op::Write, Fault::Short(7)),
        (Op::Truncate, Fault::Io),
        (Op::Name, Fault::Io),
        (Op::SyncDir, Fault::Io),
    ] {
        for after in 0..14 {
            let world = World::new().await;
            let id = world.session("default").await;
            world.disk.fail(op, after, fault);
            for number in 0..4 {
                let client_id = format!("m{number}");
                let posted = eventually("an acknowledgement", async || {
                    world.post(id, &client_id, "steps 2").await.ok()
                })
                .await;
                world.end_of(id, &posted).await;
            }
            world.disk.heal();
            let log = world.log("default");
            every_run_ends_once(&log);
            for number in 0..4 {
                assert_eq!(times_there(&log, &format!("m{number}")), 1, "{op:?} {fault:?} after {after}");
            }
            assert_eq!(world.engine.look(ME, id).await.unwrap().state.name(), StateName::Idle);
            assert_eq!(world.engine.counts().borrow().total, 0, "{op:?} {fault:?} after {after}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_a_post_is_refused_and_the_end_of_a_run_waits_for_room() {
    let world = World::new().await;
    let (idle, busy) = (world.session("idle").await, world.session("busy").await);
    let posted = world.post(busy, "m1", "hold").await.unwrap();
    world.hears(busy).await;
    world.disk.set_room(Some(0));
    let refused = world.post(idle, "m1", "no room").await.unwrap_err();
    assert_eq!(refused.code, Code::Enospc);
    let engine = world.engine.clone();
    let cancel = tokio::spawn(async move { engine.cancel(ME, busy, posted.run).await });
    eventually("the session to be failing", async || world.engine.find(ME, busy).unwrap().failing.clone())
        .await;
    let titled = Change { title: Some("no room for this either".to_owned()), ..Change::default() };
    let refused = world.engine.change(ME, busy, titled).await.unwrap_err();
    assert_eq!(refused.code, Code::Enospc);
    world.disk.set_room(None);
    assert_eq!(cancel.await.unwrap().unwrap(), RunState::Cancelled);
    assert_eq!(world.engine.find(ME, busy).unwrap().failing, None);
    assert_eq!(world.say(busy, "m2", "goes on").await, RunState::Done);
    assert_eq!(world.say(idle, "m1", "room").await, RunState::Done);
    for name in ["busy", "idle"] {
        every_run_ends_once(&world.log(name));
    }
    let text: Vec<_> =
        world.log("busy").into_iter().filter(|record| record["type"] == "assistant_finished").collect();
    assert_eq!(text[0]["text"], "said before", "what clients have seen is kept");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_could_not_be_written_are_tried_again_though_nobody_asks_for_anything() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("home/1000/agent/coder/session/default");
    std::fs::create_dir_all(&dir).unwrap();
    let world = World::showing(SimDisk::new(), root.path()).await;
    let id = world.session("default").await;
    assert_eq!(world.say(id, "m1", "shown").await, RunState::Done);
    let messages = || std::fs::read_to_string(dir.join("messages.jsonl")).unwrap();
    assert_eq!(messages().lines().count(), 2);
    // Where there is no directory, as where there is no room, nothing can be written.
    let away = root.path().join("away");
    std::fs::rename(&dir, &away).unwrap();
    assert_eq!(world.say(id, "m2", "said meanwhile").await, RunState::Done, "a view never fails a session");
    assert_eq!(std::fs::read_to_string(away.join("messages.jsonl")).unwrap().lines().count(), 2);
    std::fs::rename(&away, &dir).unwrap();
    eventually("the files to be tried again", async || {
        (messages().matches("said meanwhile").count() == 2).then_some(())
    })
    .await;
    assert_eq!(messages().lines().count(), 4, "each message once");
    eventually("the state to be shown last", async || {
        (std::fs::read_to_string(dir.join("state")).ok()? == "idle\n").then_some(())
    })
    .await;
}

/// More than may be loaded at a time, in a world where no session is unloaded for being idle.
#[tokio::test(flavor = "multi_thread")]
async fn a_start_without_any_files_makes_them_all_and_lets_every_session_go() {
    const SESSIONS: usize = 300;
    let root = tempfile::tempdir().unwrap();
    let dir = |number: usize| root.path().join(format!("home/1000/agent/coder/session/s{number}"));
    let world = World::new().await;
    for number in 0..SESSIONS {
        world.session(&format!("s{number}")).await;
        std::fs::create_dir_all(dir(number)).unwrap();
    }
    world.engine.shut_down().await;
    let world = World::showing(world.disk.clone(), root.path()).await;
    eventually("the files of every session", async || {
        (0..SESSIONS).all(|number| dir(number).join("state").exists()).then_some(())
    })
    .await;
    let still_loaded = async || (world.engine.loaded_count() < SESSIONS / 2).then_some(());
    eventually("the sessions to be let go", still_loaded).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_disk_refuses_and_goes_on_when_it_can_be_written_again() {
    let world = World::new().await;
    let id = world.session("default").await;
    assert_eq!(world.say(id, "m1", "x").await, RunState::Done);
    world.disk.set_read_only(true);
    let refused = world.post(id, "m2", "y").await.unwrap_err();
    assert!(refused.message.contains("events.jsonl"), "{refused:?}");
    world.disk.set_read_only(false);
    let posted =
        eventually("the session to be taken up", async || world.post(id, "m2", "y").await.ok()).await;
    world.end_of(id, &posted).await;
    assert_eq!(times_there(&world.log("default"), "m2"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_log_is_lost_is_shown_as_failing_until_the_log_can_be_taken_up_again() {
    let world = World::new().await;
    let id = world.session("default").await;
    let posted = world.post(id, "m1", "hold").await.unwrap();
    world.disk.set_read_only(true);
    world.engine.cancel(ME, id, posted.run).await.unwrap_err();
    let failing =
        eventually("the session to be failing", async || world.engine.find(ME, id).unwrap().failing.clone())
            .await;
    assert_eq!(failing.reason, "log_unusable");
    assert!(failing.message.contains("events.jsonl"), "{failing:?}");
    world.disk.set_read_only(false);
    // Nobody asks for anything: it is taken up again by itself.
    eventually("the session to be taken up", async || {
        let found = world.engine.find(ME, id).unwrap();
        (found.failing.is_none() && found.state == StateName::Idle).then_some(())
    })
    .await;
    assert!(matches!(world.end_of(id, &posted).await, RunState::Failed(_)));
    every_run_ends_once(&world.log("default"));
    assert_eq!(world.say(id, "m2", "goes on").await, RunState::Done);
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_power_cut_everything_acknowledged_is_there() {
    for seed in 0..40 {
        let world = World::new().await;
        let id = world.session("default").await;
        let mut acknowledged = Vec::new();
        for number in 0..3 {
            let client_id = format!("m{number}");
            let posted = world.post(id, &client_id, "steps 1").await.unwrap();
            world.end_of(id, &posted).await;
            acknowledged.push((client_id, posted.run));
        }
        // One more is under way when the power goes.
        let posted = world.post(id, "last", "steps 20").await.unwrap();
        acknowledged.push(("last".to_owned(), posted.run));
        for left in world.disk.now().crash(seed, 4) {
            let world = World::on(left, Limits::default()).await;
            let id = world.find("default");
            assert_eq!(world.engine.look(ME, id).await.unwrap().state.name(), StateName::Idle, "seed {seed}");
            for (client_id, run) in &acknowledged {
                let again = world.post(id, client_id, "again").await.unwrap();
                assert_eq!((again.run, again.repeated), (*run, true), "seed {seed}, {client_id}");
            }
            every_run_ends_once(&world.log("default"));
        }
    }
}
