//! Reading while no daemon is up: finding sessions and reading their files, or their logs where files are gone.

use std::path::Path;

use ctx_session::Timestamp;
use ctx_session::conversation::{Change, Role};
use ctx_views::files::Disagreement;
use ctx_views::read::{ReadError, Reader, SessionRef, SessionsDir};
use ctx_views::{IndexEntry, IndexFiles, SessionFiles};

use crate::world::{Life, Root, Step, name, own};

const START: u64 = 1_794_722_400_000;

fn coder() -> SessionsDir {
    SessionsDir::of_agent(own().uid, name("coder"))
}

fn reader(root: &Root) -> Reader {
    Reader::new(&root.dir, root.journal.clone())
}

fn talk() -> Vec<Step> {
    let post = |text: &str| Step::Post { text: text.to_owned(), slot: true, cwd: None };
    let say = |text: &str| Step::Say { text: text.to_owned() };
    let done = Step::Finish { how: 0, partial: None };
    vec![post("one"), say("two"), done.clone(), post("three"), say("four"), done]
}

/// A session on disk, with its log and its files.
fn put(root: &Root, dir_name: &str, life: &Life) -> SessionRef {
    let session = coder().session(dir_name);
    drop(life.write(&*root.journal, &session.log().unwrap()));
    let mut files = SessionFiles::open(&root.dir, &session.path(), own()).unwrap();
    files.catch_up(&life.session, &life.records()).unwrap();
    session
}

fn life(seed: u64, called: Option<&str>, millis: u64) -> Life {
    let mut life = Life::begin_as(seed, called, "coder", millis);
    life.live(&talk());
    life
}

fn texts(reader: &Reader, session: &SessionRef) -> Vec<String> {
    let lines = reader.messages(session).unwrap();
    lines
        .map(|change| match change.unwrap() {
            Change::Said(message) => message.text(),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn a_conversation_is_read_without_a_daemon() {
    let root = Root::new();
    let life = life(1, Some("default"), START);
    let session = put(&root, "default", &life);
    let reader = reader(&root);
    assert_eq!(texts(&reader, &session), ["one", "two", "three", "four"]);
    assert_eq!(reader.latest(&session).unwrap(), "four");
    assert_eq!(reader.state(&session).unwrap(), "idle");
    let summary = reader.summary(&session).unwrap();
    assert_eq!((summary.meta.id, summary.cwd.as_str()), (life.session.id(), "/work"));
    assert_eq!(summary.updated_at, life.session.updated_at);
}

#[test]
fn what_the_files_do_not_show_comes_from_the_log() {
    let root = Root::new();
    let life = life(1, Some("default"), START);
    let session = put(&root, "default", &life);
    let reader = reader(&root);
    let file = root.path(session.path()).join("messages.jsonl");
    let whole = std::fs::read(&file).unwrap();
    // Every way in which a crash can have cut the file, torn lines among them.
    for len in 0..whole.len() {
        std::fs::write(&file, &whole[..len]).unwrap();
        assert_eq!(texts(&reader, &session), ["one", "two", "three", "four"], "cut at {len}");
        assert_eq!(reader.latest(&session).unwrap().trim_end(), "four", "cut at {len}");
    }
    std::fs::write(root.path(session.path()).join("state"), b"").unwrap();
    assert_eq!(reader.state(&session).unwrap(), "idle");
    for file in std::fs::read_dir(root.path(session.path())).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() && path.file_name() != Some("events.jsonl".as_ref()) {
            std::fs::remove_file(path).unwrap();
        }
    }
    assert_eq!(texts(&reader, &session), ["one", "two", "three", "four"]);
    assert_eq!(reader.latest(&session).unwrap(), "four");
    assert_eq!(reader.state(&session).unwrap(), "idle");
    assert_eq!(reader.meta(&session).unwrap().id, life.session.id());
    assert_eq!(reader.summary(&session).unwrap().updated_at, life.session.updated_at);
}

#[test]
fn the_files_are_enough_when_the_log_is_gone() {
    let root = Root::new();
    let session = put(&root, "default", &life(1, Some("default"), START));
    std::fs::remove_file(root.path(session.path()).join("events.jsonl")).unwrap();
    let reader = reader(&root);
    assert_eq!(texts(&reader, &session).len(), 4);
    assert_eq!(reader.latest(&session).unwrap(), "four\n");
}

/// What can become of a line of `messages.jsonl`, or of the whole file.
fn harms(whole: &str) -> Vec<(&'static str, Vec<u8>)> {
    let mut lines: Vec<&str> = whole.lines().collect();
    let nuls = "\0".repeat(lines[1].len());
    let with = |lines: &[&str]| (lines.join("\n") + "\n").into_bytes();
    let without = [lines[0], lines[2], lines[3]];
    let mut harms = vec![
        ("a key", whole.replacen("\"role\"", "\"rolf\"", 2).into_bytes()),
        ("a text", whole.replace("\"two\"", "\"owt\"").into_bytes()),
        ("a line gone", with(&without)),
        ("nothing left", Vec::new()),
        ("no lines at all", vec![0xff; 100]),
    ];
    lines[1] = &nuls;
    harms.push(("NULs", with(&lines)));
    harms
}

#[test]
fn a_damaged_view_hides_nothing_and_is_told_of() {
    let root = Root::new();
    let session = put(&root, "default", &life(1, Some("default"), START));
    let reader = reader(&root);
    let log = session.log().unwrap();
    let file = root.path(session.path()).join("messages.jsonl");
    let whole = std::fs::read_to_string(&file).unwrap();
    assert_eq!(reader.disagreements(&log).unwrap(), []);
    for (what, bytes) in harms(&whole) {
        std::fs::write(&file, &bytes).unwrap();
        assert_eq!(texts(&reader, &session), ["one", "two", "three", "four"], "{what}");
        assert_eq!(reader.latest(&session).unwrap(), "four", "{what}");
        let found = reader.disagreements(&log).unwrap();
        // A file that is only behind is caught up with.
        let line = match what {
            "nothing left" | "no lines at all" => None,
            "a key" => Some(1),
            _ => Some(2),
        };
        let expected = line.map(|line| Disagreement { file: "messages.jsonl", line: Some(line) });
        assert_eq!(found, Vec::from_iter(expected), "{what}");
    }
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("elsewhere", &file).unwrap();
    assert_eq!(texts(&reader, &session).len(), 4, "a link");
    assert_eq!(
        reader.disagreements(&log).unwrap(),
        [Disagreement { file: "messages.jsonl", line: None }],
        "a link"
    );
}

#[test]
fn a_small_file_that_is_wrong_is_told_of() {
    let root = Root::new();
    let session = put(&root, "default", &life(1, Some("default"), START));
    let reader = reader(&root);
    for name in ["latest.md", "state", "cwd", "created_at", "meta.json"] {
        let file = root.path(session.path()).join(name);
        let right = std::fs::read(&file).unwrap();
        std::fs::write(&file, b"rubbish\n").unwrap();
        let found = reader.disagreements(&session.log().unwrap()).unwrap();
        assert_eq!(found, [Disagreement { file: name, line: None }]);
        std::fs::write(&file, right).unwrap();
    }
    // Nobody can say what is right where the log itself has lost something.
    let log = root.path(session.path()).join("events.jsonl");
    let bytes = std::fs::read_to_string(&log).unwrap().replacen("\"text\":\"one\"", "\"texu\":\"one\"", 1);
    std::fs::write(&log, bytes).unwrap();
    assert_eq!(reader.disagreements(&session.log().unwrap()).unwrap(), []);
}

#[test]
fn an_answer_that_lies_far_back_is_the_latest_all_the_same() {
    let root = Root::new();
    let mut life = Life::begin_as(1, Some("default"), "coder", START);
    life.live(&talk());
    for turn in 0..600 {
        let text = format!("and {turn}");
        life.live(&[Step::Post { text, slot: true, cwd: None }, Step::Finish { how: 0, partial: None }]);
    }
    let session = put(&root, "default", &life);
    let reader = reader(&root);
    assert_eq!(reader.latest(&session).unwrap().trim_end(), "four");
    std::fs::write(root.path(session.path()).join("messages.jsonl"), b"").unwrap();
    std::fs::write(root.path(session.path()).join("latest.md"), b"long ago\n").unwrap();
    assert_eq!(reader.latest(&session).unwrap(), "four", "the file is behind");
}

/// Of a log whose first record is gone, and without the files, its place still says what session it is.
#[test]
fn a_session_without_its_first_record_is_readable() {
    let root = Root::new();
    let session = put(&root, "default", &life(1, Some("default"), START));
    let dir = root.path(session.path());
    let log = std::fs::read_to_string(dir.join("events.jsonl")).unwrap();
    let (_, rest) = log.split_once('\n').unwrap();
    std::fs::write(dir.join("events.jsonl"), rest).unwrap();
    for name in ["meta.json", "cwd", "created_at", "updated_at"] {
        std::fs::remove_file(dir.join(name)).unwrap();
    }
    let summary = reader(&root).summary(&session).unwrap();
    assert_eq!((summary.meta.name, summary.meta.agent), (name("default"), Some(name("coder"))));
    assert_eq!(texts(&reader(&root), &session).len(), 5, "with a line that says what is missing");
}

#[test]
fn the_first_messages_are_read_alone() {
    let root = Root::new();
    let session = put(&root, "default", &life(1, Some("default"), START));
    let mut changes = reader(&root).messages(&session).unwrap();
    let first = changes.next().unwrap().unwrap();
    assert!(matches!(first, Change::Said(message) if message.role == Role::User));
}

#[test]
fn a_session_is_found_by_name_id_and_the_beginning_of_its_id() {
    let root = Root::new();
    let reader = reader(&root);
    let first = life(1, Some("default"), START);
    let second = life(2, None, START + 1);
    let a = put(&root, "default", &first);
    let b = put(&root, &second.session.id().to_string(), &second);
    let uid = own().uid;

    assert_eq!(reader.resolve(uid, "coder/default").unwrap(), a);
    let id = second.session.id().to_string();
    for text in [id.clone(), id.to_lowercase(), id[..12].to_owned(), format!("coder/{id}")] {
        assert_eq!(reader.resolve(uid, &text).unwrap(), b, "{text}");
    }
    let both = reader.resolve(uid, &id[..8]).unwrap_err();
    assert!(matches!(&both, ReadError::Ambiguous { matches, .. } if matches.len() == 2), "{both}");
    for text in ["coder/other", "other/default", "01ARZ3NDEKTSV4RRFFQ69G5FAV"] {
        assert!(matches!(reader.resolve(uid, text), Err(ReadError::NotFound { .. })), "{text}");
    }
    for text in
        ["", "coder/", "coder/../default", "coder/..", "/default", "coder/index", "ümlaut", "model//x"]
    {
        assert!(matches!(reader.resolve(uid, text), Err(ReadError::BadName { .. })), "{text}");
    }
    assert!(matches!(reader.resolve(uid + 1, "coder/default"), Err(ReadError::NotFound { .. })));
}

#[test]
fn a_name_whose_session_is_over_finds_the_last_that_had_it() {
    let root = Root::new();
    let reader = reader(&root);
    let (first, second) = (life(1, Some("default"), START), life(2, Some("default"), START + 5_000));
    put(&root, &format!("default+{}", first.session.id()), &first);
    let newer = put(&root, &format!("default+{}", second.session.id()), &second);
    assert_eq!(reader.resolve(own().uid, "coder/default").unwrap(), newer);
    let living = put(&root, "default", &life(3, Some("default"), START + 9_000));
    assert_eq!(reader.resolve(own().uid, "coder/default").unwrap(), living);
}

#[test]
fn sessions_of_models_and_spaces_are_found_too() {
    let root = Root::new();
    let reader = reader(&root);
    let uid = own().uid;
    let lives: Vec<Life> = (1..=2).map(|seed| life(seed, Some("default"), START + seed)).collect();
    let places = [
        format!("home/{uid}/model/debug/echo.d/session/default"),
        "shared/team/agent/coder/session/default".to_owned(),
    ];
    for (life, place) in lives.iter().zip(&places) {
        let log = ctx_journal::LogPath::new(format!("{place}/events.jsonl")).unwrap();
        drop(life.write(&*root.journal, &log));
    }
    let at = |text: &str| reader.resolve(uid, text).unwrap().path();
    assert_eq!(at("model/debug/echo/default"), Path::new(&places[0]));
    assert_eq!(at("coder/default"), Path::new(&places[1]));
    for (life, place) in lives.iter().zip(&places) {
        assert_eq!(at(&life.session.id().to_string()), Path::new(place));
    }
}

fn entry(life: &Life, name: &str) -> IndexEntry {
    IndexEntry {
        name: name.to_owned(),
        updated_at: life.session.updated_at,
        posted_at: Some(Timestamp::from_millis(life.session.created_at.as_millis())),
        cwd: life.session.cwd.clone(),
    }
}

#[test]
fn the_newest_sessions_are_listed_first_also_without_an_index() {
    let root = Root::new();
    let reader = reader(&root);
    let names = ["a", "b", "c"];
    let lives: Vec<Life> = (0..3).map(|n| life(n, Some(names[n as usize]), START + n * 1_000)).collect();
    for (life, name) in lives.iter().zip(names) {
        put(&root, name, life);
    }
    let newest = |max| -> Vec<String> {
        reader.newest(&coder(), max).unwrap().into_iter().map(|session| session.dir_name).collect()
    };
    assert_eq!(newest(9), ["c", "b", "a"], "no index yet");
    assert_eq!(reader.current(&coder()).unwrap(), None);

    let entries: Vec<IndexEntry> = lives.iter().zip(names).map(|(life, name)| entry(life, name)).collect();
    IndexFiles::new(&root.dir, &coder().path(), own()).write(&entries).unwrap();
    assert_eq!(newest(2), ["c", "b"]);
    assert_eq!(reader.current(&coder()).unwrap().unwrap().dir_name, "c");

    // A session that came after the index was written, and one that went.
    put(&root, "default", &life(9, Some("default"), START + 60_000));
    std::fs::remove_dir_all(root.path(coder().path().join("c"))).unwrap();
    assert_eq!(newest(9), ["default", "b", "a"]);
    assert_eq!(reader.current(&coder()).unwrap().unwrap().dir_name, "default");
}

#[test]
fn an_agent_that_nobody_talked_to_has_no_sessions() {
    let root = Root::new();
    assert!(reader(&root).newest(&coder(), 9).unwrap().is_empty());
    assert_eq!(reader(&root).current(&coder()).unwrap(), None);
    assert!(reader(&root).resolve(own().uid, "01").is_err());
}
