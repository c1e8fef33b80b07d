//! Forks: the source's records as they are, and one record that makes them history.

use ctx_session::record::{ForkedFrom, SessionBody, SessionMeta};
use ctx_session::rules::Fork;
use ctx_session::{Body, Code, Name, Record, RunState, Scope, Session, SessionId, StateName, Ulid};
use expect_test::expect;

use crate::pairs::{SCENES, set};
use crate::script::{play, scene};
use crate::world::{OWNER, World};

fn wish() -> Fork {
    Fork {
        id: SessionId(Ulid(77)),
        name: Name::of_session("other").ok(),
        scope: Scope::Private,
        space: None,
        owner: OWNER,
        client: Some("cli".to_owned()),
        requested: None,
        app: "ctx 0.1.0".to_owned(),
    }
}

/// The world as it goes on in a fork of it.
fn forked(world: &World) -> World {
    let mut fork = scene("");
    let source: &SessionMeta = &world.session.meta;
    let last = world.records.last().unwrap().seq;
    let (meta, end) = wish().records(source, last);
    let mut records = world.records.clone();
    records[0] = Record { seq: 0, time: world.now, body: Body::Session(SessionBody::Meta(Box::new(meta))) };
    records.push(Record { seq: last + 1, time: world.now, body: end });
    fork.records = records;
    fork.restart();
    fork.now = world.now;
    fork
}

fn is_rested(session: &Session) {
    assert_eq!(session.state.name(), StateName::Idle);
    assert!(session.current_run().is_none() && session.open_tools().next().is_none());
    assert!(session.attached.is_none() && !session.archived && session.ended_at.is_none());
    assert!(session.runs().all(|run| run.state.is_over()));
    assert!(session.paused_at().is_none() && session.pending_calls().is_empty());
    assert!(session.control.open_approvals().next().is_none() && session.bound_issue.is_none());
}

#[test]
fn a_fork_of_any_session_is_idle_and_can_be_posted_to() {
    for at in SCENES {
        let source = set(at);
        assert!(source.session.bound_issue.is_some());
        let mut fork = forked(&source);
        is_rested(&fork.session);
        assert!(!play(&mut fork, "post").contains("refused"), "{}", at.name);
    }
}

#[test]
fn an_open_run_is_cancelled_in_the_fork_alone_and_its_tools_are_settled() {
    let source = scene("post; progress tool=t1");
    let fork = forked(&source);
    let run = fork.session.runs().next().unwrap();
    assert_eq!((&run.state, run.end_seq), (&RunState::Cancelled, Some(fork.session.next_seq - 1)));
    assert_eq!(source.session.state.name(), StateName::Running);
    assert_eq!(source.session.open_tools().count(), 1);
    let mut late = forked(&source);
    expect![[r#"
        finish done: idle | - | - | r1 cancelled
        cancel: idle | - | - | r1 cancelled
        recover: idle | - | - | ignored
    "#]]
    .assert_eq(&play(&mut late, "finish done; cancel; recover"));
}

#[test]
fn a_fork_of_a_paused_session_has_its_checkpoints_to_go_back_to_and_nothing_that_waits() {
    let source = scene(
        "bind i1; post; progress tool=t1; ask p1 t1; pause; progress text=hi calls; progress tool=t2; progress tool-done=t1",
    );
    let mut fork = forked(&source);
    is_rested(&fork.session);
    assert_eq!(
        (source.session.pending_calls().len(), source.session.control.open_approvals().count()),
        (1, 1)
    );
    expect![[r#"
        resume k1: refused EBUSY the session is no longer paused at this checkpoint
        edit-prompt k1: refused EBUSY the session is no longer paused at this checkpoint
        allow p1: refused EBUSY this approval was already answered: interrupted
        rollback k1: idle | rolled_back | - | k1
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r2, broadcast count | m2 r2 running
    "#]].assert_eq(&play(&mut fork, "resume k1; edit-prompt k1; allow p1; rollback k1; post"));
}

#[test]
fn a_fork_of_a_session_that_waits_for_a_compaction_does_not_wait_for_it() {
    let source = scene("post; finish done; post; propose x1 gone=m1");
    let mut fork = forked(&source);
    is_rested(&fork.session);
    let rows = [&source, &fork].map(|world| {
        let row = &world.session.control.compactions[0];
        (row.state.as_str(), row.fallback_reason())
    });
    assert_eq!(
        forked(&scene("post; pin m1; finish done")).session.ledger.pinned().count(),
        1,
        "it keeps pins"
    );
    assert_eq!(rows, [("proposed", None), ("rejected", Some("session_forked"))]);
    expect![[r#"
        approve x1: refused EBUSY this compaction does not wait for review
        reject x1: refused EBUSY this compaction does not wait for review
        flag x1 bad: idle | compaction_flagged | - | done
        post: idle -> running | user, run_created, context, state_changed by message_posted | start r3, broadcast count | m3 r3 running
        finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r3 done
    "#]].assert_eq(&play(&mut fork, "approve x1; reject x1; flag x1 bad; post; finish done"));
    assert_eq!(fork.counting().len(), 3, "nothing was superseded");
}

#[test]
fn the_client_ids_of_the_source_begin_new_runs() {
    let source = scene("post id=a; finish done");
    let mut fork = forked(&source);
    assert!(fork.session.run_of_client_id("a").is_none());
    let told = play(&mut fork, "post id=a");
    assert!(told.contains("idle -> running") && !told.contains("repeated"), "{told}");
    assert!(play(&mut fork, "post id=a").contains("repeated"), "its own are remembered");
}

#[test]
fn a_fork_says_the_same_with_the_same_ids_and_keeps_title_model_and_place() {
    let source = scene("rename kept; post model=a:b cwd=/src; progress text=hi; finish done");
    let fork = forked(&source);
    assert_eq!(fork.conversation(), source.conversation());
    let (a, b) = (&fork.session, &source.session);
    assert_eq!((&a.title, &a.model_override, &a.cwd), (&b.title, &b.model_override, &b.cwd));
}

#[test]
fn a_fork_is_its_own_and_says_where_it_came_from() {
    let source = scene("post; finish done; end");
    let fork = forked(&source).session;
    let last = source.records.last().unwrap().seq;
    assert_eq!(fork.meta.forked_from, Some(ForkedFrom { session_id: source.session.id(), seq: last }));
    assert_eq!((fork.id(), fork.meta.name.as_str(), fork.meta.owner), (SessionId(Ulid(77)), "other", OWNER));
    let came_from = &source.session.meta;
    assert_eq!((&fork.meta.agent, &fork.meta.project), (&came_from.agent, &came_from.project));
    let unnamed = Fork { name: None, ..wish() }.records(&source.session.meta, 1).0;
    assert_eq!(unnamed.name.to_string(), unnamed.session_id.to_string());
}

#[test]
fn a_fork_of_a_fork_names_the_one_it_came_from() {
    let first = forked(&scene("post; finish done"));
    let (second, _) = Fork { id: SessionId(Ulid(78)), ..wish() }.records(&first.session.meta, 9);
    assert_eq!(second.forked_from, Some(ForkedFrom { session_id: first.session.id(), seq: 9 }));
}

#[test]
fn only_what_is_kept_can_be_forked_and_a_fork_is_kept() {
    let kept = scene("").session.overview.meta;
    let temp = SessionMeta { scope: Scope::Temp, ..kept.clone() };
    let team = Name::new("team").ok();
    let refused = [
        (&temp, wish()),
        (&kept, Fork { scope: Scope::Temp, ..wish() }),
        (&kept, Fork { scope: Scope::Shared, ..wish() }),
        (&kept, Fork { space: team.clone(), ..wish() }),
    ];
    for (source, wish) in refused {
        assert_eq!(wish.check(source).unwrap_err().code, Code::Einval, "{wish:?}");
    }
    assert!(wish().check(&kept).is_ok());
    assert!(Fork { scope: Scope::Shared, space: team, ..wish() }.check(&kept).is_ok());
}
