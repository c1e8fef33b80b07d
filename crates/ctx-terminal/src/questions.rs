//! Output without the questions that it asks of its terminal, for when nobody passes the answers on: they would be typed
//! at whatever reads the keyboard next. Pure.

use memchr::memchr;

use super::boundary::{State, after};
use super::footprint::numbers;

const ESCAPE: u8 = 0x1b;
/// Terminals may answer it with a text that their owner has set.
const ENQUIRY: u8 = 0x05;

/// Leaves out the questions of output that ends between characters and sequences.
pub fn without_questions(bytes: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    loop {
        let (text, sequence) = rest.split_at(memchr(ESCAPE, rest).unwrap_or(rest.len()));
        kept.extend(text.iter().filter(|byte| **byte != ENQUIRY));
        if sequence.is_empty() {
            return kept;
        }
        let (sequence, behind) = sequence.split_at(length(sequence));
        if !asks(sequence) {
            kept.extend_from_slice(sequence);
        }
        rest = behind;
    }
}

/// The length of the sequence at the beginning, which another one may cut off.
fn length(bytes: &[u8]) -> usize {
    let mut state = State::Escape;
    for (at, byte) in bytes.iter().enumerate().skip(1) {
        match (state, *byte) {
            (State::TextEscape, b'\\') => return at + 1,
            (State::TextEscape, _) => return at - 1,
            (State::Escape | State::Control, ESCAPE) => return at,
            (State::Text, 0x07) => return at + 1,
            (State::Text, ESCAPE) => state = State::TextEscape,
            (_, byte) => state = after(state, byte),
        }
        if state == State::Ground {
            return at + 1;
        }
    }
    bytes.len()
}

fn asks(sequence: &[u8]) -> bool {
    match sequence.get(1..).unwrap_or_default() {
        [b'[', control @ ..] => control_asks(control),
        [b']', command @ ..] => command_asks(command),
        // DECRQSS, XTGETTCAP, XTGETXRES.
        [b'P', request @ ..] => [b"$q", b"+q", b"+Q"].iter().any(|asked| request.starts_with(*asked)),
        // Whether the terminal shows kitty's pictures.
        [b'_', b'G', picture @ ..] => {
            let keys = picture.split(|byte| matches!(*byte, b';' | ESCAPE)).next().unwrap_or_default();
            keys.split(|byte| *byte == b',').any(|key| key == b"a=q")
        }
        // DECID.
        [b'Z'] => true,
        _ => false,
    }
}

fn control_asks(control: &[u8]) -> bool {
    let Some((last, parameters)) = control.split_last() else { return false };
    let private = parameters.first().copied().filter(|byte| matches!(byte, b'<'..=b'?'));
    let between = parameters.iter().position(|byte| matches!(byte, 0x20..=0x2f)).unwrap_or(parameters.len());
    match (private, parameters.get(between..).unwrap_or_default(), *last) {
        // DSR, DA, DECRQM, XTVERSION, DECREQTPARM.
        (None | Some(b'?'), b"", b'n')
        | (None | Some(b'=' | b'>'), b"", b'c')
        | (None | Some(b'?'), b"$", b'p')
        | (Some(b'>'), b"", b'q')
        | (None, b"", b'x') => true,
        // The keys and their forms, the size of pictures.
        (Some(b'?'), b"", b'u' | b'm' | b'g' | b'S') => true,
        // DECRQPSR, DECRQTSR, DECRQUPSS, DECRQCRA, DECRQDE, DECRQLP, XTREPORTCOLORS, XTREPORTSGR.
        (None, b"$", b'w' | b'u')
        | (None, b"&", b'u')
        | (None, b"*", b'y')
        | (None, b"\"", b'v')
        | (None, b"'", b'|')
        | (None, b"#", b'R' | b'|') => true,
        // Sizes, places and titles of the window.
        (None, b"", b't') => {
            let asked = numbers(control).and_then(|(mut numbers, _)| numbers.next());
            matches!(asked, Some(11 | 13..=16 | 18..=21))
        }
        _ => false,
    }
}

fn command_asks(command: &[u8]) -> bool {
    let end = command.iter().position(|byte| matches!(*byte, 0x07 | ESCAPE)).unwrap_or(command.len());
    let mut words = command.get(..end).unwrap_or_default().split(|byte| *byte == b';');
    match words.next().unwrap_or_default() {
        // Titles, places, links and notices are texts, which may have a question mark.
        b"0" | b"1" | b"2" | b"7" | b"8" | b"9" | b"777" => false,
        // What xterm allows.
        b"60" | b"61" => true,
        b"1337" => {
            words.next().is_some_and(|word| word.starts_with(b"Report") || word.starts_with(b"RequestUpload"))
        }
        // Colours, the clipboard, fonts, pointers.
        _ => words.any(|word| word.starts_with(b"?") || word.ends_with(b"=?")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(output: &str) -> String {
        String::from_utf8(without_questions(output.as_bytes())).unwrap()
    }

    #[test]
    fn questions_are_left_out() {
        for question in [
            "\x05",
            "\x1bZ",
            "\x1b[5n",
            "\x1b[6n",
            "\x1b[?6n",
            "\x1b[?996n",
            "\x1b[c",
            "\x1b[0c",
            "\x1b[>c",
            "\x1b[=0c",
            "\x1b[4$p",
            "\x1b[?2026$p",
            "\x1b[>0q",
            "\x1b[x",
            "\x1b[?u",
            "\x1b[?4m",
            "\x1b[?1;1;0S",
            "\x1b[14t",
            "\x1b[18t",
            "\x1b[21t",
            "\x1b[1$w",
            "\x1b[1;0;1;1;2;2*y",
            "\x1b]4;1;?\x07",
            "\x1b]10;?\x1b\\",
            "\x1b]11;?\x07",
            "\x1b]52;c;?\x07",
            "\x1b]21;foreground=?\x1b\\",
            "\x1b]1337;ReportCellSize\x07",
            "\x1bP$qm\x1b\\",
            "\x1bP+q544e\x1b\\",
            "\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\",
        ] {
            assert_eq!(kept(question), "", "{question:?}");
            assert_eq!(kept(&format!("a\x1b[1m{question}{question}b")), "a\x1b[1mb", "{question:?}");
        }
    }

    #[test]
    fn what_asks_nothing_stays() {
        for output in [
            "",
            "text? n c\r\n界",
            "\x1b[?1049h\x1b[?1;25l\x1b[0 q\x1b[22;0t\x1b[8;24;80t\x1b[!p",
            "\x1b[>4;2m\x1b[>4n\x1b[?0c\x1b[>1u\x1b[=7;1u\x1b[<u\x1b[u\x1b[m\x1b[2S\x1b[65;1;1;9;9$x",
            "\x1b]2;really?\x07\x1b]0;?\x1b\\\x1b]8;;https://example.org/?q\x1b\\",
            "\x1b]10;#ffffff\x07\x1b]52;c;YQ==\x07\x1b]104\x07\x1b]1337;SetMark\x07",
            "\x1bP0;1q#0~\x1b\\\x1b_Gf=24,s=1,v=1;a=q\x1b\\\x1b(B\x1b7\x1b8\x1bc",
            "\x1b[6\x18n\x1b]2;cut\x1b[1mb",
        ] {
            assert_eq!(kept(output), output, "{output:?}");
        }
        assert_eq!(kept("\x1b]11;?\x1b[1mb"), "\x1b[1mb");
        assert_eq!(kept("\x1b[6\x1b[6n\x1b[1m"), "\x1b[6\x1b[1m");
    }
}
