//! What a session's runs changed, taken back and brought back.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says why and stops")]

use std::fs;

use super::support::{ANN, World};
use ctx_cage::rights::Rights;
use ctx_session::{IdSource, Timestamp, Ulid};
use ctx_snapshot::runs::{Place, RunFiles, Touch};
use ctx_snapshot::session::{Changes, Ready, SessionFiles, last_run};
use ctx_snapshot::workspace::now;
use ctx_snapshot::{Limits, Reason, SnapshotError};

struct Session {
    world: World,
    runs: RunFiles,
    ids: IdSource,
    id: Ulid,
}

impl Session {
    fn new() -> Session {
        let world = World::new();
        let runs = RunFiles::new(world.snapshots());
        let mut ids = IdSource::new(3);
        let id = ids.next(Timestamp::from_millis(1));
        Session { world, runs, ids, id }
    }

    fn begin(&mut self) {
        let place = Place { path: self.world.work.clone(), uid: ANN, rights: Rights::of(ANN).unwrap() };
        self.runs.begin(self.id, self.ids.next(Timestamp::from_millis(2)), place);
    }

    fn write(&self, path: &str, text: &str) {
        self.runs.before(self.id, Touch::File(path.into())).unwrap();
        self.by_hand(path, text);
    }

    fn by_hand(&self, path: &str, text: &str) {
        self.world.write(path, text);
        self.world.give_to_ann();
    }

    /// A checkpoint, as the engine names it before the files are saved.
    fn checkpoint(&mut self) -> Ulid {
        let id = self.ids.next(now());
        self.by_hand("clock", &id.to_string());
        fs::remove_file(self.world.work.join("clock")).unwrap();
        self.runs.pause(self.id);
        self.runs.resumed(self.id);
        id
    }

    /// The daemon dies and starts.
    fn crash(&mut self) {
        self.runs = RunFiles::new(self.world.snapshots());
        self.runs.snapshots().end_cut_off(&self.runs);
    }

    fn files(&self) -> SessionFiles {
        self.runs.snapshots().of_session(self.id).unwrap().unwrap()
    }

    fn take_back(&self, changes: &Changes) -> Ready {
        self.files().take_back(changes, false, |_| Ok::<(), SnapshotError>(())).unwrap()
    }

    fn undo(&self) -> Ready {
        let files = self.files();
        self.take_back(&files.changes(last_run(&files.spans(&self.runs).unwrap())).unwrap())
    }

    fn roll_back(&self, checkpoint: Ulid) -> Ready {
        let files = self.files();
        self.take_back(&files.since(&files.spans(&self.runs).unwrap(), checkpoint).unwrap())
    }

    fn changed(&self) -> Vec<String> {
        let files = self.files();
        let changes = files.changes(&files.spans(&self.runs).unwrap()).unwrap();
        let changed = changes.touched.iter().filter(|(_, touched)| touched.change().is_some());
        changed.map(|(path, _)| String::from_utf8_lossy(path).into_owned()).collect()
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.world.work.join(path)).ok()
    }
}

#[test]
fn what_is_edited_after_a_crash_is_not_the_run_s() {
    let mut session = Session::new();
    session.by_hand("kept", "1");
    session.begin();
    session.write("made", "by the run");
    session.crash();
    session.by_hand("days/work", "by hand");
    session.by_hand("kept", "by hand");
    assert_eq!(session.changed(), ["made"]);
    session.undo();
    assert_eq!(session.read("made"), None);
    assert_eq!(session.read("days/work").as_deref(), Some("by hand"));
    assert_eq!(session.read("kept").as_deref(), Some("by hand"));
    let infos = session.world.open().infos().unwrap();
    assert_eq!(infos.iter().filter(|info| info.reason == Reason::AfterRun).count(), 1);
}

#[test]
fn a_rollback_to_a_later_checkpoint_brings_files_forward() {
    let mut session = Session::new();
    session.by_hand("both", "0");
    session.begin();
    session.write("before", "1");
    let one = session.checkpoint();
    session.write("f1", "one");
    session.write("both", "1");
    let two = session.checkpoint();
    session.write("f2", "two");
    session.write("both", "2");
    session.runs.after(session.id).unwrap();
    session.roll_back(one);
    let files =
        |session: &Session| ["before", "f1", "f2", "both"].map(|path| session.read(path).unwrap_or_default());
    assert_eq!(files(&session), ["1", "", "", "0"]);
    session.roll_back(two);
    assert_eq!(files(&session), ["1", "one", "", "1"]);
    assert_eq!(session.changed(), ["before", "both", "f1"]);
    // What was made since the first rollback goes, and what was edited by hand stays.
    session.roll_back(one);
    session.begin();
    session.write("f3", "three");
    session.runs.after(session.id).unwrap();
    session.by_hand("both", "by hand");
    let back = session.roll_back(two).report;
    assert_eq!(files(&session), ["1", "one", "", "by hand"]);
    assert_eq!(session.read("f3"), None);
    assert_eq!(back.kept.len(), 1, "{back:?}");
}

#[test]
fn after_the_undo_of_an_undo_the_change_is_the_session_s_again() {
    let mut session = Session::new();
    session.by_hand("n", "one");
    session.begin();
    session.write("n", "two");
    session.runs.after(session.id).unwrap();
    // That of the runs: ids of two sources have no order within a millisecond.
    let workspace = session.files().workspace;
    let undone = session.undo();
    assert_eq!((session.read("n").as_deref(), session.changed()), (Some("one"), vec![]));
    let again = workspace.restore(&workspace.info(undone.undo).unwrap()).unwrap();
    assert_eq!((session.read("n").as_deref(), session.changed()), (Some("two"), vec!["n".to_owned()]));
    workspace.restore(&workspace.info(again.undo.id).unwrap()).unwrap();
    assert_eq!((session.read("n").as_deref(), session.changed()), (Some("one"), vec![]));
}

#[test]
fn a_run_whose_files_cannot_be_saved_says_so_once() {
    let mut session = Session::new();
    session.by_hand("large", "more than may be saved");
    let limits = Limits { unasked_bytes_max: 4, ..Limits::default() };
    session.runs = RunFiles::new(session.world.limited(limits));
    session.begin();
    let refused = session.runs.before(session.id, Touch::Anything).unwrap_err();
    assert!(refused.to_string().contains("ignore some in .gitignore"), "{refused}");
    session.runs.before(session.id, Touch::Anything).unwrap();
}

#[test]
fn what_is_edited_after_a_run_whose_end_could_not_be_saved_is_not_the_run_s() {
    let mut session = Session::new();
    let limits = Limits { unasked_bytes_max: 100, ..Limits::default() };
    session.runs = RunFiles::new(session.world.limited(limits));
    session.begin();
    session.write("first", "of the run before");
    session.runs.after(session.id).unwrap();
    session.begin();
    session.write("made", "by the run");
    session.write("large", &"more than may be saved ".repeat(10));
    let refused = session.runs.after(session.id).unwrap_err();
    assert!(refused.to_string().contains("ignore some in .gitignore"), "{refused}");
    fs::remove_file(session.world.work.join("large")).unwrap();
    session.by_hand("mine", "by hand");
    assert_eq!(session.changed(), ["first"], "the run before is known, and no other");
    session.begin();
    session.write("third", "of the run after");
    session.runs.after(session.id).unwrap();
    assert_eq!(session.changed(), ["first", "third"]);
    session.undo();
    session.undo();
    assert_eq!(session.read("mine").as_deref(), Some("by hand"));
    assert_eq!(session.read("made").as_deref(), Some("by the run"));
    assert_eq!((session.read("first"), session.read("third")), (None, None));
}

#[test]
fn a_restore_of_what_an_undo_saved_takes_only_that_undo_back() {
    let mut session = Session::new();
    session.by_hand("f1", "0");
    session.by_hand("f2", "0");
    session.begin();
    let one = session.checkpoint();
    session.write("f1", "1");
    session.write("f2", "1");
    let two = session.checkpoint();
    session.runs.after(session.id).unwrap();
    session.by_hand("f2", "hand");
    session.roll_back(one);
    let undone = session.undo().undo;
    let files = |session: &Session| ["f1", "f2"].map(|path| session.read(path).unwrap());
    assert_eq!(
        (files(&session), session.changed()),
        (["0", "hand"].map(str::to_owned), vec!["f2".to_owned()])
    );
    let workspace = session.files().workspace;
    let restored = workspace.restore(&workspace.info(undone).unwrap()).unwrap();
    assert_eq!(session.changed(), ["f2"], "the rollback has taken f1 back, and no undo");
    // The same backwards.
    workspace.restore(&restored.undo).unwrap();
    assert_eq!(session.changed(), ["f2"]);
    session.roll_back(two);
    assert_eq!(files(&session), ["1", "hand"]);
}
