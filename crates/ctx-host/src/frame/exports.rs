//! Reads what `export -p` prints, strictly: a restart gives the new shell these variables.
//!
//! Nothing here is ever handed to a shell as code. What background jobs printed into the middle of the list was taken
//! out of it before (`report`); a list that still does not parse leaves the one before it in force.

use super::quote::quote_bytes;

/// One exported variable. A variable that is exported but unset is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Export {
    pub name: String,
    pub value: Vec<u8>,
}

/// The variable that the frame holds between commands; `set -a` exports it.
const FRAME_VARIABLE: &str = "__ctx";
/// The variable that names the file which bash reads when it starts.
pub const START_FILE: &str = "BASH_ENV";

/// A larger variable keeps its program from starting: the kernel takes 128 KiB, and its name is a part of that.
const VALUE_BYTES_MAX: usize = 64 << 10;
/// The same for all of them together. The kernel takes 2 MiB where nobody has set a smaller stack.
const ALL_BYTES_MAX: usize = 512 << 10;

/// The variables that a new interpreter can be started with, and those to export in it afterwards.
pub fn that_fit(mut exports: Vec<Export>, own: StartFile<'_>) -> (Vec<Export>, Vec<Export>) {
    // The small ones first: they are what a shell cannot start without.
    exports.sort_by_key(|export| export.value.len());
    let mut bytes = 0;
    exports.into_iter().partition(|export| {
        bytes += export.name.len() + export.value.len() + 2;
        export.value.len() <= VALUE_BYTES_MAX
            && bytes <= ALL_BYTES_MAX
            && !is_lost_at_a_start(&export.name)
            && !own.is_anothers(export)
    })
}

/// The server's own `BASH_ENV`, if it has one: the only start file that a shell reads. Bash runs that file before any
/// command, so one that a caller of tools names would pass the fence and stand in no log.
#[derive(Debug, Clone, Copy)]
pub struct StartFile<'a>(pub Option<&'a [u8]>);

impl StartFile<'_> {
    pub fn is_anothers(self, export: &Export) -> bool {
        export.name == START_FILE && self.0 != Some(&export.value)
    }
}

/// What a shell does not take over from its environment, or not in silence: it warns of a locale that is not there.
fn is_lost_at_a_start(name: &str) -> bool {
    matches!(name, "IFS" | "PS1" | "PS2" | "PS4" | "LANG") || name.starts_with("LC_")
}

/// Whether shells take this for a variable's name.
pub fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// A script that exports variables.
pub fn script(exports: &[Export]) -> Vec<u8> {
    let mut script = Vec::new();
    for Export { name, value } in exports.iter().filter(|export| is_variable_name(&export.name)) {
        script.extend(format!("export {name}=").into_bytes());
        quote_bytes(&mut script, value);
        script.push(b'\n');
    }
    script
}

/// The exported variables in a printed list, or `None` where it is not such a list.
pub fn parse(printed: &[u8]) -> Option<Vec<Export>> {
    let mut reader = Reader { rest: printed };
    let mut exports = Vec::new();
    while !reader.rest.is_empty() {
        if let Some(export) = reader.line()?.filter(|export| export.name != FRAME_VARIABLE) {
            exports.push(export);
        }
    }
    Some(exports)
}

/// The length of the statement of such a list that stands at the beginning.
pub fn statement(printed: &[u8]) -> Option<usize> {
    let mut reader = Reader { rest: printed };
    reader.line()?;
    Some(printed.len() - reader.rest.len())
}

/// Whether a statement with a quoted value begins here, whether it can be read to its end or not.
pub fn begins_value(printed: &[u8]) -> bool {
    let mut reader = Reader { rest: printed };
    let named = reader.head().and_then(|()| reader.name());
    named.is_some()
        && reader.expect(b'=').is_some()
        && matches!(reader.rest, [b'"' | b'\'' | b'(', ..] | [b'$', b'\'', ..])
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    /// `declare -x ` or `export `.
    fn head(&mut self) -> Option<()> {
        let word = self.word();
        match word.as_slice() {
            b"declare" | b"typeset" => {
                self.expect(b' ')?;
                let flags = self.word();
                if flags.first() != Some(&b'-') {
                    return None;
                }
                self.expect(b' ')
            }
            b"export" => self.expect(b' '),
            _ => None,
        }
    }

    /// `declare -x NAME="value"`, `export NAME='value'`, or either without a value.
    fn line(&mut self) -> Option<Option<Export>> {
        self.head()?;
        let name = self.name()?;
        if self.expect(b'\n').is_some() {
            return Some(None);
        }
        self.expect(b'=')?;
        // No program is given an array.
        if self.expect(b'(').is_some() {
            self.skip_array()?;
            return Some(None);
        }
        let value = self.value()?;
        self.expect(b'\n')?;
        Some(Some(Export { name, value }))
    }

    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        let (_, rest) = self.rest.split_first().filter(|(first, _)| **first == byte)?;
        self.rest = rest;
        Some(())
    }

    fn take_while(&mut self, keep: impl Fn(u8) -> bool) -> Vec<u8> {
        let end = self.rest.iter().position(|byte| !keep(*byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken.to_vec()
    }

    fn word(&mut self) -> Vec<u8> {
        self.take_while(|byte| byte.is_ascii_alphabetic() || byte == b'-')
    }

    fn name(&mut self) -> Option<String> {
        let name = self.take_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let bad_start = name.first().is_none_or(u8::is_ascii_digit);
        if bad_start { None } else { String::from_utf8(name).ok() }
    }

    /// Quoted pieces side by side up to the end of the line: dash writes `'it'"'"'s'`.
    fn value(&mut self) -> Option<Vec<u8>> {
        let mut value = Vec::new();
        loop {
            match self.rest {
                [b'\n', ..] => return Some(value),
                [byte, ..] if is_plain(*byte) => value.push(self.next()?),
                _ => self.quoted(&mut value)?,
            }
        }
    }

    /// `[0]="a" [key]=$'b' )` up to the end of its line.
    fn skip_array(&mut self) -> Option<()> {
        loop {
            match self.rest {
                [b')', ..] => {
                    self.expect(b')')?;
                    return self.expect(b'\n');
                }
                [b'"' | b'\'', ..] | [b'$', b'\'', ..] => self.quoted(&mut Vec::new())?,
                [b'\n', ..] => return None,
                _ => self.next().map(drop)?,
            }
        }
    }

    fn quoted(&mut self, value: &mut Vec<u8>) -> Option<()> {
        match self.next()? {
            b'"' => self.double_quoted(value),
            b'\'' => {
                value.extend(self.take_while(|byte| byte != b'\''));
                self.expect(b'\'')
            }
            b'$' if self.next()? == b'\'' => self.ansi_quoted(value),
            _ => None,
        }
    }

    fn double_quoted(&mut self, value: &mut Vec<u8>) -> Option<()> {
        loop {
            match self.next()? {
                b'"' => return Some(()),
                b'\\' => match self.next()? {
                    byte @ (b'"' | b'\\' | b'$' | b'`') => value.push(byte),
                    // A backslash before anything else stands for itself.
                    byte => value.extend([b'\\', byte]),
                },
                b'$' | b'`' => return None,
                byte => value.push(byte),
            }
        }
    }

    fn ansi_quoted(&mut self, value: &mut Vec<u8>) -> Option<()> {
        loop {
            match self.next()? {
                b'\'' => return Some(()),
                b'\\' => value.push(self.escape()?),
                byte => value.push(byte),
            }
        }
    }

    fn escape(&mut self) -> Option<u8> {
        Some(match self.next()? {
            b'a' => 0x07,
            b'b' => 0x08,
            b'e' | b'E' => 0x1b,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'v' => 0x0b,
            byte @ (b'\\' | b'\'' | b'"' | b'?') => byte,
            first @ b'0'..=b'7' => {
                let mut code = u32::from(first - b'0');
                for _ in 0..2 {
                    let Some((digit @ b'0'..=b'7', rest)) = self.rest.split_first() else { break };
                    code = code * 8 + u32::from(digit - b'0');
                    self.rest = rest;
                }
                u8::try_from(code).ok()?
            }
            _ => return None,
        })
    }
}

/// What a shell leaves unquoted.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-./:,+@%=".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(printed: &str) -> Option<Vec<(String, String)>> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Some(parse(printed.as_bytes())?.into_iter().map(|export| (export.name, text(export.value))).collect())
    }

    #[test]
    fn what_is_too_large_for_a_start_is_told_afterwards_and_reads_the_same() {
        let export = |name: &str, len| Export { name: name.to_owned(), value: vec![b'\''; len] };
        let split = |exports| that_fit(exports, StartFile(None));
        let small = vec![export("A", 3), export("PATH", 100)];
        assert_eq!(split(small.clone()), (small, vec![]));
        let (fit, told) = split(vec![export("IFS", 1), export("A", 1), export("LC_ALL", 2)]);
        assert_eq!((fit, told), (vec![export("A", 1)], vec![export("IFS", 1), export("LC_ALL", 2)]));
        let (fit, large) = split(vec![export("BIG", 200_000), export("SMALL", 9)]);
        assert_eq!((fit, &large), (vec![export("SMALL", 9)], &vec![export("BIG", 200_000)]));
        assert_eq!(parse_script(&script(&large)), large);
        let many: Vec<Export> = (0..40).map(|n| export(&format!("V{n}"), 60_000)).collect();
        let (fit, large) = split(many);
        assert_eq!((fit.len(), large.len()), (8, 32));
    }

    fn parse_script(script: &[u8]) -> Vec<Export> {
        // `'\\''` is the one form that `export -p` does not use.
        let text = String::from_utf8(script.to_vec()).unwrap().replace("'\\''", "'\"'\"'");
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn bash_and_dash_lists_are_read() {
        let bash = "declare -x A=\"1\"\ndeclare -rx B=\"a \\\"b\\\" \\$c \\`d\\` \\\\e\"\ndeclare -x UNSET\ndeclare -ax L=([0]=\"1)\" [1]=$'\\n')\ndeclare -Ax M=([\"a b\"]=\"c\" )\ndeclare -x C=$'x\\ny\\001\\'z'\n";
        let want = [("A", "1"), ("B", "a \"b\" $c `d` \\e"), ("C", "x\ny\u{1}'z")];
        assert_eq!(pairs(bash).unwrap(), want.map(|(a, b)| (a.to_owned(), b.to_owned())));
        let dash = "export A='1'\nexport B='it'\"'\"'s'\nexport UNSET\nexport C='two\nlines'\n";
        let want = [("A", "1"), ("B", "it's"), ("C", "two\nlines")];
        assert_eq!(pairs(dash).unwrap(), want.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }

    #[test]
    fn a_list_with_something_else_in_it_is_refused() {
        for bad in [
            "declare -x A=\"1\"\nhello from a background job\n",
            "declare -x A=\"1\nhello",
            "rm -rf /\n",
            "declare -x A=$(rm)\n",
            "declare -x A=\"$(rm)\"\n",
            "declare -x 1A=\"1\"\n",
            "export A='1'; rm\n",
        ] {
            assert_eq!(pairs(bad), None, "{bad}");
        }
    }
}
