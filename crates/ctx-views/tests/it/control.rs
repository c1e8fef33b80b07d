//! What the operator does with a session, in its files, in the index and to a reader: pausing, going back, compaction,
//! approvals, the bound issue.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use ctx_session::conversation::Role;
use ctx_session::record::{RunFinish, RunKind, SessionBody, StateName};
use ctx_session::{Record, Ulid};
use ctx_views::SessionFiles;
use ctx_views::db::{ListQuery, MessageItem, MessagesQuery, SearchQuery, Standing, Viewer};
use ctx_views::read::{Reader, RemovedBy, SessionRef, SessionsDir, Wanted};
use proptest::prelude::*;

use crate::indexed::{done, names, post, put, say, started, tool};
use crate::world::{Life, Root, Step, name, operated, own, view_files};

const DIR: &str = "s";

fn pause() -> Step {
    Step::Pause { by_model: false }
}

fn back(back: usize) -> Step {
    Step::Rollback { back, partial: None }
}

fn resume() -> Step {
    Step::Resume { slot: true }
}

fn shorten(messages: usize, summary: Option<&str>, proposed: bool) -> Step {
    Step::Shorten { messages, summary: summary.map(str::to_owned), proposed }
}

/// Takes steps that all do something.
fn live(life: &mut Life, steps: &[Step]) {
    for step in steps {
        assert!(life.step(step).is_some(), "{step:?} did nothing");
    }
}

/// A session's files, followed from its beginning.
struct Followed {
    root: Root,
    life: Life,
    files: SessionFiles,
}

impl Followed {
    fn new() -> Followed {
        let root = Root::new();
        std::fs::create_dir(root.path(DIR)).unwrap();
        let life = Life::begin(1);
        let mut files = SessionFiles::open(&root.dir, Path::new(DIR), own()).unwrap();
        files.catch_up(&life.session, &life.records()).unwrap();
        Followed { root, life, files }
    }

    fn live(&mut self, steps: &[Step]) {
        for step in steps {
            let commit = self.life.step(step).unwrap_or_else(|| panic!("{step:?} did nothing")).to_vec();
            self.files.show(&self.life.session, &commit).unwrap();
        }
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.root.path(DIR).join(name)).unwrap()
    }

    fn meta(&self) -> serde_json::Value {
        serde_json::from_str(&self.read("meta.json")).unwrap()
    }

    /// Each line of `messages.jsonl` in short: who said what, or how many messages a mark is about.
    fn lines(&self) -> Vec<String> {
        let short = |line: &str| {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            match (line["role"].as_str(), line["type"].as_str()) {
                (Some(role), _) => format!("{role}: {}", line["content"][0]["text"].as_str().unwrap_or("")),
                (None, Some(mark)) => format!("{mark} {}", line["ids"].as_array().unwrap().len()),
                (None, None) => panic!("{line}"),
            }
        };
        self.read("messages.jsonl").lines().map(short).collect()
    }
}

#[test]
fn a_paused_session_is_active_and_its_files_say_so() {
    let mut session = Followed::new();
    session.live(&[Step::Bind, post("one"), pause()]);
    assert_eq!((session.read("state").as_str(), &session.meta()["state"]), ("active\n", &"paused".into()));
    let bound = session.life.session.bound_issue.unwrap().to_string();
    assert_eq!(session.meta()["bound_issue"], bound);
    session.live(&[Step::Unbind, back(0)]);
    assert_eq!((session.read("state").as_str(), &session.meta()["bound_issue"]), ("idle\n", &().into()));
}

#[test]
fn after_a_rollback_the_latest_text_is_the_one_that_still_counts() {
    let mut session = Followed::new();
    session.live(&[post("one"), say("first"), done(), post("more"), pause(), resume(), say("second")]);
    assert_eq!(session.read("latest.md"), "second\n");
    // What a paused run had said so far is kept, and goes with the rest.
    let cut_off = Step::Rollback { back: 1, partial: Some("cut off".to_owned()) };
    session.live(&[pause(), cut_off]);
    assert_eq!(session.read("latest.md"), "first\n");
    let lines = session.lines();
    assert_eq!(
        lines,
        [
            "user: one",
            "assistant: first",
            "user: more",
            "assistant: second",
            "assistant: cut off",
            "superseded 2"
        ]
    );
}

#[test]
fn a_compaction_puts_a_summary_in_and_going_back_takes_it_out() {
    let mut session = Followed::new();
    session.live(&[post("one"), say("two"), done(), post("three"), pause(), resume()]);
    session.live(&[shorten(2, Some("one and two"), false)]);
    assert_eq!(session.read("latest.md"), "", "no assistant text counts");
    session.live(&[say("four"), pause(), back(1)]);
    assert_eq!(
        session.lines(),
        [
            "user: one",
            "assistant: two",
            "user: three",
            "superseded 2",
            "system: one and two",
            "assistant: four",
            "superseded 2",
            "restored 2",
        ]
    );
    assert_eq!(session.read("latest.md"), "two\n");
}

#[test]
fn a_proposed_compaction_changes_nothing_until_it_is_approved() {
    let mut session = Followed::new();
    session.live(&[post("one"), say("two"), done(), post("three")]);
    session.live(&[shorten(2, Some("proposed"), true)]);
    assert_eq!((session.read("state").as_str(), session.lines().len()), ("active\n", 3));
    let as_wanted = Step::Approve { messages: Some(1), summary: Some("as wanted".to_owned()) };
    session.live(&[as_wanted]);
    assert_eq!(session.lines()[3..], ["superseded 1", "system: as wanted"]);
}

/// One record gives up to three lines: a crash may fall between any two.
#[test]
fn a_file_cut_between_two_lines_of_one_record_is_made_whole() {
    let mut session = Followed::new();
    session.live(&[post("one"), say("two"), done(), post("three"), pause(), resume()]);
    session.live(&[shorten(2, Some("one and two"), false), say("four"), pause(), back(1)]);
    let whole = view_files(&session.root.path(DIR));
    let messages = &whole["messages.jsonl"];
    for len in 0..=messages.len() {
        std::fs::write(session.root.path("s/messages.jsonl"), &messages[..len]).unwrap();
        let mut files = SessionFiles::open(&session.root.dir, Path::new(DIR), own()).unwrap();
        let from = files.wants_from(&session.life.session);
        let missing: Vec<Record> =
            session.life.records().into_iter().filter(|record| record.seq >= from).collect();
        files.catch_up(&session.life.session, &missing).unwrap();
        assert_eq!(view_files(&session.root.path(DIR)), whole, "cut at {len}");
    }
}

#[test]
fn the_pack_is_put_beside_the_files_and_replaced_in_one_piece() {
    let mut session = Followed::new();
    session.live(&[post("one")]);
    session.files.pack_file().write(b"{\"tokens\":1}").unwrap();
    session.files.pack_file().write(b"{}").unwrap();
    assert_eq!(session.read("context/pack.json"), "{}");
    let mode = |path: &str| {
        std::fs::metadata(session.root.path(DIR).join(path)).unwrap().permissions().mode() & 0o777
    };
    assert_eq!((mode("context"), mode("context/pack.json")), (0o700, 0o600));
    let Followed { root, files, .. } = session;
    drop(files);
    let left: Vec<_> =
        std::fs::read_dir(root.path("s/context")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["pack.json"], "nothing stays beside it");
}

#[test]
fn a_link_in_the_place_of_the_context_is_not_followed() {
    let session = Followed::new();
    std::fs::create_dir(session.root.path("elsewhere")).unwrap();
    std::os::unix::fs::symlink("../elsewhere", session.root.path("s/context")).unwrap();
    session.files.pack_file().write(b"{}").unwrap_err();
    assert_eq!(std::fs::read_dir(session.root.path("elsewhere")).unwrap().count(), 0);
}

#[test]
fn a_fork_has_no_pack_and_a_purge_leaves_none() {
    let root = Root::new();
    let life = Life::begin(1);
    let of = |dir: &str| ctx_journal::LogPath::new(format!("{dir}/events.jsonl")).unwrap();
    drop(life.write(&*root.journal, &of(DIR)));
    SessionFiles::open(&root.dir, Path::new(DIR), own()).unwrap().pack_file().write(b"{}").unwrap();
    let first = life.records()[0].body.to_json();
    let last = ctx_session::Body::Session(SessionBody::Forked(ctx_session::record::Forked { by: own().uid }))
        .to_json();
    let fork = ctx_journal::Fork {
        from: &of(DIR),
        to: &of("fork"),
        at: None,
        owner: own(),
        time: life.session.created_at,
    };
    let ends = |_| ctx_journal::ForkEnds { first: first.clone(), last: last.clone() };
    root.journal.fork(&fork, &ends).unwrap();
    assert!(root.path("fork/events.jsonl").exists() && !root.path("fork/context").exists());
    root.journal.remove(&of(DIR)).unwrap();
    assert!(!root.path(DIR).exists());
}

fn messages(db: &ctx_views::db::IndexDb, life: &Life) -> Vec<MessageItem> {
    let query = MessagesQuery {
        session: life.session.id(),
        since: None,
        before: None,
        superseded: true,
        limit: usize::MAX - 1,
    };
    db.ask(|q| q.messages(&query)).unwrap().items
}

#[test]
fn search_finds_what_a_compaction_took_and_leaves_out_what_a_rollback_took() {
    let root = Root::new();
    let mut session = put(&root, 1, "coder", "default", &[]);
    let db = started(&root);
    let standings = |text: &str, superseded: bool| -> Vec<Standing> {
        db.flush();
        let query = SearchQuery { superseded, ..SearchQuery::new(Viewer::All, text, 10) };
        db.ask(|q| q.search(&query)).unwrap().items.iter().map(|hit| hit.standing).collect()
    };
    let find = |text: &str| standings(text, false);
    let steps = [post("a needle"), say("hay"), done(), post("go on"), pause(), resume()];
    for step in &steps {
        session.step(step, Some(&db));
    }
    assert_eq!(find("needle"), [Standing::Counts]);
    for step in [say("a thimble"), done(), post("again")] {
        session.step(&step, Some(&db));
    }
    session.step(&shorten(4, Some("a summary"), false), Some(&db));
    assert_eq!((find("needle"), find("summary")), (vec![Standing::Compacted], vec![Standing::Counts]));
    assert_eq!(find("thimble"), [Standing::Compacted], "said after the checkpoint");
    session.step(&pause(), Some(&db));
    session.step(&back(1), Some(&db));
    assert_eq!((find("needle"), find("summary")), (vec![Standing::Counts], vec![]));
    assert_eq!(standings("summary", true), [Standing::TakenBack], "it is history, and found as such");
    assert_eq!((find("thimble"), standings("thimble", true)), (vec![], vec![Standing::TakenBack]));
}

#[test]
fn the_result_of_a_call_that_was_taken_back_does_not_count() {
    let root = Root::new();
    let [call, result] = tool("a needle");
    let mut session = put(&root, 1, "coder", "default", &[Step::Compact, call]);
    let db = started(&root);
    // The call is compacted away before its result comes: without a message there is no exchange that stays.
    session.step(&shorten(1, None, false), Some(&db));
    session.step(&result, Some(&db));
    db.flush();
    let of_tool: Vec<bool> = messages(&db, &session.life)
        .iter()
        .filter(|message| message.role == Role::Tool)
        .map(|message| message.is_superseded)
        .collect();
    assert_eq!(of_tool, [true]);
    let hits = db.ask(|q| q.search(&SearchQuery::new(Viewer::All, "needle", 10))).unwrap().items;
    assert_eq!(hits.iter().map(|hit| hit.standing).collect::<Vec<_>>(), [Standing::Compacted]);
}

#[test]
fn paused_sessions_and_what_waits_for_an_answer_are_listed() {
    let root = Root::new();
    let [call, _] = tool("text");
    put(&root, 1, "coder", "paused", &[Step::Bind, post("one"), pause()]);
    let asks = put(&root, 2, "coder", "asks", &[post("one"), call.clone(), Step::Ask]);
    put(&root, 3, "coder", "asked", &[post("one"), call, Step::Ask, Step::Answer { how: 0 }]);
    let db = started(&root);
    let query = ListQuery { states: vec![StateName::Paused], ..ListQuery::newest(Viewer::All, 10) };
    let items = db.ask(|q| q.list(&query)).unwrap().items;
    assert_eq!(names(&items), ["paused"]);
    assert!(items[0].row.bound_issue.is_some() && items[0].row.pause.checkpoint.is_some());

    let waits = db.ask(|q| q.open_approvals(&Viewer::All)).unwrap();
    assert_eq!(waits.len(), 1);
    let (of, approval) = &waits[0];
    assert_eq!((of, approval.asked.tool.as_str()), (&asks.life.session.id(), "fs.read"));
    let stranger = Viewer::User { uid: own().uid + 1, spaces: Vec::new() };
    assert!(db.ask(|q| q.open_approvals(&stranger)).unwrap().is_empty());
}

#[test]
fn a_run_says_what_it_was_for_and_how_it_stopped() {
    let root = Root::new();
    let steps = [
        post("one"),
        say("two"),
        done(),
        post("three"),
        shorten(2, None, true),
        Step::Approve { messages: None, summary: None },
        done(),
        Step::Compact,
        shorten(0, None, false),
    ];
    let mut life = Life::begin(1);
    live(&mut life, &steps);
    let session = crate::indexed::Grown::new(&root, life, "coder", "default");
    let db = started(&root);
    let mut runs = db.ask(|q| q.runs(session.life.session.id(), None, 10)).unwrap().items;
    runs.reverse();
    let facts: Vec<_> =
        runs.iter().map(|run| (run.kind, run.state.as_str(), run.finish_reason, run.message)).collect();
    let messages: Vec<_> = session.life.session.runs().map(|run| run.message_id).collect();
    assert_eq!(
        facts,
        [
            (RunKind::Message, "done", None, messages[0]),
            (RunKind::Message, "done", Some(RunFinish::AwaitingCompaction), messages[1]),
            (RunKind::Continuation, "done", None, messages[1]),
            (RunKind::Compaction, "running", None, None),
        ]
    );
}

fn on_disk(root: &Root, life: &Life) -> (Reader, SessionRef) {
    let session = SessionsDir::of_agent(own().uid, name("coder")).session("default");
    drop(life.write(&*root.journal, &session.log().unwrap()));
    (Reader::new(&root.dir, root.journal.clone()), session)
}

#[test]
fn a_reader_sees_a_summary_in_the_place_of_what_it_replaces() {
    let root = Root::new();
    let mut life = Life::begin(1);
    live(&mut life, &[post("one"), say("two"), done(), post("three"), say("four"), done()]);
    live(&mut life, &[post("five"), done(), Step::Compact]);
    live(&mut life, &[shorten(2, Some("one and two"), false), shorten(2, Some("up to three"), false)]);
    let (reader, session) = on_disk(&root, &life);
    let texts = |wanted| -> Vec<(String, Option<RemovedBy>)> {
        let said = reader.conversation(&session, wanted).unwrap().map(Result::unwrap);
        said.map(|said| (said.message.text(), said.removed)).collect()
    };
    let counts = |text: &str| (text.to_owned(), None);
    let gone = |text: &str| (text.to_owned(), Some(RemovedBy::Compaction));
    assert_eq!(texts(Wanted::Counting), [counts("up to three"), counts("four"), counts("five")]);
    assert_eq!(
        texts(Wanted::All),
        [
            gone("one"),
            gone("two"),
            gone("three"),
            counts("four"),
            counts("five"),
            gone("one and two"),
            counts("up to three")
        ]
    );
}

/// Where every message counts, a reader need not look for marks: what is far behind is not read.
#[test]
fn a_conversation_in_which_every_message_counts_is_read_no_further_than_asked_for() {
    let root = Root::new();
    let mut life = Life::begin(1);
    live(&mut life, &[post("one"), say("two"), done()]);
    let (reader, session) = on_disk(&root, &life);
    let mut files = SessionFiles::open(&root.dir, &session.path(), own()).unwrap();
    files.catch_up(&life.session, &life.records()).unwrap();
    let file = root.path(session.path()).join("messages.jsonl");
    let real = std::fs::read_to_string(&file).unwrap();
    let (first, last) = (real.lines().next().unwrap(), real.lines().last().unwrap());
    let far = std::fs::File::create(&file).unwrap();
    let write = |text: String, at: u64| {
        std::os::unix::fs::FileExt::write_all_at(&far, text.as_bytes(), at).unwrap();
    };
    write(format!("{first}\n"), 0);
    write(format!("\n{last}\n"), 64 << 30);
    let mut said = reader.conversation(&session, Wanted::Counting).unwrap();
    assert_eq!(said.next().unwrap().unwrap().message.text(), "one");
}

/// What `meta.json` says of marks is never behind the marks themselves, wherever a crash falls.
#[test]
fn a_mark_is_announced_before_it_is_written() {
    let mut session = Followed::new();
    session.live(&[post("one"), pause()]);
    assert_eq!(session.meta()["superseded"], 0);
    // Nothing can be appended any more.
    let messages = session.root.path("s/messages.jsonl");
    let before = std::fs::read(&messages).unwrap();
    std::fs::remove_file(&messages).unwrap();
    std::fs::create_dir(&messages).unwrap();
    let cut_off = Step::Rollback { back: 0, partial: Some("cut off".to_owned()) };
    let commit = session.life.step(&cut_off).unwrap().to_vec();
    session.files.show(&session.life.session, &commit).unwrap_err();
    assert_eq!(session.meta()["superseded"], 1);
    std::fs::remove_dir(&messages).unwrap();
    std::fs::write(&messages, before).unwrap();
}

/// The messages that the rules say count.
fn counting(life: &Life) -> Vec<(Ulid, u64)> {
    life.conversation()
        .messages(&life.session.ledger)
        .iter()
        .map(|message| (message.id, message.seq))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_reader_sees_what_the_model_sees_wherever_the_files_stand(
        seed in any::<u64>(),
        steps in operated(100),
        shown in any::<prop::sample::Index>(),
        cut in any::<prop::sample::Index>(),
    ) {
        let root = Root::new();
        let mut life = Life::begin(seed);
        life.live(&steps);
        let (reader, session) = on_disk(&root, &life);
        // The files show a part of it, and the last line of them may be torn.
        let records = life.records();
        let shown = &records[..=shown.index(records.len())];
        SessionFiles::open(&root.dir, &session.path(), own()).unwrap().catch_up(&life.session, shown).unwrap();
        let file = root.path(session.path()).join("messages.jsonl");
        let bytes = std::fs::read(&file).unwrap();
        std::fs::write(&file, &bytes[..bytes.len() - cut.index(bytes.len().min(200) + 1)]).unwrap();

        let read = |wanted| -> Vec<_> {
            let said = reader.conversation(&session, wanted).unwrap().map(Result::unwrap);
            said.map(|said| ((said.message.id, said.message.seq), said.superseded())).collect()
        };
        let expected = counting(&life);
        let counting: Vec<_> = read(Wanted::Counting).into_iter().map(|(place, _)| place).collect();
        prop_assert_eq!(&counting, &expected);
        let all = read(Wanted::All);
        for (place, superseded) in all {
            prop_assert_eq!(superseded, !expected.contains(&place));
        }
    }

    #[test]
    fn the_index_says_of_a_session_what_the_session_says(
        seed in any::<u64>(),
        steps in operated(100),
        (is_forked, is_ended) in any::<(bool, bool)>(),
    ) {
        let root = Root::new();
        let mut life = Life::begin(seed);
        life.live(&steps);
        if is_forked {
            life = life.fork(seed.wrapping_add(1), "other");
        }
        if is_ended {
            life.step(&Step::End);
        }
        let session = crate::indexed::Grown::new(&root, life, "coder", "default");
        let (db, life) = (started(&root), &session.life);
        let (id, control) = (life.session.id(), &life.session.control);

        prop_assert_eq!(&db.ask(|q| q.checkpoints(id)).unwrap(), &control.checkpoints);
        prop_assert_eq!(&db.ask(|q| q.compaction_aggregates(id)).unwrap(), &control.aggregates);
        let approvals = db.ask(|q| q.approvals(id)).unwrap();
        prop_assert!(control.approvals.iter().all(|approval| approvals.contains(approval)));
        let waiting = approvals.iter().filter(|approval| approval.settled.is_none());
        prop_assert_eq!(waiting.collect::<Vec<_>>(), control.open_approvals().collect::<Vec<_>>());
        prop_assert_eq!(&db.ask(|q| q.compactions(id)).unwrap(), &control.compactions);
        let expected = counting(life);
        let pinned: Vec<Ulid> = life.session.ledger.pinned().collect();
        for message in messages(&db, life) {
            prop_assert_eq!(message.is_superseded, !expected.contains(&(message.id, message.seq)));
            if !message.is_superseded {
                prop_assert_eq!(message.is_pinned, pinned.contains(&message.id));
            }
        }
        let mut runs = db.ask(|q| q.runs(id, None, usize::MAX - 1)).unwrap().items;
        runs.reverse();
        let runs: Vec<_> =
            runs.iter().map(|run| (run.id, run.kind, run.message, run.finish_reason, run.usage)).collect();
        let known =
            life.session.runs().map(|run| (run.id, run.kind, run.message_id, run.finish_reason, run.usage));
        prop_assert_eq!(runs, known.collect::<Vec<_>>());
    }
}
