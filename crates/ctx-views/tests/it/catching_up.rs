//! What a list shows of a session while its log is still being read: what it showed before, or nothing, and then how the
//! session stands. Never a state from the middle of the log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ctx_session::StateName;
use ctx_views::db::{IndexDb, ListQuery, Viewer};

use crate::indexed::{Grown, LONG, open, put, started, talk};
use crate::world::{Root, Step};

/// Enough exchanges for a log that is read in many stretches.
const EXCHANGES: u64 = 40;

/// The state, the number of runs and the title that a list shows of the one session there is.
type Shown = (StateName, u64, Option<String>);

fn shown(db: &IndexDb) -> Option<Shown> {
    let items = db.ask(|q| q.list(&ListQuery::newest(Viewer::All, 10))).unwrap().items;
    assert!(items.len() <= 1);
    items.into_iter().next().map(|item| (item.row.state, item.row.runs, item.row.title))
}

fn live_long(session: &mut Grown) {
    let long = "needle ".repeat(24 * 1024);
    for n in 0..EXCHANGES {
        talk(&long, "yes").iter().for_each(|step| session.step(step, None));
        session.step(&Step::Rename { title: format!("title {n}") }, None);
    }
    session.step(&Step::Rename { title: "last".to_owned() }, None);
    session.step(&Step::End, None);
}

/// Everything different that is shown until the lists are complete, in its order.
fn watch(db: &IndexDb) -> Vec<Option<Shown>> {
    let done = AtomicBool::new(false);
    let mut seen = vec![shown(db)];
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                seen.push(shown(db));
                seen.dedup();
            }
            seen.push(shown(db));
            seen.dedup();
        });
        db.catch_up(|_| {});
        assert!(db.wait_lists(LONG), "{:?}", db.last_error());
        done.store(true, Ordering::SeqCst);
        watcher.join().unwrap();
    });
    seen
}

#[test]
fn a_session_is_not_listed_before_its_log_was_read_to_the_end() {
    let root = Root::new();
    let mut session = put(&root, 1, "coder", "default", &[]);
    live_long(&mut session);
    let last = Some((StateName::Ended, EXCHANGES, Some("last".to_owned())));
    assert_eq!(watch(&open(&root)), [None, last]);
}

#[test]
fn a_session_that_was_listed_is_shown_as_it_was_until_its_log_was_read_to_the_end() {
    let root = Root::new();
    let mut session = put(&root, 1, "coder", "default", &talk("hello", "yes"));
    let before = shown(&started(&root));
    assert_eq!(before, Some((StateName::Idle, 1, None)));
    live_long(&mut session);
    let last = Some((StateName::Ended, EXCHANGES + 1, Some("last".to_owned())));
    assert_eq!(watch(&open(&root)), [before, last]);
}

#[test]
fn a_reading_that_was_cut_short_goes_on_where_it_was() {
    let root = Root::new();
    let mut session = put(&root, 1, "coder", "default", &talk("hello", "yes"));
    let before = shown(&started(&root));
    live_long(&mut session);
    let last = Some((StateName::Ended, EXCHANGES + 1, Some("last".to_owned())));
    // Closed in the middle, more often than not: what is written by then is not shown, and not counted twice.
    let mut seen = Vec::new();
    for _ in 0..3 {
        let db = open(&root);
        db.catch_up(|_| {});
        // On a busy machine an earlier round may have read it all: then there is nothing to read any more.
        while db.progress().lists.logs_total == 0 && !db.wait_lists(Duration::ZERO) {
            std::thread::yield_now();
        }
        drop(db);
        seen.push(shown(&open(&root)));
    }
    assert!(seen.iter().all(|shown| *shown == before || *shown == last), "{seen:?}");
    assert_eq!(shown(&started(&root)), last);
}
