//! The fence: rows of shell text and the programs that are seen in it.

use ctx_text::fence::{Assignment, Program, assignments, programs};

/// The names a command would run: `?` for what cannot be known, `f()` for its own functions.
pub fn names(command: &str) -> String {
    let name = |program: Program| match program {
        Program::Named(name) => name,
        Program::Unknown(_) => "?".to_owned(),
    };
    programs(command).into_iter().map(name).collect::<Vec<_>>().join(" ")
}

#[track_caller]
pub fn check(rows: &[(&str, &str)]) {
    for (command, want) in rows {
        assert_eq!(names(command), *want, "{command}");
    }
}

#[test]
fn lists_pipes_and_groups() {
    check(&[
        ("a && rm x", "a rm"),
        ("a; b | c || d & e", "a b c d e"),
        ("(a; b) && { c; d; }", "a b c d"),
        ("a |& b\nc", "a b c"),
        ("! a && time -p b", "a b"),
        ("!(rm x); ! (rm y); if !(rm z); then a; fi", "rm a"),
        ("time rm x; time { rm y; }", "rm"),
        ("", ""),
        ("# rm x", ""),
        ("a # rm x\nb", "a b"),
        ("echo a#b; c", "echo c"),
        ("a \\\n && b", "a b"),
    ]);
}

#[test]
fn compound_commands() {
    check(&[
        ("if a; then b; elif c; then d; else e; fi", "a b c d e"),
        ("while a; do b; done < c", "a b"),
        ("until a; do b; done", "a b"),
        ("for x in $(list) y; do rm $x; done", "list rm"),
        ("for ((i=0; i<$(n); i++)); do rm; done", "n rm"),
        ("for x; do a; done", "a"),
        ("for x in a b\ndo\n  rm $x\ndone", "rm"),
        ("select x in a b; do c; done", "c"),
        ("case $(pick) in a|b) rm;; (c) d;; *) e; esac; f", "pick rm d e f"),
        ("case x in a) (case y in b) rm;; esac);; esac; c", "rm c"),
        ("case x in\n  a | b )\n    rm ;;\n  *) mv ;&\nesac", "rm mv"),
        ("x=$(case y in a) rm;; esac); b", "rm b"),
        ("[[ -n $(a) && x < y ]] && b", "a b"),
        ("[[ $x =~ ^(a|b)$ ]]; b", "b"),
        ("(( x = $(a) )) && b", "a b"),
        ("((rm x); b)", "rm b"),
        ("f() { rm x; }; f", "rm f"),
        ("function g { rm; }; g; function h() { mv; }\nh", "rm g mv h"),
        ("coproc rm x", "? rm"),
    ]);
}

#[test]
fn the_name_of_a_function_counts_like_that_of_a_program() {
    check(&[
        ("f()\n{\n  if a; then b; fi\n}\nx=$(f); c && f", "a b f c f"),
        ("f() { command f x; }; f", "command f"),
        ("f x; f() { a; }; f", "f a f"),
        ("(f() { a; }); f", "a f"),
        ("f() { a; }; env f; bash -c f; echo | xargs f", "a env f bash f echo xargs f"),
        ("f() { a; } & f; g() { a; } | b; g", "a f a b g"),
        ("c && f() { a; }; c ||\nf() { a; }; f", "c a c a f"),
        ("if c; then f() { a; }; fi; f", "c a f"),
        ("x=$(f() { a; }); f; g() { f() { a; }; }; f", "a f a f"),
        ("cat <<E; f() { a; }\n$(f)\nE\nf", "cat a f"),
        ("'f'() { a; }; f; g() (a); g", "a f a g"),
        ("f() { a; }; unset -f f; f", "a unset f"),
    ]);
}

#[test]
fn substitutions() {
    check(&[
        ("echo $(rm x)", "rm echo"),
        ("echo `rm x`", "rm echo"),
        ("echo \"$(rm x)\"", "rm echo"),
        ("echo \"`rm \\\"x\\\"`\"", "rm echo"),
        ("a `b \\`c\\``", "c b a"),
        ("echo '$(rm x)'", "echo"),
        ("echo \\$x", "echo"),
        ("echo $((1 + $(a)))", "a echo"),
        ("echo $((rm x); b)", "rm b echo"),
        ("echo ${x:-$(rm)}", "rm echo"),
        ("echo ${x:-${y:-`rm`}}", "rm echo"),
        ("echo \"${x:-it's}\"; rm x", "echo rm"),
        ("diff <(a) >(b)", "a b diff"),
        ("a > $(rm)", "rm a"),
        ("echo $(echo $(rm))", "rm echo"),
    ]);
}

#[test]
fn quotes_paths_and_redirections() {
    check(&[
        ("r''m x", "rm"),
        ("\\rm x", "rm"),
        ("\"rm\" x", "rm"),
        ("'r'\"m\" x", "rm"),
        ("$'rm' x", "rm"),
        ("r\\\nm x", "rm"),
        ("\"if\" x; 'case' y", "if case"),
        ("/bin/rm x", "/bin/rm"),
        ("[ -f x ] && a", "[ a"),
        ("> out rm x", "rm"),
        ("2>&1 rm x", "rm"),
        ("a &> b; c >| d; e <> f", "a c e"),
        ("exec {fd}>x; {log}>&2 rm", "exec rm"),
    ]);
}

#[test]
fn assignments_and_arrays() {
    check(&[
        ("X=1 Y='a b' rm", "rm"),
        ("X=1", ""),
        ("X=$(rm) Y=2 b", "rm b"),
        ("X=(1 $(rm) 2); b", "rm b"),
        ("a[1]=x rm", "rm"),
        ("declare -A m=([a]=1 [b]=2); ls", "declare ls"),
        ("local a=(x y); export c+=(rm); typeset -a d=(\n rm # x\n mv\n); e", "local export typeset e"),
        ("ls !(rm|mv); ls @(rm|mv) +(rm) *(rm)x; cat @($(mv)|x)", "ls mv cat"),
        ("case x in @(a|b)) ls;; esac; echo", "ls echo"),
    ]);
    let set = |command: &str| {
        let shown = |Assignment { name, value }| format!("{name}={}", String::from_utf8(value).unwrap());
        assignments(command).into_iter().map(shown).collect::<Vec<_>>().join(" ")
    };
    for (command, want) in [
        ("A=b C='d e'; export F=\"g\" h", "A=b C=d e F=g"),
        ("env A=b rm; sudo -u x B=c rm", "A=b B=c"),
        ("bash -c 'A=b; echo $(C=d e)'", "A=b C=d"),
        ("A=$x B=`c` D+=e", "D=e"),
        ("echo =c 1d=e a-b=c", ""),
    ] {
        assert_eq!(set(command), want, "{command}");
    }
}

#[test]
fn here_documents() {
    check(&[
        ("cat <<EOF\n$(rm x)\nEOF\nb", "cat rm b"),
        ("cat <<'EOF'\n$(rm x)\nEOF\nb", "cat b"),
        ("cat <<-EOF\n\t`rm`\n\tEOF\nb", "cat rm b"),
        ("cat <<A <<B; c\n1\nA\n$(rm)\nB\nd", "cat c rm d"),
        ("cat <<EOF | grep a\nit's (\nEOF\nb", "cat grep b"),
        ("cat <<EOF\nrm x", "cat ?"),
        ("cat <<E$x\nE$x\nrm x", "cat rm"),
        ("cat <<E`a`\nb\nE`a`\nrm x", "a cat rm"),
        ("cat <<\"E$x\"\nE$x\nrm x", "? cat rm"),
        ("cat <<$'E'\n$E\nrm x\nE", "? cat rm E"),
        ("cat <<E\r\nE\r\nrm x\nE\n", "? cat"),
        ("git commit -m \"$(cat <<'EOF'\nit's (a\nEOF\n)\"; rm", "cat git rm"),
        // A shell that reads commands from a file or from its standard input is just a shell.
        ("bash <<EOF\nrm x\nEOF", "bash"),
        ("bash <<< 'rm x'; echo rm | sh; bash rm.sh; . ./rm", "bash echo sh bash ."),
    ]);
}

#[test]
fn what_cannot_be_read_is_unknown() {
    check(&[
        ("$X", "?"),
        ("\"$@\"", "?"),
        ("$(echo rm) x", "echo ?"),
        ("$'\\x72m' x", "?"),
        ("/bin/r* x", "?"),
        ("/bin/r? x; ./[ab]x; r@(m|n)", "?"),
        ("{rm,-rf,x}", "?"),
        ("r{m,} x; x{1..3}", "?"),
        ("{} y; r'{m,}' z", "{} r{m,}"),
        ("eval \"$code\"", "eval ?"),
        ("bash -c \"$code\"", "bash ?"),
        ("sudo $X rm", "sudo ?"),
        ("echo 'a; rm x", "? echo"),
        ("echo \"a; rm x", "? echo"),
        ("echo $(rm x", "rm ? echo"),
        ("echo `rm x", "? rm echo"),
        ("(rm x", "rm ?"),
        ("a=(rm x", "?"),
        ("[[ rm x", "?"),
        ("sh -c '[[ a; rm y; echo ]]'; [[ a\nrm y\n]]", "sh ?"),
    ]);
}

#[test]
fn what_can_be_read_beside_an_unknown_part_is_read() {
    check(&[
        ("bash -c \"rm $x\"", "bash ? rm"),
        ("bash -c \"$x rm\"", "bash ?"),
        ("\"$HOME\"/bin/rm x; \"${BIN}/rm\" x; $(pwd)/rm", "? rm ? rm pwd ? rm"),
        ("/*/bin/rm x", "? rm"),
        ("\"$DIR/$NAME\" x; $DIR/r$X; $DIR/", "?"),
        ("sudo -u$USER \"$BIN/rm\" x; $VENV/bin/bash -c 'rm x'", "sudo ? rm ? bash rm"),
        ("timeout \"$T\" rm; ssh \"$HOST\" rm; nice -n$N rm", "timeout rm ssh rm nice rm"),
        ("timeout $T rm; ssh $OPTS host rm; docker run $IMAGE rm", "timeout ? rm ssh ? host docker ? rm"),
        ("bash $OPTS -c 'rm x'; bash \"$FILE\" x", "bash ? bash"),
    ]);
}
