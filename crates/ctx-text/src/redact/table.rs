//! The table of tokens: a line for each shape that a service documents.
//!
//! A line has the kind that the mark shows, the fixed texts that begin such a token, and the parts that follow one of
//! them. Whatever has a service's own fixed text and length is a secret, whether or not it looks random. A short fixed
//! text that ordinary words may hold has a strict alphabet and an exact length. Tokens without any fixed text are found
//! beside their names only (`names`).

use std::ops::RangeInclusive;

use super::Span;
use super::shape::Alphabet::{self, Any, Base64, Digit, Dotted, Hex, Lower, Upper, Url, Word};
use super::shape::Part::{self, Text};
use super::shape::{at_least, begins_word, between, end_of_parts, exactly};

pub(super) struct Row {
    pub kind: &'static str,
    /// What stands before the fixed text.
    before: Option<(Alphabet, RangeInclusive<usize>)>,
    pub fixed: &'static [&'static str],
    after: &'static [Part],
}

/// These tokens may also follow a `_` or `-`, as in `backup_ghp_…`, because nothing else begins like them.
const UNMISTAKABLE: &str = "ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- sk-ant- sk-proj- sk_live_ xoxb- xoxp- npm_ pypi-AgE dckr_pat_ dop_v1_ shpat_";
/// No anchor is shorter.
const ANCHOR_BYTES_MIN: usize = 3;

const fn row(kind: &'static str, fixed: &'static [&'static str], after: &'static [Part]) -> Row {
    Row { kind, before: None, fixed, after }
}

/// A row whose fixed text stands in the middle of the token or at its end.
const fn mid(
    kind: &'static str,
    before: (Alphabet, RangeInclusive<usize>),
    fixed: &'static [&'static str],
    after: &'static [Part],
) -> Row {
    Row { kind, before: Some(before), fixed, after }
}

/// `3f786850-e387-550f-dab8-36ed7e6dc881`
#[rustfmt::skip]
const UUID: &[Part] = &[
    exactly(Hex, 8), Text("-"), exactly(Hex, 4), Text("-"), exactly(Hex, 4), Text("-"), exactly(Hex, 4), Text("-"), exactly(Hex, 12),
];

#[rustfmt::skip]
pub(super) static TABLE: &[Row] = &[
    // Models and what is built around them.
    row("anthropic-key", &["sk-ant-"], &[at_least(Url, 20)]),
    row("openai-key", &["sk-proj-", "sk-svcacct-", "sk-admin-", "sk-None-"], &[at_least(Url, 20)]),
    row("openai-key", &["sk-"], &[between(Word, 32, 64)]),
    row("openai-key", &["sess-"], &[exactly(Word, 40)]),
    row("openrouter-key", &["sk-or-v1-"], &[at_least(Url, 20)]),
    row("langfuse-key", &["sk-lf-"], UUID),
    row("google-api-key", &["AIza"], &[exactly(Url, 35)]),
    row("google-api-key", &["AQ.Ab8RN6"], &[at_least(Url, 30)]),
    row("groq-key", &["gsk_"], &[at_least(Word, 40)]),
    row("xai-key", &["xai-"], &[at_least(Word, 60)]),
    row("huggingface-token", &["hf_", "api_org_"], &[exactly(Word, 34)]),
    row("replicate-token", &["r8_"], &[exactly(Word, 37)]),
    row("perplexity-key", &["pplx-"], &[at_least(Word, 40)]),
    row("fireworks-key", &["fw_"], &[between(Word, 22, 24)]),
    row("cerebras-key", &["csk-"], &[at_least(Word, 40)]),
    row("nvidia-key", &["nvapi-"], &[at_least(Url, 40)]),
    row("langsmith-key", &["lsv2_pt_", "lsv2_sk_"], &[at_least(Url, 32)]),
    row("tavily-key", &["tvly-"], &[at_least(Url, 20)]),
    row("wandb-key", &["wandb_v1_"], &[at_least(Url, 40)]),
    row("together-key", &["tgp_v1_"], &[at_least(Url, 40)]),
    row("cursor-key", &["crsr_"], &[at_least(Hex, 40)]),
    row("elevenlabs-key", &["sk_"], &[exactly(Hex, 48)]),
    row("firecrawl-key", &["fc-"], &[exactly(Hex, 32)]),
    row("jina-key", &["jina_"], &[at_least(Word, 40)]),
    row("pinecone-key", &["pcsk_"], &[at_least(Url, 50)]),
    // Clouds.
    row("aws-access-key", &["AKIA", "ASIA", "ABIA", "ACCA"], &[exactly(Upper, 16)]),
    row("aws-bedrock-key", &["ABSKQmVkcm9ja0FQSUtleS1"], &[at_least(Base64, 80)]),
    row("aws-session-token", &["IQoJb3JpZ2luX2Vj"], &[at_least(Base64, 100)]),
    row("google-client-secret", &["GOCSPX-"], &[at_least(Url, 24)]),
    row("google-oauth-token", &["ya29."], &[at_least(Dotted, 30)]),
    row("google-refresh-token", &["1//0"], &[between(Url, 40, 200)]),
    mid("firebase-token", (Url, 11..=11), &[":APA91b"], &[at_least(Url, 120)]),
    mid("azure-client-secret", (Dotted, 3..=3), &["0Q~", "1Q~", "2Q~", "3Q~", "4Q~", "5Q~", "6Q~", "7Q~", "8Q~", "9Q~"], &[between(Dotted, 31, 34)]),
    mid("azure-key", (Word, 52..=52), &["JQQJ99"], &[between(Word, 20, 32)]),
    row("azure-sas", &["sig="], &[between(Any, 43, 64)]),
    mid("azure-devops-token", (Word, 76..=76), &["AZDO"], &[exactly(Word, 4)]),
    row("alibaba-access-key", &["LTAI"], &[between(Word, 12, 26)]),
    row("tencent-secret-id", &["AKID"], &[exactly(Word, 32)]),
    row("digitalocean-token", &["dop_v1_", "doo_v1_", "dor_v1_"], &[at_least(Word, 40)]),
    row("fly-token", &["fm1r_", "fm1a_", "fm2_"], &[at_least(Base64, 60)]),
    row("fly-token", &["fo1_"], &[exactly(Url, 43)]),
    row("cloudflare-token", &["cfk_", "cfut_", "cfat_"], &[at_least(Word, 40)]),
    row("heroku-key", &["HRKU-"], &[at_least(Url, 36)]),
    row("scaleway-key", &["SCW"], &[exactly(Upper, 17)]),
    row("vercel-token", &["vcp_", "vca_", "vci_", "vcr_", "vck_"], &[at_least(Word, 40)]),
    row("vercel-blob-token", &["vercel_blob_rw_"], &[at_least(Url, 30)]),
    row("netlify-token", &["nfp_", "nfc_", "nfo_", "nfb_", "nfu_"], &[at_least(Word, 36)]),
    row("openshift-token", &["sha256~"], &[exactly(Url, 43)]),
    row("swarm-token", &["SWMTKN-1-", "SWMKEY-1-"], &[at_least(Any, 40)]),
    row("tailscale-key", &["tskey-"], &[at_least(Url, 20)]),
    // Code hosts and CI.
    row("github-token", &["ghp_", "gho_", "ghu_", "ghr_"], &[at_least(Word, 36)]),
    row("github-token", &["ghs_"], &[at_least(Dotted, 36)]),
    row("github-token", &["github_pat_"], &[at_least(Url, 40)]),
    row("gitlab-token", &["glpat-", "gldt-", "glrt-", "glrtr-", "glcbt-", "glptt-", "glft-", "glimt-", "glagent-", "gloas-", "glsoat-", "glffct-", "glwt-"], &[at_least(Dotted, 20)]),
    row("gitlab-token", &["GR1348941"], &[at_least(Url, 20)]),
    row("bitbucket-token", &["ATBB"], &[between(Word, 24, 36)]),
    row("atlassian-token", &["ATATT3", "ATCTT3"], &[at_least(Any, 50)]),
    row("sourcegraph-token", &["sgp_"], &[at_least(Url, 40)]),
    row("circleci-token", &["CCIPAT_", "CCIPRJ_"], &[at_least(Url, 40)]),
    row("buildkite-token", &["bkua_", "bkaj_", "bkct_"], &[at_least(Word, 30)]),
    mid("terraform-token", (Word, 14..=14), &[".atlasv1."], &[at_least(Url, 60)]),
    row("pulumi-token", &["pul-"], &[exactly(Hex, 40)]),
    row("infracost-key", &["ico-"], &[exactly(Word, 32)]),
    row("prefect-key", &["pnu_", "pnb_"], &[exactly(Word, 36)]),
    row("sonar-token", &["sqp_", "squ_", "sqa_"], &[exactly(Hex, 40)]),
    row("jfrog-token", &["AKCp"], &[at_least(Word, 60)]),
    row("jfrog-token", &["cmVmdGtu"], &[at_least(Word, 50)]),
    // Chat.
    row("slack-token", &["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxe-", "xoxe.", "xoxc-", "xoxd-", "xapp-"], &[at_least(Dotted, 20)]),
    row("slack-webhook", &["hooks.slack.com/services/", "hooks.slack.com/workflows/", "hooks.slack.com/triggers/"], &[at_least(Any, 20)]),
    row("discord-webhook", &["discord.com/api/webhooks/", "discordapp.com/api/webhooks/"], &[between(Digit, 17, 20), Text("/"), at_least(Url, 60)]),
    row("discord-webhook", &["discord.com/api/v", "discordapp.com/api/v"], &[between(Digit, 1, 2), Text("/webhooks/"), between(Digit, 17, 20), Text("/"), at_least(Url, 60)]),
    row("teams-webhook", &["webhook.office.com/webhookb2/"], &[at_least(Url, 36), Text("@"), at_least(Any, 36)]),
    row("telegram-token", &["/bot"], &[between(Digit, 6, 10), Text(":"), between(Url, 34, 35)]),
    row("twilio-key", &["SK0", "SK1", "SK2", "SK3", "SK4", "SK5", "SK6", "SK7", "SK8", "SK9", "SKa", "SKb", "SKc", "SKd", "SKe", "SKf"], &[exactly(Hex, 31)]),
    row("facebook-token", &["EAA"], &[between(Word, 91, 300)]),
    // Payment and shops.
    row("stripe-key", &["sk_live_", "sk_test_", "rk_live_", "rk_test_", "sk_org_live_"], &[at_least(Word, 16)]),
    row("stripe-webhook-secret", &["whsec_"], &[at_least(Base64, 24)]),
    row("square-token", &["sq0atp-", "sq0csp-"], &[at_least(Url, 22)]),
    row("square-token", &["EAAA"], &[exactly(Url, 60)]),
    row("braintree-token", &["access_token$production$", "access_token$sandbox$"], &[exactly(Lower, 16), Text("$"), exactly(Hex, 32)]),
    row("shopify-token", &["shpat_", "shpss_", "shpca_", "shppa_"], &[at_least(Word, 32)]),
    row("flutterwave-key", &["FLWSECK-", "FLWSECK_TEST-"], &[at_least(Url, 12)]),
    row("plaid-token", &["access-production-", "access-development-", "access-sandbox-"], UUID),
    row("duffel-token", &["duffel_live_", "duffel_test_"], &[at_least(Url, 40)]),
    row("shippo-token", &["shippo_live_", "shippo_test_"], &[exactly(Hex, 40)]),
    row("mollie-key", &["live_"], &[exactly(Word, 30)]),
    row("lob-key", &["live_"], &[exactly(Hex, 35)]),
    row("gocardless-token", &["live_"], &[exactly(Url, 40)]),
    row("easypost-key", &["EZAK", "EZTK"], &[exactly(Word, 54)]),
    // Mail.
    row("sendgrid-key", &["SG."], &[exactly(Url, 22), Text("."), exactly(Url, 43)]),
    row("mailgun-key", &["key-"], &[exactly(Lower, 32)]),
    row("brevo-key", &["xkeysib-", "xsmtpsib-"], &[at_least(Url, 60)]),
    row("resend-key", &["re_"], &[exactly(Word, 8), Text("_"), exactly(Word, 24)]),
    mid("mailchimp-key", (Hex, 32..=32), &["-us"], &[between(Digit, 1, 2)]),
    // Registries of packages.
    row("npm-token", &["npm_"], &[at_least(Word, 36)]),
    row("pypi-token", &["pypi-AgE"], &[at_least(Url, 50)]),
    row("rubygems-key", &["rubygems_"], &[at_least(Hex, 40)]),
    row("packagist-token", &["packagist_"], &[exactly(Lower, 3), Text("_"), at_least(Hex, 60)]),
    row("docker-token", &["dckr_pat_", "dckr_oat_"], &[at_least(Url, 20)]),
    row("crates-io-token", &["cio"], &[exactly(Word, 32)]),
    row("nuget-key", &["oy2"], &[exactly(Lower, 43)]),
    row("clojars-token", &["CLOJARS_"], &[at_least(Hex, 50)]),
    row("deno-token", &["ddp_", "ddo_"], &[exactly(Word, 36)]),
    // Databases.
    row("planetscale-token", &["pscale_tkn_", "pscale_pw_", "pscale_oauth_"], &[at_least(Url, 32)]),
    row("supabase-key", &["sbp_"], &[at_least(Hex, 40)]),
    row("supabase-key", &["sb_secret_"], &[at_least(Url, 20)]),
    row("neon-key", &["napi_"], &[at_least(Word, 40)]),
    row("mongodb-secret", &["mdb_sa_sk_"], &[at_least(Url, 30)]),
    row("databricks-token", &["dapi"], &[exactly(Hex, 32)]),
    row("cockroachdb-key", &["CCDB1_"], &[exactly(Word, 22), Text("_"), exactly(Word, 40)]),
    // Monitoring.
    row("newrelic-key", &["NRAK-", "NRII-", "NRJS-"], &[at_least(Url, 19)]),
    mid("newrelic-key", (Hex, 36..=36), &["NRAL"], &[]),
    row("grafana-token", &["glsa_"], &[at_least(Url, 40)]),
    row("grafana-token", &["glc_"], &[at_least(Base64, 32)]),
    row("grafana-token", &["eyJrIjoi"], &[at_least(Base64, 60)]),
    row("sentry-token", &["sntrys_", "sntryu_", "sntrya_", "sntryi_"], &[at_least(Any, 50)]),
    row("honeycomb-key", &["hcaik_", "hcbik_", "hcxik_"], &[at_least(Word, 30)]),
    row("posthog-key", &["phc_", "phx_", "phs_"], &[at_least(Url, 40)]),
    row("dynatrace-token", &["dt0c01.", "dt0s01.", "dt0s02."], &[exactly(Upper, 24), Text("."), exactly(Upper, 64)]),
    row("launchdarkly-key", &["api-", "sdk-"], UUID),
    // Stores of secrets.
    row("vault-token", &["hvs.", "hvb.", "hvr."], &[at_least(Url, 24)]),
    row("doppler-token", &["dp.pt.", "dp.ct.", "dp.sa.", "dp.scim.", "dp.audit."], &[at_least(Word, 40)]),
    row("doppler-token", &["dp.st."], &[at_least(Dotted, 40)]),
    row("infisical-token", &["st."], &[between(Url, 24, 36), Text("."), exactly(Hex, 32), Text("."), exactly(Hex, 32)]),
    row("1password-token", &["ops_eyJ"], &[at_least(Any, 100)]),
    row("age-key", &["AGE-SECRET-KEY-1"], &[at_least(Upper, 50)]),
    row("okta-token", &["SSWS "], &[exactly(Url, 42)]),
    // Tools for work.
    row("postman-key", &["PMAK-"], &[exactly(Hex, 24), Text("-"), exactly(Hex, 34)]),
    row("linear-key", &["lin_api_", "lin_oauth_"], &[at_least(Word, 32)]),
    row("notion-token", &["ntn_"], &[at_least(Word, 40)]),
    row("notion-token", &["secret_"], &[exactly(Word, 43)]),
    row("figma-token", &["figd_", "figo_"], &[at_least(Url, 40)]),
    row("airtable-token", &["pat"], &[exactly(Word, 14), Text("."), exactly(Hex, 64)]),
    row("hubspot-token", &["pat-"], &[exactly(Lower, 3), Text("-"), exactly(Hex, 8), Text("-"), exactly(Hex, 4), Text("-"), exactly(Hex, 4), Text("-"), exactly(Hex, 4), Text("-"), exactly(Hex, 12)]),
    row("intercom-token", &["dG9rO"], &[at_least(Base64, 50)]),
    row("typeform-token", &["tfp_"], &[at_least(Dotted, 40)]),
    row("contentful-token", &["CFPAT-"], &[at_least(Url, 40)]),
    row("readme-key", &["rdme_"], &[at_least(Lower, 60)]),
    row("frameio-token", &["fio-u-"], &[at_least(Url, 60)]),
    row("dropbox-token", &["sl."], &[at_least(Dotted, 130)]),
    row("mapbox-token", &["sk.eyJ"], &[at_least(Url, 40), Text("."), at_least(Url, 20)]),
    row("adafruit-key", &["aio_"], &[exactly(Word, 28)]),
    row("apify-token", &["apify_api_"], &[at_least(Word, 30)]),
    // Not of one service.
    row("jwt", &["eyJ"], &[at_least(Url, 8), Text(".eyJ"), at_least(Url, 8), Text("."), at_least(Url, 8)]),
    row("jwe", &["eyJ"], &[at_least(Url, 8), Text("."), at_least(Url, 0), Text("."), at_least(Url, 16), Text("."), at_least(Url, 1), Text("."), at_least(Url, 16)]),
];

/// The colon is too short to be searched for with the others.
pub(super) static TELEGRAM: Row = mid("telegram-token", (Digit, 6..=10), &[":"], &[between(Url, 34, 35)]);

impl Row {
    /// What the row's tokens are searched by: what all of its fixed texts begin with, if that is long enough to be rare.
    pub fn anchors(&self) -> Vec<&'static str> {
        let (first, others) = self.fixed.split_first().unwrap_or((&"", &[]));
        let is_common = |len: usize| others.iter().all(|other| other.starts_with(&first[..len]));
        match (0..=first.len()).rev().find(|len| is_common(*len)) {
            Some(len) if len >= ANCHOR_BYTES_MIN => vec![&first[..len]],
            _ => self.fixed.to_vec(),
        }
    }

    /// Where the token begins and ends whose fixed text stands between `at` and `behind`.
    pub fn token_at(&self, text: &[u8], at: usize, behind: usize) -> Option<Span> {
        let from = match &self.before {
            // The slash of `/bot` stands behind the name of a host.
            None if begins_word(text, at) || text[at] == b'/' => at,
            None => {
                let is_here = |fixed: &str| fixed.as_bytes() == &text[at..behind];
                let follows_mark = matches!(text[..at], [.., b'_' | b'-']);
                (follows_mark && UNMISTAKABLE.split(' ').any(is_here)).then_some(at)?
            }
            Some((alphabet, lens)) => {
                let longest = alphabet.run_before(text, at).min(*lens.end());
                (*lens.start()..=longest).rev().map(|len| at - len).find(|from| begins_word(text, *from))?
            }
        };
        Some((from, end_of_parts(text, behind, self.after)?))
    }
}
