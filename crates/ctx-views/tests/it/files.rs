//! The files of a session directory: what a person sees, and that they always are what the log says.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use ctx_journal::{LogPath, Owner};
use ctx_session::Session;
use ctx_views::{SessionFiles, ViewError};
use proptest::prelude::*;

use crate::world::{Life, Root, Step, own, steps, view_files};

const DIR: &str = "s";

fn root() -> Root {
    let root = Root::new();
    std::fs::create_dir(root.path(DIR)).unwrap();
    root
}

fn open(root: &Root) -> SessionFiles {
    SessionFiles::open(&root.dir, Path::new(DIR), own()).unwrap()
}

/// Opens the files and brings them to where the life is, as a daemon does when it loads a session.
fn caught_up(root: &Root, life: &Life) -> SessionFiles {
    let mut files = open(root);
    life.records().iter().for_each(|record| files.compare(record));
    let from = files.wants_from(&life.session);
    let missing: Vec<_> = life.records().into_iter().filter(|record| record.seq >= from).collect();
    files.catch_up(&life.session, &missing).unwrap();
    files
}

fn read(root: &Root, name: &str) -> String {
    std::fs::read_to_string(root.path(DIR).join(name)).unwrap()
}

fn say(text: &str) -> Step {
    Step::Say { text: text.to_owned() }
}

fn post(text: &str) -> Step {
    Step::Post { text: text.to_owned(), slot: true, cwd: None }
}

fn done() -> Step {
    Step::Finish { how: 0, partial: None }
}

fn show(files: &mut SessionFiles, life: &mut Life, step: &Step) {
    life.step(step);
    files.show(&life.session, life.commits.last().unwrap()).unwrap();
}

#[test]
fn a_run_shows_in_every_file() {
    let root = root();
    let mut life = Life::begin(1);
    let mut files = caught_up(&root, &life);
    assert_eq!((read(&root, "state"), read(&root, "latest.md")), ("idle\n".to_owned(), String::new()));

    show(&mut files, &mut life, &post("hello"));
    assert_eq!(read(&root, "state"), "active\n");
    show(&mut files, &mut life, &say("hi there"));
    show(&mut files, &mut life, &done());

    assert_eq!(read(&root, "state"), "idle\n");
    assert_eq!(read(&root, "latest.md"), "hi there\n");
    assert_eq!(read(&root, "cwd"), "/work\n");
    assert_eq!(read(&root, "created_at"), "2026-11-15T06:00:00.000Z\n");
    assert_eq!(read(&root, "updated_at"), "2026-11-15T06:00:00.021Z\n");
    let lines = read(&root, "messages.jsonl");
    let roles: Vec<String> = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["role"].to_string())
        .collect();
    assert_eq!(roles, ["\"user\"", "\"assistant\""]);
    let meta: serde_json::Value = serde_json::from_str(&read(&root, "meta.json")).unwrap();
    let keys = "id name title scope space owner agent project model client origin forked_from bound_issue state failure";
    for key in keys.split(' ') {
        assert!(meta.get(key).is_some(), "{key}");
    }
    assert_eq!(
        (&meta["name"], &meta["state"], &meta["model"]),
        (&"default".into(), &"idle".into(), &"debug:echo".into())
    );
}

#[test]
fn a_session_that_is_let_go_leaves_nothing_beside_its_files() {
    let root = root();
    let mut life = Life::begin(1);
    let mut files = caught_up(&root, &life);
    for step in [post("one"), say("two"), done(), post("three"), say("four")] {
        show(&mut files, &mut life, &step);
    }
    drop(files);
    let mut names: Vec<_> =
        std::fs::read_dir(root.path(DIR)).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    let mut expected = FILES.to_vec();
    expected.sort_unstable();
    assert_eq!(names, expected);
}

#[test]
fn a_failed_session_says_why() {
    let root = root();
    let mut life = Life::begin(1);
    let mut files = caught_up(&root, &life);
    show(&mut files, &mut life, &Step::Fail);
    let meta: serde_json::Value = serde_json::from_str(&read(&root, "meta.json")).unwrap();
    assert_eq!((read(&root, "state").as_str(), &meta["failure"]["reason"]), ("error\n", &"broken".into()));
}

#[test]
fn files_that_are_behind_show_nothing_new_until_they_caught_up() {
    let root = root();
    let mut life = Life::begin(1);
    let mut files = open(&root);
    assert!(files.is_stale() && files.shown().is_none());
    let first = life.commits[0].clone();
    assert!(matches!(files.show(&life.session, &first), Err(ViewError::Stale { .. })));

    files.catch_up(&life.session, &first).unwrap();
    show(&mut files, &mut life, &post("one"));
    assert_eq!(files.shown(), Some(1));
    assert!(!files.is_stale());
}

#[test]
fn a_view_that_cannot_be_written_is_made_good_later() {
    let root = root();
    let mut life = Life::begin(1);
    let mut files = caught_up(&root, &life);
    show(&mut files, &mut life, &post("one"));

    // Someone deleted the directory's files and put a directory in the way.
    std::fs::remove_file(root.path("s/messages.jsonl")).unwrap();
    std::fs::create_dir(root.path("s/messages.jsonl")).unwrap();
    life.step(&say("two"));
    files.show(&life.session, life.commits.last().unwrap()).unwrap_err();
    assert!(files.is_stale());

    std::fs::remove_dir(root.path("s/messages.jsonl")).unwrap();
    // The caller was told that message one is shown; it is not any more, and is asked for again.
    let missing: Vec<_> =
        life.records().into_iter().filter(|record| Some(record.seq) > files.shown()).collect();
    assert!(matches!(files.catch_up(&life.session, &missing), Err(ViewError::Stale { .. })));
    assert_eq!(files.wants_from(&life.session), 0);
    files.catch_up(&life.session, &life.records()).unwrap();
    assert_eq!(read(&root, "messages.jsonl").lines().count(), 2);
}

#[test]
fn a_file_that_someone_changed_while_the_daemon_runs_is_noticed() {
    let root = root();
    let mut life = Life::begin(1);
    let mut files = caught_up(&root, &life);
    show(&mut files, &mut life, &post("one"));
    std::fs::write(root.path("s/messages.jsonl"), b"").unwrap();
    life.step(&say("two"));
    let shown = files.show(&life.session, life.commits.last().unwrap());
    assert!(matches!(shown, Err(ViewError::Stale { .. })));
}

#[test]
fn files_that_show_more_than_the_log_has_give_way_to_it() {
    let root = root();
    let mut life = Life::begin(1);
    let old = Life::begin(1);
    life.live(&[post("one"), say("two"), done(), post("three")]);
    caught_up(&root, &life);

    let files = caught_up(&root, &old);
    assert_eq!(files.shown(), None);
    assert_eq!((read(&root, "messages.jsonl"), read(&root, "latest.md")), (String::new(), String::new()));
}

#[test]
fn a_link_in_the_way_is_not_followed_and_gives_way() {
    let root = root();
    let elsewhere = root.path("elsewhere");
    std::fs::write(&elsewhere, "untouched").unwrap();
    let mut life = Life::begin(1);
    let put_link = |name: &str| {
        let link = root.path(DIR).join(name);
        let _ = std::fs::remove_file(&link);
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
    };
    FILES.iter().for_each(|name| put_link(name));
    let mut files = caught_up(&root, &life);
    show(&mut files, &mut life, &post("one"));
    put_link("state");
    for step in [say("two"), done(), post("three"), done(), post("four")] {
        show(&mut files, &mut life, &step);
    }
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "untouched");
    assert_eq!(view_files(&root.path(DIR)), rebuilt(&life.session, &life));
    std::os::unix::fs::symlink(root.path(DIR), root.path("link")).unwrap();
    assert!(SessionFiles::open(&root.dir, Path::new("link"), own()).is_err());
    assert!(SessionFiles::open(&root.dir, Path::new("../s"), own()).is_err());
    assert!(SessionFiles::open(&root.dir, &root.path(DIR), own()).is_err());
}

#[test]
fn files_are_the_daemons_and_their_user_may_read_them() {
    let root = root();
    let life = Life::begin(1);
    let owner = Owner::user(54_321, 54_322);
    let mut files = SessionFiles::open(&root.dir, Path::new(DIR), owner).unwrap();
    files.catch_up(&life.session, &life.records()).unwrap();
    // The group's bits are the mask of the ACL: the owning group itself has no right.
    let expected = (0o640, own().uid, own().gid);
    for name in ["messages.jsonl", "meta.json", "state"] {
        let found = std::fs::metadata(root.path(DIR).join(name)).unwrap();
        assert_eq!((found.permissions().mode() & 0o777, found.uid(), found.gid()), expected, "{name}");
        let file = std::fs::File::open(root.path(DIR).join(name)).unwrap();
        assert_eq!(ctx_journal::access::kept_for(&file).unwrap().uid, owner.uid, "{name}");
    }

    let mut mine = caught_up(&root, &life);
    mine.catch_up(&life.session, &[]).unwrap();
    std::fs::remove_file(root.path("s/state")).unwrap();
    mine.catch_up(&life.session, &[]).unwrap();
    let found = std::fs::metadata(root.path("s/state")).unwrap();
    assert_eq!((found.permissions().mode() & 0o777, found.uid()), (0o600, own().uid));
}

#[test]
fn a_renamed_directory_is_written_to_under_its_new_name() {
    let root = root();
    let mut life = Life::begin(1);
    let mut files = caught_up(&root, &life);
    std::fs::rename(root.path(DIR), root.path("s+over")).unwrap();
    files.moved_to(Path::new("s+over"));
    show(&mut files, &mut life, &Step::End);
    assert_eq!(std::fs::read_to_string(root.path("s+over/state")).unwrap(), "done\n");
}

#[test]
fn a_file_cut_at_any_byte_is_made_whole_and_says_nothing_twice() {
    let root = root();
    let mut life = Life::begin(1);
    life.live(&[post("one"), say("two"), Step::DiscardQueued, done(), post("drei €")]);
    caught_up(&root, &life);
    let whole = view_files(&root.path(DIR));
    let messages = &whole["messages.jsonl"];
    for len in 0..=messages.len() {
        std::fs::write(root.path("s/messages.jsonl"), &messages[..len]).unwrap();
        // All of the log is handed over, also what is shown.
        open(&root).catch_up(&life.session, &life.records()).unwrap();
        assert_eq!(view_files(&root.path(DIR)), whole, "cut at {len}");
    }
}

/// What happens to the files between two commits.
#[derive(Debug, Clone)]
enum Harm {
    Nothing,
    /// The daemon goes and another one loads the session.
    Restart,
    Delete {
        which: u8,
    },
    CutMessages {
        keep: prop::sample::Index,
    },
    GarbageAtEnd {
        bytes: Vec<u8>,
    },
    WrongContents {
        which: usize,
    },
    /// One byte of the messages is another.
    ChangedByte {
        at: prop::sample::Index,
        to: u8,
    },
    LostLine {
        which: prop::sample::Index,
    },
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        6 => Just(Harm::Nothing),
        2 => Just(Harm::Restart),
        2 => any::<u8>().prop_map(|which| Harm::Delete { which }),
        1 => any::<prop::sample::Index>().prop_map(|keep| Harm::CutMessages { keep }),
        1 => prop::collection::vec(any::<u8>().prop_filter("not a line", |b| *b != b'\n'), 1..40)
            .prop_map(|bytes| Harm::GarbageAtEnd { bytes }),
        1 => (0..FILES.len()).prop_map(|which| Harm::WrongContents { which }),
        2 => (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, to)| Harm::ChangedByte { at, to }),
        1 => any::<prop::sample::Index>().prop_map(|which| Harm::LostLine { which }),
    ]
}

const FILES: [&str; 7] =
    ["latest.md", "state", "cwd", "created_at", "updated_at", "meta.json", "messages.jsonl"];

/// Does the harm; whether a daemon has to load the session again to notice it.
fn suffer(root: &Root, harm: &Harm) -> bool {
    let dir = root.path(DIR);
    let messages = dir.join("messages.jsonl");
    match harm {
        Harm::Nothing => return false,
        Harm::Restart => {}
        Harm::Delete { which } => {
            for (bit, name) in FILES.iter().enumerate() {
                if which & (1 << bit) != 0 {
                    let _ = std::fs::remove_file(dir.join(name));
                }
            }
        }
        Harm::CutMessages { keep } => {
            let bytes = std::fs::read(&messages).unwrap();
            std::fs::write(&messages, &bytes[..keep.index(bytes.len() + 1)]).unwrap();
        }
        Harm::GarbageAtEnd { bytes } => {
            let mut all = std::fs::read(&messages).unwrap();
            all.extend(bytes);
            std::fs::write(&messages, all).unwrap();
        }
        Harm::ChangedByte { at, to } => {
            let mut bytes = std::fs::read(&messages).unwrap();
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = *to;
            }
            std::fs::write(&messages, bytes).unwrap();
        }
        Harm::LostLine { which } => {
            let text = std::fs::read_to_string(&messages).unwrap();
            let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
            if !lines.is_empty() {
                lines.remove(which.index(lines.len()));
            }
            std::fs::write(&messages, lines.concat()).unwrap();
        }
        Harm::WrongContents { which } => std::fs::write(dir.join(FILES[*which]), b"wrong\n").unwrap(),
    }
    true
}

fn rebuilt(session: &Session, life: &Life) -> std::collections::BTreeMap<String, Vec<u8>> {
    let root = root();
    open(&root).catch_up(session, &life.records()).unwrap();
    view_files(&root.path(DIR))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn whatever_happens_to_them_the_files_become_what_the_log_says(
        seed in any::<u64>(),
        steps in steps(40),
        harms in prop::collection::vec(harm(), 40),
    ) {
        let root = root();
        let mut life = Life::begin(seed);
        let mut files = caught_up(&root, &life);
        for (step, harm) in steps.iter().zip(&harms) {
            if suffer(&root, harm) {
                files = caught_up(&root, &life);
            }
            if let Some(commit) = life.step(step).map(<[_]>::to_vec) {
                files.show(&life.session, &commit).unwrap();
            }
        }
        prop_assert_eq!(view_files(&root.path(DIR)), rebuilt(&life.session, &life));
    }

    #[test]
    fn catching_up_from_the_log_is_catching_up_from_memory(seed in any::<u64>(), steps in steps(30)) {
        let root = root();
        let mut life = Life::begin(seed);
        life.live(&steps);
        std::fs::remove_dir(root.path(DIR)).unwrap();
        let log = LogPath::new(format!("{DIR}/events.jsonl")).unwrap();
        life.write(&*root.journal, &log);
        open(&root).catch_up_from(&*root.journal, &log, &life.session).unwrap();
        prop_assert_eq!(view_files(&root.path(DIR)), rebuilt(&life.session, &life));
    }
}
