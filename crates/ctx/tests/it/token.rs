//! `ctx token`: what is printed, and when a token ends.

use testkit::until;

use crate::support::{build, json_lines};

#[test]
fn a_token_has_an_end_where_it_was_given_one_and_the_list_shows_it() {
    let daemon = build().arg("--listen").arg("127.0.0.1:0").start();
    daemon.ctx(&["token", "new", "--label", "for good"]).ok();
    daemon.ctx(&["token", "new", "--label", "a month", "--expires", "30d"]).ok();
    daemon.ctx(&["token", "new", "--label", "a date", "--expires", "2999-12-31"]).ok();
    let listed = daemon.ctx(&["token", "list"]).ok();
    let rows: Vec<&str> = listed.lines().collect();
    let head: Vec<&str> = rows[0].split_whitespace().collect();
    assert_eq!(head, ["ID", "UID", "CREATED", "EXPIRES", "LABEL"]);
    assert!(rows[1].contains("  never") && rows[1].ends_with("  for good"), "{listed}");
    assert!(rows[3].contains("  2999-12-31 00:00:00Z  a date"), "{listed}");
    let tokens = json_lines(&daemon.ctx(&["token", "list", "--json"]).ok());
    let month = &tokens[1];
    let lives = month["expires_at"].as_u64().unwrap() - month["created_at"].as_u64().unwrap();
    assert!((lives / 1_000).abs_diff(30 * 86_400) < 60, "{month}");
    assert!(daemon.ctx(&["token", "new", "--expires", "soon"]).fails(2).contains("30d"));
    let past = daemon.ctx(&["token", "new", "--expires", "2020-01-01"]).fails(2);
    assert!(past.contains("expire in the past"), "{past}");
    assert_eq!(daemon.ctx(&["token", "list"]).ok().lines().count(), 4, "nothing was made of those");
}

#[test]
fn an_expired_token_is_good_for_nothing() {
    let daemon = build().arg("--listen").arg("127.0.0.1:0").start();
    let status = |token: &str| {
        let file = std::fs::read_to_string(daemon.root().join(".state/daemon.json")).unwrap();
        let file: serde_json::Value = serde_json::from_str(&file).unwrap();
        let url = format!("http://{}/api/v1/status", file["address"].as_str().unwrap());
        let bearer = format!("Authorization: Bearer {token}");
        let mut curl = std::process::Command::new("curl");
        testkit::finish(curl.args(["-sS", "-o", "/dev/null", "-w", "%{http_code}", "-H", &bearer, &url])).ok()
    };
    // On a busy machine one may be over before it is used: that one does not count.
    let token = until("a token that is good", || {
        let token = daemon.ctx(&["token", "new", "--expires", "2s"]).ok().trim().to_owned();
        (status(&token) == "200").then_some(token)
    });
    until("its end", || (status(&token) == "401").then_some(()));
}
