//! Takes secrets out of a byte stream before anything leaves or is stored.
//!
//! `Redactor` is a filter: bytes in, bytes out, each secret replaced by `[REDACTED:kind]`. It holds back
//! only what may be the beginning of a secret, a few KiB at most, so a secret cut across two reads is
//! found and a line of 50 MB costs no memory. The outcome does not depend on where the reads were cut.
//! It finds what has a known shape or name and the values it was told; it is no proof that no secret passes.

mod around;
mod filter;
mod pair;
mod rules;
mod shape;
mod swallow;

use std::sync::Arc;

use filter::{Anchor, Filter, Target, Thirds};
use rules::{Check, RULES, Rule};
use shape::{BACK_BYTES, Left, More, Part, View, is_edge, match_parts};
use swallow::Swallow;

/// Bytes taken into the work buffer at once.
const STEP_BYTES: usize = 64 * 1024;
/// A value shorter than this is no secret: too many words would be struck.
const LITERAL_BYTES_MIN: usize = 8;
/// Of a longer value the beginning is looked for, and the rest of its line goes with it.
const LITERAL_BYTES_MAX: usize = 16 * 1024;

/// The rules and the literal values to look for. Build it once per shell and share it.
pub struct Secrets {
    literals: Vec<Literal>,
    filter: Filter,
}

struct Literal {
    marker: String,
    value: Vec<u8>,
}

/// What a secret was recognised by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rule(&'static str),
    Literal(usize),
}

/// A secret from `from` to `to`, and what follows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Found {
    from: usize,
    to: usize,
    kind: Kind,
    rest: Option<Swallow>,
}

impl Secrets {
    /// The built-in rules alone.
    pub fn none() -> Secrets {
        Secrets::build(Vec::new())
    }

    /// The built-in rules, and the values of those variables whose names say that they are secret.
    pub fn from_env<N, V>(vars: impl IntoIterator<Item = (N, V)>) -> Secrets
    where
        N: AsRef<str>,
        V: AsRef<[u8]>,
    {
        let mut literals: Vec<Literal> = Vec::new();
        for (name, value) in vars {
            let (name, value) = (name.as_ref(), value.as_ref().trim_ascii());
            if !is_secret_name(name) || !is_secret_value(value) || literals.iter().any(|l| l.value == value) {
                continue;
            }
            let value = value.get(..LITERAL_BYTES_MAX).unwrap_or(value).to_vec();
            literals.push(Literal { marker: format!("[REDACTED:env:{name}]"), value });
        }
        // Of two values where one begins the other, the longer is tried first.
        literals.sort_by_key(|literal| std::cmp::Reverse(literal.value.len()));
        Secrets::build(literals)
    }

    fn build(literals: Vec<Literal>) -> Secrets {
        let of_literals = literals.iter().enumerate().map(|(index, literal)| Anchor {
            bytes: &literal.value,
            fold: false,
            thirds: Thirds::Any,
            target: Target::Literal(index),
        });
        let of_rules = RULES.iter().enumerate().map(|(index, rule)| Anchor {
            bytes: rule.anchor.as_bytes(),
            fold: rule.fold,
            thirds: match rule.check {
                Check::Pair(_) => Thirds::OfName,
                Check::Shape { parts: [Part::Run(class, ..) | Part::Open(class, _), ..], .. } => {
                    Thirds::OfClass(*class)
                }
                _ => Thirds::Any,
            },
            target: Target::Rule(index),
        });
        let anchors: Vec<Anchor<'_>> = of_literals.chain(of_rules).collect();
        let filter = Filter::new(&anchors);
        Secrets { literals, filter }
    }

    /// The first secret that begins at the anchor at `pos`.
    fn confirm(&self, view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
        let (Some(first), Some(second)) = (view.at(pos)?, view.at(pos + 1)?) else { return Ok(None) };
        for target in self.filter.targets(first, second) {
            let found = match *target {
                Target::Literal(index) => self.confirm_literal(view, pos, index)?,
                Target::Rule(index) => match RULES.get(index) {
                    Some(rule) => self.confirm_rule(view, pos, rule)?,
                    None => None,
                },
            };
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn confirm_literal(&self, view: View<'_>, pos: usize, index: usize) -> Result<Option<Found>, More> {
        let Some(literal) = self.literals.get(index) else { return Ok(None) };
        let is_there = view.starts(pos, &literal.value, false)?;
        let to = pos + literal.value.len();
        Ok(is_there.then_some(Found { from: pos, to, kind: Kind::Literal(index), rest: None }))
    }

    fn confirm_rule(&self, view: View<'_>, pos: usize, rule: &Rule) -> Result<Option<Found>, More> {
        if !view.starts(pos, rule.anchor.as_bytes(), rule.fold)? {
            return Ok(None);
        }
        let after = pos + rule.anchor.len();
        match rule.check {
            Check::Shape { left, parts, need } => {
                if left == Left::Edge && !is_edge(view, pos) {
                    return Ok(None);
                }
                shaped(match_parts(view, after, parts, need)?, pos, rule.kind)
            }
            Check::AfterDigits { parts } => {
                let digits = view.before(pos, 12).iter().rev().take_while(|b| b.is_ascii_digit()).count();
                if !(8..=10).contains(&digits) {
                    return Ok(None);
                }
                shaped(match_parts(view, after, parts, shape::Need::Nothing)?, pos + 1, rule.kind)
            }
            Check::Pair(name) => match pair::pair(view, pos, after, name)? {
                // What has a shape of its own is called by its own name.
                Some(found) => Ok(Some(self.shape_at(view, found.from)?.unwrap_or(found))),
                None => Ok(None),
            },
            Check::Authorization => around::authorization(view, pos, after),
            Check::Bearer => around::bearer(view, pos, after),
            Check::UrlUser => around::url_user(view, after),
            Check::PemBlock => around::pem_block(view, pos, after),
        }
    }

    /// A secret with a shape of its own that begins at `pos`.
    fn shape_at(&self, view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
        let (Some(first), Some(second)) = (view.at(pos)?, view.at(pos + 1)?) else { return Ok(None) };
        for target in self.filter.targets(first, second) {
            let Target::Rule(index) = *target else { continue };
            let Some(rule) = RULES.get(index) else { continue };
            if let Check::Shape { .. } = rule.check
                && let Some(found) = self.confirm_rule(view, pos, rule)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

fn shaped(matched: Option<shape::Matched>, from: usize, kind: &'static str) -> Result<Option<Found>, More> {
    Ok(matched.map(|m| Found { from, to: m.to, kind: Kind::Rule(kind), rest: m.open.map(Swallow::Class) }))
}

/// Whether a variable of this name holds a secret.
fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let mut parts = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    let last = parts.clone().next_back().unwrap_or_default();
    let names_a_place = [
        "FILE",
        "PATH",
        "DIR",
        "SOCK",
        "ID",
        "NAME",
        "TYPE",
        "URL",
        "URI",
        "HOST",
        "USER",
        "STORE",
        "TTL",
        "LENGTH",
        "ALGORITHM",
    ];
    if names_a_place.contains(&last) {
        return false;
    }
    let telling = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL"];
    let whole = ["PASS", "CREDENTIALS", "KEYS", "TOKENS", "SECRETS", "PASSWORDS", "AUTH"];
    parts.any(|part| telling.iter().any(|word| part.ends_with(word)) || whole.contains(&part))
        || (last == "PWD" && name.ends_with("_PWD"))
}

/// Whether such a variable's value is one to strike: long enough, and neither a path nor a plain word.
fn is_secret_value(value: &[u8]) -> bool {
    let is_word = value.iter().all(u8::is_ascii_lowercase) && value.len() < 12;
    let is_path =
        value.starts_with(b"/") && value.iter().filter(|b| **b == b'/').count() > 1 && !value.contains(&b'=');
    let first = value.first().copied().unwrap_or(b' ');
    value.len() >= LITERAL_BYTES_MIN && !is_word && !is_path && !value.iter().all(|b| *b == first)
}

/// The streaming filter.
pub struct Redactor {
    secrets: Arc<Secrets>,
    /// What was emitted last (for looks to the left), then what is held back.
    work: Vec<u8>,
    /// How much of `work` was emitted.
    done: usize,
    /// Where the next secret is looked for.
    next: usize,
    swallow: Option<Swallow>,
    redactions: u64,
}

impl Redactor {
    pub fn new(secrets: Arc<Secrets>) -> Redactor {
        Redactor { secrets, work: Vec::new(), done: 0, next: 0, swallow: None, redactions: 0 }
    }

    /// Takes the next bytes and appends to `out` what is certain by now.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for step in bytes.chunks(STEP_BYTES) {
            self.work.extend_from_slice(step);
            self.scan(false, out);
            let from = self.done.min(self.next).saturating_sub(BACK_BYTES);
            self.work.drain(..from);
            self.done -= from;
            self.next -= from;
        }
    }

    /// Ends the stream: appends what was held back. The redactor may be used for another stream.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.scan(true, out);
        self.work.clear();
        (self.done, self.next) = (0, 0);
        self.swallow = None;
    }

    /// How many secrets were replaced.
    pub fn redactions(&self) -> u64 {
        self.redactions
    }

    /// How many bytes are held back.
    pub fn held(&self) -> usize {
        self.work.len() - self.done
    }

    fn scan(&mut self, last: bool, out: &mut Vec<u8>) {
        let secrets = Arc::clone(&self.secrets);
        let work = std::mem::take(&mut self.work);
        let view = View { bytes: &work, last };
        while self.pass_rest(view) {
            let Some(pos) = secrets.filter.next(&work, self.next) else {
                self.emit_to(view, self.safe_end(view), out);
                self.next = self.done;
                break;
            };
            match secrets.confirm(view, pos) {
                // What ends before `done` went with the last secret.
                Ok(Some(found)) if found.to > self.done => {
                    self.emit_to(view, found.from, out);
                    self.mark(found, out);
                }
                Ok(_) => self.next = pos + 1,
                Err(More) => {
                    self.emit_to(view, pos, out);
                    self.next = pos;
                    break;
                }
            }
        }
        self.work = work;
    }

    /// Skips the rest of the last secret; `false` when it goes on past the bytes at hand.
    fn pass_rest(&mut self, view: View<'_>) -> bool {
        let Some(swallow) = &mut self.swallow else { return true };
        let rest = view.bytes.get(self.done..).unwrap_or_default();
        let taken = swallow.take(rest);
        self.done += taken;
        // A key block without an end takes the next line's first words with it, and these may be the name
        // before another secret.
        let is_block = matches!(swallow, Swallow::Block(_));
        self.next = if is_block { self.done.saturating_sub(BACK_BYTES) } else { self.done };
        if taken == rest.len() {
            return false;
        }
        self.swallow = None;
        true
    }

    /// All bytes but a last one that may begin an anchor.
    fn safe_end(&self, view: View<'_>) -> usize {
        match view.bytes.last() {
            Some(byte) if !view.last && self.secrets.filter.may_begin(*byte) => view.bytes.len() - 1,
            _ => view.bytes.len(),
        }
    }

    fn emit_to(&mut self, view: View<'_>, to: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(view.bytes.get(self.done..to).unwrap_or_default());
        self.done = self.done.max(to);
    }

    fn mark(&mut self, found: Found, out: &mut Vec<u8>) {
        match found.kind {
            Kind::Rule(kind) => {
                out.extend_from_slice(b"[REDACTED:");
                out.extend_from_slice(kind.as_bytes());
                out.push(b']');
            }
            Kind::Literal(index) => {
                let marker = self.secrets.literals.get(index).map_or("[REDACTED:env]", |l| l.marker.as_str());
                out.extend_from_slice(marker.as_bytes());
            }
        }
        self.redactions += 1;
        self.done = self.done.max(found.to);
        self.next = self.done;
        self.swallow = found.rest;
    }
}

/// Redacts a whole piece of bytes.
pub fn redact_bytes(secrets: &Arc<Secrets>, bytes: &[u8]) -> Vec<u8> {
    let mut redactor = Redactor::new(Arc::clone(secrets));
    let mut out = Vec::with_capacity(bytes.len());
    redactor.push(bytes, &mut out);
    redactor.finish(&mut out);
    out
}

/// Redacts a whole text: a command, an error, a line of a log.
pub fn redact_text(secrets: &Arc<Secrets>, text: &str) -> String {
    String::from_utf8_lossy(&redact_bytes(secrets, text.as_bytes())).into_owned()
}
