//! The frame around a command of bash: the ways into the shell, and what stands before and behind the command.
//!
//! It keeps the rules of the module above. There are three modes, because none of them suits every command:
//!
//! - By `eval`, where nothing shows the difference. It is the fastest. A text that bash may not survive (`syntax_guard`)
//!   is tried in a subshell first, and stays in one where it cannot be read.
//! - As a sourced script, where `set -e` may be on: the end of a child that was stopped would end the shell otherwise.
//! - As lines of the shell's own script, where a trace or an EXIT trap would show that the command runs in an `eval`:
//!   the one by its depth, the other by `$BASH_COMMAND`. What cannot be read would end the shell there, so the text is
//!   read as the body of two functions first, and goes by `eval` where either fails.

use std::path::Path;

use super::failure::{NO_EXEC, NOWHERE};
use super::quote::{ansi_quote, path_word};
use super::stop::TRACE_TO_STDERR;
use super::syntax_guard::{is_doubtful, is_torn};
use super::{CODE, CommandWord, Framed, Habits, SHADOWED, UNBEGUN, WITH_JOBS, holds_word};

/// A longer command is handed to bash unquoted.
pub(crate) const QUOTED_BYTES_MAX: usize = 4 << 10;

/// A longer command is not read twice, but where it surely cannot be read.
const TRIED_BYTES_MAX: usize = 64 << 10;

/// A text that was put aside.
const LONG: &str = "\"$__ctx_long\"";

/// How a command comes to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EvalMode {
    Eval,
    /// The same, where it can be read.
    Tried,
    Sourced,
    Script,
}

impl EvalMode {
    /// Looks through the whole command, some times.
    pub(crate) fn of(habits: &Habits, command: &str) -> EvalMode {
        if ends_by_return(habits, command) {
            EvalMode::Sourced
        } else if is_shown(habits, command) && may_stand_in_the_script(habits, command) {
            EvalMode::Script
        } else if is_to_be_tried(command) {
            EvalMode::Tried
        } else {
            EvalMode::Eval
        }
    }
}

/// Whether bash could not be stopped in this command but by a return: where it may come to its end by `set -e`, and
/// where it may wait for a descriptor that a builtin reads by its number.
fn ends_by_return(habits: &Habits, command: &str) -> bool {
    // A `select` that is to break ends by its input, and the break would hit the frame.
    let sets = ["shopt", "source", "eval", "select"];
    let reads = ["read", "mapfile", "readarray"];
    habits.has_option('e')
        || holds_word(command, &sets)
        || has_dot_command(command)
        || may_set(command, 'e', "errexit")
        || (command.contains('u') && holds_word(command, &reads))
}

/// Whether something may show what the command runs in.
fn is_shown(habits: &Habits, command: &str) -> bool {
    let traps_exit =
        || holds_word(command, &["trap"]) && (command.contains("EXIT") || holds_word(command, &["0"]));
    habits.has_option('x') || habits.exit_trap || may_set(command, 'x', "xtrace") || traps_exit()
}

/// Not where bash shows or remembers the lines that it reads, or where a line may change how the next are read.
fn may_stand_in_the_script(habits: &Habits, command: &str) -> bool {
    let shows_lines = habits.has_option('v') || may_set(command, 'v', "verbose");
    let remembers = habits.history || command.contains("history");
    !(is_long(command) || shows_lines || remembers || holds_word(command, &["alias", "unalias"]))
}

fn is_to_be_tried(command: &str) -> bool {
    is_torn(command) || command.len() <= TRIED_BYTES_MAX && is_doubtful(command)
}

/// Whether bash has all of the frame before it comes to the command.
pub(crate) fn is_read_before_run(framed: &Framed<'_>) -> bool {
    framed.way != EvalMode::Script
}

fn is_long(command: &str) -> bool {
    command.len() > QUOTED_BYTES_MAX
}

/// Whether a `.` may stand where a command begins. That of `find . -name x` does not.
fn has_dot_command(command: &str) -> bool {
    let openers = ["then", "do", "else", "elif", "if", "while", "until", "time", "builtin", "command"];
    command.match_indices(['.']).any(|(at, _)| {
        let (before, after) = (&command[..at], &command[at + 1..]);
        let word = before.trim_end_matches([' ', '\t']);
        let begins = word.is_empty()
            || word.ends_with(['\n', ';', '&', '|', '(', ')', '{', '`', '!', '"', '\''])
            || word.len() < before.len() && openers.iter().any(|opener| word.ends_with(opener));
        begins && after.starts_with([' ', '\t', '"', '\'', '$'])
    })
}

/// How far behind a `set` its arguments are looked for; a command may be full of that word.
const SET_BYTES_MAX: usize = 1 << 10;

/// Whether a `set` in a command may switch this option on, as far as that is visible without a parser.
fn may_set(command: &str, letter: char, name: &str) -> bool {
    let is_word_end =
        |byte: Option<char>| byte.is_none_or(|byte| !byte.is_alphanumeric() && !"_-./=".contains(byte));
    command.match_indices("set").any(|(at, word)| {
        let (before, rest) = (&command[..at], &command[at + word.len()..]);
        if !is_word_end(before.chars().next_back()) || !is_word_end(rest.chars().next()) {
            return false;
        }
        let near = &rest[..rest.floor_char_boundary(SET_BYTES_MAX)];
        let arguments = near.split([';', '\n', '&', '|', ')']).next().unwrap_or_default();
        let is_cut = arguments.len() == near.len() && near.len() < rest.len();
        let unknown = arguments.contains(['$', '`', '"', '\'', '\\', '{', '*', '?']);
        let has_letter = |word: &str| word.starts_with('-') && word.contains(letter);
        is_cut || unknown || arguments.contains(name) || arguments.split_whitespace().any(has_letter)
    })
}

/// What stands before the command, on a line of its own: so bash shows nothing of it with a line that it cannot read,
/// and `set -v` shows all of the command. Not in a sourced script, where `set -e` would end the shell behind such a line:
/// there it is on the command's first line, and begins with taking back a variable. Where that is still set behind the
/// command, none of it was run.
pub(crate) fn before(framed: &Framed<'_>) -> String {
    let (before, take_back) = (framed.before("\\builtin"), "\\builtin unset -v __ctx_long;\\builtin :;");
    match framed.way {
        EvalMode::Sourced => format!("{take_back}{before}"),
        EvalMode::Eval if !is_long(framed.input.command) => format!("{before}\n"),
        EvalMode::Eval | EvalMode::Tried | EvalMode::Script => format!("{take_back}{before}\n"),
    }
}

pub(crate) fn frame(framed: &Framed<'_>) -> String {
    let (before, long) = (before(framed), is_long(framed.input.command));
    let open = open(framed);
    let quoted = || match long {
        true => format!("{}{LONG}", ansi_quote(&before)),
        false => ansi_quote(&format!("{before}{}", framed.input.command)),
    };
    let start = match framed.way {
        EvalMode::Script => return in_script(framed, &before),
        EvalMode::Sourced => {
            let script = ansi_quote(&format!("{open};{}", eval(framed.input.command)));
            let script = exec(framed, &format!("<<<{script}"));
            format!("__ctx_long={};{script}||\\builtin exit 1;\\builtin . /dev/stdin", quoted())
        }
        EvalMode::Tried => {
            format!("{open};__ctx_long={};{}", one_line(&quoted()), tried(framed.input.command))
        }
        EvalMode::Eval => format!("{open};\\builtin eval {}", quoted()),
    };
    let text = format!("{}{start};{}", marks(framed), behind(framed));
    if long {
        let read = read_long(framed.input.command.len());
        run(framed, &text, &format!("{read};"), framed.input.command)
    } else {
        run(framed, &text, "", "")
    }
}

/// The end of the frame, for a bash that has left the command and the frame with it: an error in an expression, such as
/// that in `a[x.y]=1`, has it go on with the next line of its script. Where it has not come to the command, and the
/// frame's own text is still there, it could not run another either, and ends.
pub(crate) fn rescue(framed: &Framed<'_>) -> String {
    let checks =
        "[[ $__ctx != lost* ]]||\\builtin exit 1;[[ $SHELLOPTS != *history* ]]||\\builtin history -d -1;";
    line_of(&behind_from(framed, "${__ctx+lost}$?", checks))
}

/// A text as a line of the script, behind which lines are counted as ever.
fn line_of(text: &str) -> String {
    format!("{text};{{ \\builtin :;}}{LINES_BACK}\n")
}

/// The command as lines of the script that the shell reads, between the beginning of the frame and its end.
fn in_script(framed: &Framed<'_>, before: &str) -> String {
    let command = framed.input.command;
    let lines = format!("{before}{command}\n");
    // No text leaves both bodies before their ends.
    let body = one_line(&ansi_quote(command));
    let [braces, parentheses] = [("{", "}"), ("(", ")")].map(|ends| reads_as_function(ends, &body));
    let eval = eval(command);
    let (open, read) = (open(framed), read_long(lines.len()));
    let text = format!(
        "{}{{ {braces}&&{parentheses};}} 2>/dev/null&&{{ {open};}}||{{ {read};{open};\
         {eval}||{{ (($?==2))&&{}&&\\builtin :;}} 2>/dev/null;}}",
        marks(framed),
        clears(framed),
    );
    // The empty line is for what could not be read: behind it bash takes no brace for the beginning of a group.
    run(framed, &text, "", &format!("{lines}\n{}", line_of(&behind(framed))))
}

/// Runs a text that was put aside.
fn eval(command: &str) -> String {
    if is_to_be_tried(command) { tried(command) } else { format!("\\builtin eval {LONG}") }
}

/// The same for one that bash may not survive. It is left to a subshell, which bash may end, where it cannot be read because of a
/// substitution: that is where one has no end, or where the status is not the 2 of other texts that cannot be read. A
/// script that bash gives up for a syntax error ends with 2, the subshell with 1.
fn tried(command: &str) -> String {
    let reads = reads(LONG);
    let fits = if is_torn(command) { "" } else { "{ (($?==2))&&[[ $__ctx_r != *\"matching \\`)'\"* ]];}||" };
    // What it switches on itself counts for its later lines.
    let other = if command.contains("extglob") {
        format!("(\\builtin shopt -s extglob;{reads}) 2>/dev/null||")
    } else {
        String::new()
    };
    let code = "'||(\\builtin exit \"$(($?==1?2:$?))\")'";
    format!(
        "__ctx_r=$(LC_ALL=C;{reads} 2>&1)||{fits}{other}{{ \\builtin printf -v __ctx_long '(\\\\builtin eval %q)' {LONG};\
         [[ $__ctx_r != *'syntax error'* ]]||__ctx_long+={code};}};\
         \\builtin unset -v __ctx_r;\\builtin eval {LONG}"
    )
}

/// The same quoted text: lines of the frame would count before those of the command.
fn one_line(quoted: &str) -> String {
    quoted.replace('\n', "\\n")
}

/// Succeeds where a text can be read. None of it runs. To stand in a subshell, where nothing runs any more behind it.
fn reads(text: &str) -> String {
    format!("\\builtin eval $'\\\\builtin set -n\\n'{text}")
}

/// The same where it is read as the body of a function, in a subshell of its own.
fn reads_as_function((begin, end): (&str, &str), body: &str) -> String {
    format!("({}$'\\n{end}')", reads(&format!("$'__ctx_f(){begin}\\n'{body}")))
}

/// Says on the streams where that is not said that the command starts.
fn marks(framed: &Framed<'_>) -> String {
    let nonce = framed.nonce.as_str();
    let mark = format!("\\builtin printf '\\36%sS' {nonce}");
    let stderr = if framed.marked.stderr { String::new() } else { format!("{mark} >&2;") };
    let stdout = if framed.marked.stdout { String::new() } else { format!("{mark};") };
    stderr + &stdout
}

/// Gives the command its input. The `:` is for `$_`, which would be the frame's word otherwise.
fn open(framed: &Framed<'_>) -> String {
    let stdin = framed.input.stdin.map_or_else(|| "/dev/null".to_owned(), |path| path_word(path, ansi_quote));
    let merge = if framed.input.merge { " 2>&1" } else { "" };
    let input = exec(framed, &format!("<{stdin}{merge}"));
    format!("{input}||\\builtin exit 1;\\builtin unset -v __ctx;\\builtin :")
}

/// Reads what is too long to be quoted. In the C locale characters and bytes count alike.
fn read_long(bytes: usize) -> String {
    format!("{{ LC_ALL=C \\builtin read -rN{bytes} __ctx_long;}} 2>/dev/null")
}

/// Tells the command's end, and what the next one needs.
fn behind(framed: &Framed<'_>) -> String {
    behind_from(framed, "$?", "")
}

/// The same, from another status and with something to be done first.
fn behind_from(framed: &Framed<'_>, status: &str, first: &str) -> String {
    let nonce = framed.nonce.as_str();
    let list = list(framed.pipes.names.as_deref().filter(|_| framed.holds_much));
    let (dir, [commands, out, err]) = framed.pipes.in_dir();
    // bash is the slower the more it reads.
    let word = |name: &str| format!("\"$__ctx_p\"{}", ansi_quote(name));
    let (dir, commands, out, err) = (ansi_quote(dir), word(commands), word(out), word(err));
    let streams = format!("<{commands} >{out} 2>{err}");
    let end = match framed.marks_end {
        true => format!("\\builtin printf '\\36%sE' {nonce} >{err};"),
        false => String::new(),
    };
    let (shadowed, trace) = (exec_by_name(&streams, &err, CODE), TRACE_TO_STDERR);
    format!(
        "{{ __ctx={status} __ctx_f=0 __ctx_o=${{__ctx_o-$-}} __ctx_p={dir};\\builtin set +xv;{first}\\builtin enable printf;\
         [[ ${{__ctx_x-}} ]]&&BASH_XTRACEFD=$__ctx_x;\\builtin declare -F command&&__ctx_f={SHADOWED};{end}\
         \\builtin printf '\\36%sE%s\\0%s %s %s\\0%s\\0' {nonce} \"$__ctx\" \
         \"$__ctx_o$__ctx_f${{!+{WITH_JOBS}}}${{__ctx_long+{UNBEGUN}}}\" \"${{BASH_XTRACEFD-}}\" \"$SHELLOPTS\" \"${{PWD-}}\" >{out};\
         [[ $SHELLOPTS == *history* ]]&&\\builtin set +o history;\
         \\builtin trap -p ERR DEBUG EXIT >{out};\\builtin trap - ERR DEBUG;}}\
         >{NOWHERE}\"${{-:(__ctx_c=$?,0):0}}\" 2>{NOWHERE}{trace};\
         {{ ((${{__ctx_f-0}}))&&{{ {shadowed};}}||\\command exec {streams};}}||\\builtin exit {CODE};\
         \\builtin printf '\\0';\\builtin unset -v __ctx_long __ctx_o __ctx_x __ctx_d __ctx_c __ctx_p __ctx_f;\
         {list};\\builtin printf '\\36%s.' {nonce}"
    )
}

/// Lists the exported variables. `export -p` takes time by the square of the number of all variables, so that some
/// thousands are felt; to ask for the names and then for each is slower for few and fast for any number. What that
/// does not list is unset.
fn list(names: Option<&Path>) -> String {
    let Some(names) = names else { return "\\builtin export -p".to_owned() };
    let names = path_word(names, ansi_quote);
    format!(
        "{{ {{ \\builtin compgen -e;\\builtin printf '\\0';}} 1<>{names}&&\
         IFS=$'\\n' \\builtin read -rd '' -a __ctx_n <{names}&&\\builtin declare -p \"${{__ctx_n[@]}}\";}} 2>/dev/null\
         ||\\builtin export -p;\\builtin unset -v __ctx_n"
    )
}

/// Behind a group: sets bash's line counter back. A redirection is the one place where an assignment to LINENO outlives
/// its command. The next line is line 0 then: there the frame's own stands, and the command's first line is line 1.
const LINES_BACK: &str = r#"<&"$((LINENO=-1,0))""#;

/// A text that cannot be read for another reason than most. bash takes it for the end of whatever it was in: where it
/// gives up a text in the middle of a `[[` or a `case`, it would read the next one as if it was still there. `command`
/// keeps a POSIX bash from ending by it.
fn clears(framed: &Framed<'_>) -> &'static str {
    match framed.habits.command {
        CommandWord::Builtin | CommandWord::Unknown => r"\command eval ')'",
        CommandWord::Function => r"\builtin eval ')'",
    }
}

/// The line that has a text read in bulk and run, the text, and what comes behind it.
fn run(framed: &Framed<'_>, text: &str, then: &str, behind: &str) -> String {
    let count = text.len();
    // Under `set -e` bash would end by it.
    let clears = match framed.misread {
        true => format!("\\builtin set +e;{} 2>/dev/null\n{{ \\builtin :;}}{LINES_BACK}\n", clears(framed)),
        false => String::new(),
    };
    format!(
        "{clears}\\builtin read -rN{count} __ctx;{then}{{ \\builtin eval \"$__ctx\";}}{LINES_BACK}\n{text}{behind}"
    )
}

/// Redirects the shell itself before a command. `command` keeps a failure from ending the shell; where it is a function, it
/// would keep the redirection to itself.
fn exec(framed: &Framed<'_>, redirection: &str) -> String {
    match framed.habits.command {
        CommandWord::Builtin => format!("\\command exec {redirection}"),
        CommandWord::Function => format!("{{ {};}}", exec_by_name(redirection, "&2", "1")),
        CommandWord::Unknown => {
            let shadowed = exec_by_name(redirection, "&2", "1");
            format!(
                "{{ \\builtin declare -F command >{NOWHERE}&&{{ {shadowed};}}||\\command exec {redirection};}}"
            )
        }
    }
}

/// The same where `command` is a function. Where `exec` is one too there is no way, and the shell ends.
fn exec_by_name(redirection: &str, stderr: &str, code: &str) -> String {
    format!(
        "\\builtin declare -F exec >{NOWHERE}&&{{ \\builtin printf \"%s\\n\" \"{NOWHERE}: {NO_EXEC}\" >{stderr};\
         \\builtin exit {code};}};\\exec {redirection}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_that_sources_is_told_from_a_directory() {
        for command in
            [". ./env", "a; . x", "if . x; then", "[ -f x ] && . x", "command . x", "(. x)", "\n. \"$f\""]
        {
            assert!(has_dot_command(command), "{command}");
        }
        for command in
            ["find . -name x", "ls .", "[[ abc =~ b(.) ]]", "echo a. b", "cd ..; ls", "./run x", ".. x", ""]
        {
            assert!(!has_dot_command(command), "{command}");
        }
    }

    #[test]
    fn what_a_set_switches_on_is_told_from_its_words() {
        for (command, letter) in [
            ("set -e", 'e'),
            ("a; set -eux; b", 'e'),
            ("set -o errexit", 'e'),
            ("set -u -e", 'e'),
            ("set $OPTIONS", 'e'),
            ("{ set -e;}", 'e'),
            ("set \"$@\"", 'x'),
            ("builtin set -xv\necho", 'x'),
        ] {
            assert!(may_set(command, letter, "errexit"), "{command}");
        }
        assert!(may_set(&format!("set {}", "a ".repeat(SET_BYTES_MAX)), 'e', "errexit"), "nobody knows");
        let many = "\"offset\": 1, ".repeat(80_000);
        let started = std::time::Instant::now();
        assert!(!may_set(&many, 'e', "errexit"));
        assert!(!may_set(&"set a ".repeat(80_000).replace("a set", "a;set"), 'e', "errexit"));
        assert!(started.elapsed() < std::time::Duration::from_secs(5), "{:?}", started.elapsed());
        for command in
            ["set -x; echo -e", "set +e", "offset -e", "setenv -e", "set -- a b", "x=set; y", "reset -e", ""]
        {
            assert!(!may_set(command, 'e', "errexit"), "{command}");
        }
    }
}
