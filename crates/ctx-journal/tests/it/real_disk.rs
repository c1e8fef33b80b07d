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

#[test]
fn a_daemon_that_runs_as_root_hands_files_to_the_user_and_keeps_directories() {
    // Whoever else runs the tests cannot give files away; then everything is their own.
    let root = me().uid == 0;
    let dir = tempfile::tempdir().unwrap();
    let journal = real(dir.path());
    let user = if root { Owner { uid: 1234, gid: 2345 } } else { me() };
    let log = LogPath::new("u/s/events.jsonl").unwrap();
    drop(journal.create(&log, user, at(0), &meta()).unwrap());
    let stat = |path: &str| fs::metadata(dir.path().join(path)).unwrap();
    let (file, directory) = (stat("u/s/events.jsonl"), stat("u/s"));
    assert_eq!(file.uid(), user.uid);
    assert_eq!(file.gid(), user.gid);
    assert_eq!(directory.uid(), me().uid);
    assert_eq!(directory.gid(), user.gid);
    let modes = (file.permissions().mode() & 0o7777, directory.permissions().mode() & 0o7777);
    assert_eq!(modes, if root { (0o640, 0o750) } else { (0o600, 0o700) });
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
