//! Records whose fields do not fit their type, and what they were: a key, a type or a word with one wrong byte. Pure.
//!
//! What the decoder misses or does not know, it names; the text has a place for it that differs in one byte, or it has
//! not. Keys and words are looked for as they stand between quotes that no string can have inside it.

use ctx_journal::repair::Unfit;
use ctx_journal::{Entry, LOST, LogPath};
use ctx_session::Body;
use ctx_session::project::ProjectBody;
use ctx_session::record::{Decoded, Kind};
use ctx_views::db::project_of_log;
use ctx_views::identity::{Place, is_one_off};

/// Wrong places of one record that are put right.
const MENDED_MAX: usize = 3;

/// Whose records a log has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Session,
    Project,
}

/// How a record fits its type.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fit {
    Fits,
    /// A type that this ctx does not know.
    Unknown,
    Malformed(String),
}

impl Fit {
    fn of<B>(decoded: Decoded<B>) -> Fit {
        match decoded {
            Decoded::Known(_) => Fit::Fits,
            Decoded::Unknown => Fit::Unknown,
            Decoded::Malformed(why) => Fit::Malformed(why),
        }
    }
}

impl Whose {
    /// Nothing for logs whose records are not known here.
    pub fn of(log: &LogPath) -> Option<Whose> {
        match (Place::of(log), project_of_log(log)) {
            (Some(_), _) => Some(Whose::Session),
            (None, Some(_)) => Some(Whose::Project),
            (None, None) => None,
        }
    }

    /// Whether this ctx does not know a type, and nothing tells that it is a damaged one.
    pub fn is_unknown(self, entry: &Entry) -> bool {
        entry.kind != LOST
            && self.fit(&entry.kind, &entry.text) == Fit::Unknown
            && self.unfit(entry).is_none()
    }

    /// What does not fit in a record.
    pub fn unfit(self, entry: &Entry) -> Option<Unfit> {
        match self.fit(&entry.kind, &entry.text) {
            Fit::Fits => None,
            Fit::Unknown => {
                let was = self.known_type(entry)?;
                Some(Unfit {
                    why: format!("`{}` is a record type with a wrong byte", entry.kind),
                    was: Some(was),
                })
            }
            Fit::Malformed(why) => {
                let was = self.mended(&entry.kind, &entry.text, &why, MENDED_MAX);
                Some(Unfit { why: format!("its fields do not match its type: {}", plain(&why)), was })
            }
        }
    }

    /// Whether a record is as it should be but for a word that this ctx does not know: a newer one may have added it to a
    /// closed set, without a type or a version of its own.
    pub fn has_unknown_word(self, entry: &Entry) -> bool {
        let Fit::Malformed(why) = self.fit(&entry.kind, &entry.text) else { return false };
        let word = why.strip_prefix("unknown variant `").and_then(|rest| rest.split('`').next());
        let is_one = |word: &str| word.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_'));
        word.is_some_and(|word| !word.is_empty() && is_one(word))
    }

    fn fit(self, kind: &str, text: &str) -> Fit {
        match self {
            Whose::Session => Fit::of(Body::decode(kind, text)),
            Whose::Project => Fit::of(ProjectBody::decode(kind, text)),
        }
    }

    /// The record with the one type of ours that it fits and that differs in one byte from what it says.
    fn known_type(self, entry: &Entry) -> Option<String> {
        let kinds = match self {
            Whose::Session => Body::KINDS,
            Whose::Project => ProjectBody::KINDS,
        };
        let with = |kind: &Kind| {
            let kind = kind.name;
            let (says, was) = (format!("\"type\":\"{}\"", entry.kind), format!("\"type\":\"{kind}\""));
            let text = entry.text.replacen(&says, &was, 1);
            (self.fit(kind, &text) == Fit::Fits).then_some(text)
        };
        only(kinds.iter().filter(|kind| is_one_off(&entry.kind, kind.name)).filter_map(with))
    }

    /// The record as it was, if there is one way to put right what is wrong.
    fn mended(self, kind: &str, text: &str, why: &str, left: usize) -> Option<String> {
        let left = left.checked_sub(1)?;
        only(respelt(text, why).into_iter().filter_map(|text| match self.fit(kind, &text) {
            Fit::Fits => Some(text),
            Fit::Unknown => None,
            Fit::Malformed(why) => self.mended(kind, &text, &why, left),
        }))
    }
}

/// The one there is; nothing where there are several.
fn only(mut found: impl Iterator<Item = String>) -> Option<String> {
    let one = found.next()?;
    found.all(|other| other == one).then_some(one)
}

/// Every text with one wrong byte put right of what the decoder names.
fn respelt(text: &str, why: &str) -> Vec<String> {
    let named: Vec<&str> = why.split('`').skip(1).step_by(2).collect();
    match named.as_slice() {
        [missing] if why.starts_with("missing field") => replaced(text, |before, word, after| {
            let is_key = matches!(before, Some('{' | ',')) && after == Some(':');
            (is_key && is_one_off(word, missing)).then_some(*missing)
        }),
        [found, known @ ..] if why.starts_with("unknown variant") => {
            let meant = known.iter().filter(|known| is_one_off(found, known));
            meant
                .flat_map(|meant| {
                    replaced(text, |before, word, _| {
                        (matches!(before, Some(':' | ',' | '[')) && word == *found).then_some(*meant)
                    })
                })
                .collect()
        }
        _ => Vec::new(),
    }
}

/// The texts in which one quoted word each is another. The word's neighbours tell what it is: inside a string every
/// quote has a backslash before it.
fn replaced<'a>(
    text: &str,
    meant: impl Fn(Option<char>, &str, Option<char>) -> Option<&'a str>,
) -> Vec<String> {
    let quotes: Vec<usize> = text.match_indices('"').map(|(at, _)| at).collect();
    let with = |pair: &[usize]| {
        let [from, to] = pair else { return None };
        let (head, rest) = (text.get(..=*from)?, text.get(*to..)?);
        let before = head.chars().rev().nth(1);
        let word = meant(before, text.get(from + 1..*to)?, rest.chars().nth(1))?;
        Some(format!("{head}{word}{rest}"))
    };
    quotes.windows(2).filter_map(with).collect()
}

/// The decoder's words without the place inside a line, which helps nobody.
fn plain(why: &str) -> &str {
    why.split(" at line ").next().unwrap_or(why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(kind: &str, text: String) -> Entry {
        let time = ctx_session::Timestamp::from_millis(0);
        Entry { seq: 3, time, kind: kind.to_owned(), more: false, line: 4, offset: 0, text }
    }

    const ID: &str = "01ARZ3NDEKTSV4RRFFQ69G5FAV";

    fn user(key: &str, text: &str) -> Entry {
        let text = format!(
            r#"{{"schema_version":1,"seq":3,"type":"user","turn_id":"{ID}","message_id":"{ID}","{key}":"{text}"}}"#
        );
        entry("user", text)
    }

    #[test]
    fn a_key_with_a_wrong_byte_is_put_right_and_nothing_else() {
        let sound = user("text", "hi");
        assert_eq!(Whose::Session.unfit(&sound), None);
        let unfit = Whose::Session.unfit(&user("texu", "hi")).unwrap();
        assert_eq!(unfit.was, Some(sound.text));
        assert!(unfit.why.contains("missing field `text`") && !unfit.why.contains("column"), "{}", unfit.why);
        // What someone said is not taken for a key.
        let said = r#"{\"texx\":1,\"texu\":2}"#;
        let unfit = Whose::Session.unfit(&user("texu", said)).unwrap();
        assert_eq!(unfit.was, Some(user("text", said).text));
        assert_eq!(Whose::Session.unfit(&user("taxu", "hi")).unwrap().was, None, "two wrong bytes are lost");
    }

    #[test]
    fn a_word_and_a_type_with_a_wrong_byte_are_put_right() {
        let change = |kind: &str, to: &str| {
            let text = format!(
                r#"{{"schema_version":1,"seq":3,"type":"{kind}","from":"idle","to":"{to}","trigger":"session_ended"}}"#
            );
            entry(kind, text)
        };
        let sound = change("state_changed", "ended");
        assert_eq!(Whose::Session.unfit(&sound), None);
        for damaged in [change("state_changed", "endfd"), change("statf_changed", "ended")] {
            assert_eq!(Whose::Session.unfit(&damaged).unwrap().was, Some(sound.text.clone()));
        }
        for (word, is_one) in [("hibernating", true), ("END!!", false), ("endfd", true)] {
            assert_eq!(Whose::Session.has_unknown_word(&change("state_changed", word)), is_one, "{word}");
        }
        assert_eq!(Whose::Session.unfit(&change("state_changed", "hibernating")).unwrap().was, None);
        let newer = change("from_the_future", "ended");
        assert_eq!((Whose::Session.unfit(&newer), Whose::Session.is_unknown(&newer)), (None, true));
        assert!(!Whose::Session.is_unknown(&sound));
    }
}
