//! A client that never reads: it holds up nobody, and the daemon does not grow for it.

use serde_json::json;

use super::support::Daemon;

#[test]
fn a_client_that_never_reads_costs_a_bounded_amount() {
    const RUNS: usize = 150;
    let daemon = Daemon::with(&[("CTX_LIMITS_IDLE_UNLOAD_MS", "100")]);
    // Every frame carries the name: a long one makes what is left unread weigh more than the work itself.
    let watched = "w".repeat(64);
    let mut client = daemon.client();
    let text = "t".repeat(40 * 1024);
    let mut work = |session: &str| {
        for number in 0..RUNS {
            client.say(session, &format!("m{number}"), &text);
        }
        daemon.proc_status("VmRSS")
    };
    // What the work itself costs, with nobody asleep.
    let before = work("alone");
    let (mut asleep, mut rude) = (daemon.client(), daemon.client());
    daemon.client().say(&watched, "m", "x");
    // One follows everything and never reads a frame of it, another leaves its own run unread.
    asleep.ask(json!({"op": "resume", "session": watched}));
    rude.send("rude", "m", &text);
    let grown = work(&watched).saturating_sub(before);
    // The frames of these runs are about 100 MB; what may wait is a ring of 4 MiB and a few frames. The rest is the
    // conversation, which stays loaded while it is followed, and the allocator's.
    assert!(grown < 56 * 1024, "the daemon grew by {grown} KiB");
    assert_eq!(daemon.shown("rude")["state"], "idle", "a run ends also when nobody reads it");
    daemon.client().say("other", "m", "unaffected");
    // Whoever wakes up late has missed no message.
    let mut messages = 0;
    let mut done = 0;
    while done < RUNS + 1 {
        let frame = asleep.frame();
        messages += usize::from(frame["type"] == "message");
        done += usize::from(frame["type"] == "done");
    }
    assert_eq!(messages, RUNS + 1);
    assert_eq!(rude.until_done().last().unwrap()["status"], "ok");
}
