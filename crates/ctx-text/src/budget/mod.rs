//! How much of a command's output is shown: `keep`, `grep` and `max_chars`, or the default.
//!
//! A budget hides, it does not lose: the whole output stays on disk. `Collector` sees each piece of text
//! once and holds only what it may show. Lines are filtered by `grep` first, then `keep` chooses among
//! them, then `max_chars` bounds the result. A line marks the place where something was cut, and `--` stands between
//! groups of matches with context. Of a line that matches and is too long, an excerpt around the match is shown, with a
//! note that says so.

mod grep;
mod window;

use serde::{Deserialize, Serialize};

use super::pattern::{Pattern, PatternError};
use grep::{Filter, SEPARATOR, SEPARATOR_MARK};
use window::{Bound, Counter, Window, chars, chars_end};

/// Characters of a whole result when nothing else was asked for: MCP hosts drop or cut what is longer, each in its own way.
pub const CHARS_DEFAULT: u64 = 30_000;
/// The most characters that may be asked for.
pub const CHARS_MAX: u64 = 1_000_000;
/// The most lines of context around a match.
pub const CONTEXT_MAX: u64 = 1_000;

/// What a caller asks for, as in the tool's arguments.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Keep>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grep: Option<Grep>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<u64>,
}

/// Which lines to keep.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    pub mode: KeepMode,
    /// Lines to keep; with `head_tail` at each end.
    pub n: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeepMode {
    Tail,
    Head,
    HeadTail,
}

/// Keep the lines that match a regular expression, with lines of context around them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grep {
    pub pattern: String,
    #[serde(default)]
    pub context: u64,
}

/// Why a budget is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("budget.grep.pattern {0}")]
    Pattern(#[from] PatternError),
    #[error("budget.grep.context is {0}, more than {CONTEXT_MAX} lines; ask for fewer")]
    Context(u64),
    #[error("budget.max_chars is {0}, but must be from 1 to {CHARS_MAX}; read more with session_output")]
    MaxChars(u64),
}

/// A budget that was checked and compiled.
#[derive(Debug, Clone)]
pub struct Plan {
    mode: Mode,
    grep: Option<(Pattern, usize)>,
    chars: usize,
    lines: usize,
    /// Whether nobody has said how many characters to show, so that the streams of a result share the default.
    pub shares_default: bool,
}

/// How the lines of a stream were chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    All,
    Tail,
    Head,
    HeadTail,
    Grep,
}

/// What became of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamReport {
    pub mode: Mode,
    pub lines_total: u64,
    pub lines_kept: u64,
    /// Present when the bound on characters cut something off, or a line is shown as an excerpt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chars_total: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chars_kept: Option<u64>,
    /// Long lines of which only the beginning was searched, where there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines_unsearched: Option<u64>,
}

/// The text that is shown, and what became of the stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub text: String,
    pub report: StreamReport,
    /// Whether the text is less than the stream.
    pub truncated: bool,
    /// The line that stands in the text where something was cut.
    mark: Option<String>,
    /// Lines and characters that the pattern let through.
    passed: Counter,
}

impl Default for Plan {
    fn default() -> Plan {
        let chars = usize::try_from(CHARS_DEFAULT).unwrap_or(usize::MAX);
        Plan { mode: Mode::All, grep: None, chars, lines: usize::MAX, shares_default: true }
    }
}

impl Budget {
    /// Whether nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Budget::default()
    }

    /// Checks the numbers and compiles the pattern.
    pub fn plan(&self) -> Result<Plan, BudgetError> {
        if self.is_empty() {
            return Ok(Plan::default());
        }
        let chars = self.max_chars.unwrap_or(CHARS_DEFAULT);
        if chars == 0 || chars > CHARS_MAX {
            return Err(BudgetError::MaxChars(chars));
        }
        let mode = match (&self.keep, &self.grep) {
            (Some(Keep { mode: KeepMode::Tail, .. }), _) => Mode::Tail,
            (Some(Keep { mode: KeepMode::Head, .. }), _) => Mode::Head,
            (Some(Keep { mode: KeepMode::HeadTail, .. }), _) => Mode::HeadTail,
            (None, Some(_)) => Mode::Grep,
            (None, None) => Mode::All,
        };
        let lines =
            self.keep.as_ref().map_or(usize::MAX, |keep| usize::try_from(keep.n).unwrap_or(usize::MAX));
        Ok(Plan {
            mode,
            grep: self.grep.as_ref().map(Grep::compile).transpose()?,
            chars: usize::try_from(chars).unwrap_or(usize::MAX),
            lines,
            shares_default: self.max_chars.is_none(),
        })
    }
}

impl Grep {
    fn compile(&self) -> Result<(Pattern, usize), BudgetError> {
        let pattern = Pattern::new(&self.pattern)?;
        let context = usize::try_from(self.context).unwrap_or(usize::MAX);
        if self.context > CONTEXT_MAX {
            return Err(BudgetError::Context(self.context));
        }
        Ok((pattern, context))
    }
}

/// Collects what a plan keeps of one stream.
pub struct Collector {
    mode: Mode,
    grep: Option<Filter>,
    window: Window,
    total: Counter,
}

impl Collector {
    pub fn new(plan: &Plan) -> Collector {
        let half = plan.chars / 2;
        let (head, tail) = match plan.mode {
            Mode::Head => (Bound { lines: plan.lines, chars: plan.chars }, Bound { lines: 0, chars: 0 }),
            Mode::Tail => (Bound { lines: 0, chars: 0 }, Bound { lines: plan.lines, chars: plan.chars }),
            Mode::HeadTail | Mode::All | Mode::Grep => (
                Bound { lines: plan.lines, chars: plan.chars - half },
                Bound { lines: plan.lines, chars: half },
            ),
        };
        let grep =
            plan.grep.as_ref().map(|(pattern, context)| Filter::new(pattern.clone(), *context, plan.chars));
        Collector { mode: plan.mode, grep, window: Window::new(head, tail), total: Counter::default() }
    }

    /// Takes the next piece of text.
    pub fn push(&mut self, text: &str) {
        self.total.count(text);
        match &mut self.grep {
            Some(filter) => filter.push(text, &mut self.window),
            None => self.window.push(text),
        }
    }

    /// Ends the stream.
    pub fn finish(mut self) -> Kept {
        if let Some(filter) = &mut self.grep {
            filter.finish(&mut self.window);
        }
        let passed = self.window.pushed();
        let parts = self.window.finish();
        let mut kept = Kept {
            text: String::new(),
            report: StreamReport {
                mode: self.mode,
                lines_total: self.total.lines(),
                lines_kept: 0,
                chars_total: None,
                chars_kept: None,
                lines_unsearched: self.grep.as_ref().map(Filter::lines_unsearched).filter(|lines| *lines > 0),
            },
            truncated: false,
            mark: None,
            passed,
        };
        let says_chars = parts.cut_by_chars || self.grep.as_ref().is_some_and(Filter::has_excerpts);
        kept.put(&parts.head, &parts.tail, parts.missing);
        kept.truncated = kept.report.chars_kept < Some(self.total.chars);
        kept.report.chars_total = says_chars.then_some(self.total.chars);
        kept.report.chars_kept = kept.report.chars_kept.filter(|_| says_chars);
        kept
    }
}

impl Kept {
    /// Shows these two ends, with a line between them where something is missing there.
    fn put(&mut self, head: &str, tail: &str, is_missing: bool) {
        let (lines, characters) =
            (Counter::of(head).lines() + Counter::of(tail).lines(), chars(head) + chars(tail));
        let joins_a_line = !is_missing && !head.is_empty() && !head.ends_with('\n') && !tail.is_empty();
        let separators = match is_missing {
            true => head.matches(SEPARATOR).count() + tail.matches(SEPARATOR).count(),
            false => format!("{head}{tail}").matches(SEPARATOR).count(),
        } as u64;
        let added = SEPARATOR.len() as u64 * separators;
        let lines_kept = lines.saturating_sub(u64::from(joins_a_line) + separators);
        self.report.lines_kept = lines_kept.min(self.report.lines_total);
        self.report.chars_kept = Some((characters as u64).saturating_sub(added));
        let missing = self.passed.lines().saturating_sub(lines);
        self.mark = is_missing.then(|| {
            let start = if head.is_empty() || head.ends_with('\n') { "" } else { "\n" };
            match missing {
                // One long line is cut within, and none is missing.
                0 => format!(
                    "{start}[… {} characters …]\n",
                    self.passed.chars.saturating_sub(characters as u64)
                ),
                1 => format!("{start}[… 1 line …]\n"),
                lines => format!("{start}[… {lines} lines …]\n"),
            }
        });
        let text = [head, self.mark.as_deref().unwrap_or_default(), tail].concat();
        self.text = text.replace(SEPARATOR, "--\n").replace(SEPARATOR_MARK, "");
    }

    /// Shows a line about the stream in the place of what it printed.
    pub(crate) fn replace(&mut self, text: String) {
        (self.text, self.mark, self.truncated) = (text, None, true);
        self.report.lines_kept = 0;
    }

    /// Shows at most so many characters, of the same ends as before.
    pub fn narrow(&mut self, room: usize) {
        if chars(&self.text) <= room {
            return;
        }
        let text = std::mem::take(&mut self.text);
        let cut = self.mark.as_deref().and_then(|mark| text.split_once(mark));
        let (head, tail) = match (cut, self.report.mode) {
            (Some(ends), _) => ends,
            (None, Mode::Tail) => ("", text.as_str()),
            (None, Mode::Head) => (text.as_str(), ""),
            (None, Mode::All | Mode::HeadTail | Mode::Grep) => (text.as_str(), text.as_str()),
        };
        let half = room / 2;
        let (head_room, tail_room) = match (chars(head), chars(tail)) {
            (_, tail) if tail < half => (room - tail, tail),
            (head, _) if head < room - half => (head, room - head),
            _ => (room - half, half),
        };
        let first = &head[..chars_end(head, head_room)];
        let last = &tail[chars_end(tail, chars(tail).saturating_sub(tail_room))..];
        // Whole lines, where there are any.
        let first = match first.rfind('\n') {
            Some(end) if first.len() < head.len() => &first[..=end],
            _ => first,
        };
        let is_cut = last.len() < tail.len() && !tail[..tail.len() - last.len()].ends_with('\n');
        let last = match last.find('\n') {
            Some(end) if is_cut && end + 1 < last.len() => &last[end + 1..],
            _ => last,
        };
        let total = self.report.chars_total.unwrap_or(self.passed.chars);
        self.put(first, last, true);
        (self.report.chars_total, self.truncated) = (Some(total), true);
    }
}

/// A text within so many characters: its two ends, and a line between them that says how much is missing.
pub fn shortened(text: &str, room: usize) -> String {
    let mut collector = Collector::new(&Plan { chars: room, ..Plan::default() });
    collector.push(text);
    collector.finish().text
}

/// What to do about output that is not shown, for a model to read.
/// Who asked for a budget knows how to narrow.
pub fn hint(stdout: &StreamReport, stderr: &StreamReport, asked: bool) -> Option<String> {
    let part = |name: &str, report: &StreamReport| {
        let (total, kept) = (report.lines_total, report.lines_kept);
        let less = kept < total || report.chars_kept < report.chars_total;
        less.then(|| match (report.chars_kept, report.chars_total) {
            (Some(chars), Some(all)) if kept == total => format!("{name}: {chars} of {all} characters shown"),
            _ => format!("{name}: {kept} of {total} lines shown"),
        })
    };
    let parts: Vec<String> = [part("stdout", stdout), part("stderr", stderr)].into_iter().flatten().collect();
    if parts.is_empty() {
        return None;
    }
    let all = parts.join(", ");
    let narrow = if asked { "" } else { ", or narrow the next command with budget.grep or budget.keep" };
    let read = format!("{all}; read the rest with session_output{narrow}");
    let unsearched = [stdout, stderr].into_iter().filter_map(|report| report.lines_unsearched).sum::<u64>();
    Some(match unsearched {
        0 => read,
        lines => format!(
            "{read}; the pattern was looked for only in the first 256 KiB of {lines} long {}: session_output with grep \
             searches the whole",
            if lines == 1 { "line" } else { "lines" },
        ),
    })
}
