//! The entry of a list of variables, read backwards from the label of its value: the name that it gives. Its lines may have
//! marks before them: those of a diff, a plan, a quote, of `grep` or `cat -n`, or of a comment.

use super::letters::are_random;
use super::shape::Class;

/// So many settings before the value are looked at for the name.
const SETTINGS_MAX: usize = 3;
const LABELS: [&[u8]; 3] = [b"name", b"key", b"parameterkey"];
/// The label of a value is the end of this one, too.
const PARAMETER: &[u8] = b"parameter";

/// What stands before the label of a value.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    pub name: &'a [u8],
    /// What the name is labelled.
    label: &'a [u8],
    /// All between the name and the label of the value.
    between: &'a [u8],
    /// A dash of YAML stands before the value: another entry begins with it, unless it is the mark of a plan.
    pub begins_item: bool,
    /// It says itself that the value is secret.
    is_sensitive: bool,
}

impl<'a> Entry<'a> {
    /// Reads `"name": "DB_PASSWORD", "type": "text", "`, and the like, from its end.
    pub fn before(before: &'a [u8]) -> Option<Entry<'a>> {
        let (before, is_tag) = without_tag(without_parameter(before));
        let marks = last_line(before).filter(|line| are_marks(line));
        // The label begins here, unless it is the end of a longer word.
        if marks.is_none() && before.last().is_some_and(|byte| Class::Dotted.has(*byte)) {
            return None;
        }
        let begins_item = marks.is_some_and(|marks| trimmed(marks, is_quote).ends_with(b"- "));
        let mut rest = before;
        let mut is_sensitive = false;
        let entry = |label, name: &'a [u8], rest: &[u8], is_sensitive| {
            let between = before.get(rest.len() + name.len()..).unwrap_or_default();
            Entry { name, label, between, begins_item, is_sensitive }
        };
        for _ in 0..SETTINGS_MAX {
            rest = above(rest);
            if is_tag {
                let (label, name, rest) = tagged(rest)?;
                return Some(entry(label, name, rest, false));
            }
            if is_sensitive && let Some((name, rest)) = object(rest) {
                return Some(entry(b"", name, rest, true));
            }
            let Setting { label, text, before_text, before_label } = setting(rest)?;
            if let Some(label) = name_label(label) {
                return Some(entry(label, text, before_text, false));
            }
            is_sensitive |= label == b"sensitive" && text == b"true";
            rest = before_label;
        }
        None
    }

    /// Whether words may be its value, too; where it is not labelled so, forms and translations have those.
    pub fn is_sure(&self, is_shouted: bool) -> bool {
        self.is_sensitive || is_shouted && self.label.eq_ignore_ascii_case(b"name")
    }

    /// Whether it stands between brackets, so that one that ends a bare value is none of it.
    pub fn is_inline(&self) -> bool {
        self.between.contains(&b',')
    }

    /// Whether a bare value is a variable of code: `set(name="token", value=token_1)`, but not `name=TOKEN,value=abc123`.
    pub fn has_code(&self, value: &[u8]) -> bool {
        let is_quoted = self.between.first().is_some_and(|byte| is_quote(*byte));
        let is_code = self.is_inline() && (is_quoted || self.between.last() != Some(&b','));
        let is_part = |part: &[u8]| {
            let digits = part.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
            part.iter().rev().skip(digits).all(u8::is_ascii_alphabetic)
        };
        is_code
            && !are_random(value)
            && !value.first().is_some_and(u8::is_ascii_digit)
            && value.split(|byte| matches!(byte, b'_' | b'.')).all(is_part)
    }
}

/// The last setting of a text.
struct Setting<'a> {
    label: &'a [u8],
    text: &'a [u8],
    before_text: &'a [u8],
    before_label: &'a [u8],
}

fn setting(before: &[u8]) -> Option<Setting<'_>> {
    let mut rest = before;
    let text = last_word(&mut rest)?;
    let before_text = rest;
    rest = before_separator(rest)?;
    let label = last_word(&mut rest)?;
    Some(Setting { label, text, before_text, before_label: rest })
}

fn before_separator(rest: &[u8]) -> Option<&[u8]> {
    let rest = trimmed(rest, |byte| matches!(byte, b' ' | b'\t') || is_quote(byte));
    rest.strip_suffix(b":").or_else(|| rest.strip_suffix(b"="))
}

/// The label of a name, without the marks of its line that read as a part of it: `-name`, `f.yml-3-name`.
fn name_label(word: &[u8]) -> Option<&[u8]> {
    LABELS.iter().find_map(|label| {
        let (marks, word) = word.split_at_checked(word.len().checked_sub(label.len())?)?;
        let is_alone = marks.is_empty() || marks.ends_with(b"-") && are_marks(marks);
        (is_alone && word.eq_ignore_ascii_case(label)).then_some(word)
    })
}

/// `<name>DB_PASSWORD</name>`: its label, its name, and what stands before that.
fn tagged(rest: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let mut rest = trimmed(rest, |byte| byte.is_ascii_whitespace()).strip_suffix(b">")?;
    let label = last_word(&mut rest).filter(|label| label.starts_with(b"/"))?.get(1..)?;
    rest = rest.strip_suffix(b"<")?;
    let name = last_word(&mut rest)?;
    let tag = rest.strip_suffix(b">")?.strip_suffix(label)?;
    (name_label(label).is_some() && tag.ends_with(b"<")).then_some((label, name, rest))
}

/// `"db_password": {`: the name of an object that has the settings behind it, and what stands before that.
fn object(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = trimmed(rest, |byte| byte.is_ascii_whitespace() || is_quote(byte)).strip_suffix(b"{")?;
    let mut rest = before_separator(rest)?;
    let name = last_word(&mut rest)?;
    Some((name, rest))
}

/// Takes the last word, and what stands between it and the end: blanks, quotes, a comma.
fn last_word<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let text = trimmed(rest, |byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b',') || is_quote(byte));
    let len = text.iter().rev().take_while(|byte| Class::Dotted.has(**byte) || **byte == b'/').count();
    let (before, word) = text.split_at(text.len() - len);
    *rest = before;
    (len > 0).then_some(word)
}

fn without_parameter(before: &[u8]) -> &[u8] {
    let (rest, last) = before.split_at(before.len().saturating_sub(PARAMETER.len()));
    if last.eq_ignore_ascii_case(PARAMETER) { rest } else { before }
}

fn without_tag(before: &[u8]) -> (&[u8], bool) {
    before.strip_suffix(b"<").map_or((before, false), |rest| (rest, true))
}

/// The end of the line above, where nothing but marks stands before what ends here. Passes over comments, and over the
/// value that a diff says was there before.
fn above(rest: &[u8]) -> &[u8] {
    let Some((mut lines, marks)) = split_line(rest) else { return rest };
    if !are_marks(marks) {
        return rest;
    }
    loop {
        let (above, whole) = split_line(lines).map_or((None, lines), |(above, line)| (Some(above), line));
        let line = without_comment(whole);
        match above {
            Some(above) if is_passed_over(line) => lines = above,
            _ => return lines.get(..lines.len() - whole.len() + line.len()).unwrap_or_default(),
        }
    }
}

fn split_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr::memrchr(b'\n', text)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

fn last_line(text: &[u8]) -> Option<&[u8]> {
    split_line(text).map(|(_, line)| line)
}

/// A line without the comment behind its setting.
fn without_comment(line: &[u8]) -> &[u8] {
    let begins = |at: &usize| {
        let (before, rest) = line.split_at(*at);
        let is_comment = matches!(rest, [b' ' | b'\t', b'#', ..] | [b' ' | b'\t', b'/', b'/', ..]);
        is_comment && !are_marks(before)
    };
    (0..line.len()).find(begins).and_then(|at| line.get(..at)).unwrap_or(line)
}

/// Whether a line tells nothing of the name: blank, a comment, or another value.
fn is_passed_over(line: &[u8]) -> bool {
    let names = |setting: Setting<'_>| name_label(setting.label).is_some();
    if setting(line).is_some_and(names) || tagged(line).is_some() {
        return false;
    }
    if are_marks(line) {
        // Of `grep` and of YAML: what stands before dashes alone is something else.
        let line = line.trim_ascii();
        return line.is_empty() || !line.iter().all(|byte| *byte == b'-');
    }
    let begins = |at: &usize| {
        let (before, rest) = line.split_at(*at);
        rest.first().is_some_and(u8::is_ascii_alphabetic) && are_marks(before)
    };
    let Some((marks, body)) = (0..line.len()).rev().find(begins).map(|at| line.split_at(at)) else {
        return false;
    };
    let label = body.get(..5).is_some_and(|label| label.eq_ignore_ascii_case(b"value"));
    let behind = body.iter().skip(5).find(|byte| !is_quote(**byte) && !matches!(byte, b' ' | b'\t'));
    let is_value = label && matches!(behind, Some(b':' | b'='));
    is_value || marks.contains(&b'#') || marks.windows(2).any(|two| two == b"//")
}

/// Whether all of it stands before a line as it was: `+ `, `> `, `# `, `  4: `, `a/b.yml-4-  `, `web-1  | `.
fn are_marks(line: &[u8]) -> bool {
    let path = trimmed(line, is_mark);
    let marks = line.get(path.len()..).unwrap_or_default();
    path.is_empty()
        || path.iter().all(|byte| Class::Dotted.has(*byte) || *byte == b'/') && {
            let number = marks.get(1..).unwrap_or_default();
            let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let is_number = digits > 0 && matches!(number.get(digits), Some(b':' | b'-'));
            let is_path = path.iter().any(|byte| matches!(byte, b'.' | b'/'));
            let is_joined = matches!(marks.first(), Some(b':' | b'-'));
            is_joined && (is_number || is_path) || marks.contains(&b'|')
        }
}

/// A byte of what stands before lines; those of `│` too.
fn is_mark(byte: u8) -> bool {
    byte.is_ascii_digit() || b" \t\r+-~<>#|*/:\xe2\x94\x82".contains(&byte) || is_quote(byte)
}

/// A quote, or what escapes one.
fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'\\')
}

#[inline]
fn trimmed(mut text: &[u8], is_around: impl Fn(u8) -> bool) -> &[u8] {
    while let [rest @ .., last] = text
        && is_around(*last)
    {
        text = rest;
    }
    text
}
