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
//! - Tracing (`set -x`, `set -v`) and the traps ERR and DEBUG are put aside before the report and put back
//!   inside the next `eval`; they never see the frame, but for four DEBUG runs whose output goes to /dev/null.
//! - A trap on a signal that nothing else uses stops a command without losing the shell. It acts only while a
//!   command runs: between commands the shell's stdin is its command pipe, and then it does nothing.
//! - bash reads its script one byte per system call, so the frame proper is read in bulk (`read -N`), and it
//!   is written in ASCII so that characters and bytes count alike. A long command is read as it is, in the C
//!   locale, because bash takes longer to unquote it than to run it.

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

/// A longer command is handed to bash unquoted.
const QUOTED_BYTES_MAX: usize = 4 << 10;

/// One command, ready to be framed.
#[derive(Debug, Clone, Copy)]
pub struct Framed<'a> {
    pub nonce: &'a Nonce,
    pub command: &'a str,
    /// A file that holds the command, where [`Dialect::wants_file`] asked for one.
    pub file: Option<&'a Path>,
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
    /// The quoted actions of bash's ERR and DEBUG traps.
    err_trap: Option<String>,
    debug_trap: Option<String>,
}

/// What the shell says first after a command: all that its caller waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub exit_code: i32,
    pub cwd: String,
}

/// What the shell says of itself behind that, for the next command and for a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    pub habits: Habits,
    /// The text of `export -p`.
    pub exports: Vec<u8>,
}

const BASH_STOP: &str = r#"[[ -p /dev/stdin ]]||{ { \builtin set +x;} 2>/dev/null;\builtin shopt -s extdebug;\builtin trap 'case $BASH_COMMAND in(*\\36%s*)\builtin trap - DEBUG;\builtin shopt -u extdebug;;(*)\builtin break 9999 2>/dev/null;! \builtin :;;esac' DEBUG;}"#;

const POSIX_STOP: &str =
    r#"\command test -p /dev/stdin||{ { \command set +xv;} 2>/dev/null;\command exec 2>/dev/null;${9999?};}"#;

impl Dialect {
    /// The first lines a new shell gets.
    pub fn setup(self) -> String {
        let signal = STOP_SIGNAL.as_raw();
        match self {
            Dialect::Bash => {
                let stop = quote(BASH_STOP);
                format!("BASH_ARGV0=bash;\\exec 241>&1 242>&2;\\builtin trap {stop} {signal}\n")
            }
            Dialect::Posix => format!("\\exec 6>&1 7>&2;\\trap {} {signal}\n", quote(POSIX_STOP)),
        }
    }

    /// Whether the shell runs a command of this length faster from a file: a POSIX shell has no bulk read.
    pub fn wants_file(self, command: &str) -> bool {
        self == Dialect::Posix && command.len() > QUOTED_BYTES_MAX
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
    let habits = framed.habits.before();
    let long = framed.command.len() > QUOTED_BYTES_MAX;
    let body = if long {
        format!("{}\"$__ctx_long\"", ansi_quote(&format!("\\builtin unset -v __ctx_long;{habits}")))
    } else {
        ansi_quote(&format!("{habits}{}", framed.command))
    };
    let stdin = stdin_word(framed.stdin, ansi_quote);
    let stderr = if framed.merge { "241" } else { "242" };
    let text = format!(
        "\\builtin unset -v __ctx;\
         \\builtin printf '\\36%sS' {nonce} >&2;\\builtin printf '\\36%sS' {nonce};\
         {{ \\builtin eval {body};}}<{stdin} >&241 2>&{stderr};\
         {{ \\builtin printf '\\36%sE%s\\0%s\\0%s\\0' {nonce} \"$?\" \"$-\" \"${{PWD-}}\" >&241;\
         \\builtin set +xv;\\builtin trap -p ERR DEBUG >&241;\\builtin trap - ERR DEBUG;}}>/dev/null 2>&1;\
         \\builtin printf '\\36%sE' {nonce} >&2;\\builtin unset -v __ctx_long;\
         \\builtin printf '\\0';\\builtin export -p;\\builtin printf '\\36%s.' {nonce}"
    );
    // The expansion in the redirection sets bash's line counter back: a redirection is the one place where
    // an assignment to LINENO outlives its command, and the next command's first line is line 1.
    let run = "{ \\builtin eval \"$__ctx\";}<&\"$((LINENO=0,0))\"";
    let count = text.len();
    if long {
        let command = framed.command;
        let bytes = command.len();
        let read = format!("LC_ALL=C \\builtin read -rN{bytes} __ctx_long");
        format!("\\builtin read -rN{count} __ctx;{read};{run}\n{text}{command}")
    } else {
        format!("\\builtin read -rN{count} __ctx;{run}\n{text}")
    }
}

fn posix_frame(framed: &Framed<'_>) -> String {
    let nonce = framed.nonce.as_str();
    let command = match framed.file {
        Some(file) => format!("\\command . {}", quote(&file.to_string_lossy())),
        None => framed.command.to_owned(),
    };
    let body = quote(&format!("{}{command}", framed.habits.before()));
    let stdin = stdin_word(framed.stdin, quote);
    let stderr = if framed.merge { "6" } else { "7" };
    // `command eval`: a syntax error or a stop ends the command, not the shell.
    format!(
        "\\command printf '\\36%sS' {nonce} >&2;\\command printf '\\36%sS' {nonce};\
         {{ \\command eval {body};}}<{stdin} >&6 2>&{stderr};\
         {{ \\command printf '\\36%sE%s\\0%s\\0%s\\0' {nonce} \"$?\" \"$-\" \"${{PWD-}}\" >&6;\
         \\command set +xv;}} 2>/dev/null;\
         \\command printf '\\36%sE' {nonce} >&2;\
         \\command printf '\\0';\\command export -p;\\command printf '\\36%s.' {nonce}\n"
    )
}

fn stdin_word(stdin: Option<&Path>, quote: fn(&str) -> String) -> String {
    stdin.map_or_else(|| "/dev/null".to_owned(), |path| quote(&path.to_string_lossy()))
}

impl Habits {
    /// What switches them on again, to stand on the command's first line. In this order none of them sees
    /// the others being switched on.
    fn before(&self) -> String {
        let mut text = String::new();
        if let Some(action) = &self.err_trap {
            text.push_str(&format!("\\builtin trap -- {action} ERR;"));
        }
        if !self.options.is_empty() {
            text.push_str(&format!("set -{};", self.options));
        }
        if let Some(action) = &self.debug_trap {
            text.push_str(&format!("{{ \\builtin trap -- {action} DEBUG;}} 2>/dev/null;"));
        }
        text
    }

    fn read(options: &str, traps: &str) -> Habits {
        let options = options.chars().filter(|letter| "xv".contains(*letter)).collect();
        let mut habits = Habits { options, ..Habits::default() };
        let mut rest = traps;
        // Anything that is not exactly what `trap -p` prints is never given back to a shell.
        while let Some((action, after)) = rest.strip_prefix("trap -- ").and_then(quoted_word) {
            if let Some(after) = after.strip_prefix(" ERR\n") {
                habits.err_trap = Some(action.to_owned());
                rest = after;
            } else if let Some(after) = after.strip_prefix(" DEBUG\n") {
                habits.debug_trap = Some(action.to_owned());
                rest = after;
            } else {
                break;
            }
        }
        habits
    }
}

/// A word of single-quoted pieces and escaped quotes at the beginning of a text, and what follows it.
fn quoted_word(text: &str) -> Option<(&str, &str)> {
    let mut end = 0;
    loop {
        let rest = text.get(end..)?;
        if let Some(inner) = rest.strip_prefix('\'') {
            end += inner.find('\'')? + 2;
        } else if rest.starts_with("\\'") {
            end += 2;
        } else {
            return (end > 0).then(|| text.split_at(end));
        }
    }
}

impl Answer {
    /// Reads the beginning of what the shell says; `None` where something else was printed into it.
    pub fn parse(bytes: &[u8]) -> Option<Answer> {
        let [exit_code, _, cwd, _] = fields(bytes)?;
        let exit_code = std::str::from_utf8(exit_code).ok()?.parse().ok()?;
        Some(Answer { exit_code, cwd: String::from_utf8_lossy(cwd).into_owned() })
    }
}

impl Report {
    /// Reads all of what the shell says; `None` where something else was printed into it.
    pub fn parse(bytes: &[u8]) -> Option<Report> {
        Answer::parse(bytes)?;
        let [_, options, _, rest] = fields(bytes)?;
        let at = rest.iter().position(|byte| *byte == 0)?;
        let (traps, exports) = rest.split_at_checked(at)?;
        let habits = Habits::read(&String::from_utf8_lossy(options), &String::from_utf8_lossy(traps));
        Some(Report { habits, exports: exports.get(1..)?.to_vec() })
    }
}

/// Exit code, options, directory, and the rest.
fn fields(bytes: &[u8]) -> Option<[&[u8]; 4]> {
    let mut fields = bytes.splitn(4, |byte| *byte == 0);
    Some([fields.next()?, fields.next()?, fields.next()?, fields.next()?])
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
        let framed = Framed {
            nonce: &nonce,
            command: "echo 'grüße'\n",
            file: None,
            stdin: None,
            merge: false,
            habits: &habits,
        };
        let frame = String::from_utf8(Dialect::Bash.frame(&framed)).unwrap();
        let (first, text) = frame.split_once('\n').unwrap();
        let count: usize = first.split("-rN").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert_eq!(count, text.len());
        assert!(text.is_ascii());
    }

    #[test]
    fn a_report_is_read_and_a_spoilt_one_refused() {
        let traps = "trap -- 'echo \"it'\\''s\"' DEBUG\ntrap -- 'echo\nE' ERR\n";
        let bytes = format!("3\0hxBs\0/srv/app\0{traps}\0declare -x A=\"1\"\n");
        let answer = Answer { exit_code: 3, cwd: "/srv/app".to_owned() };
        assert_eq!(Answer::parse(bytes.as_bytes()), Some(answer.clone()));
        assert_eq!(Answer::parse(b"3\0hxBs\0/srv/app\0"), Some(answer), "the rest may come later");
        let report = Report::parse(bytes.as_bytes()).unwrap();
        assert_eq!(
            report.habits.before(),
            "\\builtin trap -- 'echo\nE' ERR;set -x;{ \\builtin trap -- 'echo \"it'\\''s\"' DEBUG;} 2>/dev/null;"
        );
        assert_eq!(report.exports, b"declare -x A=\"1\"\n");
        for spoilt in [&b"hello\0\0\0\0"[..], b"0\0h", b"0\0h\0/"] {
            assert_eq!((Answer::parse(spoilt), Report::parse(spoilt)), (None, None));
        }
        assert_eq!(Report::parse(b"0\0h\0/\0trap"), None);
    }

    #[test]
    fn only_what_trap_prints_is_taken_for_a_trap() {
        for not in [
            "",
            "trap -- 'a'; rm -rf /; echo 'b' DEBUG\n",
            "hello trap -- 'x' DEBUG\n",
            "trap -- 'x' EXIT\n",
            "trap -- x DEBUG\n",
            "trap -- 'x'$(rm) DEBUG\n",
            "trap -- 'x DEBUG\n",
        ] {
            assert_eq!(Habits::read("", not), Habits::default(), "{not}");
        }
    }
}
