//! The fence: programs are seen wherever a shell would run them.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use ctx_host::shell::text::fence::{Fence, Policy, Program, programs};

/// The names a command would run, `?` for what cannot be known, `f()` for its own functions.
pub fn names(command: &str) -> String {
    let name = |program: Program| match program {
        Program::Named(name) => name,
        Program::Function(name) => format!("{name}()"),
        Program::Glob(_) | Program::Unknown(_) => "?".to_owned(),
    };
    programs(command).into_iter().map(name).collect::<Vec<_>>().join(" ")
}

#[track_caller]
pub fn check(command: &str, want: &str) {
    assert_eq!(names(command), want, "{command}");
}

pub fn fence(policy: &str, allow: &[&str], deny: &[&str]) -> Fence {
    let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
    Fence::new(
        Policy::parse(policy).unwrap(),
        (!allow.is_empty()).then(|| list(allow)).as_deref(),
        &list(deny),
    )
    .unwrap()
}

#[test]
fn lists_pipes_and_groups() {
    check("a && rm x", "a rm");
    check("a; b | c || d & e", "a b c d e");
    check("(a; b) && { c; d; }", "a b c d");
    check("a |& b\nc", "a b c");
    check("! a && time -p b", "a b");
    check("", "");
    check("# rm x", "");
    check("a # rm x\nb", "a b");
    check("echo a#b; c", "echo c");
    check("a \\\n && b", "a b");
}

#[test]
fn compound_commands() {
    check("if a; then b; elif c; then d; else e; fi", "a b c d e");
    check("while a; do b; done < c", "a b");
    check("for x in $(list) y; do rm $x; done", "list rm");
    check("for ((i=0; i<$(n); i++)); do rm; done", "n rm");
    check("for x; do a; done", "a");
    check("case $(pick) in a|b) rm;; (c) d;; *) e; esac; f", "pick rm d e f");
    check("x=$(case y in a) rm;; esac); b", "rm b");
    check("[[ -n $(a) && x < y ]] && b", "a b");
    check("(( x = $(a) )) && b", "a b");
    check("f() { rm x; }; f", "rm f()");
    check("function g { rm; }; g", "rm g()");
    check("until a; do b; done", "a b");
    check("select x in a b; do c; done", "c");
    check("coproc N { rm x; }; coproc M (rm y); coproc rm x; coproc { rm z; }", "rm");
}

#[test]
fn substitutions() {
    check("echo $(rm x)", "rm echo");
    check("echo `rm x`", "rm echo");
    check("echo \"$(rm x)\"", "rm echo");
    check("echo \"`rm \\\"x\\\"`\"", "rm echo");
    check("echo '$(rm x)'", "echo");
    check("echo \\$(", "echo");
    check("echo $((1 + $(a)))", "a echo");
    check("echo $((rm x); b)", "rm b echo");
    check("echo ${x:-$(rm)}", "rm echo");
    check("echo ${x:-${y:-`rm`}}", "rm echo");
    check("diff <(a) >(b)", "a b diff");
    check("X=$(rm) Y=2 b", "rm b");
    check("X=(1 $(rm) 2); b", "rm b");
    check("a > $(rm)", "rm a");
    check("a `b \\`c\\``", "c b a");
}

#[test]
fn quoting_and_paths() {
    check("r''m x", "rm");
    check("\\rm x", "rm");
    check("\"rm\" x", "rm");
    check("'r'\"m\" x", "rm");
    check("$'\\x72\\155' x", "rm");
    check("r\\\nm x", "rm");
    check("/bin/rm x", "/bin/rm");
    check("> out rm x", "rm");
    check("2>&1 rm x", "rm");
    check("X=1 Y='a b' rm", "rm");
    check("[ -f x ] && a", "[ a");
}

#[test]
fn here_documents() {
    check("cat <<EOF\n$(rm x)\nEOF\nb", "cat rm b");
    check("cat <<'EOF'\n$(rm x)\nEOF\nb", "cat b");
    check("cat <<-EOF\n\t`rm`\n\tEOF\nb", "cat rm b");
    check("cat <<A <<B; c\n1\nA\n$(rm)\nB\nd", "cat c rm d");
    check("bash <<EOF\nrm x\nEOF", "bash rm");
    check("bash <<< 'rm x'", "bash rm");
    check("cat <<EOF\nrm x", "cat");
}

#[test]
fn what_cannot_be_known() {
    check("$X", "?");
    check("\"$@\"", "?");
    check("$(echo rm) x", "echo ?");
    check("/bin/r* x", "?");
    check("{$X,rm}", "?");
    check(&format!("r{{m,{}}}", "x".repeat(300_000)), "?");
    check("x{1..99999999999}", "?");
    check("eval \"$code\"", "eval ?");
    check("bash -c \"$code\"", "bash ?");
    check("sudo $X rm", "sudo ? rm");
    check("bash -c \"rm $x\"", "bash ? rm");
}

#[test]
fn braces_become_words() {
    check("{rm,-rf,x}", "rm");
    check("r{m,} x", "rm");
    check("{,/bin/}rm x", "rm");
    check("{,} rm x", "rm");
    check("r{m..m} x", "rm");
    check("{r,s}{m,n} x", "rm");
    check("{{rm,x},y}", "rm");
    check("{a,{rm}", "{a,{rm}");
    check("{a,{rm,b}", "{a,rm");
    check("{rm,$x,*}", "rm");
    check("r{'m',} x", "rm");
    check("r'{m,}' x", "r{m,}");
    check("r\\{m,} x", "r{m,}");
    check("{rm} x; {}; x{1..} y", "{rm} {} x{1..}");
    check("python3.{08..10}", "python3.08");
    check("sudo {-u,tom,rm} x", "sudo rm");
    check("eval {rm,x}; bash -c '{rm,x}'; bash <<< {rm,x}", "eval rm bash rm bash rm");
    check("a; X={rm,y}; for i in {rm,x}; do b; done; c > {rm,x}", "a b c");
    check("{ rm,x; }; echo {1..3} file{,.bak} {\"a\":1,\"b\":2}", "rm,x echo");
}
