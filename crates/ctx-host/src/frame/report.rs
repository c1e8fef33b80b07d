//! Separates the shell's report from what background jobs print into it.
//!
//! Both go into the same pipe. bash writes its report line by line, and a longer line in pieces of one size, so a job's
//! output stands between statements of the report, or between such pieces. What is not the report's is the job's output.
//! What may hold a variable's value and cannot be read is neither: it is not shown, and the report is spoilt.
//! A job that prints exactly what a shell reports is taken for the report.

#![expect(clippy::indexing_slicing, reason = "positions come from searches in the same bytes")]

use super::exports;
use super::quote::quoted_len;

/// What bash writes at once of a long line.
const PIECE_BYTES: usize = 4 << 10;
/// More lines than this in the middle of a value are not looked through.
const LINES_IN_A_VALUE_MAX: usize = 64;
const TRAP: &[u8] = b"trap -- ";

/// A report and what stood in it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Split {
    pub own: Vec<u8>,
    /// What jobs have printed, in its order.
    pub foreign: Vec<u8>,
    /// Whether a statement of the report could not be read.
    pub spoilt: bool,
}

/// Takes a report apart. The last line of one that is not whole is nobody's where it has no end.
pub fn split(report: &[u8], whole: bool) -> Split {
    let mut split = Split::default();
    // The exit code, the options and the directory are written at once.
    let Some(answer) = memchr::memchr_iter(0, report).nth(2) else {
        return Split { own: report.to_vec(), ..split };
    };
    let (answer, mut rest) = report.split_at(answer + 1);
    split.own.extend_from_slice(answer);
    let mut reader = ReportReader { traps: true, word: word_of(rest) };
    while !rest.is_empty() {
        let (section, len) = reader.next(rest);
        let taken;
        (taken, rest) = rest.split_at(len);
        match section {
            Section::Own => split.own.extend_from_slice(taken),
            Section::Foreign if whole || !rest.is_empty() || taken.ends_with(b"\n") => {
                split.foreign.extend_from_slice(taken);
            }
            Section::Foreign => {}
            Section::Torn { own, foreign } => {
                split.own.extend(own);
                split.foreign.extend_from_slice(foreign);
            }
            Section::Spoilt => split.spoilt = true,
        }
    }
    split
}

enum Section<'a> {
    Own,
    Foreign,
    /// A statement with a job's lines between two pieces of it.
    Torn {
        own: Vec<u8>,
        foreign: &'a [u8],
    },
    Spoilt,
}

/// Reads a report section by section.
struct ReportReader {
    /// The traps come first, and end with a zero byte.
    traps: bool,
    /// What every statement of the list of variables begins with.
    word: &'static [u8],
}

impl ReportReader {
    /// What stands at the beginning, and how long it is.
    fn next<'a>(&mut self, rest: &'a [u8]) -> (Section<'a>, usize) {
        if self.traps && rest.first() == Some(&0) {
            self.traps = false;
            return (Section::Own, 1);
        }
        if self.traps {
            return match trap(rest) {
                Some(len) => (Section::Own, len),
                None => (Section::Foreign, self.foreign(rest)),
            };
        }
        if !rest.starts_with(self.word) {
            return (Section::Foreign, self.foreign(rest));
        }
        let line = line_len(rest);
        match exports::statement(rest) {
            // A dash writes a value of several lines as it is, and so did bash of old.
            Some(len) if len <= line || self.word == b"export " || line <= PIECE_BYTES => (Section::Own, len),
            Some(_) | None if exports::begins_value(rest) => match torn(rest) {
                Some(torn) => torn,
                None => (Section::Spoilt, self.until_next_statement(rest)),
            },
            Some(_) | None => (Section::Foreign, line),
        }
    }

    /// The length of a job's output: up to the end of the line, or to a statement that begins in it.
    fn foreign(&self, rest: &[u8]) -> usize {
        let begins = |at: &usize| {
            let here = &rest[*at..];
            match self.traps {
                true => here.first() == Some(&0) || trap(here).is_some(),
                false => {
                    let unset = || self.word != b"export " && exports::statement(here).is_some();
                    here.starts_with(self.word) && (exports::begins_value(here) || unset())
                }
            }
        };
        let len = line_len(rest);
        (1..len).find(begins).unwrap_or(len)
    }

    fn until_next_statement(&self, rest: &[u8]) -> usize {
        let line_ends = memchr::memchr_iter(b'\n', rest).map(|at| at + 1);
        let begins = |at: &usize| rest[*at..].starts_with(self.word);
        line_ends.into_iter().find(begins).unwrap_or(rest.len())
    }
}

/// What most lines begin with that can be a list's: a job's line does not decide it.
fn word_of(rest: &[u8]) -> &'static [u8] {
    let count = |word: &&'static [u8]| {
        rest.split(|byte| *byte == b'\n').filter(|line| line.starts_with(word)).count()
    };
    let words: [&'static [u8]; 3] = [b"typeset -", b"export ", b"declare -"];
    words.into_iter().max_by_key(count).unwrap_or(b"declare -")
}

fn line_len(rest: &[u8]) -> usize {
    memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1)
}

/// The length of what `trap -p` prints of one trap.
fn trap(rest: &[u8]) -> Option<usize> {
    let action = rest.strip_prefix(TRAP)?;
    let len = if action.first() == Some(&b'-') { 1 } else { quoted_len(action)? };
    let names: [&[u8]; 3] = [b" ERR\n", b" DEBUG\n", b" EXIT\n"];
    let name = names.into_iter().find(|name| action.get(len..).is_some_and(|rest| rest.starts_with(name)))?;
    Some(TRAP.len() + len + name.len())
}

/// A statement that is one without some lines that begin where bash has ended a write. The last such place before them
/// is taken, so that nothing of the value is shown.
fn torn(rest: &[u8]) -> Option<(Section<'_>, usize)> {
    let at = (line_len(rest).checked_sub(1)? / PIECE_BYTES) * PIECE_BYTES;
    let (head, behind) = rest.split_at_checked(at).filter(|(head, _)| !head.is_empty())?;
    memchr::memchr_iter(b'\n', behind).take(LINES_IN_A_VALUE_MAX).find_map(|end| {
        let (foreign, tail) = behind.split_at_checked(end + 1)?;
        let tail = tail.get(..line_len(tail))?;
        let own = [head, tail].concat();
        let len = at + foreign.len() + tail.len();
        let is_one = exports::statement(&own) == Some(own.len());
        is_one.then_some((Section::Torn { own, foreign }, len))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "0\0hB  x\0/srv\0";

    fn parts(report: &str, whole: bool) -> (String, String, bool) {
        let Split { own, foreign, spoilt } = split(format!("{ANSWER}{report}").as_bytes(), whole);
        let own = String::from_utf8(own).unwrap();
        (own.strip_prefix(ANSWER).unwrap().to_owned(), String::from_utf8(foreign).unwrap(), spoilt)
    }

    #[test]
    fn a_report_alone_is_all_its_own() {
        for report in [
            "",
            "\0",
            "trap -- 'it'\\''s\nE' ERR\ntrap -- - EXIT\n\0declare -x A=\"1\"\ndeclare -x OLDPWD\ndeclare -ax L=([0]=\"a\")\n",
            "\0declare -x OLD=\"two\nlines\"\n",
            "\0export A='two\nlines of it'\"'\"'s'\nexport B\n",
        ] {
            assert_eq!(parts(report, true), (report.to_owned(), String::new(), false));
        }
    }

    #[test]
    fn lines_of_jobs_are_told_apart_wherever_they_stand() {
        let jobs = "one\n-----BEGIN PRIVATE KEY-----\nexport it now\ntrap -- x\nsay A=\"1\"\n";
        let own = ["trap -- 'a' ERR\n", "\0", "declare -x A=\"1\"\n", "declare -x B=$'x\\ny'\n", ""];
        for at in 0..own.len() {
            let (before, after) = own.split_at(at);
            let report = format!("{}{jobs}{}", before.concat(), after.concat());
            assert_eq!(parts(&report, true), (own.concat(), jobs.to_owned(), false), "{at}");
            let unended = format!("{}no end{}", before.concat(), after.concat());
            assert_eq!(parts(&unended, true), (own.concat(), "no end".to_owned(), false), "{at}");
        }
        let dash = "\0export A='1'\nJOB\nmore export A=1\nexport B='2'\n";
        let own = "\0export A='1'\nexport B='2'\n".to_owned();
        assert_eq!(parts(dash, true), (own, "JOB\nmore export A=1\n".to_owned(), false));
    }

    #[test]
    fn lines_in_a_long_value_are_taken_out_of_it() {
        let long = format!("declare -x LONG=\"{}\"\n", "x".repeat(3 * PIECE_BYTES));
        for at in [PIECE_BYTES, 2 * PIECE_BYTES, 3 * PIECE_BYTES] {
            let (head, tail) = long.split_at(at);
            let report = format!("\0{head}it costs $5 \"now\"\nand `more`\n{tail}declare -x Z=\"1\"\n");
            let own = format!("\0{long}declare -x Z=\"1\"\n");
            assert_eq!(
                parts(&report, true),
                (own, "it costs $5 \"now\"\nand `more`\n".to_owned(), false),
                "{at}"
            );
        }
    }

    #[test]
    fn what_may_be_a_value_and_cannot_be_read_is_not_shown() {
        let report = "\0declare -x A=\"1\"\nJOB\nJOdeclare -x KEY=\"se$5 \ncret\"\ndeclare -x Z=\"1\"\n";
        let own = "\0declare -x A=\"1\"\ndeclare -x Z=\"1\"\n".to_owned();
        assert_eq!(parts(report, true), (own, "JOB\nJO".to_owned(), true));
        let broken_off = "\0declare -x A=\"1\"\nJOB\ndecl";
        assert_eq!(
            parts(broken_off, false),
            ("\0declare -x A=\"1\"\n".to_owned(), "JOB\n".to_owned(), false)
        );
    }

    #[test]
    fn a_report_that_does_not_come_to_its_answer_is_left_as_it_is() {
        let split = split(b"1\0h", true);
        assert_eq!(
            (split.own.as_slice(), split.foreign.as_slice(), split.spoilt),
            (&b"1\0h"[..], &b""[..], false)
        );
    }
}
