//! Patterns for program names, and the operator's policy file made of them.

use std::collections::HashMap;

use super::Program;

/// A name with `*` and `?`. With a slash in it, it is compared with the path as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

/// Why a pattern is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("it is empty")]
    Empty,
    #[error("it has more than one word; give the program's name alone")]
    Words,
    #[error("it has quotes, which would be part of the name; leave them out")]
    Quotes,
    #[error("only `*` and `?` are patterns here; write one line for each name, or use `?` for one character")]
    Brackets,
    #[error("it has {0:?}, which is in no program's name")]
    Char(char),
    #[error("it ends with a slash; name a program, or all of a directory with `/*`")]
    Directory,
}

/// The operator's rules. The first line that matches a program decides; what no line matches is allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    line: usize,
    allows: bool,
    pattern: Pattern,
}

/// A line of a policy file that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the policy: {reason}")]
pub struct PolicyError {
    pub line: usize,
    pub reason: String,
}

impl Pattern {
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.contains(char::is_whitespace) {
            return Err(PatternError::Words);
        }
        if text.ends_with('/') {
            return Err(PatternError::Directory);
        }
        // `[` is a program, alone or behind its directory.
        let rest = if base_name(text) == "[" { text.trim_end_matches('[') } else { text };
        rest.chars().try_for_each(name_char)?;
        Ok(Pattern(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern speaks of this program, whatever it turns out to be. Of an unknown one only `*` does.
    pub fn matches(&self, program: &Program) -> bool {
        match program {
            Program::Named(name) | Program::Function(name) => {
                glob(self.0.as_bytes(), self.part_of(name).as_bytes())
            }
            Program::Glob(_) | Program::Unknown(_) => self.is_star(),
        }
    }

    /// Whether the pattern speaks of something that this program may turn out to be. Of one that is wholly unknown,
    /// again only `*` does.
    pub fn may_match(&self, program: &Program) -> bool {
        match program {
            Program::Glob(text) => {
                overlap(self.0.as_bytes(), without_brackets(self.part_of(text)).as_bytes())
            }
            Program::Named(_) | Program::Function(_) | Program::Unknown(_) => self.matches(program),
        }
    }

    /// Whether it speaks of every program that the other one speaks of. `false` also where that is not simple to tell.
    fn covers(&self, other: &Pattern) -> bool {
        if self.is_star() {
            return true;
        }
        match (self.0.contains('/'), other.0.contains('/')) {
            (true, false) => false,
            // The name behind the last slash is known where no star or question mark stands for one.
            (false, true) => {
                let name = base_name(&other.0);
                !name.contains(['*', '?']) && glob(self.0.as_bytes(), name.as_bytes())
            }
            (true, true) | (false, false) => glob(self.0.as_bytes(), other.0.as_bytes()),
        }
    }

    fn is_star(&self) -> bool {
        self.0.chars().all(|c| c == '*')
    }

    /// What of a program's name the pattern is compared with.
    fn part_of<'a>(&self, name: &'a str) -> &'a str {
        if self.0.contains('/') { name } else { base_name(name) }
    }
}

/// What may stand in a pattern. A line that matches nothing would let run what it was written against.
fn name_char(char: char) -> Result<(), PatternError> {
    match char {
        '"' | '\'' | '`' => Err(PatternError::Quotes),
        '[' | ']' | '{' | '}' => Err(PatternError::Brackets),
        '\\' | '$' | ';' | '|' | '&' | '<' | '>' | '(' | ')' | ',' | '!' => Err(PatternError::Char(char)),
        char if char.is_control() => Err(PatternError::Char(char)),
        _ => Ok(()),
    }
}

/// The last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A shell's pattern with one `?` for each of its `[…]`, which may become no more than that.
fn without_brackets(pattern: &str) -> String {
    let (mut out, mut rest) = (String::new(), pattern);
    while let Some((before, inside)) = rest.split_once('[') {
        out.push_str(before);
        // A `]` right at the beginning, or behind a `!`, closes nothing.
        let first = usize::from(inside.starts_with(['!', '^']));
        let from = first + usize::from(inside.get(first..).is_some_and(|rest| rest.starts_with(']')));
        match inside.get(from..).and_then(|text| text.split_once(']')) {
            Some((_, after)) => {
                out.push('?');
                rest = after;
            }
            None => {
                out.push('[');
                rest = inside;
            }
        }
    }
    out + rest
}

/// Whether there is a text that both patterns match.
fn overlap(a: &[u8], b: &[u8]) -> bool {
    const STEPS_MAX: usize = 1 << 20;
    if a.len().saturating_mul(b.len()) > STEPS_MAX {
        return true;
    }
    let end = vec![false; b.len() + 1];
    // Whether the rest of `a` and the rest of `b` from each place on overlap; from the end of `a` backwards.
    let mut below = end.clone();
    for i in (0..=a.len()).rev() {
        let mut row = end.clone();
        for j in (0..=b.len()).rev() {
            let at = |row: &[bool], j: usize| row.get(j).copied().unwrap_or_default();
            let (next_a, next_b, both) = (at(&below, j), at(&row, j + 1), at(&below, j + 1));
            let meets = match (a.get(i), b.get(j)) {
                (None, None) => true,
                (Some(b'*'), _) | (_, Some(b'*')) => next_a || next_b,
                (Some(x), Some(y)) => (x == y || *x == b'?' || *y == b'?') && both,
                (None, Some(_)) | (Some(_), None) => false,
            };
            if let Some(cell) = row.get_mut(j) {
                *cell = meets;
            }
        }
        below = row;
    }
    below.first().copied().unwrap_or_default()
}

/// `*` for any text, `?` for one byte but a star, which is more than one in a pattern that is compared. Without
/// backtracking further than the last star.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(byte) if (*byte == b'?' && text.get(t) != Some(&b'*')) || text.get(t) == Some(byte) => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((after, at)) => {
                    star = Some((after, at + 1));
                    p = after;
                    t = at + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|byte| *byte == b'*'))
}

impl Policy {
    /// A policy that allows everything.
    pub fn open() -> Policy {
        Policy::default()
    }

    /// Reads `allow PATTERN` and `deny PATTERN` lines; blank lines and `#` comments are skipped. A line that an earlier
    /// one leaves nothing to decide is an error: it would not do what it was written for.
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        let mut rules = Vec::new();
        let mut earlier = Earlier::default();
        for (index, line) in text.lines().enumerate() {
            let (number, line) = (index + 1, line.trim());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            const WRITE: &str = "write `allow PATTERN` or `deny PATTERN`";
            let error = |reason: String| PolicyError { line: number, reason: format!("{reason}; {WRITE}") };
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let allows = match word {
                "allow" => true,
                "deny" => false,
                other => return Err(error(format!("{other:?} is neither allow nor deny"))),
            };
            let pattern = Pattern::parse(rest).map_err(|reason| error(format!("bad pattern: {reason}")))?;
            // One that says the same once more does no harm.
            if let Some(before) = earlier.covering(&pattern).filter(|before| before.allows != allows) {
                return Err(PolicyError { line: number, reason: never_decides(line, before) });
            }
            let rule = Rule { line: number, allows, pattern };
            earlier.add(&rule);
            rules.push(rule);
        }
        Ok(Policy { rules })
    }

    /// Whether it has no rule.
    pub fn is_open(&self) -> bool {
        self.rules.is_empty()
    }

    /// The line that denies this program, and its pattern. Where it is not known what the program will be, every
    /// line counts that denies one of those it may be.
    pub(super) fn denies(&self, program: &Program) -> Option<(usize, &Pattern)> {
        let decides = |rule: &&Rule| match rule.allows {
            true => rule.pattern.matches(program),
            false => rule.pattern.may_match(program),
        };
        let rule = self.rules.iter().find(decides)?;
        (!rule.allows).then_some((rule.line, &rule.pattern))
    }
}

/// The rules so far, so that a long file is read in time.
#[derive(Default)]
struct Earlier {
    names: HashMap<String, Rule>,
    patterns: Vec<Rule>,
}

impl Earlier {
    fn add(&mut self, rule: &Rule) {
        match rule.pattern.0.contains(['*', '?']) {
            true => self.patterns.push(rule.clone()),
            false => drop(self.names.insert(rule.pattern.0.clone(), rule.clone())),
        }
    }

    /// The first rule that speaks of all that this pattern speaks of.
    fn covering(&self, pattern: &Pattern) -> Option<&Rule> {
        let names = [pattern.as_str(), base_name(pattern.as_str())];
        let names = names.into_iter().filter_map(|name| self.names.get(name));
        let covering = names.chain(&self.patterns).filter(|rule| rule.pattern.covers(pattern));
        covering.min_by_key(|rule| rule.line)
    }
}

fn never_decides(line: &str, before: &Rule) -> String {
    let (word, pattern, at) =
        (if before.allows { "allow" } else { "deny" }, before.pattern.as_str(), before.line);
    format!(
        "`{line}` never decides anything, because the first line that matches a program does, and line {at} \
         (`{word} {pattern}`) matches all that it does; put it before line {at}, or leave it out"
    )
}
