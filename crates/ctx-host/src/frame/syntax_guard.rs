//! Whether bash can be trusted to survive reading a command.
//!
//! Where a substitution cannot be read, bash ends itself (5.2), and where it has no end, bash destroys its memory. So a
//! text that may be such a one is tried in a subshell first, which takes time. This module
//! recognizes the many texts that surely are not. It is no parser: a text that it does not know is doubtful.

#![expect(clippy::indexing_slicing, reason = "positions come from searches in the same bytes")]

/// Words that a command cannot consist of alone, or that want others behind them.
const RESERVED: [&str; 17] = [
    "if", "then", "else", "elif", "fi", "case", "esac", "for", "select", "while", "until", "do", "done",
    "in", "function", "time", "coproc",
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

/// Whether a substitution that begins here is a sum, or one command of plain words, and ends.
fn is_plain(text: &[u8]) -> bool {
    if let Some(sum) = text.strip_prefix(b"(") {
        let is_of_sum = |byte: &u8| byte.is_ascii_alphanumeric() || b" _$+-*/%<>=!&|^~?:,".contains(byte);
        let end = sum.iter().position(|byte| !is_of_sum(byte));
        return end.is_some_and(|end| sum[end..].starts_with(b"))"));
    }
    let is_of_word = |byte: &u8| byte.is_ascii_alphanumeric() || b" _./,:=+@%^~-".contains(byte);
    let Some(end) = text.iter().position(|byte| !is_of_word(byte)) else { return false };
    let mut words = text[..end].split(|byte| *byte == b' ');
    text[end] == b')' && words.all(|word| RESERVED.iter().all(|reserved| reserved.as_bytes() != word))
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
            "kill $(cat x.pid) 2>&1",
            "echo $(date +%s) $(ls ./a.rs)",
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
