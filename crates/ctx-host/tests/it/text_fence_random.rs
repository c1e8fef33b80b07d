//! The fence on deep, long and random commands: it ends in time, fails on none, and reads braces as bash does.

use ctx_host::shell::text::fence::{Program, programs};
use proptest::prelude::*;

use crate::text_fence::names;

#[test]
fn deep_nesting_and_long_commands_end_in_time() {
    let deep = [
        "$(".repeat(40_000),
        "(".repeat(40_000),
        "`".repeat(40_001),
        "\"$(".repeat(20_000),
        "${x:-".repeat(20_000),
        "sudo ".repeat(20_000),
        "case x in ".repeat(20_000),
        "{ ".repeat(40_000),
        "<(".repeat(40_000),
        "a <<E ".repeat(20_000),
        "$((".repeat(20_000),
        "((".repeat(30_000),
        "f() ".repeat(20_000),
        "{a,".repeat(20_000),
        format!("{}{}", "{a,".repeat(20_000), "}".repeat(20_000)),
        "{a,b}".repeat(20_000),
        "{1..8192} ".repeat(20_000),
        "{1..9}; ".repeat(20_000),
        "ls @(".repeat(20_000),
        format!("ls {}{}", "@(a|".repeat(200), ")".repeat(200)).repeat(100),
        "ls @($(".repeat(20_000),
        "a=(".repeat(20_000),
        "declare a=( ".repeat(20_000),
        format!("echo {} {} | bash", "x".repeat(100_000), "| cat ".repeat(20_000)),
        format!("{} | bash\n", "cat <<E ".repeat(10_000)),
        "cat <<E | bash | ".repeat(10_000),
        "{a}>".repeat(20_000),
        "!(".repeat(40_000),
        format!("{}rm x", "echo hello world; ".repeat(12_000)),
    ];
    for command in deep {
        let start = std::time::Instant::now();
        let _ = programs(&command);
        assert!(start.elapsed().as_secs() < 10, "{}", &command[..12]);
    }
}

/// Pieces of shell, put together at random.
fn shellish() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "rm",
        "sudo ",
        "bash -c ",
        "$(",
        ")",
        "`",
        "'",
        "\"",
        "${",
        "}",
        "((",
        "))",
        "<<EOF\n",
        "EOF\n",
        "\n",
        ";",
        "&&",
        "|",
        "case x in ",
        "esac",
        " in ",
        ";;",
        "for ",
        "do ",
        "done",
        "{",
        "if ",
        "fi",
        "\\",
        "$'",
        "<(",
        "[[ ",
        " ]]",
        "find . -exec ",
        "\\;",
        "x=",
        "=(",
        "#",
        " ",
        "eval ",
        "é",
        "*",
        "$x",
        "2>",
        "<<<",
        "function ",
        "xargs ",
        "{a,",
        "..",
        ",",
        "tmux new ",
        "docker exec ",
        "@(",
        "!(",
        "declare a=(",
        "{fd}>",
        "ssh host ",
        "echo rm | ",
        "time -",
    ]);
    prop::collection::vec(prop_oneof![8 => piece.prop_map(str::to_owned), 1 => any::<String>()], 0..40)
        .prop_map(|p| p.concat())
}

/// Words with braces in them, put together at random.
fn braced() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "a", "rm", "{", "}", ",", "{", "}", ",", "..", "1", "c", "{a..c}", "{x,y}",
    ]);
    prop::collection::vec(piece, 1..9).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The name of a command is the first word that bash makes of what was written.
    #[test]
    fn braces_become_what_bash_makes_of_them(words in prop::collection::vec(braced(), 40)) {
        let words: Vec<String> = words.into_iter().filter(|word| !["{", "}"].contains(&word.as_str())).collect();
        let script: String = words.iter().map(|word| format!("set -- {word}\nprintf '%s\\n' \"${{1-}}\"\n")).collect();
        let bash = std::process::Command::new("bash").args(["-c", &script]).output().unwrap();
        let firsts = String::from_utf8(bash.stdout).unwrap();
        prop_assert_eq!(firsts.lines().count(), words.len());
        for (word, first) in words.iter().zip(firsts.lines()) {
            prop_assert_eq!(names(word), first, "{}", word);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn no_command_makes_it_fail(command in shellish()) {
        let _ = programs(&command);
    }

    #[test]
    fn a_program_after_a_finished_command_is_seen(words in prop::collection::vec("[a-z]{1,6}", 0..5), quoted in "[a-z $]{0,8}") {
        let before = words.join(" ");
        let command = format!("{before} '{quoted}'; rm x");
        prop_assert!(programs(&command).contains(&Program::Named("rm".into())));
    }
}
