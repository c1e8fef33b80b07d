//! Plain text out of terminal output: sequences go, the last state of a redrawn line stays.

#![expect(clippy::indexing_slicing, reason = "helpers of tests")]

use ctx_host::shell::text::ansi::{Cleaner, clean};
use proptest::prelude::*;

#[track_caller]
fn check(bytes: impl AsRef<[u8]>, want: &str) {
    assert_eq!(clean(bytes.as_ref()), want);
    // Byte by byte it is the same.
    assert_eq!(in_pieces(bytes.as_ref(), &[1]), want);
}

fn in_pieces(bytes: &[u8], sizes: &[usize]) -> String {
    let mut cleaner = Cleaner::new();
    let mut out = String::new();
    let mut rest = bytes;
    for size in sizes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let len = (*size).clamp(1, rest.len());
        cleaner.push(&rest[..len], &mut out);
        rest = &rest[len..];
    }
    cleaner.finish(&mut out);
    out
}

#[test]
fn plain_text_and_blank_lines_stay() {
    check("a\n\n\n  b\tc\n", "a\n\n\n  b\tc\n");
    check("no end", "no end");
    check("", "");
    check("\n", "\n");
    check("héllo 日本 👍\n", "héllo 日本 👍\n");
}

#[test]
fn colours_titles_and_links_go() {
    check("\x1b[1;31mred\x1b[0m x\n", "red x\n");
    check("\x1b[38;5;196mred\x1b[39m\n", "red\n");
    check("\x1b[38:2::255:0:0mred\x1b[m\n", "red\n");
    check("\x1b]0;title\x07text\n", "text\n");
    check("\x1b]8;;https://example.org\x1b\\link\x1b]8;;\x1b\\ x\n", "link x\n");
    check("\x1bP1$tq\x1b\\x\x1b_apc\x1b\\y\n", "xy\n");
    check("\x1b(B\x1b[?25l\x1b[?2004hx\x1b=\x1b>\x1b7\x1b8\n", "x\n");
    check("a\x07b\x0ec\x0f\x7fd\n", "abcd\n");
}

#[test]
fn controls_of_eight_bits_are_what_they_are_in_seven() {
    check("x\u{9b}31my\u{9b}0m\n", "xy\n");
    check("downloading\r\u{9b}2Kdone\n", "done\n");
    check("\u{9d}0;title\x07a\u{9d}0;title\u{9c}b\u{9d}0;title\x1b\\c\x1b]0;é title\u{9c}d\n", "abcd\n");
    check("\u{90}1$tq\u{9c}x\u{9f}apc\u{9c}y\u{9e}pm\u{9c}z\u{98}sos\u{9c}\n", "xyz\n");
    check("a\u{80}\u{85}b\u{8d}\u{99}c\n", "abc\n");
    check("a\u{9d}never\nb\n", "a\nb\n");
    check("a\u{9d}x\u{9b}31mb\n", "ab\n");
    check("\u{9b}3\u{9b}1mx\u{9b}3éy\n", "xéy\n");
    // Other characters of the same first byte, and what is cut off.
    check("«\u{a0}§°é»\n", "«\u{a0}§°é»\n");
    check("\x1b]0;«t»\x07x\n", "x\n");
    check(b"a\xc2\nb\xc2\xc2\x9b1mc\x9b\n", "a\u{fffd}\nb\u{fffd}c\u{fffd}\n");
    for before in [1021, 1022, 1023, 1024, 1025] {
        let text = "é".repeat(before / 2) + if before % 2 == 1 { "x" } else { "" };
        check(format!("{text}\u{9b}31my\n"), &format!("{text}y\n"));
    }
}

#[test]
fn many_controls_of_eight_bits_take_no_longer_than_others() {
    for text in ["é\u{9b}31m", "é\u{9b}31m\n", "é\x1b[31m\u{9b}31m\n"] {
        let started = std::time::Instant::now();
        clean(text.repeat(100_000).as_bytes());
        let took = started.elapsed();
        // Where each of them looked through all that follows, it would be minutes.
        assert!(took < std::time::Duration::from_secs(20), "{took:?}");
    }
}

#[test]
fn a_redrawn_line_keeps_its_last_state() {
    check("  1%\r 50%\r100%\n", "100%\n");
    check("10%\r20%", "20%");
    check("downloading 10%\rdone\n", "doneloading 10%\n");
    check("downloading 10%\r\x1b[Kdone\n", "done\n");
    check("downloading\r\x1b[2Kdone\n", "done\n");
    check("abc\x1b[1K\rx\n", "x\n");
    check("working...\r          \rdone\n", "done\n");
    check("a\r\nb\r\n", "a\nb\n");
    check("a\r\r\nb\n", "a\nb\n");
    check("\r\n\r\n", "\n\n");
    check("x\r", "x");
}

#[test]
fn progress_bars() {
    let cargo =
        "    Building [=>       ] 1/9: a\r    Building [====>    ] 5/9: bcd\r\x1b[K    Finished dev in 1s\n";
    check(cargo, "    Finished dev in 1s\n");
    let pip = "\r  0%|          | 0/3\r 33%|###       | 1/3\r100%|##########| 3/3\n";
    check(pip, "100%|##########| 3/3\n");
    let spinner = "-\x08\\\x08|\x08/\x08 \x08ok\n";
    check(spinner, "ok\n");
}

#[test]
fn backspace_and_cursor_moves_within_the_line() {
    check("abd\x08c\n", "abc\n");
    check("a\x08\x08\x08b\n", "b\n");
    check("b\x08bo\x08ol\x08ld\x08d\n", "bold\n");
    check("abc\x1b[2DX\n", "aXc\n");
    check("abc\x1b[1GX\n", "Xbc\n");
    check("a\x1b[3Cb\n", "a   b\n");
    check("one\x1b[Atwo\n", "onetwo\n");
}

#[test]
fn what_is_not_text_is_replaced() {
    check(b"a\xffb\xc3\n", "a\u{fffd}b\u{fffd}\n");
    check(b"\xe2\x82", "\u{fffd}");
    check(b"a\0b\n", "a\u{fffd}b\n");
    check(b"\xed\xa0\x80\n", "\u{fffd}\u{fffd}\u{fffd}\n");
}

#[test]
fn a_sequence_that_never_ends_hides_no_more_than_its_line() {
    check("a\x1b]0;never\nb\nc\n", "a\nb\nc\n");
    check("a\x1bPnever\nb\n", "a\nb\n");
    check("a\x1b[12\nb\n", "a\nb\n");
    check("a\x1b", "a");
    check("a\x1b[3日b\n", "a日b\n");
}

#[test]
fn one_line_of_many_megabytes_is_not_held() {
    let mut cleaner = Cleaner::new();
    let mut out = String::new();
    let piece = "x".repeat(1 << 20);
    let mut total = 0;
    for _ in 0..8 {
        cleaner.push(piece.as_bytes(), &mut out);
        total += out.len();
        out.clear();
    }
    assert!(total > (8 << 20) - (64 << 10), "{total} bytes of the line came out on the way");
    cleaner.finish(&mut out);
    assert_eq!(total + out.len(), 8 << 20);
}

#[test]
fn it_says_whether_it_changed_anything() {
    let mut cleaner = Cleaner::new();
    cleaner.push("plain\ntext é\n".as_bytes(), &mut String::new());
    assert!(!cleaner.changed());
    cleaner.push(b"\x1b[1m", &mut String::new());
    assert!(cleaner.changed());
}

fn terminalish() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop::sample::select(vec![
        "a",
        "word ",
        "\n",
        "\r",
        "\r\n",
        "\x08",
        "\x1b[31m",
        "\x1b[K",
        "\x1b[2K",
        "\x1b[3D",
        "\x1b[5C",
        "\x1b[2G",
        "\x1b[1P",
        "\x1b]0;t\x07",
        "\x1b",
        "\x1b[",
        "日本",
        "é",
        "\t",
        "\x1b[1K",
        "\x1bP",
        "\x1b\\",
        "\x1b[J",
        "\u{9b}2D",
        "\u{9d}0;t",
        "\u{9c}",
        "\u{a0}",
    ]);
    let any = prop::collection::vec(any::<u8>(), 0..6);
    prop::collection::vec(prop_oneof![6 => piece.prop_map(|p| p.as_bytes().to_vec()), 1 => any], 0..60)
        .prop_map(|p| p.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn the_cut_of_the_reads_changes_nothing(bytes in terminalish(), sizes in prop::collection::vec(1usize..20, 1..8)) {
        prop_assert_eq!(in_pieces(&bytes, &sizes), clean(&bytes));
    }

    #[test]
    fn no_escape_and_as_many_lines_come_out(bytes in terminalish()) {
        let text = clean(&bytes);
        let is_left = |char: char| !char.is_control() || "\n\t\x0b\x0c".contains(char);
        prop_assert!(text.chars().all(is_left));
        let ends = |bytes: &[u8]| bytes.iter().filter(|byte| **byte == b'\n').count();
        prop_assert_eq!(ends(text.as_bytes()), ends(&bytes));
    }

    #[test]
    fn text_without_control_bytes_is_untouched(text in "[ -~é日\n\t]{0,200}") {
        prop_assert_eq!(clean(text.as_bytes()), text);
    }
}
