//! Names that tell of a secret: how much they tell, of whose, and what they ask of a value. How name and value are joined
//! is in `pair`.

use super::letters::are_random;
use super::name_ends::ends_name;
use super::phrase::is_phrase;
use super::rules::{Check, PairName, RULES};
use super::same_words::says_again;
use super::shape::{Class, View};
use super::value::{Joint, SECRET_BYTES_MIN, Strength, is_made, is_random_key};

/// Names that are of a secret and of nothing else.
const CERTAIN: &[&str] =
    &["password", "passwd", "passphrase", "pwd", "secret", "client_secret", "clientsecret"];

/// What stands before `key` in the names of secret keys.
const KEY_NAMES: &[&str] = &[
    "api",
    "secret",
    "access",
    "private",
    "account",
    "auth",
    "signing",
    "encryption",
    "master",
    "app",
    "application",
    "storage",
    "subscription",
    "sharedaccess",
    "service",
    "functions",
    "deploy",
    "preshared",
    "pre_shared",
    "pre-shared",
];

/// What stands before `key` as a word of its own: `API key: …`. The value must look random there.
const SPACED_KEY_NAMES: &[&str] = &["api", "secret", "access", "unseal"];

/// What stands before `pass` in the names of passwords.
const PASS_NAMES: &[&str] =
    &["db", "user", "admin", "root", "sql", "pg", "redis", "smtp", "mail", "ftp", "ldap", "mongo", "proxy"];

/// What stands before `KEY` in the names of variables that hold no secret.
const HARMLESS_KEYS: &[&str] = &[
    "public",
    "pub",
    "publishable",
    "site",
    "cache",
    "primary",
    "foreign",
    "sort",
    "partition",
    "range",
    "group",
    "object",
    "idempotency",
    "host",
    "kms",
    "gpg",
    "pgp",
];

/// Names that tell whose secret it is.
const OWNERS: &[(&str, &str)] = &[
    ("aws_secret", "aws-secret-key"),
    ("awssecret", "aws-secret-key"),
    ("secretaccess", "aws-secret-key"),
    ("aws_session", "aws-session-token"),
    ("datadog", "datadog-key"),
    ("dd_a", "datadog-key"),
    ("dd-a", "datadog-key"),
    ("accountk", "azure-storage-key"),
    ("sharedaccessk", "azure-shared-key"),
    ("twilio", "twilio-token"),
    ("heroku", "heroku-key"),
    ("cloudflare", "cloudflare-key"),
];

/// What stands before `token` in names of things that are no secret: pages, parsers, models' vocabularies.
const HARMLESS: &[&str] = &[
    "next",
    "page",
    "progress",
    "continuation",
    "cancellation",
    "sync",
    "eos",
    "bos",
    "pad",
    "unk",
    "mask",
    "sep",
    "cls",
    "special",
    "stop",
    "start",
    "end",
    "max",
    "min",
    "allow",
];

/// A telling name, wherever it stands; its anchor lies from `start` to `pos`.
#[derive(Clone, Copy)]
pub(super) struct Name<'a> {
    pub view: View<'a>,
    pub start: usize,
    pub pos: usize,
    pub name: PairName,
}

impl<'a> Name<'a> {
    /// A name that stands alone, if it tells of a secret.
    pub fn of(text: &'a [u8]) -> Option<Name<'a>> {
        let view = View { bytes: text, last: true };
        let digits = text.iter().rev().take(3).take_while(|byte| byte.is_ascii_digit()).count();
        let pos = text.len() - digits;
        let start = ends_name(text, pos)?;
        let mut names = RULES.iter().filter_map(|rule| match rule.check {
            Check::Pair(name) if view.slice(start, pos).eq_ignore_ascii_case(rule.anchor.as_bytes()) => {
                Some(Name { view, start, pos, name })
            }
            _ => None,
        });
        names.find(|name| name.strength().is_some())
    }

    #[inline]
    pub fn strength(self) -> Option<Strength> {
        let before = self.view.before(self.start, 24);
        let ends = |text: &str| ends_with(before, text);
        match self.name {
            PairName::Pass => {
                let known = ["_pa", "-pa", ".pa"].iter().any(|text| ends(text));
                let is_one = known || is_bare_pass(before) || is_pass_of_door(before);
                is_one.then_some(Strength::Password)
            }
            PairName::Short => Some(Strength::Secret),
            PairName::Password { before: all } => {
                all.iter().any(|text| ends(text)).then_some(Strength::Password)
            }
            // `_auth` is the name of a registry's setting; `SERVER_AUTH` is a constant.
            PairName::Secret { before: "" }
                if before.last().is_some_and(u8::is_ascii_alphanumeric) && !ends("rediscli") =>
            {
                None
            }
            PairName::Secret { before } => ends(before).then_some(Strength::Secret),
            PairName::Key => {
                let name = before.strip_suffix(b"k").or_else(|| before.strip_suffix(b"K"))?;
                let name = name.strip_suffix(b"_").or_else(|| name.strip_suffix(b"-")).unwrap_or(name);
                let is_one = is_key_of_door(name) || self.is_other_key() || is_spaced_key(name);
                is_one.then_some(Strength::Secret)
            }
        }
    }

    /// `FERNET_KEY`: the key of a variable that may be of a door.
    fn is_other_key(self) -> bool {
        let Some(name) = self.view.before(self.start, 24).strip_suffix(b"_K") else { return false };
        let is_harmless = |word: &&str| ends_with(name, word) && begins_word(name, name.len() - word.len());
        !name.is_empty() && self.text().ends_with(b"EY") && !HARMLESS_KEYS.iter().any(is_harmless)
    }

    /// The letters of the anchor as they are written.
    fn text(self) -> &'a [u8] {
        self.view.slice(self.start, self.pos)
    }

    /// The name up to its anchor, as far as it may be looked at.
    #[inline]
    pub fn identifier(self) -> &'a [u8] {
        identifier(self.view, self.start)
    }

    /// `AWS::IAM::AccessKey`: the name of a type, a part of a longer one. What is assigned to is a variable there, too.
    pub fn is_of_type(self, joint: Joint) -> bool {
        !joint.equals && is_of_type(self.view, self.start, self.text())
    }

    /// Whether it is written as environment variables are.
    pub fn is_shouted(self) -> bool {
        is_shouted(self.view, self.start, self.pos)
    }

    /// A phrase with blanks, behind a name of what people choose: tokens and keys have none.
    pub fn has_phrase(self, value: &[u8], joint: Joint) -> bool {
        let may_be = match self.name {
            PairName::Password { .. } => true,
            PairName::Pass => !is_bare_pass(self.view.before(self.start, 3)),
            PairName::Secret { before } => before == "se",
            PairName::Short | PairName::Key => false,
        };
        may_be && value.contains(&b' ') && {
            let name = [self.identifier(), self.text()].concat();
            let name = String::from_utf8_lossy(&name).to_ascii_lowercase().replace('-', "_");
            is_phrase(value, joint.shouted || CERTAIN.contains(&name.trim_start_matches('_')))
        }
    }

    /// What names that are short, or of other things too, ask of a value beyond that.
    pub fn is_sure_of(self, value: &[u8], joint: Joint) -> bool {
        let has_digit = value.iter().any(u8::is_ascii_digit);
        if joint.coded && !has_digit && !are_random(value) {
            return false;
        }
        if (joint.quote.is_some() && self.is_said_again(value)) || self.is_of_type(joint) {
            return false;
        }
        match self.name {
            // `PASS: test_2` is a word of test runners, `pass=12` counts; a setting has an equals sign, JSON has quotes.
            PairName::Pass if is_bare_pass(self.view.before(self.start, 3)) => {
                let is_count = joint.quote.is_none() && !value.iter().any(u8::is_ascii_alphabetic);
                let is_joined =
                    joint.equals || (joint.quote.is_some() && (joint.name_quoted || is_made(value)));
                has_digit && !is_count && (is_joined || self.is_of_openssl())
            }
            // `date_sk=20241116` is a key of a table, `sk_sk: sk_SK.UTF-8` a language.
            PairName::Short => {
                let is_number = || !value.iter().any(u8::is_ascii_alphabetic);
                let is_of_table = self.text().eq_ignore_ascii_case(b"_sk") && is_number();
                has_digit && value.len() >= SECRET_BYTES_MIN && !is_of_table && !is_locale(value)
            }
            PairName::Key if is_spaced_key(self.before_key()) => is_made(value),
            PairName::Key if !self.is_of_door() => joint.shouted && is_random_key(value),
            // The name of a secret within a longer name: `arn:aws:secretsmanager:…:secret:Name-1a2b3c`. With a space
            // it is a setting behind the name of its file: `app.yml:3:token: …`.
            PairName::Secret { .. } | PairName::Key => {
                let is_joined = joint.equals || joint.spaced || joint.quote.is_some();
                let before = self.view.before(self.start, self.identifier().len() + 1);
                is_joined || before.first() != Some(&b':')
            }
            PairName::Password { .. } | PairName::Pass => true,
        }
    }

    /// `ACCESS_TOKEN = "access_token"`: a constant that is called as it reads.
    fn is_said_again(self, value: &[u8]) -> bool {
        says_again(&[self.identifier(), self.text()].concat(), value)
    }

    /// `openssl … -passin pass:x`.
    fn is_of_openssl(self) -> bool {
        let before = self.view.before(self.start, 12);
        [&b"-pass pa"[..], b"-passin pa", b"-passout pa"].iter().any(|option| before.ends_with(option))
    }

    /// What stands before the `k` of a key.
    fn before_key(self) -> &'a [u8] {
        let before = self.view.before(self.start, 24);
        before.get(..before.len().saturating_sub(1)).unwrap_or_default()
    }

    fn is_of_door(self) -> bool {
        let name = self.before_key();
        is_key_of_door(name.strip_suffix(b"_").or_else(|| name.strip_suffix(b"-")).unwrap_or(name))
    }

    pub fn kind(self) -> &'static str {
        let mut text = self.identifier().to_ascii_lowercase();
        text.extend(self.text().to_ascii_lowercase());
        let text = String::from_utf8_lossy(&text);
        let owner = OWNERS.iter().find(|(part, _)| text.contains(part));
        match (owner, self.name) {
            (Some((_, kind)), _) => kind,
            (None, PairName::Password { .. } | PairName::Pass) => "password",
            (None, PairName::Secret { .. }) if text.ends_with("token") => "token",
            (None, PairName::Secret { .. } | PairName::Short) => "secret",
            (None, PairName::Key) => "api-key",
        }
    }
}

/// `sk_SK.ISO8859-2`, `de_AT@euro`.
fn is_locale(value: &[u8]) -> bool {
    matches!(value, [a, b, b'_', c, d, b'.' | b'@', ..]
        if [a, b].into_iter().all(u8::is_ascii_lowercase) && [c, d].into_iter().all(u8::is_ascii_uppercase))
}

/// `pa` before the last two letters, and no name before that.
fn is_bare_pass(before: &[u8]) -> bool {
    match before {
        [other @ .., b'p' | b'P', b'a' | b'A'] => {
            !other.last().is_some_and(|byte| Class::Url.has(*byte) || *byte == b'.')
        }
        _ => false,
    }
}

/// `dbPa`, `SMTPPA`: glued to what has a password, as `bypass` and `compass` are not.
fn is_pass_of_door(before: &[u8]) -> bool {
    let name = before.get(..before.len().saturating_sub(2)).unwrap_or_default();
    ends_with(before, "pa") && PASS_NAMES.iter().any(|owner| ends_with(name, owner))
}

/// Whether what stands before `key` in a name is told of secrets: `api`, `MY_SECRET`.
pub(super) fn is_key_of_door(name: &[u8]) -> bool {
    KEY_NAMES.iter().any(|key| ends_with(name, key))
}

/// `Your API `, `Secret `: before a `key` that is a word of its own.
fn is_spaced_key(before: &[u8]) -> bool {
    let Some(name) = before.strip_suffix(b" ") else { return false };
    let is_one = |key: &&str| ends_with(name, key) && begins_word(name, name.len() - key.len());
    SPACED_KEY_NAMES.iter().any(is_one)
}

/// `next_page_`, `progressT`: the name up to the anchor, which begins within its last word.
pub(super) fn is_harmless_name(before: &[u8]) -> bool {
    let name = match before {
        [name @ .., b't' | b'T' | b'c' | b'C'] => name,
        name => name,
    };
    let name = name.strip_suffix(b"_").or_else(|| name.strip_suffix(b"-")).unwrap_or(name);
    HARMLESS.iter().any(|word| ends_with(name, word) && begins_word(name, name.len() - word.len()))
}

/// Whether a word of a name begins here: `next` in `get_next` and `getNext`, but not `min` in `admin`.
fn begins_word(name: &[u8], at: usize) -> bool {
    let last = at.checked_sub(1).and_then(|last| name.get(last)).copied();
    let is_capital = name.get(at).is_some_and(u8::is_ascii_uppercase);
    last.is_none_or(|last| !last.is_ascii_alphabetic() || (is_capital && last.is_ascii_lowercase()))
}

/// Whether a name ends with a word, in any case of letters.
fn ends_with(name: &[u8], word: &str) -> bool {
    let end = name.len().checked_sub(word.len()).and_then(|from| name.get(from..));
    end.is_some_and(|end| end.eq_ignore_ascii_case(word.as_bytes()))
}

/// The name's end is at hand; its beginning is looked for only where the end leaves it open.
#[inline]
pub(super) fn is_shouted(view: View<'_>, start: usize, pos: usize) -> bool {
    view.slice(start, pos).iter().all(|b| b.is_ascii_uppercase() || *b == b'_')
        && !identifier(view, start).iter().any(u8::is_ascii_lowercase)
}

/// Whether the name that ends at `start` and goes on with `rest` is written as types are, behind two colons. A setting of
/// Puppet's has small letters there (`mysql::server::root_password`), a constant has capitals.
pub(super) fn is_of_type(view: View<'_>, start: usize, rest: &[u8]) -> bool {
    let name = identifier(view, start);
    let mut letters = name.iter().chain(rest);
    view.before(start, name.len() + 2).starts_with(b"::")
        && letters.clone().next().is_some_and(u8::is_ascii_uppercase)
        && letters.clone().any(u8::is_ascii_lowercase)
        && letters.all(|byte| *byte != b'_')
}

/// The name that ends at `start`, as far as it may be looked at.
#[inline]
pub(super) fn identifier(view: View<'_>, start: usize) -> &[u8] {
    let before = view.before(start, 40);
    let len = before.iter().rev().take_while(|b| Class::Url.has(**b)).count();
    before.get(before.len() - len..).unwrap_or_default()
}
