//! What a person types, as an expression of FTS5 and as the words that a snippet marks and a rank counts.

use crate::db::query::snippet;
use crate::db::spaced;

/// What a person typed as an expression of FTS5; nothing when no word is left. Whatever is typed is a valid
/// expression: every word is quoted.
pub(in crate::db::query) fn match_expression(text: &str) -> Option<String> {
    let mut wanted = Vec::new();
    let mut unwanted = Vec::new();
    for Word { text, is_phrase, minus } in words(text) {
        let (text, star) = match text.strip_suffix('*') {
            Some(rest) if !is_phrase => (rest, "*"),
            Some(_) | None => (text.as_str(), ""),
        };
        // What has no letter or digit is no token, and would match nothing.
        if text.chars().any(char::is_alphanumeric) {
            let quoted = quoted(text, star);
            if minus { unwanted.push(quoted) } else { wanted.push(quoted) }
        }
    }
    if wanted.is_empty() {
        return None;
    }
    let mut expression = wanted.join(" AND ");
    if !unwanted.is_empty() {
        expression = format!("({expression}) NOT ({})", unwanted.join(" OR "));
    }
    Some(expression)
}

/// A word as FTS5 reads it. One of a script without spaces is a row of its characters, wherever it stands.
fn quoted(word: &str, star: &str) -> String {
    let ends_so = word.chars().next_back().is_some_and(spaced::is_token);
    let star = if ends_so { "" } else { star };
    format!("\"{}\"{star}", spaced::spaced(word).trim().replace('"', "\"\""))
}

/// The words that are looked for, as a snippet marks them.
pub(super) fn plain_words(text: &str) -> Vec<snippet::Wanted> {
    let kept = words(text).into_iter().filter(|word| !word.minus);
    let parts =
        kept.flat_map(|word| snippet::Wanted::of(&word.text, !word.is_phrase && word.text.ends_with('*')));
    parts.collect()
}

/// A word or a quoted phrase.
struct Word {
    text: String,
    is_phrase: bool,
    /// What has it is left out.
    minus: bool,
}

/// Words and phrases, without NULs, which no expression may have.
fn words(text: &str) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    for (at, part) in text.replace('\0', " ").split('"').enumerate() {
        if at % 2 == 1 {
            // A minus that stands alone right before a phrase is the phrase's.
            let minus = words.pop_if(|word| word.minus && word.text.is_empty()).is_some();
            words.push(Word { text: part.to_owned(), is_phrase: true, minus });
            continue;
        }
        words.retain(|word| !word.text.is_empty());
        for word in part.split_whitespace() {
            let (text, minus) = word.strip_prefix('-').map_or((word, false), |rest| (rest, true));
            words.push(Word { text: text.to_owned(), is_phrase: false, minus });
        }
        if part.ends_with(char::is_whitespace) {
            words.retain(|word| !word.text.is_empty());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_type_becomes_an_expression() {
        for (typed, expression) in [
            ("disk full", Some(r#""disk" AND "full""#)),
            (r#""no space" left"#, Some(r#""no space" AND "left""#)),
            ("begin* -end", Some(r#"("begin"*) NOT ("end")"#)),
            ("a OR b", Some(r#""a" AND "OR" AND "b""#)),
            ("fs.read(", Some(r#""fs.read(""#)),
            ("\"open", Some(r#""open""#)),
            ("日本", Some(r#""日  本""#)),
            ("東京tow* -語*", Some(r#"("東  京 tow"*) NOT ("語")"#)),
            (r#"fox -"quick brown""#, Some(r#"("fox") NOT ("quick brown")"#)),
            (r#"-"quick brown" fox"#, Some(r#"("fox") NOT ("quick brown")"#)),
            (r#"fox - "quick brown""#, Some(r#""fox" AND "quick brown""#)),
            (r#"well-"known fox""#, Some(r#""well-" AND "known fox""#)),
            (r#"-"only a phrase""#, None),
            ("-only", None),
            ("** - \" \"", None),
            ("", None),
        ] {
            assert_eq!(match_expression(typed).as_deref(), expression, "{typed}");
        }
    }
}
