//! The place of a text that is most like one that is not in it, for who wrote it down wrong.

use std::collections::HashSet;

/// Lines that are shown of the place.
const SHOWN_MAX: usize = 20;
/// Comparisons of lines: with more, only the beginning of the wanted text is looked for.
const COMPARED_MAX: usize = 2_000_000;
/// Longest line that is shown.
const LINE_CHARS: usize = 200;

/// Says that a text is not there, and shows what is most like it.
pub(super) fn not_found(text: &str, old: &str) -> String {
    let mut problem = "`old` is not in the file".to_owned();
    if old.contains("[REDACTED:") {
        problem += "; `[REDACTED:…]` stands for a secret that you were not shown, so choose text without it";
    }
    let Some(place) = nearest(text, old) else { return problem };
    if place.is_same_but_space {
        problem += " with this white space";
    }
    problem += &format!("; the nearest is at line {}:\n{}", place.line, place.shown);
    problem
}

struct Place {
    /// From 1.
    line: usize,
    shown: String,
    is_same_but_space: bool,
}

fn nearest(text: &str, old: &str) -> Option<Place> {
    let lines: Vec<&str> = text.lines().collect();
    let mut wanted: Vec<&str> = old.lines().collect();
    let all = wanted.len();
    if lines.len().saturating_mul(wanted.len()) > COMPARED_MAX {
        wanted.truncate((COMPARED_MAX / lines.len().max(1)).max(1));
    }
    let words: Vec<HashSet<&str>> = lines.iter().map(|line| words_of(line)).collect();
    let wanted: Vec<(&str, HashSet<&str>)> =
        wanted.into_iter().map(|line| (line.trim(), words_of(line))).collect();
    let one_line = match wanted.as_slice() {
        [(text, _)] => pairs_of(text),
        _ => HashSet::new(),
    };
    let score = |from: usize| -> f64 {
        let line = lines.get(from).map_or("", |line| line.trim());
        let by_letters = if one_line.is_empty() { 0.0 } else { alike_by_letters(line, &one_line) };
        let here = lines.iter().zip(&words).skip(from);
        here.zip(&wanted)
            .map(|((line, words), (text, of_text))| alike(line.trim(), words, text, of_text))
            .sum::<f64>()
            .max(by_letters)
    };
    let best = (0..lines.len()).map(|from| (from, score(from)));
    let (from, score) = best.reduce(|best, next| if next.1 > best.1 { next } else { best })?;
    // A third of it at least, or it is another text.
    let most = wanted.iter().filter(|(text, _)| !text.is_empty()).count() as f64;
    if score * 3.0 < most || score <= 0.0 {
        return None;
    }
    let shown = lines.iter().enumerate().skip(from).take(all.clamp(1, SHOWN_MAX));
    let shown: Vec<String> = shown
        .map(|(at, line)| format!("{}: {}", at + 1, line.chars().take(LINE_CHARS).collect::<String>()))
        .collect();
    let is_same_but_space = score >= most && most > 0.0;
    Some(Place { line: from + 1, shown: shown.join("\n"), is_same_but_space })
}

/// How much two lines have in common, from 0 to 1. Empty ones say nothing.
fn alike(line: &str, words: &HashSet<&str>, wanted: &str, of_wanted: &HashSet<&str>) -> f64 {
    if wanted.is_empty() {
        return 0.0;
    }
    if line == wanted {
        return 1.0;
    }
    let (common, all) = (words.intersection(of_wanted).count(), words.union(of_wanted).count());
    if all == 0 { 0.0 } else { common as f64 / all as f64 * 0.9 }
}

/// The same for a single line, by its pairs of letters: its words are few, and one of them is spelt wrong.
fn alike_by_letters(line: &str, wanted: &HashSet<(char, char)>) -> f64 {
    let pairs = pairs_of(line);
    let common = pairs.intersection(wanted).count();
    let share = 2.0 * common as f64 / (pairs.len() + wanted.len()).max(1) as f64;
    // Half of them at least, or it is another line.
    if share < 0.5 { 0.0 } else { share * 0.9 }
}

fn pairs_of(line: &str) -> HashSet<(char, char)> {
    line.chars().zip(line.chars().skip(1)).collect()
}

fn words_of(line: &str) -> HashSet<&str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fn one() {\n    first();\n}\n\nfn two() {\n    second(1, 2);\n}\n";

    #[test]
    fn the_nearest_place_is_shown_with_its_lines() {
        let problem = not_found(TEXT, "fn two() {\n    second(1, 3);\n}");
        assert!(
            problem.ends_with("the nearest is at line 5:\n5: fn two() {\n6:     second(1, 2);\n7: }"),
            "{problem}"
        );
    }

    #[test]
    fn a_line_with_a_wrong_letter_is_found() {
        for (old, place) in [("retrun 2", "2:     return 2"), ("    return 22", "2:     return 2")] {
            let problem = not_found("def f():\n    return 2\nx = 1\n", old);
            assert!(problem.ends_with(&format!("the nearest is at line 2:\n{place}")), "{problem}");
        }
    }

    #[test]
    fn other_white_space_is_named() {
        let problem = not_found(TEXT, "fn one() {\n\tfirst();\n}");
        assert!(
            problem.contains("not in the file with this white space; the nearest is at line 1"),
            "{problem}"
        );
    }

    #[test]
    fn another_text_has_no_nearest_place() {
        assert_eq!(not_found(TEXT, "struct Nothing;"), "`old` is not in the file");
        assert_eq!(not_found("", "x"), "`old` is not in the file");
        assert!(not_found(TEXT, "key=[REDACTED:github]").contains("were not shown"));
    }
}
