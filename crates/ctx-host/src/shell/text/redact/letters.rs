//! Whether letters are random rather than words: how many of them seldom follow each other.
//!
//! A password of letters alone has no digit that would tell it from a name in code, and its capitals look like those of
//! `parseToken`. What tells it is its pairs of letters. In the names of some fifty thousand files of source code, 270 of the
//! 676 pairs are nearly all there are, also in abbreviations; of random letters two pairs in five are others. Two names
//! that are joined (`…nB…`) make any pair, so those are not counted.

/// Shorter letters are not told from abbreviations.
const LETTERS_BYTES_MIN: usize = 10;
/// Capitals alone are a constant of code unless they are this many.
const CAPITALS_BYTES_MIN: usize = 20;
/// So many odd pairs are in a name by chance.
const ODD_PAIRS_MIN: usize = 3;

/// What follows each letter in words and in names of code.
const FOLLOWERS: [&[u8]; 26] = [
    b"abcdfgiklmnprstuvxy",
    b"abceijlorsuy",
    b"acdehiklorstuy",
    b"abdeilorsuy",
    b"abcdefgilmnopqrstvwxy",
    b"adefilorstu",
    b"aehilnorsu",
    b"aeiort",
    b"abcdefglmnoprstvxz",
    b"aeosu",
    b"aeinos",
    b"adeilostuy",
    b"abeimopsu",
    b"acdefgiklnostuv",
    b"abcdfgiklmnoprstuvwx",
    b"aehiloprstuy",
    b"lu",
    b"acdegiklmnoprstuvy",
    b"acehiklmopqstuy",
    b"acehilmoprstuy",
    b"abcdefilmnprst",
    b"aei",
    b"aeinor",
    b"aceiptxy",
    b"aenopst",
    b"aeio",
];

/// The same, a bit for each letter.
#[expect(clippy::indexing_slicing, reason = "an index beyond the end of a constant does not compile")]
static PAIRS: [u32; 26] = {
    let mut pairs = [0; 26];
    let mut first = 0;
    while first < FOLLOWERS.len() {
        let mut at = 0;
        while at < FOLLOWERS[first].len() {
            pairs[first] |= 1 << (FOLLOWERS[first][at] - b'a');
            at += 1;
        }
        first += 1;
    }
    pairs
};

/// Whether a value, of letters and perhaps a few other bytes, is random. It has capitals and small letters in no order of
/// words and some odd pairs, or so many odd pairs that its capitals do not matter.
pub(super) fn are_random(value: &[u8]) -> bool {
    if value.len() < LETTERS_BYTES_MIN {
        return false;
    }
    let (mut letters, mut odd, mut changes) = (0, 0, 0);
    for two in value.array_windows::<2>().filter(|two| two.iter().all(u8::is_ascii_alphabetic)) {
        let [first, second] = *two;
        let is_joint = first.is_ascii_lowercase() && second.is_ascii_uppercase();
        letters += 1;
        changes += usize::from(first.is_ascii_uppercase() != second.is_ascii_uppercase());
        odd += usize::from(!is_joint && !is_common(first, second));
    }
    let is_constant = !value.iter().any(u8::is_ascii_lowercase) && value.len() < CAPITALS_BYTES_MIN;
    let is_mixed = changes * 4 > letters && odd * 5 >= letters;
    letters >= LETTERS_BYTES_MIN - 1
        && odd >= ODD_PAIRS_MIN
        && !is_constant
        && (is_mixed || odd * 3 > letters)
}

fn is_common(first: u8, second: u8) -> bool {
    let place = |byte: u8| usize::from(byte.to_ascii_lowercase().wrapping_sub(b'a'));
    PAIRS.get(place(first)).is_some_and(|pairs| pairs >> place(second) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_and_words_are_not_random() {
        for name in [
            "parseToken",
            "CancellationToken",
            "SecretString",
            "getUserByIdOrThrow",
            "XMLHttpRequest",
            "createHttpsProxyAgent",
            "toJsonSqlValue",
            "PasswordAuthenticator",
            "DbPasswordProvider",
            "unauthorized",
            "authentication",
            "jsonwebtoken",
            "passwordEncoder",
            "JwtTokenProvider",
            "SharedPreferences",
            "kubernetes",
            "my-secret-password",
            "spring.datasource.password",
            "INVALIDTOKEN",
        ] {
            assert!(!are_random(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn random_letters_are_told() {
        for letters in ["NyBEeqZQGoCu", "NyBEeqZQGoCuXwPz", "qzkvtwhxjrbd", "hWqLtZvXbNkR", "vbQxjWmKzTfgHpd"]
        {
            assert!(are_random(letters.as_bytes()), "{letters}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4, ..ProptestConfig::default() })]

        /// Nine of ten at sixteen letters; by far the most of them, where there are more.
        #[test]
        fn most_random_letters_are_told(all in prop::collection::vec("[A-Za-z]{16}", 1000)) {
            let told = all.iter().filter(|letters| are_random(letters.as_bytes())).count();
            prop_assert!(told > 900, "{told} of 1000");
        }
    }
}
