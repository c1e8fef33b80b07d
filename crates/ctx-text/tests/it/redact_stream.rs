//! Redaction of a stream: the cut of the reads changes nothing, and a line without end costs no memory.

use std::sync::Arc;

use ctx_text::redact::{Redactor, Secrets, redact_bytes};
use proptest::prelude::*;

use testkit::tokens::{EXAMPLES, key_block};

use crate::redact::in_pieces;

/// The most that may be held back.
const HELD_MAX: usize = 16 << 10;

fn secrets() -> Arc<Secrets> {
    Arc::new(Secrets::from_env([("X_TOKEN", "needle-7-needle"), ("Y_KEY", "needle-7-nothing")]))
}

/// Pieces of which random text meets the rules.
fn near_secrets() -> impl Strategy<Value = Vec<u8>> {
    let fixed = prop::sample::select(vec![
        "password",
        "token=",
        "\"secret\": \"",
        "://u:p4ssw0rd@",
        "Authorization: Bearer ",
        "Cookie: a=",
        "needle-7-needle",
        "needle-7",
        "\u{1b}[31m",
        "--api-key ",
        "curl -u tom:",
        "mysql -p",
        "sshpass -p ",
        "-----BEGIN PRIVATE KEY-----\n",
        "-----END PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----",
        "Private-Lines: 3\n",
        "Private-MAC:",
        "ghp_",
        "AKIA",
        ":AA",
        "-us1",
        "eyJhbGciOi1234.eyJ1234567890abc.",
        "\\n",
        "%3D",
        "\n",
        "\n",
        "  ",
    ]);
    let part = prop_oneof![
        4 => fixed.prop_map(str::to_owned),
        1 => prop::sample::select(EXAMPLES).prop_map(|(_, token)| token.to_owned()),
        3 => "[A-Za-z0-9+/]{1,40}",
        3 => "[ =:\"'\\\\\n\r\t<>@/.,;&-]{1,3}",
    ];
    let part =
        prop_oneof![9 => part.prop_map(String::into_bytes), 1 => prop::collection::vec(any::<u8>(), 0..8)];
    prop::collection::vec(part, 0..30).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_cut_of_the_reads_changes_nothing(bytes in near_secrets(), size in 1usize..200) {
        let whole = redact_bytes(&secrets(), &bytes);
        prop_assert_eq!(in_pieces(&secrets(), bytes.chunks(size)), whole);
    }

    #[test]
    fn the_cut_of_long_lines_changes_nothing(
        parts in prop::collection::vec(near_secrets(), 1..12),
        between in prop::sample::select(vec!["a", " ", ",", "\n"]),
        size in 1usize..40_000,
    ) {
        let bytes = parts.join(between.repeat(7000).as_bytes());
        let whole = redact_bytes(&secrets(), &bytes);
        prop_assert!(in_pieces(&secrets(), bytes.chunks(size)) == whole);
    }

    #[test]
    fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let secrets = Arc::new(Secrets::from_env([("ODD_KEY", &bytes[..bytes.len().min(40)])]));
        let out = redact_bytes(&secrets, &bytes);
        prop_assert!(out.len() <= bytes.len() * 4 + 64);
    }

    #[test]
    fn a_token_on_a_line_of_its_own_never_gets_through(before in near_secrets(), after in near_secrets(), example in prop::sample::select(EXAMPLES)) {
        let text = [&before[..], b"\n", example.1.as_bytes(), b"\n", &after].concat();
        let out = redact_bytes(&secrets(), &text);
        let got_through = out.split(|byte| *byte == b'\n').any(|line| line == example.1.as_bytes());
        prop_assert!(!got_through, "{} got through", example.0);
    }
}

#[test]
fn a_key_that_reads_cut_anywhere_is_replaced_alike() {
    let (block, _) = key_block("OPENSSH PRIVATE KEY");
    for text in [format!("x\n{block}y\n"), format!("\"{}\"\n", block.replace('\n', "\\n"))] {
        let whole = redact_bytes(&secrets(), text.as_bytes());
        for at in 0..=text.len() {
            let (first, second) = text.as_bytes().split_at(at);
            assert_eq!(in_pieces(&secrets(), [first, second]), whole, "cut at {at}");
        }
    }
}

/// Pushes 50 MB in reads of 64 KB; gives what came out and the most that was held back.
fn much(text: &[u8]) -> (Vec<u8>, usize) {
    let (mut redactor, mut out, mut held) = (Redactor::new(secrets()), Vec::new(), 0);
    for read in text.chunks(64 << 10) {
        redactor.push(read, &mut out);
        held = held.max(redactor.held());
    }
    redactor.finish(&mut out);
    (out, held)
}

#[test]
fn a_line_of_50_mb_is_not_held_and_its_secrets_are_found() {
    const SIZE: usize = 50 << 20;
    let plain = vec![b'x'; SIZE];
    let (out, held) = much(&plain);
    assert!(out == plain && held <= HELD_MAX, "{held} bytes held");
    let item = format!(
        "{{\"id\": \"{}{}\", \"password\": \"abc123xyz\", \"n\": 77}}, ",
        "ghp_",
        "a1B2c3D4".repeat(5)
    );
    let items = item.repeat(SIZE / item.len());
    let (out, held) = much(items.as_bytes());
    let want = "{\"id\": \"[REDACTED:github-token]\", \"password\": \"[REDACTED:password]\", \"n\": 77}, ";
    assert!(out == want.repeat(SIZE / item.len()).into_bytes() && held <= HELD_MAX, "{held} bytes held");
}

#[test]
fn a_redactor_that_has_finished_begins_anew() {
    let mut redactor = Redactor::new(secrets());
    let mut out = Vec::new();
    redactor.push(b"-----BEGIN PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7f8a9b\n", &mut out);
    redactor.finish(&mut out);
    redactor.push(b"MIIEpAIBAAKCAQEA7f8a9b", &mut out);
    assert_eq!((redactor.held(), redactor.redactions()), (22, 1));
    redactor.finish(&mut out);
    assert_eq!(out, b"-----BEGIN PRIVATE KEY-----\n[REDACTED:private-key]\nMIIEpAIBAAKCAQEA7f8a9b");
}
