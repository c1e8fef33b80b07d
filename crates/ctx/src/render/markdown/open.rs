//! What a Markdown text leaves open at its end, so that another text can follow it.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag};

/// No text has this in it.
const BEHIND: &str = "\u{e000}behind\u{e000}";

/// The line that closes a code block or a piece of HTML which takes in all that follows the text.
pub fn left_open(text: &str) -> Option<String> {
    let followed = format!("{text}\n\n{BEHIND}\n");
    let mut block = None;
    for (event, range) in Parser::new_ext(&followed, Options::empty()).into_offset_iter() {
        match event {
            Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_)) | Tag::HtmlBlock) => {
                block = followed.get(range);
            }
            Event::End(_) => block = None,
            Event::Text(inside) | Event::Html(inside) if inside.contains(BEHIND) => {
                return block.map(closing_of);
            }
            _ => {}
        }
    }
    None
}

/// What ends a block that begins so.
fn closing_of(block: &str) -> String {
    let begin = block.trim_start();
    let mark = begin.chars().next().unwrap_or('`');
    if mark != '<' {
        return begin.chars().take_while(|c| *c == mark).collect();
    }
    let of = [("<!--", "-->"), ("<?", "?>"), ("<![CDATA[", "]]>"), ("<!", ">")];
    match of.iter().find(|(open, _)| begin.starts_with(open)) {
        Some((_, closing)) => (*closing).to_owned(),
        None => {
            let name: String = begin.chars().skip(1).take_while(char::is_ascii_alphanumeric).collect();
            format!("</{name}>")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_open_is_closed() {
        for (text, closing) in [
            ("plain", None),
            ("```rust\nfn main() {}\n```", None),
            ("```\nfn main() {}", Some("```")),
            ("~~~~ text\n```\n~~~", Some("~~~~")),
            ("a\n\n```\nb\n```\n\n````\nc\n```", Some("````")),
            ("- a\n  ```\n  b", None),
            ("> ```\n> b", None),
            ("`one", None),
            ("<!-- never", Some("-->")),
            ("<script>\nlet a;", Some("</script>")),
            ("<b>bold", None),
        ] {
            assert_eq!(left_open(text).as_deref(), closing, "{text:?}");
            let mended = format!("{text}\n{}", closing.unwrap_or_default());
            assert_eq!(left_open(&mended), None, "{mended:?}");
        }
    }
}
