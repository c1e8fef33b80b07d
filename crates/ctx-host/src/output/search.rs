//! Looking for a pattern in the whole output of an earlier command.
//!
//! Lines are searched one by one. A line that does not fit into a read is searched in segments that overlap, so a match
//! is found if it is not longer than the overlap or lies within one segment. Of a long line an excerpt is shown.

#![expect(clippy::indexing_slicing, reason = "the end comes from a search in the same bytes")]

use std::borrow::Cow;
use std::collections::VecDeque;

use super::pages::{AROUND_BYTES, IsWanted, PageError, PageRequest, READ_BYTES, Redact, ask};
use super::spool::KeptOutput;
use ctx_text::ansi::{Cleaner, LINE_CHARS_MAX, clean};
use ctx_text::pattern::{EXCERPT_BYTES, Pattern, SEARCHED_BYTES_MAX, SHOWN_BYTES_MAX, around};

/// After this many bytes at most, a search asks whether anybody still waits for it.
const ASK_BYTES: usize = 16 << 10;
/// An excerpt has at least this many bytes besides its note, whatever the limit of the page is.
const EXCERPT_BYTES_MIN: usize = 16;
/// How far the next segment of a line reaches back into the one before.
const OVERLAP_BYTES: usize = 4 << 10;

/// A search under way.
pub(crate) struct Search<'a> {
    pub kept: &'a KeptOutput,
    pub request: &'a PageRequest<'a>,
    pub pattern: &'a Pattern,
    pub redact: Redact<'a>,
    pub is_wanted: IsWanted<'a>,
}

/// Adds matches to a page, with the lines around them.
struct Around {
    limit: usize,
    context: usize,
    /// Lines behind the last one that was added, with their offsets: a match would bring them with it.
    before: VecDeque<(u64, String)>,
    /// Lines that still follow the last match.
    after: usize,
    /// Whether lines were left out behind the last one that was added.
    has_gap: bool,
}

impl Around {
    fn new(request: &PageRequest<'_>) -> Around {
        let PageRequest { limit, context, .. } = *request;
        Around { limit, context, before: VecDeque::new(), after: 0, has_gap: false }
    }

    /// Adds a match unless the page is full; then says where the next page begins. The first one always has room.
    fn matched(&mut self, text: &mut String, line: &str, offset: u64) -> Option<u64> {
        let begins = self.before.front().map_or(offset, |(offset, _)| *offset);
        let separator = if self.context > 0 && self.has_gap && !text.is_empty() { "--\n" } else { "" };
        let mut bytes =
            separator.len() + line.len() + self.before.iter().map(|(_, line)| line.len()).sum::<usize>();
        if !text.is_empty() && text.len() + bytes > self.limit {
            return Some(begins);
        }
        while bytes > self.limit
            && let Some((_, line)) = self.before.pop_front()
        {
            bytes -= line.len();
        }
        text.push_str(separator);
        text.extend(self.before.drain(..).map(|(_, line)| line));
        text.push_str(line);
        (self.after, self.has_gap) = (self.context, false);
        None
    }

    /// Adds a line that does not match, where it is near a match, or remembers it.
    fn passed(&mut self, text: &mut String, offset: u64, line: impl FnOnce() -> String) -> Option<u64> {
        if self.context == 0 {
            return None;
        }
        let line = line();
        if self.after == 0 {
            self.before.push_back((offset, line));
            if self.before.len() > self.context {
                self.before.pop_front();
                self.has_gap = true;
            }
            return None;
        }
        if text.len() + line.len() > self.limit {
            return Some(offset);
        }
        text.push_str(&line);
        self.after -= 1;
        None
    }
}

/// A line near a match, as it is shown: of a long one the beginning.
fn context_line(line: &[u8], number: u64) -> String {
    let seen = as_shown(line.strip_suffix(b"\n").unwrap_or(line));
    let text = String::from_utf8_lossy(&seen);
    let end = text.floor_char_boundary(EXCERPT_BYTES);
    format!("{number}-{}{}\n", &text[..end], if end < text.len() { " [… more …]" } else { "" })
}

/// A part of a long line, as an answer shows it.
struct Segment {
    /// The part, behind some text that stands before it in the same line.
    text: String,
    /// Where the part begins in `text`.
    start: usize,
    /// Where the part begins in the output.
    offset: u64,
    /// Whether each byte of the part is shown, so that positions in `text` are positions in the output.
    is_exact: bool,
    /// The length of `text` after each read, and the offset of the next read.
    reads: Vec<(usize, u64)>,
    /// Where the search goes on, and whether the line has ended there.
    next: u64,
    ends_line: bool,
}

impl Search<'_> {
    /// Collects matching lines until the page is full; returns where the next page begins.
    pub fn run(&self, text: &mut String) -> Result<u64, PageError> {
        let total = self.kept.span.len;
        let mut at = self.request.offset.min(total);
        let mut number = lines_before(self.kept, at, self.is_wanted)? + 1;
        let mut unasked = 0;
        let mut is_within_line = at > 0 && at < total && self.kept.read(at - 1, 1)? != b"\n";
        let mut around = Around::new(self.request);
        while at < total {
            let bytes = self.kept.read(at, READ_BYTES)?;
            if bytes.is_empty() {
                break;
            }
            let last = at + bytes.len() as u64 == total;
            let mut taken = 0;
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                let ends = line.ends_with(b"\n");
                if is_within_line || line.len() > SHOWN_BYTES_MAX || !(ends || last) {
                    break;
                }
                unasked += line.len();
                if unasked >= ASK_BYTES {
                    ask(self.is_wanted)?;
                    unasked = 0;
                }
                let offset = at + taken;
                let full = match self.line(line, offset, number)? {
                    Some(found) => around.matched(text, &found, offset),
                    None => around.passed(text, offset, || context_line(line, number)),
                };
                if let Some(next) = full {
                    return Ok(next);
                }
                number += u64::from(ends);
                taken += line.len() as u64;
            }
            at += taken;
            if taken == 0 {
                let segment = self.segment(at, is_within_line)?;
                let end = self.pattern.match_end(segment.text.as_bytes(), segment.start);
                if let Some(end) = end
                    && let Some(next) = around.matched(text, &self.excerpt(&segment, end, number), at)
                {
                    return Ok(next);
                }
                number += u64::from(segment.ends_line);
                // A match that was shown is not shown again, where it lies in the overlap.
                let shown_to = end.filter(|_| segment.is_exact).map_or(0, |end| segment.offset_of(end));
                (at, is_within_line) = (segment.next.max(shown_to), !segment.ends_line);
            }
        }
        Ok(total)
    }

    /// A line that was read whole, as it is shown where it matches.
    fn line(&self, line: &[u8], at: u64, number: u64) -> Result<Option<String>, PageError> {
        let seen = as_shown(line.strip_suffix(b"\n").unwrap_or(line));
        if !self.pattern.is_match(&seen) {
            return Ok(None);
        }
        let shown = format!("{number}:{}\n", String::from_utf8_lossy(&seen));
        if shown.len() <= self.request.limit {
            return Ok(Some(shown));
        }
        let segment = self.segment(at, false)?;
        // Bytes that are no text may match as they were printed, and not as they are shown.
        let end = self.pattern.match_end(segment.text.as_bytes(), 0).unwrap_or(0);
        Ok(Some(self.excerpt(&segment, end, number)))
    }

    /// Reads the rest of a line from an offset on, or as much of it as is searched at once.
    fn segment(&self, offset: u64, is_within_line: bool) -> Result<Segment, PageError> {
        let mut text = if is_within_line { clean(&self.line_before(offset)?) } else { String::new() };
        let (start, mut at, mut reads) = (text.len(), offset, Vec::new());
        let mut cleaner = Cleaner::new();
        loop {
            ask(self.is_wanted)?;
            reads.push((text.len(), at));
            let bytes = self.kept.read(at, ASK_BYTES)?;
            let end = memchr::memchr(b'\n', &bytes);
            let part = &bytes[..end.unwrap_or(bytes.len())];
            cleaner.push_to(part, &mut |clean| text.push_str(clean));
            at += part.len() as u64;
            if end.is_some() || bytes.is_empty() {
                cleaner.finish(&mut text);
                let (next, is_exact) = (at + u64::from(end.is_some()), !cleaner.changed());
                return Ok(Segment { text, start, offset, is_exact, reads, next, ends_line: true });
            }
            if text.len() - start >= SEARCHED_BYTES_MAX {
                let is_exact = !cleaner.changed();
                let next = if is_exact {
                    // The cleaner still holds some text, which the next segment begins with.
                    let searched = text.floor_char_boundary(text.len() - OVERLAP_BYTES) - start;
                    offset + searched as u64
                } else {
                    cleaner.finish(&mut text);
                    at - OVERLAP_BYTES as u64
                };
                return Ok(Segment { text, start, offset, is_exact, reads, next, ends_line: false });
            }
        }
    }

    /// What a line has before this offset, at least as much as a secret may have.
    fn line_before(&self, at: u64) -> Result<Vec<u8>, PageError> {
        let from = at.saturating_sub(AROUND_BYTES);
        let mut bytes = self.kept.read(from, usize::try_from(at - from).unwrap_or(0))?;
        let start = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
        bytes.drain(..start);
        Ok(bytes)
    }

    /// The text around a match that ends at `end`, within the page, with a note that says where it is.
    fn excerpt(&self, segment: &Segment, end: usize, number: u64) -> String {
        let text = &segment.text;
        // The note says where the excerpt begins, and its length decides that: so it is made twice.
        let next = self.next_match(segment, end, end).map(|_| text.len());
        let longest = segment.note(number, end, next).len();
        let room = EXCERPT_BYTES.min(self.request.limit.saturating_sub(longest + 1)).max(EXCERPT_BYTES_MIN);
        let wide = around(text, end, EXCERPT_BYTES + 2 * AROUND_BYTES as usize);
        let redacted = (self.redact)(&text[wide.clone()]);
        let is_unchanged = redacted == text[wide.clone()];
        let range = around(text, end, room);
        let range = range.start.max(text.ceil_char_boundary(segment.start.min(end)))..range.end;
        // What stands for a secret takes room, and so less is seen behind the match.
        let seen_to = if is_unchanged { range.end } else { text.floor_char_boundary(end + room / 4) };
        let note = segment.note(number, range.start, self.next_match(segment, end, seen_to));
        if is_unchanged {
            return format!("{note}{}\n", &text[range]);
        }
        // The text has a secret that was not known as one when it was kept, or that escape sequences had torn apart.
        let end = self.pattern.match_end(redacted.as_bytes(), 0).unwrap_or(end - wide.start);
        format!("{note}{}\n", &redacted[around(&redacted, end.min(redacted.len()), room)])
    }

    /// Where to go on for the next match that does not end in what was seen. It is always a step ahead.
    fn next_match(&self, segment: &Segment, end: usize, seen_to: usize) -> Option<usize> {
        let text = &segment.text;
        let next = self.pattern.matches(text.as_bytes(), end).find(|found| found.end > seen_to)?;
        let from = if next.start > end { next.start } else { seen_to.max(segment.start + 1) };
        Some(text.ceil_char_boundary(from))
    }
}

impl Segment {
    /// Where a position in the text is in the output, where that is exact.
    fn offset_of(&self, position: usize) -> u64 {
        self.offset + position.saturating_sub(self.start) as u64
    }

    /// Says that a text is an excerpt of a line, where it begins, and where the next match is.
    fn note(&self, number: u64, start: usize, next_match: Option<usize>) -> String {
        let place = if self.is_exact {
            format!("at offset {}", self.offset_of(start))
        } else {
            let read = self.reads.iter().rfind(|(len, _)| *len <= start).map_or(self.offset, |(_, at)| *at);
            // The cleaner hands out text that may still be redrawn later: at most this much.
            format!("near offset {}", read.saturating_sub(LINE_CHARS_MAX as u64).max(self.offset))
        };
        let more = match next_match {
            Some(next) if self.is_exact => format!("; more from offset {} on", self.offset_of(next)),
            Some(_) => "; more behind it".to_owned(),
            None => String::new(),
        };
        format!("{number}:[piece {place} of a long line{more}] ")
    }
}

/// A line as an answer shows it, without colours and what was overwritten.
fn as_shown(line: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = line.iter().all(|byte| *byte >= b' ' || *byte == b'\t');
    if is_plain { Cow::Borrowed(line) } else { Cow::Owned(clean(line).into_bytes()) }
}

fn lines_before(kept: &KeptOutput, offset: u64, is_wanted: IsWanted<'_>) -> Result<u64, PageError> {
    let mut lines = 0;
    let mut at = 0;
    while at < offset {
        ask(is_wanted)?;
        let want = READ_BYTES.min(usize::try_from(offset - at).unwrap_or(READ_BYTES));
        let bytes = kept.read(at, want)?;
        if bytes.is_empty() {
            break;
        }
        lines += memchr::memchr_iter(b'\n', &bytes).count() as u64;
        at += bytes.len() as u64;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::super::pages::{Page, read};
    use super::super::spool::{Output, Spool};
    use super::*;
    use crate::transport::Stream;

    fn search(bytes: &[u8], offset: u64, limit: usize, pattern: &str) -> Page {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path(), 1 << 30);
        spool.begin(1);
        spool.keep(Stream::Stdout, bytes).unwrap();
        let pattern = Pattern::new(pattern).unwrap();
        let request = PageRequest { stream: Output::Stdout, offset, limit, grep: Some(&pattern), context: 0 };
        let shown = |text: &str| text.replace("secret", "[gone]");
        read(&spool.kept(1, Output::Stdout).unwrap(), 1, request, &shown, &|| true).unwrap()
    }

    /// A line of so many bytes with a word at its end, and a short one behind it.
    fn long(bytes: usize) -> Vec<u8> {
        [&vec![b'x'; bytes - 6][..], b"NEEDLE\nlast NEEDLE\n"].concat()
    }

    #[test]
    fn a_line_is_searched_to_its_end_however_long_it_is() {
        for bytes in [65_000, 65_536, 65_537, 70_000, 262_143, 262_144, 262_145, 3 << 20] {
            let page = search(&long(bytes), 0, 32 << 10, "NEEDLE$");
            let (piece, last) = page.text.split_once('\n').unwrap();
            let mark = format!("1:[piece at offset {} of a long line] xxx", bytes - 2048);
            assert!(piece.starts_with(&mark), "{bytes}: {}", &piece[..100]);
            assert!(piece.ends_with("xxNEEDLE"), "{bytes}");
            assert_eq!((last, page.next_offset), ("2:last NEEDLE\n", None), "{bytes}");
            assert_eq!(search(&long(bytes), 0, 32 << 10, "^NEEDLE|NEEDL$|\\bNEEDLE x").text, "", "{bytes}");
        }
        assert!(search(&long(SEARCHED_BYTES_MAX), 0, 32 << 10, "^x+NEEDLE$").text.contains("xNEEDLE\n"));
    }

    #[test]
    fn a_match_between_two_segments_is_found_once() {
        for at in (SEARCHED_BYTES_MAX - 6_000..SEARCHED_BYTES_MAX + 20_000).step_by(997) {
            let mut bytes = "é".repeat(SEARCHED_BYTES_MAX).into_bytes();
            bytes[at / 2 * 2..][..6].copy_from_slice(b"NEEDLE");
            let text = search(&bytes, 0, 32 << 10, "NEEDLE").text;
            assert_eq!((text.matches("NEEDLE").count(), text.lines().count()), (1, 1), "{at}");
            bytes.splice(..0, *b"\x1b[1m");
            let text = search(&bytes, 0, 32 << 10, "NEEDLE").text;
            assert!(text.starts_with("1:[piece ") && text.contains("éNEEDLEé"), "{at}");
        }
    }

    #[test]
    fn a_piece_keeps_to_the_limit_and_what_does_not_fit_is_on_the_next_page() {
        for bytes in [200, 5_000, 70_000, 300_000] {
            let page = search(&long(bytes), 0, 100, "NEEDLE");
            assert!(page.text.len() <= 100 && page.text.ends_with("xNEEDLE\n"), "{bytes}: {}", page.text);
            assert_eq!(page.next_offset, Some(bytes as u64 + 1), "{bytes}");
            let next = search(&long(bytes), bytes as u64 + 1, 100, "NEEDLE");
            assert_eq!((next.text.as_str(), next.next_offset), ("2:last NEEDLE\n", None));
        }
    }

    #[test]
    fn a_search_goes_on_within_a_line() {
        let mut bytes = vec![b'-'; 300_000];
        for at in [100_000, 200_000] {
            bytes[at..at + 6].copy_from_slice(b"NEEDLE");
        }
        let first = search(&bytes, 0, 1_000, "NEEDLE").text;
        assert!(first.contains("of a long line; more from offset 200000 on] --"), "{first}");
        for offset in [100_006, 200_000] {
            let second = search(&bytes, offset, 1_000, "NEEDLE").text;
            assert!(second.contains("of a long line] ") && second.contains("NEEDLE-"), "{second}");
        }
        assert_eq!(search(&bytes, 100_000, 1_000, "^NEEDLE").text, "", "no line begins here");
        assert_eq!(search(&bytes, 100_001, 1_000, r"\bEEDLE").text, "", "and no word");
    }

    /// Goes on from where the notes say for as long as they do, and counts the pages.
    fn go_on(bytes: &[u8], pattern: &str, limit: usize) -> usize {
        let (mut offset, mut pages) = (0, 1);
        loop {
            let text = search(bytes, offset, limit, pattern).text;
            let Some((_, more)) = text.split_once("; more from offset ") else { return pages };
            let more = more.split(' ').next().unwrap().parse::<u64>().unwrap();
            assert!(more > offset, "{pattern}: {more} behind {offset}");
            (offset, pages) = (more, pages + 1);
        }
    }

    #[test]
    fn what_matches_all_over_a_line_is_paged_through_to_its_end() {
        let words = "ab é secret 12 ".repeat(7_000);
        for text in ["x".repeat(111_000), "7".repeat(111_000), "é".repeat(55_500), words] {
            for pattern in
                [".*", "x*", "[a-z]*", r"\b", r"\d+", r"\w+", "^|é", ".", "(?s-u:.)", r"\B", "$", "^"]
            {
                let pages = go_on(text.as_bytes(), pattern, 32 << 10);
                assert!(pages < 500, "{pattern} in {}: {pages}", &text[..8]);
            }
        }
        let bytes = [&b"-".repeat(70_000)[..], b"NEEDLE", &b"-".repeat(3_000)[..], b"NEEDLE-NEEDLE"].concat();
        assert_eq!(go_on(&bytes, "NEEDLE", 1_000), 2, "two are shown at once");
        let cut =
            [&b"-".repeat(70_000)[..], b"NEEDLE", &b"-".repeat(400)[..], &b"NEEDLE".repeat(200)[..]].concat();
        let pages = go_on(&cut, "NEEDLE", 1_000);
        assert!((3..6).contains(&pages), "{pages}");
    }

    #[test]
    fn a_match_with_colours_is_not_before_the_place_that_is_told() {
        for (before, behind) in [(100_000, 20_000), (10, 100_000), (100_000, 0), (300_000, 40_000)] {
            let bytes = [b"\x1b[1m", &vec![b'x'; before][..], b"NEEDLE", &vec![b'y'; behind][..]].concat();
            let text = search(&bytes, 0, 1_000, "NEEDLE").text;
            let near = text.split(' ').nth(3).unwrap().parse::<usize>().unwrap();
            assert!(near <= before + 4 && before < near + 80_000, "{before}: {}", &text[..80]);
        }
    }

    #[test]
    fn a_long_line_with_colours_is_searched_as_it_is_shown() {
        let bytes = b"\x1b[1mx".repeat(50_000);
        let bytes = [&bytes[..], b"NEE\x1b[31mDLE\x1b[m\n"].concat();
        let page = search(&bytes, 0, 1_000, "xNEEDLE$");
        assert!(page.text.starts_with("1:[piece near offset "), "{}", page.text);
        assert!(page.text.ends_with("xNEEDLE\n") && page.text.len() <= 1_000, "{}", page.text);
        assert_eq!(search(&bytes, 0, 1_000, "31m").text, "");
    }

    #[test]
    fn a_long_line_that_is_no_text_is_not_passed_over() {
        let bytes = [&b"-".repeat(300)[..], b"\xff\n"].concat();
        let page = search(&bytes, 0, 200, r"(?-u:\xff)");
        assert!(
            page.text.starts_with("1:[piece near offset ") && page.text.ends_with("--\n"),
            "{}",
            page.text
        );
    }

    #[test]
    fn a_piece_shows_no_half_of_a_secret() {
        for before in [0, 70_000] {
            let bytes = [&vec![b'x'; before][..], b"-secretNEEDLE", &vec![b'y'; 70_000][..]].concat();
            for limit in 60..130 {
                let page = search(&bytes, 0, limit, "NEEDLE");
                assert!(page.text.contains("NEED") && !page.text.contains("cret"), "{}", page.text);
            }
        }
        let bytes = [b"-secretNEEDLE", &vec![b'y'; 70_000][..]].concat();
        let page = search(&bytes, 4, 200, "NEEDLE");
        assert!(page.text.contains("NEEDLE") && !page.text.contains("cret"), "{}", page.text);
    }
}
