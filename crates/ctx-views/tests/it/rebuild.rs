//! The index database always comes to be what the logs say, whatever happened to it or to them.

use std::path::Path;
use std::sync::Arc;

use ctx_session::control::{Aggregate, Approval, Checkpoint, Compacted};
use ctx_session::{Record, Session, SessionId, StateName};
use ctx_views::db::{
    IndexDb, IndexReader, MessageItem, MessagesQuery, Queries, Remade, RunItem, SearchQuery, SearchSort,
    SessionItem, Stats, StatsQuery, ToolCallItem, Viewer, mark_unread,
};
use proptest::prelude::*;

use crate::indexed::{
    DB, Grown, LONG, START, Shorter, found, log_of, names, open, open_with, post, put, started, talk, tool,
};
use crate::world::{Life, Root, Step, steps};

/// Everything that can be asked of an index, in an order that does not depend on how it came to be.
#[derive(Debug, PartialEq)]
struct Everything {
    sessions: Vec<SessionItem>,
    messages: Vec<Vec<MessageItem>>,
    runs: Vec<Vec<RunItem>>,
    calls: Vec<Vec<ToolCallItem>>,
    checkpoints: Vec<Vec<Checkpoint>>,
    compactions: Vec<(Vec<Compacted>, Vec<Aggregate>)>,
    approvals: Vec<Vec<Approval>>,
    stats: Stats,
    found: Vec<(String, u64, String)>,
    damage: Vec<String>,
}

fn everything(q: &Queries<'_>) -> Everything {
    // Where a log ends is known to the bytes only once it was read, not when it is written.
    let sessions: Vec<_> =
        q.sessions().unwrap().into_iter().map(|item| SessionItem { end_bytes: 0, ..item }).collect();
    let ids: Vec<_> = sessions.iter().map(SessionItem::id).collect();
    let messages = |id: &_| {
        let query = MessagesQuery {
            session: *id,
            since: None,
            before: None,
            superseded: true,
            limit: usize::MAX - 1,
        };
        q.messages(&query).unwrap().items
    };
    let runs: Vec<_> = ids.iter().map(|id| q.runs(*id, None, usize::MAX - 1).unwrap().items).collect();
    let calls = ids
        .iter()
        .zip(&runs)
        .map(|(id, runs)| runs.iter().flat_map(|run| q.tool_calls(*id, run.id).unwrap()).collect());
    let mut search = SearchQuery::new(Viewer::All, "needle", 1_000);
    search.sort = SearchSort::Newest;
    let hits = q.search(&search).unwrap().items;
    let query = StatsQuery { viewer: Viewer::All, agent: None, project: None, since: None };
    Everything {
        messages: ids.iter().map(messages).collect(),
        calls: calls.collect(),
        checkpoints: ids.iter().map(|id| q.checkpoints(*id).unwrap()).collect(),
        compactions: ids
            .iter()
            .map(|id| (q.compactions(*id).unwrap(), q.compaction_aggregates(*id).unwrap()))
            .collect(),
        approvals: ids.iter().map(|id| q.approvals(*id).unwrap()).collect(),
        stats: q.stats(&query).unwrap(),
        found: hits
            .iter()
            .map(|hit| (hit.session.to_string(), hit.seq, format!("{:.6}", hit.score)))
            .collect(),
        damage: q.damage().unwrap(),
        runs,
        sessions,
    }
}

fn all_of(db: &IndexDb) -> Everything {
    db.ask(|q| Ok(everything(q))).unwrap()
}

/// What a rebuild from nothing comes to.
fn rebuilt(root: &Root) -> Everything {
    for file in ["index.db", "index.db-wal", "index.db-shm"] {
        let _ = std::fs::remove_file(root.path(file));
    }
    let db = started(root);
    assert_eq!(db.remade(), Some(&Remade::New));
    all_of(&db)
}

#[test]
fn a_fork_is_a_session_of_its_own() {
    let root = Root::new();
    let mut source = Life::begin_as(1, Some("source"), "coder", START);
    source.live(&[post("a needle"), tool("hay")[0].clone()]);
    let fork = source.fork(2, "fork");
    let (of_source, of_fork) = (source.session.id(), fork.session.id());
    let source = Grown::new(&root, source, "coder", "source");
    let fork = Grown::new(&root, fork, "coder", "fork");
    let db = started(&root);
    let states = |id| {
        let item = db.ask(|q| q.session(id)).unwrap().unwrap();
        let run = db.ask(|q| q.runs(id, None, 9)).unwrap().items.remove(0);
        let call = db.ask(|q| q.tool_calls(id, run.id)).unwrap().remove(0);
        (item.row.state, run.state, call.state)
    };
    assert_eq!(states(of_source), (StateName::Running, "running".to_owned(), "pending".to_owned()));
    assert_eq!(states(of_fork), (StateName::Idle, "cancelled".to_owned(), "interrupted".to_owned()));
    assert_eq!(found(&db, &SearchQuery::new(Viewer::All, "needle", 10)).len(), 2);
    db.purged(of_source).unwrap();
    assert_eq!(found(&db, &SearchQuery::new(Viewer::All, "needle", 10)).len(), 1);
    drop((source, fork));
}

#[test]
fn a_log_with_the_inode_and_the_length_of_another_is_noticed() {
    let root = Root::new();
    let of = |seed| Life::begin_as(seed, None, "coder", START);
    let there = Grown::new(&root, of(101), "coder", "there");
    let other = Grown::new(&root, of(102), "coder", "other");
    let bytes = std::fs::read(root.path(other.log.as_str())).unwrap();
    std::fs::remove_dir_all(root.path(other.log.dir())).unwrap();
    drop(started(&root));
    let path = root.path(there.log.as_str());
    assert_eq!(std::fs::metadata(&path).unwrap().len(), bytes.len() as u64);
    std::fs::write(path, bytes).unwrap();
    let listed = started(&root).ask(|q| q.sessions()).unwrap();
    assert_eq!(listed.iter().map(SessionItem::id).collect::<Vec<_>>(), [other.life.session.id()]);
}

#[test]
fn a_log_that_goes_before_the_start_has_read_it_leaves_no_row() {
    let root = Root::new();
    let mut session = put(&root, 1, "coder", "s1", &[]);
    drop(started(&root));
    session.replace(&root, 2, None);
    let (logs, gone) = (vec![session.log.clone()], root.path(session.log.dir()));
    let listed = Arc::new(move || {
        let _ = std::fs::remove_dir_all(&gone);
        Ok(logs.clone())
    });
    let db = open_with(&root, listed);
    db.catch_up(|_| {});
    assert!(db.wait_all(LONG));
    assert_eq!(db.purged(session.life.session.id()), Ok(()));
    let live = all_of(&db);
    drop(db);
    assert_eq!(live, rebuilt(&root));
}

#[test]
fn a_start_reads_only_what_came_since() {
    let root = Root::new();
    let mut sessions: Vec<Grown> =
        (1..=5).map(|n| put(&root, n, "coder", &format!("s{n}"), &talk("hello", "hi"))).collect();
    assert_eq!(started(&root).progress().lists.logs_total, 5);
    assert_eq!(started(&root).progress().lists.logs_total, 0, "nothing has changed");

    for step in talk("more", "less") {
        sessions[2].step(&step, None);
    }
    let db = started(&root);
    assert_eq!(db.progress().lists.logs_total, 1, "a crash before the index was told");
    assert_eq!(found(&db, &SearchQuery::new(Viewer::All, "less", 10)), ["less"]);
    drop(db);
    assert_eq!(started(&root).progress().lists.logs_total, 0);
}

#[test]
fn a_database_that_is_not_sound_or_of_another_version_is_built_again() {
    let root = Root::new();
    put(&root, 1, "coder", "default", &talk("needle", "hay"));
    let whole = all_of(&started(&root));
    let path = root.path(DB);
    let other_version = |path: &Path| {
        rusqlite::Connection::open(path).unwrap().execute_batch("PRAGMA user_version = 999").unwrap();
    };
    let no_table = |path: &Path| {
        rusqlite::Connection::open(path).unwrap().execute_batch("DROP TABLE runs").unwrap();
    };
    let garbage = |path: &Path| std::fs::write(path, vec![b'x'; 20_000]).unwrap();
    let overwritten = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[4096..].fill(0xAA);
        std::fs::write(path, bytes).unwrap();
    };
    let cut = |path: &Path| std::fs::File::options().write(true).open(path).unwrap().set_len(9_000).unwrap();
    let empty = |path: &Path| std::fs::write(path, b"").unwrap();
    let harms: [&dyn Fn(&Path); 6] = [&other_version, &no_table, &garbage, &overwritten, &cut, &empty];
    for (at, harm) in harms.iter().enumerate() {
        harm(&path);
        let db = started(&root);
        assert!(db.remade().is_some(), "harm {at}");
        assert_eq!(all_of(&db), whole, "harm {at}");
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(started(&root).remade(), Some(&Remade::New));
}

#[test]
fn a_database_that_breaks_while_it_is_open_is_built_again() {
    let root = Root::new();
    let mut session = put(&root, 1, "coder", "default", &talk("needle", "hay"));
    let db = started(&root);
    rusqlite::Connection::open(root.path(DB)).unwrap().execute_batch("DROP TABLE runs").unwrap();
    session.step(&post("one more needle"), Some(&db));
    db.flush();
    assert!(db.last_error().is_some());
    assert!(db.wait_all(LONG));
    assert_eq!(found(&db, &SearchQuery::new(Viewer::All, "needle", 10)).len(), 2);
}

#[test]
fn a_rebuild_can_be_asked_for_and_broken_off() {
    let root = Root::new();
    for n in 1..=40 {
        put(&root, n, "coder", &format!("s{n}"), &talk("needle", &"hay ".repeat(300)));
    }
    let whole = rebuilt(&root);
    let db = started(&root);
    db.rebuild();
    assert!(db.wait_all(LONG));
    assert_eq!(all_of(&db), whole);
    drop(db);

    // A daemon that is stopped again and again gets there all the same.
    std::fs::remove_file(root.path(DB)).unwrap();
    let mut starts = 0;
    loop {
        starts += 1;
        let db = open(&root);
        db.catch_up(|_| {});
        db.wait_all(std::time::Duration::from_millis(starts));
        db.close();
        let complete = db.ask(|q| Ok(everything(q))).unwrap() == whole;
        if complete {
            break;
        }
        assert!(starts < 1_000);
    }
}

#[test]
fn a_database_whose_damage_a_question_finds_is_built_again() {
    let root = Root::new();
    for n in 1..=40 {
        put(&root, n, "coder", &format!("s{n}"), &talk("needle", &"hay ".repeat(300)));
    }
    let whole = rebuilt(&root);
    // Pages that opening does not look at.
    let path = root.path(DB);
    let len = std::fs::metadata(&path).unwrap().len();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let db = started(&root);
    for page in 12..len / 4096 {
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xAA; 4096], page * 4096).unwrap();
    }
    let ask = || db.ask(|q| q.search(&SearchQuery::new(Viewer::All, "needle", 1_000)));
    assert!(ask().is_err());
    db.flush();
    assert!(db.wait_all(LONG));
    assert_eq!(all_of(&db), whole);
}

#[test]
fn a_database_that_is_removed_while_it_is_open_is_built_again() {
    let root = Root::new();
    put(&root, 1, "coder", "default", &talk("needle", "hay"));
    let whole = rebuilt(&root);
    let db = started(&root);
    for gone in [&["index.db", "index.db-wal", "index.db-shm"][..], &["index.db-wal"], &["index.db"]] {
        for file in gone {
            std::fs::remove_file(root.path(file)).unwrap();
        }
        db.flush();
        assert!(db.wait_all(LONG));
        assert_eq!(all_of(&db), whole, "{gone:?}");
        let found = IndexReader::open(&root.path(DB)).unwrap();
        assert_eq!(found.queries().unread().unwrap(), 0, "{gone:?}: also by those who come now");
    }
}

#[test]
fn what_someone_else_marks_as_unread_is_read_again_without_being_used() {
    let root = Root::new();
    let session = put(&root, 1, "coder", "default", &talk("needle", "hay"));
    let whole = rebuilt(&root);
    let db = started(&root);
    mark_unread(&root.path(DB), &session.log).unwrap();
    assert!(db.ask(|q| q.unread()).unwrap() > 0 || all_of(&db) == whole);
    let until = std::time::Instant::now() + LONG;
    while all_of(&db) != whole {
        assert!(std::time::Instant::now() < until, "{:?}", db.last_error());
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn commits_that_come_faster_than_they_are_written_are_read_from_the_log() {
    let root = Root::new();
    let db = started(&root);
    let mut session = put(&root, 1, "coder", "default", &[]);
    db.committed(&session.log, session.life.session.id(), &session.life.records());
    // More text than may wait, at once.
    let long = format!("{} needle", "hay ".repeat(100_000));
    for _ in 0..60 {
        for step in talk(&long, "hay") {
            session.step(&step, Some(&db));
        }
    }
    let until = std::time::Instant::now() + LONG;
    let complete = || {
        let item = db.ask(|q| q.session(session.life.session.id())).unwrap();
        item.is_some_and(|item| item.next_seq == session.life.session.next_seq)
            && db.wait_all(std::time::Duration::ZERO)
    };
    while !complete() {
        assert!(std::time::Instant::now() < until, "{:?}", db.last_error());
        std::thread::yield_now();
    }
    let live = all_of(&db);
    drop(db);
    assert_eq!(live, rebuilt(&root));
}

#[test]
fn a_log_that_is_shorter_than_the_index_says_is_read_again() {
    let root = Root::new();
    let session = put(&root, 1, "coder", "cut", &talk("needle one", "two"));
    put(&root, 2, "coder", "whole", &talk("needle three", "four"));
    drop(started(&root));
    let (log, path) = (session.log.clone(), root.path(session.log.as_str()));
    drop(session);
    let bytes = std::fs::read(&path).unwrap();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    // Back to before the first message: an old copy was put in place.
    std::fs::write(&path, lines[0]).unwrap();
    let db = started(&root);
    let items = db.ask(|q| q.sessions()).unwrap();
    let cut = items.iter().find(|item| item.log == log).unwrap();
    assert_eq!((cut.row.messages, cut.next_seq), (0, 1));
    assert_eq!(found(&db, &SearchQuery::new(Viewer::All, "needle", 10)), ["needle three"]);
    let now = all_of(&db);
    drop(db);
    assert_eq!(now, rebuilt(&root));
}

/// What search finds for `needle`, when everything has been read.
fn needles(db: &IndexDb) -> Vec<String> {
    db.flush();
    assert!(db.wait_all(LONG), "{:?}", db.last_error());
    let mut found = found(db, &SearchQuery::new(Viewer::All, "needle", 100));
    found.sort();
    found
}

#[test]
fn a_log_that_was_cut_and_goes_on_is_shown_as_it_is_now_while_the_index_is_open() {
    let ways = [Shorter::Cut, Shorter::Replaced].into_iter().flat_map(|how| [(how, 1), (how, 4), (how, 9)]);
    for (how, later) in ways {
        let root = Root::new();
        let mut session = put(&root, 1, "coder", "default", &talk("needle one", "yes"));
        let db = started(&root);
        for text in ["needle two", "needle three"] {
            talk(text, "yes").iter().for_each(|step| session.step(step, Some(&db)));
        }
        assert_eq!(needles(&db), ["needle one", "needle three", "needle two"]);
        // As far as the end of the first exchange, and on: less than there was, as much, and more.
        session.shorten(&root, 4, how);
        session.take_up(&root, Some(&db));
        for n in 0..later {
            session.step(&talk(&format!("new needle {n}"), "yes")[n % 3], Some(&db));
        }
        let live = (needles(&db), all_of(&db));
        assert_eq!(live.0[..2], ["needle one".to_owned(), "new needle 0".to_owned()], "{how:?} {later}");
        drop(db);
        assert_eq!(all_of(&started(&root)), live.1, "{how:?} {later}");
        assert_eq!(rebuilt(&root), live.1, "{how:?} {later}");
    }
}

#[test]
fn a_log_that_was_cut_is_noticed_by_what_is_committed_even_if_nobody_said_that_it_was_taken_up() {
    let root = Root::new();
    let mut session = put(&root, 1, "coder", "default", &talk("needle one", "yes"));
    let db = started(&root);
    talk("needle two", "yes").iter().for_each(|step| session.step(step, Some(&db)));
    assert_eq!(needles(&db).len(), 2);
    session.shorten(&root, 4, Shorter::Cut);
    session.take_up(&root, None);
    session.step(&post("needle three"), Some(&db));
    assert_eq!(needles(&db), ["needle one", "needle three"]);
}

#[test]
fn another_session_in_the_place_of_one_that_is_gone_has_its_own_id() {
    for (down, told) in [(true, true), (true, false), (false, true)] {
        for posts in [1, 2, 5] {
            let root = Root::new();
            let mut session = put(&root, 1, "coder", "m1", &[]);
            let mut db = started(&root);
            for text in ["needle one", "needle two", "needle three"] {
                talk(text, "yes").iter().for_each(|step| session.step(step, Some(&db)));
            }
            assert_eq!(needles(&db).len(), 3);
            if down {
                drop(db);
                std::fs::remove_file(root.path(session.log.as_str())).unwrap();
                db = started(&root);
                std::fs::write(root.path(session.log.as_str()), b"").unwrap();
            }
            session.replace(&root, 7, told.then_some(&db));
            for n in 0..posts {
                talk(&format!("new needle {n}"), "yes").iter().for_each(|step| session.step(step, Some(&db)));
            }
            let wanted: Vec<String> = (0..posts).map(|n| format!("new needle {n}")).collect();
            assert_eq!(needles(&db), wanted, "down {down}, told {told}");
            let items = db.ask(|q| q.sessions()).unwrap();
            assert_eq!(items.iter().map(SessionItem::id).collect::<Vec<_>>(), [session.life.session.id()]);
            let live = all_of(&db);
            drop(db);
            assert_eq!(all_of(&started(&root)), live);
            assert_eq!(rebuilt(&root), live);
        }
    }
}

#[test]
fn another_log_in_the_place_of_the_one_that_was_read_is_noticed() {
    let root = Root::new();
    let one = put(&root, 1, "coder", "one", &talk("needle one", "two"));
    let two = put(&root, 2, "coder", "two", &talk("needle three, which is longer", "and more to say"));
    drop(started(&root));
    let (first, second) = (root.path(one.log.as_str()), root.path(two.log.as_str()));
    drop((one, two));
    std::fs::rename(&second, &first).unwrap();
    std::fs::remove_dir_all(second.parent().unwrap()).unwrap();
    let db = started(&root);
    assert_eq!(found(&db, &SearchQuery::new(Viewer::All, "needle", 10)), ["needle three, which is longer"]);
}

#[test]
fn a_session_that_moved_is_the_same_session() {
    let root = Root::new();
    let mut session = put(&root, 1, "coder", "default", &talk("needle", "hay"));
    let db = started(&root);
    session.step(&Step::End, Some(&db));
    let over = log_of("coder", "default+over");
    root.journal.rename(&session.log, &over).unwrap();
    db.moved(&session.log, &over);
    db.moved(&session.log, &over);
    // Somebody had read it where it was, and comes late: it is no second one.
    db.committed(&session.log, session.life.session.id(), &session.life.records());
    db.flush();
    assert!(db.ask(|q| q.damage()).unwrap().is_empty());
    assert_eq!(db.ask(|q| q.sessions()).unwrap()[0].log, over);
    assert!(db.wait_all(LONG));
    drop(db);

    // And again while no daemon was up to see it.
    let later = log_of("coder", "elsewhere");
    root.journal.rename(&over, &later).unwrap();
    let db = started(&root);
    let items = db.ask(|q| q.sessions()).unwrap();
    assert_eq!((items.len(), &items[0].log, items[0].row.state), (1, &later, StateName::Ended));
    assert!(db.ask(|q| q.missing()).unwrap().is_empty());
}

#[test]
fn a_session_that_moved_before_its_first_records_came_is_where_it_went() {
    let root = Root::new();
    let db = started(&root);
    let session = put(&root, 1, "coder", "default", &talk("needle", "hay"));
    let over = log_of("coder", "default+over");
    root.journal.rename(&session.log, &over).unwrap();
    db.moved(&session.log, &over);
    // Somebody had begun to read it where it was.
    db.committed(&session.log, session.life.session.id(), &session.life.records());
    db.flush();
    assert!(db.wait_all(LONG));
    let items = db.ask(|q| q.sessions()).unwrap();
    assert_eq!(items.iter().map(|item| &item.log).collect::<Vec<_>>(), [&over]);
    assert!(db.ask(|q| q.damage()).unwrap().is_empty());
    assert_eq!(found(&db, &SearchQuery::new(Viewer::All, "needle", 10)).len(), 1);
}

#[test]
fn a_session_whose_directory_is_gone_is_reported_and_not_listed() {
    let root = Root::new();
    let gone = put(&root, 1, "coder", "gone", &talk("needle", "hay"));
    put(&root, 2, "coder", "here", &talk("needle", "hay"));
    drop(started(&root));
    let dir = root.path(gone.log.as_str()).parent().unwrap().to_owned();
    let aside = root.path("aside");
    std::fs::rename(&dir, &aside).unwrap();
    let db = started(&root);
    db.flush();
    assert_eq!(names(&db.ask(|q| q.sessions()).unwrap()), ["here"]);
    assert_eq!(found(&db, &SearchQuery::new(Viewer::All, "needle", 10)).len(), 1);
    assert_eq!(db.ask(|q| q.missing()).unwrap(), [(gone.life.session.id(), gone.log.clone())]);
    drop(db);

    std::fs::rename(&aside, &dir).unwrap();
    let db = started(&root);
    assert_eq!(db.ask(|q| q.sessions()).unwrap().len(), 2);
    db.purged(gone.life.session.id()).unwrap();
    assert_eq!(names(&db.ask(|q| q.sessions()).unwrap()), ["here"]);
    assert_eq!(found(&db, &SearchQuery::new(Viewer::All, "needle", 10)).len(), 1, "its text is gone too");
}

#[test]
fn what_was_read_of_a_session_before_its_purge_does_not_bring_it_back() {
    let root = Root::new();
    let db = started(&root);
    let gone = put(&root, 1, "coder", "gone", &talk("needle", "hay"));
    let (log, id, records) = (gone.log.clone(), gone.life.session.id(), gone.life.records());
    std::fs::remove_dir_all(root.path(log.dir())).unwrap();
    db.purged(id).unwrap();
    // On its way since before.
    db.committed(&log, id, &records);
    db.flush();
    assert!(db.ask(|q| q.sessions()).unwrap().is_empty());
    assert!(found(&db, &SearchQuery::new(Viewer::All, "needle", 10)).is_empty());
    assert_eq!(db.last_error(), None);
}

#[test]
fn a_start_leaves_nothing_in_the_log_of_the_database_that_a_crash_left_there() {
    let root = Root::new();
    put(&root, 1, "coder", "default", &talk("needle", "hay"));
    let files = ["", "-wal"].map(|end| root.path(format!("{DB}{end}")));
    let db = started(&root);
    assert_eq!(needles(&db), ["needle"]);
    let as_left = files.each_ref().map(|file| std::fs::read(file).unwrap());
    assert!(!as_left[1].is_empty(), "it was not written back yet");
    drop(db);
    for (file, bytes) in files.iter().zip(&as_left) {
        std::fs::write(file, bytes).unwrap();
    }
    let db = open(&root);
    db.flush();
    assert_eq!(std::fs::metadata(&files[1]).map_or(0, |data| data.len()), 0);
    assert_eq!(needles(&db), ["needle"]);
}

#[test]
fn damage_is_kept_with_its_line_and_the_rest_is_used() {
    let root = Root::new();
    let session = put(&root, 1, "coder", "default", &talk("needle one", "needle two"));
    let path = root.path(session.log.as_str());
    let log = session.log.clone();
    drop(session);
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains("needle two")).unwrap();
    lines[at] = "garbage";
    std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    let db = started(&root);
    assert_eq!(found(&db, &SearchQuery::new(Viewer::All, "needle", 10)), ["needle one"]);
    let damage = db.ask(|q| q.damage()).unwrap();
    assert!(damage.iter().any(|line| line.starts_with(&format!("{log}:{}: ", at + 1))), "{damage:?}");

    // Mended by hand: the index is told to look again.
    std::fs::write(&path, text).unwrap();
    db.reindex(&log);
    assert!(db.wait_all(LONG));
    assert_eq!(found(&db, &SearchQuery::new(Viewer::All, "needle", 10)).len(), 2);
    assert!(db.ask(|q| q.damage()).unwrap().is_empty());
}

#[test]
fn nobody_waits_for_an_index_that_is_closed() {
    let root = Root::new();
    let db = started(&root);
    db.close();
    let session = put(&root, 1, "coder", "default", &[]);
    db.committed(&session.log, session.life.session.id(), &session.life.records());
    db.flush();
    assert!(db.ask(|q| q.sessions()).unwrap().is_empty());
    db.close();
}

/// What the index has of a session, whatever it thinks of it.
fn texts_of(root: &Root, id: SessionId) -> Vec<String> {
    let index = IndexReader::open(&root.path(DB)).unwrap();
    let query =
        MessagesQuery { session: id, since: None, before: None, superseded: true, limit: usize::MAX - 1 };
    index.queries().messages(&query).unwrap().items.into_iter().map(|item| item.content).collect()
}

/// What happens to an index between two commits.
#[derive(Debug, Clone)]
enum Event {
    /// A commit that the index is told of, or one that it is not.
    Step {
        of: usize,
        step: Step,
        told: bool,
    },
    Restart,
    Delete,
    Move {
        of: usize,
    },
    Reindex {
        of: usize,
    },
    /// The log goes back to an earlier commit, with the index open or not, and is taken up again.
    Shorten {
        of: usize,
        commits: usize,
        how: Shorter,
        down: bool,
    },
    /// Another session begins in the place of this one.
    Replace {
        of: usize,
        down: bool,
    },
    /// It is purged, and another one begins elsewhere.
    Purge {
        of: usize,
    },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let step = steps(2).prop_map(|mut steps| steps.remove(0));
    let event = prop_oneof![
        30 => (0usize..3, step, prop::bool::weighted(0.9))
            .prop_map(|(of, step, told)| Event::Step { of, step, told }),
        2 => Just(Event::Restart),
        1 => Just(Event::Delete),
        1 => (0usize..3).prop_map(|of| Event::Move { of }),
        1 => (0usize..3).prop_map(|of| Event::Reindex { of }),
        2 => (0usize..3, 1usize..12, prop::bool::ANY, prop::bool::ANY).prop_map(|(of, commits, cut, down)| {
            let how = if cut { Shorter::Cut } else { Shorter::Replaced };
            Event::Shorten { of, commits, how, down }
        }),
        1 => (0usize..3, prop::bool::ANY).prop_map(|(of, down)| Event::Replace { of, down }),
        2 => (0usize..3).prop_map(|of| Event::Purge { of }),
    ];
    prop::collection::vec(event, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16) })]

    #[test]
    fn whatever_happens_the_index_becomes_what_the_logs_say(before in steps(20), events in events()) {
        let root = Root::new();
        let mut sessions: Vec<Grown> =
            (0..2).map(|n| put(&root, n, "coder", &format!("s{n}"), &[])).collect();
        let mut source = Life::begin(7);
        source.live(&before);
        sessions.push(Grown::new(&root, source.fork(8, "s2"), "coder", "s2"));
        let mut db = started(&root);
        let (mut moves, mut seed) = (0, 100);
        for event in events {
            match event {
                Event::Step { of, step, told } => sessions[of].step(&step, told.then_some(&db)),
                Event::Restart => {
                    drop(db);
                    db = started(&root);
                }
                Event::Delete => {
                    drop(db);
                    std::fs::remove_file(root.path(DB)).unwrap();
                    db = started(&root);
                }
                Event::Move { of } => {
                    moves += 1;
                    let to = log_of("coder", &format!("moved{moves}"));
                    root.journal.rename(&sessions[of].log, &to).unwrap();
                    db.moved(&sessions[of].log, &to);
                    sessions[of].log = to;
                }
                Event::Reindex { of } => db.reindex(&sessions[of].log),
                Event::Shorten { of, commits, how, down: false } => {
                    sessions[of].shorten(&root, commits, how);
                    sessions[of].take_up(&root, Some(&db));
                }
                Event::Shorten { of, commits, how, down: true } => {
                    drop(db);
                    sessions[of].shorten(&root, commits, how);
                    db = started(&root);
                    sessions[of].take_up(&root, Some(&db));
                }
                Event::Replace { of, down: false } => {
                    seed += 1;
                    sessions[of].replace(&root, seed, Some(&db));
                }
                Event::Purge { of } => {
                    seed += 1;
                    let id = sessions[of].life.session.id();
                    let dir = root.path(sessions[of].log.dir());
                    sessions[of] = put(&root, seed, "coder", &format!("s{seed}"), &[]);
                    std::fs::remove_dir_all(dir).unwrap();
                    prop_assert_eq!(db.purged(id), Ok(()));
                    let words = texts_of(&root, id);
                    prop_assert!(words.is_empty(), "{:?}", words);
                    let Grown { life, log, .. } = &sessions[of];
                    db.committed(log, life.session.id(), &life.records());
                }
                Event::Replace { of, down: true } => {
                    seed += 1;
                    drop(db);
                    sessions[of].replace(&root, seed, None);
                    db = started(&root);
                }
            }
        }
        // The last records of a session may be among those that the index was not told of: taking it up tells.
        for session in &mut sessions {
            session.take_up(&root, Some(&db));
        }
        db.flush();
        prop_assert!(db.wait_all(LONG));
        let live = all_of(&db);
        drop(db);
        let db = started(&root);
        let restarted = all_of(&db);
        drop(db);
        let whole = rebuilt(&root);
        prop_assert_eq!(live, whole);
        prop_assert_eq!(restarted, rebuilt(&root));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn the_overview_of_a_session_says_what_the_session_says(
        seed in any::<u64>(),
        steps in steps(40),
        fork in any::<bool>(),
        later in steps(20),
        lost in prop::collection::vec(prop::bool::weighted(0.1), 300),
    ) {
        let mut life = Life::begin(seed);
        life.live(&steps);
        if fork {
            life = life.fork(seed ^ 1, "fork");
        }
        life.live(&later);
        // Also where damage took records out of the log.
        let records = life.records();
        let kept = records.iter().zip(lost.iter().chain(std::iter::repeat(&false)));
        let kept: Vec<&Record> =
            kept.filter(|(record, lost)| record.seq == 0 || !**lost).map(|(record, _)| record).collect();
        let mut session = Session::new(life.session.meta.clone(), 0, records[0].time);
        let mut conversation = 0;
        for record in kept {
            session.apply(record);
            conversation += u64::from(ctx_session::conversation::said(record).is_some());
            prop_assert_eq!(session.overview.state, session.state.name());
        }
        let failure = match &session.state {
            ctx_session::State::Failed(failure) => Some(failure.clone()),
            _ => None,
        };
        prop_assert_eq!(&session.failure, &failure);
        let posted = session.runs().rfind(|run| run.kind.is_message());
        prop_assert_eq!(session.posted_at, posted.map(|run| run.created_at));
        prop_assert_eq!(session.overview.runs, session.runs().count() as u64);
        prop_assert_eq!(session.messages, conversation);
    }
}
