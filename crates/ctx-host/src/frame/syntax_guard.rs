//! Whether bash can be trusted to survive reading a command.
//!
//! Where a substitution cannot be read, bash ends itself (5.2), and where it has no end, bash destroys its memory. So a
//! text that may be such a one is tried in a subshell first, which takes time. This module
//! recognizes the many texts that surely are not. It is no parser: a text that it does not know is doubtful.

#![expect(clippy::indexing_slicing, reason = "positions come from searches in the same bytes")]

/// Words that a command cannot consist of alone, or that want others behind them.
const RESERVED: [&str; 20] = [
    "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until", "do", "done",
    "in", "function", "time", "coproc", "{", "}", "!",
];

/// Whether a command may hold a substitution that cannot be read.
pub(crate) fn is_doubtful(command: &str) -> bool {
    let bytes = command.as_bytes();
    let starts = memchr::memchr_iter(b'(', bytes).filter(|at| {
        at.checked_sub(1).and_then(|before| bytes.get(before)).is_some_and(|byte| b"$<>".contains(byte))
    });
    is_torn(command) || starts.into_iter().any(|at| !is_plain(&bytes[at + 1..]))
}

/// Whether one may be without its end.
pub(crate) fn is_torn(command: &str) -> bool {
    let count = |wanted| command.bytes().filter(|byte| *byte == wanted).count();
    count(b'(') > count(b')')
}

/// What the last thing in a substitution was.
#[derive(PartialEq, Eq)]
enum Last {
    /// It wants a word behind it.
    Operator,
    /// Nothing yet, which may be all.
    Begin,
    CommandWord,
}

/// Whether a substitution that begins here is a list of simple commands, or a sum, and ends.
fn is_plain(text: &[u8]) -> bool {
    if let Some(sum) = text.strip_prefix(b"(") {
        let is_of_sum = |byte: &u8| byte.is_ascii_alphanumeric() || b" _$+-*/%<>=!&|^~?:,".contains(byte);
        let end = sum.iter().position(|byte| !is_of_sum(byte));
        return end.is_some_and(|end| sum[end..].starts_with(b"))"));
    }
    let (mut rest, mut last) = (text, Last::Begin);
    loop {
        let Some((&byte, behind)) = rest.split_first() else { return false };
        rest = behind;
        match byte {
            b')' => return last != Last::Operator,
            b' ' => {}
            b'|' | b'&' | b';' => {
                let is_double = byte != b';' && behind.first() == Some(&byte);
                if last != Last::CommandWord || (byte == b'&' && !is_double) {
                    return false;
                }
                rest = if is_double { &behind[1..] } else { behind };
                last = Last::Operator;
            }
            b'>' | b'<' if last == Last::Operator => return false,
            b'>' | b'<' => {
                // A name behind it is a word as any other.
                rest = behind.strip_prefix(b"&").unwrap_or(behind);
                last = Last::Operator;
            }
            _ => {
                let Some(len) = word(std::slice::from_ref(&byte), behind) else { return false };
                rest = &behind[len..];
                // A number before a redirection belongs to that, and is no name for the one before.
                if last == Last::Operator && matches!(rest.first(), Some(b'>' | b'<')) {
                    return false;
                }
                last = Last::CommandWord;
            }
        }
    }
}

/// How far a word goes on behind its first byte; none where it is not a plain one.
fn word(first: &[u8], behind: &[u8]) -> Option<usize> {
    let at = |n: usize| if n == 0 { first.first() } else { behind.get(n - 1) };
    let mut n = 0;
    let mut is_bare = true;
    while let Some(&byte) = at(n) {
        match byte {
            b'\'' | b'"' => {
                is_bare = false;
                let inner = behind.get(n..)?;
                let end = memchr::memchr(byte, inner)?;
                let quoted = inner.get(..end)?;
                if byte == b'"' && quoted.iter().any(|byte| b"\\`(".contains(byte)) || has_open_brace(quoted)
                {
                    return None;
                }
                n += end + 2;
            }
            b'$' => {
                is_bare = false;
                let next = at(n + 1)?;
                if !(next.is_ascii_alphanumeric() || b"_?@*#$!".contains(next)) {
                    return None;
                }
                n += 2;
            }
            _ if byte.is_ascii_alphanumeric() || b"_./,:=+@%^~-*{}!".contains(&byte) => n += 1,
            b' ' | b')' | b'|' | b'&' | b';' | b'>' | b'<' => break,
            _ => return None,
        }
    }
    let text = [first, behind.get(..n.checked_sub(1)?)?].concat();
    let is_reserved = is_bare && RESERVED.iter().any(|word| word.as_bytes() == text);
    (!is_reserved).then_some(n - 1)
}

/// A `${` may hold anything.
fn has_open_brace(quoted: &[u8]) -> bool {
    quoted.windows(2).any(|pair| pair == b"${")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_substitutions_are_told_from_those_to_be_tried() {
        for plain in [
            "ls",
            "(cd x; ls)",
            "echo $(pwd) $()",
            "x=$(git rev-parse HEAD) && echo \"$x\"",
            "diff <(sort a) <(sort b)",
            "echo \"$(wc -l < file | tr -d ' ')\"",
            "n=$(grep -c 'a b' \"$file\" 2>/dev/null || echo 0; true)",
            "kill $(cat x.pid) 2>&1",
            "echo $(date +%s) $(echo *.rs)",
            "echo $((1+2)) $((n % 3)); x=$(( $y << 2 ))",
        ] {
            assert!(!is_doubtful(plain), "{plain}");
        }
        for doubtful in [
            "echo $(ls",
            "$(",
            "cat <(",
            "echo $(if)",
            "x=$(for)",
            "echo \"$(fi)\"",
            "echo $(ls |)",
            "echo $(| ls)",
            "echo $(ls &&)",
            "echo $(a || || b)",
            "echo $(echo 'a)",
            "echo $(echo \"a)",
            "echo $(echo \"a' b\" 'c)",
            "echo $(ls >)",
            "echo $(a ;; b)",
            "echo $(echo `ls)",
            "echo $(case x in a) ;; esac)",
            "echo $((1+)",
            "echo $(echo ${x)",
            "echo $(\nls)",
            "echo $(ls \\)",
        ] {
            assert!(is_doubtful(doubtful), "{doubtful}");
        }
    }

    /// bash itself is asked: what is not doubted it can read.
    #[test]
    fn what_is_not_doubted_bash_can_read() {
        use proptest::strategy::{Strategy, ValueTree};
        use proptest::test_runner::TestRunner;
        let pieces = [
            "ls", "if", "then", "fi", "{", "}", "!", "[[", "]]", "do", "case", "in", "esac", "time", "|",
            "||", "&&", "&", ";", ";;", ">", "<", ">&", "2>&1", "'", "\"", "$x", "${", "$", "a=1", "(", "\\",
            "`", "#", " ", " ", " ", "x", "\n", "*", "~", "<<", "|&", "&>", "(1+2)", "(x", "function",
            "select", "coproc", "[", "=(",
        ];
        let inner = proptest::collection::vec(proptest::sample::select(pieces.to_vec()), 0..6);
        let (mut read, mut runner) = (0, TestRunner::default());
        for _ in 0..2_000 {
            let inner = inner.new_tree(&mut runner).unwrap().current().concat();
            let command = format!("f() {{\n: $({inner}) a\n}}");
            if is_doubtful(&command) {
                continue;
            }
            read += 1;
            let said = std::process::Command::new("bash").args(["-n", "-c", &command]).output().unwrap();
            assert!(said.status.success(), "{inner:?}: {}", String::from_utf8_lossy(&said.stderr));
        }
        assert!(read > 100, "{read}");
    }
}
