//! Issues and todos in a project's log: every operation, what is refused, and laws over random operations.

use ctx_session::issue::{IssueStatus, TodoOp};
use ctx_session::project::{
    Change, Criterion, Issue, IssueCommand, IssueGiven, Project, ProjectBody, ProjectRecord, TodoStatus, Who,
};
use ctx_session::record::Decoded;
use ctx_session::{Code, IdSource, IssueId, Limits, Name, Refusal, SessionId, Timestamp, Ulid};
use expect_test::{Expect, expect};
use proptest::prelude::*;

const ME: Who = Who { by: 1000, session_id: None };

/// A project with its log, a clock that goes on by a second, and ids that are fixed.
struct World {
    project: Project,
    log: Vec<String>,
    ids: IdSource,
    limits: Limits,
}

impl World {
    fn new() -> World {
        let project = Project::new(Name::new("music").unwrap());
        World { project, log: Vec::new(), ids: IdSource::new(1), limits: Limits::default() }
    }

    /// One with an issue, and that issue.
    fn with_issue() -> (World, IssueId) {
        let mut world = World::new();
        world.ask(&create("Fix it")).unwrap();
        let id = world.project.issues()[0].id;
        (world, id)
    }

    fn ask(&mut self, command: &IssueCommand) -> Result<Vec<String>, Refusal> {
        let now = at(self.project.next_seq);
        let mut given = IssueGiven { now, ids: &mut self.ids, limits: &self.limits };
        let bodies = self.project.decide_issue(command, &mut given)?;
        let lines: Vec<String> = bodies.iter().map(ProjectBody::to_json).collect();
        for body in bodies {
            let seq = self.project.next_seq;
            self.project.apply(&ProjectRecord { seq, time: at(seq), body });
        }
        self.log.extend(lines.clone());
        Ok(lines)
    }

    fn todo(&mut self, issue: IssueId, op: TodoOp) -> Result<Vec<String>, Refusal> {
        self.ask(&IssueCommand::Todo { issue, op, who: ME })
    }

    fn issue(&self, id: IssueId) -> &Issue {
        self.project.issue(id).unwrap()
    }

    /// The project as its log tells it to someone else.
    fn replayed(&self) -> Project {
        let mut project = Project::new(self.project.slug.clone());
        for (seq, line) in (0..).zip(&self.log) {
            let Decoded::Known(body) = ProjectBody::decode(line.split('"').nth(3).unwrap(), line) else {
                panic!("{line}")
            };
            assert_eq!(body.to_json(), *line, "a record reads back as it was written");
            project.apply(&ProjectRecord { seq, time: at(seq), body });
        }
        project
    }
}

fn at(seq: u64) -> Timestamp {
    Timestamp::from_millis(1_000 * (seq + 1))
}

fn create(title: &str) -> IssueCommand {
    IssueCommand::Create { title: title.to_owned(), body: String::new(), criteria: Vec::new(), by: 1000 }
}

fn change(issue: IssueId, change: Change) -> IssueCommand {
    IssueCommand::Change { issue, change, who: ME }
}

fn init(items: &[&str]) -> TodoOp {
    TodoOp::Init { items: items.iter().map(|item| (*item).to_owned()).collect() }
}

fn append(item: &str) -> TodoOp {
    TodoOp::Append { item: item.to_owned() }
}

fn start(item: &str) -> TodoOp {
    TodoOp::Start { item: item.to_owned() }
}

fn done(item: &str) -> TodoOp {
    TodoOp::Done { item: item.to_owned() }
}

fn drop_(item: &str) -> TodoOp {
    TodoOp::Drop { item: item.to_owned() }
}

fn note(item: &str, note: &str) -> TodoOp {
    TodoOp::Note { item: item.to_owned(), note: note.to_owned() }
}

/// Plays operations on one issue; after each the list, or why it was refused.
#[track_caller]
fn check(ops: &[TodoOp], expected: Expect) {
    let (mut world, id) = World::with_issue();
    let mut said = String::new();
    for op in ops {
        let name = serde_json::to_value(op).unwrap()["op"].as_str().unwrap().to_owned();
        let before = world.project.clone();
        let list = match world.todo(id, op.clone()) {
            Ok(_) => world.issue(id).list().replace('\n', " | "),
            Err(refusal) => {
                assert_eq!(world.project, before, "a refusal changes nothing");
                format!("{} {}", refusal.code, refusal.message.replace('\n', " | "))
            }
        };
        said += &format!("{name}: {list}\n");
    }
    assert_eq!(world.replayed(), world.project);
    expected.assert_eq(&said);
}

#[test]
fn every_operation_on_todos() {
    check(
        &[
            init(&["a", "b", "c"]),
            start("a"),
            done("a"),
            start("b"),
            note("b", "slow"),
            drop_("c"),
            append("d"),
        ],
        expect![[r#"
            init: 1. [ ] a | 2. [ ] b | 3. [ ] c
            start: 1. [>] a | 2. [ ] b | 3. [ ] c
            done: 1. [x] a | 2. [ ] b | 3. [ ] c
            start: 1. [x] a | 2. [>] b | 3. [ ] c
            note: 1. [x] a | 2. [>] b (slow) | 3. [ ] c
            drop: 1. [x] a | 2. [>] b (slow) | 3. [-] c
            append: 1. [x] a | 2. [>] b (slow) | 3. [-] c | 4. [ ] d
        "#]],
    );
}

#[test]
fn at_most_one_is_in_progress_and_the_one_before_waits_again() {
    check(
        &[init(&["a", "b"]), start("a"), start("b"), start("b"), start("a"), done("b")],
        expect![[r#"
            init: 1. [ ] a | 2. [ ] b
            start: 1. [>] a | 2. [ ] b
            start: 1. [ ] a | 2. [>] b
            start: 1. [ ] a | 2. [>] b
            start: 1. [>] a | 2. [ ] b
            done: 1. [>] a | 2. [x] b
        "#]],
    );
}

#[test]
fn a_todo_is_dropped_and_not_deleted_and_can_be_taken_up_again() {
    check(
        &[init(&["a"]), drop_("a"), start("a"), done("a"), start("a")],
        expect![[r#"
            init: 1. [ ] a
            drop: 1. [-] a
            start: 1. [>] a
            done: 1. [x] a
            start: 1. [>] a
        "#]],
    );
}

#[test]
fn a_list_is_begun_only_where_nothing_is_left_to_do() {
    check(
        &[init(&["a"]), init(&["b"]), start("a"), init(&["b"]), done("a"), init(&["b", "c"])],
        expect![[r#"
            init: 1. [ ] a
            init: EEXIST there are todos already; append to them, or drop them first: | 1. [ ] a
            start: 1. [>] a
            init: EEXIST there are todos already; append to them, or drop them first: | 1. [>] a
            done: 1. [x] a
            init: 1. [x] a | 2. [ ] b | 3. [ ] c
        "#]],
    );
}

#[test]
fn what_does_not_fit_is_refused() {
    check(
        &[
            init(&[]),
            init(&["a", " "]),
            append(""),
            append("two\nlines"),
            start("a"),
            append(" a "),
            note("a", " "),
        ],
        expect![[r#"
            init: EINVAL a list has 1 to 500 todos
            init: EINVAL a todo must not be empty
            append: EINVAL a todo must not be empty
            append: EINVAL a todo is one line without control characters
            start: ENOENT no such todo; the todos are: | no todos yet
            append: 1. [ ] a
            note: EINVAL a note must not be empty
        "#]],
    );
    let (mut world, id) = World::with_issue();
    let many: Vec<String> = (0..500).map(|n| format!("t{n}")).collect();
    world.todo(id, TodoOp::Init { items: many }).unwrap();
    assert_eq!(world.todo(id, append("one more")).unwrap_err().code, Code::Einval);
    let long = "x".repeat(world.limits.title_bytes + 1);
    assert_eq!(world.ask(&create(&long)).unwrap_err().field.as_deref(), Some("title"));
    let nobody = IssueId(Ulid(7));
    for command in [
        change(nobody, Change::default()),
        IssueCommand::AddTodo { issue: nobody, text: "a".to_owned(), who: ME },
        IssueCommand::Todo { issue: nobody, op: start("a"), who: ME },
        IssueCommand::Claim { issue: nobody, session: SessionId(Ulid(1)), by: 1000 },
    ] {
        assert_eq!(world.ask(&command).unwrap_err().code, Code::Enoent, "{command:?}");
    }
}

#[test]
fn a_todo_is_found_by_its_text_its_number_or_its_id() {
    let (mut world, id) = World::with_issue();
    world.todo(id, init(&["first", "2", "third", "twice", "twice"])).unwrap();
    let ids: Vec<String> = world.issue(id).todos.iter().map(|todo| todo.id.to_string()).collect();
    let found = |world: &World, item: &str| {
        world.issue(id).todo(item).and_then(|todo| ids.iter().position(|id| *id == todo.id.to_string()))
    };
    assert_eq!(found(&world, "first"), Some(0));
    assert_eq!(found(&world, " third "), Some(2));
    assert_eq!(found(&world, "3"), Some(2));
    assert_eq!(found(&world, "3."), Some(2), "as the list writes it");
    assert_eq!(found(&world, "2"), Some(1), "a text before a number");
    assert_eq!(found(&world, &ids[3]), Some(3));
    for nothing in ["0", "6", "-1", "First", "", &id.to_string()] {
        assert_eq!(found(&world, nothing), None, "{nothing:?}");
    }
    assert_eq!(found(&world, "twice"), Some(3));
    world.todo(id, done("twice")).unwrap();
    assert_eq!(found(&world, "twice"), Some(4), "of two with one text, the one with something left to do");
}

#[test]
fn an_issue_is_made_and_changed_and_what_does_not_change_writes_nothing() {
    let (mut world, id) = World::with_issue();
    let criteria = vec![Criterion { text: "it works".to_owned(), done: false }];
    let whole = Change {
        title: Some(" Fix all ".to_owned()),
        body: Some("why".to_owned()),
        criteria: Some(criteria),
        status: Some(IssueStatus::InProgress),
    };
    assert_eq!(world.ask(&change(id, whole.clone())).unwrap().len(), 1);
    assert_eq!(world.ask(&change(id, whole)).unwrap(), Vec::<String>::new());
    assert_eq!(world.ask(&change(id, Change::default())).unwrap(), Vec::<String>::new());
    for status in IssueStatus::ALL {
        world.ask(&change(id, Change { status: Some(status), ..Change::default() })).unwrap();
        assert_eq!(world.issue(id).status, status, "every status can be reached from every other");
    }
    let issue = world.issue(id);
    assert_eq!((issue.title.as_str(), issue.body.as_str()), ("Fix all", "why"));
    assert_eq!((issue.created_at, issue.updated_at), (at(0), at(world.project.next_seq - 1)));
    expect![[r#"
        #1 Fix all (closed)

        why

        Acceptance criteria:
        1. [ ] it works

        Todos:
        no todos yet
    "#]]
    .assert_eq(&issue.text());
    for bad in [
        Change { title: Some(" ".to_owned()), ..Change::default() },
        Change { body: Some("x".repeat(world.limits.message_bytes + 1)), ..Change::default() },
        Change { criteria: Some(vec![Criterion { text: String::new(), done: true }]), ..Change::default() },
        Change {
            criteria: Some(vec![Criterion { text: "x".to_owned(), done: true }; 501]),
            ..Change::default()
        },
    ] {
        let before = world.project.clone();
        world.ask(&change(id, bad)).unwrap_err();
        assert_eq!(world.project, before);
    }
}

#[test]
fn numbers_count_up_in_each_project() {
    let mut first = World::new();
    let mut second = World::new();
    for title in ["a", "b", "c"] {
        first.ask(&create(title)).unwrap();
    }
    second.ask(&create("a")).unwrap();
    let numbers = |world: &World| world.project.issues().iter().map(|issue| issue.number).collect::<Vec<_>>();
    assert_eq!((numbers(&first), numbers(&second)), (vec![1, 2, 3], vec![1]));
}

#[test]
fn a_claim_says_who_works_on_it_and_changes_nothing_else() {
    let (mut world, id) = World::with_issue();
    world.todo(id, init(&["a"])).unwrap();
    let before = world.issue(id).clone();
    let claim = |session| IssueCommand::Claim { issue: id, session: SessionId(Ulid(session)), by: 1000 };
    assert_eq!(world.ask(&claim(1)).unwrap().len(), 1);
    assert_eq!(world.ask(&claim(1)).unwrap().len(), 0, "once is enough");
    world.ask(&claim(2)).unwrap();
    assert_eq!(*world.issue(id), Issue { session: Some(SessionId(Ulid(2))), ..before });
    assert_eq!(world.replayed(), world.project);
}

#[test]
fn the_records_of_issues_and_todos() {
    let (mut world, id) = World::with_issue();
    let session = SessionId(Ulid(5));
    let who = Who { by: 1000, session_id: Some(session) };
    world.todo(id, init(&["a"])).unwrap();
    world.ask(&IssueCommand::Todo { issue: id, op: note("a", "n"), who }).unwrap();
    world.ask(&change(id, Change { status: Some(IssueStatus::Resolved), ..Change::default() })).unwrap();
    world.ask(&IssueCommand::Claim { issue: id, session, by: 1000 }).unwrap();
    let todo = world.issue(id).todos[0].id.to_string();
    let named = world.log.join("\n").replace(&id.to_string(), "I").replace(&todo, "T");
    expect![[r#"
        {"type":"issue_created","issue_id":"I","number":1,"title":"Fix it","by":1000}
        {"type":"todo_added","issue_id":"I","todo_id":"T","text":"a","by":1000}
        {"type":"todo_changed","issue_id":"I","todo_id":"T","note":"n","by":1000,"session_id":"00000000000000000000000005"}
        {"type":"issue_changed","issue_id":"I","status":"resolved","by":1000}
        {"type":"issue_claimed","issue_id":"I","session_id":"00000000000000000000000005","by":1000}"#]]
    .assert_eq(&named);
    assert_eq!(world.replayed(), world.project);
}

#[test]
fn a_record_about_something_that_is_not_there_is_passed_over() {
    let (mut world, id) = World::with_issue();
    world.todo(id, init(&["a"])).unwrap();
    let stranger = Ulid(9).to_string();
    for line in world.log.clone() {
        let kind = line.split('"').nth(3).unwrap().to_owned();
        let other = line.replace(&id.to_string(), &stranger);
        if kind == "issue_created" {
            continue;
        }
        let Decoded::Known(body) = ProjectBody::decode(&kind, &other) else { panic!("{other}") };
        let before = world.project.issues().to_vec();
        let seq = world.project.next_seq;
        world.project.apply(&ProjectRecord { seq, time: at(seq), body });
        assert_eq!(world.project.issues(), before);
    }
    for kind in ["issue_created", "issue_changed", "issue_claimed", "todo_added", "todo_changed"] {
        assert!(matches!(ProjectBody::decode(kind, "{}"), Decoded::Malformed(_)), "{kind}");
    }
}

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "1", "2", "7", "", "x\ny"]).prop_map(str::to_owned)
}

fn op() -> impl Strategy<Value = TodoOp> {
    prop_oneof![
        prop::collection::vec(word(), 0..4).prop_map(|items| TodoOp::Init { items }),
        word().prop_map(|item| TodoOp::Append { item }),
        word().prop_map(|item| TodoOp::Start { item }),
        word().prop_map(|item| TodoOp::Done { item }),
        word().prop_map(|item| TodoOp::Drop { item }),
        (word(), word()).prop_map(|(item, note)| TodoOp::Note { item, note }),
    ]
}

#[derive(Debug, Clone)]
enum Wish {
    Create(String),
    Status(usize, usize),
    Add(usize, String),
    Todo(usize, TodoOp),
    Claim(usize, u128),
}

fn wish() -> impl Strategy<Value = Wish> {
    prop_oneof![
        1 => word().prop_map(Wish::Create),
        1 => (0..3usize, 0..4usize).prop_map(|(issue, status)| Wish::Status(issue, status)),
        1 => (0..3usize, word()).prop_map(|(issue, text)| Wish::Add(issue, text)),
        8 => (0..3usize, op()).prop_map(|(issue, op)| Wish::Todo(issue, op)),
        1 => (0..3usize, 1..4u128).prop_map(|(issue, session)| Wish::Claim(issue, session)),
    ]
}

fn command(world: &World, wish: Wish) -> IssueCommand {
    let id = |at: usize| world.project.issues().get(at).map_or(IssueId(Ulid(1)), |issue| issue.id);
    match wish {
        Wish::Create(title) => create(&title),
        Wish::Status(at, status) => {
            change(id(at), Change { status: Some(IssueStatus::ALL[status]), ..Change::default() })
        }
        Wish::Add(at, text) => IssueCommand::AddTodo { issue: id(at), text, who: ME },
        Wish::Todo(at, op) => IssueCommand::Todo { issue: id(at), op, who: ME },
        Wish::Claim(at, session) => {
            IssueCommand::Claim { issue: id(at), session: SessionId(Ulid(session)), by: 1000 }
        }
    }
}

fn hold_the_laws(before: &Project, after: &Project) {
    for (index, issue) in after.issues().iter().enumerate() {
        assert_eq!(issue.number, index as u64 + 1, "numbers have no gaps");
        let busy = issue.todos.iter().filter(|todo| todo.status == TodoStatus::InProgress).count();
        assert!(busy <= 1, "{}", issue.list());
        let Some(old) = before.issue(issue.id) else { continue };
        let ids =
            |issue: &Issue| issue.todos.iter().map(|todo| (todo.id, todo.text.clone())).collect::<Vec<_>>();
        assert!(ids(issue).starts_with(&ids(old)), "todos stay, in their order, with their texts");
    }
    assert!(after.issues().len() >= before.issues().len(), "issues stay");
}

proptest! {
    #[test]
    fn random_operations_keep_the_laws_and_the_log_tells_it_all(wishes in prop::collection::vec(wish(), 0..60)) {
        let mut world = World::new();
        world.ask(&create("first")).unwrap();
        for wish in wishes {
            let command = command(&world, wish);
            let before = world.project.clone();
            match world.ask(&command) {
                Ok(_) => hold_the_laws(&before, &world.project),
                Err(_) => prop_assert_eq!(&before, &world.project, "a refusal writes nothing"),
            }
        }
        prop_assert_eq!(world.replayed(), world.project);
    }
}
