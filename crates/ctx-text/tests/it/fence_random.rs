//! The fence on long, deep and random commands: it ends in time and fails on none.

use std::time::{Duration, Instant};

use ctx_text::fence::{Program, programs};
use proptest::prelude::*;

/// Each of these, repeated to 1 MB, once cost a reader more than linear time or its stack, or could have.
const REPEATED: &[&str] = &[
    "$(",
    "(",
    "`",
    "\\`",
    "\"$(",
    "${x:-",
    "sudo ",
    "eval ",
    "bash -c '",
    "case x in ",
    "case x in a) ",
    "{ ",
    "<(",
    "a <<E ",
    "a <<E\n",
    "$((",
    "((",
    "f() ",
    "{a,",
    "{a,b}",
    "@(",
    "!(",
    "ls @($(",
    "a=(",
    "=()",
    "a=()",
    "[[ ",
    "'",
    "\"",
    "\\",
    "\n",
    ";",
    "#",
    "# a\n",
    "find . -exec ",
    "find . -exec a \\; ",
    "-exec a + ",
    "env A=b ",
    "xargs -n 1 ",
    "docker run ",
    "npx ",
    "ssh h ",
    "parallel a ::: ",
    "trap 'a' b ",
    "$x",
    "\"$x\"",
    "{fd}>",
    "1",
    "1>",
    "time ",
    "a b ",
    "a=b ",
    "x; ",
    "é",
];

#[test]
fn a_long_command_of_anything_ends_in_time() {
    const BYTES: usize = 256 << 10;
    for piece in REPEATED {
        let command = piece.repeat(BYTES / piece.len());
        let start = Instant::now();
        let _ = programs(&command);
        // Linear time is far below this on a busy machine without optimisation; quadratic time is far above.
        assert!(start.elapsed() < Duration::from_secs(10), "{piece:?}: {:?}", start.elapsed());
    }
}

#[test]
fn what_follows_a_long_or_deep_part_is_seen_or_the_whole_is_unknown() {
    for piece in ["a; ", "a && ", "echo $(a) `b`; ", "bash -c 'a'; ", "A=b ", "# x\n", "cat <<E\n$(a)\nE\n"] {
        let command = format!("{}rm x", piece.repeat(100_000));
        assert_eq!(programs(&command).last(), Some(&Program::Named("rm".to_owned())), "{piece:?}");
    }
    for (open, close) in
        [("$(", ")"), ("( ", ")"), ("sudo ", ""), ("\"$(", ")\""), ("eval ", ""), ("<(", ")")]
    {
        for depth in [5, 5000] {
            let command = format!("{}rm x{}", open.repeat(depth), close.repeat(depth));
            let found = programs(&command);
            let sees = |program: &Program| match program {
                Program::Named(name) => name == "rm",
                Program::Unknown(_) => depth > 5,
            };
            assert!(found.iter().any(sees), "{open:?} {depth}: {found:?}");
        }
    }
}

/// Pieces of shell, put together at random.
fn shellish() -> impl Strategy<Value = String> {
    let others = &[
        "rm", ")", "}", "))", "EOF\n", "&&", "|", "esac", " in ", ";;", "for ", "do ", "done", "if ", "fi",
        " ",
    ];
    let more =
        &["$'", " ]]", "\\;", "x=", "<<<", "function ", "..", ",", "*", "--", "-c ", "+", "git bisect run "];
    let piece = prop::sample::select([REPEATED, others, more].concat());
    prop::collection::vec(prop_oneof![8 => piece.prop_map(str::to_owned), 1 => any::<String>()], 0..40)
        .prop_map(|p| p.concat())
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
