//! Base64 is not harmed: images, wasm, archives, whatever letters they hold by chance.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "helpers of tests")]

use std::sync::Arc;

use ctx_host::shell::text::redact::{Secrets, redact_bytes};
use proptest::prelude::*;

use crate::text_redact_corpus::{ALNUM, BASE64, Letters, UPPER, URL, corpus, in_pieces};

/// Random bytes as base64, from a seed.
fn blob(seed: u64, alphabet: &str, len: usize) -> Vec<u8> {
    let (letters, mut state) = (alphabet.as_bytes(), seed | 1);
    let random = |_| {
        // xorshift: a full period and cheap enough for megabytes in a debug build.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        letters[usize::try_from(state >> 40).unwrap() % 64]
    };
    (0..len).map(random).collect()
}

fn wrapped(blob: &[u8], width: usize, newline: &[u8]) -> Vec<u8> {
    blob.chunks(width).flat_map(|line| [line, newline].concat()).collect()
}

#[track_caller]
fn assert_unharmed(secrets: &Arc<Secrets>, text: &[u8], what: &str) {
    let out = redact_bytes(secrets, text);
    let at = out.windows(9).position(|window| window == b"[REDACTED");
    if let Some(at) = at {
        let around = &out[at.saturating_sub(90)..(at + 60).min(out.len())];
        panic!("{what}: harmed at {at}: {}", String::from_utf8_lossy(around));
    }
    assert!(out == text, "{what}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3, ..ProptestConfig::default() })]

    #[test]
    fn megabytes_of_random_base64_are_not_harmed(seed in any::<u64>()) {
        let secrets = Arc::new(Secrets::none());
        let (base64, url) = (blob(seed, BASE64, 2 << 20), blob(seed, URL, 2 << 20));
        assert_unharmed(&secrets, &base64, "base64");
        assert_unharmed(&secrets, &url, "base64url");
        assert_unharmed(&secrets, &wrapped(&base64, 76, b"\n"), "base64 in lines");
        assert_unharmed(&secrets, &wrapped(&base64[..1 << 20], 64, b"\r\n"), "base64 in lines of Windows");
    }
}

#[test]
fn what_begins_a_secret_is_nothing_in_the_midst_of_base64() {
    let secrets = Arc::new(Secrets::none());
    let mut seed = 1;
    for sample in corpus() {
        let of = |alphabet: &str| sample.secret.bytes().all(|byte| alphabet.as_bytes().contains(&byte));
        // A shape alone, not a pair; what begins with more letters is there by no chance.
        let is_shape = sample.secret.len() >= 20 && sample.line.trim_end().ends_with(&sample.secret);
        let long = [
            "github_", "glagent", "dckr_", "LS0t", "hooks.", "AGE-", "CCI", "sk-or-", "sk-ant", "sk-proj",
            "sk_", "rk_",
        ];
        let long = long.iter().chain(&[
            "cmVm",
            "lin_api_",
            "pscale_",
            "sb_sec",
            "sntry",
            "tskey",
            "rubygems",
            "pypi-",
            "secret_",
            "vercel_",
            "IQoJ",
            "GR13",
            "wandb_",
            "lin_oauth_",
            "SWMTKN",
        ]);
        if !is_shape || long.clone().any(|long| sample.secret.starts_with(long)) {
            continue;
        }
        let alphabet = match (of(BASE64), of(URL)) {
            (true, _) => BASE64,
            (_, true) => URL,
            _ => continue,
        };
        seed += 2;
        let (before, after) = (blob(seed, alphabet, 900), blob(seed * 7, alphabet, 900));
        let text =
            [b"data:image/png;base64,".as_slice(), &before, sample.secret.as_bytes(), &after, b"\n"].concat();
        assert_unharmed(&secrets, &text, sample.kind);
    }
}

#[test]
fn a_long_run_behind_chance_letters_is_not_lost() {
    let secrets = Arc::new(Secrets::none());
    let zeros = "Q".repeat(300_000);
    for letters in [concat!("AB", "SK7"), concat!("AT", "BB7"), concat!("AK", "Cp7")] {
        let image =
            format!("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJ{letters}{zeros}\n");
        assert_unharmed(&secrets, image.as_bytes(), letters);
        // Even where a word begins with them, a token is only so long.
        assert_unharmed(&secrets, format!("{letters}{zeros}\n").as_bytes(), letters);
    }
}

#[test]
fn files_that_begin_as_files_do_are_not_harmed() {
    let secrets = Arc::new(Secrets::none());
    let heads = [
        "iVBORw0KGgoAAAANSUhEUgAA",
        "/9j/4AAQSkZJRgABAQAAAQ",
        "R0lGODlhAQABAIAAAAAAAP",
        "AGFzbQEAAAABhYCAgAABYAF",
        "UEsDBBQAAAAIAA",
        "H4sIAAAAAAAAA",
    ];
    for (at, head) in heads.iter().enumerate() {
        let seed = u64::try_from(at).unwrap() + 99;
        let body = [head.as_bytes(), &blob(seed, BASE64, 400_000)].concat();
        for text in [
            [b"<img src=\"data:image/png;base64,".as_slice(), &body, b"\">\n"].concat(),
            [b"var w=\"".as_slice(), &body, b"==\";\n"].concat(),
            [b"//# sourceMappingURL=data:application/json;base64,".as_slice(), &body, b"=\n"].concat(),
            wrapped(&body, 76, b"\n"),
            wrapped(&body, 72, b"\n"),
        ] {
            assert_unharmed(&secrets, &text, head);
        }
    }
}

#[test]
fn a_list_of_tokens_is_no_blob() {
    let secrets = Arc::new(Secrets::none());
    let mut l = Letters(3);
    for (prefix, len) in [
        (concat!("EA", "AA"), 60),
        (concat!("gh", "p_"), 36),
        (concat!("AT", "BB"), 32),
        (concat!("AK", "Cp"), 69),
    ] {
        let tokens: Vec<String> = (0..5).map(|_| format!("{prefix}{}", l.take(ALNUM, len))).collect();
        for between in ["\n", "\r\n", " ", ",", ", "] {
            let out = redact_bytes(&secrets, tokens.join(between).as_bytes());
            let out = String::from_utf8_lossy(&out).into_owned();
            assert!(tokens.iter().all(|token| !out.contains(&token[8..])), "{out}");
            assert_eq!(out.matches("[REDACTED:").count(), 5, "{out}");
        }
    }
}

#[test]
fn a_token_after_a_line_of_base64_is_no_part_of_it() {
    let secrets = Arc::new(Secrets::none());
    let mut l = Letters(5);
    let tokens = [
        format!("{}{}", concat!("gh", "p_"), l.take(ALNUM, 36)),
        format!("{}{}", concat!("AK", "IA"), l.take(UPPER, 16)),
    ];
    for (width, token) in
        [60, 64, 72, 76].into_iter().flat_map(|width| tokens.iter().map(move |t| (width, t)))
    {
        let line = String::from_utf8(blob(77, BASE64, width)).unwrap();
        for (before, after) in [("\n", "\n"), ("\r\n", "\r\n"), ("\n", ""), ("\n", " x\n"), ("\nkeys/", "\n")]
        {
            let text = format!("{line}{before}{token}{after}");
            let out = String::from_utf8(redact_bytes(&secrets, text.as_bytes())).unwrap();
            assert!(out.starts_with(&line) && !out.contains(token.as_str()), "{width}: {out}");
            for at in 0..text.len() {
                let (head, tail) = text.as_bytes().split_at(at);
                assert_eq!(in_pieces(&secrets, &[head, tail]), out.as_bytes(), "cut at {at}");
            }
        }
    }
}

#[test]
fn a_token_in_a_long_path_is_no_blob() {
    let secrets = Arc::new(Secrets::none());
    let mut l = Letters(6);
    let hub = format!("{}{}", concat!("gh", "p_"), l.take(ALNUM, 36));
    let cloud = format!("{}{}", concat!("AK", "IA"), l.take(UPPER, 16));
    for (path, token) in [
        ("/Users/Alice/Work2024/Deploy-Keys/", &hub),
        ("/Users/Alice/Work2024/DeployKeys/All/", &hub),
        ("/Users/Alice/Work2024/Deploy-Keys/", &cloud),
    ] {
        let out = String::from_utf8(redact_bytes(&secrets, format!("{path}{token}\n").as_bytes())).unwrap();
        assert!(out.starts_with(path) && !out.contains(token.as_str()), "{out}");
    }
}
