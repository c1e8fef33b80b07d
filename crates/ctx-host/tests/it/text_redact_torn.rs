//! Private keys that escapes tear apart and that reads, commands and late output cut in two: none of a key is shown, and
//! nothing behind a whole one is lost.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use std::sync::Arc;

use ctx_host::shell::text::budget::Plan;
use ctx_host::shell::text::output::OutputStream;
use ctx_host::shell::text::redact::{Cut, Secrets, redact_text};
use proptest::prelude::*;

use crate::text_redact_corpus::{ALNUM, BASE64, HEX, Letters, corpus};

/// What follows on the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Late,
    Command,
}

/// A key as it is printed, and the words of it that are secret.
struct Key {
    text: String,
    body: Vec<String>,
}

fn keys(seed: u64) -> Vec<Key> {
    let mut l = Letters(seed);
    let mut body = |alphabet: &str, lens: &[usize]| -> Vec<String> {
        lens.iter().map(|len| l.take(alphabet, *len)).collect()
    };
    let block = |label: &str, dashes: &str, between: &str, body: Vec<String>| Key {
        text: format!(
            "{dashes}BEGIN {label}{}{between}{}{between}{dashes}END {label}{}",
            dashes.chars().rev().collect::<String>(),
            body.join(between),
            dashes.chars().rev().collect::<String>()
        ),
        body,
    };
    let rsa = concat!("RSA PRI", "VATE KEY");
    let ppk = body(BASE64, &[64, 64, 64, 44]);
    vec![
        block(rsa, "-----", "\n", body(BASE64, &[64, 64, 64, 64, 64, 64, 64, 30])),
        block(concat!("OPENSSH PRI", "VATE KEY"), "-----", "\n", body(BASE64, &[70, 70, 70, 70, 70, 21])),
        block(concat!("PRI", "VATE KEY"), "-----", "\n", body(BASE64, &[64])),
        block(
            concat!("PRI", "VATE KEY"),
            "-----",
            "\\n",
            body(BASE64, &[64, 64, 64, 64, 64, 64, 64, 64, 64, 24]),
        ),
        block(concat!("SSH2 ENCRYPTED PRI", "VATE KEY"), "---- ", "\n", body(BASE64, &[70, 70, 70, 30])),
        block("OpenVPN Static key V1", "-----", "\n", body(HEX, &[32; 16])),
        Key { text: format!("Private-Lines: 4\n{}\nPrivate-MAC: 00ff00ff", ppk.join("\n")), body: ppk },
    ]
}

/// Lines that look like those of a key, and others.
fn lines_after(seed: u64) -> String {
    let mut l = Letters(seed);
    format!(
        "ssh-ed25519 AAAA{} me@host\n  \"version\": \"1.3.0\",\n  \"integrity\": \"sha512-{}==\"\ndone\n",
        l.take(BASE64, 64),
        l.take(BASE64, 86)
    )
}

/// What is shown of streams that come one after the other, each in reads of some size.
fn shown(streams: &[(&[u8], Next)], read: usize) -> Vec<String> {
    let secrets = Arc::new(Secrets::none());
    let (mut cut, mut all) = (Cut::default(), Vec::new());
    for (stream, next) in streams {
        let mut output = OutputStream::new(Arc::clone(&secrets), &Plan::default());
        output.go_on(match next {
            Next::Late => cut,
            Next::Command => cut.of_command(),
        });
        stream.chunks(read.max(1)).for_each(|piece| output.push(piece, &mut |_| {}));
        cut = output.cut();
        all.push(output.finish().kept.text);
    }
    all
}

#[track_caller]
fn assert_hidden(key: &Key, seen: &str) {
    assert_none(key, seen, 8);
}

/// So many bytes of a key in a row are not shown.
#[track_caller]
fn assert_none(key: &Key, seen: &str, bytes: usize) {
    for word in &key.body {
        for part in word.as_bytes().windows(bytes) {
            let part = String::from_utf8_lossy(part);
            assert!(!seen.contains(part.as_ref()), "{part} of\n{}\nin\n{seen}", key.text);
        }
    }
}

#[test]
fn a_whole_key_takes_nothing_behind_it_where_the_output_has_escapes() {
    for (n, key) in keys(3).iter().enumerate() {
        let after = lines_after(90);
        for before in ["\u{1b}[32mhi\u{1b}[0m\n", "hi\r\n", "\u{7}", "1%\r2%\n", ""] {
            for between in ["\n", "\n\u{1b}[32mhi\u{1b}[0m\n", "\r\n"] {
                let text = format!("{before}{}{between}{after}", key.text);
                let seen = shown(&[(text.as_bytes(), Next::Command)], 64).concat();
                assert_hidden(key, &seen);
                assert!(seen.contains("[REDACTED:private-key]"), "{n}: {seen}");
                assert!(seen.ends_with(&after), "{n} behind {before:?}: {seen}");
                assert!(!between.contains("hi") || seen.contains("\nhi\n"), "{n}: {seen}");
            }
        }
    }
}

#[test]
fn a_mark_in_the_output_does_not_make_a_key_show() {
    for key in keys(4).iter().take(3) {
        let imitated = key.text.replacen('\n', "[REDACTED:private-key]\n", 1);
        for text in
            [imitated.clone(), format!("\u{7}{imitated}"), format!("{}[REDACTED:private-key]", key.text)]
        {
            assert_hidden(key, &shown(&[(text.as_bytes(), Next::Command)], 1000).concat());
        }
    }
}

#[test]
fn what_was_redacted_is_not_redacted_again() {
    let secrets = Arc::new(Secrets::none());
    for sample in corpus() {
        let once = redact_text(&secrets, &format!("{}\n{}", sample.line, lines_after(7)));
        assert_eq!(redact_text(&secrets, &once), once, "{}", sample.kind);
    }
    let marked =
        "https://[REDACTED:env:A_TOKEN1]@host/x https://[REDACTED:env:A_LONG_TOKEN1]:x-oauth-basic@host/x\n";
    assert_eq!(redact_text(&secrets, marked), marked);
    let token = format!("ghp_{}", Letters(1).take(ALNUM, 36));
    for url in [format!("https://{token}@host/o/r.git\n"), format!("https://{token}:x1y2z3@host/o/r.git\n")] {
        let once = redact_text(&secrets, &url);
        assert!(!once.contains(&token) && !once.contains("x1y2z3"), "{once}");
        assert_eq!(redact_text(&secrets, &once), once);
    }
}

#[test]
fn of_a_signed_request_only_the_signature_is_hidden() {
    let secrets = Arc::new(Secrets::none());
    let mut l = Letters(2);
    let (md5, sha) = (l.take(HEX, 32), l.take(HEX, 64));
    let digest = |response: &str| {
        format!(
            "> Authorization: Digest username=\"Mufasa\", realm=\"a@b\", nonce=\"dcd98b\", response=\"{response}\", qop=auth\n"
        )
    };
    assert_eq!(redact_text(&secrets, &digest(&md5)), digest("[REDACTED:authorization]"));
    let id = format!("AKIA{}", l.take(ALNUM, 16).to_uppercase());
    let signed = format!(
        "Authorization: AWS4-HMAC-SHA256 Credential={id}/20260101/eu-west-1/s3/aws4_request, Signature={sha}\n"
    );
    let out = redact_text(&secrets, &signed);
    assert_eq!(out, "Authorization: AWS4-HMAC-SHA256 Credential=[REDACTED:authorization]\n");
    let url = |signature: &str| {
        format!("https://b.host/k?X-Amz-SignedHeaders=host&X-Amz-Signature={signature}&z=1\n")
    };
    assert_eq!(redact_text(&secrets, &url(&sha)), url("[REDACTED:url-signature]"));
    for text in [
        "Authorization: Digest username=\"Mufasa\", realm=\"a@b\"\nresponse=\"0123456789abcdef0123456789abcdef\"\n",
        "X-Amz-Signature=<signature>&X-Amz-Signature=abc\n",
        "WWW-Authenticate: Digest realm=\"x\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c0\"\n",
    ] {
        assert_eq!(redact_text(&secrets, text), text);
    }
}

#[test]
fn a_whole_key_without_a_last_newline_takes_nothing_from_later_commands() {
    for key in keys(5) {
        for text in [key.text.clone(), format!("{{\"pem\": \"{}\"}}", key.text)] {
            let after = lines_after(91);
            for next in [Next::Command, Next::Late] {
                let streams = [(text.as_bytes(), Next::Command), (after.as_bytes(), next), (b"done\n", next)];
                let seen = shown(&streams, 50);
                assert_hidden(&key, &seen.concat());
                assert_eq!(seen[1..], [after.as_str(), "done\n"], "{next:?} behind {text}");
            }
        }
    }
}

#[test]
fn a_key_without_an_end_takes_nothing_behind_a_few_lines_of_later_commands() {
    let key = keys(6).remove(0);
    let half = &key.text[..300];
    let after = lines_after(92);
    let mut streams = vec![(half.as_bytes(), Next::Command)];
    streams.extend([(b"done\n".as_slice(), Next::Command); 6]);
    streams.push((after.as_bytes(), Next::Command));
    let seen = shown(&streams, 1000);
    assert_eq!(seen[1..7], ["done\n"; 6]);
    assert_eq!(seen[7], after);
    // Also where lines that look like those of a key come between.
    let random = format!("{}\n", Letters(8).take(BASE64, 64));
    let mut streams = vec![(half.as_bytes(), Next::Command)];
    for _ in 0..6 {
        streams.extend([(random.as_bytes(), Next::Command), (b"done\n".as_slice(), Next::Command)]);
    }
    streams.push((after.as_bytes(), Next::Command));
    assert_eq!(shown(&streams, 1000).last(), Some(&after));
}

const ESCAPES: [&str; 5] = ["\u{1b}[0m", "\u{1b}[1;31m", "\u{7}", "\u{1b}]0;title\u{7}", "\u{1b}(B"];

/// The text with escapes thrown in, from `from` on.
fn torn(text: &str, from: usize, places: &[(usize, usize)]) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut places: Vec<(usize, usize)> =
        places.iter().map(|(place, which)| (from + place % (text.len() - from + 1), *which)).collect();
    places.sort_unstable();
    for (place, which) in places.into_iter().rev() {
        bytes.splice(place..place, ESCAPES[which % ESCAPES.len()].bytes());
    }
    String::from_utf8(bytes).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 1500 } else { 6000 }))]

    /// Torn anywhere by escapes, in any reads.
    #[test]
    fn no_key_that_is_torn_is_shown_and_nothing_behind_it_is_lost(
        seed in 0u64..1000, which in 0usize..7, read in 1usize..300,
        places in prop::collection::vec((0usize..10_000, 0usize..5), 0..12), newline: bool,
    ) {
        let (key, after) = (keys(seed).remove(which), lines_after(seed + 1));
        let text = format!("{}\n{after}", torn(&key.text, 0, &places));
        let text = if newline { format!("first\n{text}") } else { text };
        let seen = shown(&[(text.as_bytes(), Next::Command)], read).concat();
        assert_hidden(&key, &seen);
        prop_assert!(seen.ends_with(&after), "{seen}\nof\n{text:?}");
    }

    /// Cut at any byte by the ends of commands and late output, and torn behind the rule that begins it.
    #[test]
    fn no_key_that_is_cut_is_shown_and_nothing_behind_it_is_lost(
        seed in 0u64..1000, which in 0usize..7, read in 1usize..300, late: bool, own: bool,
        cuts in prop::collection::vec(0usize..10_000, 0..4),
        places in prop::collection::vec((0usize..10_000, 0usize..5), 0..4), newline: bool,
    ) {
        let (key, after) = (keys(seed).remove(which), lines_after(seed + 1));
        let begin = key.text.find(&key.body[0]).unwrap();
        let text = format!("first\n{}{}", torn(&key.text, begin, &places), if newline { "\n" } else { "" });
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let next = if late { Next::Late } else { Next::Command };
        let mut streams: Vec<(&[u8], Next)> =
            cuts.windows(2).map(|ends| (&text.as_bytes()[ends[0]..ends[1]], next)).collect();
        // By the same program, or by another.
        streams.push((after.as_bytes(), if own { next } else { Next::Command }));
        let seen = shown(&streams, read);
        // Fewer behind its first line cannot be told from a word, nor a few that are cut on both sides.
        assert_none(&key, &seen.concat(), 28);
        prop_assert_eq!(seen.last(), Some(&after), "{:?} of {:?}", &seen, streams.iter().map(|s| String::from_utf8_lossy(s.0)).collect::<Vec<_>>());
    }
}
