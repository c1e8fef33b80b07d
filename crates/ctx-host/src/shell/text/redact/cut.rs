//! A secret that the end of a stream cuts in two: with the command that printed it, or where late output was told.
//!
//! What was held back at such an end has been handed on. What comes after it on the same pipe is told how the stream
//! broke off, and hides the rest of a secret that both make together, or of one that was hidden.

use std::sync::Arc;

use super::shape::{More, View};
use super::swallow::Swallow;
use super::{Found, Kind, Piece, Redactor, Secrets, Sink};

/// How a stream broke off.
#[derive(Debug, Clone, Default)]
pub struct Cut {
    open: Option<Open>,
    /// Something else was printed since.
    passed: bool,
}

#[derive(Debug, Clone)]
enum Open {
    /// Inside of a secret that was replaced.
    Inside { swallow: Swallow, kind: &'static str },
    /// With what may be the beginning of one; `replaced` says that it looks like a secret as it is.
    Begun { lead: Lead, replaced: bool },
}

/// The end of another stream, where a secret may begin, and what was held back for it since.
#[derive(Debug, Clone)]
pub(super) struct Lead {
    bytes: Vec<u8>,
    /// From here on a secret may begin.
    from: usize,
    /// Up to here it is of the other stream.
    before: usize,
    /// A name at its end is none of what comes now: `Password: ` is what a program asks.
    begun: bool,
}

impl Cut {
    /// What of it holds for a new command, which mostly prints something of its own: only where the end of what was
    /// printed before is the beginning of a secret itself, and was shown.
    pub fn of_command(&self) -> Cut {
        match &self.open {
            _ if self.passed => Cut::default(),
            Some(Open::Inside { swallow: swallow @ Swallow::Block(_), kind }) => {
                Cut::from(Open::Inside { swallow: swallow.of_other(), kind })
            }
            Some(Open::Begun { lead, replaced: false }) => {
                Cut::from(Open::Begun { lead: Lead { begun: true, ..lead.clone() }, replaced: false })
            }
            Some(Open::Inside { .. } | Open::Begun { .. }) | None => Cut::default(),
        }
    }

    /// What of it holds behind a command that has printed something: a job may go on with it, another command not.
    pub fn past_command(&self) -> Cut {
        match &self.open {
            Some(Open::Inside { swallow: Swallow::Block(_), .. } | Open::Begun { replaced: false, .. }) => {
                Cut { passed: true, ..self.clone() }
            }
            Some(Open::Inside { .. } | Open::Begun { .. }) | None => Cut::default(),
        }
    }

    pub fn is_none(&self) -> bool {
        self.open.is_none()
    }
}

impl From<Open> for Cut {
    fn from(open: Open) -> Cut {
        Cut { open: Some(open), passed: false }
    }
}

impl Lead {
    /// How many bytes of its own stream it holds.
    pub fn held(&self) -> usize {
        self.bytes.len() - self.before
    }
}

impl Redactor {
    /// How a stream that ends here breaks off.
    pub fn cut(&self) -> Cut {
        if let Some(lead) = &self.lead {
            let replaced = self.secrets.goes_on(lead, true).is_ok_and(|found| found.is_some());
            let lead = Lead { before: lead.bytes.len(), begun: false, ..lead.clone() };
            return self.inside_block(&lead).unwrap_or_else(|| Cut::from(Open::Begun { lead, replaced }));
        }
        // Most streams end with their last line.
        if self.swallow.is_none() && self.next >= self.work.len() {
            return Cut::default();
        }
        // The next line tells whether it goes on, whatever the last piece of a line looks like.
        if let Some(block @ Swallow::Block(_)) = &self.swallow {
            let held = self.work.get(self.done..).unwrap_or_default();
            let inside = |swallow| Cut::from(Open::Inside { swallow, kind: self.swallowed });
            return block.broken_off(held).map(inside).unwrap_or_default();
        }
        let mut ended = Redactor::new(Arc::clone(&self.secrets));
        (ended.done, ended.next) = (self.done, self.next);
        (ended.swallow, ended.swallowed) = (self.swallow.clone(), self.swallowed);
        ended.scan(View { bytes: &self.work, last: true });
        let kind = ended.swallowed;
        let (bytes, before) = (self.work.clone(), self.work.len());
        let lead = Lead { bytes, from: self.next, before, begun: false };
        match ended.swallow {
            Some(Swallow::Block(_)) => self.inside_block(&lead).unwrap_or_default(),
            Some(swallow) if self.swallow.is_some() => Cut::from(Open::Inside { swallow, kind }),
            _ if self.next < self.work.len() => {
                let replaced = matches!(ended.certain.last(), Some(Piece::Mark(_)));
                Cut::from(Open::Begun { lead, replaced })
            }
            _ => Cut::default(),
        }
    }

    /// Inside of a key's block that begins in the lead.
    fn inside_block(&self, lead: &Lead) -> Option<Cut> {
        match self.secrets.goes_on(lead, true) {
            Ok(Some(Found { rest: Some(swallow @ Swallow::Block(_)), kind: Kind::Rule(kind), .. })) => {
                Some(Cut::from(Open::Inside { swallow, kind }))
            }
            _ => None,
        }
    }

    /// Goes on, at the beginning of a stream, where another broke off.
    pub fn go_on(&mut self, cut: Cut) {
        match cut.open {
            Some(Open::Inside { swallow, kind }) => {
                (self.swallow, self.swallowed, self.unmarked) = (Some(swallow), kind, true);
            }
            Some(Open::Begun { lead, .. }) => self.lead = Some(lead),
            None => {}
        }
    }

    /// Takes bytes while it is open whether they go on with a secret.
    pub(super) fn push_to_lead(&mut self, mut lead: Lead, bytes: &[u8], sink: Sink<'_>) {
        lead.bytes.extend_from_slice(bytes);
        match self.secrets.goes_on(&lead, false) {
            Err(More) => self.lead = Some(lead),
            Ok(found) => self.leave(&lead, found, sink),
        }
    }

    /// There will be no more bytes.
    pub(super) fn finish_lead(&mut self, sink: Sink<'_>) {
        if let Some(lead) = self.lead.take() {
            let found = self.secrets.goes_on(&lead, true).ok().flatten();
            self.leave(&lead, found, sink);
        }
    }

    /// Hides what goes on with a secret. What follows is a stream like any other: the end of the one before is no
    /// part of its words.
    fn leave(&mut self, lead: &Lead, found: Option<Found>, sink: Sink<'_>) {
        let mut from = lead.before;
        if let Some(Found { from: begin, to, kind, rest }) = found {
            sink(lead.bytes.get(from..begin).unwrap_or_default());
            from = to;
            self.unmarked = to == lead.before;
            if !self.unmarked {
                self.certain.push(Piece::Mark(kind));
                self.hand_on(&[], sink);
                self.redactions += 1;
            }
            self.swallow = rest;
            if let Kind::Rule(kind) = kind {
                self.swallowed = kind;
            }
        }
        let rest = lead.bytes.get(from..).unwrap_or_default();
        // The dashes before a word are one row of them.
        if from == lead.before && self.swallow.is_none() && rest.starts_with(b"-") {
            let before = lead.bytes.get(..from).unwrap_or_default();
            let dashes = before.iter().rev().take(4).take_while(|byte| **byte == b'-').count();
            self.work = vec![b'-'; dashes];
            (self.done, self.next) = (dashes, dashes);
        }
        self.push_to(rest, sink);
    }
}

impl Secrets {
    /// The secret that begins in the other stream and ends in this one, or reaches the end of the other and may go on.
    fn goes_on(&self, lead: &Lead, last: bool) -> Result<Option<Found>, More> {
        let view = View { bytes: &lead.bytes, last };
        let mut pos = lead.from;
        while pos < lead.before {
            let Some(mut found) = self.confirm(view, pos)? else {
                pos += 1;
                continue;
            };
            if found.to > lead.before {
                // No program asks for a key with the rule that begins one.
                let is_block = matches!(found.rest, Some(Swallow::Block(_)));
                if !lead.begun || found.from < lead.before || is_block {
                    return Ok(Some(found));
                }
                pos += 1;
                continue;
            }
            if let Some(rest) = &mut found.rest {
                let inside = view.slice(found.to, lead.before);
                let taken = rest.take(inside, false);
                let held = inside.get(taken.bytes..).unwrap_or_default();
                if !taken.over
                    && let Some(rest) = rest.broken_off(held)
                {
                    let rest = Some(if lead.begun { rest.of_other() } else { rest });
                    return Ok(Some(Found { from: lead.before, to: lead.before, rest, ..found }));
                }
                found.to += taken.bytes;
            }
            pos = found.to.max(pos + 1);
        }
        Ok(None)
    }
}
