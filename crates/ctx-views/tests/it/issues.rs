//! The tables of issues and todos: what the logs of projects say, caught up, followed and built again.

use ctx_journal::{LogPath, LogWriter};
use ctx_session::issue::{IssueStatus, TodoOp};
use ctx_session::project::{
    Change, Criterion, Issue, IssueCommand, IssueGiven, Project, ProjectBody, ProjectRecord, Who,
};
use ctx_session::{IdSource, IssueId, Limits, Name, SessionId, Timestamp, Ulid};
use ctx_views::db::{IndexDb, PROJECT_LOGS};

use crate::indexed::{DB, LONG, START, open, started};
use crate::world::{Root, own};

const ME: Who = Who { by: 1000, session_id: None };

/// A project whose log grows on disk, and in the index if that is told.
pub struct Grown {
    pub project: Project,
    pub log: LogPath,
    writer: Option<Box<dyn LogWriter>>,
    ids: IdSource,
}

impl Grown {
    pub fn new(slug: &str, seed: u64) -> Grown {
        let log = LogPath::new(format!("{PROJECT_LOGS}/{slug}/events.jsonl")).unwrap();
        let project = Project::new(Name::new(slug).unwrap());
        Grown { project, log, writer: None, ids: IdSource::new(seed) }
    }

    /// Takes over what is said; not on disk yet.
    pub fn say(&mut self, bodies: Vec<ProjectBody>) -> Vec<ProjectRecord> {
        let time = Timestamp::from_millis(START + self.project.next_seq * 1_000);
        let first = self.project.next_seq;
        let records: Vec<ProjectRecord> =
            (first..).zip(bodies).map(|(seq, body)| ProjectRecord { seq, time, body }).collect();
        records.iter().for_each(|record| self.project.apply(record));
        records
    }

    pub fn decide(&mut self, command: &IssueCommand) -> Vec<ProjectRecord> {
        let now = Timestamp::from_millis(START + self.project.next_seq * 1_000);
        let limits = Limits::default();
        let mut given = IssueGiven { now, ids: &mut self.ids, limits: &limits };
        let bodies = self.project.decide_issue(command, &mut given).unwrap();
        self.say(bodies)
    }

    pub fn write(&mut self, root: &Root, commits: &[Vec<ProjectRecord>]) {
        for commit in commits {
            let lines: Vec<String> = commit.iter().map(|record| record.body.to_json()).collect();
            let (first, now) = (commit[0].seq, commit[0].time);
            match &self.writer {
                Some(writer) => drop(writer.append(first, now, &lines).unwrap()),
                None => self.writer = Some(root.journal.create(&self.log, own(), now, &lines).unwrap()),
            }
        }
    }

    fn ask(&mut self, root: &Root, command: &IssueCommand, db: Option<&IndexDb>) -> IssueId {
        let commit = self.decide(command);
        self.write(root, std::slice::from_ref(&commit));
        let issue = commit.iter().find_map(|record| record.body.issue()).unwrap();
        if let Some(db) = db {
            db.issue_changed(&self.log, &self.project, issue);
        }
        issue
    }

    /// An issue with everything that one can have.
    fn live(&mut self, root: &Root, title: &str, db: Option<&IndexDb>) -> IssueId {
        let criteria = vec![Criterion { text: "it works".to_owned(), done: true }];
        let create =
            IssueCommand::Create { title: title.to_owned(), body: "b".to_owned(), criteria, by: 1000 };
        let issue = self.ask(root, &create, db);
        let word = |item: &str| item.to_owned();
        for op in [
            TodoOp::Init { items: vec![word("a"), word("b"), word("c")] },
            TodoOp::Start { item: word("a") },
            TodoOp::Drop { item: word("b") },
            TodoOp::Note { item: word("c"), note: word("n") },
        ] {
            self.ask(root, &IssueCommand::Todo { issue, op, who: ME }, db);
        }
        self.ask(root, &IssueCommand::Claim { issue, session: SessionId(Ulid(7)), by: 1000 }, db);
        self.status(root, issue, IssueStatus::InProgress, db);
        issue
    }

    fn status(&mut self, root: &Root, issue: IssueId, status: IssueStatus, db: Option<&IndexDb>) {
        let change = Change { status: Some(status), ..Change::default() };
        self.ask(root, &IssueCommand::Change { issue, change, who: ME }, db);
    }
}

fn shown(db: &IndexDb, grown: &Grown) -> Vec<Issue> {
    db.flush();
    db.ask(|queries| queries.issues(&grown.project.slug)).unwrap()
}

#[test]
fn issues_are_caught_up_at_a_start_followed_and_built_again() {
    let root = Root::new();
    let (mut music, mut other) = (Grown::new("music", 1), Grown::new("other", 2));
    music.live(&root, "first", None);
    other.live(&root, "of another project", None);
    let db = started(&root);
    assert_eq!(shown(&db, &music), music.project.issues(), "what was there");
    assert_eq!(shown(&db, &other), other.project.issues());
    music.live(&root, "second", Some(&db));
    assert_eq!(shown(&db, &music), music.project.issues(), "what came since");
    db.rebuild();
    assert!(db.wait_all(LONG));
    assert_eq!(shown(&db, &music), music.project.issues(), "from nothing");
    db.close();
    // Behind a daemon that wrote no index.
    let late = music.live(&root, "third", None);
    let db = started(&root);
    assert_eq!(shown(&db, &music), music.project.issues());
    music.status(&root, late, IssueStatus::Closed, Some(&db));
    assert_eq!(shown(&db, &music), music.project.issues());
    assert_eq!(db.last_error(), None);
}

#[test]
fn what_is_read_late_does_not_undo_what_came_meanwhile() {
    let root = Root::new();
    let mut music = Grown::new("music", 1);
    let issue = music.live(&root, "first", None);
    let db = open(&root);
    let before = music.project.clone();
    music.status(&root, issue, IssueStatus::Closed, Some(&db));
    // As a reader that was slow would tell it.
    db.issue_changed(&music.log, &before, issue);
    assert_eq!(shown(&db, &music), music.project.issues());
    db.catch_up(|_| {});
    assert!(db.wait_all(LONG));
    assert_eq!(shown(&db, &music), music.project.issues());
}

#[test]
fn a_project_whose_log_is_gone_is_forgotten_and_one_that_is_damaged_shows_what_is_left() {
    let root = Root::new();
    let (mut music, mut other) = (Grown::new("music", 1), Grown::new("other", 2));
    music.live(&root, "first", None);
    other.live(&root, "second", None);
    started(&root).close();
    (music.writer, other.writer) = (None, None);
    std::fs::remove_dir_all(root.path(music.log.as_str()).parent().unwrap()).unwrap();
    let db = started(&root);
    assert_eq!((shown(&db, &music), shown(&db, &other).len()), (Vec::new(), 1));
    db.close();
    let path = root.path(other.log.as_str());
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let damaged: String = lines
        .iter()
        .enumerate()
        .map(|(at, line)| if at == 2 { "{x\n".to_owned() } else { format!("{line}\n") })
        .collect();
    std::fs::write(&path, damaged).unwrap();
    // Its rows would be as new as the log; they are read into an index that has none.
    std::fs::remove_file(root.path(DB)).unwrap();
    let db = started(&root);
    let left = shown(&db, &other);
    assert_eq!((left.len(), left[0].title.as_str()), (1, "second"));
    assert_eq!(left[0].todos.len(), 2, "one todo's line is lost");
}
