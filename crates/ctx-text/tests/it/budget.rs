//! Budgets: what is kept is exactly what was asked for, every cut is marked, and memory stays with what may be kept.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

use ctx_text::budget::{Budget, Collector, Kept, Plan, StreamReport, hint};
use expect_test::expect;
use proptest::prelude::*;

fn budget(json: &str) -> Budget {
    serde_json::from_str(json).unwrap()
}

fn keep(plan: &Plan, pieces: &[&str]) -> Kept {
    let mut collector = Collector::new(plan);
    for piece in pieces {
        collector.push(piece);
    }
    collector.finish()
}

/// Text and report under a budget.
fn shown(json: &str, text: &str) -> (String, String) {
    let kept = keep(&budget(json).plan().unwrap(), &[text]);
    (kept.text, serde_json::to_string(&kept.report).unwrap())
}

/// Text and report under a budget are these.
#[track_caller]
fn check(json: &str, text: &str, want: (&str, &str)) {
    let (text, report) = shown(json, text);
    assert_eq!((text.as_str(), report.as_str()), want, "{json}");
}

fn lines(from: u32, to: u32) -> String {
    (from..=to).map(|n| format!("{n}\n")).collect()
}

#[test]
fn the_last_lines() {
    let last = format!("[… 3923 lines …]\n{}", lines(3924, 4123));
    let report = r#"{"mode":"tail","lines_total":4123,"lines_kept":200}"#;
    check(r#"{"keep":{"mode":"tail","n":200}}"#, &lines(1, 4123), (&last, report));
    let report = r#"{"mode":"tail","lines_total":3,"lines_kept":2}"#;
    check(r#"{"keep":{"mode":"tail","n":2}}"#, "a\nb\nc", ("[… 1 line …]\nb\nc", report));
    let report = r#"{"mode":"tail","lines_total":2,"lines_kept":0}"#;
    check(r#"{"keep":{"mode":"tail","n":0}}"#, "a\nb\n", ("[… 2 lines …]\n", report));
}

#[test]
fn the_first_lines() {
    let report = r#"{"mode":"head","lines_total":100,"lines_kept":3}"#;
    check(r#"{"keep":{"mode":"head","n":3}}"#, &lines(1, 100), ("1\n2\n3\n[… 97 lines …]\n", report));
    let report = r#"{"mode":"head","lines_total":3,"lines_kept":3}"#;
    check(r#"{"keep":{"mode":"head","n":30}}"#, "a\n\nb", ("a\n\nb", report));
}

#[test]
fn both_ends_and_a_mark_between() {
    let report = r#"{"mode":"head_tail","lines_total":100,"lines_kept":4}"#;
    check(
        r#"{"keep":{"mode":"head_tail","n":2}}"#,
        &lines(1, 100),
        ("1\n2\n[… 96 lines …]\n99\n100\n", report),
    );
    let report = r#"{"mode":"head_tail","lines_total":3,"lines_kept":3}"#;
    check(r#"{"keep":{"mode":"head_tail","n":2}}"#, "a\nb\nc\n", ("a\nb\nc\n", report));
}

#[test]
fn lines_that_match_with_context() {
    let text = "one\ntwo\nerror: x\nthree\nfour\nfive\nerror: y\n";
    let (kept, report) = shown(r#"{"grep":{"pattern":"^error"}}"#, text);
    assert_eq!(kept, "error: x\nerror: y\n");
    assert_eq!(report, r#"{"mode":"grep","lines_total":7,"lines_kept":2}"#);
    let (kept, _) = shown(r#"{"grep":{"pattern":"error: x","context":1}}"#, text);
    assert_eq!(kept, "two\nerror: x\nthree\n");
    let (kept, _) = shown(r#"{"grep":{"pattern":"error","context":2}}"#, text);
    assert_eq!(kept, text);
    let (kept, report) = shown(r#"{"grep":{"pattern":"error"},"keep":{"mode":"tail","n":1}}"#, text);
    assert_eq!(
        (kept.as_str(), report.as_str()),
        ("[… 1 line …]\nerror: y\n", r#"{"mode":"tail","lines_total":7,"lines_kept":1}"#)
    );
    let (kept, report) = shown(r#"{"grep":{"pattern":"e$","context":0}}"#, "one\nx\none\n");
    assert_eq!((kept.as_str(), report.contains(r#""lines_kept":2"#)), ("one\none\n", true));
    let (kept, report) = shown(r#"{"grep":{"pattern":"error","context":1}}"#, text);
    assert_eq!(kept, "two\nerror: x\nthree\n--\nfive\nerror: y\n", "as grep shows groups");
    assert_eq!(
        report, r#"{"mode":"grep","lines_total":7,"lines_kept":5}"#,
        "what nobody printed does not count"
    );
    let (kept, _) = shown(r#"{"grep":{"pattern":"y$"}}"#, text);
    assert_eq!(kept, "error: y\n");
    let (kept, _) = shown(r#"{"grep":{"pattern":"last"}}"#, "x\nlast");
    assert_eq!(kept, "last");
}

#[test]
fn at_most_so_many_characters_in_whole_lines() {
    let (text, report) = shown(r#"{"max_chars":20}"#, &lines(1, 30));
    assert_eq!(text, "1\n2\n3\n4\n5\n[… 22 lines …]\n28\n29\n30\n");
    assert_eq!(report, r#"{"mode":"all","lines_total":30,"lines_kept":8,"chars_total":81,"chars_kept":19}"#);
    let (text, _) = shown(r#"{"max_chars":6,"keep":{"mode":"tail","n":9}}"#, "aaaa\nbbbb\ncc\n");
    assert_eq!(text, "[… 2 lines …]\ncc\n");
    let (text, _) = shown(r#"{"max_chars":6,"keep":{"mode":"head","n":9}}"#, "aaaa\nbbbb\ncc\n");
    assert_eq!(text, "aaaa\n[… 2 lines …]\n");
    let (text, _) = shown(r#"{"max_chars":4}"#, "日本語文字列");
    assert_eq!(text, "日本\n[… 2 characters …]\n字列", "no line that nobody printed");
    let (text, report) = shown(r#"{"max_chars":100}"#, "short\n");
    assert_eq!(
        (text.as_str(), report.as_str()),
        ("short\n", r#"{"mode":"all","lines_total":1,"lines_kept":1}"#)
    );
}

#[test]
fn by_default_head_and_tail_with_one_line_between() {
    let line = format!("{}\n", "x".repeat(99));
    let all = line.repeat(3_000);
    let kept = keep(&Plan::default(), &[&all]);
    assert!(kept.truncated);
    let marker = "[… 2700 lines …]\n";
    assert_eq!(kept.text, line.repeat(150) + marker + &line.repeat(150));
    assert_eq!(kept.report.lines_kept, 300);
    let short = keep(&Plan::default(), &["a\nb"]);
    assert_eq!((short.text.as_str(), short.truncated), ("a\nb", false));
    let exact = keep(&Plan::default(), &[&line.repeat(300)]);
    assert!(!exact.truncated);
    assert_eq!(exact.text, line.repeat(300));
}

#[test]
fn one_endless_line_is_cut_in_its_middle() {
    let piece = "y".repeat(1 << 20);
    let kept = keep(&Plan::default(), &vec![piece.as_str(); 50]);
    assert!(kept.truncated && kept.text.len() < 30_200, "{}", kept.text.len());
    assert!(kept.text.contains("\n[… 52398800 characters …]\n"));
    assert_eq!((kept.report.lines_total, kept.report.lines_kept), (1, 1));
    let kept = keep(&budget(r#"{"grep":{"pattern":"yyy"}}"#).plan().unwrap(), &vec![piece.as_str(); 50]);
    assert!(kept.text.starts_with("[characters 1 to 2048 of this line of 52428800, which matches again"));
    assert!(kept.truncated && kept.report.chars_total == Some(50 << 20), "{:?}", kept.report);
    let kept =
        keep(&budget(r#"{"grep":{"pattern":"z","context":3}}"#).plan().unwrap(), &vec![piece.as_str(); 50]);
    assert_eq!(kept.text, "");
}

#[test]
fn a_pattern_sees_the_whole_of_a_long_line() {
    for bytes in [70_000, 1 << 18] {
        let text = format!("before\n{}NEEDLE\nafter\n", "x".repeat(bytes - 6));
        let (kept, report) = shown(r#"{"grep":{"pattern":"NEEDLE$"}}"#, &text);
        let mark = format!(
            "[characters {} to {bytes} of this line of {bytes}; session_output with grep tells the offset] xx",
            bytes - 2047
        );
        assert!(kept.starts_with(&mark) && kept.ends_with("xNEEDLE\n"), "{}", &kept[..150]);
        assert!(report.contains(r#""lines_total":3,"lines_kept":1,"chars_total":"#), "{report}");
        let (kept, _) = shown(r#"{"grep":{"pattern":"after","context":1}}"#, &text);
        let mark = format!("[characters 1 to 2048 of this line of {bytes}; ");
        assert!(kept.starts_with(&mark) && kept.ends_with("x\nafter\n"), "{}", &kept[..150]);
        let (kept, _) = shown(r#"{"grep":{"pattern":"before","context":1}}"#, &text);
        assert!(kept.starts_with(&format!("before\n{mark}")) && kept.ends_with("x\n"), "{}", &kept[..150]);
        assert_eq!(shown(r#"{"grep":{"pattern":"^NEEDLE|x$"}}"#, &text).0, "");
    }
}

#[test]
fn a_match_in_a_line_that_is_too_long_to_show_is_shown() {
    let text = format!("{}NEEDLE{}\nNEEDLE\n", "x".repeat(5_000), "y".repeat(5_000));
    let (kept, _) = shown(r#"{"grep":{"pattern":"NEEDLE"},"max_chars":1000}"#, &text);
    assert!(kept.starts_with("[characters 4847 to 5166 of this line of 10006; "), "{kept}");
    assert!(kept.contains("xNEEDLEy") && kept.ends_with("y\nNEEDLE\n"), "{kept}");
    // There is no room for a mark, but the report tells of it.
    let (kept, report) = shown(r#"{"grep":{"pattern":"NEEDLE"},"max_chars":40}"#, &text);
    assert_eq!(kept, "xxxxNEEDLEyyyyyyyyyy\nNEEDLE\n");
    assert!(report.contains(r#""chars_total":10014,"chars_kept":"#), "{report}");
}

/// The CPU time of this thread alone: other work on the machine does not count.
fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.try_into().unwrap(), now.tv_nsec.try_into().unwrap())
}

#[test]
fn a_long_line_takes_no_longer_with_a_wide_pattern() {
    let text = format!("{}NEEDLE\n", "x".repeat(250_000));
    let words = format!("{}NEEDLE\n", "Néé NEED 12 lé-x NEEDL ".repeat(9_500));
    for pattern in [
        ".{0,300}NEEDLE",
        ".{0,80}NEEDLE.{0,80}",
        ".{0,500}NEEDLE",
        ".*NEEDLE.*",
        r".{0,300}NEEDLE\b",
        "([a-zé]{1,80} ){0,4}NEEDLE",
    ] {
        for text in [&text, &words] {
            let budget = serde_json::json!({"grep": {"pattern": pattern}}).to_string();
            let begin = cpu_time();
            let (kept, report) = shown(&budget, text);
            // In a moment; where each byte led through the whole pattern, it was minutes.
            let took = cpu_time() - begin;
            assert!(took < Duration::from_secs(10), "{pattern}: {took:?}");
            assert!(kept.contains("NEEDLE") && !report.contains("unsearched"), "{pattern}: {report}");
        }
    }
}

#[test]
fn a_line_that_is_searched_in_part_says_so() {
    // No two positions of this text have the same text before them, so the pattern is as much work as any.
    let mut seed = 1u32;
    let mut letter = || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if seed >> 31 == 0 { 'N' } else { 'x' }
    };
    let text: String = (0..1 << 18).map(|_| letter()).collect::<String>() + "NEEDLE\nNEEDLE\n";
    let begin = cpu_time();
    let kept = keep(&budget(r#"{"grep":{"pattern":"N.{500}D|^NEEDLE"}}"#).plan().unwrap(), &[&text]);
    let took = cpu_time() - begin;
    assert!(took < Duration::from_secs(20), "{took:?}");
    assert_eq!(kept.text, "NEEDLE\n");
    assert_eq!((kept.report.lines_kept, kept.report.lines_unsearched), (1, Some(1)));
    let hint = hint(&kept.report, &keep(&Plan::default(), &[""]).report, false).unwrap();
    assert!(hint.contains("only in the first 256 KiB of 1 long line"), "{hint}");
}

#[test]
fn half_a_line_goes_where_there_are_whole_ones() {
    let letters = "aaaaaaaaaaaaaaaaaaaaaaa\nb\nc\nd\n";
    for json in [r#"{"max_chars":8}"#, r#"{"max_chars":8,"keep":{"mode":"head_tail","n":2}}"#] {
        assert_eq!(
            shown(json, letters).0,
            "aaaa\n[… 1 line …]\nc\nd\n",
            "{json}: the beginning is all there is of it"
        );
    }
    let cut = r#"{"mode":"all","lines_total":10,"lines_kept":1,"chars_total":21,"chars_kept":2}"#;
    check(r#"{"max_chars":5}"#, &lines(1, 10), ("1\n[… 9 lines …]\n", cut));
    // Nothing but halves is left.
    let cut = r#"{"mode":"all","lines_total":2,"lines_kept":2,"chars_total":12,"chars_kept":4}"#;
    check(r#"{"max_chars":4}"#, "aaaaaa\nbbbbb", ("aa\n[… 8 characters …]\nbb", cut));
    let kept = keep(&Plan::default(), &[&"x".repeat(300_000), "\nb\nc\n"]);
    assert!(kept.text.starts_with("xxx") && kept.text.ends_with(" …]\nb\nc\n"));
}

#[test]
fn two_streams_share_the_default_at_the_same_ends() {
    for (json, text, want) in [
        (r#"{}"#, lines(1, 20), "1\n2\n3\n[… 15 lines …]\n19\n20\n"),
        (r#"{"keep":{"mode":"tail","n":9}}"#, lines(1, 20), "[… 16 lines …]\n17\n18\n19\n20\n"),
        (r#"{"keep":{"mode":"head","n":9}}"#, lines(1, 20), "1\n2\n3\n4\n5\n6\n[… 14 lines …]\n"),
        (r#"{"keep":{"mode":"head_tail","n":9}}"#, lines(1, 20), "1\n2\n3\n[… 15 lines …]\n19\n20\n"),
    ] {
        let mut kept = keep(&budget(json).plan().unwrap(), &[&text]);
        kept.narrow(12);
        assert_eq!(kept.text, want, "{json}");
        let shown = kept.text.lines().filter(|line| !line.starts_with('[')).count() as u64;
        assert_eq!(
            (kept.report.lines_kept, kept.report.lines_total, kept.truncated),
            (shown, 20, true),
            "{json}"
        );
    }
    let mut short = keep(&Plan::default(), &["a\nb\n"]);
    short.narrow(12);
    assert_eq!((short.text.as_str(), short.truncated), ("a\nb\n", false));
}

#[test]
fn the_hint_says_what_to_do() {
    let of = |text: &str| keep(&Plan::default(), &[text]).report;
    assert_eq!(hint(&of("a\n"), &of(""), false), None);
    let long = of(&"0123456789\n".repeat(20_000));
    expect!["stdout: 2726 of 20000 lines shown; read the rest with session_output, or narrow the next command with budget.grep or budget.keep"]
        .assert_eq(&hint(&long, &of(""), false).unwrap());
    expect!["stdout: 2726 of 20000 lines shown; read the rest with session_output"]
        .assert_eq(&hint(&long, &of(""), true).unwrap());
}

#[test]
fn bad_budgets_are_refused_with_a_reason() {
    let plan_error = |json: &str| budget(json).plan().unwrap_err().to_string();
    let pattern = plan_error(r#"{"grep":{"pattern":"a("}}"#);
    assert!(pattern.contains("unclosed group") && !pattern.contains('\n'), "{pattern}");
    assert!(plan_error(r#"{"grep":{"pattern":""}}"#).contains("empty"));
    assert!(plan_error(r#"{"grep":{"pattern":"(a{1000}){1000}"}}"#).contains("not a regular expression"));
    assert!(plan_error(r#"{"grep":{"pattern":"a","context":5000}}"#).contains("5000"));
    assert!(plan_error(r#"{"max_chars":0}"#).contains("from 1 to 1000000"));
    assert!(plan_error(r#"{"max_chars":9999999}"#).contains("session_output"));
    for json in [
        r#"{"keep":{"mode":"middle","n":1}}"#,
        r#"{"keep":{"mode":"tail"}}"#,
        r#"{"keep":{"mode":"tail","n":-1}}"#,
        r#"{"max_chars":"many"}"#,
        r#"{"maxchars":5}"#,
    ] {
        assert!(serde_json::from_str::<Budget>(json).is_err(), "{json}");
    }
    assert!(budget("{}").is_empty());
}

#[test]
fn a_report_can_be_read_back() {
    let report = keep(&budget(r#"{"max_chars":5}"#).plan().unwrap(), &["abcdefghij"]).report;
    let json = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<StreamReport>(&json).unwrap(), report);
}

fn budgets() -> impl Strategy<Value = Budget> {
    let mode = prop::sample::select(vec!["tail", "head", "head_tail"]);
    let keep = prop::option::of((mode, 0u64..6));
    let grep = prop::option::of((prop::sample::select(vec!["a", "b$", "^c", "."]), 0u64..3));
    (keep, grep, prop::option::of(1u64..40)).prop_map(|(keep, grep, max)| {
        let mut json = serde_json::Map::new();
        if let Some((mode, n)) = keep {
            json.insert("keep".into(), serde_json::json!({"mode": mode, "n": n}));
        }
        if let Some((pattern, context)) = grep {
            json.insert("grep".into(), serde_json::json!({"pattern": pattern, "context": context}));
        }
        if let Some(max) = max {
            json.insert("max_chars".into(), max.into());
        }
        serde_json::from_value(json.into()).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn the_pieces_do_not_matter_and_the_bounds_hold(
        budget in budgets(),
        pieces in prop::collection::vec("[abcé\n]{0,12}", 0..12),
    ) {
        let plan = budget.plan().unwrap();
        let whole = pieces.concat();
        let parts: Vec<&str> = pieces.iter().map(String::as_str).collect();
        let kept = keep(&plan, &parts);
        prop_assert_eq!(&kept, &keep(&plan, &[&whole]));
        let total = whole.lines().count() as u64;
        prop_assert_eq!(kept.report.lines_total, total);
        prop_assert!(kept.report.lines_kept <= total);
        // What nobody printed: marks of cuts, and separators of groups.
        let is_mark = |line: &str| line.starts_with("[… ") || line == "--";
        let printed: Vec<&str> = kept.text.lines().filter(|line| !is_mark(line)).collect();
        let printed_chars: usize = printed.iter().map(|line| line.chars().count() + 1).sum();
        let max = budget.max_chars.unwrap_or(30_000);
        prop_assert!(printed_chars as u64 <= max + 2, "{:?}", kept);
        prop_assert!(kept.truncated || kept.text == whole, "{:?}", kept);
        let pieces: Vec<&&str> = printed.iter().filter(|line| !whole.lines().any(|one| one == **line)).collect();
        if !pieces.is_empty() {
            prop_assert!(kept.report.chars_kept.is_some(), "a piece is told to be one: {:?}", kept);
            prop_assert!(pieces.iter().all(|piece| whole.lines().any(|line| line.contains(**piece))), "{:?}", kept);
        }
        if let Some(keep) = &budget.keep {
            prop_assert!(kept.report.lines_kept <= keep.n * 2);
        }
    }

    #[test]
    fn without_pressure_nothing_changes(text in "[abc é\n]{0,300}") {
        let kept = keep(&Plan::default(), &[&text]);
        prop_assert_eq!(&kept.text, &text);
        prop_assert!(!kept.truncated);
    }

    #[test]
    fn the_tail_is_what_tail_prints(text in "[ab\n]{0,200}", n in 0usize..12) {
        let plan = budget(&format!(r#"{{"keep":{{"mode":"tail","n":{n}}}}}"#)).plan().unwrap();
        let all: Vec<&str> = text.split_inclusive('\n').collect();
        let want = all.iter().skip(all.len().saturating_sub(n)).copied().collect::<String>();
        let mark = match all.len().saturating_sub(n) {
            0 => String::new(),
            1 => "[… 1 line …]\n".to_owned(),
            lines => format!("[… {lines} lines …]\n"),
        };
        prop_assert_eq!(keep(&plan, &[&text]).text, mark + &want);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn a_long_line_matches_as_a_short_one_does(
        pattern in prop::sample::select(vec![
            "NEEDLE", "^N", "E$", r"\bNE", r"E\b", "NE+D.*x", "(?i)needle", r"^\w+$", r"é\b", r"\Bé", "^$", "x{3}", r"\d",
            "N.*D", "^.*é.*$", r"\b{start}N", "[^x]+x?$", ".{0,30}LE", r"^N|\bE{2}\B|(?-u:\b)x$|é{3}$|\b{end}7", "N.{20}D", "x*",
        ]),
        parts in prop::collection::vec(prop::sample::select(vec!["N", "E", "D", "LE", "NEEDLE", "é", " ", "x", "7"]), 0..12),
        fill in prop::sample::select(vec!["x", "é", " ", "-", "N"]),
        at in 0usize..13,
        piece in 1usize..40_000,
    ) {
        let at = at.min(parts.len());
        let line = parts[..at].concat() + &fill.repeat(66_000) + &parts[at..].concat();
        let plan = budget(&serde_json::json!({"grep": {"pattern": pattern}}).to_string()).plan().unwrap();
        let (mut pieces, mut rest) = (Vec::new(), line.as_str());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.ceil_char_boundary(piece));
            pieces.push(now);
            rest = later;
        }
        let matches = regex::Regex::new(pattern).unwrap().is_match(&line);
        prop_assert_eq!(!keep(&plan, &pieces).text.is_empty(), matches, "{} {}", pattern, parts.concat());
    }
}
