//! The table of secrets with a shape of their own, one row a shape, from the services' documentation.
//!
//! A row is an anchor that begins the secret (or the name before it) and the parts that follow. What is
//! told by the words around it (pairs, headers, URLs, key blocks) is in `around`.

use super::shape::Class::{Alnum, Base64, Crypt, Digit, Dotted, Hex, Percent, Tilde, Upper, Url, Word};
use super::shape::Part::{Lit, Open, Run};
use super::shape::{Class, Left, Need, Part};
use super::words::Words;

/// One shape of a secret. Without an anchor it begins with any two bytes of its first part, and is told by the fixed
/// piece behind that.
pub(super) struct Rule {
    pub kind: &'static str,
    pub anchor: &'static str,
    pub fold: bool,
    pub check: Check,
}

/// How a candidate is confirmed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Check {
    Shape {
        left: Left,
        parts: &'static [Part],
        need: Need,
    },
    /// A bot id of digits, then a colon: the anchor stands in the middle.
    AfterDigits {
        parts: &'static [Part],
    },
    /// `name=value`; the anchor ends the name, and `.0` must stand before it.
    Pair(PairName),
    /// `name: DB_PASSWORD`, then `value: …`: an entry of a list of variables.
    Listed,
    Authorization,
    Bearer,
    UrlUser,
    PemBlock,
    /// A block in base64 once more.
    EncodedKey,
    /// A private key of SSH2, whose rules have blanks behind their dashes.
    Ssh2Block,
    /// `X-Amz-Signature=…` in a URL.
    Signature,
    /// A private key as PuTTY keeps one.
    PuttyBlock,
    /// `password` and a value beside it without a separator, as in a `.netrc`; one of `before` stands before the anchor.
    Beside {
        before: &'static [u8],
    },
    /// A line of a `.pgpass` from its port on.
    PgPass,
    /// A command or a setting that a secret follows.
    Words(Words),
}

/// The names whose value is a secret, by the end of the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PairName {
    /// `…password`, `…passwd`, `…pwd`, `…pass`, `…passphrase`.
    Password { before: &'static [&'static str] },
    /// `…token`, `…secret`, `…credential`.
    Secret { before: &'static str },
    /// `pass` alone, besides `…_pass`.
    Pass,
    /// `…_pat`, `…_sk`, `…_pw`, `…creds`: short names, where the value must look random.
    Short,
    /// `…api_key`, `…secret_key` and the like: `key` alone is no secret. Of a variable's other keys the value decides.
    Key,
}

const fn shape(
    kind: &'static str,
    anchor: &'static str,
    left: Left,
    parts: &'static [Part],
    need: Need,
) -> Rule {
    Rule { kind, anchor, fold: false, check: Check::Shape { left, parts, need } }
}

/// A prefix nobody else uses: it is looked for inside words too.
const fn prefixed(kind: &'static str, anchor: &'static str, parts: &'static [Part]) -> Rule {
    shape(kind, anchor, Left::Any, parts, Need::Random)
}

/// A short prefix: only where a word may begin.
const fn word(kind: &'static str, anchor: &'static str, parts: &'static [Part]) -> Rule {
    shape(kind, anchor, Left::Edge, parts, Need::Random)
}

/// Sixteen capitals and digits: of thirty such ids one has no digit, and no word is written so.
const fn aws_id(anchor: &'static str) -> Rule {
    shape("aws-access-key", anchor, Left::Edge, &[Run(Upper, 16, 16)], Need::Nothing)
}

const fn around(kind: &'static str, anchor: &'static str, check: Check) -> Rule {
    Rule { kind, anchor, fold: true, check }
}

const fn pair(kind: &'static str, anchor: &'static str, name: PairName) -> Rule {
    around(kind, anchor, Check::Pair(name))
}

/// What `crypt` makes of a password.
const fn crypt(anchor: &'static str, parts: &'static [Part]) -> Rule {
    shape("password-hash", anchor, Left::Any, parts, Need::Nothing)
}

const fn words(kind: &'static str, anchor: &'static str, words: Words) -> Rule {
    Rule { kind, anchor, fold: false, check: Check::Words(words) }
}

const fn pgpass(anchor: &'static str) -> Rule {
    around("pgpass-password", anchor, Check::PgPass)
}

/// The five groups of a UUID, of some letters.
const fn uuid_of(class: Class) -> [Part; 9] {
    let (dash, four) = (Lit("-"), Run(class, 4, 4));
    [Run(class, 8, 8), dash, four, dash, four, dash, four, dash, Run(class, 12, 12)]
}

const HEX32: &[Part] = &[Run(Hex, 32, 32)];
const HEX40: &[Part] = &[Run(Hex, 40, 40)];
const HEX64: &[Part] = &[Run(Hex, 64, 64)];
const ALNUM36: &[Part] = &[Open(Alnum, 36)];
const URL20: &[Part] = &[Open(Url, 20)];
const URL30: &[Part] = &[Open(Url, 30)];
const MD5_CRYPT: &[Part] = &[Run(Crypt, 1, 8), Lit("$"), Run(Crypt, 22, 22)];
const BCRYPT: &[Part] = &[Run(Digit, 2, 2), Lit("$"), Run(Crypt, 53, 53)];
const YESCRYPT: &[Part] = &[Run(Crypt, 1, 16), Lit("$"), Run(Crypt, 1, 86), Lit("$"), Run(Crypt, 43, 43)];
const DISCORD: &[Part] = &[Run(Url, 20, 30), Lit("."), Run(Url, 6, 7), Lit("."), Open(Url, 27)];
const WEBHOOK: &[Part] = &[Run(Digit, 15, 22), Lit("/"), Open(Url, 50)];

/// JSON in base64: its beginning has neither `+` nor `/`.
const JSON_BASE64: &[Part] = &[Run(Alnum, 16, 16), Open(Base64, 24)];
/// The same, then `_` and the secret itself.
const SENTRY: &[Part] = &[Run(Alnum, 16, 16), Open(Percent, 24)];
const UUID: &[Part] = &uuid_of(Hex);
/// A region, and as a UUID.
const HUBSPOT: &[Part] = &{
    let [a, b, c, d, e, f, g, h, i] = uuid_of(Alnum);
    [Run(Alnum, 3, 4), Lit("-"), a, b, c, d, e, f, g, h, i]
};
/// A checksum stands at its end, behind a `=`.
const ATLASSIAN: &[Part] = &[Run(Url, 20, 20), Open(Percent, 80)];
const MAPBOX: &[Part] = &[Run(Url, 16, 1024), Lit("."), Open(Url, 16)];

/// Every rule, the more particular first where two begin alike.
pub(super) const RULES: &[Rule] = &[
    // Clouds
    aws_id("AKIA"),
    aws_id("ASIA"),
    aws_id("ABIA"),
    aws_id("ACCA"),
    word("aws-bedrock-key", "ABSK", &[Run(Alnum, 16, 16), Run(Base64, 84, 256)]),
    prefixed("aws-session-token", "IQoJb3JpZ2luX2Vj", &[Open(Base64, 100)]),
    word("google-api-key", "AIza", &[Open(Url, 35)]),
    word("google-api-key", "AQ.Ab8RN6", &[Open(Url, 36)]),
    word("google-oauth-token", "ya29.", &[Open(Dotted, 20)]),
    prefixed("google-client-secret", "GOCSPX-", &[Open(Url, 28)]),
    word("google-refresh-token", "1//0", &[Open(Url, 40)]),
    word("azure-sas", "sig=", &[Run(Percent, 43, 52)]),
    shape("azure-client-secret", "Q~", Left::Any, &[Run(Tilde, 31, 34)], Need::Nothing),
    prefixed("digitalocean-token", "dop_v1_", HEX64),
    prefixed("digitalocean-token", "doo_v1_", HEX64),
    prefixed("digitalocean-token", "dor_v1_", HEX64),
    word("alibaba-access-key", "LTAI", &[Run(Alnum, 16, 26)]),
    word("heroku-key", "HRKU-", &[Open(Url, 36)]),
    prefixed("fly-token", "fm2_", &[Open(Base64, 80)]),
    prefixed("fly-token", "fo1_", &[Open(Url, 43)]),
    word("tencent-secret-id", "AKID", &[Run(Alnum, 32, 32)]),
    prefixed("vercel-token", "vercel_blob_rw_", &[Open(Word, 30)]),
    word("vercel-token", "vcp_", &[Open(Alnum, 24)]),
    word("vercel-token", "vca_", &[Open(Alnum, 24)]),
    word("vercel-token", "vci_", &[Open(Alnum, 24)]),
    word("vercel-token", "vcr_", &[Open(Alnum, 24)]),
    word("vercel-token", "vck_", &[Open(Alnum, 24)]),
    word("dropbox-token", "sl.", &[Open(Dotted, 120)]),
    prefixed("neon-key", "napi_", &[Open(Alnum, 40)]),
    prefixed("cloudflare-key", "v1.0-", &[Run(Hex, 24, 24), Lit("-"), Open(Hex, 100)]),
    word("cloudflare-key", "cfk_", &[Open(Alnum, 40)]),
    word("cloudflare-key", "cfut_", &[Open(Alnum, 40)]),
    word("cloudflare-key", "cfat_", &[Open(Alnum, 40)]),
    // Code hosting and packages
    prefixed("github-token", "ghp_", ALNUM36),
    prefixed("github-token", "gho_", ALNUM36),
    prefixed("github-token", "ghu_", ALNUM36),
    prefixed("github-token", "ghs_", &[Open(Dotted, 36)]),
    prefixed("github-token", "ghr_", ALNUM36),
    prefixed("github-token", "github_pat_", &[Open(Word, 36)]),
    prefixed("gitlab-token", "glpat-", &[Open(Dotted, 20)]),
    prefixed("gitlab-token", "glptt-", &[Open(Url, 20)]),
    prefixed("gitlab-token", "gldt-", URL20),
    prefixed("gitlab-token", "glrt-", &[Open(Dotted, 20)]),
    prefixed("gitlab-token", "glrtr-", &[Open(Dotted, 20)]),
    prefixed("gitlab-token", "glcbt-", URL20),
    prefixed("gitlab-token", "glsoat-", URL20),
    prefixed("gitlab-token", "glagent-", URL20),
    prefixed("gitlab-token", "glft-", URL20),
    prefixed("gitlab-token", "glimt-", URL20),
    prefixed("gitlab-token", "gloas-", URL20),
    prefixed("gitlab-token", "glwt-", URL20),
    prefixed("gitlab-token", "glffct-", URL20),
    word("gitlab-token", "GR1348941", URL20),
    word("bitbucket-token", "ATBB", &[Run(Alnum, 32, 32)]),
    word("jfrog-token", "AKCp", &[Run(Alnum, 60, 80)]),
    word("jfrog-token", "cmVmdGtu", &[Run(Alnum, 56, 56)]),
    prefixed("sonar-token", "sqp_", HEX40),
    prefixed("sonar-token", "squ_", HEX40),
    prefixed("sonar-token", "sqa_", HEX40),
    prefixed("npm-token", "npm_", ALNUM36),
    prefixed("pypi-token", "pypi-AgE", &[Open(Url, 50)]),
    prefixed("rubygems-token", "rubygems_", &[Open(Hex, 48)]),
    word("crates-io-token", "cio", &[Run(Alnum, 32, 32)]),
    word("nuget-key", "oy2", &[Run(Alnum, 43, 43)]),
    prefixed("docker-token", "dckr_pat_", URL20),
    prefixed("docker-token", "dckr_oat_", URL20),
    // Models
    prefixed("anthropic-key", "sk-ant-", URL20),
    prefixed("openrouter-key", "sk-or-v1-", HEX64),
    word("openai-key", "sk-proj-", &[Open(Url, 40)]),
    word("openai-key", "sk-svcacct-", &[Open(Url, 40)]),
    word("openai-key", "sk-admin-", &[Open(Url, 40)]),
    word("openai-key", "sk-", &[Open(Alnum, 32)]),
    word("huggingface-token", "hf_", &[Open(Alnum, 30)]),
    word("huggingface-token", "api_org_", &[Open(Alnum, 30)]),
    word("groq-key", "gsk_", &[Open(Alnum, 40)]),
    word("xai-key", "xai-", &[Open(Alnum, 60)]),
    word("perplexity-key", "pplx-", &[Open(Alnum, 40)]),
    word("fireworks-key", "fw_", &[Open(Alnum, 22)]),
    word("replicate-token", "r8_", &[Open(Alnum, 37)]),
    word("elevenlabs-key", "sk_", &[Run(Hex, 48, 48)]),
    prefixed("wandb-key", "wandb_v1_", &[Open(Word, 60)]),
    prefixed("together-key", "tgp_v1_", &[Open(Url, 40)]),
    word("cursor-key", "crsr_", HEX64),
    prefixed("nvidia-key", "nvapi-", &[Open(Url, 60)]),
    prefixed("langsmith-key", "lsv2_", &[Open(Word, 40)]),
    word("langfuse-key", "sk-lf-", UUID),
    word("cerebras-key", "csk-", &[Open(Alnum, 40)]),
    prefixed("tavily-key", "tvly-", &[Open(Url, 24)]),
    prefixed("pinecone-key", "pcsk_", &[Run(Alnum, 4, 8), Lit("_"), Open(Alnum, 40)]),
    word("jina-key", "jina_", &[Open(Alnum, 40)]),
    word("e2b-key", "e2b_", HEX40),
    word("firecrawl-key", "fc-", HEX32),
    // Chat and mail
    word("slack-token", "xoxb-", &[Open(Url, 20)]),
    word("slack-token", "xoxp-", &[Open(Url, 20)]),
    word("slack-token", "xoxa-", &[Open(Url, 20)]),
    word("slack-token", "xoxr-", &[Open(Url, 20)]),
    word("slack-token", "xoxs-", &[Open(Url, 20)]),
    word("slack-token", "xoxe-", &[Open(Url, 20)]),
    word("slack-token", "xoxe.xox", &[Open(Dotted, 20)]),
    word("slack-token", "xoxc-", &[Open(Url, 20)]),
    word("slack-token", "xoxd-", &[Open(Percent, 20)]),
    word("slack-token", "xapp-", &[Open(Url, 20)]),
    prefixed("slack-webhook", "hooks.slack.com/services/", &[Open(Base64, 30)]),
    prefixed("slack-webhook", "hooks.slack.com/workflows/", &[Open(Base64, 30)]),
    prefixed("slack-webhook", "hooks.slack.com/triggers/", &[Open(Base64, 30)]),
    // Of discord.com and discordapp.com.
    prefixed("discord-webhook", ".com/api/webhooks/", WEBHOOK),
    word("discord-token", "MT", DISCORD),
    word("discord-token", "Mj", DISCORD),
    word("discord-token", "Mz", DISCORD),
    word("discord-token", "ND", DISCORD),
    word("discord-token", "NT", DISCORD),
    word("discord-token", "Nj", DISCORD),
    word("discord-token", "Nz", DISCORD),
    word("discord-token", "OD", DISCORD),
    word("discord-token", "OT", DISCORD),
    Rule {
        kind: "telegram-token",
        anchor: ":AA",
        fold: false,
        check: Check::AfterDigits { parts: &[Run(Url, 32, 34)] },
    },
    word("fcm-key", "APA91b", &[Open(Url, 100)]),
    word("okta-token", "SSWS ", &[Run(Url, 30, 60)]),
    word("sendgrid-key", "SG.", &[Run(Url, 16, 32), Lit("."), Open(Url, 32)]),
    word("mailgun-key", "key-", HEX32),
    word("brevo-key", "xkeysib-", &[Run(Hex, 64, 64), Lit("-"), Open(Alnum, 16)]),
    word("twilio-key", "SK", HEX32),
    // Without the second `_` it is a refund of Stripe's, which is no secret.
    word("resend-key", "re_", &[Run(Alnum, 8, 8), Lit("_"), Open(Alnum, 20)]),
    word("mailchimp-key", "", &[Run(Hex, 32, 32), Lit("-us"), Run(Digit, 1, 2)]),
    // Money and shops
    word("stripe-key", "sk_live_", &[Open(Alnum, 16)]),
    word("stripe-key", "sk_test_", &[Open(Alnum, 16)]),
    word("stripe-key", "sk_org_live_", &[Open(Alnum, 16)]),
    word("stripe-key", "sk_org_test_", &[Open(Alnum, 16)]),
    word("stripe-key", "rk_live_", &[Open(Alnum, 16)]),
    word("stripe-key", "rk_test_", &[Open(Alnum, 16)]),
    word("stripe-webhook-secret", "whsec_", &[Open(Base64, 24)]),
    prefixed("shopify-token", "shpat_", HEX32),
    prefixed("shopify-token", "shpca_", HEX32),
    prefixed("shopify-token", "shppa_", HEX32),
    prefixed("shopify-token", "shpss_", HEX32),
    word("square-token", "sq0atp-", &[Open(Url, 22)]),
    word("square-token", "sq0csp-", &[Open(Url, 40)]),
    word("square-token", "EAAA", &[Run(Url, 56, 70)]),
    prefixed("polar-token", "polar_oat_", URL30),
    prefixed("paddle-key", "pdl_live_apikey_", &[Open(Word, 40)]),
    word("flutterwave-key", "FLWSECK-", URL20),
    word("bitcoin-key", "xprv", &[Run(Alnum, 107, 108)]),
    word("easypost-key", "EZAK", &[Run(Alnum, 54, 54)]),
    // Operations
    word("databricks-token", "dapi", &[Run(Hex, 32, 32)]),
    word("vault-token", "hvs.", &[Open(Url, 24)]),
    word("vault-token", "hvb.", &[Open(Url, 24)]),
    word("vault-token", "hvr.", &[Open(Url, 24)]),
    prefixed("terraform-token", ".atlasv1.", &[Open(Url, 60)]),
    prefixed("pulumi-token", "pul-", HEX40),
    prefixed("doppler-token", "dp.pt.", &[Open(Alnum, 40)]),
    prefixed("doppler-token", "dp.st.", &[Open(Dotted, 40)]),
    prefixed("doppler-token", "dp.ct.", &[Open(Alnum, 40)]),
    prefixed("doppler-token", "dp.sa.", &[Open(Alnum, 40)]),
    prefixed("tailscale-key", "tskey-", URL20),
    prefixed("grafana-token", "glsa_", &[Open(Word, 32)]),
    word("grafana-token", "glc_", JSON_BASE64),
    shape("newrelic-key", "NRAK-", Left::Edge, &[Open(Upper, 27)], Need::Nothing),
    word("newrelic-key", "NRII-", &[Run(Url, 32, 32)]),
    prefixed("sentry-token", "sntrys_", SENTRY),
    prefixed("sentry-token", "sntryu_", HEX64),
    prefixed("dynatrace-token", "dt0c01.", &[Run(Upper, 24, 24), Lit("."), Open(Upper, 64)]),
    prefixed("swarm-token", "SWMTKN-1-", &[Run(Alnum, 40, 60), Lit("-"), Open(Alnum, 20)]),
    word("openshift-token", "sha256~", &[Run(Url, 43, 43)]),
    prefixed("buildkite-token", "bkua_", HEX40),
    prefixed("circleci-token", "CCIPAT_", &[Open(Word, 40)]),
    prefixed("planetscale-token", "pscale_tkn_", URL30),
    prefixed("planetscale-token", "pscale_pw_", URL30),
    prefixed("supabase-token", "sbp_", HEX40),
    prefixed("supabase-token", "sb_secret_", &[Open(Url, 24)]),
    prefixed("netlify-token", "nfp_", &[Open(Alnum, 36)]),
    word("netlify-token", "nfc_", &[Open(Alnum, 36)]),
    word("netlify-token", "nfo_", &[Open(Alnum, 36)]),
    word("netlify-token", "nfu_", &[Open(Alnum, 36)]),
    prefixed("sourcegraph-token", "sgp_", &[Open(Word, 40)]),
    word("honeycomb-key", "hcaik_", &[Open(Alnum, 40)]),
    word("xata-key", "xau_", &[Open(Alnum, 40)]),
    prefixed("openvsx-token", "ovsxat_", UUID),
    prefixed("posthog-key", "phx_", &[Open(Url, 40)]),
    // Work
    prefixed("linear-key", "lin_api_", &[Open(Alnum, 32)]),
    prefixed("linear-key", "lin_oauth_", &[Open(Alnum, 32)]),
    word("notion-token", "ntn_", &[Open(Alnum, 40)]),
    word("notion-token", "secret_", &[Run(Alnum, 43, 43)]),
    prefixed("postman-key", "PMAK-", &[Run(Hex, 24, 24), Lit("-"), Run(Hex, 34, 34)]),
    word("hubspot-token", "pat-", HUBSPOT),
    word("mapbox-token", "sk.eyJ", MAPBOX),
    word("mapbox-token", "tk.eyJ", MAPBOX),
    prefixed("figma-token", "figd_", &[Open(Url, 40)]),
    word("atlassian-token", "ATATT3", ATLASSIAN),
    word("atlassian-token", "ATCTT3", ATLASSIAN),
    word("airtable-token", "pat", &[Run(Alnum, 14, 14), Lit("."), Run(Hex, 64, 64)]),
    prefixed("contentful-token", "CFPAT-", &[Open(Url, 40)]),
    prefixed("1password-token", "ops_eyJ", &[Run(Alnum, 16, 16), Open(Base64, 84)]),
    prefixed("age-key", "AGE-SECRET-KEY-1", &[Run(Upper, 58, 58)]),
    word("jwt", "eyJ", &[Run(Url, 8, 4096), Lit(".eyJ"), Open(Dotted, 8)]),
    word("jwt", "eyJ", &[Run(Url, 8, 4096), Lit(".."), Open(Dotted, 24)]),
    word("jwt", "eyJ", &[Run(Url, 8, 4096), Lit("."), Run(Url, 40, 2048), Lit("."), Open(Dotted, 16)]),
    // Hashes of passwords, as in /etc/shadow and in password files of web servers
    crypt("$1$", MD5_CRYPT),
    crypt("$apr1$", MD5_CRYPT),
    crypt("$5$", &[Run(Crypt, 1, 16), Lit("$"), Run(Crypt, 43, 43)]),
    crypt("$5$rounds=", &[Run(Digit, 1, 9), Lit("$"), Run(Crypt, 1, 16), Lit("$"), Run(Crypt, 43, 43)]),
    crypt("$6$", &[Run(Crypt, 1, 16), Lit("$"), Run(Crypt, 86, 86)]),
    crypt("$6$rounds=", &[Run(Digit, 1, 9), Lit("$"), Run(Crypt, 1, 16), Lit("$"), Run(Crypt, 86, 86)]),
    crypt("$7$", &[Run(Crypt, 11, 100), Lit("$"), Run(Crypt, 43, 43)]),
    crypt("$2a$", BCRYPT),
    crypt("$2b$", BCRYPT),
    crypt("$2x$", BCRYPT),
    crypt("$2y$", BCRYPT),
    crypt("$y$", YESCRYPT),
    crypt("$gy$", YESCRYPT),
    // Told by what stands around it
    words("password", "curl ", Words::User),
    words("password", "sshpass ", Words::Option),
    words("password", "redis-cli ", Words::AuthOption),
    words("password", " login ", Words::Login),
    words("password", "mysql", Words::GluedOption),
    words("password", "mariadb", Words::GluedOption),
    words("password", "requirepass ", Words::Next),
    words("password", "masterauth ", Words::Next),
    words("password", "define(", Words::Define),
    words("secret", "etenv(", Words::Call),
    words("password", "PASSWORD '", Words::Sql),
    words("password", "IDENTIFIED ", Words::Identified),
    words("secret", "\"SecretString\"", Words::SecretString),
    words("cookie", "ookie", Words::Cookie),
    words("docker-auth", "\"auth\"", Words::DockerAuth),
    Rule { kind: "password", anchor: "assword", fold: false, check: Check::Beside { before: b"pP" } },
    Rule { kind: "password", anchor: "PASSWORD", fold: false, check: Check::Beside { before: b"" } },
    pgpass(":*:"),
    pgpass(":1"),
    pgpass(":2"),
    pgpass(":3"),
    pgpass(":4"),
    pgpass(":5"),
    pgpass(":6"),
    pgpass(":7"),
    pgpass(":8"),
    pgpass(":9"),
    around("private-key", "-BEGIN ", Check::PemBlock),
    Rule { kind: "private-key", anchor: "LS0tLS1CRUdJTi", fold: false, check: Check::EncodedKey },
    Rule { kind: "private-key", anchor: "Private-Lines:", fold: false, check: Check::PuttyBlock },
    Rule {
        kind: "private-key",
        anchor: "- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----",
        fold: false,
        check: Check::Ssh2Block,
    },
    around("url-signature", "-signature", Check::Signature),
    around("authorization", "zation", Check::Authorization),
    Rule { kind: "bearer-token", anchor: "earer ", fold: false, check: Check::Bearer },
    Rule { kind: "bearer-token", anchor: "EARER ", fold: false, check: Check::Bearer },
    around("url-password", "://", Check::UrlUser),
    pair("password", "sword", PairName::Password { before: &["pas"] }),
    pair("password", "wd", PairName::Password { before: &["pass", "p"] }),
    pair("password", "phrase", PairName::Password { before: &["pass"] }),
    pair("password", "ss", PairName::Pass),
    pair("password", "psk", PairName::Password { before: &[""] }),
    pair("secret", "_sk", PairName::Short),
    pair("secret", "_pat", PairName::Short),
    pair("secret", "_pw", PairName::Short),
    pair("secret", "creds", PairName::Short),
    pair("secret", "-data", PairName::Secret { before: "client-key" }),
    pair("secret", "_base", PairName::Secret { before: "secret_key" }),
    pair("secret", "cret", PairName::Secret { before: "se" }),
    pair("token", "oken", PairName::Secret { before: "t" }),
    pair("secret", "redential", PairName::Secret { before: "c" }),
    pair("secret", "redentials", PairName::Secret { before: "c" }),
    pair("secret", "_auth", PairName::Secret { before: "" }),
    pair("key", "ey", PairName::Key),
    around("secret", "value", Check::Listed),
];
