//! Reading an earlier command's whole output, page by page or by pattern.

use std::io;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Serialize;

use super::search::Search;
use super::spool::{KeptOutput, Output};
use ctx_text::ansi::clean;
use ctx_text::output::is_binary;
use ctx_text::pattern::Pattern;

/// Bytes of a page where nothing else was asked for: with what is said of it, it stays below 30,000 characters.
pub const PAGE_BYTES_DEFAULT: usize = 28 << 10;
/// The largest page.
pub const PAGE_BYTES_MAX: usize = 256 << 10;
pub(crate) const READ_BYTES: usize = 256 << 10;
/// How much of a line is looked at beyond the ends of a page.
pub(crate) const AROUND_BYTES: u64 = 16 << 10;

/// What to read of a call's output.
#[derive(Debug, Clone, Copy)]
pub struct PageRequest<'a> {
    pub stream: Output,
    pub offset: u64,
    pub limit: usize,
    pub grep: Option<&'a Pattern>,
    /// Lines around each match.
    pub context: usize,
}

/// A piece of an earlier command's output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Page {
    pub call: u64,
    pub stream: &'static str,
    /// Where this page begins, in bytes.
    pub offset: u64,
    /// Where the next page begins; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_offset: Option<u64>,
    /// Bytes of the whole output.
    pub total_bytes: u64,
    /// Bytes that were printed beyond what a shell may keep.
    #[serde(skip_serializing_if = "is_zero")]
    pub lost_bytes: u64,
    /// The text; with a pattern, the lines that match, each with its line number, and pieces of lines that are too long.
    pub text: String,
    /// The bytes in base64, where they are not valid UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// Why there is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

pub(crate) fn is_zero<N: Default + PartialEq>(count: &N) -> bool {
    *count == N::default()
}

/// Takes out of a text what may not be shown now.
pub(crate) type Redact<'a> = &'a dyn Fn(&str) -> String;

/// Whether anybody still waits for the page.
pub(crate) type IsWanted<'a> = &'a dyn Fn() -> bool;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    #[error(transparent)]
    Read(#[from] io::Error),
    #[error("nobody waits for the page any more")]
    Unwanted,
}

pub(crate) fn ask(is_wanted: IsWanted<'_>) -> Result<(), PageError> {
    if is_wanted() { Ok(()) } else { Err(PageError::Unwanted) }
}

/// Reads one page.
///
/// The kept bytes are redacted, but a secret may be torn apart in them by colours, or have become one since:
/// a page with such a secret shows its lines clean and redacted once more instead.
pub(crate) fn read(
    kept: &KeptOutput,
    call: u64,
    request: PageRequest<'_>,
    redact: Redact<'_>,
    is_wanted: IsWanted<'_>,
) -> Result<Page, PageError> {
    let span = kept.span;
    let offset = request.offset.min(span.len);
    let mut page = Page {
        call,
        stream: match request.stream {
            Output::Stdout => "stdout",
            Output::Stderr => "stderr",
            Output::Late => "late_output",
        },
        offset,
        next_offset: None,
        total_bytes: span.len,
        lost_bytes: span.lost,
        text: String::new(),
        base64: None,
        hint: None,
    };
    let end = match request.grep {
        None => {
            let mut bytes = kept.read(offset, request.limit)?;
            cut_at_char(&mut bytes, offset, span.len);
            let end = offset + bytes.len() as u64;
            page.text = String::from_utf8_lossy(&bytes).into_owned();
            match hidden(&lines_around(kept, offset, end)?, redact) {
                Some(hidden) => page.text = hidden,
                None if page.text.as_bytes() != bytes => {
                    let nuls = memchr::memchr_iter(0, &bytes).count() as u64;
                    if is_binary(bytes.len() as u64, nuls, &page.text) {
                        page.text =
                            format!("[binary: {} bytes, as base64 in the structured result]\n", bytes.len());
                    }
                    page.base64 = Some(BASE64_STANDARD.encode(&bytes));
                }
                None => {}
            }
            end
        }
        Some(pattern) => {
            let search = Search { kept, request: &request, pattern, redact, is_wanted };
            let end = search.run(&mut page.text)?;
            page.text = hidden(page.text.as_bytes(), redact).unwrap_or(page.text);
            end
        }
    };
    page.next_offset = (end < span.len).then_some(end);
    Ok(page)
}

/// Where a line begins, counted from 1; the end where there are fewer.
pub(crate) fn offset_of_line(
    kept: &KeptOutput,
    line: u64,
    is_wanted: IsWanted<'_>,
) -> Result<u64, PageError> {
    let (mut at, mut left) = (0, line.saturating_sub(1));
    while left > 0 {
        ask(is_wanted)?;
        let bytes = kept.read(at, READ_BYTES)?;
        if bytes.is_empty() {
            break;
        }
        let mut ends = memchr::memchr_iter(b'\n', &bytes);
        let skipped = usize::try_from(left - 1).unwrap_or(usize::MAX);
        match ends.nth(skipped) {
            Some(end) => return Ok(at + end as u64 + 1),
            None => left -= memchr::memchr_iter(b'\n', &bytes).count() as u64,
        }
        at += bytes.len() as u64;
    }
    Ok(at)
}

/// Where the last so many lines begin.
pub(crate) fn offset_of_tail(
    kept: &KeptOutput,
    lines: u64,
    is_wanted: IsWanted<'_>,
) -> Result<u64, PageError> {
    let (mut end, mut left) = (kept.span.len, lines);
    // The end of the last line begins no other.
    if end > 0 && kept.read(end - 1, 1)? == b"\n" {
        end -= 1;
    }
    if left == 0 {
        return Ok(kept.span.len);
    }
    while end > 0 {
        ask(is_wanted)?;
        let from = end.saturating_sub(READ_BYTES as u64);
        let bytes = kept.read(from, usize::try_from(end - from).unwrap_or(READ_BYTES))?;
        let skipped = usize::try_from(left - 1).unwrap_or(usize::MAX);
        match memchr::memrchr_iter(b'\n', &bytes).nth(skipped) {
            Some(at) => return Ok(from + at as u64 + 1),
            None => left -= memchr::memchr_iter(b'\n', &bytes).count() as u64,
        }
        end = from;
    }
    Ok(0)
}

/// The text without the secrets that show in it only when it is clean; nothing where it has none.
fn hidden(bytes: &[u8], redact: Redact<'_>) -> Option<String> {
    let clean = clean(bytes);
    let redacted = redact(&clean);
    (redacted != clean).then_some(redacted)
}

/// A page and the rest of the lines that it begins and ends in.
fn lines_around(kept: &KeptOutput, offset: u64, end: u64) -> io::Result<Vec<u8>> {
    let from = offset.saturating_sub(AROUND_BYTES);
    let limit = usize::try_from(end + AROUND_BYTES - from).unwrap_or(usize::MAX);
    let mut bytes = kept.read(from, limit)?;
    let at = |offset: u64| usize::try_from(offset - from).unwrap_or(usize::MAX).min(bytes.len());
    let (first, last) = (at(offset), at(end));
    let stop = match bytes.get(last.saturating_sub(1)..) {
        Some([b'\n', ..]) => last,
        Some(tail) => memchr::memchr(b'\n', tail).map_or(bytes.len(), |len| last.saturating_sub(1) + len),
        None => bytes.len(),
    };
    let start = bytes.get(..first).and_then(|head| memchr::memrchr(b'\n', head)).map_or(0, |at| at + 1);
    bytes.truncate(stop);
    bytes.drain(..start.min(stop));
    Ok(bytes)
}

/// Leaves a character that the page's end would cut to the next page.
fn cut_at_char(bytes: &mut Vec<u8>, offset: u64, total: u64) {
    if offset + bytes.len() as u64 == total {
        return;
    }
    if let Err(error) = std::str::from_utf8(bytes)
        && error.error_len().is_none()
        && error.valid_up_to() > 0
    {
        bytes.truncate(error.valid_up_to());
    }
}

#[cfg(test)]
mod tests {
    use super::super::spool::Spool;
    use super::*;

    fn spool_with(bytes: &[u8]) -> (tempfile::TempDir, Spool) {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path(), 1 << 30);
        spool.begin(1);
        spool.keep(crate::transport::Stream::Stdout, bytes).unwrap();
        (dir, spool)
    }

    fn page(spool: &Spool, offset: u64, limit: usize, grep: Option<&str>) -> Page {
        let grep = grep.map(|pattern| Pattern::new(pattern).unwrap());
        let request = PageRequest { stream: Output::Stdout, offset, limit, grep: grep.as_ref(), context: 0 };
        let shown = |text: &str| text.replace("secret", "[gone]");
        read(&spool.kept(1, Output::Stdout).unwrap(), 1, request, &shown, &|| true).unwrap()
    }

    #[test]
    fn a_secret_that_colours_or_pages_tear_apart_is_not_shown() {
        let (_dir, spool) = spool_with(b"one\na se\x1b[31mcret\x1b[m here\nlast\n");
        for (offset, limit) in [(0, 100), (0, 8), (6, 4), (8, 100), (9, 12)] {
            let page = page(&spool, offset, limit, None);
            assert!(page.text.contains("a [gone] here"), "{offset} {limit}: {page:?}");
            assert!(!page.text.contains("cret"), "{page:?}");
        }
        assert_eq!(page(&spool, 0, 100, Some("cret")).text, "2:a [gone] here\n");
        assert_eq!(page(&spool, 0, 4, None).text, "one\n", "other pages are as they were printed");
        let last = page(&spool, 26, 100, None);
        assert_eq!((last.text.as_str(), last.next_offset), ("last\n", None));
    }

    #[test]
    fn a_pattern_sees_lines_as_the_answer_shows_them() {
        let (_dir, spool) = spool_with(b"\x1b[31merror\x1b[0m: one\n10%\r100% done two\r\nplain\n");
        for (pattern, want) in
            [("^error", "1:error: one\n"), ("^100%", "2:100% done two\n"), ("two$", "2:100% done two\n")]
        {
            assert_eq!(page(&spool, 0, 1000, Some(pattern)).text, want, "{pattern}");
        }
        assert_eq!(page(&spool, 0, 1000, Some("^10%|31m")).text, "", "what is not shown does not match");
    }

    #[test]
    fn pages_join_to_the_whole_and_cut_no_character() {
        let whole = "äöü€😀".repeat(50);
        let (_dir, spool) = spool_with(whole.as_bytes());
        let (mut joined, mut at) = (String::new(), Some(0));
        while let Some(offset) = at {
            let page = page(&spool, offset, 7, None);
            assert_eq!(page.base64, None);
            joined.push_str(&page.text);
            at = page.next_offset;
        }
        assert_eq!(joined, whole);
    }

    #[test]
    fn bytes_that_are_no_text_come_as_base64_too() {
        let (_dir, spool) = spool_with(b"\xff\xfe\x00a");
        let page = page(&spool, 0, 100, None);
        assert_eq!(page.base64.as_deref(), Some("//4AYQ=="));
        assert!(page.text.contains('\u{fffd}'));
    }

    #[test]
    fn a_pattern_finds_lines_with_their_numbers_over_several_pages() {
        let whole: String = (1..=50_000).map(|n| format!("line {n}\n")).collect();
        let (_dir, spool) = spool_with(whole.as_bytes());
        let (mut found, mut at) = (String::new(), Some(0));
        while let Some(offset) = at {
            let page = page(&spool, offset, 20, Some("line (7|49999)$"));
            found.push_str(&page.text);
            at = page.next_offset;
        }
        assert_eq!(found, "7:line 7\n49999:line 49999\n");
    }

    #[test]
    fn a_search_ends_soon_after_nobody_wants_it_any_more() {
        let (_dir, spool) = spool_with(&b"a line of some length\n".repeat(1 << 17));
        let pattern = Pattern::new("^b").unwrap();
        let kept = spool.kept(1, Output::Stdout).unwrap();
        // From the beginning, and from the end, where the lines before are counted first.
        for (offset, asked_max) in [(0, 3), (kept.span.len, 3)] {
            let request =
                PageRequest { stream: Output::Stdout, offset, limit: 100, grep: Some(&pattern), context: 0 };
            let asked = std::cell::Cell::new(0);
            let is_wanted = || {
                asked.set(asked.get() + 1);
                asked.get() < asked_max
            };
            let read = read(&kept, 1, request, &str::to_owned, &is_wanted);
            assert!(matches!(read, Err(PageError::Unwanted)), "{read:?}");
            assert_eq!(asked.get(), asked_max, "it does nothing more");
        }
    }
}
