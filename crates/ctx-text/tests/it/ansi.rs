//! Plain text out of terminal output: sequences go, the last state of a redrawn line stays.

#![expect(clippy::indexing_slicing, clippy::unwrap_used, reason = "helpers of tests")]

use ctx_text::ansi::{Cleaner, clean};
use proptest::prelude::*;
use rustix::time::{ClockId, clock_gettime};

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

/// The CPU time of this thread alone: other work on the machine does not count.
fn cpu_time_of(unit: &[u8]) -> std::time::Duration {
    let bytes = unit.repeat(200_000 / unit.len());
    let now = || {
        let now = clock_gettime(ClockId::ThreadCPUTime);
        std::time::Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
    };
    let rounds = (0..3).map(|_| {
        let started = now();
        clean(&bytes);
        now() - started
    });
    rounds.min().unwrap()
}

#[test]
fn no_control_takes_much_longer_than_another() {
    // Strings of a sequence are skipped byte by byte.
    let least = cpu_time_of("\u{9d}".as_bytes());
    let texts: [&[u8]; 9] = [
        "\u{9b}".as_bytes(),
        "\u{85}".as_bytes(),
        "x\u{85}".as_bytes(),
        "\u{a0}\u{9b}".as_bytes(),
        "é\u{9b}31m".as_bytes(),
        "é\u{9b}31m\n".as_bytes(),
        "é\x1b[31m\u{9b}31m\n".as_bytes(),
        b"\xff\n",
        b"un caf\xe9 et du th\xe9\n",
    ];
    for text in texts {
        let took = cpu_time_of(text);
        // Where each of them looked at all that follows, or at a KiB of it, it would be far more.
        assert!(took < least * 30, "{text:?}: {took:?}, where a string takes {least:?}");
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
fn the_cursor_moves_as_far_as_the_width_of_a_terminal_and_anywhere_within_the_text() {
    for column in [80, 132, 200, 500, 511] {
        let want = format!("{}ok\n", " ".repeat(column));
        check(format!("\x1b[{column}Cok\n"), &want);
        check(format!("\x1b[{}Gok\n", column + 1), &want);
        check(format!("x\x08\x1b[{column}Cok\x1b[1G \n"), &want);
    }
    for far in ["\x1b[512C", "\x1b[32767C", "\x1b[65535G", "\x1b[300C\x1b[300C", "\x1b[999`"] {
        check(format!("{far}ok\n"), &format!("{}ok\n", " ".repeat(511)));
    }
    let long = "é".repeat(2000);
    check(format!("{long}\r\x1b[1500CX\n"), &format!("{}X{}\n", "é".repeat(1500), "é".repeat(499)));
    check(format!("{long}\x1b[9999Cend\x1b[9999G.\n"), &format!("{long}end.\n"));
    // A move to the right is none to the left where the text was erased.
    check(format!("{long}\x1b[2K\x1b[3Cend\n"), &format!("{}end\n", " ".repeat(2000)));
}

#[test]
fn a_cursor_that_moves_far_makes_little_text_in_small_pieces() {
    for unit in ["\x1b[32767Ca\n", "\x1b[32767Ca", "\x1b[512Ga\n", "a\x1b[2K\x1b[999Cb\r\n", "\0"] {
        let bytes = unit.repeat((256 << 10) / unit.len());
        let (mut total, mut largest) = (0, 0);
        Cleaner::new().push_to(bytes.as_bytes(), &mut |clean| {
            total += clean.len();
            largest = largest.max(clean.len());
        });
        assert!(total <= 65 * bytes.len(), "{unit:?}: {total} bytes of text out of {}", bytes.len());
        // What is held back, and a line that may still be redrawn.
        assert!(largest < 256 << 10, "{unit:?}: a piece of {largest} bytes");
    }
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
        "\u{85}",
        "\x1b[400C",
        "\x1b[9999G",
        "\0\0",
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
