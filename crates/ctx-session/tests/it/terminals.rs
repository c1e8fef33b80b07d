//! Terminals of a session: how many, which of them must be closed, and why.

use ctx_session::record::TerminalEnd;
use ctx_session::{Code, TerminalId};

use crate::pairs::ask;
use crate::script::scene;
use crate::world::{World, small_id};

fn id(name: &str) -> TerminalId {
    TerminalId(small_id(name))
}

/// Why a terminal may not stay open.
fn why(world: &World, name: &str) -> Option<TerminalEnd> {
    world.session.terminals.get(id(name)).and_then(|open| world.session.must_close(open))
}

#[test]
fn the_ninth_is_refused_until_one_is_closed() {
    let mut world = scene("term z1; term z2; term z3; term z4; term z5; term z6; term z7; term z8");
    let refusal = ask(&mut world, "term z9").unwrap_err();
    assert_eq!(refusal.code, Code::Ebusy);
    ask(&mut world, "term-end z3").unwrap();
    ask(&mut world, "term z9").unwrap();
    assert!(ask(&mut world, "term z3").is_err());
}

#[test]
fn those_of_a_run_end_when_it_fails_and_the_operators_with_the_session() {
    let run = "term z1; post; term z2 run; progress tool=t1; spawn g1 t1; works g1; term z3 g1";
    let mut world = scene(run);
    assert_eq!(world.session.strays().count(), 0);
    ask(&mut world, "exit g1 answered").unwrap();
    assert_eq!(why(&world, "z3"), Some(TerminalEnd::SubagentExited));
    assert_eq!((why(&world, "z2"), why(&world, "z1")), (None, None));
    // A run that is done leaves its terminals to the next one.
    let done = scene("term z1; post; term z2 run; progress text=hi; finish done");
    assert_eq!(done.session.strays().count(), 0);
    for end in ["finish failed", "recover", "cancel; finish cancelled"] {
        let ended = scene(&format!("{run}; {end}"));
        assert_eq!(why(&ended, "z2"), Some(TerminalEnd::RunEnded), "{end}");
        assert_eq!(why(&ended, "z3"), Some(TerminalEnd::SubagentExited), "{end}");
        assert_eq!(why(&ended, "z1"), None, "{end}");
    }
    let mut over = scene(&format!("{run}; end"));
    assert_eq!(over.session.strays().count(), 3);
    let told = ask(&mut over, "term-end z1 closed").unwrap();
    assert!(format!("{:?}", told.records).contains("SessionEnded"), "{:?}", told.records);
    assert_eq!(why(&scene(&format!("{run}; fail")), "z1"), Some(TerminalEnd::SessionFailed));
}

#[test]
fn a_pause_names_the_terminal_of_a_subagent() {
    let world =
        scene("post; progress tool=t1,t2; spawn g1 t1; works g1; spawn g2 t2; works g2; term z3 g1; pause");
    let made = &world.session.paused_at().unwrap().created.active_subagents;
    let ptys: Vec<Option<String>> = made.iter().map(|one| one.pty_id.clone()).collect();
    assert_eq!(ptys, [Some(id("z3").to_string()), None]);
}
