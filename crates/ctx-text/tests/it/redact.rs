//! Redaction by the table: a token of every kind goes, alone and in whatever stands around it, wherever the reads cut it.

use std::collections::BTreeSet;
use std::sync::Arc;

use ctx_text::redact::{Redactor, Secrets, redact_bytes, redact_text, token_kinds};
use testkit::tokens::EXAMPLES;

/// What comes out where the bytes come in pieces.
pub(crate) fn in_pieces<'a>(secrets: &Arc<Secrets>, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut redactor = Redactor::new(Arc::clone(secrets));
    let mut out = Vec::new();
    for piece in pieces {
        redactor.push(piece, &mut out);
    }
    redactor.finish(&mut out);
    out
}

#[track_caller]
fn check(text: &str, want: &str) {
    assert_eq!(redact_text(&Arc::new(Secrets::none()), text), want, "{text}");
}

/// The ways in which a token is printed, with `@` in its place.
const AROUND: &[&str] = &[
    "@",
    "@\n",
    "found @ there\n",
    "{\"id\":\"@\",\"n\":1}\n",
    "{\\\"id\\\":\\\"@\\\"}\n",
    "https://example.org/x?id=@&n=1\n",
    "https://example.org/@/x\n",
    "https://example.org/x?u=%3Fid%3D@%26n%3D1\n",
    "\u{1b}[32m@\u{1b}[0m ok\n",
    "\u{1b}[1;38;5;12m@\u{1b}[0m ok\n",
    "(@)\t<@>\r\n",
    "the first line\\n@\\nthe last\n",
    "b\"a\\x0a@\\x0a\"\n",
    "{\"m\":\"\\u001b[32m@\\u001b[0m\"}\n",
    "{\"u\":\"x\\u003d@\"}\n",
    "echo -e '\\e[32m@\\e[0m'\n",
    "printf '\\033[1;31m@\\033[0m'\n",
];

/// What is a token only up to a `/` or `%` has none behind it.
fn may_stand_in(kind: &str, around: &str) -> bool {
    let takes_slash = ["slack-webhook", "teams-webhook", "swarm-token", "azure-sas", "atlassian-token"];
    let ends_in_base64 =
        ["aws-bedrock-key", "aws-session-token", "fly-token", "grafana-token", "sentry-token"];
    let is_path = around.contains("/@/") || around.contains("@%");
    !is_path || !takes_slash.contains(&kind) && !ends_in_base64.contains(&kind) && !is_base64(kind)
}

fn is_base64(kind: &str) -> bool {
    ["1password-token", "intercom-token", "stripe-webhook-secret"].contains(&kind)
}

#[test]
fn every_kind_of_the_table_has_an_example() {
    let kinds: BTreeSet<&str> = token_kinds().collect();
    let examples: BTreeSet<&str> = EXAMPLES.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, examples);
    assert!(kinds.len() >= 100, "{} kinds", kinds.len());
}

#[test]
fn every_example_is_replaced_and_what_stands_around_it_stays() {
    for (kind, token) in EXAMPLES {
        for around in AROUND.iter().filter(|around| may_stand_in(kind, around)) {
            check(&around.replace('@', token), &around.replace('@', &format!("[REDACTED:{kind}]")));
        }
    }
}

#[test]
fn an_example_that_is_split_at_any_byte_is_replaced_alike() {
    let secrets = Arc::new(Secrets::none());
    for (kind, token) in EXAMPLES {
        let written = ["{\"m\":\"\\u001b[32m@\\u001b[0m\"}\n", "{\"u\":\"x\\u003d@\"}\n"];
        let plain = ["@", "found @ there\n", "{\"id\":\"@\"}\n", "\u{1b}[32m@\u{1b}[0m\n"];
        for around in plain.iter().chain(written.iter().filter(|around| may_stand_in(kind, around))) {
            let text = around.replace('@', token);
            let want = around.replace('@', &format!("[REDACTED:{kind}]"));
            for at in 0..=text.len() {
                let (first, second) = text.as_bytes().split_at(at);
                let out = in_pieces(&secrets, [first, second]);
                assert_eq!(String::from_utf8_lossy(&out), want, "{kind} split at {at}");
            }
            assert_eq!(in_pieces(&secrets, text.as_bytes().chunks(1)), want.as_bytes(), "{kind}");
        }
    }
}

#[test]
fn a_token_is_called_by_its_own_name_wherever_it_stands() {
    for (kind, token) in
        EXAMPLES.iter().filter(|(_, token)| token.starts_with("gh") || token.starts_with("sk-"))
    {
        let mark = format!("[REDACTED:{kind}]");
        check(&format!("GITHUB_TOKEN={token}\n"), &format!("GITHUB_TOKEN={mark}\n"));
        check(&format!("\"api_key\": \"{token}\",\n"), &format!("\"api_key\": \"{mark}\",\n"));
        check(
            &format!("git clone https://tom:{token}@host/x\n"),
            &format!("git clone https://tom:{mark}@host/x\n"),
        );
        check(&format!("git clone https://{token}@host/x\n"), &format!("git clone https://{mark}@host/x\n"));
        check(&format!("use {token}.\n"), &format!("use {mark}.\n"));
    }
    for start in ["ghp_", "ghs_", "github_pat_", "glpat-", "sk-ant-", "xoxb-", "sk_live_", "npm_"] {
        let Some((kind, token)) = EXAMPLES.iter().find(|(_, token)| token.starts_with(start)) else {
            panic!("no example of {start}")
        };
        check(
            &format!("backup_{token} ci-{token}\n"),
            &format!("backup_[REDACTED:{kind}] ci-[REDACTED:{kind}]\n"),
        );
    }
    let (host, token) = ("https://api.telegram.org", "bot123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsawX");
    check(&format!("{host}/{token}/getMe\n"), &format!("{host}[REDACTED:telegram-token]/getMe\n"));
}

#[test]
fn what_was_redacted_is_not_redacted_again() {
    let secrets = Arc::new(Secrets::none());
    for (_, token) in EXAMPLES {
        for around in AROUND.iter().chain(&["API_TOKEN=@\n", "Authorization: Bearer @\n", "Cookie: a=@\n"]) {
            let once = redact_bytes(&secrets, around.replace('@', token).as_bytes());
            assert_eq!(redact_bytes(&secrets, &once), once);
        }
    }
}

#[test]
fn what_only_looks_like_a_token_stays() {
    let hex = "3f786850e387550fdab836ed7e6dc881de23001b";
    for text in [
        "AKIAlooksliketext ASIAN KIAK eyJ eyJhb github_pattern ghp_short npm_lifecycle_script\n",
        "npm_config_registry npm_package_devDependencies_some_long_name_of_a_package vcr_cassettes_recorded_for_it\n",
        "sk-learn sk-toggleable__content sk-estimator-doc-link-and-some-more-words task-sk-x disk-usage\n",
        "re_export_of_everything_in_this_module secret_name secret_key_of_the_table key-value hf_hub_download\n",
        "pattern path pat.rs sha256~ SG.x dp.st.web api-gateway sdk-core sl.no cio.h oy2 1//0 -us -usage\n",
        "a word that begins earlier: xghp_0123456789012345678901234567890123456 MAKIAIOSFODNN7EXAMPLE\n",
        "AQ.Ab8RN6... NRII-xxxx sk_org_live_... xoxb-... https://hooks.slack.com/services/... hvs.<token>\n",
    ] {
        check(text, text);
    }
    for text in [
        format!("commit {hex}\nsha256:{hex}{hex}\nkey-{hex}\npul-{hex}f\nsk_{hex}\n"),
        format!("request 7f3a9c21-5b7e-4d7a-9d3e-1c2b3a4d5e6f of {hex}-usage\n"),
        format!("integrity sha512-{}==\n", "aB3+/xYz".repeat(11)),
        format!("<img src=\"data:image/png;base64,{}\">\n", "iVBORw0KGgo/A+aB3xYz".repeat(2000)),
    ] {
        check(&text, &text);
    }
}
