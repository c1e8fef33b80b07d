//! Finds what a word names by its id: the whole id, or a unique beginning or end of six characters or more. Sessions
//! are found in the same way by `ctx_views::read`, in the tree.

use ctx_session::Code;
use ctx_views::read::ID_PART_MIN;

use crate::failure::Failure;

/// Whether a word is this id, its beginning or its end.
pub fn is_part(id: &str, word: &str) -> bool {
    let word = word.to_ascii_uppercase();
    word.len() >= ID_PART_MIN && (id.starts_with(&word) || id.ends_with(&word))
}

/// The one item that a word names. `kind` is what the items are (`checkpoint`), for the message; `hint` says how to list them.
pub fn one<T>(
    items: impl IntoIterator<Item = T>,
    id: impl Fn(&T) -> String,
    word: &str,
    (kind, hint): (&str, &str),
) -> Result<T, Failure> {
    let mut found: Vec<T> = items.into_iter().filter(|item| is_part(&id(item), word)).collect();
    // The same item can be in a list twice, for example a message in several parts.
    found.dedup_by_key(|item| id(item));
    let several = found.len() > 1;
    match found.pop() {
        Some(_) if several => {
            Err(Failure::new(Code::Einval, format!("several {kind}s begin or end with {word}"))
                .hint("write more of the id"))
        }
        Some(one) => Ok(one),
        None => Err(Failure::new(Code::Enoent, format!("no {kind} {word}")).hint(hint)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unique_beginning_or_end_of_six_names_one() {
        let ids = ["01AAAAAAAA111111", "01AAAAAAAB222222", "01BBBBBBBB222222"];
        let found =
            |word: &str| one(ids, |id| (*id).to_owned(), word, ("thing", "look")).map_err(|f| f.exit());
        assert_eq!(found("01bbbb"), Ok(ids[2]));
        assert_eq!(found("A111111"), Ok(ids[0]));
        assert_eq!(found("11111"), Err(1), "too short");
        assert_eq!(found("01B"), Err(1), "too short");
        assert_eq!(found("222222"), Err(2));
        assert_eq!(found("01AAAA"), Err(2));
        assert_eq!(found(""), Err(1));
    }
}
