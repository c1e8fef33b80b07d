//! How much is kept.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says why and stops")]

use super::support::{ANN, World};
use ctx_cage::rights::Rights;
use ctx_session::{IdSource, Timestamp, Ulid};
use ctx_snapshot::tree::Hash;
use ctx_snapshot::workspace::Ask;
use ctx_snapshot::{Info, Limits, Reason, Workspace};

/// Bytes that do not get smaller when they are packed.
fn noise(seed: u64) -> String {
    let mut ids = IdSource::new(seed);
    (0..4000).map(|at| ids.next(Timestamp::from_millis(at * 7919)).to_string()).collect()
}

fn opened(world: &World, budget_bytes: u64) -> Workspace {
    let limits = Limits { budget_bytes, ..Limits::default() };
    world.limited(limits).open(&world.work, ANN, Rights::of(ANN).unwrap()).unwrap()
}

#[test]
fn the_oldest_snapshots_go_over_the_budget_and_none_that_a_checkpoint_needs() {
    let world = World::new();
    let mut taken: Vec<Info> = Vec::new();
    for n in 0..12 {
        world.write("file", &noise(n));
        world.give_to_ann();
        let ask = Ask { keep: n == 1, ..Ask::new(Reason::Asked) };
        taken.push(opened(&world, 400_000).take(ask).unwrap());
    }
    let workspace = opened(&world, 400_000);
    let left: Vec<Ulid> = workspace.infos().unwrap().iter().map(|info| info.id).collect();
    assert!(left.contains(&taken[1].id), "a checkpoint needs it");
    assert!(left.contains(&taken[11].id), "it was just taken");
    assert!(!left.contains(&taken[0].id) && !left.contains(&taken[2].id), "{left:?}");
    let bytes = world.snapshots().bytes().unwrap();
    assert!(bytes <= 400_000, "{bytes}");
    // What is left is whole.
    workspace.restore(&taken[1]).unwrap();
    assert_eq!(std::fs::read_to_string(world.work.join("file")).unwrap(), noise(1));
    let gone = workspace.info(taken[0].id).unwrap_err().to_string();
    assert!(gone.contains("removed to make room"), "{gone}");
}

#[test]
fn a_prune_removes_what_is_old_and_what_belongs_to_sessions_that_are_gone() {
    let world = World::new();
    let mut ids = IdSource::new(7);
    let (gone, held) = (ids.next(Timestamp::from_millis(1)), ids.next(Timestamp::from_millis(2)));
    let mut taken = Vec::new();
    for (n, (session, keep)) in
        [(Some(gone), true), (Some(held), true), (Some(held), false), (None, false)].into_iter().enumerate()
    {
        world.write("file", &n.to_string());
        world.give_to_ann();
        taken.push(world.open().take(Ask { session, keep, ..Ask::new(Reason::Asked) }).unwrap());
    }
    let left = || world.open().infos().unwrap().iter().map(|info| info.id).collect::<Vec<_>>();
    let prune = |before| {
        world
            .snapshots()
            .prune(None, before, &|session, _| session == gone, &|session, _| session == held)
            .unwrap()
    };
    assert_eq!(prune(Timestamp::from_millis(0)).snapshots, 1);
    assert_eq!(left(), [taken[1].id, taken[2].id, taken[3].id]);
    let pruned = prune(Timestamp::from_millis(u64::MAX / 2));
    assert!(pruned.snapshots == 1 && pruned.bytes > 0, "{pruned:?}");
    assert_eq!(left(), [taken[1].id, taken[2].id], "a rollback needs what the session did since");
    world.open().restore(&taken[2]).unwrap();
    assert_eq!(std::fs::read_to_string(world.work.join("file")).unwrap(), "2");
}

#[test]
fn what_one_user_keeps_takes_no_room_from_another() {
    let world = World::new();
    let (ann, bob) = (world.work.clone(), world.work.with_file_name("bob"));
    world.write("file", &noise(1));
    world.give_to_ann();
    let of_ann = opened(&world, 400_000).take(Ask::new(Reason::Asked)).unwrap();
    std::fs::create_dir(&bob).unwrap();
    std::os::unix::fs::chown(&bob, Some(ANN + 1), None).unwrap();
    let limits = Limits { budget_bytes: 400_000, ..Limits::default() };
    for n in 0..12 {
        std::fs::write(bob.join("file"), noise(100 + n)).unwrap();
        let theirs = world.limited(limits).open(&bob, ANN + 1, Rights::of(ANN + 1).unwrap()).unwrap();
        theirs.take(Ask { keep: true, ..Ask::new(Reason::Asked) }).unwrap();
    }
    let left = world.limited(limits).open(&ann, ANN, Rights::of(ANN).unwrap()).unwrap().infos().unwrap();
    assert_eq!(left.iter().map(|info| info.id).collect::<Vec<_>>(), [of_ann.id]);
}

#[test]
fn a_pipe_in_the_place_of_ignore_rules_keeps_nobody_waiting() {
    let world = World::new();
    world.write("file", "x");
    world.write(".git/info/more", "");
    let pipe = world.work.join(".git/info/exclude");
    rustix::fs::mkfifoat(rustix::fs::CWD, pipe, rustix::fs::Mode::from_raw_mode(0o644)).unwrap();
    world.give_to_ann();
    world.take();
}

#[test]
fn nothing_is_removed_while_a_snapshot_cannot_be_read() {
    let world = World::new();
    let mut taken = Vec::new();
    for n in 0..3 {
        world.write("file", &noise(n));
        world.give_to_ann();
        taken.push(world.take());
    }
    let store = std::fs::read_dir(world.dir.path().join("store")).unwrap().next().unwrap().unwrap().path();
    let line = store.join("snapshots").join(format!("{}.json", taken[2].id));
    let aside = store.join("aside");
    std::fs::rename(&line, &aside).unwrap();
    std::fs::create_dir(&line).unwrap();
    let after = Timestamp::from_millis(taken[1].created.as_millis() + 1);
    let prune = || world.snapshots().prune(None, after, &|_, _| false, &|_, _| false);
    let refused = prune().unwrap();
    assert!(refused.snapshots == 0 && refused.failed[0].contains(&taken[2].id.to_string()), "{refused:?}");
    std::fs::remove_dir(&line).unwrap();
    std::fs::rename(&aside, &line).unwrap();
    assert_eq!(world.open().infos().unwrap().len(), 3, "none of the others has gone either");
    assert_eq!(prune().unwrap().snapshots, 2);
    std::fs::remove_file(world.work.join("file")).unwrap();
    world.open().restore(&taken[2]).unwrap();
    assert_eq!(std::fs::read_to_string(world.work.join("file")).unwrap(), noise(2));
}

#[test]
fn what_a_killed_process_was_writing_is_removed_by_the_next_snapshot() {
    let world = World::new();
    world.take();
    let store = std::fs::read_dir(world.dir.path().join("store")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(store.join("tmp.0123"), noise(1)).unwrap();
    world.take();
    assert!(!store.join("tmp.0123").exists());
}

#[test]
fn content_that_was_damaged_in_the_store_is_written_again_when_it_is_met_again() {
    let world = World::new();
    world.write("a", "alpha");
    world.give_to_ann();
    let taken = world.take();
    let store = std::fs::read_dir(world.dir.path().join("store")).unwrap().next().unwrap().unwrap().path();
    let name = Hash::of(b"alpha").to_string();
    let object = store.join("objects").join(&name[..2]).join(&name[2..]);
    std::fs::write(&object, "").unwrap();
    world.write("b", "alpha");
    world.give_to_ann();
    world.take();
    std::fs::remove_file(world.work.join("a")).unwrap();
    world.open().restore(&taken).unwrap();
    assert_eq!(std::fs::read_to_string(world.work.join("a")).unwrap(), "alpha");
}

#[test]
fn a_damaged_store_does_not_keep_the_others_from_being_within_the_budget() {
    let world = World::new();
    let other = world.work.with_file_name("other");
    let mut taken = Vec::new();
    world.write("file", &noise(1));
    world.give_to_ann();
    taken.push(world.take());
    let store = std::fs::read_dir(world.dir.path().join("store")).unwrap().next().unwrap().unwrap().path();
    std::fs::write(store.join("snapshots").join(format!("{}.json", taken[0].id)), "{").unwrap();
    std::fs::create_dir(&other).unwrap();
    std::os::unix::fs::chown(&other, Some(ANN), None).unwrap();
    let limits = Limits { budget_bytes: 400_000, ..Limits::default() };
    let open = || world.limited(limits).open(&other, ANN, Rights::of(ANN).unwrap()).unwrap();
    for n in 0..12 {
        std::fs::write(other.join("file"), noise(100 + n)).unwrap();
        open().take(Ask::new(Reason::Asked)).unwrap();
    }
    let bytes = world.snapshots().bytes().unwrap();
    assert!(bytes <= 400_000 && !open().infos().unwrap().is_empty(), "{bytes}");
}

#[test]
fn damage_is_found() {
    let world = World::new();
    world.write("a", "alpha");
    world.give_to_ann();
    let taken = world.take();
    let damage = || {
        let found = world.snapshots().damage(&mut |_, _| ()).unwrap();
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(damage().is_empty());
    let store = std::fs::read_dir(world.dir.path().join("store")).unwrap().next().unwrap().unwrap().path();
    let name = Hash::of(b"alpha").to_string();
    std::fs::write(store.join("objects").join(&name[..2]).join(&name[2..]), "x").unwrap();
    std::fs::write(store.join("trees").join(&taken.tree), "x").unwrap();
    assert_eq!(damage().len(), 2, "{:?}", damage());
    std::fs::write(store.join("snapshots").join(format!("{}.json", taken.id)), "{").unwrap();
    let found = damage();
    assert!(found.len() == 2 && found[0].contains(&taken.id.to_string()), "{found:?}");
}
