//! Looking for a pattern in the whole output of an earlier command.

use std::borrow::Cow;

use super::pages::{AROUND_BYTES, PageError, PageRequest, READ_BYTES, Shown, Wanted, ask};
use super::spool::KeptOutput;
use crate::shell::text::ansi::{Cleaner, LINE_CHARS_MAX, clean};
use crate::shell::text::pattern::{Found, LINE_BYTES_MAX, LongLine, PIECE_BYTES, Pattern, Piece, around};

/// After so many bytes at most, a search asks whether it is still wanted.
const ASK_BYTES: usize = 16 << 10;
/// A piece has at least so many bytes besides its mark, whatever the limit of the page is.
const PIECE_BYTES_MIN: usize = 16;
/// What stands before a line that is not read from its beginning: enough for any character.
const BEFORE_BYTES: usize = 4;

/// A search under way.
pub(crate) struct Search<'a> {
    pub kept: &'a KeptOutput,
    pub request: &'a PageRequest<'a>,
    pub pattern: &'a Pattern,
    pub shown: Shown<'a>,
    pub is_wanted: Wanted<'a>,
}

/// A line that is not shown whole.
struct Long {
    found: Found,
    /// Bytes of it in the output, with its end.
    size: u64,
    /// What stands before it where it is the rest of one.
    before: Option<String>,
    place: Place,
    ends: bool,
}

/// Where the match is in the output.
#[derive(Clone, Copy)]
enum Place {
    /// The line begins here, and each of its bytes is shown.
    Exact(u64),
    /// Colours and the like are not shown, so that only this is known.
    Near(u64),
}

impl Search<'_> {
    /// Collects matching lines until the page is full; returns where the next page begins.
    pub fn run(&self, text: &mut String) -> Result<u64, PageError> {
        let total = self.kept.span.len;
        let mut at = self.request.offset.min(total);
        let mut number = lines_before(self.kept, at, self.is_wanted)? + 1;
        let mut unasked = 0;
        let mut is_rest = at > 0 && at < total && self.kept.read(at - 1, 1)? != b"\n";
        while at < total {
            let bytes = self.kept.read(at, READ_BYTES)?;
            if bytes.is_empty() {
                break;
            }
            let last = at + bytes.len() as u64 == total;
            let mut taken = 0;
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                let ends = line.ends_with(b"\n");
                if is_rest || line.len() > LINE_BYTES_MAX || !(ends || last) {
                    break;
                }
                unasked += line.len();
                if unasked >= ASK_BYTES {
                    ask(self.is_wanted)?;
                    unasked = 0;
                }
                if let Some(found) = self.line(line, at + taken, number)?
                    && !self.add(text, &found)
                {
                    return Ok(at + taken);
                }
                number += u64::from(ends);
                taken += line.len() as u64;
            }
            if taken == 0 {
                let long = self.long_line(at, is_rest)?;
                let found = long.found.near.as_ref().map(|near| self.piece(&long, near, number));
                if found.is_some_and(|found| !self.add(text, &found)) {
                    return Ok(at);
                }
                number += u64::from(long.ends);
                taken = long.size;
                is_rest = false;
            }
            at += taken;
        }
        Ok(total)
    }

    /// Adds a line unless the page is full; the first one always has room.
    fn add(&self, text: &mut String, line: &str) -> bool {
        let has_room = text.is_empty() || text.len() + line.len() <= self.request.limit;
        if has_room {
            text.push_str(line);
        }
        has_room
    }

    /// A line that is held, as it is shown where it matches.
    fn line(&self, line: &[u8], at: u64, number: u64) -> Result<Option<String>, PageError> {
        let seen = as_shown(line.strip_suffix(b"\n").unwrap_or(line));
        if !self.pattern.is_match(&seen) {
            return Ok(None);
        }
        let shown = format!("{number}:{}\n", String::from_utf8_lossy(&seen));
        if shown.len() <= self.request.limit {
            return Ok(Some(shown));
        }
        let long = self.long_line(at, false)?;
        // What is no text may match as it was printed, and not as it is shown.
        let near = long.found.near.as_ref().unwrap_or(&long.found.begin);
        Ok(Some(self.piece(&long, near, number)))
    }

    /// Looks through a line of any length, as an answer shows it.
    fn long_line(&self, from: u64, is_rest: bool) -> Result<Long, PageError> {
        let before = if is_rest { self.line_before(from)? } else { Vec::new() };
        let last = before.get(before.len().saturating_sub(BEFORE_BYTES)..).unwrap_or_default();
        // Nobody waits in line behind it, and who does not want it any more can stop it.
        let mut line = LongLine::new(self.pattern, last, u64::MAX);
        let (mut cleaner, mut at, mut near) = (Cleaner::new(), from, None);
        let ends = loop {
            ask(self.is_wanted)?;
            let bytes = self.kept.read(at, ASK_BYTES)?;
            let end = memchr::memchr(b'\n', &bytes);
            let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or_default();
            cleaner.push_to(part, &mut |clean| line.push(clean.text()));
            if line.is_found() && near.is_none() {
                near = Some(at);
            }
            at += part.len() as u64;
            if end.is_some() || bytes.is_empty() {
                break end.is_some();
            }
        };
        let mut rest = String::new();
        cleaner.finish(&mut rest);
        line.push(&rest);
        let place = match cleaner.changed() {
            false => Place::Exact(from),
            // Text that may still be redrawn comes later: so much of it there is at most.
            true => Place::Near(near.unwrap_or(at).saturating_sub(LINE_CHARS_MAX as u64).max(from)),
        };
        let before = is_rest.then(|| clean(&before));
        Ok(Long { found: line.finish(), size: at - from + u64::from(ends), before, place, ends })
    }

    /// What a line has before this place in it, at least as much as a secret may have.
    fn line_before(&self, at: u64) -> Result<Vec<u8>, PageError> {
        let from = at.saturating_sub(AROUND_BYTES);
        let mut bytes = self.kept.read(from, usize::try_from(at - from).unwrap_or(0))?;
        let start = memchr::memrchr(b'\n', &bytes).map_or(0, |end| end + 1);
        bytes.drain(..start);
        Ok(bytes)
    }

    /// A piece of a long line around its first match, within the page and marked as a piece.
    fn piece(&self, long: &Long, near: &Piece, number: u64) -> String {
        let limit = self.request.limit;
        let again_behind = |end: usize| long.found.last_end > Some(near.bytes_before + end as u64);
        // The mark says where the piece begins, and its length decides that: so it is made twice.
        let end = again_behind(near.place).then_some(near.text.len());
        let longest = mark(long, near, number, near.place, end).len();
        let room = PIECE_BYTES.min(limit.saturating_sub(longest + 1)).max(PIECE_BYTES_MIN);
        let (skipped, piece) = around(&near.text, near.place, room);
        let before = long.before.as_deref().filter(|_| near.bytes_before == 0).unwrap_or_default();
        let wide = format!("{before}{}", near.text);
        let shown = (self.shown)(&wide);
        let is_whole = shown == wide;
        // What stands for a secret takes room, and so less is seen behind the match.
        let seen = if is_whole { skipped + piece.len() } else { near.place + room / 4 };
        let more = again_behind(skipped + piece.len()).then(|| self.more_from(near, skipped, seen));
        let mark = mark(long, near, number, skipped, more);
        if is_whole {
            return format!("{mark}{piece}\n");
        }
        // A secret that was not known as one, or torn apart: the place is looked for in what is left.
        let place =
            self.pattern.match_end(shown.as_bytes()).unwrap_or(before.len() + near.place).min(shown.len());
        let (_, piece) = around(&shown, place, room);
        format!("{mark}{piece}\n")
    }

    /// Where to go on behind what was seen: behind its last match, or with a later one that its end cuts. A match that is
    /// longer than what was seen goes on at the end of it, and there is always a step ahead.
    fn more_from(&self, near: &Piece, skipped: usize, seen: usize) -> usize {
        let seen = near.text.floor_char_boundary(seen.min(near.text.len()));
        let text = near.text.get(skipped..seen).unwrap_or_default();
        let end = match self.pattern.matches(text.as_bytes()).last() {
            Some(last) if skipped + last.end < seen => skipped + last.end,
            Some(last) if skipped + last.start > near.place => skipped + last.start,
            Some(_) => seen,
            None => near.place,
        };
        near.text.ceil_char_boundary(end.max(near.place).max(1))
    }
}

/// Says that a text is a piece of its line, which, and from where in the text on there is more.
fn mark(long: &Long, near: &Piece, number: u64, skipped: usize, more: Option<usize>) -> String {
    let within = |place: usize| near.bytes_before + place as u64;
    let place = match long.place {
        Place::Exact(line) => format!("at offset {}", line + within(skipped)),
        Place::Near(at) => format!("near offset {at}"),
    };
    let more = match (more, long.place) {
        (Some(more), Place::Exact(line)) => format!("; more from offset {} on", line + within(more)),
        (Some(_), Place::Near(_)) => "; more behind it".to_owned(),
        (None, _) => String::new(),
    };
    let what = if long.before.is_some() { "the rest of a line" } else { "a line" };
    let size = long.size - u64::from(long.ends);
    format!("{number}:[piece {place} of {what} of {size} bytes{more}] ")
}

/// A line as an answer shows it, without colours and what was overwritten.
fn as_shown(line: &[u8]) -> Cow<'_, [u8]> {
    let is_plain = line.iter().all(|byte| *byte >= b' ' || *byte == b'\t');
    if is_plain { Cow::Borrowed(line) } else { Cow::Owned(clean(line).into_bytes()) }
}

fn lines_before(kept: &KeptOutput, offset: u64, is_wanted: Wanted<'_>) -> Result<u64, PageError> {
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
    use crate::shell::output::markers::Stream;

    fn search(bytes: &[u8], offset: u64, limit: usize, pattern: &str) -> Page {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path(), 1 << 30);
        spool.begin(1);
        spool.keep(Stream::Stdout, bytes).unwrap();
        let pattern = Pattern::new(pattern).unwrap();
        let request = PageRequest { stream: Output::Stdout, offset, limit, grep: Some(&pattern) };
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
            let mark = format!("1:[piece at offset {} of a line of {bytes} bytes] xxx", bytes - 2048);
            assert!(piece.starts_with(&mark), "{bytes}: {}", &piece[..100]);
            assert!(piece.ends_with("xxNEEDLE"), "{bytes}");
            assert_eq!((last, page.next_offset), ("2:last NEEDLE\n", None), "{bytes}");
            assert_eq!(search(&long(bytes), 0, 32 << 10, "^NEEDLE|NEEDL$|\\bNEEDLE x").text, "", "{bytes}");
            assert!(search(&long(bytes), 0, 32 << 10, "^x+NEEDLE$").text.contains("xNEEDLE\n"), "{bytes}");
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
        assert!(first.contains("of a line of 300000 bytes; more from offset 100006 on] --"), "{first}");
        let second = search(&bytes, 100_006, 1_000, "NEEDLE").text;
        assert!(second.contains("of the rest of a line of 199994 bytes] --"), "{second}");
        assert!(second.contains("-NEEDLE-"), "{second}");
        assert_eq!(search(&bytes, 100_000, 1_000, "^NEEDLE").text, "", "no line begins here");
        assert_eq!(search(&bytes, 100_001, 1_000, r"\bEEDLE").text, "", "and no word");
    }

    /// Goes on from where the marks say for as long as they do; tells how often.
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
