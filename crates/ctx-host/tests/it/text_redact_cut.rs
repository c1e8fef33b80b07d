//! A secret that is cut in two by the end of a stream: what comes after it on the same pipe does not show the rest.

use std::sync::Arc;

use ctx_host::shell::text::redact::{Cut, Redactor, Secrets};

use crate::text_redact_corpus::corpus;

/// What follows on the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Late,
    Command,
}

/// What is shown of streams that come one after the other.
fn shown(secrets: &Arc<Secrets>, streams: &[&[u8]], next: Next) -> Vec<String> {
    let mut cut = Cut::default();
    let mut all = Vec::new();
    for stream in streams {
        let goes_on = match next {
            Next::Late => cut,
            Next::Command => cut.of_command(),
        };
        let run = |size: usize| {
            let mut redactor = Redactor::new(Arc::clone(secrets));
            redactor.go_on(goes_on.clone());
            let mut out = Vec::new();
            for piece in stream.chunks(size) {
                redactor.push(piece, &mut out);
            }
            let cut = redactor.cut();
            redactor.finish(&mut out);
            (out, cut)
        };
        let out;
        (out, cut) = run(1);
        assert_eq!(out, run(stream.len().max(1)).0, "byte by byte, and at once");
        all.push(String::from_utf8_lossy(&out).into_owned());
    }
    all
}

#[track_caller]
fn check(vars: &[(&str, &str)], streams: &[&str], late: &[&str], command: &[&str]) {
    let secrets = Arc::new(Secrets::from_env(vars.iter().copied()));
    let streams: Vec<&[u8]> = streams.iter().map(|stream| stream.as_bytes()).collect();
    assert_eq!(shown(&secrets, &streams, Next::Late), late, "in late output");
    assert_eq!(shown(&secrets, &streams, Next::Command), command, "in the next command");
}

#[test]
fn of_a_token_that_is_cut_one_half_is_hidden() {
    let hidden = ["ghp_abcdefghijklmnop", "[REDACTED:github-token]\nmore\n"];
    check(&[], &["ghp_abcdefghijklmnop", "qrstuvwxyz0123456789\nmore\n"], &hidden, &hidden);
    let hidden = ["x gh", "[REDACTED:github-token]"];
    check(&[], &["x gh", "p_abcdefghijklmnopqrstuvwxyz0123456789"], &hidden, &hidden);
    let pieces = ["ghp_abcdefghij", "klmnopqrst", "uvwxyz01234", "56789ABC\n"];
    let hidden = ["ghp_abcdefghij", "klmnopqrst", "uvwxyz01234", "[REDACTED:github-token]\n"];
    check(&[], &pieces, &hidden, &hidden);
    let value = [("DEPLOY_TOKEN", "operatorvalue4711x")];
    let hidden = ["a operatorva", "[REDACTED:env:DEPLOY_TOKEN] b\n"];
    check(&value, &["a operatorva", "lue4711x b\n"], &hidden, &hidden);
    let hidden = ["password=hun", "[REDACTED:password]\n"];
    check(&[], &["password=hun", "ter2hunter3\n"], &hidden, &hidden);
}

#[test]
fn what_a_program_asks_takes_nothing_from_the_next_command() {
    let value = ["password=", "hunter2hunter3\n"];
    check(&[], &value, &["password=", "[REDACTED:password]\n"], &value);
    let value = ["Password: ", "\"hunter2hunter3\"\n"];
    check(&[], &value, &["Password: ", "\"[REDACTED:password]\"\n"], &value);
}

#[test]
fn behind_a_command_that_printed_something_only_late_output_goes_on() {
    let secrets = Arc::new(Secrets::none());
    let mut first = Redactor::new(Arc::clone(&secrets));
    first.push(b"ghp_abcdefghijklmnop", &mut Vec::new());
    let cut = first.cut().past_command();
    assert!(cut.of_command().is_none() && !cut.past_command().is_none());
    let mut late = Redactor::new(secrets);
    late.go_on(cut.past_command());
    let mut out = Vec::new();
    late.push(b"qrstuvwxyz0123456789\n", &mut out);
    assert_eq!(out, b"[REDACTED:github-token]\n");
}

#[test]
fn what_goes_on_with_a_hidden_secret_is_hidden_in_late_output_and_a_new_command_loses_nothing() {
    let token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let mark = "[REDACTED:github-token]";
    check(&[], &[token, "ABCDEF\nhi\n"], &[mark, &format!("{mark}\nhi\n")], &[mark, "ABCDEF\nhi\n"]);
    let long = format!("{token}{}", "7xY".repeat(40));
    check(&[], &[&long, "7xY7xY\nhi\n"], &[mark, &format!("{mark}\nhi\n")], &[mark, "7xY7xY\nhi\n"]);
    let mark = "password=\"[REDACTED:password]";
    let late = [mark, "[REDACTED:password]\" hi\n"];
    check(&[], &["password=\"hunter2", "hunter3\" hi\n"], &late, &[mark, "hunter3\" hi\n"]);
    check(
        &[],
        &[&format!("{token}\n"), "ABCDEF\n"],
        &[&format!("{}\n", "[REDACTED:github-token]"), "ABCDEF\n"],
        &[&format!("{}\n", "[REDACTED:github-token]"), "ABCDEF\n"],
    );
}

#[test]
fn what_does_not_go_on_is_as_if_nothing_had_been_before() {
    let token = "ghp_abcdefghijklmnopqrstuvwxyz0123456789";
    let mark = "[REDACTED:github-token]\n";
    for before in ["ghp_abc", "g", "password=", "password=\"", "https://", "a", "sk-", "xAKIA", "AKIA"] {
        let hidden = [before, mark];
        check(&[], &[before, &format!("{token}\n")], &hidden, &hidden);
    }
    let blob = "kA9zQ1bC".repeat(8);
    check(&[], &[&blob, &format!("{token}\n")], &[&blob, mark], &[&blob, mark]);
    for before in ["ghp_abc", "g", "operatorva", "https://", "-----BEGIN RSA PRIVATE KEY-----\n"] {
        let plain = [before, "hello there\n", "and more\n"];
        check(&[("DEPLOY_TOKEN", "operatorvalue4711x")], &plain, &plain, &plain);
    }
}

#[test]
fn a_key_whose_first_line_stands_alone_is_hidden_with_the_next() {
    let lines: Vec<String> = (0..6).map(|n| format!("{n:02}kA9/zQ").repeat(8)).collect();
    let (open, close) = ("-----BEGIN RSA PRIVATE KEY-----\n", "-----END RSA PRIVATE KEY-----\n");
    let key = format!("{}\n{close}after\n", lines.join("\n"));
    let hidden = [open, "[REDACTED:private-key]-----END RSA PRIVATE KEY-----\nafter\n"];
    check(&[], &[open, &key], &hidden, &hidden);
}

#[test]
fn no_secret_of_the_corpus_is_shown_in_two_halves() {
    let secrets = Arc::new(Secrets::none());
    let mut cuts = 0;
    for sample in corpus() {
        let line = format!("{}\n", sample.line);
        let Some(from) = line.find(&sample.secret) else { continue };
        let len = sample.secret.len();
        for at in (1..len).step_by(len.div_ceil(12)) {
            let (before, after) = line.as_bytes().split_at(from + at);
            for next in [Next::Late, Next::Command] {
                let all = shown(&secrets, &[before, after], next).concat();
                assert!(!all.contains(&sample.secret), "{} {next:?}, cut at {at}: {all}", sample.kind);
                cuts += 1;
            }
        }
    }
    assert!(cuts > 1000, "{cuts} cuts");
}
