//! Everyday lines of code, packages and settings: what stays of them, and what goes.

use std::sync::Arc;

use ctx_host::shell::text::redact::{Secrets, redact_text};

use crate::text_redact_corpus::{ALNUM, HEX, Letters, Sample, URL, not_harmed, sample};

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
        .chain(tokens())
        .collect()
}

/// Tokens of services; the prefix is put together here, so that no scanner takes this file for a leak.
fn tokens() -> Vec<Sample> {
    let mut l = Letters(67);
    let rows: [(&'static str, [&str; 2], &str, usize); 9] = [
        ("jina-key", ["ji", "na_"], ALNUM, 60),
        ("e2b-key", ["e2", "b_"], HEX, 40),
        ("firecrawl-key", ["f", "c-"], HEX, 32),
        ("xata-key", ["xa", "u_"], ALNUM, 43),
        ("polar-token", ["polar", "_oat_"], ALNUM, 43),
        ("paddle-key", ["pdl_live", "_apikey_"], ALNUM, 54),
        ("flutterwave-key", ["FLW", "SECK-"], HEX, 32),
        ("honeycomb-key", ["hc", "aik_"], ALNUM, 58),
        ("bitcoin-key", ["xp", "rv"], ALNUM, 107),
    ];
    let token = |(kind, prefix, alphabet, count): (&'static str, [&str; 2], &str, usize)| {
        sample(kind, "found ", format!("{}{}", prefix.concat(), l.take(alphabet, count)), " there\n")
    };
    let mut samples: Vec<Sample> = rows.into_iter().map(token).collect();
    let uuid = [8, 4, 4, 4, 12].map(|count| l.take(HEX, count)).join("-");
    let pat = format!("{}{}", concat!("gh", "p_"), l.take(ALNUM, 36));
    samples.push(sample("github-token", "of sha256:", pat, " and more\n"));
    samples.push(sample("openvsx-token", "found ", format!("{}{uuid}", concat!("ovs", "xat_")), " there\n"));
    samples
}

const SECRETS: &[Row] = &[
    // Not what it looks like
    ("password", "DB_PASSWORD=", "0xuL4BiUONrH", "\n"),
    ("password", "password: \"", "0xK3m9Qz1", "\"\n"),
    ("password", "password = \"", "correct-horse", "\"\n"),
    ("password", "DB_PASSWORD=\"", "password-horse", "\"\n"),
    ("password", "std::string password = \"", MADE, "\";\n"),
    ("password", "Config::password = \"", MADE, "\";\n"),
    ("password", "profile::mysql::root_password: '", MADE, "'\n"),
    ("password", "mysql::server::root_password: ", MADE, "\n"),
    ("password", "self::PASSWORD => '", MADE, "'\n"),
    ("secret", "OSS_SK=", MADE, "\n"),
    ("url-password", "https://", TOKEN, ":@api.example.org/v1\n"),
    ("url-password", "https://", TOKEN, ":x-oauth-basic@git.example.org/x\n"),
    // YAML
    ("password", "password: |\n  ", MADE, "\n"),
    ("password", "db:\r\n  password: >-\r\n    ", MADE, "\r\n"),
    ("api-key", "+api_key: >-\n+  ", MADE, "\n"),
    ("password", "password: &a ", MADE, "\n"),
    ("password", "password: !!str ", MADE, " # of the shop\n"),
    ("password", "password: !!str \"", MADE, "\"\n"),
    // Code
    ("password", "pass: \"", MADE, "\"\n"),
    ("password", "auth: { user: 'a', pass: '", MADE, "' }\n"),
    ("password", "var dbPassword string = \"", MADE, "\"\n"),
    ("password", "password = String::from(\"", MADE, "\");\n"),
    ("password", "#define WIFI_PASSWORD \"", MADE, "\"\n"),
    ("password", "os.Setenv(\"DB_PASSWORD\", \"", MADE, "\")\n"),
    ("api-key", "os.Setenv(\"API_KEY\", \"", MADE, "\")\n"),
    ("token", "x = os.getenv('X_TOKEN','", MADE, "')\n"),
    ("password", "props.put('db.password','", MADE, "');\n"),
    ("password", "db.user(\"tom\").password(\"", MADE, "\")\n"),
    ("password", "source.setPassword(\"", MADE, "\");\n"),
    ("api-key", "API_KEY ?= ", MADE, "\n"),
    ("api-key", "API_KEY?=", MADE, "\n"),
    ("password", "\n        storePassword \"", MADE, "\"\n"),
    ("password", "define('NONCE_SALT', '", MADE, "');\n"),
    // Settings
    ("password", "SetEnv DB_PASSWORD ", MADE, "\n"),
    ("password", "    fastcgi_param  DB_PASSWORD  ", MADE, ";\n"),
    ("password", "ENV DB_PASSWORD ", MADE, "\n"),
    ("api-key", "<string name=\"api_key\">", MADE, "</string>\n"),
    ("password", "<entry key='db.password'>", MADE, "</entry>\n"),
    ("password", "<param type=\"x\" name=\"password\">", MADE, "</param>\n"),
    ("password", "<key>password</key>\n\t<string>", MADE, "</string>\n"),
    ("secret", "export REDISCLI_AUTH=", MADE, "\n"),
    ("api-key", "PresharedKey = ", "Kx7pQ2mZ9wLpKx7pQ2mZ9wLpKx7pQ2mZ9wLpKx7pQ2m=", "\n"),
    ("api-key", "pre_shared_key: ", MADE, "\n"),
    // What programs tell people
    ("api-key", "Your API key: ", MADE, "\n"),
    ("api-key", "Secret key: ", TOKEN, "\n"),
    ("api-key", "Unseal Key 1: ", "Kx7pQ2mZ9wLpKx7pQ2mZ9wLpKx7pQ2mZ9wLpKx7pQ2m=", "\n"),
    ("password", "Password for user tom: ", MADE, "\n"),
    ("password", "Password for 'elastic': ", MADE, "\n"),
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
fn a_constant_is_told_from_random_letters_that_end_alike() {
    let secrets = Arc::new(Secrets::none());
    let hidden = redact_text(&secrets, "API_TOKEN=\"xkcdqwpoizmvn-token\"\n");
    assert_eq!(hidden, "API_TOKEN=\"[REDACTED:token]\"\n");
}

#[test]
fn what_is_no_secret_in_everyday_lines_is_not_harmed() {
    not_harmed(LOOK_ALIKES);
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
    // YAML, forms and messages without a secret
    "password: |\n  The password of the 2nd user.\ntoken: >-\n  see chapter4 of the book\nsecret: |\n  $(cat x1y2z3w4)\n",
    "fn f(token: &mut Token12345, password: &dyn Pass1) {}\ntoken: &Token12345,\npassword: &a password\nkey: |x1| x1\n",
    "pass: \"test_login_2\"\npass: 'ok 12'\n{pass: \"12\", fail: \"0\"}\npass: \"2 of 3\"\n",
    "<string name=\"password\">Passwort</string> <string name=\"enter_password\">Kennwort eingeben</string>\n",
    "<label for=\"password\">x1y2z3w4</label> <key>password</key><string>Passwort</string> <key>password</key><true/>\n",
    "#define PASSWORD_MAX 128\n#define ERR_PASSWORD \"bad password\"\n#define TOKEN_PASSWORD 12345678\n#define X_PASSWORD \"%s1\"\n",
    "Password for user tom: \nPassword for the 2nd user: required\nEnter PASSWORD twice\npassword (again):\nPassword for tom: ${x1}\n",
    "getString(\"password\", \"Passwort\")\nrow(\"password\", \"VARCHAR(20)\")\nf.password(\"the password\")\nx.setPassword(password1)\n",
    "get(\"password\", user1)\nlabel.password('auth.password2')\n[\"user\", \"password\", \"email2\"]\nvar password string = \"\"\n",
    "os.getenv(\"API_KEY\", \"no key\")\nos.getenv(\"X_TOKEN\", \"none\")\ngetenv('SORT_KEY', 'Kx7pQ2mZ9wLp')\nos.getenv(\"API_KEY\", key1)\n",
    "os.Setenv(\"TOKEN\", \"my-token\")\nos.getenv(\"TOKEN_URL\", \"https://x1.example.org\")\nos.getenv(\"API_TOKEN\", f\"{x1}\")\n",
    "ENV DB_PASSWORD $X1\nSetEnv PASSWORD_FILE /run/x1\nthe ENV DB_PASSWORD is 1st of all\nENV PASSWORD ${A:-b1}\n",
    "API key: missing\nAccess key: Alt+1\nSecret key: required in v2.1\nAPI Key: <your key 1>\nprimary key: Kx7pQ2mZ9wLp\n",
    "password?: string\ntoken ?: Token1234\ntoken ?= $(shell get-token1)\nSERVER_AUTH=12345678\n",
    "e2b_template_of_the_day fc-cache fc-list fc-match-2 jina_embeddings_v2_base_en xau_ polar_oat_xxx xprv hcaik_x ovsxat_x\n",
];
