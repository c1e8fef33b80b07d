//! The fence where a name is not plain: patterns in the place of a program, programs that stand in unusual places, and
//! lines of a policy that would match nothing.

use ctx_host::shell::text::fence::{Policy, Refused};

use crate::text_fence::{check, fence};

#[test]
fn a_pattern_that_may_become_a_denied_program_is_refused() {
    let (list, policy) =
        (fence("", &[], &["rm", "shut*"]), fence("allow git\ndeny rm\ndeny shut*\n", &[], &[]));
    for command in [
        "/???/rm x",
        "/bin/r? x",
        "/bin/r* x",
        "/bin/[r]m x",
        "/bin/[!a-q]m x",
        "r[]m]",
        "sudo /bin/r?",
        "ls; ./*",
        "bash -c '/bin/?m x'",
        "/sbin/s*n",
        "{/bin/r?,x}",
    ] {
        for fence in [&list, &policy] {
            let refused = fence.check(command).unwrap_err();
            assert!(matches!(
                refused,
                Refused::Denied { .. } | Refused::ByPolicy { .. } | Refused::MayBeDenied { .. }
            ));
            assert!(
                refused.to_string().contains("denied") || refused.to_string().contains("deny"),
                "{refused}"
            );
        }
    }
    for command in ["./build*.sh", "/bin/r??", "/bin/l?", "./[ab]x", "r[ab]mx", "ls r?", "ls *", "[ -f r* ]"]
    {
        assert_eq!(list.check(command), Ok(()), "{command}");
        assert_eq!(policy.check(command), Ok(()), "{command}");
    }
    let message = list.check("/bin/r? x").unwrap_err().to_string();
    assert!(message.contains("`/bin/r?`") && message.contains("`rm`"), "{message}");
}

#[test]
fn a_pattern_is_as_unknown_as_a_variable_under_an_allow_list() {
    for fence in [fence("", &["ls", "git"], &[]), fence("allow ls\nallow g*\ndeny *\n", &[], &[])] {
        for command in ["/bin/l?", "g*", "./*", "$X"] {
            assert!(fence.check(command).is_err(), "{command}");
        }
    }
    assert!(fence("", &[], &["*"]).check("$X").is_err(), "nothing may run");
}

#[test]
fn the_parameters_of_a_text_are_run_where_it_runs_them() {
    check("bash -c '\"$@\"' _ rm x", "bash ? rm");
    check("sh -c 'exec \"$@\"' sh rm x", "sh exec ? rm");
    check("bash -c '$*' _ 'rm x'", "bash ? rm");
    check("bash -c '\"$1\" x' _ rm", "bash ? rm");
    check("bash -c '\"${@:2}\"' _ a rm x", "bash ? rm");
    check("bash -c '$0 x' rm", "bash ? rm");
    check("bash -c 'eval \"$1\"' _ 'a; rm x'", "bash eval ? a rm");
    check("bash -c 'cp \"$1\" \"$2\"' _ rm x", "bash cp");
    check("find . -exec bash -c 'cp \"$1\" y' _ {} \\;", "find bash cp");
}

#[test]
fn what_is_sourced_from_standard_input_is_read() {
    for file in ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"] {
        check(&format!("source {file} <<< 'rm x'"), "source rm");
        check(&format!(". {file} <<EOF\nrm x\nEOF"), ". rm");
        check(&format!("bash {file} <<< rm"), "bash rm");
    }
    check("source ./env.sh <<< rm", "source");
    check("bash script.sh <<< rm", "bash");
}

#[test]
fn callbacks_machines_measures_and_other_shells() {
    check("mapfile -t -C rm -c 1 lines < f", "mapfile rm");
    check("readarray -C'rm x' lines", "readarray rm");
    check("mapfile -t lines < f", "mapfile");
    check("compgen -C rm", "compgen rm");
    check("setarch x86_64 rm x", "setarch rm");
    check("setarch x86_64 -R -- rm x", "setarch rm");
    check("setarch -R rm x; setarch --list", "setarch rm setarch");
    check("linux32 rm; linux64 -R rm; uname26 rm; i386 rm", "linux32 rm linux64 rm uname26 rm i386 rm");
    check("csh -c 'rm x'; tcsh -fc rm; yash -c rm", "csh rm tcsh rm yash rm");
    check("tcsh <<< rm", "tcsh rm");
    check("hyperfine 'rm x' 'mv a b'", "hyperfine rm mv");
    check("hyperfine -w 3 -N --runs 5 -L x a,b --prepare 'rm x' 'sort {x}'", "hyperfine rm sort");
    check("hyperfine --cleanup='rm x' -P n 1 9 sort --export-json rm", "hyperfine rm sort");
}

#[test]
fn a_line_that_would_match_nothing_is_an_error_and_says_why() {
    for (line, why) in [
        ("deny \"rm\"", "quotes"),
        ("deny 'rm'", "quotes"),
        ("deny `rm`", "quotes"),
        ("deny [a-z]*", "`*` and `?`"),
        ("deny {rm,mv}", "`*` and `?`"),
        ("deny rm\0", "'\\0'"),
        ("deny rm\u{1b}", "'\\u{1b}'"),
        ("deny rm,mv", "','"),
        ("deny r\\m", "'\\\\'"),
        ("deny $HOME/bin/x", "'$'"),
        ("deny !rm", "'!'"),
        ("deny rm;mv", "';'"),
        ("deny /usr/bin/", "slash"),
        ("deny rm # gone for ever", "more than one word"),
    ] {
        for line in [line.to_owned(), line.replacen("deny", "allow", 1)] {
            let error = Policy::parse(&format!("# first\n{line}\n")).unwrap_err();
            assert_eq!(error.line, 2, "{line:?}");
            assert!(error.to_string().contains(why), "{line:?}: {error}");
        }
    }
    let odd = "allow /usr/bin/[\ndeny [\ndeny g++\nallow x.y-z_1@2:3+~%=\ndeny ü*\n";
    let fence = fence(odd, &[], &[]);
    assert!(fence.check("[ -f x ]").is_err() && fence.check("g++ x").is_err());
    assert_eq!(fence.check("test -f x"), Ok(()));
}
