//! The `pty` channel of the session's socket, through Python's `websockets`.

use crate::support::{Http, builder};

fn scenario(http: &Http, name: &str) {
    let outcome = http.python("terminals.py", &[name]);
    // Terminals outlive the daemon; these need not.
    for one in http.get("/terminals")["items"].as_array().unwrap() {
        http.call("DELETE", &format!("/terminals/{}", one["id"].as_str().unwrap()), None).json(204);
    }
    outcome.ok();
}

#[test]
fn a_client_types_resizes_leaves_and_comes_back() {
    scenario(&Http::start(), "channel");
}

#[test]
fn binary_frames_and_as_much_scrollback_as_asked_for() {
    scenario(&Http::start(), "binary");
}

#[test]
fn more_output_than_a_client_may_get_is_dropped_and_a_fresh_screen_follows() {
    scenario(&Http::of(builder().env("CTX_LIMITS_TERMINAL_CLIENT_BYTES", "100000")), "throttled");
}

#[test]
fn a_terminal_in_which_nothing_happens_gives_a_notice() {
    scenario(&Http::of(builder().env("CTX_LIMITS_TERMINAL_IDLE_MS", "500")), "idle");
}
