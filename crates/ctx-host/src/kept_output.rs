//! Asking for the whole output of an earlier command. How a page is read is in `pages`, where outputs are kept in `spool`.

use super::error::ShellError;
use super::host::ShellHost;
use super::output::pages::{self, PAGE_BYTES_DEFAULT, PAGE_BYTES_MAX, Page, PageError, PageRequest};
use super::output::spool::{Gone, Output};
use ctx_text::budget::CONTEXT_MAX;
use ctx_text::pattern::{Pattern, PatternError};

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
        check(request)?;
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
        kept().map(|_| Page { hint: hint(request, &page), ..page })
    }
}

/// Refuses what does not go together.
fn check(request: &OutputRequest) -> Result<(), ShellError> {
    let from = [request.offset > 0, request.line.is_some(), request.tail.is_some()];
    if from.iter().filter(|is_given| **is_given).count() > 1 {
        return Err(ShellError::invalid("offset", "give one of offset, line and tail, not several"));
    }
    if request.tail.is_some() && request.grep.is_some() {
        let why = "tail and grep do not go together; leave out tail, or read the lines without grep";
        return Err(ShellError::invalid("tail", why));
    }
    if request.context > 0 && request.grep.is_none() {
        return Err(ShellError::invalid("context", "context needs grep; leave it out, or give a pattern"));
    }
    if request.context as u64 > CONTEXT_MAX {
        return Err(ShellError::invalid("context", format!("context is more than {CONTEXT_MAX} lines")));
    }
    Ok(())
}

/// Why a page has no text, where that may be a mistake of the request.
fn hint(request: &OutputRequest, page: &Page) -> Option<String> {
    if !page.text.is_empty() || page.next_offset.is_some() {
        return None;
    }
    let (stream, total) = (page.stream, page.total_bytes);
    Some(match (&request.grep, request.line) {
        _ if total == 0 => format!("command {} has printed nothing to {stream}", page.call),
        (_, Some(line)) if page.offset >= total => {
            format!("{stream} ends before line {line}; tail reads its last lines")
        }
        (Some(_), _) if page.offset == 0 => {
            format!("no line of {stream} matches grep, a regular expression; (?i) in front ignores case")
        }
        (Some(_), _) => format!("no line of {stream} from byte {} on matches grep", page.offset),
        (None, _) => format!("{stream} ends at byte {total}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_without_text_says_why() {
        let page = |text: &str, offset: u64, total_bytes: u64| Page {
            call: 3,
            stream: "stdout",
            offset,
            next_offset: None,
            total_bytes,
            lost_bytes: 0,
            text: text.to_owned(),
            base64: None,
            hint: None,
        };
        let grep = || Some("x".to_owned());
        let all = OutputRequest::default();
        for (request, page, wanted) in [
            (all.clone(), page("text", 0, 4), None),
            (all.clone(), page("", 0, 0), Some("command 3 has printed nothing to stdout")),
            (all.clone(), page("", 4, 4), Some("stdout ends at byte 4")),
            (OutputRequest { line: Some(9), ..all.clone() }, page("", 4, 4), Some("ends before line 9")),
            (
                OutputRequest { grep: grep(), ..all.clone() },
                page("", 0, 4),
                Some("no line of stdout matches"),
            ),
            (OutputRequest { grep: grep(), ..all }, page("", 2, 4), Some("from byte 2 on")),
        ] {
            let said = hint(&request, &page);
            assert_eq!(said.is_some(), wanted.is_some(), "{request:?}");
            assert!(said.unwrap_or_default().contains(wanted.unwrap_or_default()), "{request:?}");
        }
    }
}
