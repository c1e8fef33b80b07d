//! What only a real file system shows: links, modes, locks between processes, a full disk.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

use ctx_journal::{FileJournal, Journal, LogPath, Owner};

use crate::support::*;

#[test]
fn no_link_leads_out_of_the_root_or_elsewhere_in_it() {
    let (dir, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let journal = real(dir.path());
    drop(create(&journal));
    let session = dir.path().join(log().dir());
    // A link in place of a directory on the way, and in place of the log itself.
    symlink(outside.path(), dir.path().join("planted")).unwrap();
    symlink(session.join("events.jsonl"), dir.path().join("link.jsonl")).unwrap();
    let through = LogPath::new("planted/events.jsonl").unwrap();
    assert!(journal.create(&through, me(), at(0), &meta()).is_err());
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    assert!(journal.head(&LogPath::new("link.jsonl").unwrap()).is_err());
    assert_eq!(journal.list("").unwrap(), [log()], "links are not followed by lists either");
}

#[test]
fn files_are_the_owners_alone() {
    let dir = tempfile::tempdir().unwrap();
    let journal = real(dir.path());
    let writer = create(&journal);
    journal.put_blob(&log(), b"x").unwrap();
    drop(writer);
    let file = dir.path().join(PATH);
    let mut torn = fs::read(&file).unwrap();
    torn.extend(b"torn");
    fs::write(&file, torn).unwrap();
    drop(open(&journal).unwrap());
    let mut pending = vec![dir.path().join("home")];
    let mut files = 0;
    while let Some(path) = pending.pop() {
        let stat = fs::metadata(&path).unwrap();
        let mode = stat.permissions().mode() & 0o7777;
        assert_eq!(mode, if stat.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
        files += u32::from(stat.is_file());
        if stat.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert_eq!(files, 3, "the log, its torn tail and the blob");
}

/// Does something as another user: the ids of one thread alone are changed. Root alone can.
fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    use rustix::process::{Gid, Uid};
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            rustix::thread::set_thread_groups(&[]).unwrap();
            rustix::thread::set_thread_res_gid(Gid::from_raw(uid), Gid::from_raw(uid), Gid::from_raw(uid))
                .unwrap();
            rustix::thread::set_thread_res_uid(Uid::from_raw(uid), Uid::from_raw(uid), Uid::from_raw(uid))
                .unwrap();
            work()
        });
        other.join().unwrap()
    })
}

#[test]
fn files_stay_the_daemons_and_their_user_reads_them_and_nothing_more() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let journal = real(dir.path());
    let log = LogPath::new("u/s/events.jsonl").unwrap();
    drop(journal.create(&log, Owner::user(1234, 2345), at(0), &meta()).unwrap());
    let blob = journal.put_blob(&log, b"x").unwrap();
    let moved = LogPath::new("u/t/events.jsonl").unwrap();
    journal.rename(&log, &moved).unwrap();
    let blob = format!("u/t/blobs/sha256-{}", blob.sha256);
    for path in ["u", "u/t", "u/t/blobs", "u/t/events.jsonl", &blob] {
        let path = dir.path().join(path);
        let stat = fs::metadata(&path).unwrap();
        assert_eq!((stat.uid(), stat.gid()), (me().uid, me().gid), "{}", path.display());
        let mode = stat.permissions().mode() & 0o7777;
        assert_eq!(
            mode,
            if stat.is_dir() { 0o750 } else { 0o640 },
            "the group's bits are the mask of the ACL"
        );
        let reads = |uid| {
            as_user(uid, || if path.is_dir() { fs::read_dir(&path).is_ok() } else { fs::read(&path).is_ok() })
        };
        assert_eq!((reads(1234), reads(1235), reads(2345)), (true, false, false), "{}", path.display());
        let spoils = as_user(1234, || match path.is_dir() {
            true => fs::write(path.join("planted"), "x").is_ok(),
            false => {
                fs::OpenOptions::new().append(true).open(&path).is_ok() || fs::remove_file(&path).is_ok()
            }
        });
        assert!(!spoils, "{}", path.display());
    }
    let of_a_space = Owner { space: Some(4321), ..me() };
    let shared = LogPath::new("shared/s/events.jsonl").unwrap();
    drop(journal.create(&shared, of_a_space, at(0), &meta()).unwrap());
    let file = dir.path().join("shared/s/events.jsonl");
    assert_eq!(
        [4321, 1234].map(|user| as_user(user, || fs::read(&file).is_ok())),
        [true, false],
        "by the group"
    );
}

#[test]
fn a_log_that_is_not_the_daemons_alone_is_not_opened() {
    use ctx_journal::JournalError;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join(PATH);
    let session = file.parent().unwrap().to_owned();
    let is_foreign = |why: &str| {
        let journal = real(dir.path());
        let foreign = |error: JournalError| {
            assert!(matches!(error, JournalError::Foreign { .. }), "{why}: {error}");
            assert!(error.to_string().contains(why), "{error}");
        };
        foreign(open(&journal).map(drop).unwrap_err());
        foreign(journal.head(&log()).unwrap_err());
        foreign(journal.read(&log(), 0, &mut |_| unreachable!("{why}")).unwrap_err());
        foreign(journal.put_blob(&log(), b"x").unwrap_err());
        foreign(journal.rename(&log(), &LogPath::new("other/events.jsonl").unwrap()).unwrap_err());
    };
    drop(create(&real(dir.path())));
    let chown = |path: &std::path::Path, uid| std::os::unix::fs::chown(path, Some(uid), None).unwrap();
    let chmod =
        |path: &std::path::Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    chown(&file, 1234);
    is_foreign("it belongs to uid 1234");
    chown(&file, me().uid);
    for mode in [0o620, 0o602] {
        chmod(&file, mode);
        is_foreign("others may write it");
    }
    chmod(&file, 0o600);
    fs::hard_link(&file, dir.path().join("another-name")).unwrap();
    is_foreign("2 names");
    fs::remove_file(dir.path().join("another-name")).unwrap();
    chown(&session, 1234);
    is_foreign("it belongs to uid 1234");
    chown(&session, me().uid);
    chmod(session.parent().unwrap(), 0o777);
    is_foreign("others may write it");
    let planted =
        real(dir.path()).create(&LogPath::new(PATH.replace("default", "new")).unwrap(), me(), at(0), &meta());
    assert!(planted.is_err(), "nor is a log made in such a place");
    chmod(session.parent().unwrap(), 0o700);
    assert!(open(&real(dir.path())).is_ok());
}

#[test]
fn what_users_owned_is_taken_over_with_a_file_of_its_own() {
    use std::io::Write as _;
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    drop(create(&real(dir.path())));
    let file = dir.path().join(PATH);
    let before = fs::read(&file).unwrap();
    let chown = |path: &std::path::Path| std::os::unix::fs::chown(path, Some(1234), None).unwrap();
    chown(&file);
    // What only claims to be large is left where it is, and no link is followed.
    let session = file.parent().unwrap();
    let huge = session.join("huge");
    fs::File::create(&huge).unwrap().set_len(8 << 40).unwrap();
    chown(&huge);
    symlink("/etc/passwd", session.join("link")).unwrap();
    // As their process may have it open from before.
    let mut held = fs::OpenOptions::new().append(true).open(&file).unwrap();
    let uids = std::sync::Mutex::new(Vec::new());
    let first_line = |path: &str, uid: u32, line: &[u8]| {
        uids.lock().unwrap().push((path.to_owned(), uid));
        assert!(before.starts_with(line));
        Ok(None)
    };
    let owner = Owner::user(1234, 1234);
    let take = || ctx_journal::take_over(dir.path(), "home", owner, true, &first_line).unwrap();
    let taken = take();
    assert_eq!(taken.logs, 1);
    assert_eq!(
        taken.left.iter().map(|(path, _)| path.rsplit('/').next().unwrap()).collect::<Vec<_>>(),
        ["huge"]
    );
    assert_eq!(*uids.lock().unwrap(), [(PATH.to_owned(), 1234)]);
    held.write_all(b"forged\n").unwrap();
    assert_eq!(fs::read(&file).unwrap(), before, "who had it open writes another file now");
    assert_eq!(fs::metadata(&file).unwrap().uid(), me().uid);
    assert!(as_user(1234, || fs::read(&file)).is_ok(), "and they read it");
    assert_eq!(take().logs, 0, "once");
    assert_eq!(seqs(&open(&real(dir.path())).unwrap().1), [0]);
}

#[test]
fn two_journals_on_one_root_do_not_write_one_log() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (real(dir.path()), real(dir.path()));
    let writer = create(&first);
    writer.append_next(at(1), &command(&["a"])).unwrap();
    assert!(open(&second).is_err());
    assert_eq!(seqs(&read(&second, 0).0), [0, 1], "reading needs no lock");
    drop(writer);
    assert_eq!(seqs(&open(&second).unwrap().1), [0, 1]);
}

#[test]
fn a_log_whose_directory_was_removed_says_so_and_others_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let journal = real(dir.path());
    let other = LogPath::new("other/events.jsonl").unwrap();
    drop(create(&journal));
    let writer = journal.create(&other, me(), at(0), &meta()).unwrap();
    fs::remove_dir_all(dir.path().join("home")).unwrap();
    let missing = open(&journal).map(|_| ()).unwrap_err();
    assert!(missing.to_string().contains("no such log"), "{missing}");
    writer.append_next(at(1), &command(&["a"])).unwrap();
    // And it can be made again, in directories that are gone as well.
    drop(create(&journal));
    assert_eq!(journal.list("").unwrap().len(), 2);
}

#[test]
fn something_that_is_not_a_file_in_place_of_a_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join(PATH)).unwrap();
    let journal = FileJournal::at(dir.path()).unwrap();
    assert!(open(&journal).is_err());
    assert!(journal.create(&log(), me(), at(0), &meta()).is_err());
}

#[test]
fn a_blob_that_was_changed_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    let journal = real(dir.path());
    drop(create(&journal));
    let blob = journal.put_blob(&log(), b"as it was").unwrap();
    let path = dir.path().join(log().dir()).join(format!("blobs/sha256-{}", blob.sha256));
    fs::write(&path, b"as it is!").unwrap();
    let noticed = journal.get_blob(&log(), &blob.sha256).unwrap_err();
    assert!(noticed.to_string().contains("does not match its name"), "{noticed}");
}

/// A file system without ACLs, until it is dropped.
struct Ramfs(tempfile::TempDir);

impl Ramfs {
    fn mount() -> Ramfs {
        let dir = tempfile::tempdir().unwrap();
        let mounted =
            std::process::Command::new("mount").args(["-t", "ramfs", "ramfs"]).arg(dir.path()).status();
        assert!(mounted.unwrap().success(), "this test needs root");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Ramfs(dir)
    }
}

impl Drop for Ramfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn without_acls_a_group_of_one_reads_and_no_other_group() {
    let passwd = fs::read_to_string("/etc/passwd").unwrap();
    let user = |name: &str| {
        let line = passwd.lines().find(|line| line.split(':').next() == Some(name)).unwrap();
        let ids: Vec<u32> = line.split(':').skip(2).take(2).map(|id| id.parse().unwrap()).collect();
        (ids[0], ids[1])
    };
    let disk = Ramfs::mount();
    let root = disk.0.path();
    let journal = real(root);
    let mode_of = |path: &str| fs::metadata(root.join(path)).unwrap().permissions().mode() & 0o777;
    // Its group is its own; that of nobody is not, for a user whose group it is not.
    let ((alone, its_group), (_, shared_group)) = (user("daemon"), user("nobody"));
    for (name, owner, file, dir) in [
        ("alone", Owner::user(alone, its_group), 0o640, 0o750),
        ("several", Owner::user(alone, shared_group), 0o600, 0o700),
        ("space", Owner { space: Some(shared_group), ..me() }, 0o640, 0o750),
    ] {
        let log = LogPath::new(format!("{name}/s/events.jsonl")).unwrap();
        drop(journal.create(&log, owner, at(0), &meta()).unwrap());
        assert_eq!((mode_of(log.as_str()), mode_of(name)), (file, dir), "{name}");
        assert_eq!(fs::metadata(root.join(log.as_str())).unwrap().uid(), me().uid);
        let blob = journal.put_blob(&log, b"x").unwrap();
        assert_eq!(
            mode_of(&format!("{name}/s/blobs/sha256-{}", blob.sha256)),
            file,
            "{name}: also beside it"
        );
    }
    let read = as_user(its_group, || fs::read(root.join("alone/s/events.jsonl")).is_ok());
    assert!(read, "by the group");
}
