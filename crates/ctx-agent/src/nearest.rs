//! The known word that someone who mistyped probably meant.

/// The nearest of `known`, if one is near enough to be worth a question.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let len = word.chars().count();
    let allowed = if len <= 3 { 1 } else { (len / 3).max(2) };
    let near = known.into_iter().map(|candidate| (distance(word, candidate), candidate));
    near.filter(|(distance, _)| *distance <= allowed && *distance < len).min().map(|(_, candidate)| candidate)
}

/// How many characters have to be added, dropped or changed (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (to, above) in b.iter().zip(row.iter().skip(1)) {
            let changed = diagonal + usize::from(from != *to);
            diagonal = *above;
            left = changed.min(left + 1).min(*above + 1);
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_are_counted_in_characters() {
        for (a, b, wanted) in
            [("", "abc", 3), ("kitten", "sitting", 3), ("same", "same", 0), ("ä", "a", 1), ("abc", "", 3)]
        {
            assert_eq!(distance(a, b), wanted, "{a} {b}");
        }
    }

    #[test]
    fn a_slip_is_recognised_and_a_stranger_is_not() {
        let known = ["running_per_project", "running_per_operator", "level"];
        assert_eq!(nearest("runing_per_project", known), Some("running_per_project"));
        assert_eq!(nearest("levle", known), Some("level"));
        assert_eq!(nearest("le", known), None);
        assert_eq!(nearest("levell", known), Some("level"));
        assert_eq!(nearest("colour", known), None);
    }
}
