//! Exactly the promised files change.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use super::support::{ANN, World, state, touched};
use ctx_cage::rights::Rights;
use ctx_snapshot::tree::shown;
use ctx_snapshot::workspace::Ask;
use ctx_snapshot::{Info, Reason};

/// What the snapshot ignored, and what is in no snapshot.
const NOT_PART: [&str; 11] = [
    "a.log",
    "build",
    "build/out",
    "build/more",
    "local",
    ".git/HEAD",
    "nested/.git/config",
    "mixed/x.log",
    "mixed/y.log",
    "secret",
    "pipe",
];

#[test]
fn a_restore_brings_every_kind_of_file_back_and_its_undo_brings_back_the_rest() {
    let world = World::new();
    world.fill();
    let first = state(&world.work);
    let taken = world.take();
    world.mess_up();
    let second = state(&world.work);
    let (before, outside) = (touched(&world.work), fs::read(world.dir.path().join("outside")).unwrap());

    let workspace = world.open();
    let preview = workspace.preview(&taken).unwrap();
    assert_eq!(state(&world.work), second, "a look changes nothing");
    let done = workspace.restore(&taken).unwrap();
    assert_eq!(done.report, preview, "what was said would happen is what happened");

    let is_part = |path: &Vec<u8>| !NOT_PART.contains(&shown(path).as_str());
    let parts = |state: &BTreeMap<Vec<u8>, String>| -> BTreeMap<Vec<u8>, String> {
        state.iter().filter(|(path, _)| is_part(path)).map(|(a, b)| (a.clone(), b.clone())).collect()
    };
    let now = state(&world.work);
    assert_eq!(parts(&now), parts(&first), "all that the snapshot had is back");
    for path in second.keys().filter(|path| !is_part(path)) {
        assert_eq!(now.get(path), second.get(path), "{} was not part of it", shown(path));
    }
    let changed: BTreeSet<Vec<u8>> =
        done.report.changed.iter().map(|changed| changed.path.0.clone()).collect();
    for (path, was) in &before {
        if !changed.contains(path) {
            assert_eq!(touched(&world.work).get(path), Some(was), "{} was touched", shown(path));
        }
    }
    assert_eq!(
        fs::read(world.dir.path().join("outside")).unwrap(),
        outside,
        "another name of a file outside"
    );
    let sparse = fs::metadata(world.work.join("sparse")).unwrap();
    assert!(sparse.blocks() * 512 < sparse.len() / 2, "holes stay holes");

    let undone = workspace.restore(&done.undo).unwrap();
    assert_eq!(state(&world.work), second, "the undo brings everything back");
    let again = world.open().restore(&undone.undo).unwrap();
    assert_eq!(parts(&state(&world.work)), parts(&first));
    assert_eq!(again.report.changed, done.report.changed);
    let trees: BTreeSet<String> =
        world.open().infos().unwrap().into_iter().map(|Info { tree, .. }| tree).collect();
    assert_eq!(trees.len(), 2, "there are only two states, and each has one tree");
}

#[test]
fn every_name_of_a_file_has_its_content_back() {
    let world = World::new();
    world.write("a", "one\n");
    world.give_to_ann();
    fs::hard_link(world.work.join("a"), world.work.join("b")).unwrap();
    let taken = world.take();
    world.write("a", "two\n");
    fs::hard_link(world.work.join("a"), world.work.join("new")).unwrap();
    let report = world.open().restore(&taken).unwrap().report;
    assert_eq!((report.changed.len(), report.kept.len()), (3, 0), "{report:?}");
    let read = |name: &str| fs::read_to_string(world.work.join(name)).ok();
    assert_eq!((read("a").as_deref(), read("b").as_deref()), (Some("one\n"), Some("one\n")));
    assert_eq!(read("new"), None);
}

#[test]
fn an_unchanged_tree_is_read_once_and_a_change_is_seen_however_it_is_hidden() {
    let world = World::new();
    world.write("a", "one\n");
    world.write("b", "two\n");
    world.give_to_ann();
    let first = world.take();
    // The same size and the same time.
    let path = world.work.join("a");
    let time = fs::metadata(&path).unwrap().modified().unwrap();
    fs::write(&path, "ONE\n").unwrap();
    fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
    let second = world.take();
    assert_ne!(first.tree, second.tree);
    assert_eq!(world.take().tree, second.tree);
    let told = world.open().since(&first).unwrap();
    assert_eq!(told.changed.iter().map(|changed| shown(&changed.path.0)).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn ignored_files_are_part_when_that_is_asked_for_and_git_never_is() {
    let world = World::new();
    world.write(".gitignore", "*.log\n");
    world.write("a.log", "1\n");
    world.write(".git/HEAD", "x\n");
    world.give_to_ann();
    let taken = world.open().take(Ask { with_ignored: true, ..Ask::new(Reason::Asked) }).unwrap();
    assert_eq!(taken.files, 2);
    world.write("a.log", "2\n");
    world.write("b.log", "2\n");
    world.write(".git/HEAD", "y\n");
    world.give_to_ann();
    let report = world.open().restore(&taken).unwrap().report;
    let paths: Vec<String> = report.changed.iter().map(|changed| shown(&changed.path.0)).collect();
    assert_eq!(paths, ["a.log", "b.log"]);
    assert_eq!(fs::read_to_string(world.work.join(".git/HEAD")).unwrap(), "y\n");
}

#[test]
fn a_repository_s_rules_hold_in_a_workspace_inside_it() {
    let world = World::new();
    world.write(".git/info/exclude", "mine\n");
    world.write(".gitignore", "/sub/out\n*.o\n");
    world.write("sub/mine", "1");
    world.write("sub/out/x", "1");
    world.write("sub/a.o", "1");
    world.write("sub/a.c", "1");
    world.give_to_ann();
    let rights = Rights::of(ANN).unwrap();
    let workspace = world.snapshots().open(&world.work.join("sub"), ANN, rights).unwrap();
    let taken = workspace.take(Ask::new(Reason::Asked)).unwrap();
    let tree = workspace.tree(&taken).unwrap();
    assert_eq!(tree.nodes.keys().map(|path| shown(path)).collect::<Vec<_>>(), ["a.c"]);
    // The rules of then hold, also when the file is gone.
    fs::remove_file(world.work.join(".gitignore")).unwrap();
    assert!(workspace.restore(&taken).unwrap().report.changed.is_empty());
    assert!(world.work.join("sub/out/x").exists());
}

#[test]
fn what_cannot_be_a_workspace_is_refused_with_the_reason() {
    let world = World::new();
    let snapshots = world.snapshots();
    let home = nix::unistd::User::from_uid(0.into()).unwrap().unwrap().dir;
    fs::write(world.work.join("file"), "").unwrap();
    for (path, why) in [
        ("/".into(), "root of the file system"),
        (home, "home directory"),
        ("relative".into(), "absolute"),
        (world.work.join("file"), "not a directory"),
        (world.work.join("none"), "No such file"),
    ] {
        let refused = snapshots.open(&path, 0, Rights::own()).err().unwrap().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    // The store itself is never part of a snapshot.
    let around = snapshots.open(world.dir.path(), 0, Rights::own()).unwrap();
    let tree = around.tree(&around.take(Ask::new(Reason::Asked)).unwrap()).unwrap();
    assert!(tree.nodes.contains_key(b"work".as_slice()) && !tree.nodes.contains_key(b"store".as_slice()));
}

#[test]
fn the_undo_of_a_restore_is_exact_where_the_ignore_rules_were_changed() {
    let world = World::new();
    world.write(".gitignore", "*.log\n");
    world.write("n.txt", "1");
    world.write("dir/n.txt", "1");
    world.give_to_ann();
    let taken = world.take();
    world.write(".gitignore", "*.txt\n");
    world.write("mine.txt", "ignored and new");
    fs::remove_file(world.work.join("n.txt")).unwrap();
    fs::remove_dir_all(world.work.join("dir")).unwrap();
    world.give_to_ann();
    let before = state(&world.work);
    let done = world.open().restore(&taken).unwrap();
    assert!(world.work.join("n.txt").exists() && world.work.join("dir/n.txt").exists());
    world.open().restore(&done.undo).unwrap();
    assert_eq!(state(&world.work), before);
}

#[test]
fn what_a_newer_gitignore_names_goes_too_where_the_snapshot_did_not_ignore_it() {
    let world = World::new();
    world.write("a", "1");
    world.give_to_ann();
    let taken = world.take();
    world.write(".gitignore", "*.o\nmodules/\n");
    world.write("x.o", "object");
    world.write("modules/one/file", "module");
    world.give_to_ann();
    let before = state(&world.work);
    let preview = world.open().preview(&taken).unwrap();
    let done = world.open().restore(&taken).unwrap();
    assert_eq!(preview, done.report);
    assert_eq!(state(&world.work).into_keys().collect::<Vec<_>>(), [b"a".to_vec()]);
    world.open().restore(&done.undo).unwrap();
    assert_eq!(state(&world.work), before);
}
