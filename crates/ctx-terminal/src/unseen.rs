//! Output that nobody will see: of a flood of plain lines only the last fit into the screen and its scrollback, and the
//! model need not draw the others. Pure.
//!
//! Plain is text in lines, with colours (SGR) and erased line ends (EL): it moves the cursor only forwards and down. After
//! a screen of such lines the cursor is where every further line scrolls, so lines may be left out behind that point as long
//! as enough follow to fill all that is kept. (Not where a region scrolls and the cursor may be below it: there lines overwrite
//! each other, and the end of a longer one may still be seen.) Colours outlive their lines; of what is left out they are passed on.

use memchr::{memchr, memchr_iter, memmem, memrchr_iter};

const ESCAPE: u8 = 0x1b;

/// Whether output is plain. It ends between characters and sequences.
pub(super) fn is_plain(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    loop {
        let escape = memchr(ESCAPE, rest);
        let (text, sequence) = rest.split_at(escape.unwrap_or(rest.len()));
        if !text.iter().all(|byte| is_text(*byte)) {
            return false;
        }
        match (escape, line_sequence(sequence)) {
            (None, _) => return true,
            (Some(_), Some(length)) => rest = sequence.get(length..).unwrap_or_default(),
            (Some(_), None) => return false,
        }
    }
}

/// Not controls, and not 0xc2, which begins those of the second set.
fn is_text(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | b'\t' | 0x20..=0x7e | 0x80..=0xc1 | 0xc3..)
}

/// The length of the SGR or EL that stands at the beginning.
fn line_sequence(bytes: &[u8]) -> Option<usize> {
    let parameters = bytes.strip_prefix(b"\x1b[")?;
    let end = parameters.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';' | b':'))?;
    matches!(parameters.get(end), Some(b'm' | b'K')).then_some(end + 3)
}

/// What the model is to draw of plain output, in pieces, given the rows of its screen and how many lines it keeps with
/// those above it. What is left out begins and ends at the beginning of a line, which is behind CR LF.
pub(super) fn seen(plain: &[u8], rows: usize, kept: usize) -> Vec<&[u8]> {
    let first = memchr_iter(b'\n', plain).nth(rows);
    let first =
        first.and_then(|at| Some(at + memmem::find(plain.get(at.saturating_sub(1)..)?, b"\r\n")? + 1));
    let last = memrchr_iter(b'\n', plain).nth(kept).map(|at| at + 1);
    match (first, last) {
        (Some(first), Some(last))
            if first < last && plain.get(..last).is_some_and(|to| to.ends_with(b"\r\n")) =>
        {
            let middle = plain.get(first..last).unwrap_or_default();
            let mut pieces = vec![plain.get(..first).unwrap_or_default()];
            pieces.extend(colours(middle));
            pieces.extend(plain.get(last..));
            pieces
        }
        _ => vec![plain],
    }
}

/// The sequences since the last that takes all colours back.
fn colours(plain: &[u8]) -> Vec<&[u8]> {
    let mut colours = Vec::new();
    for at in memrchr_iter(ESCAPE, plain) {
        let sequence = plain.get(at..).and_then(|rest| rest.get(..line_sequence(rest)?)).unwrap_or_default();
        if sequence.ends_with(b"m") {
            colours.push(sequence);
        }
        if matches!(sequence, b"\x1b[m" | b"\x1b[0m") {
            break;
        }
    }
    colours.reverse();
    colours
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_output_has_lines_colours_and_nothing_that_moves() {
        for plain in ["", "a\r\nb\tü界", "\x1b[1;38:5:1mx\x1b[0m\x1b[K\r\n\x1b[m"] {
            assert!(is_plain(plain.as_bytes()), "{plain:?}");
        }
        for other in [
            "\x07",
            "a\x08",
            "\x0e",
            "\x1b[A",
            "\x1b[?25l",
            "\x1b]0;t\x07",
            "\x1b7",
            "\u{85}",
            "\x0c",
            "\x1b",
        ] {
            assert!(!is_plain(other.as_bytes()), "{other:?}");
        }
    }

    #[test]
    fn the_first_lines_the_last_and_the_colours_between_are_seen() {
        let text = "1\r\n2\r\n\x1b[31m3\x1b[0m\r\n\x1b[1m4\x1b[K\r\n5\r\n6\r\n7";
        let pieces = |kept| seen(text.as_bytes(), 1, kept).concat();
        assert_eq!(String::from_utf8(pieces(2)).unwrap(), "1\r\n2\r\n\x1b[0m\x1b[1m5\r\n6\r\n7");
        assert_eq!(pieces(4), text.as_bytes(), "nothing can be left out");
        assert_eq!(seen(b"1\n2\n3\n4\n5", 1, 1), [b"1\n2\n3\n4\n5"], "columns are carried on");
    }
}
