//! The seed's section "Session-issue binding", as far as it is the session's: a pointer, not a state. Issues and
//! todos live in their project's log.

use ctx_session::StateName;
use expect_test::expect;

use crate::log::replay;
use crate::pairs::{SCENES, ask, set};
use crate::script::{check, scene};
use crate::world::World;

fn bound(world: &World) -> Option<String> {
    world.session.bound_issue.map(|issue| world.name_of(issue.0))
}

#[test]
fn a_session_is_bound_to_one_issue_at_most() {
    check(
        "bind i1; bind i1; bind i2; unbind; unbind; bind i1",
        expect![[r#"
        bind i1: idle | bound | - | done
        bind i1: idle | - | - | done
        bind i2: idle | bound | - | done
        unbind: idle | unbound | - | done
        unbind: idle | - | - | done
        bind i1: idle | bound | - | done
    "#]],
    );
    assert_eq!(bound(&scene("bind i1; bind i2")).as_deref(), Some("i2"));
    assert_eq!(bound(&scene("bind i1; unbind")), None);
}

#[test]
fn binding_is_no_transition_and_touches_nothing_else() {
    for at in SCENES {
        if at.state == StateName::Ended || at.state == StateName::Failed {
            continue;
        }
        let mut world = set(at);
        let before = world.session.clone();
        for line in ["bind i7", "unbind", "bind i1"] {
            let told = ask(&mut world, line).unwrap();
            assert_eq!(
                (told.records.len(), told.effects.len(), world.state()),
                (1, 0, at.state),
                "{}: {line}",
                at.name
            );
        }
        let mut after = world.session;
        (after.next_seq, after.overview.updated_at) = (before.next_seq, before.updated_at);
        assert_eq!(after, before, "{}", at.name);
    }
}

#[test]
fn a_bound_issue_outlives_runs_rollbacks_and_restarts_and_the_end_leaves_it_alone() {
    let world = scene("bind i1; post; pause; rollback k1; post; finish done; compact; finish done; end");
    assert_eq!(bound(&world).as_deref(), Some("i1"), "ending a session resolves no issue");
    assert_eq!(replay(&world.records).bound_issue, world.session.bound_issue);
}
