//! Patterns for program names, and the operator's policy file made of them.

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
#[error("line {line} of the policy: {reason}; write `allow PATTERN` or `deny PATTERN`")]
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
        Ok(Pattern(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the pattern speaks of this program. Of an unknown one only `*` does.
    pub fn matches(&self, program: &Program) -> bool {
        match program {
            Program::Named(name) | Program::Function(name) => {
                let subject = if self.0.contains('/') { name } else { base_name(name) };
                glob(self.0.as_bytes(), subject.as_bytes())
            }
            Program::Unknown(_) => self.0.chars().all(|c| c == '*'),
        }
    }
}

/// The last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// `*` for any text, `?` for one byte. Without backtracking further than the last star.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(byte) if *byte == b'?' || text.get(t) == Some(byte) => {
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

    /// Reads `allow PATTERN` and `deny PATTERN` lines; blank lines and `#` comments are skipped.
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        let mut rules = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let (number, line) = (index + 1, line.trim());
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let error = |reason: String| PolicyError { line: number, reason };
            let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
            let allows = match word {
                "allow" => true,
                "deny" => false,
                other => return Err(error(format!("{other:?} is neither allow nor deny"))),
            };
            let pattern = Pattern::parse(rest).map_err(|reason| error(format!("bad pattern: {reason}")))?;
            rules.push(Rule { line: number, allows, pattern });
        }
        Ok(Policy { rules })
    }

    pub(super) fn is_open(&self) -> bool {
        self.rules.is_empty()
    }

    /// The line that denies this program.
    pub(super) fn denies(&self, program: &Program) -> Option<usize> {
        let rule = self.rules.iter().find(|rule| rule.pattern.matches(program))?;
        (!rule.allows).then_some(rule.line)
    }
}
