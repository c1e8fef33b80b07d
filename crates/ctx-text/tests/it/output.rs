//! A whole stream: redacted bytes for the disk, clean text within the budget for the answer.

use std::sync::Arc;

use ctx_text::budget::{Budget, Plan};
use ctx_text::output::{Finished, OutputStream};
use ctx_text::redact::Secrets;
use proptest::prelude::*;
use testkit::tokens::EXAMPLES;

fn stream(plan: &Plan, reads: &[&[u8]]) -> (Vec<u8>, Finished) {
    let secrets = Arc::new(Secrets::from_env([("MY_TOKEN", "needle-in-hay-7")]));
    let mut output = OutputStream::new(secrets, plan);
    let mut stored = Vec::new();
    for read in reads {
        output.push(read, &mut |bytes| stored.extend_from_slice(bytes));
    }
    let finished = output.finish();
    stored.extend_from_slice(&finished.rest);
    (stored, finished)
}

#[test]
fn bytes_are_stored_redacted_and_text_is_clean() {
    let (stored, finished) =
        stream(&Plan::default(), &[b"\x1b[31mred\x1b[0m needle-in-", b"hay-7 \xff 1%\r2%\n"]);
    assert_eq!(stored, b"\x1b[31mred\x1b[0m [REDACTED:env:MY_TOKEN] \xff 1%\r2%\n");
    assert_eq!(finished.kept.text, "2%d [REDACTED:env:MY_TOKEN] \u{fffd} 1%\n");
    assert_eq!(finished.redactions, 1);
}

#[test]
fn a_secret_torn_apart_by_colours_does_not_reach_the_text() {
    let (_, finished) =
        stream(&Plan::default(), &[b"x needle-\x1b[31min-\x1b[0mhay-7 y\npass\x08\x08ssword=abc123xyz\n"]);
    assert_eq!(finished.kept.text, "x [REDACTED:env:MY_TOKEN] y\npassword=[REDACTED:password]\n");
}

#[test]
fn a_token_with_colours_anywhere_in_it_does_not_reach_the_text() {
    for (kind, token) in EXAMPLES {
        for at in (1..token.len()).filter(|at| token.is_char_boundary(*at)) {
            let (before, behind) = token.split_at(at);
            let (found, behind) = behind.split_at(behind.len().min(3));
            let torn = format!("x {before}\u{1b}[01;31m\u{1b}[K{found}\u{1b}[m\u{1b}[K{behind} y\n");
            let (_, finished) = stream(&Plan::default(), &[torn.as_bytes()]);
            let shown = finished.kept.text;
            let end = &token[token.len() - 8..];
            assert!(shown.contains("[REDACTED:") && !shown.contains(end), "{kind}: {torn:?}: {shown}");
        }
    }
    let (_, finished) = stream(
        &Plan::default(),
        &[b"AccountKey=abc12345\x1b[31mXYZ\x1b[m0123;x=1 \x1b[1mAPI_TOKEN=abc12345\x1b[0m ok\n"],
    );
    let want = "AccountKey=[REDACTED:api-key];x=1 API_TOKEN=[REDACTED:token] ok\n";
    assert_eq!(finished.kept.text, want);
}

#[test]
fn the_whole_output_is_stored_whatever_the_budget_hides() {
    let budget: Budget = serde_json::from_str(r#"{"keep":{"mode":"tail","n":1}}"#).expect("a budget");
    let (stored, finished) = stream(&budget.plan().expect("a plan"), &[b"a\nb\n", b"c\n"]);
    assert_eq!(stored, b"a\nb\nc\n");
    assert_eq!(finished.kept.text, "[… 2 lines …]\nc\n");
    assert!(finished.kept.truncated);
}

#[test]
fn binary_output_becomes_valid_text() {
    let noise: Vec<u8> = (0..200_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let (_, finished) = stream(&Plan::default(), &[&noise]);
    assert!(finished.kept.text.chars().count() <= 100);
}

proptest! {
    #[test]
    fn the_reads_do_not_matter(bytes in prop::collection::vec(any::<u8>(), 0..600), cut in 0usize..600) {
        let plan = Plan::default();
        let (first, second) = bytes.split_at(cut.min(bytes.len()));
        prop_assert_eq!(stream(&plan, &[first, second]), stream(&plan, &[&bytes]));
    }
}
