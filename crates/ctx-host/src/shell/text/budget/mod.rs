//! How much of a command's output is shown: `keep`, `grep` and `max_chars`, or the default.
//!
//! A budget hides, it does not lose: the whole output stays on disk. `Collector` sees each piece of text
//! once and holds only what it may show. Lines are filtered by `grep` first, then `keep` chooses among
//! them, then `max_chars` bounds the result. Where a budget was asked for, the text is what was kept and
//! nothing else; by default one line between head and tail says how much is missing. Of a line that matches and is too
//! long, an excerpt around the match is shown, with a note that says so.

mod grep;
mod window;

use serde::{Deserialize, Serialize};

use super::pattern::{Pattern, PatternError};
use grep::Filter;
use window::{Bound, Counter, Window};

/// Characters shown when nothing else was asked for.
pub const CHARS_DEFAULT: u64 = 100_000;
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
    /// Whether a line may be put where something is missing.
    says_missing: bool,
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
}

impl Default for Plan {
    fn default() -> Plan {
        let chars = usize::try_from(CHARS_DEFAULT).unwrap_or(usize::MAX);
        Plan { mode: Mode::All, grep: None, chars, lines: usize::MAX, says_missing: true }
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
            says_missing: false,
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
    says_missing: bool,
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
        Collector {
            mode: plan.mode,
            says_missing: plan.says_missing,
            grep,
            window: Window::new(head, tail),
            total: Counter::default(),
        }
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
        let parts = self.window.finish(self.says_missing);
        let kept_lines = Counter::of(&parts.head).lines() + Counter::of(&parts.tail).lines();
        let joins_a_line =
            !parts.missing && !parts.head.is_empty() && !parts.head.ends_with('\n') && !parts.tail.is_empty();
        let lines_kept = (kept_lines - u64::from(joins_a_line)).min(self.total.lines());
        let chars_kept = (parts.head.chars().count() + parts.tail.chars().count()) as u64;
        let truncated = chars_kept < self.total.chars;
        let mut report = StreamReport {
            mode: self.mode,
            lines_total: self.total.lines(),
            lines_kept,
            chars_total: None,
            chars_kept: None,
            lines_unsearched: self.grep.as_ref().map(Filter::lines_unsearched).filter(|lines| *lines > 0),
        };
        if parts.cut_by_chars || self.grep.as_ref().is_some_and(Filter::has_excerpts) {
            report.chars_total = Some(self.total.chars);
            report.chars_kept = Some(chars_kept);
        }
        let between = match parts.missing && self.says_missing {
            true => missing_line(&report, self.total.chars - chars_kept, parts.head.ends_with('\n')),
            false => String::new(),
        };
        Kept { text: parts.head + &between + &parts.tail, report, truncated }
    }
}

/// The one line that stands for what is missing.
fn missing_line(report: &StreamReport, chars: u64, at_line_start: bool) -> String {
    let lines = report.lines_total.saturating_sub(report.lines_kept);
    let start = if at_line_start { "" } else { "\n" };
    // One long line is cut within, and none is missing.
    let lines = if lines == 0 { String::new() } else { format!(" in {lines} lines") };
    format!("{start}[... {chars} characters{lines} are missing here ...]\n")
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
