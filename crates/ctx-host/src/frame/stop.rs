//! The words that stop a command without losing its shell: a trap on a signal that nothing else uses.
//!
//! Who sends the signal is the transport's business, and when is that of `run`.

use super::Dialect;

/// The signal that stops a command: no program sends it, and its default action ends what `exec` put in
/// the shell's place.
pub const STOP_SIGNAL: rustix::process::Signal = rustix::process::Signal::STKFLT;

/// Behind the name of a file to redirect to: nothing, but a trace with a descriptor of its own goes to stderr from
/// here on. Expanding a redirection is the one thing that a trace does not show.
macro_rules! trace_to_stderr {
    () => {
        r#""${BASH_XTRACEFD:+${-:(__ctx_x=${__ctx_x-BASH_XTRACEFD},BASH_XTRACEFD=2,0):0}}""#
    };
}

/// Redirects the shell itself. `command` keeps a failure from ending the shell; where it is a function, it would keep
/// the redirection to itself.
macro_rules! exec_in_shell {
    ($redirection:literal) => {
        concat!(
            r"{ \builtin declare -F command >/dev/null&&\exec ",
            $redirection,
            r"||\command exec ",
            $redirection,
            ";}"
        )
    };
}

/// Skips one command after another, up to the frame's own, and takes back there what the stop has set. With the status
/// 2, which is that of a bad test, bash also returns from the function or sourced script that it is in; elsewhere it
/// must leave its loops.
macro_rules! skip {
    () => {
        concat!(
            r#"case $BASH_COMMAND in(__ctx=*)\builtin trap - DEBUG;"#,
            r#"[[ ${__ctx_d+x} ]]||{ \builtin shopt -u extdebug;"#,
            r#"[[ $__ctx_o == *E* ]]&&\builtin set -E;[[ $__ctx_o == *T* ]]&&\builtin set -T;};"#,
            r#"\builtin :;;"#,
            r#"(*)[[ ${BASH_SOURCE[1]+x} ]]||\builtin break 9999;[ x x ];;esac 2>/dev/null"#
        )
    };
}

/// bash judges the end of a child before it runs this: under `set -e` the shell is lost by then, unless it returns from a
/// function or a sourced script. So what may be under `set -e` is run as such a script.
///
/// A builtin that waits for input, such as `read`, begins again when a signal has broken its wait: so its input, which
/// it has by a redirection mostly, is made an empty one. The redirection is taken back as ever when it ends. Out of one
/// that has a descriptor by its number (`read -u 5`) bash only comes by a return.
pub const BASH_STOP: &str = concat!(
    r#"{ [[ ! ${__ctx+x} ]]&&{ [[ ${__ctx_o+x} ]]||{ __ctx_o=$-;\builtin shopt -q extdebug&&__ctx_d=;};"#,
    r#"\builtin set +exv;"#,
    exec_in_shell!("</dev/null"),
    r#";\builtin shopt -s extdebug;\builtin trap '"#,
    skip!(),
    r#"' DEBUG;\builtin :;};} >/dev/null 2>/dev/null"#,
    trace_to_stderr!()
);

pub const POSIX_STOP: &str =
    r#"{ case ${__ctx+x} in(x);;(*)__ctx_o=$-;\command set +exv;${9999?};;esac;} 2>/dev/null"#;

/// The same, for the frame.
pub const TRACE_TO_STDERR: &str = trace_to_stderr!();

/// Takes out of what a stopped command printed what `set -v` has shown of the stop.
pub fn without_stop(dialect: Dialect, stderr: String) -> String {
    match dialect {
        Dialect::Bash if stderr.contains(BASH_STOP) => {
            [BASH_STOP, skip!()].iter().fold(stderr, |text, own| text.replace(&format!("{own}\n"), ""))
        }
        Dialect::Bash | Dialect::Posix => stderr,
    }
}
