//! Patterns for program names, and the operator's policy file, which consists of them. How programs are found in a
//! command is not its business.

/// A name with `*` and `?`. With a slash in it, it is compared with the path as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

/// Why a text is not a pattern.
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

    /// Whether the pattern matches this program. Only `*` matches one whose name is unknown.
    pub fn matches(&self, program: Option<&str>) -> bool {
        let Some(name) = program else { return self.is_star() };
        // A pattern without a slash is compared with the name behind the last one.
        let compared = if self.0.contains('/') { name } else { base_name(name) };
        glob(self.0.as_bytes(), compared.as_bytes())
    }

    /// Whether it matches every program that the other one matches. `false` also where that is not simple to see.
    fn covers(&self, other: &Pattern) -> bool {
        if self.is_star() {
            return true;
        }
        match (self.0.contains('/'), other.0.contains('/')) {
            (true, false) => false,
            // Only without a star or question mark is the name behind the last slash known.
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
}

/// Checks a character of a pattern: a pattern that can match nothing would let run what it was written against.
fn name_char(char: char) -> Result<(), PatternError> {
    match char {
        '"' | '\'' | '`' => Err(PatternError::Quotes),
        '[' | ']' | '{' | '}' => Err(PatternError::Brackets),
        '\\' | '$' | ';' | '|' | '&' | '<' | '>' | '(' | ')' | ',' | '!' => Err(PatternError::Char(char)),
        char if char.is_control() => Err(PatternError::Char(char)),
        _ => Ok(()),
    }
}

/// Matches `*` with any text and `?` with one byte, but not with a star: a pattern may be compared with a pattern, whose
/// star stands for more than one byte. It returns to the last star only, so its time is bounded.
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

    /// Reads `allow PATTERN` and `deny PATTERN` lines; blank lines and `#` comments are skipped. A line that can never
    /// decide, because an earlier one matches the same programs, is an error: it would not do what it was written for.
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        let mut rules: Vec<Rule> = Vec::new();
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
            // A line that repeats what an earlier one says does no harm.
            let before = rules.iter().find(|before| before.pattern.covers(&pattern));
            if let Some(before) = before.filter(|before| before.allows != allows) {
                return Err(PolicyError { line: number, reason: never_decides(line, before) });
            }
            rules.push(Rule { line: number, allows, pattern });
        }
        Ok(Policy { rules })
    }

    /// Whether it has no rules.
    pub fn is_open(&self) -> bool {
        self.rules.is_empty()
    }

    /// The line that denies this program.
    pub fn denies(&self, program: Option<&str>) -> Option<usize> {
        let rule = self.rules.iter().find(|rule| rule.pattern.matches(program))?;
        (!rule.allows).then_some(rule.line)
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

/// The last part of a path.
pub(super) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
