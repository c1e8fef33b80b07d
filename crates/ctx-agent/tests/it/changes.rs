//! The tools that change files, and those that find what to change: what they do, refuse and record.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use ctx_agent::Services;
use ctx_session::command::{FinishedTool, Outcome};
use ctx_session::record::{ApprovalOutcome, ToolStatus};
use ctx_session::{SessionId, Ulid};
use serde_json::{Value, json};

use crate::support::{Log, Root};

/// A root, and what outlives the runs of a daemon.
pub struct Desk {
    pub root: Root,
    pub services: Services,
}

impl Desk {
    pub fn new(policy: &str) -> Desk {
        let root = Root::new();
        root.control("policy", policy);
        Desk { root, services: Services::default() }
    }

    /// Has the agent of a session make these calls, one after the other.
    pub async fn of(&self, session: u128, calls: &[(&str, Value)]) -> Vec<FinishedTool> {
        let log = Log::answering(ApprovalOutcome::Allow);
        let steps = calls.iter().map(|(name, input)| json!({ "tool": { "name": name, "input": input } }));
        self.play(session, steps.collect(), &log).await;
        let finished = log.finished.lock().unwrap();
        finished.clone()
    }

    /// Plays a script of the model.
    pub async fn play(&self, session: u128, steps: Vec<Value>, log: &Arc<Log>) {
        let mut work = self.root.job("debug/script", &json!({ "script": steps }).to_string());
        work.job.session = SessionId(Ulid(session));
        work.job.services = self.services.clone();
        let outcome = self.root.run_with(work, log, Default::default()).await;
        assert_eq!(outcome, Outcome::Done);
    }

    pub async fn one(&self, name: &str, input: Value) -> FinishedTool {
        self.of(1, &[(name, input)]).await.remove(0)
    }

    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.root.work().join(name)).unwrap()
    }
}

fn read(path: &str) -> (&'static str, Value) {
    ("fs.read", json!({ "path": path }))
}

fn write(path: &str, content: &str) -> (&'static str, Value) {
    ("fs.write", json!({ "path": path, "content": content }))
}

fn edit(path: &str, old: &str, new: &str) -> (&'static str, Value) {
    ("fs.edit", json!({ "path": path, "edits": [{ "old": old, "new": new }] }))
}

#[tokio::test]
async fn a_change_keeps_the_mode_and_is_recorded_with_its_diff() {
    let desk = Desk::new("allow fs.*");
    desk.root.put("run.sh", "#!/bin/sh\necho one\n");
    let file = desk.root.work().join("run.sh");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o750)).unwrap();
    let done =
        desk.of(1, &[read("run.sh"), edit("run.sh", "one", "two"), write("run.sh", "echo three\n")]).await;
    let diff = "--- /work/run.sh\n+++ /work/run.sh\n@@ -1,2 +1,2 @@\n #!/bin/sh\n-echo one\n+echo two\n";
    assert_eq!(done[1].diff.as_deref(), Some(diff));
    assert_eq!(done[1].output, format!("edited /work/run.sh in 1 place\n{diff}"));
    let summary = done[1].summary.clone().unwrap();
    assert_eq!((summary.lines_added, summary.lines_removed, summary.bytes), (Some(1), Some(1), Some(19)));
    assert_eq!(done[2].status, ToolStatus::Ok, "what it wrote itself it knows: {}", done[2].output);
    assert_eq!(desk.text("run.sh"), "echo three\n");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o750);
    let names: Vec<_> =
        std::fs::read_dir(desk.root.work()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["run.sh"], "nothing is left beside it");
}

#[tokio::test]
async fn a_new_file_is_made_with_its_directories() {
    let desk = Desk::new("allow fs.*");
    let made = desk.one("fs.write", write("a/b/c.txt", "new\n").1).await;
    let diff = "--- /dev/null\n+++ /work/a/b/c.txt\n@@ -0,0 +1 @@\n+new\n";
    assert_eq!(made.output, format!("created /work/a/b/c.txt (4 bytes)\n{diff}"));
    assert_eq!(made.diff.as_deref(), Some(diff));
    assert_eq!(desk.text("a/b/c.txt"), "new\n");
    let mode =
        |name: &str| std::fs::metadata(desk.root.work().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("a/b"), mode("a/b/c.txt")), (0o755, 0o644));
    let below = desk.one("fs.write", write("a/b/c.txt/d", "x").1).await;
    assert_eq!(below.output, "EINVAL: /work/a/b/c.txt is not a directory");
}

#[tokio::test]
async fn what_was_not_read_or_has_changed_is_not_overwritten() {
    let desk = Desk::new("allow fs.*");
    desk.root.put("f", "one\n");
    let unread = desk.of(1, &[write("f", "mine\n"), edit("f", "one", "two")]).await;
    for call in &unread {
        assert_eq!(call.output, "EBUSY: f exists, and you have not read it; read it with fs.read first");
    }
    desk.of(1, &[read("f")]).await;
    desk.root.put("f", "theirs\n");
    let stale =
        desk.of(1, &[write("f", "mine\n"), edit("f", "one", "two"), read("f"), write("f", "mine\n")]).await;
    for call in &stale[..2] {
        assert_eq!(call.output, "EBUSY: f changed since you read it; read it again, then change it");
    }
    assert_eq!((stale[3].status, desk.text("f").as_str()), (ToolStatus::Ok, "mine\n"));
    // What one session has read is not known to another one, nor after a restart.
    assert_eq!(desk.of(2, &[write("f", "x")]).await[0].status, ToolStatus::Error);
    let restarted = Desk { services: Services::default(), ..desk };
    assert_eq!(restarted.of(1, &[write("f", "x")]).await[0].status, ToolStatus::Error);
}

#[tokio::test]
async fn a_change_during_the_approval_is_not_overwritten() {
    let desk = Desk::new("allow fs.read\nask fs.*");
    desk.root.put("f", "one\n");
    desk.of(1, &[read("f")]).await;
    let log = Log::answering_together(2);
    let person = async {
        while log.asked.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        desk.root.put("f", "by hand\n");
        log.together.as_ref().unwrap().wait().await;
    };
    let steps =
        vec![json!({ "tool": { "name": "fs.write", "input": { "path": "f", "content": "mine\n" } } })];
    tokio::join!(desk.play(1, steps, &log), person);
    let asked = log.asked.lock().unwrap()[0].clone();
    assert!(asked.diff.unwrap().ends_with("-one\n+mine\n"), "the operator is shown what would change");
    let told = log.finished.lock().unwrap()[0].output.clone();
    assert!(told.starts_with("EBUSY: /work/f changed since you read it"), "{told}");
    assert_eq!(desk.text("f"), "by hand\n");
}

/// Agents and a person add their lines to one file at once. Whoever is refused reads again; no line is ever lost.
#[tokio::test(flavor = "multi_thread")]
async fn two_agents_and_a_person_edit_one_file() {
    let desk = Arc::new(Desk::new("allow fs.*"));
    desk.root.put("f", "end\n");
    let add = |who: u128| {
        let desk = Arc::clone(&desk);
        tokio::spawn(async move {
            for line in 0..10 {
                let new = format!("agent {who} line {line}\nend\n");
                while desk.of(who, &[read("f"), edit("f", "end\n", &new)]).await[1].status != ToolStatus::Ok {
                }
            }
        })
    };
    let agents = [add(1), add(2)];
    let by_hand = Arc::clone(&desk);
    let person = tokio::task::spawn_blocking(move || {
        for line in 0..10 {
            // As an editor saves: what it has is still what is there, then a rename.
            let file = by_hand.root.work().join("f");
            let (old, beside) = (by_hand.text("f"), by_hand.root.work().join("mine"));
            std::fs::write(&beside, old.replace("end\n", &format!("person line {line}\nend\n"))).unwrap();
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(rustix::fs::CWD, &beside, rustix::fs::CWD, &file, flags).unwrap();
            if std::fs::read_to_string(&beside).unwrap() != old {
                rustix::fs::renameat_with(rustix::fs::CWD, &beside, rustix::fs::CWD, &file, flags).unwrap();
                return line;
            }
        }
        10
    });
    for agent in agents {
        agent.await.unwrap();
    }
    let by_person = person.await.unwrap();
    let text = desk.text("f");
    for who in [1, 2] {
        for line in 0..10 {
            assert!(text.contains(&format!("agent {who} line {line}\n")), "agent {who} line {line}: {text}");
        }
    }
    for line in 0..by_person {
        assert!(text.contains(&format!("person line {line}\n")), "person line {line}: {text}");
    }
}

#[tokio::test]
async fn what_may_not_be_written_says_why() {
    let desk = Desk::new("allow fs.*");
    let read_only = desk.root.dir.path().join("ro");
    std::fs::create_dir(&read_only).unwrap();
    std::fs::write(read_only.join("f"), "x").unwrap();
    let mounts = format!(
        "{} /work rw\n{} /ro ro\n",
        desk.root.work().display().to_string().replace(' ', "\\040"),
        read_only.display()
    );
    desk.root.control("mount", mounts);
    desk.root.put(".git/config", "[core]\n");
    std::os::unix::fs::symlink("../outside", desk.root.work().join("link")).unwrap();
    for (path, said) in [
        ("/ro/f", "EACCES: /ro/f is on a read-only mount"),
        ("/ro/new", "EACCES: /ro/new is on a read-only mount"),
        (".git/hooks/post-commit", "EACCES: /work/.git/hooks/post-commit is in a .git directory"),
        ("/etc/passwd", "EACCES: /etc/passwd is outside what this agent sees"),
        ("../../../../etc/x/../passwd", "ENOENT"),
        ("/work", "EINVAL: /work is not a regular file"),
    ] {
        let told = desk.one("fs.write", json!({ "path": path, "content": "x" })).await;
        assert!(told.output.starts_with(said), "{path}: {}", told.output);
        assert_eq!(told.status, ToolStatus::Error);
    }
    assert!(!desk.root.work().join(".git/hooks").exists());
    // A link leads to its place in the view, and makes nothing outside of it.
    desk.one("fs.write", json!({ "path": "link", "content": "x" })).await;
    assert!(!desk.root.dir.path().join("outside").exists());
}

#[tokio::test]
async fn an_edit_that_does_not_fit_shows_the_nearest_place() {
    let desk = Desk::new("allow fs.*");
    desk.root.put("f", "fn one() {\n    first();\n}\n");
    let told = desk.of(1, &[read("f"), edit("f", "  first(1);", "x"), edit("g", "a", "b")]).await;
    let wanted = "EINVAL: f: `old` is not in the file; the nearest is at line 2:\n2:     first();";
    assert_eq!(told[1].output, wanted);
    assert_eq!(told[2].output, "ENOENT: g does not exist; make it with fs.write");
    let all = json!({ "path": "f", "edits": [{ "old": "fn", "new": "pub fn" }, { "old": "(", "new": "[", "all": true }] });
    let done = desk.one("fs.edit", all).await;
    assert!(done.output.starts_with("edited /work/f in 3 places\n"), "{}", done.output);
    assert_eq!(desk.text("f"), "pub fn one[) {\n    first[);\n}\n");
}

#[tokio::test]
async fn a_search_leaves_out_what_is_ignored_or_not_allowed() {
    let desk = Desk::new("deny fs.read secret/*");
    desk.root.put("src/a.rs", "fn needle() {}\nother\nneedle();\n");
    desk.root.put("src/b.txt", "a needle\n");
    desk.root.put("target/out", "needle\n");
    desk.root.put(".gitignore", "target/\n*.log\n");
    desk.root.put("src/x.log", "needle\n");
    desk.root.put("src/keep/.ignore", "!y.log\n");
    desk.root.put("src/keep/y.log", "needle\n");
    desk.root.put(".git/needle", "needle\n");
    desk.root.put("secret/s", "needle\n");
    desk.root.put("image", b"needle\0needle\n");
    let search = async |input: Value| desk.one("fs.search", input).await.output;
    let kept_out = "[1 file left out, because the policy does not allow to read it]\n";
    let lines = "src/a.rs:1: fn needle() {}\nsrc/a.rs:3: needle();\nsrc/b.txt:1: a needle\nsrc/keep/y.log:1: needle\n";
    assert_eq!(
        search(json!({ "pattern": "needle" })).await,
        format!("{lines}[4 matches in 3 files]\n{kept_out}")
    );
    let of_rs = json!({ "pattern": "^needle", "path": "src", "glob": "*.rs" });
    assert_eq!(search(of_rs).await, "src/a.rs:3: needle();\n[1 match in 1 file]\n");
    let few = json!({ "pattern": "needle", "path": "/work/src", "max": 1 });
    let told = search(few).await;
    assert!(
        told.ends_with("[1 shown of 4 matches in 3 files; narrow the pattern or the path, or raise max]\n"),
        "{told}"
    );
    assert_eq!(
        search(json!({ "pattern": "needle", "path": "src/b.txt" })).await,
        "src/b.txt:1: a needle\n[1 match in 1 file]\n"
    );
    assert_eq!(search(json!({ "pattern": "nothing", "path": "src" })).await, "[no match in 4 files]\n");
    assert!(search(json!({ "pattern": "(" })).await.starts_with("EINVAL: bad pattern: "));
    assert!(search(json!({ "pattern": "a", "glob": "[" })).await.starts_with("EINVAL: bad glob: "));
}

#[tokio::test]
async fn stat_says_what_is_there() {
    let desk = Desk::new("");
    desk.root.put("f", "12345");
    let told = desk.one("fs.stat", json!({ "path": "f" })).await;
    assert!(told.output.starts_with("path: /work/f\nkind: file\nsize: 5\nmode: 0"), "{}", told.output);
    assert!(
        told.output.contains("\nmodified: 20") && told.output.ends_with("Z\nmount: read-write\n"),
        "{}",
        told.output
    );
    assert!(desk.one("fs.stat", json!({ "path": "/" })).await.output.contains("kind: directory"));
    assert_eq!(desk.one("fs.stat", json!({ "path": "no" })).await.output, "ENOENT: no does not exist");
}

#[tokio::test]
async fn calls_that_do_not_meet_are_made_at_once_and_recorded_in_order() {
    let desk = Desk::new("");
    let call = |path: &str| json!({ "name": "fs.write", "input": { "path": path, "content": "x" } });
    // Answered only when both wait: one after the other, this would never end.
    let log = Log::answering_together(2);
    desk.play(1, vec![json!({ "tools": [call("a"), call("b")] })], &log).await;
    let order: Vec<String> = log.finished.lock().unwrap().iter().map(|done| done.output.clone()).collect();
    assert!(order[0].contains("/work/a ") && order[1].contains("/work/b "), "{order:?}");

    let log = Log::answering(ApprovalOutcome::Allow);
    desk.play(1, vec![json!({ "tools": [call("c"), call("./c"), call("d/e")] })], &log).await;
    let done = log.finished.lock().unwrap().clone();
    let (made, again) = (&done[0].output, &done[1].output);
    assert!(
        made.starts_with("created /work/c") && again.starts_with("wrote /work/c"),
        "in turn: {made} {again}"
    );
}

#[tokio::test]
async fn a_line_without_end_is_too_much_for_a_search_and_not_for_the_daemon() {
    let desk = Desk::new("");
    desk.root.put("a", "needle\n");
    let mut long = std::fs::File::create(desk.root.work().join("long")).unwrap();
    for _ in 0..40 {
        std::io::Write::write_all(&mut long, &vec![b'x'; 1 << 20]).unwrap();
    }
    let told = desk.one("fs.search", json!({ "pattern": "needle" })).await.output;
    assert!(told.starts_with("a:1: needle\n[1 match in 1 file]\n[1 file or directory could not"), "{told}");
}
