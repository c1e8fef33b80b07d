//! Every pair of state and command: "Commands and refusals" of the design, as far as the commands exist.
//!
//! A new state or command does not compile here until it has its place in the table.

use ctx_session::{Command, Refusal, StateName};
use expect_test::expect;

use crate::script::{command, scene};
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
        Rename,
        SetModel,
        Attach,
        Detach,
        Archive,
        End,
        Fail,
        Recover,
    }
);
variants!(STATES, name_of_state, StateName { Idle, Running, Queued, Ended, Failed });

/// The rows of the table. `r1` is a run that is over; without a name the run that goes on or waits is meant, or
/// `r1` where none does. `c1` is attached.
pub const ROWS: &[&str] = &[
    "post",
    "post at-limit",
    "post at-operator-limit",
    "post id=used",
    "resume",
    "resume at-limit",
    "discard",
    "progress text=hi",
    "finish done",
    "finish failed",
    "finish cancelled",
    "finish done r1",
    "cancel",
    "cancel r1",
    "cancel r99",
    "rename title",
    "set_model a:b",
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

/// A session in this state, with a run that is over and an attached operator.
pub fn in_state(state: StateName) -> World {
    let past = "post id=used; finish done";
    scene(&match state {
        StateName::Idle => format!("{past}; attach c1"),
        StateName::Running => format!("{past}; post; attach c1"),
        StateName::Queued => format!("{past}; post at-limit; attach c1"),
        StateName::Ended => format!("{past}; end; attach c1"),
        StateName::Failed => format!("{past}; fail; attach c1"),
    })
}

pub fn ask(world: &mut World, row: &str) -> Result<Told, Refusal> {
    world.tick();
    let command = command(world, row);
    world.ask(&command)
}

/// `-> state` for a move, `ok` for records without one, `-` for an answer that writes nothing, or the code.
fn outcome(from: StateName, row: &str) -> String {
    let mut world = in_state(from);
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
    for state in StateName::ALL {
        table += &format!("{:12}", state.as_str());
    }
    table = table.trim_end().to_owned() + "\n";
    for row in ROWS {
        let mut line = format!("{row:24}");
        for state in StateName::ALL {
            line += &format!("{:12}", outcome(state, row));
        }
        table += line.trim_end();
        table += "\n";
    }
    expect![[r#"
                                idle        running     queued      ended       failed
        post                    -> running  EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        post at-limit           -> queued   EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        post at-operator-limit  -> queued   EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        post id=used            -           -           -           -           -
        resume                  ENOENT      EBUSY       -> running  ESHUTDOWN   ESHUTDOWN
        resume at-limit         ENOENT      EBUSY       EBUSY       ESHUTDOWN   ESHUTDOWN
        discard                 ENOENT      EBUSY       -> idle     ESHUTDOWN   ESHUTDOWN
        progress text=hi        -           ok          -           -           -
        finish done             -           -> idle     -           -           -
        finish failed           -           -> idle     -           -           -
        finish cancelled        -           -> idle     -           -           -
        finish done r1          -           -           -           -           -
        cancel                  -           -           -> idle     -           -
        cancel r1               -           -           -           -           -
        cancel r99              ENOENT      ENOENT      ENOENT      ENOENT      ENOENT
        rename title            ok          ok          ok          ok          ok
        set_model a:b           ok          ok          ok          ESHUTDOWN   ESHUTDOWN
        attach c1               -           -           -           -           -
        attach c2               EBUSY       EBUSY       EBUSY       EBUSY       EBUSY
        attach c2 takeover      ok          ok          ok          ok          ok
        detach c1               ok          ok          ok          ok          ok
        detach c2               -           -           -           -           -
        archive                 ok          EBUSY       EBUSY       ok          ok
        unarchive               -           -           -           -           -
        end                     -> ended    -> ended    -> ended    ESHUTDOWN   -> ended
        fail                    -> failed   -> failed   -> failed   -           -
        recover                 ok          -> idle     ok          ok          ok
        recover storage         ok          -> idle     ok          ok          ok
    "#]]
    .assert_eq(&table);
}

#[test]
fn asking_before_a_post_gives_the_answer_of_the_post() {
    for state in StateName::ALL {
        for (row, text, client_id) in
            [("post", "hello", None), ("post id=used", "hello", Some("used")), ("post empty", "", None)]
        {
            let mut world = in_state(state);
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
}
