//! The index database: what lists and search answer, and that it always comes to be what the logs say.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ctx_journal::{LogPath, LogWriter};
use ctx_session::conversation::Role;
use ctx_session::{Record, Session, StateName, Timestamp};
use ctx_views::db::{
    IndexDb, IndexReader, ListQuery, MessageItem, MessagesQuery, Options, Queries, Remade, RunItem,
    SearchQuery, SearchSort, SessionItem, SessionRow, Sort, Stats, StatsQuery, ToolCallItem, Viewer,
};
use proptest::prelude::*;

use crate::world::{Life, Root, Step, append, name, own, steps};

const START: u64 = 1_794_722_400_000;
const LONG: Duration = Duration::from_secs(60);
const DB: &str = "index.db";

fn open(root: &Root) -> IndexDb {
    let journal = root.journal.clone();
    let options =
        Options { session_logs: Arc::new(move || journal.list("home")), meta_of: Arc::new(|_| None) };
    IndexDb::open(&root.dir, Path::new(DB), root.journal.clone(), options).unwrap()
}

/// Opens the index as a daemon does, and waits until it shows everything.
fn started(root: &Root) -> IndexDb {
    let db = open(root);
    db.catch_up(|_| {});
    assert!(db.wait_all(LONG), "{:?}", db.last_error());
    assert_eq!(db.last_error(), None);
    db
}

fn log_of(agent: &str, dir_name: &str) -> LogPath {
    LogPath::new(format!("home/{}/agent/{agent}/session/{dir_name}/events.jsonl", own().uid)).unwrap()
}

/// A session with its log, that grows on disk and in the index.
struct Grown {
    life: Life,
    log: LogPath,
    writer: Box<dyn LogWriter>,
}

impl Grown {
    fn new(root: &Root, life: Life, agent: &str, dir_name: &str) -> Grown {
        let log = log_of(agent, dir_name);
        let writer = life.write(&*root.journal, &log);
        Grown { life, log, writer }
    }

    /// Takes a step and commits it; the index is told of it or not.
    fn step(&mut self, step: &Step, db: Option<&IndexDb>) {
        let Some(commit) = self.life.step(step).map(<[Record]>::to_vec) else { return };
        append(&*self.writer, &commit);
        if let Some(db) = db {
            db.committed(&self.log, &commit);
        }
    }
}

fn post(text: &str) -> Step {
    Step::Post { text: text.to_owned(), slot: true, cwd: None }
}

fn say(text: &str) -> Step {
    Step::Say { text: text.to_owned() }
}

fn done() -> Step {
    Step::Finish { how: 0, partial: None }
}

fn tool(output: &str) -> [Step; 2] {
    let call = |finish| Step::Tool { input: "README".to_owned(), output: output.to_owned(), finish };
    [call(false), call(true)]
}

fn talk(question: &str, answer: &str) -> Vec<Step> {
    vec![post(question), say(answer), done()]
}

fn put(root: &Root, seed: u64, agent: &str, dir_name: &str, steps: &[Step]) -> Grown {
    let mut life = Life::begin_as(seed, Some(dir_name), agent, START + seed * 60_000);
    life.live(steps);
    Grown::new(root, life, agent, dir_name)
}

fn names(items: &[SessionItem]) -> Vec<&str> {
    items.iter().map(|item| item.row.meta.name.as_str()).collect()
}

fn found(db: &IndexDb, query: &SearchQuery) -> Vec<String> {
    let page = db.ask(|q| q.search(query)).unwrap();
    page.items.iter().map(|hit| hit.snippet.iter().map(|piece| piece.text.as_str()).collect()).collect()
}

/// Everything that can be asked of an index, in an order that does not depend on how it came to be.
#[derive(Debug, PartialEq)]
struct Everything {
    sessions: Vec<SessionItem>,
    messages: Vec<Vec<MessageItem>>,
    runs: Vec<Vec<RunItem>>,
    calls: Vec<Vec<ToolCallItem>>,
    stats: Stats,
    found: Vec<(String, u64, String)>,
    damage: Vec<String>,
}

fn everything(q: &Queries<'_>) -> Everything {
    let sessions = q.sessions().unwrap();
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
fn a_commit_shows_in_lists_and_search_without_a_rebuild() {
    let root = Root::new();
    let db = started(&root);
    let mut session = put(&root, 1, "coder", "default", &[]);
    db.committed(&session.log, &session.life.records());
    for step in talk("where is the needle", "in the haystack").iter().take(2) {
        session.step(step, Some(&db));
    }
    db.flush();
    let list = db.ask(|q| q.list(&ListQuery::newest(Viewer::All, 10))).unwrap();
    assert_eq!(list.items[0].row.state, StateName::Running);
    assert_eq!(list.items[0].row.preview.as_deref(), Some("where is the needle"));

    session.step(&done(), Some(&db));
    db.flush();
    let item = db.ask(|q| q.session(session.life.session.id())).unwrap().unwrap();
    assert_eq!((item.row.state, item.row.runs, item.row.messages), (StateName::Idle, 1, 2));
    assert_eq!(found(&db, &SearchQuery::new(Viewer::All, "haystack", 10)), ["in the haystack"]);
    let runs = db.ask(|q| q.runs(item.id(), None, 10)).unwrap().items;
    assert_eq!((runs[0].state.as_str(), runs[0].usage.output, runs[0].duration_ms), ("done", 5, Some(14)));
}

#[test]
fn the_index_follows_within_its_200_ms() {
    let root = Root::new();
    let db = started(&root);
    let session = put(&root, 1, "coder", "default", &[]);
    let begun = std::time::Instant::now();
    db.committed(&session.log, &session.life.records());
    while db.ask(|q| q.session(session.life.session.id())).unwrap().is_none() {
        // Ten times the promise, because the machine may be busy.
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", db.last_error());
        std::thread::yield_now();
    }
}

#[test]
fn a_list_is_filtered_sorted_and_paged() {
    let root = Root::new();
    put(&root, 1, "coder", "old", &talk("find the needle", "here"));
    put(&root, 2, "coder", "broken", &[Step::Fail]);
    put(&root, 3, "writer", "essay", &[post("a letter"), Step::Rename { title: "Love letter".to_owned() }]);
    put(
        &root,
        4,
        "coder",
        "alpha",
        &[Step::Post { text: "x".to_owned(), slot: true, cwd: Some("/sub".to_owned()) }],
    );
    let db = started(&root);
    let ask = |change: &dyn Fn(&mut ListQuery)| {
        let mut query = ListQuery::newest(Viewer::All, 10);
        change(&mut query);
        let page = db.ask(|q| q.list(&query)).unwrap();
        names(&page.items).join(" ")
    };
    assert_eq!(ask(&|_| {}), "alpha essay broken old");
    assert_eq!(ask(&|q| q.sort = Sort::Name), "alpha broken essay old");
    assert_eq!(ask(&|q| q.sort = Sort::Created), "alpha essay broken old");
    assert_eq!(ask(&|q| q.states = vec![StateName::Running]), "alpha essay");
    assert_eq!(ask(&|q| q.states = vec![StateName::Idle, StateName::Failed]), "broken old");
    assert_eq!(ask(&|q| q.agent = Some(name("writer"))), "essay");
    assert_eq!(ask(&|q| q.project = Some(name("other"))), "");
    assert_eq!(ask(&|q| q.cwd = Some("/sub".to_owned())), "alpha");
    assert_eq!(ask(&|q| q.text = Some("love".to_owned())), "essay");
    assert_eq!(ask(&|q| q.text = Some("here".to_owned())), "old", "said in it");
    assert_eq!(ask(&|q| q.text = Some("%".to_owned())), "");
    assert_eq!(
        ask(&|q| q.viewer = Viewer::User { uid: own().uid, spaces: Vec::new() }),
        "alpha essay broken old"
    );
    assert_eq!(ask(&|q| q.viewer = Viewer::User { uid: own().uid + 1, spaces: vec![name("team")] }), "");

    for sort in [Sort::Updated, Sort::Created, Sort::Name] {
        let mut query = ListQuery { sort, ..ListQuery::newest(Viewer::All, 10) };
        let whole = db.ask(|q| q.list(&query)).unwrap().items;
        let mut paged = Vec::new();
        query.limit = 1;
        loop {
            let page = db.ask(|q| q.list(&query)).unwrap();
            paged.extend(page.items);
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        assert_eq!(paged, whole, "{sort:?}");
    }
    let bad = ListQuery { after: Some("nonsense".to_owned()), ..ListQuery::newest(Viewer::All, 10) };
    assert_eq!(db.ask(|q| q.list(&bad)).unwrap_err().code().name(), "EINVAL");
}

#[test]
fn search_ranks_filters_and_shows_what_it_found() {
    let root = Root::new();
    let mut steps = talk(
        "needle needle needle",
        "a long answer in which one needle among very many other words is found",
    );
    steps.push(post("now run a tool"));
    steps.extend(tool(&format!("needle {}", "x".repeat(5_000))));
    steps.extend([say("Größe über alles"), done()]);
    put(&root, 1, "coder", "default", &steps);
    put(&root, 2, "writer", "default", &talk("a needle elsewhere", "yes"));
    let db = started(&root);
    let query = |text: &str| SearchQuery::new(Viewer::All, text, 10);
    let count = |query: SearchQuery| db.ask(|q| q.search(&query)).unwrap().items.len();

    let best = db.ask(|q| q.search(&query("needle"))).unwrap().items;
    assert_eq!(best.len(), 4);
    assert_eq!((best[0].role, best[0].snippet.len()), (Role::User, 5), "three hits and what is between them");
    assert!(best[0].snippet[0].is_hit && best[0].score > best[3].score);
    assert_eq!(count(SearchQuery { agent: Some(name("writer")), ..query("needle") }), 1);
    assert_eq!(count(SearchQuery { role: Some(Role::Tool), ..query("needle") }), 1);
    assert_eq!(count(SearchQuery { project: Some(name("none")), ..query("needle") }), 0);
    let later = Some(Timestamp::from_millis(START + 100_000));
    assert_eq!(count(SearchQuery { since: later, ..query("needle") }), 1);
    assert_eq!(count(SearchQuery { until: later, ..query("needle") }), 3);
    let stranger = Viewer::User { uid: own().uid + 1, spaces: Vec::new() };
    assert_eq!(count(SearchQuery { viewer: stranger, ..query("needle") }), 0);
    assert_eq!(count(query("grosse")), 0);
    assert_eq!(count(query("große UBER")), 1, "case and accents do not matter");
    assert_eq!(count(query("\"one needle\"")), 1);
    assert_eq!(count(query("need* -elsewhere")), 3);
    let page = db.ask(|q| q.search(&SearchQuery { limit: 3, ..query("needle") })).unwrap();
    let rest = SearchQuery { limit: 3, after: page.next, ..query("needle") };
    assert_eq!(count(rest), 1);
    assert_eq!(db.ask(|q| q.search(&query("---"))).unwrap_err().code().name(), "EINVAL");
}

#[test]
fn messages_and_runs_come_in_pages() {
    let root = Root::new();
    let mut steps = talk("one", "two");
    steps.push(post("three"));
    steps.extend(tool(&"o".repeat(5_000)));
    steps.extend(talk("four", "five").into_iter().skip(1));
    steps.push(Step::Post { text: "six".to_owned(), slot: false, cwd: None });
    steps.push(Step::DiscardQueued);
    let session = put(&root, 1, "coder", "default", &steps);
    let db = started(&root);
    let id = session.life.session.id();
    let all = MessagesQuery { session: id, since: None, before: None, superseded: false, limit: 100 };
    let ask = |query: &MessagesQuery| db.ask(|q| q.messages(query)).unwrap();

    let whole = ask(&all).items;
    let contents: Vec<&str> =
        whole.iter().map(|message| &message.content[..message.content.len().min(5)]).collect();
    assert_eq!(contents, ["one", "two", "three", "", "ooooo", "five"]);
    assert!(whole[4].is_cut && whole[4].content.len() == 4096 && whole[3].parts.is_some());
    assert_eq!(ask(&MessagesQuery { superseded: true, ..all.clone() }).items.len(), 7);
    let page = ask(&MessagesQuery { limit: 2, ..all.clone() });
    assert_eq!((page.items.len(), page.next), (2, Some(whole[1].seq.to_string())));
    let later = ask(&MessagesQuery { since: Some(whole[1].seq), limit: 2, ..all.clone() });
    assert_eq!(later.items, whole[2..4]);
    let before = ask(&MessagesQuery { before: Some(whole[5].seq), limit: 2, ..all });
    assert_eq!((before.items.as_slice(), before.next), (&whole[3..5], Some(whole[3].seq.to_string())));
    assert_eq!(db.ask(|q| q.message_seq(id, whole[2].id)).unwrap(), Some(whole[2].seq));

    let runs = db.ask(|q| q.runs(id, None, 2)).unwrap();
    let states: Vec<&str> = runs.items.iter().map(|run| run.state.as_str()).collect();
    assert_eq!(states, ["cancelled", "done"]);
    let before = runs.next.map(|next| next.parse().unwrap());
    assert_eq!(db.ask(|q| q.runs(id, before, 2)).unwrap().items.len(), 1);
    let calls = db.ask(|q| q.tool_calls(id, runs.items[1].id)).unwrap();
    assert_eq!((calls[0].tool.as_str(), calls[0].state.as_str()), ("fs.read", "done"));
    assert_eq!(db.ask(|q| q.run(id, runs.items[1].id)).unwrap().as_ref(), Some(&runs.items[1]));
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
    db.flush();
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
    db.removed(&gone.log);
    db.flush();
    assert_eq!(names(&db.ask(|q| q.sessions()).unwrap()), ["here"]);
    assert_eq!(found(&db, &SearchQuery::new(Viewer::All, "needle", 10)).len(), 1, "its text is gone too");
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
fn a_session_is_found_by_the_beginning_of_its_id_and_read_without_a_daemon() {
    let root = Root::new();
    let session = put(&root, 1, "coder", "default", &[]);
    drop(started(&root));
    let reader = IndexReader::open(&root.path(DB)).unwrap();
    let id = session.life.session.id().to_string();
    for beginning in [&id[..], &id[..10], &id[..2].to_lowercase()] {
        let items = reader.queries().sessions_by_beginning(&Viewer::All, beginning, 9).unwrap();
        assert_eq!(items[0].id(), session.life.session.id(), "{beginning}");
    }
    assert!(reader.queries().sessions_by_beginning(&Viewer::All, "7ZZ", 9).unwrap().is_empty());
}

#[test]
fn nobody_waits_for_an_index_that_is_closed() {
    let root = Root::new();
    let db = started(&root);
    db.close();
    let session = put(&root, 1, "coder", "default", &[]);
    db.committed(&session.log, &session.life.records());
    db.flush();
    assert!(db.ask(|q| q.sessions()).unwrap().is_empty());
    db.close();
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
    ];
    prop::collection::vec(event, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_happens_the_index_becomes_what_the_logs_say(events in events()) {
        let root = Root::new();
        let mut sessions: Vec<Grown> =
            (0..3).map(|n| put(&root, n, "coder", &format!("s{n}"), &[])).collect();
        let mut db = started(&root);
        let mut moves = 0;
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
            }
        }
        // The last records of a session may be among those that the index was not told of.
        drop(db);
        let db = started(&root);
        let live = all_of(&db);
        drop(db);
        prop_assert_eq!(live, rebuilt(&root));
        for session in &sessions {
            prop_assert!(session.life.session.next_seq > 0);
        }
    }

    #[test]
    fn the_row_of_a_session_says_what_the_session_says(
        seed in any::<u64>(),
        steps in steps(60),
        lost in prop::collection::vec(prop::bool::weighted(0.1), 300),
    ) {
        let mut life = Life::begin(seed);
        life.live(&steps);
        // Also where damage took records out of the log.
        let records = life.records();
        let kept = records.iter().zip(lost.iter().chain(std::iter::repeat(&false)));
        let kept: Vec<&Record> =
            kept.filter(|(record, lost)| record.seq == 0 || !**lost).map(|(record, _)| record).collect();
        let mut session = Session::new(life.session.meta.clone(), 0, records[0].time);
        let mut row = SessionRow::new(life.session.meta.clone(), records[0].time);
        let mut conversation = 0;
        for record in kept {
            session.apply(record);
            row.apply(record);
            if let Some(ctx_session::conversation::Change::Said(_)) = ctx_session::conversation::change(record) {
                conversation += 1;
            }
            prop_assert_eq!(row.state, session.state.name());
        }
        let failure = match &session.state {
            ctx_session::State::Failed(failure) => Some(failure.clone()),
            _ => None,
        };
        prop_assert_eq!(&row.failure, &failure);
        prop_assert_eq!((&row.title, &row.cwd), (&session.title, &session.cwd));
        prop_assert_eq!(&row.model_override, &session.model_override);
        prop_assert_eq!((row.updated_at, row.ended_at), (session.updated_at, session.ended_at));
        prop_assert_eq!(row.posted_at, session.runs().next_back().map(|run| run.created_at));
        prop_assert_eq!(row.runs, session.runs().count() as u64);
        prop_assert_eq!(row.messages, conversation);
    }

    #[test]
    fn nothing_that_is_typed_breaks_search(text in "\\PC{0,40}", quoted in "[\"*a-z() :^+-]{0,20}") {
        let root = Root::new();
        put(&root, 1, "coder", "default", &talk("needle", "hay"));
        let db = started(&root);
        for text in [text, quoted] {
            if let Err(error) = db.ask(|q| q.search(&SearchQuery::new(Viewer::All, &text, 10))) {
                prop_assert_eq!(error.code().name(), "EINVAL", "{}", error);
            }
            let query = ListQuery { text: Some(text), ..ListQuery::newest(Viewer::All, 10) };
            prop_assert!(db.ask(|q| q.list(&query)).is_ok());
        }
    }
}
