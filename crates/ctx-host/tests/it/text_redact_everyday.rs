//! Everyday lines of code, packages and settings: what stays of them, and what goes.

use std::sync::Arc;

use ctx_host::shell::text::redact::{Secrets, redact_bytes, redact_text};

use crate::text_redact_corpus::{ALNUM, Letters, Sample, URL, among_much, sample};

/// A password as people let one be made.
const MADE: &str = "Kx7pQ2mZ9wLp";
/// A token of no known shape.
const TOKEN: &str = "3f786850e387550fdab836ed7e6dc881de23001b";

/// The kind, what stands before the secret, the secret, and what stands behind it.
type Row = (&'static str, &'static str, &'static str, &'static str);

pub(crate) fn samples() -> Vec<Sample> {
    SECRETS
        .iter()
        .map(|(kind, before, secret, after)| sample(kind, before, (*secret).to_owned(), after))
        .collect()
}

const SECRETS: &[Row] = &[
    // Not what it looks like
    ("password", "DB_PASSWORD=", "0xuL4BiUONrH", "\n"),
    ("password", "password: \"", "0xK3m9Qz1", "\"\n"),
    ("password", "password = \"", "correct-horse", "\"\n"),
    ("password", "DB_PASSWORD=\"", "password-horse", "\"\n"),
    ("password", "std::string password = \"", MADE, "\";\n"),
    ("password", "Config::password = \"", MADE, "\";\n"),
    ("secret", "OSS_SK=", MADE, "\n"),
    ("url-password", "https://", TOKEN, ":@api.example.org/v1\n"),
    ("url-password", "https://", TOKEN, ":x-oauth-basic@git.example.org/x\n"),
];

#[test]
fn a_user_who_is_a_token_goes_and_what_stands_for_the_password_stays() {
    let secrets = Arc::new(Secrets::none());
    for (text, want) in [
        (format!("https://{TOKEN}:@h/x\n"), "https://[REDACTED:url-password]:@h/x\n"),
        (format!("https://{TOKEN}:x@h/x\n"), "https://[REDACTED:url-password]:x@h/x\n"),
        (format!("https://tom:{TOKEN}@h/x\n"), "https://tom:[REDACTED:url-password]@h/x\n"),
        ("https://tom:@h/x\n".to_owned(), "https://tom:@h/x\n"),
    ] {
        assert_eq!(redact_text(&secrets, &text), want);
    }
}

#[test]
fn what_is_no_secret_in_everyday_lines_is_not_harmed() {
    let secrets = Arc::new(Secrets::none());
    for text in LOOK_ALIKES {
        assert_eq!(redact_text(&secrets, text), *text);
        let much = among_much(text);
        assert_eq!(redact_bytes(&secrets, much.as_bytes()), much.as_bytes());
    }
}

/// Whatever a digest begins a token with: as in the list of files of a package, and as a browser is given one.
#[test]
fn a_digest_is_not_harmed_where_a_token_seems_to_begin() {
    let secrets = Arc::new(Secrets::none());
    let mut l = Letters(61);
    for before in 0..9 {
        for prefix in ["fw_", "r8_", "hf_", "vcp_", "gsk_", "npm_"] {
            let digest = format!("{}-{prefix}{}", l.take(URL, before), l.take(ALNUM, 40));
            for label in ["sha256=", "sha256-", "sha512-", "sha384:", "x,sha256="] {
                let text = format!("a/b.py,{label}{digest},160\n");
                assert_eq!(redact_text(&secrets, &text), text);
            }
            let token = format!("key-{prefix}{}", l.take(ALNUM, 40));
            assert!(!redact_text(&secrets, &format!("{token}\n")).contains(&token), "{token}");
        }
    }
}

const LOOK_ALIKES: &[&str] = &[
    // Constants that say their own names
    "const ACCESS_TOKEN = 'access_token';\nFETCH_USER_TOKEN = 'FETCH_USER_TOKEN'\nCSRF_TOKEN = \"csrf-token\"\n",
    "INVALID_TOKEN: 'auth/invalid-token'\nCLIENT_CREDENTIALS = \"client_credentials\"\nREFRESH_TOKEN = \"refresh_token\"\n",
    "ACL_CREDENTIALS = \"Access-Control-Allow-Credentials\"\nUSE_CREDENTIALS = 'use-credentials'\n",
    "FORCE_CHANGE_PASSWORD = \"FORCE_CHANGE_PASSWORD\"\nCHALLENGE_PASSWORD: \"challengePassword\"\n",
    "RESET_PASSWORD = \"RESET_PASSWORD_REQUEST\"\ndefine('ACCESS_TOKEN', 'access_token');\nDB_PASSWORD = \"spring.db.password\"\n",
    // Names of types and packages
    "\"AWS::IAM::AccessKey\": \"72c2d9dd90025459\",\nAWS::SecretsManager::Secret: 72c2d9dd90025459\n",
    "\"AWS::Config::AggregationAuthorization\": \"72c2d9dd90025459ab\",\n'Test2::Event::Pass'    => '1.302190',\n",
    // Keys of tables, languages and numbers
    "date_sk=20241116 customer_sk=10023455\n    'sk_sk':                 'sk_SK.ISO8859-2',\n",
    "password: 0x1F00\nTOKEN_PASS=0x1f00u32\nERR_PASSWORD=0xffff_0000UL;\n",
    // Texts that speak of commands, filled places and patterns
    "`mysql -p`, `sshpass -p`, `docker login -p` (also of podman), `redis-cli -a` and `curl -u` take one\n",
    "EAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\nsk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n",
    "my $Token = qr/[\\x21\\x23-\\x27\\x2A]/;\nmy $secret = qr{^[a-z0-9]+$};\n",
];
