//! How the WebSockets are closed: the reason in `closing`, and the code that every client's library shows.

use std::io::{BufRead, BufReader, Read};

use crate::support::{Http, builder};

fn play(http: &Http, name: &str) {
    http.python("closings.py", &[name]).ok();
}

#[test]
fn who_does_not_keep_to_the_protocol_is_told_which_rule_was_broken() {
    play(&Http::start(), "faults");
}

#[test]
fn every_reason_has_its_code() {
    play(&Http::start(), "reasons");
}

#[test]
fn a_purge_is_told_to_those_who_may_see_the_session() {
    play(&Http::start(), "purged");
}

#[test]
fn a_daemon_that_stops_says_so_on_every_socket() {
    let mut http = Http::of(builder());
    let mut client = http.python_begins("closings.py", &["shutdown"]);
    let mut said = BufReader::new(client.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert_eq!(line, "listening\n");
    assert_eq!(http.daemon.stop(), 0);
    let mut error = String::new();
    client.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(client.wait().unwrap().success(), "{error}");
}
