//! A script in a shell does what it does in a plain bash: stdout, stderr, exit code, cwd and exports.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use ctx_host::{ExecRequest, Output, OutputRequest};
use proptest::prelude::*;

use super::support::{Bench, Kind, for_random};

/// Shown as text where they are.
#[derive(PartialEq, Eq)]
struct Bytes(Vec<u8>);

impl std::fmt::Debug for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    stdout: Bytes,
    stderr: String,
    exit_code: i32,
    /// None where the script has ended its shell, or what would ask is a part of its last line.
    left: Option<(String, BTreeMap<String, Option<String>>)>,
}

/// Behind a script: puts its traps and options away and writes down what it leaves.
pub(super) const ASK: &str = "\n{ ctx_rc=$?; set +exuv; trap - DEBUG ERR EXIT; } >/dev/null 2>&1
builtin printf '%s\\0' \"$ctx_rc\" \"$PWD\" >\"$CTX_ASK\"; env -0 >>\"$CTX_ASK\"";

/// What a script has made of the environment of this process: values that are new or other, and names that are gone.
fn exports(bytes: &[u8]) -> BTreeMap<String, Option<String>> {
    let text = String::from_utf8_lossy(bytes);
    let pairs: BTreeMap<&str, &str> = text.split('\0').filter_map(|pair| pair.split_once('=')).collect();
    let ours = std::env::vars().filter(|(name, _)| !pairs.contains_key(name.as_str()));
    let changed = pairs.iter().filter(|(name, value)| std::env::var(name).ok().as_deref() != Some(**value));
    let changed = changed.map(|(name, value)| ((*name).to_owned(), Some((*value).to_owned())));
    let own = ["_", "CTX_ASK", "PWD"];
    changed
        .chain(ours.map(|(name, _)| (name, None)))
        .filter(|(name, _)| !own.contains(&name.as_str()))
        .collect()
}

fn plain(script: &str, dir: &Path) -> Seen {
    let ask = dir.join("ask");
    let file = dir.join("script");
    let ask_it = if ends_open(script) { "" } else { ASK };
    std::fs::write(&file, format!("{script}{ask_it}\n")).unwrap();
    let output = Command::new("bash")
        .arg("--norc")
        .arg(&file)
        .env("CTX_ASK", &ask)
        .current_dir(dir.join("work"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let left = std::fs::read(&ask).ok().map(|bytes| split_report(&bytes));
    let exit_code = left.as_ref().map_or(output.status.code().unwrap_or(-1), |left| left.0);
    let stderr = String::from_utf8_lossy(&output.stderr).replace(&file.display().to_string(), "bash");
    // A bash that ends by what it cannot read may end with the status before that; a shell's answer is always 2.
    let exit_code = if stderr.contains(" unexpected ") { 2 } else { exit_code };
    Seen {
        stdout: Bytes(output.stdout),
        stderr: normal(&stderr),
        exit_code,
        left: left.map(|(_, cwd, exports)| (cwd, exports)),
    }
}

/// The last status, the cwd, and what a script has made of the environment.
pub(super) type Left = (i32, String, BTreeMap<String, Option<String>>);

pub(super) fn split_report(bytes: &[u8]) -> Left {
    let mut fields = bytes.splitn(3, |byte| *byte == 0);
    let mut text = || String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned();
    let (code, cwd) = (text().parse().unwrap(), text());
    (code, cwd, exports(fields.next().unwrap_or_default()))
}

/// What may differ: what bash calls the text it reads, and pids in a trace.
pub(super) fn normal(stderr: &str) -> String {
    let pids = regex::Regex::new("[0-9]{3,}").unwrap();
    let stderr = pids.replace_all(stderr, "N");
    let lines = stderr
        .lines()
        .map(|line| line.replace("/dev/stdin: ", "bash: ").replace("bash: eval: line ", "bash: line "));
    lines.collect::<Vec<_>>().join("\n")
}

/// Where a trace or `FUNCNAME` may show that a command runs as a sourced script: beside `set -e`, what may set it, and what
/// reads a descriptor by its number.
fn is_sourced(script: &str) -> bool {
    let reads = script.contains("read ") || script.contains("mapfile ");
    reads && script.contains('u')
        || ["set -e", "shopt", "eval", "select"].iter().any(|word| script.contains(word))
}

/// A trace without the depth of a sourced script, or of an `eval`.
fn without_depth(stderr: &str, depth: usize) -> String {
    let frame = "+".repeat(depth);
    let lines = stderr
        .lines()
        .map(|line| line.strip_prefix(&frame).filter(|rest| rest.starts_with('+')).unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

async fn framed(bench: &Bench, id: &str, script: &str) -> Seen {
    let ask = bench.path("ask");
    let request = |command: String| ExecRequest { command, ..ExecRequest::default() };
    let run = |command| bench.host.exec(id, request(command), None);
    let result = run(script.to_owned()).await.unwrap();
    let left = if result.shell_restarted || ends_open(script) {
        None
    } else {
        let command = format!("{{ CTX_ASK='{}'; }} 2>/dev/null{ASK}", ask.display());
        run(command).await.unwrap();
        let (_, cwd, exports) = split_report(&std::fs::read(&ask).unwrap());
        Some((cwd, exports))
    };
    let page = |stream| {
        let request = OutputRequest {
            call: 1,
            stream,
            offset: 0,
            limit: Some(256 << 10),
            grep: None,
            ..OutputRequest::default()
        };
        let page = bench.host.output(id, &request).unwrap();
        (page.text, page.base64)
    };
    let (stdout, base64) = page(Output::Stdout);
    let stdout = base64.map_or_else(|| stdout.into_bytes(), |text| unbase64(&text));
    let evaluated = script.contains("alias") || ends_open(script);
    let depth = if is_sourced(script) { 3 } else { 2 * usize::from(evaluated) };
    // Of a sourced script's first line only the answer is without the frame's words where it cannot be read.
    let stderr = if ends_open(script) { result.stderr } else { page(Output::Stderr).0 };
    let stderr = without_depth(&normal(&stderr), depth);
    Seen { stdout: Bytes(stdout), stderr, exit_code: result.exit_code, left }
}

pub(super) fn unbase64(text: &str) -> Vec<u8> {
    let digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0u32, 0, Vec::new());
    for digit in text.chars().filter_map(|c| digits.find(c)) {
        bits = bits << 6 | u32::try_from(digit).unwrap();
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count & 0xff) as u8);
        }
    }
    bytes
}

/// Runs a script in a new shell of this host and in a bash.
async fn check_in(bench: &Bench, script: &str) {
    let work = bench.path("work");
    let anew = || {
        let _ = std::fs::remove_dir_all(&work);
        let _ = std::fs::remove_file(bench.path("ask"));
        std::fs::create_dir(&work).unwrap();
    };
    anew();
    let want = plain(script, bench.dir.path());
    anew();
    let id = create_in(bench, "work").await;
    let got = framed(bench, &id, script).await;
    bench.host.destroy(&id).await.unwrap();
    assert_eq!(got, want, "{script}");
}

async fn check(script: &str) {
    let bench = Bench::new(Kind::Bash).await;
    check_in(&bench, script).await;
    bench.end().await;
}

pub(super) async fn create_in(bench: &Bench, cwd: &str) -> String {
    let request = ctx_host::CreateRequest { cwd: Some(cwd.to_owned()), ..ctx_host::CreateRequest::default() };
    bench.host.create(request).await.unwrap()
}

/// Pieces of scripts; any sequence of them is a script.
const PIECES: &[&str] = &[
    "echo 'single \"quoted\"' \"double 'quoted' $HOME \\\" \\$x\"",
    "printf '%s\\n' \"a\\\\b\" $'tab\\there' 'ünï€'",
    "cat <<EOF\nheredoc $((1+2)) $(echo sub)\nEOF",
    "cat <<'EOF'\nraw $x `y`\nEOF",
    "cat <<-EOF\n\tindented\n\tEOF",
    "f() { local a=1; echo \"f $1 $a\"; return 3; }; f one; echo $?",
    "g() { echo $LINENO; }; g; echo $LINENO",
    "trap 'echo bye' EXIT",
    "trap 'echo \"err $?\"' ERR; false; true",
    "trap 'echo \"dbg $BASH_COMMAND\"' DEBUG; true; trap - DEBUG",
    "sleep 0 & wait $!; echo waited $?",
    "{ echo grouped; } 2>&1 | tr a-z A-Z",
    "(cd /; pwd; exit 4); echo $?",
    "set -u; echo ${UNSET_NAME-default}",
    "set -x; echo traced; set +x",
    "set -f; echo *; set +f",
    "set -o pipefail; false | true; echo $?; set +o pipefail",
    "set -e; true; set +e",
    "echo to stderr >&2",
    "exec 3>three; echo file >&3; exec 3>&-; cat three",
    "exec 4<&0; exec 4<&-",
    "printf '\\000\\001\\036\\377\\n'",
    "printf '\\036%032dE0\\n' 0",
    "printf '\\036%s' 0123456789abcdef0123456789abcdefE",
    "mkdir -p d/e; cd d/e",
    "cd ..",
    "cd /nonexistent-dir",
    "export A=1 B='two words' C=$'new\\nline'",
    "export -n A; unset B",
    "readonly R=5; R=6",
    "declare -i n=5+5; echo $n; declare -a arr=(1 2 3); echo ${arr[1]} ${#arr[@]}",
    "declare -A map=([k]=v); echo ${map[k]}",
    "for i in 1 2 3; do [ $i = 2 ] && continue; echo $i; done",
    "i=0; while true; do i=$((i+1)); [ $i -gt 3 ] && break; done; echo $i",
    "case abc in a*) echo match;; esac",
    "if [[ abc =~ b(.) ]]; then echo ${BASH_REMATCH[1]}; fi",
    "echo $((1/0)); echo same line",
    "echo ${UNSET_NAME?message}",
    "nosuchcommand-x; echo $?",
    "break; echo after break",
    "shopt -s extglob; echo $?",
    "alias ll='echo aliased'; shopt -s expand_aliases",
    "ll",
    "read x; echo \"[$x]\" $?",
    "cat | wc -c",
    "false",
    "true",
    "! true",
    "echo no newline at end | tr -d '\\n'",
    "x=$(printf 'a\\n\\n'); echo \"<$x>\"",
    "echo `echo back $(echo tick)`",
    "eval 'echo evaluated; (exit 7)'; echo $?",
    "(kill -TERM $BASHPID); echo $?",
    "umask 077; umask",
    "echo $# \"$@\"",
    "set -- a b c; shift; echo $1 $#",
    "printf() { echo hijack; }; unset -f printf",
    "echo $(( $(echo 3) * 2 )) ${#HOME}",
    "# only a comment",
    "x=5; ((x++)); echo $x $((x ** 2)) $((x > 3 ? 1 : 0)) $((16#ff)); ((0)); echo $?",
    "let y=7%4; echo $y; for ((i = 0; i < 3; i++)); do echo -n $i; done; echo",
    "cat <<<\"here $((2 * 3)) string\"; read -r a b <<<'one two three'; echo \"$b\"",
    "cat <(echo from) <(echo substitution) | sort; diff <(echo a) <(echo b)",
    "echo text > >(cat); wait $!",
    "outer() { inner() { echo \"in ${FUNCNAME[0]} of ${FUNCNAME[1]} $LINENO\"; }; inner; }; outer; inner2() { outer; }; inner2",
    "recurse() { [ $1 -gt 0 ] && { echo r$1; recurse $(($1 - 1)); }; return 0; }; recurse 3",
    "(x=inner; (echo $x $BASH_SUBSHELL; exit 5); echo $?; false) || echo outer $?",
    "arr=(a 'b c' d); arr+=(e); arr[7]=h; unset 'arr[0]'; echo \"${!arr[@]}|${arr[@]:1:2}|${#arr[@]}\"",
    "declare -A m=([a]=1 ['b c']=2); for k in \"${!m[@]}\"; do echo \"$k=${m[$k]}\"; done | sort",
    "mapfile -t lines < <(printf '1\\n2\\n3\\n'); echo ${#lines[@]} ${lines[2]}",
    "s=hello; echo ${s^} ${s/l/L} ${s//l} ${s:1:3} ${s%lo} ${#s} ${s@Q}",
    "coproc cat; echo hi >&${COPROC[1]}; read -r line <&${COPROC[0]}; echo $line; exec {COPROC[1]}>&-; wait; echo $?",
    "trap 'echo \"usr1 $BASH_COMMAND\"' USR1; kill -USR1 $$; true; trap - USR1",
    "trap 'echo \"err [$BASH_COMMAND] $LINENO\"' ERR; false; (exit 2); trap - ERR",
    "trap 'echo \"dbg [$BASH_COMMAND] $LINENO\"' DEBUG; [ a = a ]; f2() { true; }; f2; trap - DEBUG",
    "trap 'echo \"ret [${FUNCNAME[0]}]\"' RETURN; f3() { :; }; f3; trap - RETURN",
    "trap 'echo \"sub exit [$BASH_COMMAND]\"' EXIT; (true); trap - EXIT",
    "(trap 'echo subshell left $?' EXIT; exit 6)",
    "set -x; for i in 1 2; do echo $i; done; f4() { echo deep; }; f4; x=$(echo sub); set +x",
    "set -x; (echo nested; (echo twice)); { echo group; } 2>/dev/null | cat; set +x",
    "PS4='$LINENO> '; set -x; echo numbered; [[ a == b ]]; case x in x) :;; esac; set +x; PS4='+ '",
    "set -x; trap 'echo traced trap' USR2; kill -USR2 $$; set +x; trap - USR2",
    "echo ${#FUNCNAME[@]} $BASH_SUBSHELL ${BASH_EXECUTION_STRING-none} $- $# ${!:+set}",
    "true | false | (exit 3); echo ${PIPESTATUS[@]}; echo $_",
    "echo one two; echo \"$_\"",
    "! false; echo $?; ! { true; false; }; echo $?",
    "until true; do :; done; echo $?; while false; do :; done; echo $?",
    "echo {a,b}{1..3} ~+ | wc -w",
    "printf -v made %03d 7; echo $made; printf '%q %b\\n' 'a b' 'x\\ty'",
    "exec 5<<<'five'; read -u 5 five; echo $five; exec 5<&-; exec {fd}>named; echo in >&$fd; exec {fd}>&-; cat named",
    "f5() { local -a l=(1 2); local x=inner; g5() { x=changed; }; g5; echo $x ${l[1]}; }; x=outer; f5; echo $x",
    "[ -t 0 ] || echo no terminal; [ -e /dev/null ] && echo there",
    "{ echo out; echo err >&2; } 2>&1 >/dev/null | tr a-z A-Z",
    "x='a b'; set -f; IFS=: ; y=1:2:3; for part in $y; do echo \"<$part>\"; done; IFS=$' \\t\\n'; set +f",
    "shopt -s nullglob; echo none*; shopt -u nullglob; shopt -s lastpipe; echo last | read z; echo $z",
    "cd /; cd - >/dev/null; pushd / >/dev/null; popd >/dev/null; dirs | wc -l",
    "select n in a b; do echo $n; done 2>/dev/null; echo $?",
    "if",
    "echo 'open",
    "echo a; )",
    "cat <<EOF\nno end",
    "exit 3",
    "trap 'echo \"exit [$BASH_COMMAND] $?\"' EXIT; exit 4",
    "trap 'echo \"left by [$BASH_COMMAND]\"' EXIT; exec nosuchcommand-y",
    "left() { echo \"$? [$BASH_COMMAND] ${FUNCNAME[0]}\"; }; trap left EXIT; f6() { exit 7; }; f6",
    "exec true",
    "set -e; false; echo never",
];

/// What cannot be read, or not to its end: a script ends with it.
const LAST_PIECES: &[&str] = &["if", "echo 'open", "echo a; )", "cat <<EOF\nno end"];

fn ends_open(script: &str) -> bool {
    LAST_PIECES.iter().any(|piece| script.ends_with(piece))
}

/// Joins pieces to a script, and leaves out what is known to differ: what an EXIT trap finds in `$BASH_COMMAND`, a
/// RETURN trap, `FUNCNAME` and the depth of a trace, in a command that runs by `eval` or as a sourced script.
fn script(picks: &[(usize, &'static str)]) -> String {
    let mut script = String::new();
    let all: Vec<&str> = picks.iter().map(|(at, _)| PIECES[*at]).collect();
    let sourced = is_sourced(&all.join("\n")) || all.iter().any(|piece| piece.contains("alias"));
    let open = picks.iter().any(|(at, _)| LAST_PIECES.contains(&PIECES[*at]));
    for (at, separator) in picks {
        let piece = PIECES[*at];
        let shows = ["exit [", "left", "ret [", "FUNCNAME", "PS4"].iter().any(|word| piece.contains(word));
        // A bash that cannot go on reading also ends.
        if sourced && shows || open && (shows || piece.contains("EXIT")) {
            continue;
        }
        script.push_str(piece);
        if LAST_PIECES.contains(&piece) {
            return script;
        }
        // A heredoc and a comment need the line's end.
        let ends_line = piece.contains("<<EOF")
            || piece.contains("<<'EOF")
            || piece.contains("<<-")
            || piece.starts_with('#');
        script.push_str(if ends_line { "\n" } else { separator });
    }
    script.trim_end_matches([';', ' ']).to_owned()
}

#[test]
fn random_scripts_do_what_they_do_in_bash() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let bench = runtime.block_on(Bench::new(Kind::Bash));
    let separators = prop_oneof![Just("\n"), Just("; ")];
    let picks = proptest::collection::vec((0..PIECES.len(), separators), 1..9);
    for_random(120, &picks, |picks| runtime.block_on(check_in(&bench, &script(&picks))));
    runtime.block_on(bench.end());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_piece_alone_does_what_it_does_in_bash() {
    let bench = Bench::new(Kind::Bash).await;
    for piece in PIECES {
        check_in(&bench, piece).await;
    }
    bench.end().await;
    // Alone only: beside `set` and its like a command runs as a sourced script, which `return` ends.
    check("return 5; echo after return").await;
    // A long script takes another way into the shell.
    let long = format!("{}\necho \"last line $LINENO\"", "x='ü and more'\n".repeat(1000));
    check(&long).await;
}
