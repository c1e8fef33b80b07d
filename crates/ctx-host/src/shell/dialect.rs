//! The frame around a command, in the words of the shell that runs it.
//!
//! Nothing here talks to a process: it turns a command into the bytes to send, and the shell's report into
//! what it says. The rules that the texts below keep, and that the behaviour tests hold them to:
//!
//! - The command runs by `eval` at the top level, inside a group whose redirections give it fresh
//!   descriptors 0 to 2; whatever it does to them ends with the group.
//! - Copies of the original streams sit on descriptors a script does not meet (bash 241 and 242; a POSIX
//!   shell may only have single digits, so 6 and 7).
//! - Every word of the frame is quoted or goes through `builtin` or `command`: aliases and functions of the
//!   same name do not reach it. It leaves no variable and no function behind.
//! - Tracing (`set -x`, `set -v`) and a DEBUG trap are put aside before the report and put back inside the
//!   next `eval`; they never see the frame, but for the two DEBUG runs whose output goes to /dev/null.
//! - A trap on a signal that nothing else uses stops a command without losing the shell. It acts only while a
//!   command runs: between commands the shell's stdin is its command pipe, and then it does nothing.
//! - bash reads its script one byte per system call, so the frame proper is read in bulk (`read -N`), and it
//!   is written in ASCII so that characters and bytes count alike.

use std::path::Path;

use super::scan::Nonce;

/// The signal that stops a command: no program sends it, and its default action ends what `exec` put in
/// the shell's place.
pub const STOP_SIGNAL: rustix::process::Signal = rustix::process::Signal::STKFLT;

/// How the shell at the other end wants to be talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Bash,
    /// dash, ash and any other POSIX shell.
    Posix,
}

/// One command, ready to be framed.
#[derive(Debug, Clone, Copy)]
pub struct Framed<'a> {
    pub nonce: &'a Nonce,
    pub command: &'a str,
    /// A file whose bytes are the command's stdin; without it there is no input.
    pub stdin: Option<&'a Path>,
    /// Both streams into stdout, in the order of arrival.
    pub merge: bool,
    pub habits: &'a Habits,
}

/// What a command may switch on that would otherwise act on the frame: put aside between commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Habits {
    /// Option letters for `set -`.
    options: String,
    /// A whole `trap -- '…' DEBUG` command.
    debug_trap: Option<String>,
}

/// What the shell says after a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub exit_code: i32,
    pub cwd: String,
    pub habits: Habits,
    /// The text of `export -p`.
    pub exports: Vec<u8>,
}

const BASH_STOP: &str = r#"[[ -p /dev/stdin ]]||{ { \builtin set +x;}2>/dev/null;\builtin shopt -s extdebug;\builtin trap 'case $BASH_COMMAND in(*\\36%s*)\builtin trap - DEBUG;\builtin shopt -u extdebug;;(*)\builtin break 9999 2>/dev/null;! \builtin :;;esac' DEBUG;}"#;

const POSIX_STOP: &str =
    r#"\command test -p /dev/stdin||{ { \command set +xv;}2>/dev/null;\command exec 2>/dev/null;${9999?};}"#;

impl Dialect {
    /// The first lines a new shell gets.
    pub fn setup(self) -> String {
        let signal = STOP_SIGNAL.as_raw();
        match self {
            Dialect::Bash => {
                let stop = quote(BASH_STOP);
                format!("\\builtin exec 241>&1 242>&2;\\builtin trap {stop} {signal}\n")
            }
            Dialect::Posix => format!("\\exec 6>&1 7>&2;\\trap {} {signal}\n", quote(POSIX_STOP)),
        }
    }

    /// The bytes that run a command.
    pub fn frame(self, framed: &Framed<'_>) -> Vec<u8> {
        match self {
            Dialect::Bash => bash_frame(framed),
            Dialect::Posix => posix_frame(framed),
        }
        .into_bytes()
    }
}

fn bash_frame(framed: &Framed<'_>) -> String {
    let nonce = framed.nonce.as_str();
    let body = ansi_quote(&framed.habits.before(framed.command));
    let stdin = stdin_word(framed.stdin, ansi_quote);
    let stderr = if framed.merge { "241" } else { "242" };
    let text = format!(
        "\\builtin unset -v __ctx;\
         \\builtin printf '\\36%sS' {nonce} >&2;\\builtin printf '\\36%sS' {nonce};\
         {{ \\builtin eval {body};}}<{stdin} >&241 2>&{stderr};\
         {{ \\builtin printf '\\36%sE%s\\0%s\\0%s\\0' {nonce} \"$?\" \"$-\" \"${{PWD-}}\" >&241;\
         \\builtin set +xv;\\builtin trap -p DEBUG >&241;\\builtin trap - DEBUG;}}>/dev/null 2>&1;\
         \\builtin printf '\\36%sE' {nonce} >&2;\
         \\builtin printf '\\0';\\builtin export -p;\\builtin printf '\\36%s.' {nonce}"
    );
    // The expansion in the redirection sets bash's line counter back: a redirection is the one place where
    // an assignment to LINENO outlives its command, and the next command's first line is line 1.
    format!("\\builtin read -rN{} __ctx;{{ \\builtin eval \"$__ctx\";}}<&$((LINENO=0,0))\n{text}", text.len())
}

fn posix_frame(framed: &Framed<'_>) -> String {
    let nonce = framed.nonce.as_str();
    let body = quote(&framed.habits.before(framed.command));
    let stdin = stdin_word(framed.stdin, quote);
    let stderr = if framed.merge { "6" } else { "7" };
    // `command eval`: a syntax error or a stop ends the command, not the shell.
    format!(
        "\\command printf '\\36%sS' {nonce} >&2;\\command printf '\\36%sS' {nonce};\
         {{ \\command eval {body};}}<{stdin} >&6 2>&{stderr};\
         {{ \\command printf '\\36%sE%s\\0%s\\0%s\\0' {nonce} \"$?\" \"$-\" \"${{PWD-}}\" >&6;\
         \\command set +xv;}}2>/dev/null;\
         \\command printf '\\36%sE' {nonce} >&2;\
         \\command printf '\\0';\\command export -p;\\command printf '\\36%s.' {nonce}\n"
    )
}

fn stdin_word(stdin: Option<&Path>, quote: fn(&str) -> String) -> String {
    stdin.map_or_else(|| "/dev/null".to_owned(), |path| quote(&path.to_string_lossy()))
}

impl Habits {
    /// The command, on the same line as what must be switched on again before it.
    fn before(&self, command: &str) -> String {
        let mut text = String::new();
        if let Some(trap) = &self.debug_trap {
            text.push_str(trap);
            text.push(';');
        }
        if !self.options.is_empty() {
            text.push_str("set -");
            text.push_str(&self.options);
            text.push(';');
        }
        text.push_str(command);
        text
    }

    fn read(options: &str, debug_trap: &str) -> Habits {
        let options = options.chars().filter(|letter| "xv".contains(*letter)).collect();
        let trap = debug_trap.trim_end_matches('\n');
        Habits { options, debug_trap: is_debug_trap(trap).then(|| trap.to_owned()) }
    }
}

/// Whether a text is `trap -- '…' DEBUG` and nothing besides: only then is it given back to a shell.
fn is_debug_trap(text: &str) -> bool {
    let Some(quoted) = text.strip_prefix("trap -- '").and_then(|rest| rest.strip_suffix("' DEBUG")) else {
        return false;
    };
    !quoted.replace(r"'\''", "").contains('\'')
}

impl Report {
    /// Reads a report; `None` where something else was printed into it.
    pub fn parse(bytes: &[u8]) -> Option<Report> {
        let mut fields = bytes.splitn(5, |byte| *byte == 0);
        let mut next = || fields.next().map(|field| String::from_utf8_lossy(field).into_owned());
        let exit_code = next()?.parse().ok()?;
        let options = next()?;
        let cwd = next()?;
        let debug_trap = next()?;
        let exports = fields.next()?.to_vec();
        Some(Report { exit_code, cwd, habits: Habits::read(&options, &debug_trap), exports })
    }
}

/// A word for any POSIX shell.
fn quote(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A word for bash, in ASCII whatever the text holds.
fn ansi_quote(text: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_for_bash_counts_the_bytes_it_sends() {
        let nonce = Nonce::new(7);
        let habits = Habits::default();
        let framed =
            Framed { nonce: &nonce, command: "echo 'grüße'\n", stdin: None, merge: false, habits: &habits };
        let frame = String::from_utf8(Dialect::Bash.frame(&framed)).unwrap();
        let (first, text) = frame.split_once('\n').unwrap();
        let count: usize = first.split("-rN").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert_eq!(count, text.len());
        assert!(text.is_ascii());
    }

    #[test]
    fn a_report_is_read_and_a_spoilt_one_refused() {
        let report =
            Report::parse(b"3\0hxBs\0/srv/app\0trap -- 'echo \"it'\\''s\"' DEBUG\n\0declare -x A=\"1\"\n");
        let report = report.unwrap();
        assert_eq!((report.exit_code, report.cwd.as_str()), (3, "/srv/app"));
        assert_eq!(report.habits.before("ls"), "trap -- 'echo \"it'\\''s\"' DEBUG;set -x;ls");
        assert_eq!(report.exports, b"declare -x A=\"1\"\n");
        assert_eq!(Report::parse(b"hello\0\0\0\0"), None);
        assert_eq!(Report::parse(b"0\0h"), None);
    }

    #[test]
    fn only_a_debug_trap_is_taken_for_one() {
        assert!(is_debug_trap("trap -- 'echo x' DEBUG"));
        for not in
            ["", "trap -- 'a'; rm -rf /; echo 'b' DEBUG", "hello trap -- 'x' DEBUG", "trap -- 'x' EXIT"]
        {
            assert!(!is_debug_trap(not), "{not}");
        }
    }
}
