//! Redaction of random text that is near to secrets: the cut of the reads changes nothing, and no secret gets through.

use std::sync::Arc;

use ctx_host::shell::text::redact::{Secrets, redact_bytes};
use proptest::prelude::*;

use crate::text_redact_corpus::{corpus, in_pieces};

/// Pieces that are near to secrets, so that random text meets the rules.
fn near_secrets() -> impl Strategy<Value = Vec<u8>> {
    let words = prop_oneof![
        Just("password".to_owned()),
        Just("token=".to_owned()),
        Just("\"secret\": \"".to_owned()),
        Just("://u:p@".to_owned()),
        Just(format!("-----BEGIN {}-----\n", concat!("PRI", "VATE KEY"))),
        Just(format!("-----END {}-----\n", concat!("PRI", "VATE KEY"))),
        Just("Authorization: Bearer ".to_owned()),
        Just("eyJhbGciOi1234.eyJ1234567890abc.".to_owned()),
        Just(concat!("gh", "p_").to_owned()),
        Just(concat!("AK", "IA").to_owned()),
        Just("needle-7-needle".to_owned()),
        Just("needle-7".to_owned()),
        Just("\u{1b}[31m".to_owned()),
        Just("--api-key ".to_owned()),
        Just("db_passwd1 = ".to_owned()),
        Just("Bearer ".to_owned()),
        Just("whsec_".to_owned()),
        Just("machine h login tom password ".to_owned()),
        Just("\nlocalhost:5432:shop:tom:".to_owned()),
        Just(":5432:".to_owned()),
        Just("$1$salt$".to_owned()),
        "[$]1[$][a-z]{8}[$][A-Za-z0-9./]{22}",
        Just("&sig=".to_owned()),
        Just("DB_PASSWORD=x1".to_owned()),
        Just("- name: DB_PASSWORD\n  value: ".to_owned()),
        Just("\n+ - name: DB_PASSWORD # x1\n+   # y2\n\u{1b}[32m+   value: ".to_owned()),
        Just("\nf.yml:3: name: API_TOKEN\nf.yml-4- value: >-\n".to_owned()),
        Just("<name>DB_PASSWORD</name>\n<value>".to_owned()),
        Just("{\"name\":\"API_TOKEN\",\"type\":\"x\",\"value\":\"".to_owned()),
        Just("FERNET_KEY=".to_owned()),
        Just("pass=12".to_owned()),
        Just("\nmy_password   ".to_owned()),
        Just("with password '".to_owned()),
        Just("IDENTIFIED BY '".to_owned()),
        Just("curl -b sid=".to_owned()),
        Just("\"Cookie\": \"a=".to_owned()),
        Just("oc login -p ".to_owned()),
        Just("password: &str = \"x1".to_owned()),
        Just("token: Some(\"".to_owned()),
        Just("value".to_owned()),
        Just("MY_PASSWORD: ".to_owned()),
        Just("redis-cli -a ".to_owned()),
        Just("<password>".to_owned()),
        Just("correct horse 9 ".to_owned()),
        Just("&user=".to_owned()),
        Just("-us12".to_owned()),
        "[a-f0-9]{32}",
        "[A-Za-z]{10,24}",
        "[&;,<>@]{1,2}",
        Just("-----------".to_owned()),
        "[A-Za-z0-9]{1,40}",
        "[ =:\"'\\\\\n\r\t<>@/.-]{1,3}",
        "[A-Z0-9]{16}",
    ];
    prop::collection::vec(
        prop_oneof![6 => words.prop_map(String::into_bytes), 1 => prop::collection::vec(any::<u8>(), 0..8)],
        0..30,
    )
    .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_cut_of_the_reads_changes_nothing(bytes in near_secrets(), cuts in prop::collection::vec(0usize..400, 0..12)) {
        let secrets = Arc::new(Secrets::from_env([("X_TOKEN", "needle-7-needle"), ("Y_KEY", "needle-7-nothing")]));
        let whole = redact_bytes(&secrets, &bytes);
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
        cuts.push(0);
        cuts.push(bytes.len());
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|two| &bytes[two[0]..two[1]]).collect();
        prop_assert_eq!(in_pieces(&secrets, &pieces), whole);
    }

    #[test]
    fn much_at_once_is_what_little_by_little_is(parts in prop::collection::vec(near_secrets(), 1..24), size in 1usize..200) {
        let secrets = Arc::new(Secrets::from_env([("X_TOKEN", "needle-7-needle"), ("Y_KEY", "needle-7-nothing")]));
        let bytes = parts.join(&b" --ordinary words, and "[..]);
        let pieces: Vec<&[u8]> = bytes.chunks(size).collect();
        let (at_once, little) = (redact_bytes(&secrets, &bytes), in_pieces(&secrets, &pieces));
        prop_assert_eq!(String::from_utf8_lossy(&at_once), String::from_utf8_lossy(&little));
    }

    #[test]
    fn any_bytes_are_taken(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        let secrets = Arc::new(Secrets::from_env([("ODD_KEY", &bytes[..bytes.len().min(40)])]));
        let out = redact_bytes(&secrets, &bytes);
        prop_assert!(out.len() <= bytes.len() * 4 + 64);
    }

    #[test]
    fn a_secret_on_a_line_of_its_own_never_gets_through(before in near_secrets(), after in near_secrets(), pick in any::<prop::sample::Index>()) {
        let secrets = Arc::new(Secrets::none());
        let corpus = corpus();
        let sample = &corpus[pick.index(corpus.len())];
        let text = [&before[..], b"\n", sample.line.as_bytes(), b"\n", &after].concat();
        let out = redact_bytes(&secrets, &text);
        let got_through = out.windows(sample.secret.len()).any(|window| window == sample.secret.as_bytes());
        prop_assert!(!got_through, "{} got through", sample.kind);
    }
}
