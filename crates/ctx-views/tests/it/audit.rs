//! The audit log: every deed is told once, whatever happened in between.

use std::sync::Arc;

use ctx_journal::{Entry, LogPath, LogWriter};
use ctx_session::TerminalId;
use ctx_session::issue::{IssueStatus, TodoOp};
use ctx_session::project::{
    Change, IssueCommand, ProjectAdded, ProjectBody, ProjectMoved, ProjectRecord, ProjectRemoved,
    ProjectTrusted, RegistryBody, Who,
};
use ctx_session::record::{
    ImportUndone, Imported, SessionBody, TerminalBody, TerminalClosed, TerminalEnd, TerminalOpened,
    TerminalReattached,
};
use ctx_session::{Body, Name, Record, SessionId, Ulid};
use ctx_views::audit::{
    Audit, AuditEvent, AuditLine, AuditOptions, AuditQuery, AuditReader, Deed, EventName, RecordOf, events,
    project_events,
};
use proptest::prelude::*;

use crate::issues::Grown;
use crate::world::{Life, Root, Step, append, own, steps};

fn audit_log() -> LogPath {
    LogPath::new(".state/audit.jsonl").unwrap()
}

fn options(root: &Root) -> AuditOptions {
    let journal = root.journal.clone();
    AuditOptions {
        log: audit_log(),
        owner: own(),
        now: Life::begin(1).session.created_at,
        root: root.dir.clone(),
        session_logs: Arc::new(move || journal.list("home")),
    }
}

fn start(root: &Root) -> Audit {
    let audit = Audit::start(root.journal.clone(), options(root)).unwrap();
    audit.wait_until_complete();
    assert_eq!(audit.last_error(), None);
    audit
}

fn read(root: &Root, query: &AuditQuery) -> (Vec<AuditLine>, Option<u64>) {
    AuditReader::new(root.journal.clone(), audit_log()).newest(query).unwrap()
}

fn all() -> AuditQuery {
    AuditQuery { limit: usize::MAX, ..AuditQuery::default() }
}

fn told(root: &Root) -> Vec<AuditEvent> {
    let (mut lines, _) = read(root, &all());
    lines.reverse();
    lines.into_iter().map(|line| line.event).collect()
}

struct Watched {
    life: Life,
    log: LogPath,
    /// None while the log is changed behind everyone's back.
    writer: Option<Box<dyn LogWriter>>,
    /// Everything that happened, also what is not in the log any more.
    deeds: Vec<AuditEvent>,
}

impl Watched {
    fn new(root: &Root, seed: u64) -> Watched {
        let mut life = Life::begin_as(seed, Some("s"), "coder", 1_794_722_400_000 + seed);
        life.live(&[]);
        let log = LogPath::new(format!("home/0/agent/coder/session/s{seed}/events.jsonl")).unwrap();
        let writer = life.write(&*root.journal, &log);
        let deeds = events(&life.session, &life.records());
        Watched { life, log, writer: Some(writer), deeds }
    }

    /// Someone cuts the log back to its first commits; it is taken up again.
    fn cut(&mut self, root: &Root, commits: usize) {
        self.writer = None;
        self.life.forget_after(commits);
        let path = root.path(self.log.as_str());
        let bytes = std::fs::read(&path).unwrap();
        let lines = bytes.split_inclusive(|byte| *byte == b'\n').take(self.life.records().len());
        let kept: usize = lines.map(<[u8]>::len).sum();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(kept as u64).unwrap();
        let now = self.life.session.updated_at;
        self.writer = Some(root.journal.open(&self.log, now, &mut |_| {}).unwrap().writer);
    }

    fn step(&mut self, step: &Step, audit: Option<&Audit>) {
        let Some(commit) = self.life.step(step).map(<[Record]>::to_vec) else { return };
        append(&**self.writer.as_ref().unwrap(), &commit);
        self.deeds.extend(events(&self.life.session, &commit));
        if let Some(audit) = audit {
            audit.committed(&self.log, &self.life.session, &commit);
        }
    }
}

fn post(slot: bool) -> Step {
    Step::Post { text: "hello\nworld".to_owned(), slot, cwd: None }
}

fn call() -> Step {
    Step::Tool { input: "README".to_owned(), output: "text".to_owned(), finish: false }
}

fn words(events: &[AuditEvent]) -> Vec<&'static str> {
    events.iter().map(|event| event.event.as_str()).collect()
}

#[test]
fn a_session_is_told_from_beginning_to_end() {
    let root = Root::new();
    let audit = start(&root);
    let mut session = Watched::new(&root, 1);
    audit.committed(&session.log, &session.life.session, &session.life.records());
    let done = Step::Finish { how: 0, partial: None };
    let steps = [
        post(true),
        Step::Say { text: "hi".to_owned() },
        done,
        Step::Attach { takeover: false },
        post(false),
        Step::ResumeQueued,
        Step::Crash,
        post(false),
        Step::DiscardQueued,
        Step::End,
    ];
    for step in &steps {
        session.step(step, Some(&audit));
    }
    audit.wait_until_complete();
    let told = told(&root);
    let expected = [
        "session.created",
        "run.created session.state",
        "run.completed session.state",
        "session.attached",
        "run.created session.state session.queued",
        "session.state session.resumed_from_queue",
        "session.detached run.completed session.state session.crash_recovered",
        "run.created session.state session.queued",
        "session.queued_discarded run.completed run.cancelled session.state",
        "session.state session.ended",
    ];
    assert_eq!(words(&told).join(" "), expected.join(" "));
    let data = |name: EventName| &told.iter().find(|event| event.event == name).unwrap().data;
    assert_eq!(data(EventName::RunCreated)["message_preview"], "hello world");
    assert_eq!(data(EventName::RunCompleted)["tokens"], serde_json::json!({ "input": 3, "output": 5 }));
    assert_eq!(data(EventName::SessionQueued)["reason"], "per_project");
    assert_eq!(data(EventName::SessionEnded)["run_count"], 3);
    assert_eq!(data(EventName::SessionDetached)["reason"], "daemon_restart");
    let failed = &data(EventName::SessionCrashRecovered)["failed_run_id"];
    assert_eq!(*failed, session.life.session.runs().nth(1).unwrap().id.to_string());
}

#[test]
fn what_the_operator_does_with_a_run_is_told() {
    let mut life = Life::begin(1);
    let mut told = |steps: &[Step]| -> Vec<AuditEvent> {
        let mut all = Vec::new();
        for step in steps {
            let commit = life.step(step).unwrap_or_else(|| panic!("{step:?} did nothing")).to_vec();
            all.extend(events(&life.session, &commit));
        }
        all
    };
    let say = |text: &str| Step::Say { text: text.to_owned() };
    let paused = told(&[post(true), say("one"), Step::Pause { by_model: false }]);
    assert_eq!(
        words(&paused),
        ["run.created", "session.state", "checkpoint.created", "session.state"],
        "saying something is no deed"
    );
    let (pause, moved) = (&paused[2].data, &paused[3].data);
    assert_eq!((&pause["created_by"], &pause["reason"]), (&"operator".into(), &"to look".into()));
    assert_eq!((&moved["to_state"], &moved["trigger"]), (&"paused".into(), &"checkpoint".into()));

    let edit = |text: &str| Step::EditPrompt { text: text.to_owned() };
    let resumed = told(&[edit("1"), edit("2"), call(), Step::Resume { slot: true }]);
    assert_eq!(words(&resumed), ["prompt.edited", "prompt.edited", "checkpoint.resumed", "session.state"]);
    let edited = &resumed[1].data;
    assert_eq!((&edited["target"], &edited["old_hash"]), (&"primary".into(), &"1".into()));
    assert_eq!(edited["new_hash"], "2");
    assert_eq!(resumed[2].data["prompts_edited"], serde_json::json!(["primary"]));

    let back = told(&[say("two"), Step::Pause { by_model: false }, say("three")]);
    assert_eq!(words(&back), ["checkpoint.created", "session.state"]);
    let back = told(&[Step::Rollback { back: 1, partial: Some("four".to_owned()) }]);
    assert_eq!(words(&back), ["run.completed", "run.cancelled", "checkpoint.rolled_back", "session.state"]);
    // The notice of the edited prompt and three texts; the call had not begun.
    let data = &back[2].data;
    assert_eq!((&data["messages_superseded"], &data["messages_restored"]), (&4.into(), &0.into()));
    assert_eq!(back[3].data["trigger"], "rolled_back");
}

/// The data that the seed names for each event.
#[test]
fn every_event_has_its_data_and_its_row_in_the_docs() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/audit.md");
    let page = std::fs::read_to_string(root).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let mut life = Life::begin(1);
    life.live(&[
        post(false),
        Step::ResumeQueued,
        Step::Finish { how: 3, partial: None },
        Step::Attach { takeover: false },
        Step::Detach,
        post(true),
        Step::Crash,
        post(false),
        Step::DiscardQueued,
        Step::Bind,
        post(true),
        call(),
        Step::Spawn,
        Step::Ask,
        Step::Pause { by_model: false },
        Step::EditPrompt { text: "new".to_owned() },
        Step::Resume { slot: true },
        Step::Answer { how: 0 },
        Step::Shorten { messages: 1, summary: None, proposed: false },
        Step::Shorten { messages: 1, summary: None, proposed: true },
        Step::Approve { messages: None, summary: None },
        Step::Flag { notes: Some("too short".to_owned()) },
        Step::Shorten { messages: 0, summary: None, proposed: true },
        Step::Reject,
        Step::Unbind,
        Step::Pin { at: 0, pinned: true },
        Step::Pin { at: 0, pinned: false },
        Step::End,
    ]);
    // What an import adds is no step of a session's own life.
    let last = life.commits.last().and_then(|commit| commit.last()).unwrap().clone();
    let (import_id, at) = (life.session.meta.session_id.0, life.session.updated_at);
    let (restored, superseded) = (Vec::new(), Vec::new());
    let imported = Imported { import_id, by: 7, records: 3, at, restored, superseded };
    let undone = ImportUndone { import_id, by: 7, superseded: vec![import_id], restored: Vec::new(), at };
    // Nor do terminals of a session change it.
    let pty_id = TerminalId(import_id);
    let opened = TerminalOpened {
        pty_id,
        turn_id: None,
        caller: None,
        name: None,
        command: vec!["sh".to_owned()],
        caged: true,
        by: 7,
    };
    let reattached = TerminalReattached { pty_id, user: 7, scrollback_lines: 3 };
    let closed = TerminalClosed {
        pty_id,
        turn_id: None,
        reason: TerminalEnd::Exited,
        exit_code: Some(0),
        transcript_lines: 9,
    };
    let bodies = [
        Body::Session(SessionBody::Imported(imported)),
        Body::Session(SessionBody::ImportUndone(undone)),
        Body::Terminal(TerminalBody::Opened(opened)),
        Body::Terminal(TerminalBody::Reattached(reattached)),
        Body::Terminal(TerminalBody::Closed(closed)),
    ];
    for (seq, body) in (last.seq + 1..).zip(bodies) {
        life.commits.push(vec![Record { seq, body, ..last.clone() }]);
    }
    let of_session = life.commits.iter().flat_map(|commit| events(&life.session, commit));
    let mut music = Grown::new("music", 1);
    let mut told: Vec<AuditEvent> = of_session.collect();
    for body in registered() {
        let commit = music.say(vec![body]);
        told.extend(project_events(&music.project, &commit));
    }
    for command in of_an_issue(&mut music) {
        told.extend(project_events(&music.project, &command));
    }
    told.push(Deed::new(&life.session.meta, 99, 7, life.session.updated_at).event);
    told.push(Deed::taken_over(2, 5, 0, life.session.updated_at).event);
    assert_eq!(rows.len(), EventName::AUDITED.len());
    for name in EventName::AUDITED.iter().copied() {
        let row = rows.iter().find(|row| row.contains(&format!("`{}`", name.as_str()))).unwrap();
        let event = told.iter().find(|event| event.event == name);
        let event = event.unwrap_or_else(|| panic!("{} was not told", name.as_str()));
        let data = row.split('|').nth(3).unwrap();
        for key in event.data.as_object().unwrap().keys() {
            assert!(data.contains(key.as_str()), "{row} does not name {key}");
        }
    }
}

/// What the registry can say of a project.
fn registered() -> [ProjectBody; 4] {
    let project = Name::new("music").unwrap();
    let directory = || "/src/music".to_owned();
    [
        ProjectBody::Registry(RegistryBody::Added(ProjectAdded {
            project,
            directory: directory(),
            owner: 7,
            by: 7,
            plain: false,
        })),
        ProjectBody::Registry(RegistryBody::Trusted(ProjectTrusted { dsl_hash: "aa11".to_owned(), by: 7 })),
        ProjectBody::Registry(RegistryBody::Moved(ProjectMoved { directory: directory(), by: 7 })),
        ProjectBody::Registry(RegistryBody::Removed(ProjectRemoved { by: 7 })),
    ]
}

/// An issue with everything that can happen to one; the commits.
fn of_an_issue(grown: &mut Grown) -> Vec<Vec<ProjectRecord>> {
    let create =
        IssueCommand::Create { title: "Mend".to_owned(), body: String::new(), criteria: Vec::new(), by: 7 };
    let mut commits = vec![grown.decide(&create)];
    let issue = commits[0][0].body.issue().unwrap();
    let session = SessionId(Ulid(9));
    let who = Who { by: 8, session_id: Some(session) };
    let word = str::to_owned;
    let change = Change { status: Some(IssueStatus::Resolved), ..Change::default() };
    for command in [
        IssueCommand::Claim { issue, session, by: 7 },
        IssueCommand::Todo { issue, op: TodoOp::Init { items: vec![word("a"), word("b")] }, who },
        IssueCommand::Todo { issue, op: TodoOp::Start { item: word("a") }, who },
        IssueCommand::Change { issue, change, who },
    ] {
        commits.push(grown.decide(&command));
    }
    commits
}

#[test]
fn what_happens_to_issues_is_told_once_with_who_did_it() {
    let root = Root::new();
    let mut music = Grown::new("music", 1);
    // Before there was an audit log.
    let first = of_an_issue(&mut music);
    music.write(&root, &first);
    let audit = start(&root);
    let names = ["issue.created", "todo.added", "todo.added", "todo.changed", "issue.changed"];
    assert_eq!(words(&told(&root)), names, "a claim alone is no deed");
    for commit in of_an_issue(&mut music) {
        music.write(&root, std::slice::from_ref(&commit));
        audit.project_committed(&music.log, &music.project, &commit);
    }
    audit.wait_until_complete();
    let all = told(&root);
    assert_eq!(words(&all), [names, names].concat());
    let last = all.last().unwrap();
    assert_eq!((last.user, last.session()), (8, Some(SessionId(Ulid(9)))));
    assert_eq!(last.data["status"], "resolved");
    assert_eq!(last.data["fields"], serde_json::json!(["status"]));
    let of =
        RecordOf::Project { project: Name::new("music").unwrap(), project_seq: music.project.next_seq - 1 };
    assert_eq!(last.record, of);
    let of_session = AuditQuery { session: last.session(), ..self::all() };
    assert_eq!(read(&root, &of_session).0.len(), 8, "what its runs did");
    // Written, and the daemon died before it could tell.
    let lost = of_an_issue(&mut music);
    music.write(&root, &lost);
    drop(audit);
    drop(start(&root));
    drop(start(&root));
    assert_eq!(words(&told(&root)), [names, names, names].concat());
}

#[test]
fn a_log_that_was_taken_up_again_is_read_before_it_is_told_further() {
    let root = Root::new();
    let mut music = Grown::new("music", 1);
    let audit = start(&root);
    let unheard = of_an_issue(&mut music);
    music.write(&root, &unheard);
    audit.reopened(&music.log);
    let heard = of_an_issue(&mut music);
    music.write(&root, &heard);
    for commit in &heard {
        audit.project_committed(&music.log, &music.project, commit);
    }
    audit.wait_until_complete();
    assert_eq!(told(&root).len(), 10);
}

#[test]
fn lines_are_found_by_who_what_when_and_in_pages() {
    let root = Root::new();
    let audit = start(&root);
    for seed in 1..=2 {
        let mut session = Watched::new(&root, seed);
        audit.committed(&session.log, &session.life.session, &session.life.records());
        session.step(&Step::End, Some(&audit));
    }
    audit.wait_until_complete();
    let (whole, next) = read(&root, &all());
    assert_eq!((whole.len(), next), (6, None));
    let session = whole[0].event.session().unwrap();
    let count = |query: AuditQuery| read(&root, &query).0.len();
    assert_eq!(count(AuditQuery { session: Some(session), ..all() }), 3);
    assert_eq!(count(AuditQuery { events: vec![EventName::SessionEnded], ..all() }), 2);
    assert_eq!(count(AuditQuery { user: Some(own().uid), ..all() }), 6);
    assert_eq!(count(AuditQuery { user: Some(own().uid + 1), ..all() }), 0);
    assert_eq!(count(AuditQuery { since: Some(whole[0].time), ..all() }), 2);
    assert_eq!(count(AuditQuery { until: Some(whole[5].time), ..all() }), 0);
    let (page, next) = read(&root, &AuditQuery { limit: 4, ..all() });
    let (rest, end) = read(&root, &AuditQuery { before: next, ..all() });
    assert_eq!(([page, rest].concat(), end), (whole, None));
}

#[test]
fn without_a_log_there_is_nothing_to_read() {
    assert_eq!(read(&Root::new(), &all()), (Vec::new(), None));
}

#[test]
fn a_session_that_was_purged_keeps_its_lines() {
    let root = Root::new();
    let audit = start(&root);
    let session = Watched::new(&root, 1);
    audit.committed(&session.log, &session.life.session, &session.life.records());
    drop(audit);
    let log = session.log.clone();
    drop(session);
    root.journal.remove(&log).unwrap();
    drop(start(&root));
    assert_eq!(words(&told(&root)), ["session.created"]);
}

#[test]
fn what_happens_after_a_log_was_cut_is_told_and_nothing_is_told_twice() {
    let talk = || [post(true), Step::Say { text: "hi".to_owned() }, Step::Finish { how: 0, partial: None }];
    // Whether the daemon is down when it happens, whether the audit hears of the log being taken up, and of commits.
    for (down, opened, heard) in [
        (true, false, true),
        (true, false, false),
        (false, true, true),
        (false, false, true),
        (false, true, false),
    ] {
        let root = Root::new();
        let mut audit = start(&root);
        let mut session = Watched::new(&root, 1);
        let mut other = Watched::new(&root, 2);
        audit.committed(&session.log, &session.life.session, &session.life.records());
        audit.committed(&other.log, &other.life.session, &other.life.records());
        for _ in 0..3 {
            for step in talk() {
                session.step(&step, Some(&audit));
                other.step(&step, Some(&audit));
            }
        }
        audit.wait_until_complete();
        if down {
            drop(audit);
            session.cut(&root, 4);
            audit = start(&root);
        } else {
            session.cut(&root, 4);
        }
        if opened {
            audit.opened(&session.log);
        }
        for step in talk().iter().chain([&Step::End]) {
            session.step(step, heard.then_some(&audit));
        }
        audit.wait_until_complete();
        drop(audit);
        for _ in 0..2 {
            drop(start(&root));
            let told = told(&root);
            for session in [&session, &other] {
                let id = session.life.session.id();
                let of_session: Vec<_> =
                    told.iter().filter(|event| event.session() == Some(id)).cloned().collect();
                assert_eq!(
                    words(&of_session),
                    words(&session.deeds),
                    "down {down}, opened {opened}, heard {heard}"
                );
                assert_eq!(of_session, session.deeds);
            }
        }
    }
}

/// What the whole lives of sessions amount to.
fn expected(sessions: &[Watched]) -> Vec<Vec<AuditEvent>> {
    let of = |session: &Watched| {
        let mut then = Life::begin_as(0, None, "coder", 0).session;
        let mut events_of = Vec::new();
        for commit in &session.life.commits {
            for record in commit {
                match &record.body {
                    ctx_session::Body::Session(SessionBody::Meta(meta)) => {
                        then = ctx_session::Session::new((**meta).clone(), record.seq, record.time);
                    }
                    _ => then.apply(record),
                }
            }
            events_of.extend(events(&then, commit));
        }
        events_of
    };
    sessions.iter().map(of).collect()
}

/// What becomes, between two starts, of the file that says how far was told.
#[derive(Debug, Clone, Copy)]
enum Remembered {
    AsItWas,
    Gone,
    Torn,
    /// One that an earlier stop left, as a crash of the last daemon would leave it.
    Older(prop::sample::Index),
}

fn remembered() -> impl Strategy<Value = Remembered> {
    prop_oneof![
        2 => Just(Remembered::AsItWas),
        1 => Just(Remembered::Gone),
        1 => Just(Remembered::Torn),
        3 => any::<prop::sample::Index>().prop_map(Remembered::Older),
    ]
}

/// Changes it so while nobody is up. `kept` is what every earlier stop has left.
fn remember(root: &Root, remembered: Remembered, kept: &mut Vec<Vec<u8>>) {
    let path = root.path(TOLD);
    kept.extend(std::fs::read(&path).ok().filter(|bytes| kept.last() != Some(bytes)));
    let Some(last) = kept.last() else { return };
    match remembered {
        Remembered::AsItWas => {}
        Remembered::Gone => drop(std::fs::remove_file(&path)),
        Remembered::Torn => std::fs::write(&path, &last[..last.len() / 2]).unwrap(),
        Remembered::Older(which) => std::fs::write(&path, which.get(kept)).unwrap(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10))]

    #[test]
    fn every_deed_is_told_once_in_order_whatever_is_lost(
        steps in prop::collection::vec((0usize..3, steps(2), prop::bool::weighted(0.8)), 1..60),
        restarts in prop::collection::vec(prop::option::weighted(0.2, remembered()), 60),
        others in prop::collection::vec(remembered(), 60),
        cuts in prop::collection::vec(prop::option::weighted(0.3, (0usize..3, 1usize..4, any::<bool>())), 60),
    ) {
        let root = Root::new();
        let mut audit = start(&root);
        let mut sessions: Vec<Watched> = (0..3).map(|seed| Watched::new(&root, seed)).collect();
        let mut kept = Vec::new();
        drop(audit);
        audit = start(&root);
        for ((((of, step, is_told), again), other), cut) in steps.iter().zip(&restarts).zip(&others).zip(&cuts) {
            match *cut {
                Some((of, commits, true)) => {
                    drop(audit);
                    sessions[of].cut(&root, commits);
                    remember(&root, *other, &mut kept);
                    audit = start(&root);
                }
                Some((of, commits, false)) => {
                    // What is cut off a log before it was read has never been there.
                    audit.wait_until_complete();
                    sessions[of].cut(&root, commits);
                    audit.opened(&sessions[of].log);
                }
                None => {}
            }
            if let Some(remembered) = again {
                drop(audit);
                remember(&root, *remembered, &mut kept);
                audit = start(&root);
            }
            for step in step {
                // A crash loses the end of what was to be told, so nothing of a session is told after a loss.
                sessions[*of].step(step, is_told.then_some(&audit));
                if !is_told {
                    drop(audit);
                    remember(&root, *other, &mut kept);
                    audit = start(&root);
                }
            }
        }
        drop(audit);
        remember(&root, Remembered::Gone, &mut kept);
        drop(start(&root));
        let told = told(&root);
        for (session, expected) in sessions.iter().zip(expected(&sessions)) {
            let id = session.life.session.id();
            let of_session: Vec<AuditEvent> = told.iter().filter(|event| event.session() == Some(id)).cloned().collect();
            prop_assert_eq!(&of_session, &session.deeds);
            // What is in the log now is the end of it, but for what came before a cut.
            prop_assert!(expected.iter().all(|event| of_session.contains(event)));
        }
    }
}

#[test]
fn a_line_begins_as_every_record_does() {
    let root = Root::new();
    drop(start(&root));
    let session = Watched::new(&root, 1);
    let audit = start(&root);
    drop(audit);
    let mut lines: Vec<Entry> = Vec::new();
    root.journal
        .read(&audit_log(), 0, &mut |entry| {
            lines.push(entry);
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!((lines[0].kind.as_str(), lines[1].kind.as_str()), ("audit_opened", "audit"));
    assert_eq!(lines[1].time, session.life.session.created_at);
}

#[test]
fn a_purge_is_told_once_after_everything_else_whatever_was_waiting() {
    for remembered in [Remembered::AsItWas, Remembered::Gone] {
        let root = Root::new();
        let mut session = Watched::new(&root, 1);
        session.step(&Step::End, None);
        // Nothing of it has been told, and logs are not read yet.
        let audit = Audit::start(root.journal.clone(), options(&root)).unwrap();
        audit.audit_last(&session.log).unwrap();
        let time = session.life.session.updated_at;
        let purged = Deed::new(&session.life.session.meta, session.life.session.next_seq, 7, time);
        audit.audit_once(purged.clone()).unwrap();
        session.writer = None;
        root.journal.remove(&session.log).unwrap();
        audit.wait_until_complete();
        drop(audit);
        remember(&root, remembered, &mut Vec::new());
        // As after a crash between the line and whoever waited for it.
        let audit = start(&root);
        audit.audit_once(purged.clone()).unwrap();
        drop(audit);
        let mut expected = session.deeds.clone();
        expected.push(Deed::of_notice(&purged.to_notice()).unwrap().event);
        assert_eq!(told(&root), expected, "{remembered:?}");
    }
}

const TOLD: &str = ".state/audit.told";

/// An audit log that is too long to be read in one piece: first one session, then another for long.
fn long_log(root: &Root) -> Watched {
    let audit = start(root);
    let first = Watched::new(root, 0);
    let mut session = Watched::new(root, 1);
    for session in [&first, &session] {
        audit.committed(&session.log, &session.life.session, &session.life.records());
    }
    for _ in 0..500 {
        session.step(&post(true), Some(&audit));
        session.step(&Step::Finish { how: 0, partial: None }, Some(&audit));
    }
    audit.flush();
    drop(audit);
    assert!(std::fs::metadata(root.path(".state/audit.jsonl")).unwrap().len() > 512 << 10);
    session
}

#[test]
fn a_start_reads_of_the_audit_log_what_came_since_the_last() {
    let root = Root::new();
    let mut session = long_log(&root);
    // Everything but the end is gone: who reads it all would tell it all again.
    let path = root.path(".state/audit.jsonl");
    let mut bytes = std::fs::read(&path).unwrap();
    let early = bytes.len() - (256 << 10);
    bytes[..early].fill(b'\n');
    std::fs::write(&path, &bytes).unwrap();
    session.step(&post(true), None);
    drop(start(&root));
    let new = std::fs::read(&path).unwrap();
    assert_eq!(new[..bytes.len()], bytes, "what was there is as it was");
    let new = String::from_utf8(new[bytes.len()..].to_vec()).unwrap();
    assert_eq!(new.lines().count(), 2, "{new}");
    assert!(new.contains("run.created") && new.contains("session.state"), "{new}");
}

#[test]
fn what_is_remembered_of_another_audit_log_counts_for_nothing() {
    let root = Root::new();
    let mut session = long_log(&root);
    // Told again, sessions come in the order in which the disk lists them.
    let told = || {
        let mut events = told(&root);
        events.sort_by_key(|event| format!("{:?}", event.record));
        events
    };
    let before = told();
    let kept = std::fs::read(root.path(TOLD)).unwrap();
    for tampered in [&b"{"[..], b"", &kept] {
        // Another log, with lines at the same places.
        std::fs::remove_file(root.path(".state/audit.jsonl")).unwrap();
        std::fs::write(root.path(TOLD), tampered).unwrap();
        drop(start(&root));
        assert_eq!(told(), before);
    }
    session.step(&post(true), None);
    std::fs::write(root.path(TOLD), &kept).unwrap();
    drop(start(&root));
    assert_eq!(told().len(), before.len() + 2);
}

#[test]
fn logs_are_not_read_before_it_is_time() {
    let root = Root::new();
    let old = Watched::new(&root, 1);
    let audit = Audit::start(root.journal.clone(), options(&root)).unwrap();
    // The writer has listed by then which logs there were at its start.
    audit.flush();
    let new = Watched::new(&root, 2);
    audit.committed(&new.log, &new.life.session, &new.life.records());
    audit.flush();
    let ids = || told(&root).iter().filter_map(AuditEvent::session).collect::<Vec<_>>();
    assert_eq!(ids(), [new.life.session.id()]);
    audit.wait_until_complete();
    assert_eq!(ids(), [new.life.session.id(), old.life.session.id()]);
}

#[test]
fn a_session_that_moves_while_its_log_waits_to_be_read_is_told_to_its_end() {
    let root = Root::new();
    let mut session = Watched::new(&root, 1);
    let audit = Audit::start(root.journal.clone(), options(&root)).unwrap();
    session.step(&Step::End, Some(&audit));
    let over = LogPath::new("home/0/agent/coder/session/s1+over/events.jsonl").unwrap();
    root.journal.rename(&session.log, &over).unwrap();
    audit.reopened(&over);
    audit.wait_until_complete();
    assert_eq!(told(&root), session.deeds);
}

#[test]
fn a_stop_tells_what_happened_since_the_start_also_where_the_log_waits_to_be_read() {
    let root = Root::new();
    let (mut touched, untouched) = (Watched::new(&root, 1), Watched::new(&root, 2));
    let audit = Audit::start(root.journal.clone(), options(&root)).unwrap();
    touched.step(&post(true), Some(&audit));
    audit.close();
    assert_eq!(told(&root), touched.deeds, "nobody said that logs may be read");
    drop(start(&root));
    assert_eq!(told(&root).len(), touched.deeds.len() + untouched.deeds.len());
}
