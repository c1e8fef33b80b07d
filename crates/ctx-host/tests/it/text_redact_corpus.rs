//! Real-shaped secrets of many kinds, each in the line it would stand in, and the ways to have a text redacted. The tests
//! themselves are in the other files on redaction.
//!
//! The secrets are put together from parts while the tests run, so that no scanner takes this file for a leak.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use std::sync::{Arc, LazyLock};

use ctx_host::shell::text::redact::{Redactor, Secrets, redact_bytes, redact_text};

pub(crate) const HEX: &str = "0123456789abcdef";
pub(crate) const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
pub(crate) const ALNUM: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
pub(crate) const URL: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
pub(crate) const BASE64: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// A small generator: the same corpus on every run.
pub(crate) struct Letters(pub u64);

impl Letters {
    pub fn take(&mut self, alphabet: &str, count: usize) -> String {
        let letters: Vec<char> = alphabet.chars().collect();
        let mut text = String::new();
        for index in 0..count {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = usize::try_from(self.0 >> 33).unwrap() % letters.len();
            // A digit now and then, as any random token of that length has.
            text.push(if index % 7 == 3 {
                letters.iter().copied().filter(char::is_ascii_digit).nth(at % 6).unwrap()
            } else {
                letters[at]
            });
        }
        text
    }
}

/// One real-shaped secret in the line it would stand in.
pub(crate) struct Sample {
    pub kind: &'static str,
    pub line: String,
    /// What must not get through.
    pub secret: String,
}

pub(crate) fn sample(kind: &'static str, before: &str, secret: String, after: &str) -> Sample {
    Sample { kind, line: format!("{before}{secret}{after}"), secret }
}

/// The kind of a token, its prefix, and how many letters of which kind follow it.
pub(crate) type TokenRow = (&'static str, Vec<&'static str>, &'static str, usize);

pub(crate) fn token_rows() -> Vec<TokenRow> {
    vec![
        ("aws-access-key", vec!["AK", "IA"], UPPER, 16),
        ("aws-access-key", vec!["AS", "IA"], UPPER, 16),
        ("aws-bedrock-key", vec!["AB", "SKQmVkcm9ja0FQSUtleS1"], BASE64, 110),
        ("google-api-key", vec!["AI", "za"], URL, 35),
        ("google-oauth-token", vec!["ya", "29."], URL, 60),
        ("google-client-secret", vec!["GOC", "SPX-"], URL, 28),
        ("digitalocean-token", vec!["dop", "_v1_"], HEX, 64),
        ("alibaba-access-key", vec!["LT", "AI"], ALNUM, 20),
        ("github-token", vec!["gh", "p_"], ALNUM, 36),
        ("github-token", vec!["gh", "o_"], ALNUM, 36),
        ("github-token", vec!["gh", "s_"], ALNUM, 36),
        ("github-token", vec!["github", "_pat_"], ALNUM, 82),
        ("gitlab-token", vec!["gl", "pat-"], URL, 20),
        ("gitlab-token", vec!["gl", "rt-"], URL, 20),
        ("gitlab-token", vec!["gl", "agent-"], URL, 50),
        ("bitbucket-token", vec!["AT", "BB"], ALNUM, 32),
        ("jfrog-token", vec!["AK", "Cp"], ALNUM, 69),
        ("sonar-token", vec!["sq", "p_"], HEX, 40),
        ("nvidia-key", vec!["nv", "api-"], URL, 64),
        ("langsmith-key", vec!["ls", "v2_pt_"], HEX, 43),
        ("supabase-token", vec!["sb_", "secret_"], URL, 31),
        ("private-key", vec!["LS0tLS1CRUdJTi", "BSU0EgUFJJVkFURSBLRVkt"], BASE64, 400),
        ("private-key", vec!["LS0tLS1CRUdJTi", "BQUklWQVRFIEtFWS0t"], BASE64, 400),
        ("private-key", vec!["LS0tLS1CRUdJTi", "BFTkNSWVBURUQgUFJJVkFURSBLRVktLS0tLQ"], BASE64, 400),
        ("cerebras-key", vec!["cs", "k-"], ALNUM, 48),
        ("tavily-key", vec!["tv", "ly-"], ALNUM, 32),
        ("tavily-key", vec!["tv", "ly-dev-"], URL, 32),
        ("grafana-token", vec!["gl", "c_eyJvIjoiMTIzNDU2Ii"], BASE64, 140),
        ("grafana-token", vec!["gl", "c_"], ALNUM, 44),
        ("sentry-token", vec!["sn", "trys_eyJpYXQiOjE2"], BASE64, 140),
        ("npm-token", vec!["np", "m_"], ALNUM, 36),
        ("pypi-token", vec!["py", "pi-AgE"], URL, 150),
        ("rubygems-token", vec!["ruby", "gems_"], HEX, 48),
        ("crates-io-token", vec!["ci", "o"], ALNUM, 32),
        ("docker-token", vec!["dckr", "_pat_"], URL, 27),
        ("anthropic-key", vec!["sk-", "ant-api03-"], URL, 93),
        ("openrouter-key", vec!["sk-", "or-v1-"], HEX, 64),
        ("openai-key", vec!["sk-", "proj-"], URL, 120),
        ("openai-key", vec!["s", "k-"], ALNUM, 48),
        ("huggingface-token", vec!["h", "f_"], ALNUM, 34),
        ("groq-key", vec!["gs", "k_"], ALNUM, 52),
        ("xai-key", vec!["xa", "i-"], ALNUM, 80),
        ("replicate-token", vec!["r", "8_"], ALNUM, 37),
        ("slack-token", vec!["xo", "xb-"], URL, 50),
        ("slack-token", vec!["xo", "xp-"], URL, 70),
        ("slack-token", vec!["xa", "pp-1-"], URL, 60),
        ("slack-webhook", vec!["https://hooks.sla", "ck.com/services/T0"], ALNUM, 40),
        ("mailgun-key", vec!["ke", "y-"], HEX, 32),
        ("twilio-key", vec!["S", "K"], HEX, 32),
        ("stripe-key", vec!["sk_", "live_"], ALNUM, 24),
        ("stripe-key", vec!["rk_", "test_"], ALNUM, 24),
        ("stripe-webhook-secret", vec!["wh", "sec_"], ALNUM, 32),
        ("shopify-token", vec!["shp", "at_"], HEX, 32),
        ("square-token", vec!["sq0", "atp-"], URL, 22),
        ("square-token", vec!["EA", "AA"], ALNUM, 60),
        ("databricks-token", vec!["da", "pi"], HEX, 32),
        ("vault-token", vec!["hv", "s."], URL, 90),
        ("pulumi-token", vec!["pu", "l-"], HEX, 40),
        ("doppler-token", vec!["dp.", "pt."], ALNUM, 43),
        ("tailscale-key", vec!["ts", "key-auth-"], URL, 40),
        ("grafana-token", vec!["gl", "sa_"], ALNUM, 41),
        ("newrelic-key", vec!["NR", "AK-"], UPPER, 27),
        ("sentry-token", vec!["sn", "tryu_"], HEX, 64),
        ("buildkite-token", vec!["bk", "ua_"], HEX, 40),
        ("circleci-token", vec!["CCI", "PAT_"], ALNUM, 63),
        ("planetscale-token", vec!["pscale", "_tkn_"], URL, 43),
        ("supabase-token", vec!["sb", "p_"], HEX, 40),
        ("linear-key", vec!["lin", "_api_"], ALNUM, 40),
        ("notion-token", vec!["nt", "n_"], ALNUM, 46),
        ("notion-token", vec!["sec", "ret_"], ALNUM, 43),
        ("figma-token", vec!["fi", "gd_"], URL, 43),
        ("atlassian-token", vec!["ATA", "TT3"], URL, 180),
        ("age-key", vec!["AGE-", "SECRET-KEY-1"], UPPER, 58),
        ("fly-token", vec!["fo", "1_"], URL, 43),
        ("tencent-secret-id", vec!["AK", "ID"], ALNUM, 32),
        ("vercel-token", vec!["vercel", "_blob_rw_"], ALNUM, 48),
        ("vercel-token", vec!["vc", "p_"], ALNUM, 56),
        ("dropbox-token", vec!["s", "l."], URL, 135),
        ("neon-key", vec!["na", "pi_"], ALNUM, 64),
        ("jfrog-token", vec!["cmVm", "dGtu"], ALNUM, 56),
        ("fireworks-key", vec!["f", "w_"], ALNUM, 24),
        ("posthog-key", vec!["ph", "x_"], URL, 43),
        ("google-api-key", vec!["AQ", ".Ab8RN6"], URL, 44),
        ("aws-session-token", vec!["IQoJb3Jp", "Z2luX2VjEP3//////////wEaCXVzLWVhc3Q"], BASE64, 300),
        ("vercel-token", vec!["vc", "a_"], ALNUM, 56),
        ("vercel-token", vec!["vc", "k_"], ALNUM, 56),
        ("cloudflare-key", vec!["cf", "ut_"], ALNUM, 48),
        ("cloudflare-key", vec!["cf", "at_"], ALNUM, 48),
        ("cloudflare-key", vec!["cf", "k_"], ALNUM, 48),
        ("gitlab-token", vec!["gl", "rtr-"], URL, 26),
        ("gitlab-token", vec!["gl", "wt-"], URL, 26),
        ("gitlab-token", vec!["gl", "ffct-"], URL, 26),
        ("gitlab-token", vec!["GR", "1348941"], URL, 20),
        ("elevenlabs-key", vec!["s", "k_"], HEX, 48),
        ("wandb-key", vec!["wan", "db_v1_"], ALNUM, 77),
        ("together-key", vec!["tg", "p_v1_"], URL, 43),
        ("cursor-key", vec!["cr", "sr_"], HEX, 64),
        ("slack-webhook", vec!["https://hooks.sla", "ck.com/triggers/T0"], ALNUM, 40),
        ("slack-webhook", vec!["https://hooks.sla", "ck.com/workflows/T0"], ALNUM, 40),
        ("stripe-key", vec!["sk_", "org_live_"], ALNUM, 200),
        ("doppler-token", vec!["dp.", "ct."], ALNUM, 43),
        ("doppler-token", vec!["dp.", "sa."], ALNUM, 43),
        ("newrelic-key", vec!["NR", "II-"], URL, 32),
        ("netlify-token", vec!["nf", "c_"], ALNUM, 40),
        ("linear-key", vec!["lin", "_oauth_"], HEX, 64),
        ("atlassian-token", vec!["ATC", "TT3"], URL, 180),
        ("openshift-token", vec!["sha", "256~"], URL, 43),
    ]
}

fn tokens(l: &mut Letters) -> Vec<Sample> {
    let before = ["", "found ", "value=", "\"", "\t", "(", "a=b;x:", "\u{1b}[32m", "line\\n", "q=%3D"];
    let mut samples = Vec::new();
    for (kind, prefix, alphabet, count) in token_rows() {
        for (index, before) in before.iter().enumerate() {
            let secret = format!("{}{}", prefix.concat(), l.take(alphabet, count));
            let after = ["\n", " ok\n", "\"\n", ")\r\n", ""][index % 5];
            samples.push(sample(kind, before, secret, after));
        }
    }
    samples
}

fn parted(l: &mut Letters) -> Vec<Sample> {
    let jwt = |l: &mut Letters| {
        format!(
            "{}{}.{}{}.{}",
            concat!("ey", "J"),
            l.take(URL, 33),
            concat!("ey", "J"),
            l.take(URL, 120),
            l.take(URL, 43)
        )
    };
    let discord =
        format!("{}{}.{}.{}", concat!("M", "T"), l.take(ALNUM, 24), l.take(URL, 6), l.take(URL, 38));
    let sendgrid = format!("{}{}.{}", concat!("S", "G."), l.take(URL, 22), l.take(URL, 43));
    let postman = format!("{}{}-{}", concat!("PM", "AK-"), l.take(HEX, 24), l.take(HEX, 34));
    let airtable = format!("{}{}.{}", concat!("pa", "t"), l.take(ALNUM, 14), l.take(HEX, 64));
    let uuid = |l: &mut Letters| [8, 4, 4, 4, 12].map(|count| l.take(HEX, count)).join("-");
    let hubspot = format!("{}{}", concat!("pa", "t-na1-"), uuid(l));
    let langfuse = format!("{}{}", concat!("sk", "-lf-"), uuid(l));
    let pinecone = format!("{}{}_{}", concat!("pc", "sk_"), l.take(ALNUM, 6), l.take(ALNUM, 63));
    let resend = format!("{}{}_{}", concat!("r", "e_"), l.take(ALNUM, 8), l.take(ALNUM, 24));
    let mapbox = format!("{}{}.{}", concat!("sk", ".eyJ"), l.take(URL, 80), l.take(URL, 22));
    let sentry =
        format!("{}{}_{}", concat!("sn", "trys_eyJpYXQiOjE3"), l.take(BASE64, 170), l.take(BASE64, 43));
    let swarm = format!("{}{}-{}", concat!("SWM", "TKN-1-"), l.take(ALNUM, 50), l.take(ALNUM, 25));
    let atlassian = format!("{}{}=0A1B2C3D", concat!("ATA", "TT3xFfGF0"), l.take(URL, 170));
    let webhook = format!("{}/{}", l.take("0123456789", 18), l.take(URL, 68));
    vec![
        sample("jwt", "token ", jwt(l), "\n"),
        sample("jwt", "{\"id\":\"", jwt(l), "\"}\n"),
        sample("discord-token", "bot ", discord, "\n"),
        sample("sendgrid-key", "mail ", sendgrid, "\n"),
        sample("postman-key", "", postman, "\n"),
        sample("airtable-token", "", airtable, "\n"),
        sample("hubspot-token", "", hubspot, "\n"),
        sample("langfuse-key", "trace ", langfuse, " ok\n"),
        sample("pinecone-key", "", pinecone, "\n"),
        sample("resend-key", "'", resend, "'\n"),
        sample("mapbox-token", "?access=", mapbox, "\n"),
        sample("mailchimp-key", "mail ", format!("{}-us12", l.take(HEX, 32)), "\n"),
        sample("mailchimp-key", "\"", format!("{}-us6", l.take(HEX, 32)), "\"\n"),
        sample("telegram-token", "bot 123456789:", format!("{}{}", concat!("A", "A"), l.take(URL, 33)), "\n"),
        sample("discord-webhook", concat!("https://discordap", "p.com/api/webhooks/"), webhook.clone(), "\n"),
        sample("discord-webhook", concat!("https://discord.co", "m/api/webhooks/"), webhook, "\n"),
        sample("swarm-token", "join ", swarm, " 10.0.0.1:2377\n"),
        sample("atlassian-token", "user ", atlassian, "\n"),
        sample("sentry-token", "auth ", sentry, "\n"),
        sample(
            "terraform-token",
            "aB3dE6gH9jK2mN",
            format!(".{}.{}", concat!("atlas", "v1"), l.take(ALNUM, 67)),
            "\n",
        ),
        sample("azure-sas", "?sv=2022-11-02&sig=", format!("{}%3D", l.take(BASE64, 43)), "&se=2030\n"),
        sample("azure-client-secret", "abc8", format!("{}{}", concat!("Q", "~"), l.take(URL, 33)), "\n"),
    ]
}

fn paired(l: &mut Letters) -> Vec<Sample> {
    let rows: Vec<(&'static str, &str, &str, usize, &str)> = vec![
        ("aws-secret-key", "aws_secret_access_key = ", BASE64, 40, "\n"),
        ("aws-secret-key", "AWS_SECRET_ACCESS_KEY=", BASE64, 40, "\n"),
        ("aws-secret-key", "\"SecretAccessKey\": \"", BASE64, 40, "\",\n"),
        ("azure-storage-key", "AccountName=x;AccountKey=", BASE64, 86, "==;End\n"),
        ("datadog-key", "DD_API_KEY=", HEX, 32, "\n"),
        ("datadog-key", "dd-api-key: ", HEX, 32, "\n"),
        ("twilio-token", "TWILIO_AUTH_TOKEN=", HEX, 32, "\n"),
        ("heroku-key", "HEROKU_API_KEY=", HEX, 36, "\n"),
        ("password", "password=", ALNUM, 9, "\n"),
        ("password", "PGPASSWORD=", ALNUM, 12, " psql\n"),
        ("password", "--password=", ALNUM, 9, "\n"),
        ("password", "mysql --password ", ALNUM, 9, " -u x\n"),
        ("password", "db_password: ", ALNUM, 14, "\n"),
        ("password", "{\"password\":\"", ALNUM, 8, "\"}\n"),
        ("password", "{\\\"password\\\":\\\"", ALNUM, 8, "\\\"}\n"),
        ("password", "'passwd' => '", ALNUM, 10, "'\n"),
        ("password", "<password>", ALNUM, 10, "</password>\n"),
        ("password", "\"password\"\u{1b}[0m\u{1b}[1;39m:\u{1b}[0m \u{1b}[32m\"", ALNUM, 11, "\"\n"),
        ("password", "Server=x;Pwd=", ALNUM, 10, ";Database=y\n"),
        ("password", "DB_PASS=", ALNUM, 10, "\n"),
        ("token", "?access_token=", ALNUM, 30, "&x=1\n"),
        ("token", "refresh_token: \"", ALNUM, 30, "\"\n"),
        ("token", "//registry.example.org/:_authToken=", ALNUM, 30, "\n"),
        ("secret", "client_secret=", ALNUM, 24, "\n"),
        ("api-key", "x-api-key: ", ALNUM, 24, "\n"),
        ("api-key", "apiKey: '", ALNUM, 24, "',\n"),
        ("authorization", "Authorization: Bearer ", ALNUM, 40, "\r\n"),
        ("authorization", "> authorization: Basic ", BASE64, 24, "\n"),
        ("authorization", "-H 'Authorization: token ", ALNUM, 40, "' x\n"),
        ("authorization", "\"Authorization\": \"", ALNUM, 40, "\"\n"),
        (
            "authorization",
            "Authorization: Digest username=\"Mufasa\", realm=\"a@b.org\", uri=\"/x\", response=\"",
            HEX,
            32,
            "\", opaque=\"x\"\n",
        ),
        (
            "authorization",
            "Authorization: AWS4-HMAC-SHA256 SignedHeaders=host;x-amz-date, Signature=",
            HEX,
            64,
            "\n",
        ),
        ("url-signature", "https://b.host/k?X-Amz-Expires=300&X-Amz-Signature=", HEX, 64, "&x=1\n"),
        ("url-signature", "https://b.host/k?x-goog-signature=", HEX, 512, "\n"),
        ("bearer-token", "use bearer ", ALNUM, 40, "\n"),
        ("url-password", "postgres://user:", ALNUM, 12, "@db:5432/x\n"),
        ("url-password", "git clone https://", ALNUM, 40, "@git.example.org/x\n"),
    ];
    rows.into_iter()
        .map(|(kind, before, alphabet, count, after)| sample(kind, before, l.take(alphabet, count), after))
        .collect()
}

fn blocks(l: &mut Letters) -> Vec<Sample> {
    let mut samples = Vec::new();
    for (label, header) in [
        ("RSA PRIVATE KEY", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\n"),
        ("OPENSSH PRIVATE KEY", ""),
        ("PRIVATE KEY", ""),
        ("EC PRIVATE KEY", ""),
        ("PGP PRIVATE KEY BLOCK", "Version: GnuPG v2\n\n"),
    ] {
        for newline in ["\n", "\r\n", "\\n", "\n    "] {
            let lines: Vec<String> = (0..20).map(|_| l.take(BASE64, 64)).collect();
            let body = format!("{}{}=", header.replace('\n', newline), lines.join(newline));
            let (begin, end) = (
                format!("-----BEGIN {label}-----{newline}"),
                format!("{newline}-----END {label}-----\nafter\n"),
            );
            let mut block = sample("private-key", &begin, body, &end);
            block.secret = lines[19].clone();
            samples.push(block);
        }
    }
    samples
}

/// Entries of credential files: `.netrc`, `.pgpass`, `/etc/shadow` and the like.
fn entries(l: &mut Letters) -> Vec<Sample> {
    const CRYPT: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789./";
    let before = [
        ("netrc-password", "machine git.example.org login tom password ", "\n"),
        ("netrc-password", "machine git.example.org\n\tlogin tom\n\tpassword ", "\nmachine other"),
        ("netrc-password", "machine h\r\n  login tom@example.org account a\r\n  password   ", "\r\n"),
        ("netrc-password", "default login tom password \"", "\"\n"),
        ("pgpass-password", "\nlocalhost:5432:shop:tom:", "\n"),
        ("pgpass-password", "\n*:*:*:tom_1:", "\r\nnext"),
        ("pgpass-password", "\nmydb.abc123.eu-west-1.rds.example.org:25060:*:app-user:", "\n"),
        ("pgpass-password", "\n/var/run/postgresql:5432:shop:tom:a\\:b", "\n"),
    ];
    let hashes = [
        ("root:", "$y$j9T$", 22, 43, ":19000:0:99999:7:::\n"),
        ("tom:", "$gy$j9T$", 22, 43, ":19000:0:99999:7:::\n"),
        ("tom:", "$6$", 16, 86, ":19000:0:99999:7:::\n"),
        ("hash ", "$6$rounds=65536$", 8, 86, "\n"),
        ("tom:", "$5$", 16, 43, ":19000::::::\n"),
        ("", "$5$rounds=5000$", 16, 43, "\n"),
        ("tom:", "$1$", 8, 22, "\n"),
        ("tom:", "$apr1$", 8, 22, "\n"),
    ];
    let mut samples: Vec<Sample> =
        before.map(|(kind, before, after)| sample(kind, before, l.take(ALNUM, 14), after)).into();
    for (before, prefix, salt, len, after) in hashes {
        let hash = format!("{prefix}{}${}", l.take(CRYPT, salt), l.take(CRYPT, len));
        samples.push(sample("password-hash", before, hash, after));
    }
    for version in ["2a", "2b", "2y"] {
        samples.push(sample("password-hash", "tom:", format!("${version}$12${}", l.take(CRYPT, 53)), "\n"));
    }
    samples
}

/// Secrets on command lines and in settings.
pub(crate) fn given(l: &mut Letters) -> Vec<Sample> {
    let rows: Vec<(&'static str, &str, &str, usize, &str)> = vec![
        ("password", "curl -u tom:", ALNUM, 9, " https://example.org/x\n"),
        ("password", "+ curl -sSfu tom:", ALNUM, 12, " 'https://example.org/?a=1&b=2'\n"),
        ("password", "curl 'https://example.org/?a=1&b=2' --user 'tom:", ALNUM, 12, "'\n"),
        ("password", "mysql -u root -p", ALNUM, 10, " shop\n"),
        ("password", "mysqldump -h db -p'", ALNUM, 10, "' shop\n"),
        ("password", "sshpass -p ", ALNUM, 10, " ssh tom@host\n"),
        ("password", "sshpass -p'", ALNUM, 10, "' ssh tom@host\n"),
        ("password", "docker login -u tom -p ", ALNUM, 14, " registry.example.org\n"),
        ("password", "requirepass ", ALNUM, 12, "\n"),
        ("password", "define('DB_PASSWORD', '", ALNUM, 12, "');\n"),
        ("password", "define( \"AUTH_KEY\" , \"", ALNUM, 32, "\" );\n"),
        ("password", "pass = ", ALNUM, 12, "\n"),
        ("password", "{\"user\":\"tom\",\"pass\":\"", ALNUM, 12, "\"}\n"),
        ("password", "\tpsk=", HEX, 64, "\n"),
        ("password", "psk=\"", ALNUM, 12, "\"\n"),
        ("password", "echo 'password = '\\''", ALNUM, 12, "'\\'''\n"),
        ("secret", "GITEA_PAT=", HEX, 40, "\n"),
        ("secret", "ADMIN_PW=", ALNUM, 12, "\n"),
        ("token", "ADMIN_TOKEN=", ALNUM, 12, "\n"),
        ("secret", "OSS_SK=", ALNUM, 30, "\n"),
        ("secret", "DB_CREDS=", ALNUM, 20, "\n"),
        ("secret", "  secret_key_base: ", HEX, 128, "\n"),
        ("cookie", "Set-Cookie: session=", ALNUM, 32, "; Path=/; HttpOnly\n"),
        ("cookie", "< set-cookie: _app_session=", ALNUM, 60, "; path=/\n"),
        ("cookie", "-H 'Cookie: lang=en; sid=", ALNUM, 32, "'\n"),
        ("okta-token", "found ", ALNUM, 0, ""),
        ("fcm-key", "AAAAabc123D:", ALNUM, 0, "\n"),
        ("token", "app.yml:3:token: ", HEX, 16, "\n"),
        ("api-key", ".env.yml:7:api_key: ", ALNUM, 24, "\n"),
        ("api-key", "log/curl.txt:12:X-Api-Key: ", ALNUM, 24, "\n"),
        ("password", "mysql -u root -p'a;", ALNUM, 8, "' shop\n"),
        ("password", "sshpass -p \"x & y, ", ALNUM, 8, "\" ssh tom@host\n"),
        ("password", "define('DB_PASSWORD', 'a;", ALNUM, 8, "');\n"),
    ];
    let mut samples: Vec<Sample> = rows
        .into_iter()
        .map(|(kind, before, alphabet, count, after)| match kind {
            "okta-token" => {
                sample(kind, before, format!("{} {}", concat!("SS", "WS"), l.take(URL, 42)), "\n")
            }
            "fcm-key" => sample(kind, before, format!("{}{}", concat!("APA", "91b"), l.take(URL, 134)), "\n"),
            _ => sample(kind, before, l.take(alphabet, count), after),
        })
        .collect();
    // tom:hunter2-hunter2 and the like
    for encoded in ["dG9tOmh1bnRlcjItaHVudGVyMg==", "cm9ib3QkY2k6QWJDMTIzZEVmNDU2"] {
        let before = "{\"auths\":{\"r.example.org\":{\"auth\": \"";
        samples.push(sample("docker-auth", before, encoded.to_owned(), "\"}}}\n"));
    }
    samples
}

pub(crate) fn corpus() -> &'static [Sample] {
    static CORPUS: LazyLock<Vec<Sample>> = LazyLock::new(|| {
        let mut l = Letters(42);
        let mut samples = tokens(&mut l);
        samples.extend(parted(&mut l));
        samples.extend(paired(&mut l));
        samples.extend(blocks(&mut l));
        samples.extend(entries(&mut l));
        samples.extend(given(&mut l));
        samples.extend(crate::text_redact_values::samples());
        samples.extend(crate::text_redact_settings::samples());
        samples.extend(crate::text_redact_everyday::samples());
        samples
    });
    &CORPUS
}

pub(crate) fn in_pieces(secrets: &Arc<Secrets>, pieces: &[&[u8]]) -> Vec<u8> {
    let mut redactor = Redactor::new(Arc::clone(secrets));
    let mut out = Vec::new();
    for piece in pieces {
        redactor.push(piece, &mut out);
    }
    redactor.finish(&mut out);
    out
}

/// Ordinary lines before and after a text, so many that it is looked at in bulk and not byte by byte.
pub(crate) fn among_much(text: &str) -> String {
    let line = "   Compiling serde_derive v1.0.229 (/home/tom/src/index/serde_derive-1.0.229)\n";
    format!("{}{text}\n{}", line.repeat(8), line.repeat(8))
}

/// Fails where a text without a secret does not stay as it is, alone or among much.
pub(crate) fn not_harmed(texts: &[&str]) {
    let secrets = Arc::new(Secrets::none());
    for text in texts {
        assert_eq!(redact_text(&secrets, text), *text);
        let much = among_much(text);
        assert_eq!(redact_bytes(&secrets, much.as_bytes()), much.as_bytes());
    }
}
