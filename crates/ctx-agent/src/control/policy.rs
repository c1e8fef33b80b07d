//! Policy: which tools an agent may use on what. Lines of `allow|ask|deny TOOL [PATTERN]`, first match wins.

use std::fmt;
use std::str::FromStr;

use ctx_text::fence::{Program, programs};

use super::short;

/// What a policy says of a tool call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Allow,
    Ask,
    Deny,
}

/// One line of a policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    pub verdict: Verdict,
    /// A glob on the tool's name: `fs.*`.
    pub tool: String,
    /// A glob on the path or the command, to the end of the line; without it the rule holds for every call.
    pub pattern: Option<String>,
}

/// The rules of an agent, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Policy {
    pub rules: Vec<Rule>,
}

/// Whether a tool changes anything outside the conversation. Decides what holds when no rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effects {
    None,
    Some,
}

impl Policy {
    /// What holds for a call. `subjects` are the ways to write what it touches; a rule that matches one matches.
    pub fn decide(&self, tool: &str, effects: Effects, subjects: &[String]) -> Verdict {
        match (self.rule_for(tool, subjects), effects) {
            (Some(rule), _) => rule.verdict,
            (None, Effects::None) => Verdict::Allow,
            (None, Effects::Some) => Verdict::Ask,
        }
    }

    /// Whether what is allowed is allowed also where no cage is around it: a pattern that fits a command's whole text must
    /// fit the name of each of its programs, such as the `rm` of `make; rm -r x`, unless the text begins with its only one.
    /// And none of them may be what a rule before it denies or asks about.
    pub fn fits_all_programs(&self, tool: &str, command: &str) -> bool {
        let subjects = [command.to_owned()];
        let Some((at, rule)) = self.first_rule(tool, &subjects) else { return false };
        let programs = programs(command);
        let fits = |pattern: &str, program: &Program| glob(pattern, program.name().unwrap_or_default());
        let is_kept_out = |rule: &Rule| {
            let pattern = rule.pattern.as_deref().filter(|_| rule.verdict != Verdict::Allow);
            glob(&rule.tool, tool) && pattern.is_some_and(|p| programs.iter().any(|program| fits(p, program)))
        };
        if self.rules.iter().take(at).any(is_kept_out) {
            return false;
        }
        rule.pattern.as_deref().is_none_or(|pattern| match programs.as_slice() {
            [] => false,
            [only] => fits(pattern, only) || begins_with(command, only),
            several => several.iter().all(|program| fits(pattern, program)),
        })
    }

    /// The first rule that matches a call.
    pub fn rule_for(&self, tool: &str, subjects: &[String]) -> Option<&Rule> {
        self.first_rule(tool, subjects).map(|(_, rule)| rule)
    }

    fn first_rule(&self, tool: &str, subjects: &[String]) -> Option<(usize, &Rule)> {
        let matches = |rule: &Rule| {
            glob(&rule.tool, tool)
                && rule.pattern.as_deref().is_none_or(|p| subjects.iter().any(|subject| glob(p, subject)))
        };
        self.rules.iter().enumerate().find(|(_, rule)| matches(rule))
    }

    /// The rules as lines, for the `context` record.
    pub fn lines(&self) -> Vec<String> {
        self.rules.iter().map(Rule::to_string).collect()
    }
}

/// Whether the text of a command begins with its program, and not with an assignment or a redirection.
fn begins_with(command: &str, program: &Program) -> bool {
    let first = command.split_whitespace().next().unwrap_or_default();
    first.rsplit('/').next() == program.name().and_then(|name| name.rsplit('/').next())
}

impl FromStr for Rule {
    type Err = String;

    /// Checks only the characters of the tool's name, because it may be a glob or belong to an MCP server that is not started yet.
    fn from_str(line: &str) -> Result<Rule, String> {
        let mut words = line.trim().splitn(2, char::is_whitespace);
        let verdict = match words.next() {
            Some("allow") => Verdict::Allow,
            Some("ask") => Verdict::Ask,
            Some("deny") => Verdict::Deny,
            other => {
                let found = short(other.unwrap_or_default());
                return Err(format!("expected `allow|ask|deny TOOL [PATTERN]`, found `{found}`"));
            }
        };
        let mut rest = words.next().unwrap_or_default().trim().splitn(2, char::is_whitespace);
        let tool = rest.next().unwrap_or_default();
        let well_formed = !tool.is_empty()
            && tool
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+' | b'*' | b'?'));
        if !well_formed {
            return Err(format!(
                "expected the name of a tool such as `fs.read` or `fs.*`, found `{}`",
                short(tool)
            ));
        }
        let pattern = rest.next().map(str::trim).filter(|p| !p.is_empty()).map(str::to_owned);
        Ok(Rule { verdict, tool: tool.to_owned(), pattern })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Allow => "allow",
            Verdict::Ask => "ask",
            Verdict::Deny => "deny",
        };
        write!(f, "{verdict} {}", self.tool)?;
        match &self.pattern {
            Some(pattern) => write!(f, " {pattern}"),
            None => Ok(()),
        }
    }
}

/// Whether a whole text matches: `*` stands for anything, also nothing and `/`, and `?` for one character.
pub fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last `*` stood and how much of the text it has taken: the only place to come back to.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || Some(c) == text.get(t) => {
                p += 1;
                t += 1;
            }
            Some(_) | None => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    t = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern.iter().skip(p).all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> Policy {
        Policy { rules: text.lines().map(|line| line.parse().unwrap()).collect() }
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let policy = policy("deny shell.exec git push*\nask shell.exec\ndeny fs.read *.env\nallow fs.*");
        for (tool, effects, subject, verdict) in [
            ("shell.exec", Effects::Some, "git push --force", Verdict::Deny),
            ("shell.exec", Effects::Some, "git status", Verdict::Ask),
            ("fs.read", Effects::None, "/work/a/.env", Verdict::Deny),
            ("fs.write", Effects::Some, "/work/a", Verdict::Allow),
            ("todo", Effects::None, "", Verdict::Allow),
            ("terminal.open", Effects::Some, "", Verdict::Ask),
        ] {
            assert_eq!(policy.decide(tool, effects, &[subject.to_owned()]), verdict, "{tool} {subject}");
        }
    }

    #[test]
    fn a_rule_matches_whichever_way_the_subject_is_written() {
        let policy = policy("deny fs.read secret/*");
        let both = ["/work/secret/key".to_owned(), "secret/key".to_owned()];
        assert_eq!(policy.decide("fs.read", Effects::None, &both), Verdict::Deny);
        assert_eq!(policy.decide("fs.read", Effects::None, &[]), Verdict::Allow);
    }

    #[test]
    fn a_bad_rule_says_what_is_expected() {
        for (line, part) in [
            ("permit fs.read", "expected `allow|ask|deny TOOL [PATTERN]`, found `permit`"),
            ("", "found ``"),
            ("allow", "expected the name of a tool"),
            ("allow fs/read", "found `fs/read`"),
        ] {
            let error = line.parse::<Rule>().unwrap_err();
            assert!(error.contains(part), "{line}: {error}");
        }
    }

    #[test]
    fn a_rule_is_written_as_it_is_read() {
        for line in ["allow fs.*", "ask shell.exec", "deny shell.exec git  push *"] {
            assert_eq!(line.parse::<Rule>().unwrap().to_string(), line);
        }
    }

    #[test]
    fn without_a_cage_a_pattern_allows_no_other_program_behind_its_own() {
        let policy = Policy { rules: vec!["allow shell.exec make*".parse().unwrap()] };
        let bare = Policy { rules: vec!["allow shell.exec".parse().unwrap()] };
        for (command, fits) in [
            ("make all", true),
            ("make a && make b", true),
            ("make; rm -r x", false),
            ("make $(rm x)", false),
            ("make | tee log", false),
            ("make `$X`", false),
            ("/usr/bin/make a", false),
            ("make=1 rm x", false),
            ("make=1 make x", true),
            ("make=1 >file", false),
        ] {
            assert_eq!(policy.fits_all_programs("shell.exec", command), fits, "{command}");
            assert!(bare.fits_all_programs("shell.exec", command));
        }
        let with_words = Policy { rules: vec!["allow shell.exec make test*".parse().unwrap()] };
        assert!(with_words.fits_all_programs("shell.exec", "make test -j4"));
        assert!(!with_words.fits_all_programs("shell.exec", "make test; rm x"));
        let lines = ["deny shell.exec rm*", "ask shell.exec git push*", "allow shell.exec *"];
        let all = Policy { rules: lines.map(|line| line.parse().unwrap()).to_vec() };
        for (command, fits) in [("cd x && make", true), ("cd x && rm -r y", false), ("X=1 rm y", false)] {
            assert_eq!(all.fits_all_programs("shell.exec", command), fits, "{command}");
        }
    }

    #[test]
    fn globs() {
        for (pattern, text, expected) in [
            ("", "", true),
            ("*", "", true),
            ("a*c", "abbc", true),
            ("a*c", "abcb", false),
            ("*.env", "/a/b.env", true),
            ("a?c", "aäc", true),
            ("a?c", "ac", false),
            ("**x**", "wxyz", true),
            ("ab", "abc", false),
        ] {
            assert_eq!(glob(pattern, text), expected, "{pattern} {text}");
        }
    }
}
