//! The WebSockets, through Python's `websockets`: the seed's reattach list, slow and silent clients, and a client
//! that loses its connection hundreds of times.

use serde_json::Value;
use testkit::{TestDaemon, until};

use crate::support::{Http, builder};

fn reattach(http: &Http, name: &str) {
    http.python("reattach.py", &[name]).ok();
}

#[test]
fn who_comes_back_is_shown_what_was_missed() {
    reattach(&Http::start(), "clean_reattach");
}

#[test]
fn more_than_is_kept_is_resume_failed() {
    reattach(&Http::of(builder().env("CTX_LIMITS_REATTACH_BYTES", "100000")), "overflow");
}

#[test]
fn what_is_read_again_after_a_gap_is_exactly_what_was_missed() {
    reattach(&Http::of(builder().env("CTX_LIMITS_REATTACH_BYTES", "100000")), "reread");
}

#[test]
fn longer_than_is_kept_is_resume_failed() {
    reattach(&Http::of(builder().env("CTX_LIMITS_REATTACH_MS", "300")), "expired");
}

#[test]
fn another_epoch_or_a_number_that_never_was_is_resume_failed() {
    reattach(&Http::start(), "wrong_epoch");
}

#[test]
fn a_hello_without_epoch_resumes_as_in_the_seed() {
    reattach(&Http::start(), "seed_hello");
}

#[test]
fn one_operator_is_attached_others_observe_and_one_can_take_over() {
    reattach(&Http::start(), "two_devices");
}

#[test]
fn the_end_of_a_session_closes_its_sockets() {
    reattach(&Http::start(), "ended");
}

#[test]
fn a_run_is_cancelled_over_the_socket() {
    reattach(&Http::start(), "cancel");
}

#[test]
fn a_pin_is_told_over_the_socket() {
    reattach(&Http::start(), "pins");
}

#[test]
fn a_run_is_paused_and_a_call_answered_over_the_socket() {
    let http = Http::start();
    std::fs::write(http.daemon.root().join("agent/coder.d/policy"), "ask fs.list\n").unwrap();
    reattach(&http, "pause");
}

#[test]
fn frames_that_make_no_sense_are_refused_one_by_one() {
    reattach(&Http::start(), "nonsense");
}

#[test]
fn a_client_that_stops_reading_is_detached_as_slow_and_slows_nobody() {
    // Nor does it answer pings: on a busy machine that could be found out first.
    let patient = builder().env("CTX_LIMITS_PING_MS", "600000");
    reattach(&Http::of(patient.env("CTX_LIMITS_SLOW_MS", "1500")), "slow");
}

#[test]
fn a_client_that_answers_no_ping_is_gone_after_two() {
    reattach(&Http::of(builder().env("CTX_LIMITS_PING_MS", "1000")), "silent");
}

#[test]
fn the_system_socket_tells_every_change_of_the_running_count() {
    reattach(&Http::start(), "system");
}

#[test]
fn the_socket_of_a_session_tells_what_happens_to_its_issue() {
    reattach(&Http::start(), "issue");
}

#[test]
fn the_system_socket_tells_of_issues_to_those_who_may_see_them() {
    reattach(&Http::start(), "system_issues");
}

#[test]
fn another_users_sockets_tell_nothing() {
    reattach(&Http::start(), "stranger");
}

#[test]
fn a_ticket_opens_one_socket_and_nothing_else() {
    let http = Http::start();
    let ticket = http.call("POST", "/tickets", None).json(201)["ticket"].as_str().unwrap().to_owned();
    let with = |path: &str| format!("{path}?ticket={ticket}");
    assert_eq!(http.curl(&with("/status"), &[]).code(401), "EKEYREJECTED");
    // Also not what only looks like a socket: a project may be called so.
    for path in ["/projects/socket", "/sessions/socket", "/sessions/a/b/socket"] {
        assert_eq!(http.curl(&with(path), &[]).code(401), "EKEYREJECTED", "{path}");
    }
    let upgrade = [
        "-H",
        "Connection: Upgrade",
        "-H",
        "Upgrade: websocket",
        "-H",
        "Sec-WebSocket-Version: 13",
        "-H",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "--max-time",
        "2",
    ];
    let shown = |out: std::process::Output| String::from_utf8_lossy(&out.stdout).into_owned();
    let open = || {
        let mut command = std::process::Command::new("curl");
        shown(
            command
                .args(["-sS", "-i"])
                .args(upgrade)
                .arg(http.url(&with("/system/socket")))
                .output()
                .unwrap(),
        )
    };
    assert!(open().contains("101 Switching Protocols"));
    assert!(open().contains("401 Unauthorized"), "a ticket is good once");
}

#[test]
fn a_connection_that_breaks_hundreds_of_times_loses_no_frame() {
    let http = Http::of(builder());
    let stop = http.daemon.path("stop");
    std::fs::write(&stop, "").unwrap();
    let said = http.python("drops.py", &["300", stop.to_str().unwrap()]).ok();
    let figures: Value = serde_json::from_str(&said).expect("figures");
    assert!(figures["drops"].as_u64().unwrap() >= 300, "{figures}");
    assert_eq!(figures["resume_failed"], 0, "{figures}");
    assert!(figures["frames"].as_u64().unwrap() > 1_000, "{figures}");
    assert!(figures["whole"].as_u64().unwrap() > 0, "{figures}");
}

#[test]
fn across_kills_of_the_daemon_no_frame_is_missing_in_silence() {
    // None that the system gives to whoever asks for any: another test could have it while the daemon is down.
    let free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    let port = (20_000 + std::process::id() as u16 % 10_000..32_000).find(free).unwrap();
    let fixed =
        TestDaemon::build(env!("CARGO_BIN_EXE_ctx")).arg("--listen").arg(&format!("127.0.0.1:{port}"));
    let mut http = Http::of(fixed);
    let stop = http.daemon.path("stop");
    let client = http.python_begins("drops.py", &["60", stop.to_str().unwrap()]);
    // Python may take long to start, and a session that is being made does not outlive a kill.
    until("the client to have its session", || {
        http.get("/projects/default/sessions")["items"][0]["model_override"].is_string().then_some(())
    });
    for round in 0..5 {
        std::thread::sleep(std::time::Duration::from_millis(900 + round * 130));
        http.daemon.kill();
        http.daemon.start_again();
    }
    std::fs::write(&stop, "").unwrap();
    let out = client.wait_with_output().expect("the client ends");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let figures: Value = serde_json::from_slice(&out.stdout).expect("figures");
    assert!(figures["drops"].as_u64().unwrap() >= 60, "{figures}");
    assert!(figures["resume_failed"].as_u64().unwrap() >= 1, "{figures}");
}
