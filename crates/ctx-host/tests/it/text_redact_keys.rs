//! Private keys however they are printed: with numbers, names and marks before their lines, on one line, as strings.

use std::sync::Arc;

use ctx_host::shell::text::redact::{Secrets, redact_text};

use crate::text_redact_corpus::{BASE64, Letters, in_pieces};

/// A key: its label, and the lines between the two rules.
struct Key {
    label: &'static str,
    headers: Vec<&'static str>,
    body: Vec<String>,
}

impl Key {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("-----BEGIN {}-----", self.label)];
        lines.extend(self.headers.iter().map(|line| (*line).to_owned()));
        lines.extend(self.body.iter().cloned());
        lines.push(format!("-----END {}-----", self.label));
        lines
    }
}

fn keys() -> Vec<Key> {
    let mut l = Letters(77);
    let mut body = |count: usize, width: usize, last: usize| -> Vec<String> {
        let mut lines: Vec<String> = (0..count).map(|_| l.take(BASE64, width)).collect();
        lines.push(format!("{}==", l.take(BASE64, last)));
        lines
    };
    let encrypted = vec!["Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,00FF00FF", ""];
    vec![
        Key { label: concat!("RSA PRI", "VATE KEY"), headers: encrypted, body: body(24, 64, 5) },
        Key { label: concat!("OPENSSH PRI", "VATE KEY"), headers: Vec::new(), body: body(6, 70, 21) },
        Key { label: concat!("PRI", "VATE KEY"), headers: Vec::new(), body: body(0, 64, 62) },
        Key {
            label: concat!("PGP PRI", "VATE KEY BLOCK"),
            headers: vec!["Version: GnuPG v2", "Comment: none", ""],
            body: body(12, 64, 9),
        },
    ]
}

/// How tools print the lines of a file.
fn printed(lines: &[String]) -> Vec<(&'static str, String)> {
    let each = |line: &dyn Fn(usize, &str) -> String| {
        lines.iter().enumerate().map(|(at, text)| line(at + 1, text) + "\n").collect::<String>()
    };
    let one = |between: &str| format!("{}\n", lines.join(between));
    vec![
        ("cat", each(&|_, text| text.to_owned())),
        ("cat -n", each(&|at, text| format!("{at:6}\t{text}"))),
        ("cat -A", each(&|_, text| format!("{text}$"))),
        ("grep -n", each(&|at, text| format!("{at}:{text}"))),
        ("grep -H", each(&|_, text| format!("key.pem:{text}"))),
        ("grep -r", each(&|_, text| format!("deploy/secret/keys/id_rsa:{text}"))),
        ("grep -rn", each(&|at, text| format!("./a/b/key.pem:{at}:{text}"))),
        ("diff", each(&|_, text| format!("> {text}"))),
        ("git diff", each(&|_, text| format!("+{text}"))),
        ("a comment", each(&|_, text| format!("# {text}"))),
        ("a comment of C", each(&|_, text| format!(" * {text}"))),
        ("compose", each(&|_, text| format!("web-1  | {text}"))),
        ("indented", each(&|_, text| format!("      {text}"))),
        (
            "numbered by bat",
            each(&|at, text| format!("\u{1b}[38;5;247m{at:4}\u{1b}[0m \u{1b}[37m{text}\u{1b}[0m")),
        ),
        ("paste", each(&|at, text| format!("{text}\tother {at}"))),
        ("one line", one(" ")),
        ("no breaks", one("")),
        ("json", format!("{{\"key\": \"{}\"}}\n", lines.join("\\n"))),
        ("json in json", format!("{{\\\"key\\\": \\\"{}\\\"}}\n", lines.join("\\\\n"))),
        ("strings", each(&|_, text| format!("  \"{text}\\n\" +"))),
        ("a list", format!("['{}']\n", lines.join("', '"))),
        ("windows", each(&|_, text| format!("{text}\r"))),
    ]
}

#[test]
fn no_line_of_a_key_gets_through_however_it_is_printed() {
    let secrets = Arc::new(Secrets::none());
    for key in keys() {
        for (how, text) in printed(&key.lines()) {
            let text = format!("first line\n{text}after it 1\nand more\n");
            let out = redact_text(&secrets, &text);
            for line in &key.body {
                assert!(!out.contains(line.as_str()), "{} by {how}: {out}", key.label);
                let half = &line[..line.len() / 2];
                assert!(half.len() < 4 || !out.contains(half), "{} by {how}: {half} in {out}", key.label);
            }
            assert!(out.contains("[REDACTED:private-key]"), "{} by {how}: {out}", key.label);
            assert!(out.starts_with("first line\n"), "{} by {how}: {out}", key.label);
            assert!(out.ends_with("after it 1\nand more\n"), "{} by {how}: {out}", key.label);
        }
    }
}

#[test]
fn a_key_cut_across_reads_or_cut_off_is_hidden_alike() {
    let secrets = Arc::new(Secrets::none());
    for key in keys() {
        for (how, text) in printed(&key.lines()) {
            let bytes = text.as_bytes();
            let whole = redact_text(&secrets, &text);
            for at in (0..=bytes.len()).step_by(7) {
                let (head, tail) = bytes.split_at(at);
                let cut = in_pieces(&secrets, &[head, tail]);
                assert_eq!(String::from_utf8_lossy(&cut), whole, "{how} cut at {at}");
            }
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            assert_eq!(String::from_utf8_lossy(&in_pieces(&secrets, &single)), whole, "{how} byte by byte");
        }
        // `head -8 key.pem; echo done`
        let lines = key.lines();
        let count = lines.len() - 1;
        let head = lines.iter().take(count.min(8)).map(|line| format!("{line}\n")).collect::<String>();
        let out = redact_text(&secrets, &format!("{head}done\n10\n11 files\n"));
        assert!(out.ends_with("done\n10\n11 files\n"), "{}: {out}", key.label);
        for line in key.body.iter().filter(|line| line.len() > 20) {
            assert!(!out.contains(line.as_str()), "{}: {out}", key.label);
        }
    }
}

#[test]
fn a_first_line_alone_takes_nothing_with_it() {
    let secrets = Arc::new(Secrets::none());
    let begin = concat!("-----BEGIN RSA PRI", "VATE KEY-----");
    let end = concat!("-----END RSA PRI", "VATE KEY-----");
    let numbers: String = (1..=10).map(|n| format!("{n}\n")).collect();
    for text in [
        format!("kk/a:1:{begin}\nkk2/b:1:{begin}\n  27 kk/a\n"),
        format!("{begin}\n{numbers}done\n"),
        format!("{begin}\n...\n{end}\n"),
        format!("{begin}\nMIIE...\n{end}\nnext\n"),
        format!("if text.starts_with(\"{begin}\") {{\n    return Some(Kind::PrivateKey);\n}}\n"),
        format!(
            "{begin}\nsrc/main/java/com/example/Application2.java\n3f786850e387550fdab836ed7e6dc881de23001b\n"
        ),
        format!("var a=\"{begin}\";function b(c){{return c.indexOf(a)>=0}}var d=\"{end}\";\n"),
    ] {
        assert_eq!(redact_text(&secrets, &text), text);
    }
    // And a key after such a line is found.
    let key = keys().remove(1).lines().join("\n");
    let out = redact_text(&secrets, &format!("a:1:{begin}\n{key}\nx\n"));
    assert!(out.starts_with(&format!("a:1:{begin}\n-----BEGIN OPENSSH")), "{out}");
    assert!(
        out.contains("KEY-----[REDACTED:private-key]-----END OPENSSH") && out.ends_with("-----\nx\n"),
        "{out}"
    );
}

#[test]
fn the_private_lines_of_a_putty_key_are_hidden() {
    let secrets = Arc::new(Secrets::none());
    let mut l = Letters(5);
    let public = l.take(BASE64, 64);
    let lines: Vec<String> = [64, 64, 64, 17].map(|len| l.take(BASE64, len)).into();
    let text = format!(
        "PuTTY-User-Key-File-3: ssh-rsa\nEncryption: none\nComment: x\nPublic-Lines: 1\n{public}\nPrivate-Lines: 4\n{}\nPrivate-MAC: 00ff\nafter\n",
        lines.join("\n")
    );
    let out = redact_text(&secrets, &text);
    assert!(lines.iter().all(|line| !out.contains(line.as_str())), "{out}");
    assert!(out.contains(&public) && out.contains("Private-Lines: 4[REDACTED:private-key]"), "{out}");
    assert!(out.ends_with("Private-MAC: 00ff\nafter\n"), "{out}");
}
