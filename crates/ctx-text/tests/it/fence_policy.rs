//! The fence: what the lists of a shell and the operator's policy refuse, and that the policy is never widened.

#![expect(clippy::unwrap_used, reason = "a helper of tests")]

use ctx_text::fence::{Fence, Refused};
use ctx_text::policy::Policy;

fn fence(policy: &str, allow: &[&str], deny: &[&str]) -> Fence {
    let list = |entries: &[&str]| entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>();
    let allow = (!allow.is_empty()).then(|| list(allow));
    Fence::new(Policy::parse(policy).unwrap(), allow.as_deref(), &list(deny)).unwrap()
}

#[test]
fn a_denied_program_is_refused_however_it_is_called() {
    let fence = fence("", &[], &["rm", "shut*"]);
    for command in [
        "rm x",
        "a && rm",
        "$(rm)",
        "a | xargs rm",
        "bash -c 'rm'",
        "sudo rm",
        "/bin/rm",
        "r''m",
        "shutdown -h",
        "sg root \"rm x\"",
    ] {
        assert!(matches!(fence.check(command), Err(Refused::Denied { .. })), "{command}");
    }
    for command in ["ls", "$X", "eval \"$x\"", "echo rm", "git rm x", "cat rm"] {
        assert_eq!(fence.check(command), Ok(()), "{command}");
    }
    let message = fence.check("sudo rm x").unwrap_err().to_string();
    assert!(message.contains("`rm`") && message.contains("deny list"), "{message}");
}

#[test]
fn an_allow_list_lets_through_what_it_names_and_nothing_unknown() {
    let fence = fence("", &["ls", "git", "cd", "if*"], &[]);
    for command in
        ["ls", "cd x && git status", "X=1 ls", "/usr/bin/git log", "if ls; then git x; fi", "[[ a ]] && ls"]
    {
        assert_eq!(fence.check(command), Ok(()), "{command}");
    }
    for command in ["rm", "ls | wc", "ls; $X", "git log $(id)", "echo x", "bash -c ls", "sudo ls"] {
        assert!(fence.check(command).is_err(), "{command}");
    }
    let finds = self::fence("", &["echo", "xargs", "sh", "find"], &[]);
    for command in
        ["echo '\"touch F\"' | xargs sh -c", "O='. -exec touch F ;'; find $O", "echo x | xargs find"]
    {
        assert!(matches!(finds.check(command), Err(Refused::Unknown { .. })), "{command}");
    }
    for command in ["find \"$DIR\" -name x", "find . | xargs -n1 sh -c 'echo \"$1\"' _"] {
        assert_eq!(finds.check(command), Ok(()), "{command}");
    }
    let message = fence.check("ls; \"$X\" y").unwrap_err().to_string();
    assert!(message.contains("$X") && message.contains("cannot be known"), "{message}");
    for (command, message) in [
        ("ls 'x".to_owned(), "the command has unbalanced quotes, brackets or here-documents; close them"),
        ("ls $(ls".to_owned(), "the command has unbalanced quotes, brackets or here-documents; close them"),
        (
            "cd $(".repeat(40) + &")".repeat(40),
            "the command nests commands too deeply to find the programs in it; split it",
        ),
    ] {
        assert_eq!(fence.check(&command).unwrap_err().to_string(), message, "{command}");
    }
}

#[test]
fn a_pattern_or_a_variable_passes_a_deny_list_and_is_refused_by_an_allow_list() {
    let deny = fence("deny shut*\n", &[], &["rm"]);
    let allow = fence("", &["ls", "rm", "git"], &[]);
    let policy = fence("allow ls\nallow g*\ndeny *\n", &[], &[]);
    for command in [
        "/bin/r?",
        "r*",
        "./*",
        "$X",
        "{rm,x}",
        "eval \"$x\"",
        "bash -c \"$x\"",
        "ls $(ls",
        "ls 'x",
        "coproc ls",
    ] {
        assert_eq!(deny.check(command), Ok(()), "{command}");
        assert!(allow.check(command).is_err() && policy.check(command).is_err(), "{command}");
    }
    assert!(deny.check("\"$HOME\"/bin/rm x").is_err(), "its name is known");
    assert!(allow.check("$HOME/bin/ls").is_err(), "it may be any program of that name");
    assert!(fence("", &[], &["*"]).check("$X").is_err(), "nothing may run");
}

#[test]
fn the_first_line_of_the_policy_that_matches_decides() {
    let policy = "# programs\nallow git\ndeny g*\n\ndeny /opt/*\n  deny\trm\n";
    let fence = fence(policy, &[], &[]);
    assert_eq!(fence.check("git status; ls; $X"), Ok(()));
    assert_eq!(fence.check("gcc x"), Err(Refused::ByPolicy { program: "gcc".into(), line: 3 }));
    assert_eq!(
        fence.check("/opt/bin/tool"),
        Err(Refused::ByPolicy { program: "/opt/bin/tool".into(), line: 5 })
    );
    assert_eq!(fence.check("ls && rm x"), Err(Refused::ByPolicy { program: "rm".into(), line: 6 }));
}

#[test]
fn a_policy_that_ends_with_deny_star_is_an_allow_list() {
    let fence = fence("allow ls\nallow git\ndeny *\n", &[], &[]);
    assert_eq!(fence.check("ls && git log"), Ok(()));
    assert!(matches!(fence.check("ls && id"), Err(Refused::ByPolicy { line: 3, .. })));
    assert!(matches!(fence.check("$X"), Err(Refused::Unknown { .. })));
}

#[test]
fn the_caller_can_only_narrow_the_policy() {
    let wide = fence("deny rm\n", &["rm", "ls", "*"], &[]);
    assert!(matches!(wide.check("rm x"), Err(Refused::ByPolicy { .. })));
    let narrow = fence("allow *\n", &["ls"], &["ls"]);
    assert!(narrow.check("ls").is_err(), "the deny list holds against the allow list");
    assert!(narrow.check("id").is_err());
}

#[test]
fn bad_lines_and_entries_are_named() {
    for (text, line) in [("allow ls\npermit x\n", 2), ("deny\n", 1), ("\n\nallow a b\n", 3)] {
        let error = Policy::parse(text).unwrap_err();
        assert_eq!(error.line, line, "{text:?}");
        assert!(error.to_string().contains(&format!("line {line}")), "{error}");
    }
    let error = Fence::new(Policy::open(), Some(&["a b".to_owned()]), &[]).unwrap_err().to_string();
    assert!(error.contains("allow list") && error.contains("a b"), "{error}");
    assert!(Fence::new(Policy::open(), None, &[String::new()]).is_err());
    let error = Fence::new(Policy::open(), Some(&[]), &[]).unwrap_err().to_string();
    assert!(error.contains("nothing could run"), "{error}");
}

#[test]
fn a_line_that_an_earlier_one_leaves_nothing_to_decide_is_an_error() {
    for (text, lines) in [
        ("allow *\ndeny rm\n", [1, 2]),
        ("# all\ndeny **\n\nallow /bin/ls\n", [2, 4]),
        ("allow git\ndeny g*\nallow gcc\n", [2, 3]),
        ("allow g*\ndeny git\n", [1, 2]),
        ("deny rm\nallow rm\n", [1, 2]),
        ("deny rm\nallow ls\nallow rm\n", [1, 3]),
        ("deny rm\nallow /bin/rm\n", [1, 2]),
        ("deny r?\nallow */rm\n", [1, 2]),
        ("deny /opt/*\nallow /opt/bin/x*\n", [1, 2]),
        ("deny a*c\nallow ab*c\n", [1, 2]),
    ] {
        let [before, line] = lines;
        let error = Policy::parse(text).unwrap_err();
        assert_eq!(error.line, line, "{text:?}");
        let said = error.to_string();
        assert!(
            said.contains("first line that matches") && said.contains(&format!("line {before} ")),
            "{said}"
        );
    }
    for text in [
        "allow git\ndeny g*\ndeny rm\n",
        "allow ls\nallow git\ndeny *\n",
        "deny r?\nallow r*\nallow rmdir/*\n",
        "allow /bin/rm\ndeny rm\n",
        "deny /opt/*\nallow x\n",
        "deny g*\nallow /opt/g*\nallow /opt/?git\n",
        "deny rm\nallow ls\ndeny rm\ndeny /bin/rm\n",
    ] {
        assert!(Policy::parse(text).is_ok(), "{text:?}");
    }
    let long: String = (0..2_000).map(|n| format!("deny x{n}\n")).collect();
    assert!(Policy::parse(&long).is_ok());
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

#[test]
fn variables_that_bring_code_are_refused_where_anything_is_fenced() {
    let fences = [fence("deny rm", &[], &[]), fence("", &["ls"], &[]), fence("", &[], &["rm"])];
    let open = fence("", &[], &[]);
    for name in [
        "LD_PRELOAD",
        "LD_AUDIT",
        "LD_LIBRARY_PATH",
        "GCONV_PATH",
        "BASH_ENV",
        "ENV",
        "PROMPT_COMMAND",
        "PYTHONSTARTUP",
        "PERL5OPT",
        "NODE_OPTIONS",
        "GIT_SSH_COMMAND",
        "GIT_CONFIG_COUNT",
    ] {
        for fence in &fences {
            let refused = fence.check_variable(name).unwrap_err().to_string();
            assert!(refused.contains(name) && refused.contains("leave it out"), "{refused}");
        }
        assert_eq!(open.check_variable(name), Ok(()), "{name}");
    }
    for name in ["PATH", "PAGER", "LANG", "ENVIRONMENT", "OLD_PRELOAD", "PYTHONUNBUFFERED", "ld_preload"] {
        assert!(fences.iter().all(|fence| fence.check_variable(name).is_ok()), "{name}");
    }
}
