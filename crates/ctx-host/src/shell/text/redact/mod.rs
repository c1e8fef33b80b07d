//! Takes secrets out of a byte stream before anything leaves or is stored.
//!
//! `Redactor` is a filter: bytes in, bytes out, each secret replaced by `[REDACTED:kind]`. It holds back
//! only what may be the beginning of a secret, a few KiB at most, so a secret cut across two reads is
//! found and a line of 50 MB costs no memory. The outcome does not depend on where the reads were cut.
//! It finds what has a known shape or name and the values it was told; it is no proof that no secret passes.

mod around;
mod bare;
mod beside;
mod block;
mod cut;
mod entry;
mod env;
mod files;
mod filter;
mod letters;
mod listed;
mod literals;
mod masks;
mod name;
mod name_ends;
mod pair;
mod phrase;
mod rules;
mod same_words;
mod search;
mod shape;
mod strip;
mod swallow;
mod value;
mod words;
mod yaml;

use std::ops::Range;
use std::sync::Arc;

use block::Body;
pub use cut::Cut;
use cut::Lead;
use filter::{Anchor, Target, Thirds};
use masks::Masks;
use rules::{Check, RULES, Rule};
use search::{Candidates, Search};
use shape::{BACK_BYTES, Left, More, View, is_edge, is_inside_blob, match_parts};
use swallow::Swallow;

/// Bytes looked at at once; they and their maps stay in the nearest caches.
const STEP_BYTES: usize = 32 * 1024;
/// The beginning of a long piece that is joined to what was held back; the rest is looked at where it lies.
const SEAM_BYTES: usize = 1024;
/// Of a longer value the beginning is looked for, and the rest of its line goes with it.
const LITERAL_BYTES_MAX: usize = 16 * 1024;

/// The rules and the literal values to look for. Build it once per shell and share it.
pub struct Secrets {
    literals: Vec<Literal>,
    candidates: Candidates,
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
            if !env::is_secret(name, value) {
                continue;
            }
            for value in [value].into_iter().chain(env::secret_lines(value)) {
                let value = value.get(..LITERAL_BYTES_MAX).unwrap_or(value).to_vec();
                literals.push(Literal { marker: format!("[REDACTED:env:{name}]"), value });
            }
        }
        // Of two values where one begins the other, the longer is tried first; of the same one, the first name stays.
        literals.sort_by(|a, b| b.value.len().cmp(&a.value.len()).then_with(|| a.value.cmp(&b.value)));
        literals.dedup_by(|later, first| later.value == first.value);
        Secrets::build(literals)
    }

    fn build(literals: Vec<Literal>) -> Secrets {
        let of_literals = literals.iter().enumerate().map(|(index, literal)| Anchor {
            bytes: &literal.value,
            fold: false,
            thirds: Thirds::Any,
            target: Target::Literal(index),
        });
        let of_rules = RULES.iter().enumerate().map(|(index, rule)| Anchor::of(index, rule));
        let anchors: Vec<Anchor<'_>> = of_literals.chain(of_rules).collect();
        let candidates = Candidates::new(&anchors);
        Secrets { literals, candidates }
    }

    /// The first secret that begins at the anchor at `pos`.
    fn confirm(&self, view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
        self.confirm_if(view, pos, |_| true)
    }

    /// The same by some of the rules.
    #[inline]
    fn confirm_if(
        &self,
        view: View<'_>,
        pos: usize,
        is_wanted: impl Fn(&Rule) -> bool,
    ) -> Result<Option<Found>, More> {
        let (Some(first), Some(second)) = (view.at(pos)?, view.at(pos + 1)?) else { return Ok(None) };
        for target in self.candidates.targets(first, second) {
            let found = match *target {
                Target::Literal(index) => self.confirm_literal(view, pos, index)?,
                Target::Rule(index) => match RULES.get(index) {
                    Some(rule) if is_wanted(rule) => self.confirm_rule(view, pos, rule)?,
                    _ => None,
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
                if (left == Left::Edge && !is_edge(view, pos)) || is_inside_blob(view, pos, rule.anchor)? {
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
            Check::Pair(name) => self.by_its_shape(view, pair::pair(view, pos, after, name)?),
            Check::Listed => self.by_its_shape(view, listed::listed(view, pos, after)?),
            Check::Authorization => self.widened(view, after, around::authorization(view, pos, after)?),
            Check::Bearer => around::bearer(view, pos, after),
            Check::UrlUser => self.widened(view, after, around::url_user(view, after)?),
            Check::PemBlock => around::pem_block(view, pos, after),
            Check::EncodedKey => around::encoded_key(view, pos, after),
            Check::Ssh2Block => around::key_block(view, after, Body::Base64),
            Check::Signature => around::signature(view, pos, after),
            Check::PuttyBlock => around::putty_block(view, after),
            Check::Beside { before: [] } => files::password(view, pos, after),
            Check::Beside { before } => match view.before(pos, 1) {
                [byte] if before.contains(byte) => files::password(view, pos - 1, after),
                _ => Ok(None),
            },
            Check::Words(kind) => words::words(view, pos, after, kind),
            Check::PgPass => self.widened(view, after, files::pgpass(view, pos)?),
        }
    }

    /// A finding that also takes in what is a secret by itself between `pos` and it. Only rules look there that do not
    /// look so far themselves.
    fn widened(&self, view: View<'_>, pos: usize, found: Option<Found>) -> Result<Option<Found>, More> {
        let Some(found) = found else { return Ok(None) };
        let is_near =
            |rule: &Rule| !matches!(rule.check, Check::PgPass | Check::Authorization | Check::UrlUser);
        for at in pos..found.from {
            if let Some(inner) = self.confirm_if(view, at, is_near)? {
                return Ok(Some(Found { from: inner.from.min(found.from), ..found }));
            }
        }
        Ok(Some(found))
    }

    /// What has a shape of its own is called by its own name.
    fn by_its_shape(&self, view: View<'_>, found: Option<Found>) -> Result<Option<Found>, More> {
        let Some(found) = found else { return Ok(None) };
        Ok(Some(self.shape_at(view, found.from)?.unwrap_or(found)))
    }

    /// A secret with a shape of its own that begins at `pos`.
    fn shape_at(&self, view: View<'_>, pos: usize) -> Result<Option<Found>, More> {
        let (Some(first), Some(second)) = (view.at(pos)?, view.at(pos + 1)?) else { return Ok(None) };
        for target in self.candidates.targets(first, second) {
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

/// The streaming filter.
pub struct Redactor {
    secrets: Arc<Secrets>,
    masks: Masks,
    /// What was emitted last (for looks to the left), then what is held back.
    work: Vec<u8>,
    /// How much of `work` was emitted.
    done: usize,
    /// Where the next secret is looked for.
    next: usize,
    swallow: Option<Swallow>,
    /// The kind of what is swallowed, or was last.
    swallowed: &'static str,
    /// Whether the mark of what is swallowed is still due: it began in another stream.
    unmarked: bool,
    /// What a secret may have begun with in another stream, until that is settled.
    lead: Option<Lead>,
    redactions: u64,
    /// What is certain, until it is handed on.
    certain: Vec<Piece>,
    /// Where the window that is looked at lies in what its pieces are taken from.
    base: usize,
}

/// A piece of what comes out.
#[derive(Debug, Clone)]
enum Piece {
    Bytes(Range<usize>),
    Mark(Kind),
}

/// Takes what is certain, piece by piece.
type Sink<'a> = &'a mut dyn FnMut(&[u8]);

impl Redactor {
    pub fn new(secrets: Arc<Secrets>) -> Redactor {
        Redactor {
            secrets,
            masks: Masks::default(),
            work: Vec::new(),
            done: 0,
            next: 0,
            swallow: None,
            swallowed: "secret",
            unmarked: false,
            lead: None,
            redactions: 0,
            certain: Vec::new(),
            base: 0,
        }
    }

    /// Takes the next bytes and appends to `out` what is certain by now.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.push_to(bytes, &mut |piece| out.extend_from_slice(piece));
    }

    /// Takes the next bytes and hands on what is certain by now; most of it is not copied.
    pub fn push_to(&mut self, bytes: &[u8], sink: Sink<'_>) {
        if let Some(lead) = self.lead.take() {
            return self.push_to_lead(lead, bytes, sink);
        }
        let mut rest = bytes;
        while !rest.is_empty() {
            let held = self.work.len();
            let (seam, after) = rest.split_at(rest.len().min(if held == 0 { 0 } else { SEAM_BYTES }));
            if !seam.is_empty() {
                let mut work = std::mem::take(&mut self.work);
                work.extend_from_slice(seam);
                self.scan(View { bytes: &work, last: false });
                self.hand_on(&work, sink);
                self.work = work;
                if after.is_empty() || self.done.min(self.next) < held + BACK_BYTES {
                    let from = self.forget_before();
                    self.work.drain(..from);
                    rest = after;
                    continue;
                }
                // All that still matters lies in `rest` itself.
                self.done -= held;
                self.next -= held;
                self.work.clear();
            }
            self.scan_in_place(rest, sink);
            return;
        }
    }

    /// Looks at bytes where they lie, window by window, and holds back their end.
    fn scan_in_place(&mut self, bytes: &[u8], sink: Sink<'_>) {
        let mut step = STEP_BYTES;
        loop {
            let rest = bytes.get(self.base..).unwrap_or_default();
            let window = rest.get(..step).unwrap_or(rest);
            self.scan(View { bytes: window, last: false });
            let from = self.forget_before();
            // Where more is held back than a window holds, the window grows.
            step = if from == 0 { step * 2 } else { STEP_BYTES };
            self.base += from;
            if window.len() == rest.len() {
                self.work.extend_from_slice(bytes.get(self.base..).unwrap_or_default());
                return self.hand_on(bytes, sink);
            }
        }
    }

    /// Hands on what is certain; its pieces lie in `source`.
    fn hand_on(&mut self, source: &[u8], sink: Sink<'_>) {
        for piece in self.certain.drain(..) {
            match piece {
                Piece::Bytes(range) => sink(source.get(range).unwrap_or_default()),
                Piece::Mark(Kind::Rule(kind)) => sink(format!("[REDACTED:{kind}]").as_bytes()),
                Piece::Mark(Kind::Literal(index)) => {
                    let literal = self.secrets.literals.get(index);
                    sink(literal.map_or("[REDACTED:env]", |literal| literal.marker.as_str()).as_bytes());
                }
            }
        }
        self.base = 0;
    }

    /// Gives up what is neither held back nor near enough to be looked back at; says how much that is.
    fn forget_before(&mut self) -> usize {
        let from = self.done.min(self.next).saturating_sub(BACK_BYTES);
        self.done -= from;
        self.next -= from;
        from
    }

    /// Ends the stream: appends what was held back. The redactor may be used for another stream.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        self.finish_lead(&mut |piece| out.extend_from_slice(piece));
        let work = std::mem::take(&mut self.work);
        self.scan(View { bytes: &work, last: true });
        self.hand_on(&work, &mut |piece| out.extend_from_slice(piece));
        (self.done, self.next) = (0, 0);
        (self.swallow, self.unmarked) = (None, false);
    }

    /// How many secrets were replaced.
    pub fn redactions(&self) -> u64 {
        self.redactions
    }

    /// How many bytes are held back.
    pub fn held(&self) -> usize {
        self.lead.as_ref().map_or(0, Lead::held) + self.work.len() - self.done
    }

    fn scan(&mut self, view: View<'_>) {
        let secrets = Arc::clone(&self.secrets);
        let mut masks = std::mem::take(&mut self.masks);
        if self.pass_rest(view) {
            let mut search = Search::new(&secrets.candidates, &mut masks, view.bytes, self.next);
            self.look(&secrets, view, &mut search);
        }
        self.masks = masks;
    }

    fn look(&mut self, secrets: &Secrets, view: View<'_>, search: &mut Search<'_>) {
        loop {
            let Some(pos) = search.next() else {
                self.emit_to(self.safe_end(view));
                self.next = self.done;
                return;
            };
            match secrets.confirm(view, pos) {
                // What ends before `done` went with the last secret.
                Ok(Some(found)) if found.to > self.done => {
                    self.emit_to(found.from);
                    self.mark(found);
                    if !self.pass_rest(view) {
                        return;
                    }
                    search.seek(self.next);
                }
                Ok(_) => {}
                Err(More) => {
                    self.emit_to(pos);
                    self.next = pos;
                    return;
                }
            }
        }
    }

    /// Skips the rest of the last secret; `false` when it goes on past the bytes at hand.
    fn pass_rest(&mut self, view: View<'_>) -> bool {
        let Some(swallow) = &mut self.swallow else { return true };
        let rest = view.bytes.get(self.done..).unwrap_or_default();
        let taken = swallow.take(rest, view.last);
        self.done += taken.bytes;
        self.next = self.done;
        if self.unmarked && taken.bytes > 0 {
            self.certain.push(Piece::Mark(Kind::Rule(self.swallowed)));
            self.redactions += 1;
            self.unmarked = false;
        }
        if taken.over {
            (self.swallow, self.unmarked) = (None, false);
        }
        taken.over
    }

    /// All bytes but a last one that may begin an anchor.
    fn safe_end(&self, view: View<'_>) -> usize {
        match view.bytes.last() {
            Some(byte) if !view.last && self.secrets.candidates.may_begin(*byte) => view.bytes.len() - 1,
            _ => view.bytes.len(),
        }
    }

    fn emit_to(&mut self, to: usize) {
        if to > self.done {
            let (from, to) = (self.base + self.done, self.base + to);
            match self.certain.last_mut() {
                Some(Piece::Bytes(last)) if last.end == from => last.end = to,
                _ => self.certain.push(Piece::Bytes(from..to)),
            }
        }
        self.done = self.done.max(to);
    }

    fn mark(&mut self, found: Found) {
        self.certain.push(Piece::Mark(found.kind));
        self.redactions += 1;
        self.done = self.done.max(found.to);
        self.next = self.done;
        self.swallow = found.rest;
        if let Kind::Rule(kind) = found.kind {
            self.swallowed = kind;
        }
    }
}

/// Whether a variable is a secret, by its name and its value.
pub fn is_secret_variable(name: &str, value: &[u8]) -> bool {
    env::is_secret(name, value.trim_ascii())
}

/// Whether a variable of this name may be one.
pub fn is_secret_name(name: &str) -> bool {
    env::is_secret_name(name)
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
