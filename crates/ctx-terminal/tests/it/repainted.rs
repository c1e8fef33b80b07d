//! A screen that is painted again is the same screen: painted into a second model, both paint the same.

use ctx_terminal::{Boundary, Model, Size};
use proptest::prelude::*;

const SIZE: Size = Size { cols: 12, rows: 5 };

/// A second terminal that sees only the repaint of the first.
fn reattached(model: &mut Model, size: Size) -> Model {
    let mut second = Model::new(size);
    second.feed(&model.repaint(usize::MAX));
    second
}

#[track_caller]
fn same_after_reattach(stream: &[u8]) {
    let mut model = Model::new(SIZE);
    model.feed(stream);
    let before = model.repaint(usize::MAX);
    let mut second = reattached(&mut model, SIZE);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(model.screen(), second.screen(), "{}", text(stream));
    assert_eq!(text(&second.repaint(usize::MAX)), text(&before), "{}", text(stream));
    // Painting changes nothing, and what comes next means the same to both.
    let next = b"Z\x1b[K\r\n\x1b[Mq\x1b8!\x1b[?1049lW";
    model.feed(next);
    second.feed(next);
    assert_eq!(model.screen(), second.screen(), "after {}", text(stream));
}

#[test]
fn a_reattached_terminal_is_the_same() {
    for stream in [
        "plain\r\ntext",
        "\x1b[1;31mbold red\x1b[0m \x1b[4;44mon blue\x1b[m end",
        "a line that is longer than twelve columns\r\nnext",
        "twelve chars\r\nx",
        "twelve chars",
        "界界界界界界界",
        "x界界界界界界",
        "e\u{301}a\u{308}界\u{fe0f}",
        "\x1b[38;5;200mindexed \x1b[48;2;1;2;3mrgb\x1b[7minverse",
        "\x1b[4:3mcurl\x1b[58;2;9;8;7mcolour\x1b[9mstrike\x1b[2mdim\x1b[8mhid",
        "\x1b[41m\x1b[2Jred screen\x1b[3;4H",
        "\x1b[44mlong coloured line that wraps\x1b[K",
        "1\r\n2\r\n3\r\n4\r\n5\r\n6\r\n7\r\n8",
        "main\x1b[?1049h\x1b[2;3Halt \x1b[31mred",
        "1\r\n2\r\n3\r\n4\r\n5\r\n6\r\nmain\x1b[?1049htwelve chars",
        "\x1b[2;4r\x1b[3;1Hin the region",
        "\x1b[2;4r\x1b[?6h\x1b[2;2Horigin",
        "\x1b[?1h\x1b=\x1b[?1000h\x1b[?1006h\x1b[?2004h\x1b[?1004h\x1b[?25l",
        "\x1b[?1003h\x1b[4h\x1b[20h\x1b[?7l\x1b[5 q\x1b[>1u",
        "\x1b(0lqqk\x1b(B \x1b(0",
        "\x1b[3;3H\x1b[31m\x1b7\x1b[H\x1b[mhere",
        "\x1b]2;a title\x07\x1b]8;;https://example.org\x07link\x1b]8;;\x07 no",
        "\x1b]4;1;rgb:ff/80/00\x07\x1b]11;#102030\x07c",
        "tab\tstop\ttwo",
        "\x1b[?2026hheld back",
    ] {
        same_after_reattach(stream.as_bytes());
    }
}

/// Pieces that programs send, in any order.
fn piece() -> impl Strategy<Value = String> {
    let number = 0..15u8;
    prop_oneof![
        4 => "[a-z ]{1,15}",
        2 => "[界é🙂\u{301}]{1,8}",
        2 => Just("\r\n".to_owned()),
        1 => (number.clone(), number.clone()).prop_map(|(a, b)| format!("\x1b[{a};{b}H")),
        // A region beyond the screen is nonsense, of which each terminal makes something else.
        1 => (0..=5u8, 0..=5u8).prop_map(|(a, b)| format!("\x1b[{a};{b}r")),
        2 => prop::sample::select(vec![0, 1, 2, 3, 4, 7, 9, 31, 42, 95, 103]).prop_map(|n| format!("\x1b[{n}m")),
        1 => (number, prop::sample::select(vec!['A', 'B', 'C', 'D', 'J', 'K', 'L', 'M', 'P', 'X', '@', 'S', 'T']))
            .prop_map(|(n, kind)| format!("\x1b[{}{kind}", n % 4)),
        1 => prop::sample::select(vec!["\x1b[?1049h", "\x1b[?1049l", "\x1b7", "\x1b8", "\x1b[4h", "\x1b[4l", "\x1bM",
    "\x1b[?7l", "\x1b[?7h", "\x1b[?25l", "\t", "\x08", "\x1b#8", "\x1bc"])
            .prop_map(str::to_owned),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn any_screen_survives_a_reattach(pieces in prop::collection::vec(piece(), 0..40)) {
        let stream = pieces.concat();
        let mut model = Model::new(SIZE);
        model.feed(stream.as_bytes());
        let mut second = reattached(&mut model, SIZE);
        prop_assert_eq!(model.screen(), second.screen(), "{:?}", &stream);
    }

    /// Whoever comes in anywhere in the stream sees the screen, then the rest, and has what one has who saw all of it.
    #[test]
    fn how_reads_cut_the_stream_is_not_seen(pieces in prop::collection::vec(piece(), 1..40), at in 0.0..1.0f64) {
        let stream = pieces.concat().into_bytes();
        let (first, rest) = stream.split_at((stream.len() as f64 * at) as usize);
        let (mut boundary, mut model) = (Boundary::default(), Model::new(SIZE));
        model.feed(&boundary.push(first));
        let mut second = reattached(&mut model, SIZE);
        let rest = [boundary.push(rest), boundary.finish()].concat();
        model.feed(&rest);
        second.feed(&rest);
        prop_assert_eq!(model.screen(), second.screen(), "{:?} at {}", String::from_utf8_lossy(&stream), first.len());
    }
}
