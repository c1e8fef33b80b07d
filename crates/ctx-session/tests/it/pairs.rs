//! Every pair of state and command: "Commands and refusals" of the design.
//!
//! A new state or command does not compile here until it has its place in the table.

use ctx_session::{Command, Refusal, StateName};
use expect_test::expect;

use crate::script::scene;
use crate::vocabulary::command;
use crate::world::{Told, World};

variants!(
    COMMANDS,
    name_of_command,
    Command {
        PostMessage,
        ResumeQueued,
        DiscardQueued,
        Progress,
        FinishRun,
        CancelRun,
        Checkpoint,
        EditPrompt,
        Resume,
        Rollback,
        Compact,
        Retry,
        ApproveCompaction,
        RejectCompaction,
        FlagCompaction,
        AnswerApproval,
        Bind,
        Unbind,
        Pin,
        Change,
        Terminal,
        Import,
        UndoImport,
        Once,
        Attach,
        Detach,
        End,
        Fail,
        Recover,
    }
);
variants!(STATES, name_of_state, StateName { Idle, Running, Queued, Paused, Ended, Failed });

/// The rows of the table. `r1` is a run that is over; without a name the run that goes on, waits or is paused is
/// meant, or the newest. `c1` is attached. `k1`, `x1` and `p1` are a checkpoint, a compaction and an approval of
/// the past; `k2`, `x2`, `p2` and the tool call `t2` are of now, where there is one.
pub const ROWS: &[&str] = &[
    "post",
    "post at-limit",
    "post at-operator-limit",
    "post id=used",
    "resume",
    "resume at-limit",
    "discard",
    "progress text=hi",
    "progress tool=t9",
    "progress tool-done=t2",
    "finish done",
    "finish failed",
    "finish cancelled",
    "finish done r1",
    "cancel",
    "cancel r1",
    "cancel r99",
    "pause",
    "model-pause t2",
    "model-pause t2 r1",
    "edit-prompt k2",
    "edit-prompt k1",
    "resume k2",
    "resume k2 at-limit",
    "resume k1",
    "resume k99",
    "rollback k2",
    "rollback k1",
    "rollback k99",
    "compact",
    "retry",
    "compact at-limit",
    "compacted x9 gone=m2",
    "propose x9 gone=m2",
    "approve x2",
    "approve x2 at-limit",
    "approve x1",
    "approve x99",
    "reject x2",
    "reject x1",
    "flag x1 good",
    "flag x2 bad",
    "flag x99 good",
    "ask p9 t3",
    "spawn g9 t3",
    "progress text=hi by=g1",
    "allow p2",
    "deny p2",
    "expire p2",
    "allow p1",
    "allow p99",
    "bind i2",
    "bind i1",
    "unbind",
    "pin m1",
    "unpin m1",
    "pin m99",
    "import",
    "undo-import",
    "term z9",
    "term-end z1",
    "term-back z1",
    "term-end z9",
    "rename title",
    "set_model a:b",
    "set_all a:b",
    "once new post",
    "once used post id=once",
    "once used post id=other",
    "attach c1",
    "attach c2",
    "attach c2 takeover",
    "detach c1",
    "detach c2",
    "archive",
    "unarchive",
    "end",
    "fail",
    "recover",
    "recover storage",
];

/// Where a session can stand: every state, and `paused` in its four ways: with a run to go on with, with one whose
/// model has come to its end, at a compaction that a run proposed, and at one that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scene {
    pub name: &'static str,
    pub state: StateName,
    now: &'static str,
}

pub const SCENES: [Scene; 9] = [
    Scene { name: "idle", state: StateName::Idle, now: "" },
    Scene { name: "running", state: StateName::Running, now: "post; progress tool=t2,t3; ask p2 t2" },
    Scene { name: "queued", state: StateName::Queued, now: "post at-limit" },
    Scene { name: "paused", state: StateName::Paused, now: "post; progress tool=t2,t3; ask p2 t2; pause" },
    Scene { name: "answered", state: StateName::Paused, now: "post; pause; progress text=hi" },
    Scene { name: "compacting", state: StateName::Paused, now: "post; propose x2 gone=m1" },
    Scene { name: "manual", state: StateName::Paused, now: "compact checkpoint; propose x2 gone=m1" },
    Scene { name: "ended", state: StateName::Ended, now: "end" },
    Scene { name: "failed", state: StateName::Failed, now: "fail" },
];

/// A run that can be tried again: the one scene in which `retry` moves the state.
pub const RETRIABLE: Scene = Scene { name: "retriable", state: StateName::Idle, now: "post; finish failed" };

/// A run with an approval and a checkpoint, one with a compaction, both over, and a bound issue.
const PAST: &str =
    "post id=used; progress tool=t1; ask p1 t1; allow p1; progress tool-done=t1; pause; resume k1;
     progress text=one; finish done; post; compacted x1 gone=a1; finish done; bind i1; term z1;
     once used post id=once; progress text=two; finish done";

/// A session of this scene, with a past and an attached operator.
pub fn set(at: Scene) -> World {
    scene(&format!("{PAST}; {}; attach c1", at.now))
}

/// A session in this state, likewise.
pub fn in_state(state: StateName) -> World {
    set(SCENES.into_iter().find(|scene| scene.state == state).expect("every state has a scene"))
}

pub fn ask(world: &mut World, row: &str) -> Result<Told, Refusal> {
    world.tick();
    let command = command(world, row);
    world.ask(&command)
}

/// `-> state` for a move, `ok` for records without one, `-` for an answer that writes nothing, or the code.
fn outcome(at: Scene, row: &str) -> String {
    let (mut world, from) = (set(at), at.state);
    assert_eq!(world.state(), from, "the scene is set");
    let before = (world.session.clone(), world.records.len());
    match ask(&mut world, row) {
        Err(refusal) => {
            assert_eq!(
                (&world.session, world.records.len()),
                (&before.0, before.1),
                "a refusal writes nothing"
            );
            refusal.code.name().to_owned()
        }
        Ok(_) if world.state() != from => format!("-> {}", world.state()),
        Ok(decision) if decision.records.is_empty() => "-".to_owned(),
        Ok(_) => "ok".to_owned(),
    }
}

#[test]
fn every_pair_of_state_and_command_has_the_outcome_of_the_design() {
    let mut table = format!("{:24}", "");
    for at in SCENES {
        table += &format!("{:12}", at.name);
    }
    table = table.trim_end().to_owned() + "\n";
    for row in ROWS {
        let mut line = format!("{row:24}");
        for at in SCENES {
            line += &format!("{:12}", outcome(at, row));
        }
        table += line.trim_end();
        table += "\n";
    }
    expect![[r#"
                                idle        running     queued      paused      answered    compacting  manual      ended       failed
        post                    -> running  EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        post at-limit           -> queued   EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        post at-operator-limit  -> queued   EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        post id=used            -           -           -           -           -           -           -           -           -
        resume                  ENOENT      EBUSY       -> running  EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        resume at-limit         ENOENT      EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        discard                 ENOENT      EBUSY       -> idle     EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        progress text=hi        -           ok          -           ok          ok          -           -           -           -
        progress tool=t9        -           ok          -           ok          ok          -           -           -           -
        progress tool-done=t2   -           ok          -           ok          ENOENT      -           -           -           -
        finish done             -           -> idle     -           -           -           -           -           -           -
        finish failed           -           -> idle     -           -           -           -           -           -           -
        finish cancelled        -           -> idle     -           -> idle     -> idle     -           -           -           -
        finish done r1          -           -           -           -           -           -           -           -           -
        cancel                  -           -           -> idle     -> idle     -> idle     -           -           -           -
        cancel r1               -           -           -           -           -           -           -           -           -
        cancel r99              ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT
        pause                   EBUSY       -> paused   EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        model-pause t2          -           -> paused   -           -           -           -           -           -           -
        model-pause t2 r1       -           -           -           -           -           -           -           -           -
        edit-prompt k2          ENOENT      ENOENT      ENOENT      ok          ok          ok          ok          ENOENT      ENOENT
        edit-prompt k1          EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        resume k2               ENOENT      ENOENT      ENOENT      -> running  -> idle     -> running  -> idle     ENOENT      ENOENT
        resume k2 at-limit      ENOENT      ENOENT      ENOENT      EBUSY       -> idle     EBUSY       -> idle     ENOENT      ENOENT
        resume k1               EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        resume k99              ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT
        rollback k2             ENOENT      ENOENT      ENOENT      -> idle     -> idle     -> idle     -> idle     ENOENT      ENOENT
        rollback k1             ok          EBUSY       EBUSY       -> idle     -> idle     -> idle     -> idle     ESHUTDOWN   ESHUTDOWN
        rollback k99            ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT
        compact                 -> running  EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        retry                   ENOENT      EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        compact at-limit        EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        compacted x9 gone=m2    -           ok          -           -           -           -           -           -           -
        propose x9 gone=m2      -           -> paused   -           -           -           -           -           -           -
        approve x2              ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      -> running  -> idle     ENOENT      ENOENT
        approve x2 at-limit     ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      EBUSY       -> idle     ENOENT      ENOENT
        approve x1              EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        approve x99             ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT
        reject x2               ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      -> idle     -> idle     ENOENT      ENOENT
        reject x1               EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        flag x1 good            ok          ok          ok          ok          ok          ok          ok          ok          ok
        flag x2 bad             ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ok          ok          ENOENT      ENOENT
        flag x99 good           ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT
        ask p9 t3               -           ok          -           -           ENOENT      -           -           -           -
        spawn g9 t3             -           ok          -           -           -           -           -           -           -
        progress text=hi by=g1  -           -           -           -           -           -           -           -           -
        allow p2                ENOENT      ok          ENOENT      EBUSY       ENOENT      ENOENT      ENOENT      ENOENT      ENOENT
        deny p2                 ENOENT      ok          ENOENT      EBUSY       ENOENT      ENOENT      ENOENT      ENOENT      ENOENT
        expire p2               -           ok          -           -           -           -           -           -           -
        allow p1                EBUSY       ENOENT      EBUSY       ENOENT      EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        allow p99               ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT
        bind i2                 ok          ok          ok          ok          ok          ok          ok          ESHUTDOWN   ESHUTDOWN
        bind i1                 -           -           -           -           -           -           -           ESHUTDOWN   ESHUTDOWN
        unbind                  ok          ok          ok          ok          ok          ok          ok          ESHUTDOWN   ESHUTDOWN
        pin m1                  ok          ok          ok          ok          ok          ok          ok          ESHUTDOWN   ESHUTDOWN
        unpin m1                -           -           -           -           -           -           -           ESHUTDOWN   ESHUTDOWN
        pin m99                 ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ENOENT      ESHUTDOWN   ESHUTDOWN
        import                  EINVAL      EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        undo-import             EINVAL      EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        term z9                 ok          ok          ok          ok          ok          ok          ok          ESHUTDOWN   ESHUTDOWN
        term-end z1             ok          ok          ok          ok          ok          ok          ok          ok          ok
        term-back z1            ok          ok          ok          ok          ok          ok          ok          ok          ok
        term-end z9             -           -           -           -           -           -           -           -           -
        rename title            ok          ok          ok          ok          ok          ok          ok          ok          ok
        set_model a:b           ok          ok          ok          ok          ok          ok          ok          ESHUTDOWN   ESHUTDOWN
        set_all a:b             ok          EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        once new post           -> running  EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        once used post id=once  -           -           -           -           -           -           -           -           -
        once used post id=other EINVAL      EINVAL      EINVAL      EINVAL      EINVAL      EINVAL      EINVAL      EINVAL      EINVAL
        attach c1               -           -           -           -           -           -           -           -           -
        attach c2               EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY
        attach c2 takeover      ok          ok          ok          ok          ok          ok          ok          ok          ok
        detach c1               ok          ok          ok          ok          ok          ok          ok          ok          ok
        detach c2               -           -           -           -           -           -           -           -           -
        archive                 ok          EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       EBUSY       ok          ok
        unarchive               -           -           -           -           -           -           -           -           -
        end                     -> ended    -> ended    -> ended    -> ended    -> ended    -> ended    -> ended    ESHUTDOWN   -> ended
        fail                    -> failed   -> failed   -> failed   -> failed   -> failed   -> failed   -> failed   -           -
        recover                 ok          -> idle     ok          ok          ok          ok          ok          ok          ok
        recover storage         ok          -> idle     ok          ok          ok          ok          ok          ok          ok
    "#]]
    .assert_eq(&table);
}

#[test]
fn asking_before_a_post_gives_the_answer_of_the_post() {
    for at in SCENES {
        let state = at.name;
        for (row, text, client_id) in
            [("post", "hello", None), ("post id=used", "hello", Some("used")), ("post empty", "", None)]
        {
            let mut world = set(at);
            let before = world.session.may_post(text, client_id, &world.limits);
            match (before, ask(&mut world, row)) {
                (Ok(Some(answer)), Ok(told)) => assert_eq!(answer, told.answer, "{state}: {row}"),
                (Ok(None), Ok(told)) => assert!(!told.records.is_empty(), "{state}: {row}"),
                (before, told) => assert_eq!(before.unwrap_err(), told.unwrap_err(), "{state}: {row}"),
            }
        }
    }
}

#[test]
fn every_command_and_every_state_is_in_the_table() {
    let world = in_state(StateName::Idle);
    let asked: Vec<_> = ROWS.iter().map(|row| name_of_command(&command(&world, row))).collect();
    for name in COMMANDS {
        assert!(asked.contains(name), "{name} has no row");
    }
    let walked: Vec<_> = StateName::ALL.iter().map(name_of_state).collect();
    assert_eq!(walked, STATES);
    for state in StateName::ALL {
        assert_eq!(in_state(state).state(), state);
    }
}
