//! Asking for the whole output of an earlier command. How a page is read is in `pages`, where outputs are kept in `spool`.

use super::error::ShellError;
use super::host::ShellHost;
use super::output::pages::{self, PAGE_BYTES_DEFAULT, PAGE_BYTES_MAX, Page, PageError, PageRequest};
use super::output::spool::{Gone, Output};
use super::text::budget::CONTEXT_MAX;
use super::text::pattern::{Pattern, PatternError};

/// Which piece of which output to read.
#[derive(Debug, Clone, Default)]
pub struct OutputRequest {
    pub call: u64,
    pub stream: Output,
    pub offset: u64,
    pub limit: Option<usize>,
    pub grep: Option<String>,
    /// Lines around each match.
    pub context: usize,
    /// From this line on, counted from 1, in the place of an offset.
    pub line: Option<u64>,
    /// The last so many lines, in the place of an offset.
    pub tail: Option<u64>,
}

impl ShellHost {
    /// Reads from the whole output of an earlier command.
    pub fn output(&self, id: &str, request: &OutputRequest) -> Result<Page, ShellError> {
        self.output_while(id, request, &|| true)
    }

    /// The same, while it is wanted: that is asked again and again. A shell that is destroyed meanwhile ends it too.
    pub fn output_while(
        &self,
        id: &str,
        request: &OutputRequest,
        is_wanted: &dyn Fn() -> bool,
    ) -> Result<Page, ShellError> {
        let entry = self.inner.entry(id)?;
        let from = [request.offset > 0, request.line.is_some(), request.tail.is_some()];
        if from.iter().filter(|is_given| **is_given).count() > 1 {
            return Err(ShellError::invalid("offset", "give one of offset, line and tail, not several"));
        }
        if request.tail.is_some() && request.grep.is_some() {
            let why = "tail and grep do not go together; leave out tail, or read the lines without grep";
            return Err(ShellError::invalid("tail", why));
        }
        if request.context > 0 && request.grep.is_none() {
            return Err(ShellError::invalid(
                "context",
                "context needs grep; leave it out, or give a pattern",
            ));
        }
        if request.context as u64 > CONTEXT_MAX {
            return Err(ShellError::invalid("context", format!("context is more than {CONTEXT_MAX} lines")));
        }
        let grep = request.grep.as_deref().map(Pattern::new).transpose();
        let grep = grep.map_err(|error| {
            let why = match error {
                PatternError::Syntax(drawing) => format!("grep is not a regular expression: {drawing}"),
                PatternError::Length => format!("grep {error}"),
            };
            ShellError::invalid("grep", why)
        })?;
        let gone = |gone| ShellError::NoOutput {
            id: id.to_owned(),
            call: request.call,
            why: match gone {
                Gone::Never => "calls are counted from 1",
                Gone::NotYet => "this shell has not run that many commands",
                Gone::GivenUp => "it was given up for newer output",
            },
        };
        let kept = || entry.shared.spool().kept(request.call, request.stream).map_err(gone);
        let output = kept()?;
        let limit = request.limit.unwrap_or(PAGE_BYTES_DEFAULT);
        if limit > PAGE_BYTES_MAX {
            return Err(ShellError::invalid(
                "limit",
                format!("limit is {limit}, but at most {PAGE_BYTES_MAX}"),
            ));
        }
        // A page has room for any character.
        let limit = limit.max(4);
        let is_closing = || entry.shared.closing.is_cancelled();
        let is_wanted = || is_wanted() && !is_closing();
        let shown = |text: &str| entry.shared.shown(text);
        let offset = match (request.line, request.tail) {
            (Some(line), _) => pages::offset_of_line(&output, line, &is_wanted),
            (None, Some(lines)) => pages::offset_of_tail(&output, lines, &is_wanted),
            (None, None) => Ok(request.offset),
        };
        let page = offset.and_then(|offset| {
            let (stream, context) = (request.stream, request.context);
            let page = PageRequest { stream, offset, limit, grep: grep.as_ref(), context };
            pages::read(&output, request.call, page, &shown, &is_wanted)
        });
        let page = page.map_err(|error| match error {
            PageError::Read(source) => {
                ShellError::Spool { path: self.inner.config.spool_dir.clone(), source }
            }
            PageError::Unwanted if is_closing() => ShellError::destroyed(id),
            PageError::Unwanted => ShellError::Cancelled,
        })?;
        // It may have been given up while it was read.
        kept().map(|_| page)
    }
}
