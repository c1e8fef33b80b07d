//! The index database: what lists, search and pages answer.

use std::time::Duration;

use ctx_session::conversation::Role;
use ctx_session::{StateName, Timestamp};
use ctx_views::db::{IndexReader, ListQuery, MessagesQuery, SearchQuery, SearchSort, Sort, Viewer};
use proptest::prelude::*;

use crate::indexed::{DB, START, done, found, names, post, put, put_at, say, started, talk, tool};
use crate::world::{Root, Step, name, own};

#[test]
fn a_commit_shows_in_lists_and_search_without_a_rebuild() {
    let root = Root::new();
    let db = started(&root);
    let mut session = put(&root, 1, "coder", "default", &[]);
    db.committed(&session.log, session.life.session.id(), &session.life.records());
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
    db.committed(&session.log, session.life.session.id(), &session.life.records());
    while db.ask(|q| q.session(session.life.session.id())).unwrap().is_none() {
        // Far more than the promise, because the machine may be busy.
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", db.last_error());
        std::thread::yield_now();
    }
}

#[test]
fn a_list_is_filtered_sorted_and_paged() {
    let root = Root::new();
    put(&root, 1, "coder", "old", &talk("find the needle", "here"));
    put_at(&root, (11, 1), "coder", "away", &[Step::Archive { archived: true }]);
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
    assert_eq!(ask(&|q| q.archived = true), "alpha essay broken old away");
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
fn pages_of_a_search_neither_repeat_nor_miss_a_hit_when_more_is_said_meanwhile() {
    for sort in [SearchSort::Rank, SearchSort::Newest] {
        let root = Root::new();
        let said = |n: u64| put(&root, n, "coder", &format!("s{n}"), &talk("one otter", "yes"));
        (1..=5).for_each(|n| drop(said(n)));
        let db = started(&root);
        let asked = |after: Option<String>| {
            let query = SearchQuery { sort, after, ..SearchQuery::new(Viewer::All, "otter", 2) };
            db.ask(|q| q.search(&query)).unwrap()
        };
        let mut page = asked(None);
        let mut found: Vec<_> = page.items.iter().map(|hit| hit.session).collect();
        for n in 6.. {
            // Newer than all, and as good as any.
            let more = said(n);
            db.committed(&more.log, more.life.session.id(), &more.life.records());
            db.flush();
            let Some(next) = page.next else { break };
            page = asked(Some(next));
            found.extend(page.items.iter().map(|hit| hit.session));
        }
        let distinct: std::collections::BTreeSet<_> = found.iter().collect();
        assert_eq!((found.len(), distinct.len()), (5, 5), "{sort:?}");
    }
    let root = Root::new();
    let db = started(&root);
    for (sort, cursor) in [(SearchSort::Rank, "4"), (SearchSort::Newest, "4:0"), (SearchSort::Rank, "-1:0")] {
        let query =
            SearchQuery { sort, after: Some(cursor.to_owned()), ..SearchQuery::new(Viewer::All, "otter", 2) };
        assert_eq!(db.ask(|q| q.search(&query)).unwrap_err().code().name(), "EINVAL", "{cursor}");
    }
}

#[test]
fn a_word_that_is_said_a_hundred_thousand_times_is_found_all_the_same() {
    let root = Root::new();
    put(&root, 1, "coder", "default", &talk(&"needle ".repeat(70_000), "hay"));
    let db = started(&root);
    let begun = std::time::Instant::now();
    let found = found(&db, &SearchQuery::new(Viewer::All, "needle", 10));
    assert!(found[0].starts_with("needle needle") && found[0].len() < 200);
    // SQLite's own snippet takes minutes for this one.
    assert!(begun.elapsed() < Duration::from_secs(10));
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

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
