//! Title, model, working directory, and who is attached.

use expect_test::expect;

use crate::script::{check, play, scene};
use crate::world::World;

#[test]
fn a_session_can_be_renamed_in_every_state_and_the_latest_title_wins() {
    check(
        "rename one; post; rename two; finish done; post at-limit; rename three; end; rename four",
        expect![[r#"
            rename one: idle | session_renamed | - | done
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            rename two: running | session_renamed | - | done
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            post at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m2 r2 pending
            rename three: queued | session_renamed | - | done
            end: queued -> ended | cancelled, state_changed by session_ended | close clients, free name | done
            rename four: ended | session_renamed | - | done
        "#]],
    );
    assert_eq!(scene("rename one; end; rename  two words ").session.title.as_deref(), Some("two words"));
}

#[test]
fn a_title_is_one_line_of_bounded_length() {
    let mut world = scene("");
    let long = format!("rename {}\nrename \u{7}bell\nrename ", "x".repeat(1_025));
    let told = play(&mut world, &long).replace(&"x".repeat(1_025), "xxx…");
    let longest = "y".repeat(1_024);
    assert_eq!(scene(&format!("rename {longest}")).session.title, Some(longest));
    expect![[r#"
        rename xxx…: refused EINVAL a title has at most 1024 bytes
        rename bell: refused EINVAL a title is one line without control characters
        rename: refused EINVAL a title must not be empty
    "#]]
    .assert_eq(&told);
}

#[test]
fn the_model_is_sticky_until_changed_or_cleared() {
    check(
        "set_model a:b; set_model a:b; post model=c:d; finish done; post model=c:d; finish done; post model=none",
        expect![[r#"
            set_model a:b: idle | model_set | - | done
            set_model a:b: idle | - | - | done
            post model=c:d: idle -> running | model_set, user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            post model=c:d: idle -> running | user, run_created, context, state_changed by message_posted | start r2, broadcast count | m2 r2 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r2 done
            post model=none: idle -> running | model_set, user, run_created, context, state_changed by message_posted | start r3, broadcast count | m3 r3 running
        "#]],
    );
    assert_eq!(scene("post model=c:d; finish done; post").session.model_override.as_deref(), Some("c:d"));
    assert_eq!(scene("set_model c:d; set_model none").session.model_override, None);
}

#[test]
fn a_message_may_say_where_the_session_works_and_says_it_once() {
    check(
        "post cwd=/work; finish done; post cwd=/src; finish done; post cwd=/src",
        expect![[r#"
            post cwd=/work: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            post cwd=/src: idle -> running | cwd_changed, user, run_created, context, state_changed by message_posted | start r2, broadcast count | m2 r2 running
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r2 done
            post cwd=/src: idle -> running | user, run_created, context, state_changed by message_posted | start r3, broadcast count | m3 r3 running
        "#]],
    );
    assert_eq!(scene("post cwd=/src; finish done; post").session.cwd, "/src");
}

#[test]
fn a_message_that_is_refused_changes_no_setting() {
    let mut world = scene("post");
    play(&mut world, "post model=x:y cwd=/else");
    assert_eq!((world.session.model_override.as_deref(), world.session.cwd.as_str()), (None, "/work"));
}

#[test]
fn a_bad_message_is_refused_with_the_field_to_blame() {
    check(
        "post empty; post id=",
        expect![[r#"
            post empty: refused EINVAL a message must not be empty
            post id=: refused EINVAL a client id must not be empty; leave it out instead
        "#]],
    );
    let mut world = scene("");
    world.limits.message_bytes = 10;
    world.limits.client_id_bytes = 4;
    expect![[r#"
        post text=0123456789: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
        finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
        post text=0123456789a: refused EMSGSIZE a message has at most 10 bytes, this one has 11
        post id=12345: refused EINVAL a client id has at most 4 bytes
    "#]]
    .assert_eq(&play(&mut world, "post text=0123456789; finish done; post text=0123456789a; post id=12345"));
}

#[test]
fn one_connection_is_attached_and_a_second_gets_a_conflict() {
    check(
        "attach c1 device=phone; attach c1; attach c2; detach c2; detach c1; attach c2",
        expect![[r#"
            attach c1 device=phone: idle | attached | - | done
            attach c1: idle | - | - | done
            attach c2: refused EBUSY another client is attached to the session; detach it, take over, or observe
            detach c2: idle | - | - | ignored
            detach c1: idle | detached | - | done
            attach c2: idle | attached | - | done
        "#]],
    );
}

#[test]
fn a_log_grows_by_what_is_said_and_not_by_who_looks_on() {
    let mut world = scene("post; finish done");
    let attach = |world: &mut World| {
        let told = play(world, "attach c1");
        play(world, "detach c1");
        !told.contains("refused")
    };
    let attached = (0..6_000).filter(|_| attach(&mut world)).count();
    assert_eq!(attached, 5_000);
    assert!(
        play(&mut world, "attach c1").contains("EAGAIN 5000 clients have attached since the last message")
    );
    play(&mut world, "post; finish done");
    assert!(attach(&mut world), "the next message makes room");
}

#[test]
fn taking_over_closes_the_old_connection_and_its_late_goodbye_changes_nothing() {
    check(
        "attach c1; attach c2 takeover; detach c1; detach c2",
        expect![[r#"
            attach c1: idle | attached | - | done
            attach c2 takeover: idle | detached, attached | close c1 (taken_over) | done
            detach c1: idle | - | - | ignored
            detach c2: idle | detached | - | done
        "#]],
    );
}

#[test]
fn detaching_stops_no_work() {
    check(
        "attach c1; post; detach c1; progress text=still; attach c2; finish done",
        expect![[r#"
            attach c1: idle | attached | - | done
            post: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            detach c1: running | detached | - | done
            progress text=still: running | assistant_finished | - | done
            attach c2: running | attached | - | done
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
        "#]],
    );
}

#[test]
fn a_session_that_is_over_can_be_attached_to_and_looked_at() {
    check(
        "end; attach c1; detach c1",
        expect![[r#"
            end: idle -> ended | state_changed by session_ended | close clients, free name | done
            attach c1: ended | attached | - | done
            detach c1: ended | detached | - | done
        "#]],
    );
    check(
        "fail; attach c1; detach c1",
        expect![[r#"
            fail: idle -> failed | session_failed, state_changed by session_failed | close clients, free name | done
            attach c1: failed | attached | - | done
            detach c1: failed | detached | - | done
        "#]],
    );
}

#[test]
fn a_retry_with_the_same_client_id_gets_the_same_run_in_every_state() {
    check(
        "post id=a; post id=a; restart; post id=a; finish done; post id=a; post id=b at-limit; post id=a; post id=b;
         discard; post id=b; end; restart; post id=a; post id=b",
        expect![[r#"
            post id=a: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            post id=a: running | - | - | m1 r1 running, repeated
            restart: running
            post id=a: running | - | - | m1 r1 running, repeated
            finish done: running -> idle | run_finished, state_changed by run_completed | broadcast count | r1 done
            post id=a: idle | - | - | m1 r1 done, repeated
            post id=b at-limit: idle -> queued | user, run_created, state_changed by concurrency_limit | - | m2 r2 pending
            post id=a: queued | - | - | m1 r1 done, repeated
            post id=b: queued | - | - | m2 r2 pending, repeated
            discard: queued -> idle | queued_discarded, cancelled, state_changed by queued_discarded | - | r2 cancelled
            post id=b: idle | - | - | m2 r2 cancelled, repeated
            end: idle -> ended | state_changed by session_ended | close clients, free name | done
            restart: ended
            post id=a: ended | - | - | m1 r1 done, repeated
            post id=b: ended | - | - | m2 r2 cancelled, repeated
        "#]],
    );
    check(
        "post id=a; fail; post id=a; post id=b",
        expect![[r#"
            post id=a: idle -> running | user, run_created, context, state_changed by message_posted | start r1, broadcast count | m1 r1 running
            fail: running -> failed | failed, session_failed, state_changed by session_failed | kill r1, close clients, free name, broadcast count | done
            post id=a: failed | - | - | m1 r1 failed, repeated
            post id=b: refused ESHUTDOWN the session has failed; send a message under another name to start a new one
        "#]],
    );
}
