//! Texts as words of a shell, and back. Not what the words are for.

use std::path::Path;

/// A word for any POSIX shell.
pub(crate) fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The same for bytes, into a script.
pub(crate) fn quote_bytes(script: &mut Vec<u8>, bytes: &[u8]) {
    script.push(b'\'');
    for byte in bytes {
        match byte {
            b'\'' => script.extend(b"'\\''"),
            byte => script.push(*byte),
        }
    }
    script.push(b'\'');
}

/// A word for bash, in ASCII whatever the text holds.
pub(crate) fn ansi_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + text.len() / 16 + 3);
    quoted.push_str("$'");
    for byte in text.bytes() {
        match byte {
            b'\\' => quoted.push_str(r"\\"),
            b'\'' => quoted.push_str(r"\'"),
            b'\n' | b'\t' | b' '..=b'~' => quoted.push(char::from(byte)),
            // Three octal digits always, so that a digit after it is not taken for a part of it.
            _ => {
                quoted.push('\\');
                for shift in [6, 3, 0] {
                    quoted.push(char::from(b'0' + ((byte >> shift) & 7)));
                }
            }
        }
    }
    quoted.push('\'');
    quoted
}

pub(crate) fn path_word(path: &Path, quote: fn(&str) -> String) -> String {
    quote(&path.to_string_lossy())
}

/// A word of single-quoted pieces and escaped quotes at the beginning of a text, and what follows it.
pub(crate) fn quoted_word(text: &str) -> Option<(&str, &str)> {
    text.split_at_checked(quoted_len(text.as_bytes())?)
}

/// The length of such a word.
pub(crate) fn quoted_len(text: &[u8]) -> Option<usize> {
    let mut end = 0;
    loop {
        let rest = text.get(end..)?;
        if let Some(inner) = rest.strip_prefix(b"'") {
            end += memchr::memchr(b'\'', inner)? + 2;
        } else if rest.starts_with(b"\\'") {
            end += 2;
        } else {
            return (end > 0).then_some(end);
        }
    }
}
