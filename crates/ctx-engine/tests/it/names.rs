//! Names of sessions that are over: an ended session stays where it is until its name is used again, and is found all the
//! while, also when the daemon dies in the middle of that.

use ctx_engine::{NewFork, NewSession};
use ctx_journal::sim::SimDisk;
use ctx_session::record::{MessageBody, SessionBody};
use ctx_session::{Body, Code, Limits, Name, Record, Refusal, SessionId, StateName};
use testkit::rounds;

use super::world::{ME, World};

const ROUNDS: u64 = 34;

/// A session with an exchange that has ended.
async fn ended(world: &World, name: &str, text: &str) -> SessionId {
    let id = world.session(name).await;
    world.say(id, "m", text).await;
    world.engine.end(ME, id).await.unwrap();
    id
}

fn new(name: &str) -> NewSession {
    NewSession {
        object: ctx_session::Object::Agent(Name::new("coder").unwrap()),
        project: None,
        name: Some(Name::of_session(name).unwrap()),
        scope: ctx_session::Scope::Private,
        space: None,
        cwd: None,
        dir: None,
        earlier: Vec::new(),
        client: None,
        key: None,
    }
}

/// A start on a disk that was used before, so much later: ids are made of the time.
async fn later(world: &World, disk: SimDisk, minutes: u64) -> World {
    world.clock.set(1_700_000_000_000 + 60_000 * minutes);
    World::at(disk, Limits::default(), world.clock.clone()).await
}

fn has(world: &World, dir: &str) -> bool {
    world.disk.contents(&format!("home/1000/agent/coder/session/{dir}/events.jsonl")).is_some()
}

/// The records are those of the session that was asked for.
#[track_caller]
fn are_of(id: SessionId, records: &[Record]) {
    match records.first().map(|record| &record.body) {
        Some(Body::Session(SessionBody::Meta(meta))) => assert_eq!(meta.session_id, id),
        other => panic!("no first record of {id}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ended_session_keeps_its_directory_until_its_name_is_used_again() {
    let world = World::new().await;
    let first = ended(&world, "x", "first").await;
    assert!(has(&world, "x") && !has(&world, &format!("x+{first}")));
    let second = ended(&world, "x", "second").await;
    assert!(has(&world, "x") && has(&world, &format!("x+{first}")) && !has(&world, &format!("x+{second}")));
    // What is not loaded is renamed too, and so it stays.
    world.engine.shut_down().await;
    let world = later(&world, world.disk.clone(), 1).await;
    let third = world.session("x").await;
    assert!(has(&world, &format!("x+{second}")));
    for (id, state) in [(first, StateName::Ended), (second, StateName::Ended), (third, StateName::Idle)] {
        are_of(id, &world.engine.records(ME, id, 0, None).await.unwrap());
        assert_eq!(world.engine.look(ME, id).await.unwrap().state.name(), state);
    }
    assert_eq!(world.post(first, "m2", "still there?").await.unwrap_err().code, Code::Eshutdown);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_reads_a_session_while_it_ends_finds_it() {
    let world = World::new().await;
    for round in rounds(ROUNDS) {
        let id = world.session(&format!("s{round}")).await;
        world.say(id, "m", "soon over").await;
        let engine = world.engine.clone();
        let reading = tokio::spawn(async move {
            // Until the end is seen, and once more.
            let mut is_over = false;
            while !is_over {
                is_over = engine.list(ME, |summary| summary.id() == id)[0].state.is_over();
                are_of(id, &engine.records(ME, id, 0, None).await.unwrap());
            }
        });
        world.engine.end(ME, id).await.unwrap();
        reading.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_reads_an_ended_session_while_its_name_is_used_again_finds_it() {
    let mut world = World::new().await;
    for round in rounds(ROUNDS) {
        let old = ended(&world, "x", "old").await;
        if round % 3 == 0 {
            // Not loaded: renaming and loading meet.
            world.engine.shut_down().await;
            world = later(&world, world.disk.clone(), round + 1).await;
        }
        let engine = world.engine.clone();
        let reading = tokio::spawn(async move {
            for at in 0..12 {
                are_of(old, &engine.records(ME, old, 0, None).await.unwrap());
                let piece = engine.log_piece(ME, old, 0, 1).await.unwrap();
                assert!(piece.text.contains(&old.to_string()), "{piece:?}");
                if at % 4 == 0 {
                    assert_eq!(engine.look(ME, old).await.unwrap().id(), old);
                }
            }
            let fork = engine.fork(ME, old, NewFork::default()).await.unwrap();
            engine.records(ME, fork, 1, None).await.unwrap()
        });
        let made = world.engine.create(ME, new("x")).await.unwrap();
        world.say(made, "m", "new").await;
        let copied = reading.await.unwrap();
        let said = |record: &Record| matches!(&record.body, Body::Message(MessageBody::User(user)) if user.text == "old");
        assert!(copied.iter().any(said), "round {round}: the fork is of the old one");
        are_of(made, &world.engine.records(ME, made, 0, None).await.unwrap());
        world.engine.end(ME, made).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_use_a_name_again_one_gets_it() {
    let world = World::new().await;
    for round in rounds(ROUNDS) {
        let old = ended(&world, "x", "old").await;
        let (one, two) = (world.engine.clone(), world.engine.clone());
        let creating = tokio::spawn(async move { one.create(ME, new("x")).await });
        let fork = NewFork { name: Some(Name::of_session("x").unwrap()), ..NewFork::default() };
        let forking = tokio::spawn(async move { two.fork(ME, old, fork).await });
        let made: [Result<SessionId, Refusal>; 2] = [creating.await.unwrap(), forking.await.unwrap()];
        let (well, refused): (Vec<_>, Vec<_>) = made.into_iter().partition(Result::is_ok);
        assert_eq!((well.len(), refused.len()), (1, 1), "round {round}: {well:?} {refused:?}");
        assert_eq!(refused[0].as_ref().unwrap_err().code, Code::Eexist);
        are_of(old, &world.engine.records(ME, old, 0, None).await.unwrap());
        world.engine.end(ME, *well[0].as_ref().unwrap()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_used_again_while_the_ended_session_is_purged() {
    let world = World::new().await;
    for round in rounds(ROUNDS) {
        let old = ended(&world, "x", "old").await;
        let engine = world.engine.clone();
        let purging = tokio::spawn(async move { engine.purge(ME, old).await });
        let made = world.engine.create(ME, new("x")).await;
        purging.await.unwrap().unwrap();
        let made = made.unwrap_or_else(|refusal| panic!("round {round}: {refusal}"));
        assert_eq!(world.engine.look(ME, old).await.unwrap_err().code, Code::Enoent);
        are_of(made, &world.engine.records(ME, made, 0, None).await.unwrap());
        world.engine.end(ME, made).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_while_a_name_is_used_again_leaves_the_ended_session_and_a_name_that_can_be_used() {
    let disk = SimDisk::new();
    let world = World::on(disk.clone(), Limits::default()).await;
    let old = ended(&world, "x", "old").await;
    disk.record();
    let made = world.session("x").await;
    let moments = disk.take_moments();
    assert!(moments.len() > 3, "{}", moments.len());
    let mut free = 0;
    for (at, left) in moments.iter().flat_map(|moment| moment.crash(7, 4)).enumerate() {
        let world = later(&world, left, 1).await;
        are_of(old, &world.engine.records(ME, old, 0, None).await.unwrap());
        assert_eq!(world.engine.look(ME, old).await.unwrap().state.name(), StateName::Ended, "{at}");
        let live = world.engine.list(ME, |summary| !summary.state.is_over());
        match live.as_slice() {
            [] => {
                free += 1;
                world.session("x").await;
            }
            [one] => assert_eq!((one.id(), one.dir_name.as_str()), (made, "x"), "{at}"),
            more => panic!("{at}: {more:?}"),
        }
    }
    assert!(free > 0, "some crashes come before the new session is there");
}
