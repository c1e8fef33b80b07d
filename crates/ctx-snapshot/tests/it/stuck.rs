//! Paths that cannot be changed: they are kept, and the restore of the others ends.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says why and stops")]

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::chown;

use super::support::{ANN, World, state};
use ctx_cage::rights::Rights;
use ctx_snapshot::files::{Files, Found, Stat, Walk, WalkOptions};
use ctx_snapshot::local::Local;
use ctx_snapshot::store::{About, Store};
use ctx_snapshot::workspace::Ask;
use ctx_snapshot::{Reason, Report, Snapshots, Workspace};
use rustix::io::Errno;

/// Files of which one cannot be replaced or removed, and where nothing else can be done after so many changes.
struct Stuck {
    files: Local,
    path: &'static [u8],
    errno: Option<Errno>,
    is_killed: bool,
}

impl Stuck {
    fn refuse(&self, path: &[u8]) -> io::Result<()> {
        match self.errno {
            Some(errno) if path == self.path => Err(errno.into()),
            _ if self.is_killed => Err(io::Error::other("killed")),
            _ => Ok(()),
        }
    }
}

impl Files for Stuck {
    fn walk(&self, options: WalkOptions<'_>) -> io::Result<Walk> {
        self.files.walk(options)
    }
    fn open(&self, path: &[u8]) -> io::Result<(Box<dyn Read>, Stat)> {
        match self.errno {
            Some(Errno::NOTCONN) if path == self.path => Err(Errno::NOTCONN.into()),
            _ => self.files.open(path),
        }
    }
    fn look(&self, path: &[u8]) -> io::Result<Option<Found>> {
        self.files.look(path)
    }
    fn write(&self, path: &[u8], mode: u32, content: &mut dyn Read) -> io::Result<()> {
        self.files.write(path, mode, content)
    }
    fn link(&self, path: &[u8], target: &[u8]) -> io::Result<()> {
        self.files.link(path, target)
    }
    fn rename(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        self.refuse(to).and_then(|()| self.files.rename(from, to))
    }
    fn make_dir(&self, path: &[u8], mode: u32) -> io::Result<()> {
        self.refuse(path).and_then(|()| self.files.make_dir(path, mode))
    }
    fn remove(&self, path: &[u8], is_dir: bool) -> io::Result<()> {
        self.refuse(path).and_then(|()| self.files.remove(path, is_dir))
    }
    fn set_mode(&self, dir: &[u8], mode: u32) -> io::Result<()> {
        self.files.set_mode(dir, mode)
    }
    fn sync(&self) -> io::Result<()> {
        self.files.sync()
    }
}

fn over(world: &World, snapshots: &Snapshots, path: &'static [u8], errno: Option<Errno>) -> Workspace {
    let store = fs::read_dir(snapshots.dir()).unwrap().next().unwrap().unwrap().path();
    let about = About { path: world.work.clone(), uid: ANN };
    let files = Local::open(&world.work, Rights::of(ANN).unwrap(), &[]).unwrap();
    let files = Stuck { files, path, errno, is_killed: errno.is_none() };
    snapshots.over(Store::open(store, about).unwrap(), Box::new(files))
}

fn kept(report: &Report) -> Vec<String> {
    report.kept.iter().map(|kept| format!("{} {}", String::from_utf8_lossy(&kept.path.0), kept.why)).collect()
}

fn read(world: &World, path: &str) -> String {
    fs::read_to_string(world.work.join(path)).unwrap()
}

fn nothing_is_staged(world: &World) {
    assert!(!state(&world.work).keys().any(|path| path.windows(5).any(|part| part == b".ctx-")));
}

#[test]
fn a_directory_of_someone_else_is_kept_and_the_others_go_back() {
    let world = World::new();
    world.write("a", "1");
    world.write("theirs/x", "1");
    world.write("theirs/gone", "1");
    world.give_to_ann();
    let taken = world.take();
    world.write("a", "2");
    world.write("new", "2");
    fs::remove_file(world.work.join("theirs/gone")).unwrap();
    world.write("theirs/x", "2");
    world.write("theirs/y", "2");
    world.give_to_ann();
    for path in ["theirs", "theirs/x", "theirs/y"] {
        chown(world.work.join(path), Some(0), Some(0)).unwrap();
    }
    let done = world.open().restore(&taken).unwrap();
    let why = "it cannot be changed: permission denied";
    let expected = ["theirs/gone", "theirs/x", "theirs/y"].map(|path| format!("{path} {why}"));
    assert_eq!(kept(&done.report), expected);
    assert_eq!(done.report.changed.len(), 2, "{:?}", done.report);
    assert_eq!((read(&world, "a"), read(&world, "theirs/x")), ("1".to_owned(), "2".to_owned()));
    assert!(!world.work.join("new").exists() && world.work.join("theirs/y").exists());
    nothing_is_staged(&world);
    // It is over: the next one changes nothing but what it says.
    chown(world.work.join("theirs"), Some(ANN), Some(ANN)).unwrap();
    world.take();
    assert_eq!(read(&world, "theirs/x"), "2");
    world.open().restore(&done.undo).unwrap();
    assert_eq!(read(&world, "a"), "2");
}

#[test]
fn a_path_that_cannot_be_changed_is_kept_whatever_the_reason() {
    for errno in [Errno::ACCESS, Errno::PERM, Errno::BUSY, Errno::ROFS, Errno::TXTBSY, Errno::NAMETOOLONG] {
        let world = World::new();
        world.write("a", "1");
        world.write("m", "1");
        world.give_to_ann();
        let taken = world.take();
        world.write("a", "2");
        world.write("m", "2");
        world.write("dir/z", "2");
        world.give_to_ann();
        let snapshots = world.snapshots();
        for path in [b"m".as_slice(), b"dir"] {
            let stuck = over(&world, &snapshots, path, Some(errno));
            let done = stuck.restore(&taken).unwrap();
            assert_eq!(done.report.kept.len(), 1, "{errno}: {:?}", done.report);
            assert_eq!(done.report.kept[0].path.0, path);
            assert_eq!(read(&world, "a"), "1");
            nothing_is_staged(&world);
            world.open().restore(&done.undo).unwrap();
            assert_eq!((read(&world, "a"), read(&world, "dir/z")), ("2".to_owned(), "2".to_owned()));
        }
    }
}

#[test]
fn a_restore_that_was_cut_short_ends_though_a_path_cannot_be_changed() {
    let world = World::new();
    world.write("a", "1");
    world.write("m", "1");
    world.give_to_ann();
    let taken = world.take();
    world.write("a", "2");
    world.write("m", "2");
    world.give_to_ann();
    let snapshots = world.snapshots();
    over(&world, &snapshots, b"", None).restore(&taken).unwrap_err();
    over(&world, &snapshots, b"m", Some(Errno::PERM)).recover().unwrap();
    assert_eq!((read(&world, "a"), read(&world, "m")), ("1".to_owned(), "2".to_owned()));
    nothing_is_staged(&world);
    // Nothing is left to be done days later.
    world.write("a", "by hand");
    world.open().recover().unwrap();
    assert_eq!((read(&world, "a"), read(&world, "m")), ("by hand".to_owned(), "2".to_owned()));
}

#[test]
fn a_path_that_is_too_long_is_left_out_and_holds_up_nothing() {
    let world = World::new();
    world.write("a", "1");
    world.give_to_ann();
    let taken = world.take();
    world.write("a", "2");
    world.write("z", "2");
    let made = std::process::Command::new("sh")
        .arg("-c")
        .arg("n=$(printf %0100d 0); for i in $(seq 36); do mkdir \"$n\" && cd \"$n\" || exit 1; done; echo x >deep")
        .current_dir(&world.work)
        .status();
    assert!(made.unwrap().success());
    for path in ["a", "z", &"0".repeat(100)] {
        chown(world.work.join(path), Some(ANN), Some(ANN)).unwrap();
    }
    let done = world.open().restore(&taken).unwrap();
    assert_eq!(read(&world, "a"), "1");
    assert!(!world.work.join("z").exists());
    assert!(
        kept(&done.report).iter().any(|kept| kept.ends_with("holds files that stay")),
        "{:?}",
        done.report
    );
    assert!(
        world.open().tree(&done.undo).unwrap().left_out.values().any(|why| why == "its path is too long")
    );
    world.open().restore(&done.undo).unwrap();
    assert_eq!((read(&world, "a"), read(&world, "z")), ("2".to_owned(), "2".to_owned()));
    let removed = std::process::Command::new("rm").arg("-rf").arg(&world.work).status();
    assert!(removed.unwrap().success());
}

#[test]
fn no_snapshot_is_kept_of_files_that_cannot_be_reached_any_more() {
    let world = World::new();
    world.write("a", "1");
    world.write("m", "1");
    world.give_to_ann();
    let snapshots = world.snapshots();
    snapshots.open(&world.work, ANN, Rights::of(ANN).unwrap()).unwrap();
    let lost = over(&world, &snapshots, b"m", Some(Errno::NOTCONN));
    let error = lost.take(Ask::new(Reason::Asked)).unwrap_err();
    assert_eq!(error.code().name(), "EHOSTDOWN", "{error}");
    assert!(lost.infos().unwrap().is_empty());
}

#[test]
fn a_directory_that_cannot_be_looked_into_holds_up_nothing_and_its_mode_goes_back() {
    for mode in [0o644, 0o300, 0o000] {
        let world = World::new();
        world.write("d/x", "1");
        world.write("top", "1");
        world.give_to_ann();
        let taken = world.take();
        world.write("top", "2");
        world.give_to_ann();
        world.mode("d", mode);
        let workspace = world.open();
        let after = world.take();
        assert_eq!(workspace.tree(&after).unwrap().left_out.keys().collect::<Vec<_>>(), [b"d"]);
        let changed = workspace.between(&taken, &after).unwrap().changed;
        let changed: Vec<_> = changed.iter().map(|changed| changed.path.0.as_slice()).collect();
        assert_eq!(changed, [b"d".as_slice(), b"top"], "what is in it is not known to be gone");
        let done = workspace.restore(&taken).unwrap();
        assert_eq!(kept(&done.report), ["d/x what is there now cannot be saved first"]);
        assert_eq!((read(&world, "top"), read(&world, "d/x")), ("1".to_owned(), "1".to_owned()));
        assert!(workspace.since(&taken).unwrap().changed.is_empty(), "{mode:o}: the mode is back");
        // And forward again.
        workspace.restore(&done.undo).unwrap();
        assert_eq!(read(&world, "top"), "2");
        assert!(workspace.tree(&world.take()).unwrap().left_out.contains_key(b"d".as_slice()), "{mode:o}");
    }
}
