//! Secrets that a command line or a line of a settings file gives away: `curl -u`, `mysql -p`, cookies and the like.

use super::around::{decoded, quote_at, skip_quote, skip_space};
use super::env::is_secret_name;
use super::name::Name;
use super::pair::{value_len, value_of};
use super::same_words::says_again;
use super::shape::{Class, More, View};
use super::swallow::Swallow;
use super::value::{Joint, is_placeholder};
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

/// The name of a command before ` login ` is looked for so far.
const COMMAND_NAME_BYTES_MAX: usize = 16;

/// What takes a password with `login … -p`: `helm registry`, `az acr` and commands.
const LOGINS: &[&str] = &["docker", "podman", "az", "acr", "oc", "registry", "buildah", "nerdctl", "skopeo"];

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
    /// `("NAME", "value")` of a call that sets a variable or says what it is where it is not set.
    Call,
    Cookie,
    /// `docker login -p password`, and other commands that log in so.
    Login,
    /// `PASSWORD 'value'` of a statement in SQL.
    Sql,
    /// `IDENTIFIED BY 'value'`, also `WITH plugin` before that.
    Identified,
    /// `"SecretString": "…"` of the secrets manager of AWS.
    SecretString,
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
        Words::Login if is_login(view.before(start, COMMAND_NAME_BYTES_MAX)) => {
            command(view, pos, Words::Option)
        }
        Words::Login => Ok(None),
        Words::Sql => sql(view, pos - 1),
        Words::Identified => identified(view, pos),
        Words::SecretString => secret_string(view, pos),
        Words::Define => define(view, pos),
        Words::Call => call(view, pos),
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
    /// The value at `pos`, unless it stands for one. Behind a backtick a command follows, or the text that speaks of one.
    fn at(view: View<'_>, pos: usize) -> Result<Option<Value>, More> {
        if view.at(pos)? == Some(b'`') {
            return Ok(None);
        }
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

    fn has_blank(&self, view: View<'_>) -> bool {
        view.slice(self.from, self.to).contains(&b' ')
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
    if words == Words::User && view.at(pos + 1)? == Some(b'-') {
        return long_option(view, pos);
    }
    let letters = view.run(pos + 1, Class::Alnum, 8)?;
    let end = pos + 1 + letters;
    let last = view.slice(pos + 1, end).last().copied();
    let is_letter = |byte: Option<u8>| byte == Some(letter) || (words == Words::User && byte == Some(b'U'));
    let ends_with_it = is_letter(last);
    let has_blank = matches!(view.at(end)?, Some(b' ' | b'\t'));
    match words {
        // Short options may stand together: `curl -sSu user:password`.
        Words::User if ends_with_it && has_blank => user(view, skip_space(view, end)?),
        Words::User if is_letter(view.at(pos + 1)?) => user(view, pos + 2),
        Words::User if last == Some(b'b') && has_blank => given_cookies(view, skip_space(view, end)?),
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

/// The options of curl that have names.
fn long_option(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let end = pos + 2 + view.run(pos + 2, Class::Url, NAME_BYTES_MAX)?;
    if !matches!(view.at(end)?, Some(b' ' | b'=')) {
        return Ok(None);
    }
    let value = skip_space(view, end + 1)?;
    match view.slice(pos, end) {
        b"--user" | b"--proxy-user" => user(view, value),
        b"--cookie" => given_cookies(view, value),
        _ => Ok(None),
    }
}

/// Whether the word before ` login ` is a command that takes a password.
fn is_login(before: &[u8]) -> bool {
    let mut words = before.rsplit(|byte| !Class::Url.has(*byte));
    words.next().is_some_and(|word| LOGINS.iter().any(|login| word == login.as_bytes()))
}

/// The value in quotes at `pos` of a statement, where it is none of a text.
fn sql(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let value = Value::at(view, pos)?;
    Ok(value.filter(|value| value.has_digit(view) && !value.has_blank(view)).map(Value::found))
}

/// `IDENTIFIED WITH plugin BY 'value'`; `pos` is after the first word.
fn identified(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let mut at = pos;
    if view.starts(at, b"WITH ", false)? {
        at = skip_space(view, at + 5 + view.run(at + 5, Class::Word, NAME_BYTES_MAX)?)?;
    }
    let from = skip_space(view, at + 2)?;
    if !view.starts(at, b"BY ", false)? || quote_at(view, from)?.is_none() {
        return Ok(None);
    }
    Ok(Value::at(view, from)?.filter(|value| !value.has_blank(view)).map(Value::found))
}

/// A secret that is a text; what is JSON in it is told by its names.
fn secret_string(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let colon = skip_space(view, pos)?;
    if view.at(colon)? != Some(b':') {
        return Ok(None);
    }
    let from = skip_space(view, colon + 1)?;
    if quote_at(view, from)?.is_none() {
        return Ok(None);
    }
    let found = Value::at(view, from)?.map(Value::found);
    Ok(found.map(|found| Found { kind: Kind::Rule("secret"), ..found }))
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
    let is_telling = is_secret_name(&name) || name.ends_with("_SALT");
    if view.at(comma)? != Some(b',') || !is_telling {
        return Ok(None);
    }
    let at = skip_space(view, comma + 1)?;
    if quote_at(view, at)?.is_none() {
        return Ok(None);
    }
    let is_constant = |value: &Value| says_again(name.as_bytes(), view.slice(value.from, value.to));
    Ok(Value::at(view, at)?.filter(|value| !is_constant(value)).map(Value::found))
}

/// `os.getenv("API_KEY", "value")`, `os.Setenv(…)`; `pos` is after the bracket.
fn call(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let Some((_, from)) = quote_at(view, pos)? else { return Ok(None) };
    let end = from + view.run(from, Class::Dotted, NAME_BYTES_MAX)?;
    let comma = skip_space(view, skip_quote(view, end)?)?;
    if view.at(comma)? != Some(b',') {
        return Ok(None);
    }
    let Some((quote, at)) = quote_at(view, skip_space(view, comma + 1)?)? else { return Ok(None) };
    let Some(name) = Name::of(view.slice(from, end)) else { return Ok(None) };
    let Some(strength) = name.strength() else { return Ok(None) };
    let joint = Joint { shouted: name.is_shouted(), ..Joint::in_code(quote) };
    value_of(view, name, strength, joint, at)
}

/// `Cookie: a=b; c=d` and `Set-Cookie: a=b; Path=/`, also in JSON.
fn cookie(view: View<'_>, start: usize, pos: usize) -> Result<Option<Found>, More> {
    let Some((b'c' | b'C', before)) = view.before(start, 5).split_last() else { return Ok(None) };
    let is_set = before.eq_ignore_ascii_case(b"set-");
    let colon = skip_quote(view, pos)?;
    if view.at(colon)? != Some(b':') {
        return Ok(None);
    }
    let mut at = skip_space(view, colon + 1)?;
    if colon > pos && view.at(at)? == Some(b'[') {
        at += 1;
    }
    cookies(view, skip_quote(view, at)?, is_set)
}

/// `curl -b 'a=b; c=d'`.
fn given_cookies(view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
    let found = cookies(view, skip_quote(view, pos)?, false)?;
    let is_bare = quote_at(view, pos)?.is_none();
    let rest = Some(Swallow::Class(if is_bare { Class::Cookie } else { Class::Cookies }));
    Ok(found.map(|found| Found { rest, ..found }))
}

/// From the first value on that is none of a setting.
fn cookies(view: View<'_>, pos: usize, is_set: bool) -> Result<Option<Found>, More> {
    let mut at = pos;
    while at < pos + COMMAND_BYTES_MAX {
        let from = at + view.run(at, Class::Dotted, NAME_BYTES_MAX)? + 1;
        if from == at + 1 || view.at(from - 1)? != Some(b'=') {
            return Ok(None);
        }
        let to = from + view.run(from, Class::Cookie, WEIGH_BYTES)?;
        let value = view.slice(from, to);
        let is_random = value.iter().any(u8::is_ascii_digit) && value.iter().any(u8::is_ascii_alphabetic);
        if value.len() >= COOKIE_BYTES_MIN && is_random && !is_placeholder(value) {
            let rest = if is_set { Class::Cookie } else { Class::Cookies };
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
