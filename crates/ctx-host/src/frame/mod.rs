//! The frame around a command, in the words of the shell that runs it.
//!
//! Nothing here talks to a process: it turns a command into the bytes to send, and the shell's report into
//! what it says. The rules that the texts below keep, and that the behaviour tests hold them to:
//!
//! - The command runs by `eval` at the top level with fresh descriptors 0 to 2, whatever the one before did to
//!   its own. They are opened by name each time, so that the frame keeps no descriptor that a script could
//!   use or close. (A POSIX shell reads its commands from descriptor 0, so there a group's redirections put
//!   them back; what the shell keeps for that has numbers that its scripts cannot name.)
//! - Every word of the frame is quoted or goes through `builtin` or `command`: aliases and functions of the
//!   same name do not reach it. A command sees no variable and no function of it.
//! - Tracing (`set -x`, `set -v`), history and the traps ERR and DEBUG are put aside before the report and put
//!   back inside the next `eval`; they never see the frame, but for a few DEBUG runs whose output goes to
//!   /dev/null. A trace with a descriptor of its own is led to stderr while it is switched off.
//! - A trap on a signal that nothing else uses stops a command without losing the shell. It acts only while a
//!   command runs, which is while `__ctx` is not set.
//! - `$?` begins as what the command before left.
//! - bash reads its script one byte per system call, so the frame proper is read in bulk (`read -N`), and it
//!   is written in ASCII so that characters and bytes count alike. A long command is read as it is, in the C
//!   locale, because bash takes longer to unquote it than to run it.
//! - A shell that cannot open its streams any more exits, and so one is made anew at once.

pub(super) mod bash;
pub(super) mod exports;
pub(super) mod failure;
pub(super) mod marker;
pub(super) mod quote;
pub(super) mod report;
pub(super) mod stop;
mod syntax_guard;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use self::bash::{EvalMode, QUOTED_BYTES_MAX};
use self::failure::NOWHERE;
use self::marker::Nonce;
use self::quote::{path_word, quote, quoted_word};
use self::stop::{BASH_STOP, POSIX_STOP, STOP_SIGNAL};

/// How the shell at the other end wants to be talked to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    Bash,
    /// dash, ash and any other POSIX shell.
    Posix,
}

/// Among the option letters where the command was not begun: no shell has an option of that name.
pub(crate) const UNBEGUN: char = '!';
/// Likewise, where `command` is a function.
pub(crate) const SHADOWED: char = '1';
/// Likewise, where it has ever had a background job.
pub(crate) const WITH_JOBS: char = '2';

/// A random name of this length belongs to nobody else.
const TELLING_NAME: usize = 16;

/// What a frame runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct FrameInput<'a> {
    pub command: &'a str,
    /// A file that holds the command, where [`Dialect::wants_file`] asked for one.
    pub file: Option<&'a Path>,
    /// A file whose bytes are the command's stdin; without it there is no input.
    pub stdin: Option<&'a Path>,
    /// Both streams into stdout, in the order of arrival.
    pub merge: bool,
}

/// One command, ready to be framed.
#[derive(Debug, Clone, Copy)]
pub struct Framed<'a> {
    pub nonce: &'a Nonce,
    pub input: FrameInput<'a>,
    pub habits: &'a Habits,
    /// From [`Dialect::way`].
    pub way: EvalMode,
    /// What `$?` is at first: the exit code of the command before.
    pub status: i32,
    pub pipes: &'a Pipes,
    /// Whether the shell may hold so many variables that listing them takes care.
    pub holds_much: bool,
    /// Whether the shell may not have read the command before to its end.
    pub misread: bool,
    /// Where the start is marked already; the shell marks the others.
    pub marked: Marked,
    /// Whether the shell marks the end on stderr too, which we do otherwise.
    pub marks_end: bool,
}

/// Streams of a command whose start we have marked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Marked {
    pub stdout: bool,
    pub stderr: bool,
}

/// The names under which an interpreter opens its three streams.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipes {
    /// Where it reads its commands from.
    pub commands: PathBuf,
    /// What its commands print into.
    pub stdout: PathBuf,
    pub stderr: PathBuf,
    /// A file that bash may write to and read back.
    pub names: Option<PathBuf>,
}

impl Pipes {
    /// A directory, and the names of the three in it. It is empty if the names are too short to be only ours.
    pub(crate) fn in_dir(&self) -> (&str, [&str; 3]) {
        let Pipes { commands, stdout, stderr, names: _ } = self;
        let paths = [commands, stdout, stderr].map(|path| path.to_str().unwrap_or_default());
        let [first, ..] = paths;
        let dir = first.rfind('/').map_or("", |at| &first[..=at]);
        let in_dir = paths.map(|path| path.strip_prefix(dir).unwrap_or_default());
        if in_dir.iter().all(|name| name.len() >= TELLING_NAME) { (dir, in_dir) } else { ("", paths) }
    }
}

/// What a command may switch on that would otherwise act on the frame: put aside between commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Habits {
    /// Option letters for `set -`.
    options: String,
    /// Whether bash remembers lines.
    history: bool,
    /// The descriptor that bash traces into, where that is not stderr.
    trace: Option<u32>,
    /// The quoted actions of bash's ERR and DEBUG traps.
    err_trap: Option<String>,
    debug_trap: Option<String>,
    /// Whether bash has an EXIT trap. That one stays where it is.
    exit_trap: bool,
    command: CommandWord,
    /// Whether the shell may still have something to say of a process of before.
    talks: bool,
}

/// What the word `command` means to bash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum CommandWord {
    /// It has not said yet.
    #[default]
    Unknown,
    Builtin,
    Function,
}

/// What the shell says first after a command: all that its caller waits for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub exit_code: i32,
    /// What the shell holds for its directory: its variable, which a script can set to anything.
    pub cwd: PathBuf,
    /// Whether the command was begun: not where its first line could not be read.
    pub begun: bool,
}

/// What the shell says of itself behind that, for the next command and for a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// None where the command could not be read: then none were taken up, and those that held before still do.
    pub habits: Option<Habits>,
    /// The text of `export -p`.
    pub exports: Vec<u8>,
}

impl Dialect {
    /// The first lines a new shell gets.
    pub fn setup(self) -> String {
        let signal = STOP_SIGNAL.as_raw();
        match self {
            Dialect::Bash => {
                let stop = quote(BASH_STOP);
                // Under the name of sh it would be a POSIX shell, which a bad command ends.
                let name = "[[ $BASH == */sh ]]&&\\builtin set +o posix";
                format!("__ctx= BASH_ARGV0=bash;{name};\\builtin trap {stop} {signal}\n")
            }
            Dialect::Posix => format!("__ctx=;\\trap {} {signal}\n", quote(POSIX_STOP)),
        }
    }

    /// Whether the shell runs a command of this length faster from a file: a POSIX shell has no bulk read.
    pub fn wants_file(self, command: &str) -> bool {
        self == Dialect::Posix && command.len() > QUOTED_BYTES_MAX
    }

    /// How a command comes to run. A POSIX shell has one way.
    pub fn way(self, habits: &Habits, command: &str) -> EvalMode {
        match self {
            Dialect::Bash => EvalMode::of(habits, command),
            Dialect::Posix => EvalMode::Eval,
        }
    }

    /// What stands before the command on its first line, and bash shows with that line where it cannot read it. It
    /// begins with taking back a variable: where that is still set behind the command, none of it was run.
    pub fn before(self, framed: &Framed<'_>) -> String {
        match self {
            Dialect::Bash => bash::before(framed),
            Dialect::Posix => match framed.before("\\command") {
                before if before.is_empty() => before,
                before => format!("\\command unset -v __ctx_h;{before}"),
            },
        }
    }

    /// The command that runs a file in the shell itself.
    pub fn source(self, file: &Path) -> String {
        format!("\\command . {}", path_word(file, quote))
    }

    /// Whether we may mark where the command's output starts, which is faster. Not allowed when the shell may print
    /// something of its own before, or when the bytes that bash has read do not show whether the command started.
    pub fn may_be_marked(self, framed: &Framed<'_>) -> bool {
        self == Dialect::Bash && framed.habits.is_quiet() && bash::is_read_before_run(framed)
    }

    /// The bytes that make a shell report the command's end after it has left the frame. A POSIX shell never leaves it.
    pub fn rescue(self, framed: &Framed<'_>) -> Option<String> {
        match self {
            Dialect::Bash => Some(bash::rescue(framed)),
            Dialect::Posix => None,
        }
    }

    /// Whether the shell may have given up a text in the middle: that is status 2, but for one that the command had it
    /// read besides.
    pub fn may_misread(self, way: EvalMode, exit_code: i32) -> bool {
        self == Dialect::Bash && (exit_code == 2 || way == EvalMode::Sourced)
    }

    /// The bytes that run a command.
    pub fn frame(self, framed: &Framed<'_>) -> Vec<u8> {
        match self {
            Dialect::Bash => bash::frame(framed),
            Dialect::Posix => posix_frame(framed),
        }
        .into_bytes()
    }
}

/// The command's exit code for a shell that cannot go on. It is noted while a redirection is expanded, which needs no
/// descriptor and is not traced.
pub(crate) const CODE: &str = "\"${__ctx_c-1}\"";

fn posix_frame(framed: &Framed<'_>) -> String {
    let nonce = framed.nonce.as_str();
    let command = match framed.input.file {
        Some(file) => Dialect::Posix.source(file),
        None => framed.input.command.to_owned(),
    };
    let before = Dialect::Posix.before(framed);
    let set = if before.is_empty() { "" } else { "__ctx_h=;" };
    let body = quote(&format!("\\command eval {}", quote(&format!("{before}{command}"))));
    let stdin = framed.input.stdin.map_or_else(|| "/dev/null".to_owned(), |path| path_word(path, quote));
    let out = path_word(&framed.pipes.stdout, quote);
    let err = if framed.input.merge { "&1".to_owned() } else { path_word(&framed.pipes.stderr, quote) };
    let end = match framed.marks_end {
        true => format!("\\command printf '\\36%sE' {nonce} >{};", path_word(&framed.pipes.stderr, quote)),
        false => String::new(),
    };
    // `command eval`: a syntax error or a stop ends the command, not the shell. Twice, because a stop that breaks an
    // `open` of `exec` ends the inner one before it is known. Where `__ctx` is still set behind
    // it, the streams could not be opened and nothing was run; where `__ctx_h` is, its first line could not be read.
    format!(
        "\\command printf '\\36%sS' {nonce} >&2;\\command printf '\\36%sS' {nonce};\
         {{ \\command unset -v __ctx;{set}\\command eval {body};}}<{stdin} >{out} 2>{err};\
         {{ __ctx=${{__ctx+lost}}$? __ctx_o=${{__ctx_o-$-}};\\command set +xv;\
         case $__ctx in(lost*)\\command exit 1;;esac;{end}\
         \\command printf '\\36%sE%s\\0%s\\0%s\\0' {nonce} \"$__ctx\" \"$__ctx_o${{__ctx_h+!}}\" \
         \"${{PWD-}}\";}}<&$(((__ctx_c=$?)*0)) 2>{NOWHERE}\
         ||\\command exit {CODE};\
         \\command printf '\\0';\\command unset -v __ctx_o __ctx_h __ctx_c;\
         \\command export -p;\\command printf '\\36%s.' {nonce}\n"
    )
}

impl Framed<'_> {
    /// What brings back what held before: the habits and the status. The word is what leads to a builtin.
    pub(crate) fn before(&self, word: &str) -> String {
        let mut text = self.habits.before(word);
        let hidden = self.habits.trace.map(|trace| format!(" {trace}>/dev/null")).unwrap_or_default();
        // Neither of them is a failure to `set -e` and to an ERR trap.
        match self.status {
            0 => {}
            1 => text.push_str(&format!("{{ {word} false&&{word} :;}} >/dev/null 2>&1{hidden};")),
            status => {
                text.push_str(&format!("{{ ({word} exit {status})&&{word} :;}} >/dev/null 2>&1{hidden};"));
            }
        }
        text
    }
}

impl Habits {
    pub(crate) fn has_option(&self, letter: char) -> bool {
        self.options.contains(letter)
    }

    /// Whether bash says nothing of its own before it comes to the next command.
    pub(crate) fn is_quiet(&self) -> bool {
        self.command != CommandWord::Unknown && !self.talks
    }

    /// After a stop, which uses the DEBUG trap for itself: the one that held before the command holds again. bash will
    /// say what it has lost.
    pub fn with_debug_trap_of(self, before: Habits) -> Habits {
        Habits { debug_trap: before.debug_trap, talks: true, ..self }
    }

    /// What switches them on again, to stand on the command's first line. In this order none of them sees
    /// the others being switched on.
    fn before(&self, word: &str) -> String {
        let mut text = String::new();
        if let Some(action) = &self.err_trap {
            text.push_str(&format!("\\builtin trap -- {action} ERR;"));
        }
        if self.history {
            text.push_str(&format!("{word} set -o history;"));
        }
        if !self.options.is_empty() {
            text.push_str(&format!("{word} set -{};", self.options));
        }
        if let Some(action) = &self.debug_trap {
            text.push_str(&format!("{{ \\builtin trap -- {action} DEBUG;}} 2>/dev/null;"));
        }
        text
    }

    /// From the option letters, bash's descriptor for traces and its names of options, and the traps.
    fn read(options: &str, traps: &str) -> Habits {
        let mut words = options.splitn(3, ' ');
        let letters = words.next().unwrap_or_default();
        let trace = words.next().and_then(|descriptor| descriptor.parse().ok());
        let history = words.next().is_some_and(|names| names.split(':').any(|name| name == "history"));
        // A command is stopped without `set -e`, which holds again afterwards.
        let options = letters.chars().filter(|letter| "exv".contains(*letter)).collect();
        let command = if letters.contains(SHADOWED) { CommandWord::Function } else { CommandWord::Builtin };
        let talks = letters.contains(WITH_JOBS);
        let mut habits = Habits { options, history, trace, command, talks, ..Habits::default() };
        let mut rest = traps;
        // Anything that is not exactly what `trap -p` prints is never given back to a shell.
        while let Some(trap) = rest.strip_prefix("trap -- ") {
            // What is not set is listed as well in posix mode.
            let unset = ["- ERR\n", "- DEBUG\n", "- EXIT\n"];
            if let Some(after) = unset.iter().find_map(|unset| trap.strip_prefix(unset)) {
                rest = after;
                continue;
            }
            let Some((action, after)) = quoted_word(trap) else { break };
            let Some((name, after)) = after.split_once('\n') else { break };
            match name {
                " ERR" => habits.err_trap = Some(action.to_owned()),
                " DEBUG" => habits.debug_trap = Some(action.to_owned()),
                " EXIT" => habits.exit_trap = true,
                _ => break,
            }
            rest = after;
        }
        habits
    }
}

impl Answer {
    /// Reads the beginning of what the shell says; `None` where something else was printed into it.
    pub fn parse(bytes: &[u8]) -> Option<Answer> {
        let [exit_code, options, cwd, _] = fields(bytes)?;
        let exit_code = std::str::from_utf8(exit_code).ok()?.parse().ok()?;
        let begun = !options.contains(&(UNBEGUN as u8));
        Some(Answer { exit_code, cwd: PathBuf::from(OsStr::from_bytes(cwd)), begun })
    }
}

impl Report {
    /// Reads all of what the shell says; `None` where something else was printed into it.
    pub fn parse(bytes: &[u8]) -> Option<Report> {
        let begun = Answer::parse(bytes)?.begun;
        let [_, options, _, rest] = fields(bytes)?;
        let at = rest.iter().position(|byte| *byte == 0)?;
        let (traps, exports) = rest.split_at_checked(at)?;
        let habits = Habits::read(&String::from_utf8_lossy(options), &String::from_utf8_lossy(traps));
        Some(Report { habits: begun.then_some(habits), exports: exports.get(1..)?.to_vec() })
    }
}

/// Exit code, options, directory, and the rest.
fn fields(bytes: &[u8]) -> Option<[&[u8]; 4]> {
    let mut fields = bytes.splitn(4, |byte| *byte == 0);
    Some([fields.next()?, fields.next()?, fields.next()?, fields.next()?])
}

/// Whether one of these words stands in a command, as far as that is visible without a parser.
pub(crate) fn holds_word(command: &str, words: &[&str]) -> bool {
    let bytes = command.as_bytes();
    let is_edge = |at: Option<usize>| {
        at.and_then(|at| bytes.get(at)).is_none_or(
            |byte| matches!(byte, b'\t'..=b'\r' | b' ' | b'"' | b'&'..=b')' | b';' | b'`' | b'{'..=b'}'),
        )
    };
    // A long command is looked through for many words.
    words.iter().any(|word| {
        memchr::memmem::find_iter(bytes, word.as_bytes())
            .any(|at| is_edge(at.checked_sub(1)) && is_edge(at.checked_add(word.len())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_for_bash_counts_the_bytes_it_sends() {
        let nonce = Nonce::new(7);
        let habits = Habits::default();
        let pipes = Pipes {
            commands: "/run/ü/in".into(),
            stdout: "/run/ü/out".into(),
            stderr: "/run/ü/err".into(),
            names: Some("/run/ü/names".into()),
        };
        let framed = Framed {
            nonce: &nonce,
            input: FrameInput { command: "echo 'grüße'\n", ..FrameInput::default() },
            habits: &habits,
            way: Dialect::Bash.way(&habits, "echo 'grüße'\n"),
            status: 3,
            pipes: &pipes,
            holds_much: true,
            misread: false,
            marked: Marked::default(),
            marks_end: true,
        };
        let frame = String::from_utf8(Dialect::Bash.frame(&framed)).unwrap();
        let (first, text) = frame.split_once('\n').unwrap();
        let count: usize = first.split("-rN").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert_eq!(count, text.len());
        assert!(text.is_ascii());
    }

    #[test]
    fn words_are_told_from_what_holds_their_letters() {
        for command in
            ["set", "set -e", "a;set", "x\nset\n", "reset; set", "(set)", "\"set\"", "`set`", "a|set"]
        {
            assert!(holds_word(command, &["other", "set"]), "{command}");
        }
        for command in ["", "reset", "sets", "set-x", "/set", "se t", "offset=1", "$set"] {
            assert!(!holds_word(command, &["other", "set"]), "{command}");
        }
        assert!(holds_word("a; . x", &["."]) && !holds_word("cd ..; ./x", &["."]));
    }

    #[test]
    fn a_report_is_read_and_a_spoilt_one_refused() {
        let traps = "trap -- 'echo \"it'\\''s\"' DEBUG\ntrap -- 'echo\nE' ERR\n";
        let bytes = format!("3\0hxBs 9 braceexpand:history:xtrace\0/srv/app\0{traps}\0declare -x A=\"1\"\n");
        let answer = Answer { exit_code: 3, cwd: "/srv/app".into(), begun: true };
        assert_eq!(Answer::parse(bytes.as_bytes()), Some(answer.clone()));
        assert_eq!(Answer::parse(b"3\0hxBs\0/srv/app\0"), Some(answer), "the rest may come later");
        let report = Report::parse(bytes.as_bytes()).unwrap();
        assert_eq!(
            report.habits.unwrap().before("\\builtin"),
            "\\builtin trap -- 'echo\nE' ERR;\\builtin set -o history;\\builtin set -x;{ \\builtin trap -- 'echo \"it'\\''s\"' DEBUG;} 2>/dev/null;"
        );
        assert_eq!(report.exports, b"declare -x A=\"1\"\n");
        let unread = Report::parse(b"2\0hB!  braceexpand\0/srv/app\0\0").unwrap();
        assert_eq!(unread.habits, None, "what held before still holds");
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
            "trap -- 'x' USR1\n",
            "trap -- x DEBUG\n",
            "trap -- 'x'$(rm) DEBUG\n",
            "trap -- 'x DEBUG\n",
        ] {
            assert_eq!(Habits::read("", not), Habits::read("", ""), "{not}");
        }
    }
}
