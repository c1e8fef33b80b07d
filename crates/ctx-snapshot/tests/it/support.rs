//! A workspace with every kind of file, changed in every way, and an independent look at it.
#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on says why and stops")]

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};

use ctx_cage::rights::Rights;
use ctx_snapshot::workspace::Ask;
use ctx_snapshot::{Info, Limits, Reason, Snapshots, Workspace};

/// Files belong to this user, who is not root: a read-only directory stops them.
pub const ANN: u32 = 54_501;

pub struct World {
    pub dir: tempfile::TempDir,
    pub work: PathBuf,
}

impl World {
    pub fn new() -> World {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let work = dir.path().join("work");
        fs::create_dir(&work).unwrap();
        World { dir, work }
    }

    pub fn snapshots(&self) -> Snapshots {
        self.limited(Limits::default())
    }

    pub fn limited(&self, limits: Limits) -> Snapshots {
        Snapshots::new(self.dir.path().join("store"), Vec::new(), limits, Box::new(|_| true))
    }

    pub fn open(&self) -> Workspace {
        self.snapshots().open(&self.work, ANN, Rights::of(ANN).unwrap()).unwrap()
    }

    pub fn take(&self) -> Info {
        self.open().take(Ask::new(Reason::Asked)).unwrap()
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.work.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        // Every change has a millisecond of its own: snapshots are ordered by theirs.
        std::thread::sleep(std::time::Duration::from_millis(1));
    }

    pub fn mode(&self, path: &str, mode: u32) {
        fs::set_permissions(self.work.join(path), Permissions::from_mode(mode)).unwrap();
    }

    pub fn give_to_ann(&self) {
        own(&self.work);
    }

    /// Every kind of file that there is.
    pub fn fill(&self) {
        for (path, text) in [
            ("plain", "one\n"),
            ("changed", "before\n"),
            ("removed", "gone soon\n"),
            ("renamed", "the same\n"),
            ("moded", "#!/bin/sh\n"),
            ("readonly", "do not write\n"),
            ("secret", "nobody reads this\n"),
            ("file-then-dir", "a file\n"),
            ("dir-then-file/inner/deep", "deep\n"),
            ("dir-then-file/other", "other\n"),
            ("dir-then-link/x", "x\n"),
            (".gitignore", "*.log\nbuild/\n/local\n"),
            ("a.log", "ignored\n"),
            ("build/out", "ignored\n"),
            ("local", "ignored\n"),
            ("src/.gitignore", "!keep.log\n"),
            ("src/keep.log", "not ignored\n"),
            ("src/now-ignored.tmp", "will be ignored\n"),
            ("closed/inner", "in a read-only directory\n"),
            ("closed/goes", "too\n"),
            (".git/HEAD", "ref\n"),
            ("nested/.git/config", "nested\n"),
            ("nested/code", "nested code\n"),
            ("mixed/tracked", "tracked\n"),
            ("mixed/x.log", "ignored beside it\n"),
        ] {
            self.write(path, text);
        }
        fs::create_dir(self.work.join("empty")).unwrap();
        fs::create_dir(self.work.join("empty-gone")).unwrap();
        fs::write(self.work.join("binary"), [0, 255, 10, 13, 0, 1]).unwrap();
        fs::write(self.work.join(OsStr::from_bytes(b"not-\xff\xfe-text\n")), "odd name\n").unwrap();
        symlink("plain", self.work.join("link")).unwrap();
        symlink("/nowhere/at/all", self.work.join("dangling")).unwrap();
        symlink("src", self.work.join("link-to-dir")).unwrap();
        let outside = self.dir.path().join("outside");
        fs::write(&outside, "shared by two names\n").unwrap();
        fs::hard_link(&outside, self.work.join("hard")).unwrap();
        fs::hard_link(self.work.join("plain"), self.work.join("hard-inside")).unwrap();
        let sparse = File::create(self.work.join("sparse")).unwrap();
        sparse.write_all_at(b"end", 9 << 20).unwrap();
        let large: Vec<u8> = (0..(9u32 << 18)).flat_map(u32::to_le_bytes).collect();
        fs::write(self.work.join("large"), large).unwrap();
        let pipe = self.work.join("pipe");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        self.give_to_ann();
        self.mode("moded", 0o755);
        self.mode("readonly", 0o444);
        self.mode("secret", 0o000);
        self.mode("closed", 0o555);
    }

    /// Changes of every kind, by hand.
    pub fn mess_up(&self) {
        let at = |path: &str| self.work.join(path);
        self.write("changed", "after\n");
        fs::remove_file(at("removed")).unwrap();
        fs::rename(at("renamed"), at("renamed-to")).unwrap();
        self.mode("moded", 0o640);
        fs::remove_file(at("readonly")).unwrap();
        self.write("readonly", "written all the same\n");
        self.mode("readonly", 0o400);
        fs::remove_file(at("file-then-dir")).unwrap();
        self.write("file-then-dir/new", "now inside\n");
        fs::remove_dir_all(at("dir-then-file")).unwrap();
        self.write("dir-then-file", "a file now\n");
        fs::remove_dir_all(at("dir-then-link")).unwrap();
        symlink("/etc", at("dir-then-link")).unwrap();
        self.write("a.log", "ignored and changed\n");
        self.write("build/more", "ignored and new\n");
        self.write("src/now-ignored.tmp", "changed while ignored\n");
        self.write("src/.gitignore", "!keep.log\n*.tmp\n");
        self.write("src/untracked", "new\n");
        self.write(".git/HEAD", "another ref\n");
        self.write("nested/.git/config", "nested changed\n");
        self.write("nested/code", "nested code changed\n");
        fs::remove_file(at("mixed/tracked")).unwrap();
        self.write("mixed/y.log", "ignored and new\n");
        self.mode("closed", 0o755);
        self.write("closed/inner", "changed inside\n");
        fs::remove_file(at("closed/goes")).unwrap();
        self.write("closed/new", "new inside\n");
        self.mode("closed", 0o555);
        fs::remove_dir(at("empty-gone")).unwrap();
        fs::create_dir(at("empty-new")).unwrap();
        fs::write(at("binary"), [7, 7]).unwrap();
        fs::remove_file(self.work.join(OsStr::from_bytes(b"not-\xff\xfe-text\n"))).unwrap();
        fs::write(self.work.join(OsStr::from_bytes(b"also-\x80")), "odd too\n").unwrap();
        fs::remove_file(at("link")).unwrap();
        symlink("changed", at("link")).unwrap();
        fs::remove_file(at("link-to-dir")).unwrap();
        fs::create_dir(at("link-to-dir")).unwrap();
        fs::write(at("hard"), "changed through one name\n").unwrap();
        fs::write(at("sparse"), "dense now\n").unwrap();
        File::options().write(true).open(at("large")).unwrap().write_all_at(b"!", 5 << 20).unwrap();
        let (secret, closed) = (at("secret"), at("closed"));
        own(&self.work);
        fs::set_permissions(secret, Permissions::from_mode(0o000)).unwrap();
        fs::set_permissions(closed, Permissions::from_mode(0o555)).unwrap();
    }
}

fn own(path: &Path) {
    lchown(path, Some(ANN), Some(ANN)).expect("this test needs root");
    if path.is_dir() && !path.is_symlink() {
        for entry in fs::read_dir(path).unwrap() {
            own(&entry.unwrap().path());
        }
    }
}

/// All that is in a directory, ignored or not: kind, mode and content.
pub fn state(dir: &Path) -> BTreeMap<Vec<u8>, String> {
    let mut all = BTreeMap::new();
    visit(dir, dir, &mut |path, told, _| drop(all.insert(path, told)));
    all
}

/// What a file is besides that: it tells whether someone touched it.
pub fn touched(dir: &Path) -> BTreeMap<Vec<u8>, (u64, i64, i64)> {
    let mut all = BTreeMap::new();
    visit(dir, dir, &mut |path, _, data| {
        if !data.is_dir() {
            all.insert(path, (data.ino(), data.mtime(), data.mtime_nsec()));
        }
    });
    all
}

fn visit(top: &Path, dir: &Path, tell: &mut dyn FnMut(Vec<u8>, String, &fs::Metadata)) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let data = path.symlink_metadata().unwrap();
        let name = path.strip_prefix(top).unwrap().as_os_str().as_bytes().to_vec();
        let mode = data.mode() & 0o7777;
        let told = if data.is_symlink() {
            format!("link {}", fs::read_link(&path).unwrap().display())
        } else if data.is_dir() {
            format!("dir {mode:o}")
        } else if data.is_file() {
            let bytes = fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(bytes.get(..40).unwrap_or(&bytes)).into_owned();
            format!("file {mode:o} {} {} {text:?}", bytes.len(), ctx_snapshot::tree::Hash::of(&bytes))
        } else {
            format!("other {mode:o}")
        };
        tell(name, told, &data);
        if data.is_dir() {
            visit(top, &path, tell);
        }
    }
}
