//! What runs on the other side, in the words of a POSIX shell: nothing has to be installed there.
//!
//! Two channels lead to the other side. The data channel ([`data`]) makes a private directory with three named pipes and
//! copies between them and its own streams, so that an interpreter there opens its streams by name as one on this
//! machine does. The control channel ([`control`]) starts interpreters, signals their processes, and ends all of them when
//! the channel is closed or when no sign of life has come for a while. Both are read by `sh -s` as one group, so
//! that nothing runs before all has arrived.
//!
//! The processes of a shell have a limit of file locks that nobody else has: the kernel counts no locks, and every
//! child inherits the number.

use std::path::Path;
use std::time::Duration;

use crate::frame::exports::Export;
use crate::frame::quote::{quote, quote_bytes};

/// What a channel runs: the login shell of the other side may be of any kind, and this means the same to all of them.
pub(super) const INTERPRETER: &str = "exec sh -s";

/// How often in a row a sign of life may be missing.
const BEATS_MISSED_MAX: u32 = 3;

/// The names of one shell on the other side.
#[derive(Debug, Clone)]
pub(super) struct Names {
    /// Stands before what the scripts say first: a login shell may print anything before that.
    pub hello: String,
    /// The names of the pipes in the directory.
    pub commands: String,
    pub stdout: String,
    pub stderr: String,
    /// The limit that marks the shell's processes.
    pub mark: u64,
}

impl Names {
    /// From random bits.
    pub fn new(bits: u128) -> Names {
        let name = |end: char| format!("{bits:032x}{end}");
        // No other user of that limit would choose a number of twelve digits.
        let mark = 100_000_000_000 + u64::try_from(bits % 800_000_000_000).unwrap_or_default();
        Names { hello: name('h'), commands: name('i'), stdout: name('o'), stderr: name('e'), mark }
    }
}

/// The data channel. It says the directory and the kind of shell on stdout, and that it is there on stderr. It removes the
/// directory where no control channel came to do so.
pub(super) fn data(names: &Names) -> String {
    let Names { hello, commands, stdout, stderr, .. } = names;
    format!(
        r#"{{ umask 077
d=$(mktemp -d "${{TMPDIR:-/tmp}}/ctx-XXXXXXXXXX") && mkfifo "$d/{commands}" "$d/{stdout}" "$d/{stderr}" || exit 71
command -v bash >/dev/null 2>&1 && s=bash || s=sh
exec 7<>"$d/{commands}" 8<>"$d/{stdout}" 9<>"$d/{stderr}"
cat <"$d/{stdout}" 7>&- 8>&- 9>&- & a=$!
cat <"$d/{stderr}" >&2 7>&- 8>&- 9>&- & b=$!
echo "{hello} $s $d"
echo "{hello}" >&2
cat >"$d/{commands}" 7>&- 8>&- 9>&-
kill "$a" "$b" 2>/dev/null
[ -p "$d/starts" ] || rm -rf "$d"
wait
exit; }}
"#
    )
}

/// The control channel. What a shell starts in the background ignores INT and QUIT, and nothing below it can undo that:
/// so the orders are read in the background, and interpreters run in front, one after another. Both channels wait for
/// what they have started, since the first process of a container may not.
///
/// A command substitution or a job that dies of INT takes bash with it; of TERM it does not (`takes_shell`: it has a group of
/// its own, or the interpreter reads what it prints).
///
/// Processes are ordered by the tick in which they started, since process numbers begin again at their maximum. Within one
/// tick the numbers order them: one that is lower by half of the least maximum comes after it. A process is the command's
/// if it is newer than the one before the command and none that it comes from is older: what an earlier background job starts is
/// not. The tick is that of `/proc/uptime`, or of a fresh process where a container has a time of its own there.
/// All are looked at before the first is signalled, because a child whose parent has just died has lost its place.
///
/// Every order is a line, and all but a mark are answered with one; `e` comes by itself when an interpreter has ended.
///
/// | order | meaning | answer |
/// |---|---|---|
/// | `s FILE N` | run this file, which becomes the n-th interpreter | `s PID MARKED ABOVE`, from the file |
/// | `d TEXT` | read the commands that no interpreter has read, up to this line | `d` |
/// | `b` | the newest process, and the tick now | `b PID SINCE` |
/// | `g PID MARKED` | this is the interpreter | `g` |
/// | `k SIGNAL PID SINCE` | interrupt the interpreter, and signal the command's processes: those newer than this one | `k COUNT` |
/// | `c SIGNAL PID SINCE` | signal them again, or count them with the signal 0 | `k COUNT` |
/// | `i` | kill the interpreter | `i` |
/// | `w` | does the interpreter wait for a command? | `w 1` |
/// | `m PIPE TEXT` | put a mark into a pipe | |
/// | `u FILE` | remove a file | `u` |
/// | `p` | a sign of life | `p` |
/// | `q` | end all, as at the end of the channel | |
pub(super) fn control(names: &Names, dir: &str, beat: Duration) -> String {
    let Names { hello, commands, mark, .. } = names;
    let values = [
        ("@DIR@", quote(dir)),
        ("@BEAT@", beat.as_secs().max(1).to_string()),
        ("@BEATS_MISSED_MAX@", BEATS_MISSED_MAX.to_string()),
        ("@MARK@", mark.to_string()),
        ("@HELLO@", hello.clone()),
        ("@COMMANDS@", commands.clone()),
    ];
    values.into_iter().fold(CONTROL.to_owned(), |script, (name, value)| script.replace(name, &value))
}

/// The script of the control channel.
const CONTROL: &str = r#"{ trap : HUP INT TERM QUIT PIPE
d=@DIR@ pid=0 marked=1
mkfifo "$d/starts" && exec 5<&0 6<>"$d/starts" || exit 71
alive() { { IFS= read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1; stat=${stat##*) }; case $stat in Z*) return 1; esac; }
below() { for p; do echo "$p"; below $(cat "/proc/$p/task/"*/children 2>/dev/null); done; }
found() {
    if [ "$marked" = 1 ]; then
        for f in $(grep -lE "^Max file locks +@MARK@ " /proc/[0-9]*/limits 2>/dev/null); do
            f=${f%/limits} f=${f#/proc/}
            alive "$f" && echo "$f"
        done
    elif [ "$pid" != 0 ]; then below "$pid"; fi
}
now() { { read -r since idle </proc/uptime; } 2>/dev/null; since=${since%.*}${since#*.}; }
fresh() { set -- $(IFS= read -r stat </proc/self/stat; echo "${stat%% *} ${stat##*) }"); last=$1 since=${21}; }
newer() {
    set -- "$1" "$2" "$3" $stat
    ahead=$(($1 - $2))
    if [ "${23}" != "$3" ]; then [ "${23}" -gt "$3" ]
    elif [ "$ahead" -gt 0 ]; then [ "$ahead" -lt 16384 ]
    else [ "$ahead" -lt -16384 ]; fi
}
look() {
    all=$(found) new=" " old=" " ours=
    for p in $all; do
        [ "$p" != "$pid" ] && alive "$p" || continue
        if newer "$p" "$1" "$2"; then
            q=${stat#* } new="$new$p "
            eval "above_$p=${q%% *}"
        else old="$old$p "; fi
    done
    for p in $new; do
        q=$p
        while :; do
            eval "q=\$above_$q"
            [ "$q" != "$pid" ] || break
            case $old in *" $q "*) continue 2 ;; esac
            case $new in *" $q "*) ;; *) break ;; esac
        done
        ours="$ours $p"
    done
}
takes_shell() {
    alive "$pid" || return 1
    group=$(set -- $stat; echo "$3")
    alive "$1" || return 1
    set -- "$1" $stat
    [ "$3" = "$pid" ] || return 1
    [ "$4" = "$group" ] || return 0
    out=$(readlink "/proc/$1/fd/1") || return 1
    for f in "/proc/$pid/fd/"*; do
        [ "$(readlink "$f")" = "$out" ] && grep -q '^flags:.*[04]$' "/proc/$pid/fdinfo/${f##*/}" && return 0
    done 2>/dev/null
    return 1
}
signal() {
    look "$2" "$3"
    n=0
    for p in $ours; do
        s=$1
        [ "$s" = INT ] && takes_shell "$p" && s=TERM
        kill "-$s" "$p" 2>/dev/null && n=$((n + 1))
    done
    echo "k $n"
}
waits() {
    { read -r call fd rest <"/proc/$pid/syscall"; } 2>/dev/null || return 1
    case $call in 0 | 63) ;; *) return 1 ;; esac
    [ "$(readlink "/proc/$pid/fd/$((fd))")" = "$d/@COMMANDS@" ]
}
finish() {
    n=0
    while [ "$n" -lt 50 ]; do
        n=$((n + 1)) all=$(found)
        [ -n "$all" ] || break
        kill -STOP $all
        kill -KILL $(found) $all
    done 2>/dev/null
    rm -rf "$d"
}
(
    trap 'kill "$!"; wait; exit 0' TERM
    n=0
    while [ -d "$d" ]; do
        sleep @BEAT@ &
        wait "$!"
        if [ -e "$d/beat" ]; then rm -f "$d/beat"; n=0; else n=$((n + 1)); fi
        [ "$n" -lt @BEATS_MISSED_MAX@ ] || finish
    done
) </dev/null >/dev/null 2>&1 5<&- 6>&- &
watch=$!
{ trap : HUP TERM PIPE
now; a=$since; fresh; b=$since; now
[ "$a" -le "$b" ] && [ "$b" -le "$since" ] && ticks=1 || ticks=0
echo "@HELLO@"
while IFS= read -r line; do
    set -- $line
    case $1 in
    s) echo "$2 $3" >&6 ;;
    g) pid=$2 marked=$3; echo g ;;
    d) while IFS= read -r l; do case $l in *"$2") break ;; esac; done <"$d/@COMMANDS@"; echo d ;;
    b) if [ "$ticks" = 1 ]; then now; read -r a a a a last </proc/loadavg; else fresh; fi; echo "b $last $since" ;;
    k) kill -16 "$pid" 2>/dev/null; signal "$2" "$3" "$4" ;;
    c) signal "$2" "$3" "$4" ;;
    i) kill -KILL "$pid" 2>/dev/null; echo i ;;
    w) waits && echo "w 1" || echo "w 0" ;;
    m) printf '\036%s' "$3" >"$d/$2" ;;
    u) rm -f "$d/$2"; echo u ;;
    p) : >"$d/beat"; echo p ;;
    q) break ;;
    esac
done
finish
kill "$watch" 2>/dev/null
echo end >&6
} <&5 5<&- &
exec 5<&-
while read -r file n && [ "$file" != end ]; do
    sh "$d/$file" 3>&1 </dev/null >/dev/null 2>&1 6>&-
    echo "e $n $?"
done <&6
wait
exit; }
"#;

/// How an interpreter starts on the other side.
#[derive(Debug)]
pub(super) struct Start<'a> {
    pub names: &'a Names,
    pub dir: &'a str,
    pub is_bash: bool,
    /// Empty: where the other side starts.
    pub cwd: &'a Path,
    pub env: &'a [Export],
    /// Whether it replaces one that has ended: then it has these variables alone, and starts in the nearest directory
    /// that is still there.
    pub again: bool,
}

/// What starts an interpreter, as a file: its streams, its mark, its directory, its variables.
pub(super) fn start(start: &Start<'_>) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    let Start { names: Names { commands, stdout, stderr, mark, .. }, dir, is_bash, cwd, env, again } = start;
    let mut script = format!(
        "{{ ulimit -Sx {mark} || ulimit -Sw {mark}; }} 2>/dev/null && m=1 || m=0\n\
         d={0} a=0\nexec <\"$d/{commands}\" >\"$d/{stdout}\" 2>\"$d/{stderr}\"\nd=",
        quote(dir),
    )
    .into_bytes();
    let (tilde, rest) = match cwd.as_os_str().as_bytes() {
        b"~" => (true, &b""[..]),
        path => path.strip_prefix(b"~/").map_or((false, path), |rest| (true, rest)),
    };
    if tilde {
        script.extend(b"\"$HOME\"/");
    }
    quote_bytes(&mut script, rest);
    script.extend(if *again {
        &b"\nuntil cd -- \"$d\" 2>/dev/null; do d=${d%/*}; d=${d:-/} a=1; done\n"[..]
    } else {
        b"\n[ -z \"$d\" ] || cd -- \"$d\" 2>/dev/null || { echo 's 0 0 0' >&3; exit 1; }\n"
    });
    script.extend(b"echo \"s $$ $m $a\" >&3\nexec 3>&- env");
    if *again {
        script.extend(b" -i");
    }
    for Export { name, value } in *env {
        script.push(b' ');
        quote_bytes(&mut script, &[name.as_bytes(), b"=", value].concat());
    }
    script.extend(if *is_bash { &b" bash --norc --noprofile /dev/stdin\n"[..] } else { b" sh\n" });
    script
}
