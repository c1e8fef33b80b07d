//! Putting sessions away, bringing them back, and what may be deleted.

use ctx_session::rules::may_purge;
use ctx_session::{Code, StateName};
use expect_test::expect;

use crate::script::{check, scene};

#[test]
fn what_rests_can_be_put_away_and_brought_back_as_often_as_one_likes() {
    check(
        "archive; archive; unarchive; unarchive; end; archive; unarchive",
        expect![[r#"
            archive: idle | archived | - | done
            archive: idle | - | - | done
            unarchive: idle | archived | - | done
            unarchive: idle | - | - | done
            end: idle -> ended | state_changed by session_ended | close clients, free name | done
            archive: ended | archived | - | done
            unarchive: ended | archived | - | done
        "#]],
    );
}

#[test]
fn what_works_or_waits_is_not_put_away() {
    check(
        "post; archive; finish done; post at-limit; archive; unarchive; discard; post; pause; archive",
        expect![[r#"
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            archive: refused EBUSY the session is running; cancel the run or wait, then archive it
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m2 r2 pending
            archive: refused EBUSY a message is queued; resume or discard it, then archive it
            unarchive: queued | - | - | done
            discard: queued -> idle | queued_discarded, cancelled, state_changed by queued_discarded | - | r2 cancelled
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r3, broadcast count | m3 r3 running
            pause: running -> paused | checkpoint_created, state_changed by checkpoint | broadcast count | k1
            archive: refused EBUSY the session is paused; resume it or roll it back, then archive it
        "#]],
    );
}

#[test]
fn a_message_brings_an_archived_session_back() {
    check(
        "archive; post",
        expect![[r#"
            archive: idle | archived | - | done
            post: idle -> running | archived, user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        "#]],
    );
    assert!(!scene("archive; post at-limit").session.archived, "a queued one too");
    assert!(!scene("archive; compact").session.archived, "a compaction is work too");
    assert!(
        scene("post id=a; finish done; archive; post id=a").session.archived,
        "a retry is no new message"
    );
}

#[test]
fn an_archived_session_is_as_usable_as_before() {
    check(
        "archive; rename kept; set_model a:b; attach c1; detach c1; end",
        expect![[r#"
            archive: idle | archived | - | done
            rename kept: idle | session_renamed | - | done
            set_model a:b: idle | model_set | - | done
            attach c1: idle | attached | - | done
            detach c1: idle | detached | - | done
            end: idle -> ended | state_changed by session_ended | close clients, free name | done
        "#]],
    );
    assert!(scene("archive; end").session.archived, "what was put away stays away when it ends");
}

#[test]
fn only_what_is_over_may_be_purged() {
    for state in [StateName::Ended, StateName::Failed] {
        assert!(may_purge(state).is_ok());
    }
    for state in [StateName::Idle, StateName::Running, StateName::Queued, StateName::Paused] {
        assert_eq!(may_purge(state).unwrap_err().code, Code::Ebusy);
    }
}
