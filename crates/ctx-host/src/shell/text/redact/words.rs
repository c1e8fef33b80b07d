//! Secrets that a command line or a line of a settings file gives away: `curl -u`, `mysql -p`, cookies and the like.

use super::around::{decoded, quote_at, skip_quote, skip_space};
use super::env::is_secret_name;
use super::pair::value_len;
use super::shape::{Class, More, View};
use super::swallow::Swallow;
use super::value::is_placeholder;
use super::{Found, Kind};

/// A command is looked at so far.
const COMMAND_BYTES_MAX: usize = 512;
/// Bytes of a value that are weighed.
const WEIGH_BYTES: usize = 96;
const NAME_BYTES_MAX: usize = 64;
const PASSWORD_BYTES_MIN: usize = 4;
/// A shorter value of a cookie is a setting rather than a session.
const COOKIE_BYTES_MIN: usize = 12;
/// A user without a password is taken for a token from this length on.
const USER_TOKEN_BYTES_MIN: usize = 16;

/// How a command is given a password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    /// `-u user:password`, `--user user:password`.
    User,
    /// `-p password`, or without the blank.
    Option,
    /// Without a blank only: with one it is a question.
    GluedOption,
    /// `-a password`.
    AuthOption,
    /// The next word.
    Next,
    /// `('NAME', 'value')`.
    Define,
    Cookie,
    /// `"auth": "…"` as in a file of Docker's: user and password in base64.
    DockerAuth,
}

/// Confirms what a word announces; it lies from `start` to `pos`.
pub(super) fn words(view: View<'_>, start: usize, pos: usize, words: Words) -> Result<Option<Found>, More> {
    match words {
        Words::User | Words::Option | Words::GluedOption | Words::AuthOption => command(view, pos, words),
        Words::Next => {
            let value = Value::at(view, skip_space(view, pos)?)?;
            Ok(value.filter(|value| value.has_digit(view)).map(Value::found))
        }
        Words::Define => define(view, pos),
        Words::Cookie => cookie(view, start, pos),
        Words::DockerAuth => docker_auth(view, pos),
    }
}

/// A value, with its quote.
struct Value {
    from: usize,
    to: usize,
    rest: Swallow,
}

impl Value {
    /// The value at `pos`, unless it stands for one.
    fn at(view: View<'_>, pos: usize) -> Result<Option<Value>, More> {
        let (quote, from) = quote_at(view, pos)?.map_or((None, pos), |(quote, from)| (Some(quote), from));
        let rest = quote.map_or(Swallow::Bare, Swallow::quoted);
        let to = from + value_len(view, from, quote)?;
        let value = view.slice(from, to);
        let is_one = value.len() >= PASSWORD_BYTES_MIN && !is_placeholder(value);
        Ok(is_one.then_some(Value { from, to, rest }))
    }

    fn has_digit(&self, view: View<'_>) -> bool {
        view.slice(self.from, self.to).iter().any(u8::is_ascii_digit)
    }

    fn found(self) -> Found {
        Found { from: self.from, to: self.to, kind: Kind::Rule("password"), rest: Some(self.rest) }
    }
}

/// The option of a command that holds a password.
fn command(view: View<'_>, pos: usize, words: Words) -> Result<Option<Found>, More> {
    // What stood at the end of the name is looked at once more: a blank may be part of it.
    for at in pos.saturating_sub(1)..pos + COMMAND_BYTES_MAX {
        match view.at(at)? {
            None | Some(b'\n' | b'|') => return Ok(None),
            Some(b' ' | b'\t') if view.at(at + 1)? == Some(b'-') => {
                if let Some(found) = option(view, at + 1, words)? {
                    return Ok(Some(found));
                }
            }
            Some(_) => {}
        }
    }
    Ok(None)
}

/// The value of the option whose dash stands at `pos`.
fn option(view: View<'_>, pos: usize, words: Words) -> Result<Option<Found>, More> {
    let letter = match words {
        Words::User => b'u',
        Words::AuthOption => b'a',
        _ => b'p',
    };
    if words == Words::User && view.starts(pos, b"--user", false)? {
        let at = pos + 6;
        return match view.at(at)? {
            Some(b' ' | b'=') => user(view, skip_space(view, at + 1)?),
            _ => Ok(None),
        };
    }
    let letters = view.run(pos + 1, Class::Alnum, 8)?;
    let end = pos + 1 + letters;
    let ends_with_it = letters > 0 && view.slice(end - 1, end) == [letter];
    let has_blank = matches!(view.at(end)?, Some(b' ' | b'\t'));
    match words {
        // Short options may stand together: `curl -sSu user:password`.
        Words::User if ends_with_it && has_blank => user(view, skip_space(view, end)?),
        Words::User if view.at(pos + 1)? == Some(letter) => user(view, pos + 2),
        Words::Option | Words::AuthOption if letters == 1 && ends_with_it && has_blank => {
            Ok(Value::at(view, skip_space(view, end)?)?.map(Value::found))
        }
        Words::Option | Words::GluedOption if view.at(pos + 1)? == Some(letter) => {
            // `-port=3306` is the option of some clients, and no password.
            let is_port = |value: &Value| view.slice(value.from, value.to).starts_with(b"ort=");
            Ok(Value::at(view, pos + 2)?.filter(|value| !is_port(value)).map(Value::found))
        }
        _ => Ok(None),
    }
}

/// `user:password`: the user stays readable.
fn user(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let Some(value) = Value::at(view, pos)? else { return Ok(None) };
    let text = view.slice(value.from, value.to);
    let Some(colon) = text.iter().position(|byte| *byte == b':') else { return Ok(None) };
    let password = text.get(colon + 1..).unwrap_or_default();
    let is_url = password.starts_with(b"//");
    let from = match password {
        [] if colon >= USER_TOKEN_BYTES_MIN && value.has_digit(view) => value.from,
        [] => return Ok(None),
        password if is_placeholder(password) || is_url => return Ok(None),
        _ => value.from + colon + 1,
    };
    Ok(Some(Value { from, ..value }.found()))
}

/// `define('DB_PASSWORD', 'value')`; `pos` is after the bracket.
fn define(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let Some((_, from)) = quote_at(view, skip_space(view, pos)?)? else { return Ok(None) };
    let len = view.run(from, Class::Word, NAME_BYTES_MAX)?;
    let name = String::from_utf8_lossy(view.slice(from, from + len)).into_owned();
    let comma = skip_space(view, skip_quote(view, from + len)?)?;
    if view.at(comma)? != Some(b',') || !is_secret_name(&name) {
        return Ok(None);
    }
    let at = skip_space(view, comma + 1)?;
    Ok(if quote_at(view, at)?.is_some() { Value::at(view, at)?.map(Value::found) } else { None })
}

/// `Cookie: a=b; c=d` and `Set-Cookie: a=b; Path=/`: from the first value on that is none of a setting.
fn cookie(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    let Some((b'c' | b'C', before)) = view.before(start, 5).split_last() else { return Ok(None) };
    let is_set = before.eq_ignore_ascii_case(b"set-");
    let mut at = pos;
    while at < pos + COMMAND_BYTES_MAX {
        let from = at + view.run(at, Class::Dotted, NAME_BYTES_MAX)? + 1;
        if from == at + 1 || view.at(from - 1)? != Some(b'=') {
            return Ok(None);
        }
        let to = from + view.run(from, Class::Bare, WEIGH_BYTES)?;
        let value = view.slice(from, to);
        let is_random = value.iter().any(u8::is_ascii_digit) && value.iter().any(u8::is_ascii_alphabetic);
        if value.len() >= COOKIE_BYTES_MIN && is_random && !is_placeholder(value) {
            let rest = if is_set { Class::Bare } else { Class::Line };
            let rest = Some(Swallow::Class(rest));
            return Ok(Some(Found { from, to, kind: Kind::Rule("cookie"), rest }));
        }
        at = to + 1;
        if is_set || view.at(to)? != Some(b';') {
            return Ok(None);
        }
        at = skip_space(view, at)?;
    }
    Ok(None)
}

/// `"auth": "dXNlcjpwYXNz"`: only what is a user and a password by what it says.
fn docker_auth(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let colon = skip_space(view, pos)?;
    if view.at(colon)? != Some(b':') {
        return Ok(None);
    }
    let Some((quote, from)) = quote_at(view, skip_space(view, colon + 1)?)? else { return Ok(None) };
    let to = from + view.run(from, Class::Base64, WEIGH_BYTES)?;
    let text = decoded(view.slice(from, to));
    let is_pair = text.iter().position(|byte| *byte == b':').is_some_and(|colon| colon > 0);
    let is_text = text.len() > 4 && text.iter().all(|byte| byte.is_ascii_graphic());
    let rest = Some(Swallow::quoted(quote));
    Ok((is_pair && is_text).then_some(Found { from, to, kind: Kind::Rule("docker-auth"), rest }))
}
