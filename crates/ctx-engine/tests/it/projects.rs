//! The registry over a simulated disk: what was acknowledged is there, whatever becomes of the disk.

use std::sync::{Arc, Mutex};

use ctx_engine::port::{Look, ProjectFile, ProjectFiles, ShownAgent, Whose};
use ctx_engine::{NewProject, NewSession};
use ctx_journal::sim::{Fault, Op, SimDisk};
use ctx_session::project::{Problem, ProjectBody, ProjectRead, ProjectRemoved, RegistryBody};
use ctx_session::record::Scope;
use ctx_session::{Code, Name, Refusal};

use super::world::{ME, World};

/// Every directory holds a project that is called as it is, unless it is said to be broken.
#[derive(Default)]
struct Imagined {
    broken: Mutex<Vec<String>>,
    /// Who looks at a directory called `hung` waits while this is locked.
    hung: Mutex<()>,
    shown: Mutex<Vec<(String, String)>>,
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn problem(message: &str) -> Problem {
    Problem { file: "file".to_owned(), line: 3, column: 7, message: message.to_owned() }
}

fn file_of(slug: &Name) -> ProjectFile {
    ProjectFile {
        agent: slug.clone(),
        slug: slug.clone(),
        model: "main".to_owned(),
        slug_at: problem(""),
        agent_at: problem(""),
        model_at: problem(""),
        hash: "hash".to_owned(),
        snapshot: slug.as_str().as_bytes().into(),
        snapshot_hash: "snapshot".to_owned(),
        grants: Vec::new(),
        plain: None,
        running_per_project: None,
    }
}

impl ProjectFiles for Imagined {
    fn directory(&self, asked: &str, _: Whose) -> Result<String, Refusal> {
        Ok(asked.to_owned())
    }

    fn look(&self, directory: &str, _: Whose) -> Look {
        let slug = name(directory.rsplit('/').next().unwrap());
        let _answers = (slug.as_str() == "hung").then(|| self.hung.lock().unwrap());
        let found = match self.broken.lock().unwrap().iter().any(|broken| broken == directory) {
            true => Err(vec![problem("broken")]),
            false => Ok(Arc::new(file_of(&slug))),
        };
        Look { found, slug: Some(slug), is_there: true, lacks_file: false }
    }

    fn of_snapshot(&self, snapshot: Arc<[u8]>, _: &ProjectRead) -> Option<ProjectFile> {
        let slug = name(std::str::from_utf8(&snapshot).unwrap());
        // An older ctx read no grants in it.
        let grants = if slug.as_str() == "old" { vec!["cage: everything".to_owned()] } else { Vec::new() };
        Some(ProjectFile { grants, ..file_of(&slug) })
    }

    fn is_described(&self, agent: &Name) -> bool {
        agent.as_str() == "coder"
    }

    fn lacks_model(&self, _: &str) -> Option<String> {
        None
    }

    fn shown_for(&self, agent: &Name) -> Option<Name> {
        let shown = self.shown.lock().unwrap();
        shown.iter().any(|(project, _)| project == agent.as_str()).then(|| agent.clone())
    }

    fn show(&self, agents: &[ShownAgent]) {
        let shown = agents.iter().map(|agent| (agent.project.to_string(), agent.status.clone()));
        *self.shown.lock().unwrap() = shown.collect();
    }
}

/// The directory `hung` does not answer as long as this is there.
struct Hung {
    answer: std::sync::mpsc::Sender<()>,
    holding: std::thread::JoinHandle<()>,
}

impl Hung {
    async fn hold(files: &Arc<Imagined>) -> Hung {
        let files = files.clone();
        let (held, is_held) = tokio::sync::oneshot::channel();
        let (answer, answers) = std::sync::mpsc::channel::<()>();
        let holding = std::thread::spawn(move || {
            let _silent = files.hung.lock().unwrap();
            held.send(()).unwrap();
            let _ = answers.recv();
        });
        is_held.await.unwrap();
        Hung { answer, holding }
    }

    fn let_go(self) {
        drop(self.answer);
        self.holding.join().unwrap();
    }
}

async fn world(disk: SimDisk) -> World {
    World::with_projects(disk, Arc::new(Imagined::default())).await
}

fn new(directory: &str) -> NewProject {
    NewProject { directory: directory.to_owned(), slug: None, key: None }
}

async fn slugs(world: &World) -> Vec<String> {
    world.engine.projects(ME).await.unwrap().into_iter().map(|project| project.slug.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_acknowledged_is_registered_after_every_crash() {
    let first = world(SimDisk::new()).await;
    first.engine.add_project(ME, new("/src/music")).await.unwrap();
    first.engine.add_project(ME, new("/src/film")).await.unwrap();
    first.engine.remove_project(ME, &name("film")).await.unwrap();
    for disk in first.disk.now().crash(7, 200) {
        let again = world(disk).await;
        assert_eq!(slugs(&again).await, ["default", "music"]);
        assert_eq!(again.engine.project(ME, &name("film")).await.unwrap_err().code, Code::Enoent);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fails_refuses_and_the_registry_goes_on_when_it_works_again() {
    for (op, fault) in [
        (Op::Write, Fault::NoSpace),
        (Op::Write, Fault::Io),
        (Op::Sync, Fault::Io),
        (Op::Write, Fault::Short(9)),
    ] {
        for removes in [false, true] {
            let world = world(SimDisk::new()).await;
            if removes {
                world.engine.add_project(ME, new("/src/music")).await.unwrap();
            }
            world.disk.fail(op, 0, fault);
            let failed = match removes {
                true => world.engine.remove_project(ME, &name("music")).await.map(drop),
                false => world.engine.add_project(ME, new("/src/music")).await.map(drop),
            };
            assert!(failed.is_err(), "{op:?} {fault:?}");
            world.disk.heal();
            // Whether an operation that failed with an error of the disk was written is not known; it can be asked for again.
            let there = slugs(&world).await.contains(&"music".to_owned());
            match there {
                true => world.engine.remove_project(ME, &name("music")).await.map(drop).unwrap(),
                false => drop(world.engine.add_project(ME, new("/src/music")).await.unwrap()),
            }
            assert_eq!(slugs(&world).await.contains(&"music".to_owned()), !there);
            let again = self::world(world.disk.now().kill()).await;
            assert_eq!(slugs(&again).await.contains(&"music".to_owned()), !there, "{op:?} {fault:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_line_costs_that_line() {
    let first = world(SimDisk::new()).await;
    first.engine.add_project(ME, new("/src/music")).await.unwrap();
    first.engine.move_project(ME, &name("music"), "/other/music".to_owned()).await.unwrap();
    first.engine.move_project(ME, &name("music"), "/third/music".to_owned()).await.unwrap();
    let path = ".state/project/music/events.jsonl";
    let text = String::from_utf8(first.disk.contents(path).unwrap()).unwrap();
    // The line of the first move is damaged, and the end of the log.
    let mut lines: Vec<&str> = text.lines().collect();
    let moved = lines.iter().position(|line| line.contains("/other/music")).unwrap();
    lines[moved] = "garbage";
    let disk = first.disk.now().kill();
    disk.put(path, format!("{}\n{{\"torn", lines.join("\n")).as_bytes());
    let again = world(disk).await;
    assert_eq!(again.engine.project(ME, &name("music")).await.unwrap().directory, "/third/music");
    again.engine.remove_project(ME, &name("music")).await.unwrap();
    assert_eq!(slugs(&again).await, ["default"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_a_project_holds_what_else_it_keeps_and_default_has_one_too() {
    let world = world(SimDisk::new()).await;
    let log = world.engine.project_log(ME, &name("default")).await.unwrap();
    assert_eq!(log.project().entry, None, "nothing is written before there is something to write");
    // Stands for a record of an issue.
    let body = || ProjectBody::Registry(RegistryBody::Removed(ProjectRemoved { by: 0 }));
    let now = ctx_session::Timestamp::from_millis(5);
    let written = log.perform(now, |_| Ok(vec![body()]), |_, _| {}).unwrap();
    assert_eq!(written.len(), 2, "its own first record comes before");
    assert!(
        matches!(&written[0].body, ProjectBody::Registry(RegistryBody::Added(added)) if added.project == name("default"))
    );
    let refused =
        log.perform(now, |_| Err(Refusal::new(Code::Ebusy, "no")), |_, _| panic!("nothing is told"));
    assert_eq!(refused.unwrap_err().code, Code::Ebusy);
    assert_eq!(log.project().next_seq, 2);
    assert_eq!(slugs(&world).await, ["default"], "it is always there");
    assert_eq!(world.engine.project_log(ME, &name("nobody")).await.err().unwrap().code, Code::Enoent);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_project_refuses_new_sessions_and_shows_why() {
    let files = Arc::new(Imagined::default());
    let world = World::with_projects(SimDisk::new(), files.clone()).await;
    world.engine.add_project(ME, new("/src/film")).await.unwrap();
    files.broken.lock().unwrap().push("/src/film".to_owned());
    let view = world.engine.project(ME, &name("film")).await.unwrap();
    assert_eq!(view.problems, [problem("broken")]);
    assert_eq!(view.agent, Some(name("film")), "it keeps its name");
    assert_eq!(*files.shown.lock().unwrap(), [("film".to_owned(), "invalid file:3:7: broken".to_owned())]);
    // Someone else cannot take the name meanwhile.
    let other = world
        .engine
        .add_project(ME, NewProject { directory: "/x/film".to_owned(), slug: Some(name("two")), key: None });
    assert!(!other.await.unwrap().problems.is_empty());
    files.broken.lock().unwrap().clear();
    assert!(world.engine.project(ME, &name("film")).await.unwrap().problems.is_empty());
}

fn session_of(agent: &str) -> NewSession {
    NewSession {
        object: ctx_session::Object::Agent(name(agent)),
        project: None,
        name: None,
        scope: Scope::Private,
        space: None,
        cwd: None,
        dir: None,
        earlier: Vec::new(),
        client: None,
        key: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_snapshot_cannot_be_stored_is_not_made() {
    let world = world(SimDisk::new()).await;
    world.engine.add_project(ME, new("/src/film")).await.unwrap();
    let session = || NewSession { name: Some(name("work")), ..session_of("film") };
    world.disk.set_room(Some(0));
    assert_eq!(world.engine.create(ME, session()).await.unwrap_err().code, Code::Enospc);
    world.disk.set_room(None);
    let id = world.engine.create(ME, session()).await.unwrap();
    let meta = world.engine.find(ME, id).unwrap().meta.clone();
    assert_eq!((meta.project.as_str(), meta.dsl_hash.as_deref()), ("film", Some("hash")));
    assert!(world.disk.files().iter().any(|file| file.starts_with(".state/project/film/blobs/sha256-")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_does_not_answer_holds_up_no_reader_of_another_project() {
    let files = Arc::new(Imagined::default());
    let world = World::with_projects(SimDisk::new(), files.clone()).await;
    world.engine.add_project(ME, new("/src/music")).await.unwrap();
    world.engine.add_project(ME, new("/src/hung")).await.unwrap();
    let hung = Hung::hold(&files).await;
    // Someone waits for it under the lock of all looks.
    let engine = world.engine.clone();
    let waiting = tokio::spawn(async move { engine.projects(ME).await });
    for slug in ["music", "hung"] {
        let slug = name(slug);
        let read = world.engine.current_snapshot(&slug);
        let now = tokio::time::timeout(std::time::Duration::from_secs(20), read).await;
        assert_eq!(now.expect("an answer").as_deref(), Some("snapshot"), "{slug}");
    }
    files.broken.lock().unwrap().push("/src/music".to_owned());
    assert_eq!(world.engine.current_snapshot(&name("music")).await, None, "as it is now");
    hung.let_go();
    waiting.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_does_not_answer_holds_up_no_new_session_of_another_project() {
    let files = Arc::new(Imagined::default());
    let world = World::with_projects(SimDisk::new(), files.clone()).await;
    for directory in ["/src/music", "/src/hung"] {
        world.engine.add_project(ME, new(directory)).await.unwrap();
    }
    let hung = Hung::hold(&files).await;
    let engine = world.engine.clone();
    let waiting = tokio::spawn(async move { engine.projects(ME).await });
    let soon = std::time::Duration::from_secs(20);
    let music = tokio::time::timeout(soon, world.engine.project(ME, &name("music"))).await;
    assert!(music.expect("an answer").unwrap().problems.is_empty());
    for agent in ["music", "coder"] {
        let made = tokio::time::timeout(soon, world.engine.create(ME, session_of(agent))).await;
        made.expect(agent).unwrap();
    }
    hung.let_go();
    waiting.await.unwrap().unwrap();
    files.broken.lock().unwrap().push("/src/music".to_owned());
    let refused = world.engine.create(ME, session_of("music")).await;
    assert_eq!(refused.unwrap_err().code, Code::Ebadmsg, "as its file is now");
}
