//! Restores that are cut short at every step, by a kill or by a full disk.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says why and stops")]

use std::fs;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::support::{ANN, World, state};
use ctx_cage::rights::Rights;
use ctx_snapshot::files::{Files, Found, Stat, Walk, WalkOptions};
use ctx_snapshot::local::Local;
use ctx_snapshot::plan::{Guard, Wish, Wishes};
use ctx_snapshot::store::{About, Store};
use ctx_snapshot::workspace::Ask;
use ctx_snapshot::{Info, Limits, Reason, Snapshots, Tree, Workspace};
use testkit::{SmallDisk, rounds};

/// Files that, after so many changes, answer nothing but errors: as if the process had been killed.
struct Cut {
    files: Local,
    left: Arc<AtomicUsize>,
}

impl Cut {
    fn next(&self) -> io::Result<()> {
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1));
        left.map(drop).map_err(|_| io::Error::other("killed"))
    }
}

impl Files for Cut {
    fn walk(&self, options: WalkOptions<'_>) -> io::Result<Walk> {
        self.files.walk(options)
    }
    fn open(&self, path: &[u8]) -> io::Result<(Box<dyn Read>, Stat)> {
        self.files.open(path)
    }
    fn look(&self, path: &[u8]) -> io::Result<Option<Found>> {
        self.files.look(path)
    }
    fn write(&self, path: &[u8], mode: u32, content: &mut dyn Read) -> io::Result<()> {
        if self.next().is_err() {
            // Cut in the middle of a file.
            self.files.write(path, 0o600, &mut content.take(3))?;
            return Err(io::Error::other("killed"));
        }
        self.files.write(path, mode, content)
    }
    fn link(&self, path: &[u8], target: &[u8]) -> io::Result<()> {
        self.next().and_then(|()| self.files.link(path, target))
    }
    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        self.next().and_then(|()| self.files.rename(from, to))
    }
    fn make_dir(&self, path: &[u8], mode: u32) -> io::Result<()> {
        self.next().and_then(|()| self.files.make_dir(path, mode))
    }
    fn remove(&self, path: &[u8], is_dir: bool) -> io::Result<()> {
        self.next().and_then(|()| self.files.remove(path, is_dir))
    }
    fn set_mode(&self, dir: &[u8], mode: u32) -> io::Result<()> {
        self.next().and_then(|()| self.files.set_mode(dir, mode))
    }
    fn sync(&self) -> io::Result<()> {
        self.next().and_then(|()| self.files.sync())
    }
}

/// The world's workspace, over files that are cut off after some changes.
fn cut(world: &World, snapshots: &Snapshots, left: usize) -> (Workspace, Arc<AtomicUsize>) {
    let store = fs::read_dir(snapshots.dir()).unwrap().next().unwrap().unwrap().path();
    let about = About { path: world.work.clone(), uid: ANN };
    let rights = Rights::of(ANN).unwrap();
    let left = Arc::new(AtomicUsize::new(left));
    let files = Cut { files: Local::open(&world.work, rights, &[]).unwrap(), left: Arc::clone(&left) };
    (snapshots.over(Store::open(store, about).unwrap(), Box::new(files)), left)
}

struct Scene {
    world: World,
    _disk: SmallDisk,
    taken: Info,
    before: std::collections::BTreeMap<Vec<u8>, String>,
}

/// Files in memory, so that a sync costs nothing.
fn scene() -> Scene {
    let world = World::new();
    let disk = SmallDisk::mount(world.dir.path(), 300 << 10);
    fs::create_dir(&world.work).unwrap();
    world.fill();
    let taken = world.take();
    world.mess_up();
    let before = state(&world.work);
    Scene { world, _disk: disk, taken, before }
}

#[test]
fn a_restore_that_is_killed_at_any_step_is_finished_or_taken_back_by_the_next_one() {
    let (mut finished, mut taken_back) = (0, 0);
    let Scene { world, _disk, taken, before } = scene();
    let workspace = world.open();
    let whole = workspace.restore(&taken).unwrap();
    let after = state(&world.work);
    workspace.restore(&whole.undo).unwrap();
    assert_eq!(state(&world.work), before);
    // Every step where there is time for it (`make test-long`), else every third.
    let stride = if rounds(1).end > 1 { 1 } else { 3 };
    for n in (0..).step_by(stride) {
        let snapshots = world.snapshots();
        let (cut, left) = cut(&world, &snapshots, n);
        let ended = cut.restore(&taken);
        let was_killed = left.load(Ordering::SeqCst) == 0 && ended.is_err();
        drop(cut);
        world.open().recover().unwrap();
        let now = state(&world.work);
        if now == before {
            taken_back += 1;
        } else {
            assert_eq!(now, after, "killed after {n} changes");
            finished += 1;
            let undo =
                world.open().infos().unwrap().into_iter().rev().find(|info| info.files == whole.undo.files);
            world.open().restore(&undo.unwrap()).unwrap();
            assert_eq!(state(&world.work), before, "killed after {n} changes, finished, undone");
        }
        if !was_killed {
            break;
        }
    }
    assert!(
        finished * stride > 20 && taken_back * stride > 10,
        "{finished} finished, {taken_back} taken back"
    );
}

#[test]
fn a_killed_restore_is_finished_where_ignored_files_are_part_of_it() {
    let world = World::new();
    let _disk = SmallDisk::mount(&world.work, 20 << 10);
    world.write(".gitignore", "build/\n");
    world.write("a", "1");
    world.give_to_ann();
    let take = || world.open().take(Ask { with_ignored: true, ..Ask::new(Reason::Asked) }).unwrap();
    let taken = take();
    let after = state(&world.work);
    world.write("a", "2");
    world.write("build/deep/out", "2");
    world.write("build/more", "2");
    world.give_to_ann();
    let before = state(&world.work);
    let messed = take();
    let mut finished = 0;
    for n in 0.. {
        let snapshots = world.snapshots();
        let (cut, left) = cut(&world, &snapshots, n);
        let ended = cut.restore(&taken);
        let was_killed = left.load(Ordering::SeqCst) == 0 && ended.is_err();
        drop(cut);
        world.open().recover().unwrap();
        let now = state(&world.work);
        finished += usize::from(now == after);
        assert!(now == after || now == before, "killed after {n} changes: {now:?}");
        world.open().restore(&messed).unwrap();
        assert_eq!(state(&world.work), before);
        if !was_killed {
            break;
        }
    }
    assert!(finished > 3, "{finished}");
}

#[test]
fn the_end_of_a_restore_is_killed_too_and_what_was_edited_meanwhile_is_kept() {
    let Scene { world, _disk, taken, .. } = scene();
    let snapshots = world.snapshots();
    let (first, _) = cut(&world, &snapshots, 40);
    assert!(first.restore(&taken).is_err());
    drop(first);
    world.write("changed", "by hand, after the crash\n");
    world.write("quite-new", "by hand, too\n");
    world.give_to_ann();
    let (mut n, mut rounds) = (0, 0);
    loop {
        let (again, _) = cut(&world, &snapshots, n);
        if again.recover().is_ok() {
            break;
        }
        n += 3;
        rounds += 1;
    }
    assert!(rounds > 3, "{rounds}");
    let read = |path: &str| fs::read_to_string(world.work.join(path)).unwrap();
    assert_eq!(read("changed"), "by hand, after the crash\n");
    assert_eq!(read("quite-new"), "by hand, too\n");
    assert_eq!(read("removed"), "gone soon\n");
    assert!(!state(&world.work).keys().any(|path| path.windows(5).any(|part| part == b".ctx-")));
}

#[test]
fn a_full_disk_refuses_a_restore_before_anything_has_changed() {
    let world = World::new();
    let disk = SmallDisk::mount(&world.work, 20 << 10);
    world.write(".gitignore", "ballast\n");
    world.write("moded", "1");
    fs::write(world.work.join("large"), vec![7; 9 << 20]).unwrap();
    world.give_to_ann();
    let taken = world.take();
    fs::remove_file(world.work.join("large")).unwrap();
    world.mode("moded", 0o600);
    disk.fill();
    world.give_to_ann();
    let before = state(&world.work);
    let error = world.open().restore(&taken).unwrap_err();
    assert_eq!(error.code(), ctx_session::Code::Enospc, "{error}");
    assert_eq!(state(&world.work), before);
    disk.free();
    let done = world.open().restore(&taken).unwrap();
    assert_eq!(done.report.changed.len(), 2);
    assert_eq!(fs::metadata(world.work.join("large")).unwrap().len(), 9 << 20);
}

/// Large content is written by threads of its own: what goes wrong there reaches whoever asked.
#[test]
fn a_store_without_room_for_large_content_keeps_nothing_of_it() {
    let world = World::new();
    let store = world.dir.path().join("store");
    let _disk = SmallDisk::mount(&store, 3 << 10);
    let noise = |bytes: usize| -> Vec<u8> {
        let mut state = 1u64;
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
        .take(bytes)
        .collect()
    };
    fs::write(world.work.join("large"), noise(7 << 20)).unwrap();
    world.give_to_ann();
    let error = world.open().take(Ask::new(Reason::Asked)).unwrap_err();
    assert_eq!(error.code(), ctx_session::Code::Enospc, "{error}");
    assert!(world.open().infos().unwrap().is_empty());
    let left = state(&store).into_keys().filter(|path| path.windows(4).any(|part| part == b"tmp."));
    assert_eq!(left.count(), 0);
    fs::write(world.work.join("large"), noise(2 << 20)).unwrap();
    world.give_to_ann();
    let taken = world.take();
    fs::remove_file(world.work.join("large")).unwrap();
    world.open().restore(&taken).unwrap();
    assert_eq!(fs::read(world.work.join("large")).unwrap(), noise(2 << 20));
}

#[test]
fn a_restore_for_a_session_waits_for_its_record() {
    let world = World::new();
    world.write("a", "1");
    world.give_to_ann();
    let open = |is_recorded: bool| {
        let store = world.dir.path().join("store");
        let snapshots = Snapshots::new(store, Vec::new(), Limits::default(), Box::new(move |_| is_recorded));
        snapshots.open(&world.work, ANN, Rights::of(ANN).unwrap()).unwrap()
    };
    let workspace = open(false);
    let tree = workspace.tree(&world.take()).unwrap();
    let mut want = tree.nodes.clone();
    world.write("b", "2");
    world.give_to_ann();
    let second = workspace.tree(&world.take()).unwrap();
    let session: ctx_session::Ulid = "01ARZ3NDEKTSV4RRFFQ69G5FAV".parse().unwrap();
    let wish = Wish { want: None, guard: Guard::Is(second.get(b"b").cloned()) };
    let wishes = Wishes::from([
        (b"b".to_vec(), wish),
        (b"c".to_vec(), Wish { want: want.remove(b"a".as_slice()), guard: Guard::Always }),
    ]);
    for (is_recorded, is_done) in [(false, false), (true, true)] {
        let ask = Ask { session: Some(session), ..Ask::new(Reason::BeforeRestore) };
        let (prepared, _) = workspace.prepare(&wishes, &Tree::default(), ask, true).unwrap();
        assert_eq!(prepared.report().changed.len(), 2);
        // Killed here: nothing was done yet.
        drop(prepared);
        assert!(world.work.join("b").exists() && !world.work.join("c").exists());
        open(is_recorded).recover().unwrap();
        assert_eq!(world.work.join("c").exists(), is_done);
        assert_eq!(!world.work.join("b").exists(), is_done);
    }
}
