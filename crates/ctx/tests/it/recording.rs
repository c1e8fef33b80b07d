//! The newcomer's first minutes as a recording for the docs: an asciicast and a picture, made of what tmux shows. Written
//! only where `CTX_RECORD` names a directory; `make recording` does.

use std::fmt::Write;
use std::path::PathBuf;

use serde_json::json;

/// Seconds that a screen stays: long enough to read, the same at every recording.
const STAYS: f64 = 1.2;
/// A character and a row of the picture.
const CHAR: f64 = 8.4;
const ROW: f64 = 18.0;

/// The screens so far.
#[derive(Default)]
pub struct Recording {
    to: Option<PathBuf>,
    screens: Vec<String>,
}

impl Recording {
    pub fn new() -> Recording {
        Recording { to: std::env::var_os("CTX_RECORD").map(PathBuf::from), screens: Vec::new() }
    }

    /// Adds a screen, with its colours, unless nothing has changed.
    pub fn add(&mut self, screen: impl FnOnce() -> String) {
        if self.to.is_some() {
            let screen = screen().trim_end().to_owned();
            if self.screens.last() != Some(&screen) {
                self.screens.push(screen);
            }
        }
    }

    /// Writes the recording, and a picture of the screen on which a text stands.
    pub fn write(&self, columns: usize, rows: usize, pictured: &str) {
        let Some(dir) = &self.to else { return };
        std::fs::create_dir_all(dir).unwrap();
        let mut cast = json!({ "version": 2, "width": columns, "height": rows }).to_string() + "\n";
        for (screen, n) in self.screens.iter().zip(0u32..) {
            let shown = format!("\x1b[H\x1b[2J{}", screen.replace('\n', "\r\n"));
            cast += &(json!([f64::from(n) * STAYS, "o", shown]).to_string() + "\n");
        }
        std::fs::write(dir.join("newcomer.cast"), cast).unwrap();
        let screen = self.screens.iter().find(|screen| screen.contains(pictured)).unwrap();
        std::fs::write(dir.join("newcomer.svg"), picture(screen, columns)).unwrap();
    }
}

/// A screen as SVG.
fn picture(screen: &str, columns: usize) -> String {
    let lines: Vec<&str> = screen.lines().collect();
    let (width, height) = (columns as f64 * CHAR + 24.0, lines.len() as f64 * ROW + 24.0);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"monospace\" font-size=\"14\">\n<style>text{{fill:#d8dee9;white-space:pre}}.b{{font-weight:bold}}.d{{fill:#7b8494}}.c31{{fill:#e06c75}}.c32{{fill:#98c379}}.c33{{fill:#e5c07b}}.c36{{fill:#56b6c2}}</style>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#1e222a\"/>\n"
    );
    let mut look = String::new();
    for (line, n) in lines.iter().zip(0u32..) {
        let y = f64::from(n) * ROW + 26.0;
        let _ = writeln!(svg, "<text x=\"12\" y=\"{y:.0}\">{}</text>", spans(line, &mut look));
    }
    svg + "</svg>\n"
}

/// A line in pieces of one look each; the look goes on to the next line.
fn spans(line: &str, look: &mut String) -> String {
    let mut out = String::new();
    for (n, piece) in line.split("\x1b[").enumerate() {
        let text = match piece.split_once('m') {
            Some((codes, text)) if n > 0 => {
                for code in codes.split(';') {
                    match code {
                        "" | "0" | "39" | "22" => look.clear(),
                        "1" => look.push_str(" b"),
                        "2" => look.push_str(" d"),
                        code => look.push_str(&format!(" c{code}")),
                    }
                }
                text
            }
            _ => piece,
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        match (text.is_empty(), look.trim()) {
            (true, _) => {}
            (false, "") => out.push_str(&text),
            (false, look) => out.push_str(&format!("<tspan class=\"{look}\">{text}</tspan>")),
        }
    }
    out
}

#[test]
fn colours_become_classes_and_nothing_else_is_taken_for_markup() {
    let mut look = String::new();
    let line = spans("a <b> \x1b[32mgreen\x1b[0m & \x1b[2mdim", &mut look);
    assert_eq!(line, "a &lt;b&gt; <tspan class=\"c32\">green</tspan> &amp; <tspan class=\"d\">dim</tspan>");
    assert_eq!(look, " d");
}
