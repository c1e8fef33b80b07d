//! A script in a shell does what it does in a plain bash: stdout, stderr, exit code, cwd and exports.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use ctx_host::shell::{ExecRequest, Output, OutputRequest};
use proptest::prelude::*;

use super::support::{Bench, Kind};

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    stdout: Vec<u8>,
    stderr: String,
    exit_code: i32,
    /// None where the script has ended its shell: nobody can ask it any more.
    left: Option<(String, BTreeMap<String, String>)>,
}

/// Behind a script: puts its traps and options away and writes down what it leaves.
pub(super) const ASK: &str = "\n{ ctx_rc=$?; set +exuv; trap - DEBUG ERR EXIT; } >/dev/null 2>&1
builtin printf '%s\\0' \"$ctx_rc\" \"$PWD\" >\"$CTX_ASK\"; env -0 >>\"$CTX_ASK\"";

pub(super) fn exports(bytes: &[u8]) -> BTreeMap<String, String> {
    let text = String::from_utf8_lossy(bytes);
    let own = ["_", "CTX_ASK", "SHLVL", "OLDPWD", "PWD"];
    text.split('\0')
        .filter_map(|pair| pair.split_once('='))
        .filter(|(name, _)| !own.contains(name))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

fn plain(script: &str, dir: &Path) -> Seen {
    let ask = dir.join("ask");
    let file = dir.join("script");
    std::fs::write(&file, format!("{script}{ASK}\n")).unwrap();
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
    Seen {
        stdout: output.stdout,
        stderr: normal(&stderr),
        exit_code,
        left: left.map(|(_, cwd, exports)| (cwd, exports)),
    }
}

pub(super) fn split_report(bytes: &[u8]) -> (i32, String, BTreeMap<String, String>) {
    let mut fields = bytes.splitn(3, |byte| *byte == 0);
    let mut text = || String::from_utf8_lossy(fields.next().unwrap_or_default()).into_owned();
    let (code, cwd) = (text().parse().unwrap(), text());
    (code, cwd, exports(fields.next().unwrap_or_default()))
}

/// What may differ: how deep a trace is nested, and what bash calls the text it reads.
pub(super) fn normal(stderr: &str) -> String {
    let lines = stderr.lines().map(|line| {
        let depth = line.len() - line.trim_start_matches('+').len();
        let line = if depth > 0 { format!("+{}", &line[depth..]) } else { line.to_owned() };
        line.replace("/dev/stdin: ", "bash: ").replace("bash: eval: line ", "bash: line ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

async fn framed(bench: &Bench, script: &str) -> Seen {
    let ask = bench.path("ask");
    let request = |command: String| ExecRequest { command, ..ExecRequest::default() };
    let result = bench.try_run(request(script.to_owned())).await.unwrap();
    let left = if result.shell_restarted {
        None
    } else {
        let command = format!("{{ CTX_ASK='{}'; }} 2>/dev/null{ASK}", ask.display());
        bench.try_run(request(command)).await.unwrap();
        let (_, cwd, exports) = split_report(&std::fs::read(&ask).unwrap());
        Some((cwd, exports))
    };
    let page = |stream| {
        let request = OutputRequest { call: 1, stream, offset: 0, limit: Some(256 << 10), grep: None };
        let page = bench.host.output(&bench.id, &request).unwrap();
        (page.text, page.base64)
    };
    let (stdout, base64) = page(Output::Stdout);
    let stdout = base64.map_or_else(|| stdout.into_bytes(), |text| unbase64(&text));
    Seen { stdout, stderr: normal(&page(Output::Stderr).0), exit_code: result.exit_code, left }
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

async fn check(script: &str) {
    let bench = Bench::new(Kind::Bash).await;
    std::fs::create_dir(bench.path("work")).unwrap();
    let want = plain(script, bench.dir.path());
    std::fs::remove_dir_all(bench.path("work")).unwrap();
    let _ = std::fs::remove_file(bench.path("ask"));
    std::fs::create_dir(bench.path("work")).unwrap();
    let inside = Bench { id: create_in(&bench, "work").await, ..bench };
    let got = framed(&inside, script).await;
    inside.end().await;
    assert_eq!(got, want, "{script}");
}

pub(super) async fn create_in(bench: &Bench, cwd: &str) -> String {
    let request = ctx_host::shell::CreateRequest {
        cwd: Some(cwd.to_owned()),
        ..ctx_host::shell::CreateRequest::default()
    };
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
    "exit 3",
    "exec true",
    "set -e; false; echo never",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_scripts_do_what_they_do_in_bash(
        picks in proptest::collection::vec((0..PIECES.len(), prop_oneof![Just("\n"), Just("; ")]), 1..7)
    ) {
        let mut script = String::new();
        for (at, separator) in picks {
            // A heredoc and a comment need the line's end.
            let piece = PIECES[at];
            let separator = if piece.contains("<<") || piece.starts_with('#') { "\n" } else { separator };
            script.push_str(piece);
            script.push_str(separator);
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        runtime.block_on(check(script.trim_end_matches([';', ' '])));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_piece_alone_does_what_it_does_in_bash() {
    for piece in PIECES {
        check(piece).await;
    }
    // Alone only: beside `set` and its like a command runs as a sourced script, which `return` ends.
    check("return 5; echo after return").await;
    // A long script takes another way into the shell.
    let long = format!("{}\necho \"last line $LINENO\"", "x='ü and more'\n".repeat(1000));
    check(&long).await;
}
