//! The audit log over a disk that fails: what is in a log in the end is told, once and in order, also where nobody was told
//! that it had been written.

use ctx_engine::NewIssue;
use ctx_journal::sim::{Fault, Op, SimDisk};
use ctx_session::{Name, RunState};
use serde_json::Value;

use super::world::{ME, World, eventually};

impl World {
    fn records(&self, path: &str) -> Vec<Value> {
        let text = String::from_utf8(self.disk.contents(path).unwrap_or_default()).unwrap();
        text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
    }

    /// The places in their own log of what was told under a name.
    fn told(&self, event: &str, place: &str) -> Vec<Value> {
        let lines = self.records(".state/audit.jsonl");
        lines.iter().filter(|line| line["event"] == event).map(|line| line[place].clone()).collect()
    }

    async fn audit_has(&self, event: &str, count: usize) {
        eventually(event, async || (self.told(event, "time").len() == count).then_some(())).await;
    }
}

fn seqs(records: &[Value], kind: &str) -> Vec<Value> {
    records.iter().filter(|record| record["type"] == kind).map(|record| record["seq"].clone()).collect()
}

const ROUNDS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn what_a_project_log_has_after_a_failed_write_is_told() {
    let mut refused = 0;
    for _ in 0..ROUNDS {
        refused += usize::from(a_project_log_fails().await);
    }
    assert!(refused > 0, "the fault has met the audit log alone, every time");
}

/// Whether the fault met the project's log, and not that of the deeds.
async fn a_project_log_fails() -> bool {
    let root = tempfile::tempdir().unwrap();
    let world = World::showing(SimDisk::new(), root.path()).await;
    let project = Name::new("default").unwrap();
    let new = NewIssue { title: "Mend".to_owned(), ..NewIssue::default() };
    let issue = world.engine.create_issue(ME, &project, new).await.unwrap().issue.id;
    world.engine.add_todo(ME, issue, "before".to_owned(), None).await.unwrap();
    world.audit_has("todo.added", 1).await;
    world.disk.fail(Op::Sync, 0, Fault::Io);
    let refused = world.engine.add_todo(ME, issue, "in doubt".to_owned(), None).await.is_err();
    world.disk.heal();
    world.engine.add_todo(ME, issue, "after".to_owned(), None).await.unwrap();
    let there = seqs(&world.records(".state/project/default/events.jsonl"), "todo_added");
    assert_eq!(there.len(), 3, "it was written, also where the one who asked was refused");
    world.audit_has("todo.added", 3).await;
    assert_eq!(world.told("todo.added", "project_seq"), there);
    assert_eq!(world.engine.issue(ME, issue).await.unwrap().issue.todos.len(), 3);
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_log_has_after_a_failed_write_is_told() {
    let mut refused = 0;
    for _ in 0..ROUNDS {
        refused += usize::from(a_session_log_fails().await);
    }
    assert!(refused > 0, "the fault has met the audit log alone, every time");
}

/// Whether the fault met the session's log.
async fn a_session_log_fails() -> bool {
    let root = tempfile::tempdir().unwrap();
    let world = World::showing(SimDisk::new(), root.path()).await;
    let id = world.session("default").await;
    assert_eq!(world.say(id, "m1", "before").await, RunState::Done);
    world.audit_has("run.completed", 1).await;
    world.disk.fail(Op::Sync, 0, Fault::Io);
    let refused = world.post(id, "m2", "in doubt").await.is_err();
    world.disk.heal();
    let posted =
        eventually("the session to be taken up", async || world.post(id, "m3", "after").await.ok()).await;
    world.end_of(id, &posted).await;
    let there = seqs(&world.log("default"), "run_created");
    assert_eq!(there.len(), 3, "it was written, also where the one who asked was refused");
    world.audit_has("run.created", 3).await;
    assert_eq!(world.told("run.created", "session_seq"), there);
    refused
}

/// A session that ends as soon as the engine runs: its log is renamed while it waits to be read.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_session_is_told_wherever_its_log_goes() {
    for _ in 0..ROUNDS {
        let root = tempfile::tempdir().unwrap();
        let disk = SimDisk::new();
        let before = World::showing(disk.clone(), root.path()).await;
        let id = before.session("default").await;
        before.engine.shut_down().await;
        let world = World::showing(disk, root.path()).await;
        world.engine.end(ME, id).await.unwrap();
        world.audit_has("session.ended", 1).await;
        assert_eq!(world.told("session.created", "session"), world.told("session.ended", "session"));
    }
}
