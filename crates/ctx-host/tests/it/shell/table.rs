//! What the rows of the behaviour table promise besides what `behaviour` holds: asking before forcing, the bytes behind the
//! text, every text that is no command, aliases, and a shell that is gone for good.

use std::sync::Arc;

use ctx_host::{
    CreateRequest, ExecRequest, Output, OutputRequest, Page, ShellHost, ShellLimits, ShellRecord,
};
use ctx_session::Code;

use super::support::{
    Bench, Kind, Records, assert_state, config, eventually, rows, rows_elsewhere, with_state,
};

rows![
    a_stop_asks_then_insists_and_what_is_said_to_it_is_shown,
    programs_can_be_interrupted,
    binary_output_is_kept_byte_for_byte,
    what_cannot_be_read_ends_with_2_and_a_message,
    aliases_do_not_reach_the_frame,
    a_shell_that_cannot_be_started_anew_is_closed_and_says_so,
];

rows_elsewhere![a_stop_asks_then_insists_and_what_is_said_to_it_is_shown, programs_can_be_interrupted];

/// A program that starts with INT or QUIT ignored cannot be asked to end, and a script cannot trap them.
async fn programs_can_be_interrupted(kind: Kind) {
    let bench = Bench::new(kind).await;
    for again in [false, true] {
        let ignored = bench.out("grep SigIgn /proc/self/status").await;
        let bits = u64::from_str_radix(ignored.split_whitespace().nth(1).unwrap(), 16).unwrap();
        assert_eq!(bits & 0b110, 0, "again: {again}: {ignored}");
        bench.run("exit 3").await;
    }
    bench.end().await;
}

/// INT, then TERM; only then KILL, which nobody can answer.
async fn a_stop_asks_then_insists_and_what_is_said_to_it_is_shown(kind: Kind) {
    let bench = with_state(kind).await;
    let on = bench.path("deep/on");
    let command = "sh -c 'trap \"echo asked\" INT; trap \"echo insisted\" TERM; touch on; \
                   while :; do sleep 0.05; done'; echo never";
    let mut seen = Vec::new();
    // On a busy machine a program may be killed before it gets to say something.
    while !seen.iter().any(|said| said == "asked\ninsisted\n") {
        assert!(seen.len() < 20, "{seen:?}");
        let (result, ()) = tokio::join!(bench.run(command), async {
            eventually("the command's start", || on.exists()).await;
            assert!(bench.host.interrupt(&bench.id).unwrap().interrupted);
        });
        assert_eq!((result.exit_code, result.shell_restarted), (130, false), "{result:?}");
        let said = ["", "asked\n", "insisted\n", "asked\ninsisted\n"];
        assert!(said.contains(&result.stdout.as_str()), "{result:?}");
        seen.push(result.stdout);
        std::fs::remove_file(&on).unwrap();
    }
    assert_state(&bench).await;
    bench.end().await;
}

/// The bytes of a page, where they are no text.
fn bytes_of(page: &Page) -> Vec<u8> {
    let Some(base64) = &page.base64 else { return page.text.clone().into_bytes() };
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u32> =
        base64.bytes().filter(|byte| *byte != b'=').map(|byte| u32::from(digit(byte))).collect();
    let decoded = digits.chunks(4).flat_map(|four| {
        let bits = four.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    });
    decoded.collect()
}

async fn binary_output_is_kept_byte_for_byte(kind: Kind) {
    let bench = Bench::new(kind).await;
    // All bytes, in no order that means anything.
    let bytes: Vec<u8> =
        (0..300_000u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    std::fs::write(bench.path("binary"), &bytes).unwrap();
    let result = bench.run("cat binary").await;
    assert_eq!((result.exit_code, result.truncated), (0, true));
    assert!(result.stdout.starts_with("[binary output: 300000 bytes; "), "{}", result.stdout);
    let (mut kept, mut at) = (Vec::new(), Some(0));
    while let Some(offset) = at {
        let request = OutputRequest {
            call: 1,
            stream: Output::Stdout,
            offset,
            limit: Some(70_001),
            grep: None,
            ..OutputRequest::default()
        };
        let page = bench.host.output(&bench.id, &request).unwrap();
        kept.extend(bytes_of(&page));
        at = page.next_offset;
    }
    assert!(kept == bytes, "{} bytes are kept of {}", kept.len(), bytes.len());
    bench.end().await;
}

async fn what_cannot_be_read_ends_with_2_and_a_message(kind: Kind) {
    let bench = with_state(kind).await;
    for broken in [
        "echo 'open",
        "echo \"open",
        "echo `open",
        "echo ${open",
        "echo $((1+",
        "if true; then",
        "while",
        "for",
        "case x in",
        "f() {",
        "{ echo a",
        "( echo a",
        "echo )",
        "echo a; )",
        "fi",
        "done",
        "}",
        "|| true",
        "echo a | | b",
        "echo a && ",
    ] {
        let result = bench.run(broken).await;
        assert_eq!((result.exit_code, result.stdout.as_str()), (2, ""), "{broken}: {result:?}");
        assert!(!result.stderr.is_empty() && !result.shell_restarted, "{broken}: {result:?}");
        assert_state(&bench).await;
    }
    bench.end().await;
}

async fn aliases_do_not_reach_the_frame(kind: Kind) {
    let bench = with_state(kind).await;
    if kind == Kind::Bash {
        bench.out("shopt -s expand_aliases").await;
    }
    let words = "eval exec read set trap export command builtin printf echo unset shopt if then else fi [[ [ : ! declare . \
                 source return exit cd pwd test true kill wait while do done enable";
    bench.out(&format!("for word in {words}; do alias \"$word=echo hijacked\"; done")).await;
    for command in ["\\pwd", "\\pwd"] {
        let result = bench.run(command).await;
        let want = format!("{}\n", bench.path("deep").display());
        let seen = (result.stdout, result.stderr, result.late_output, result.shell_restarted);
        assert_eq!(seen, (want, String::new(), String::new(), false), "{command}");
    }
    let stopped = bench.run_for("\\sleep 60", 200).await;
    assert_eq!((stopped.exit_code, stopped.shell_restarted), (124, false), "{stopped:?}");
    assert!(bench.out("pwd").await.starts_with("hijacked"), "they are the script's own");
    bench.out("\\unalias -a").await;
    assert_state(&bench).await;
    bench.end().await;
}

/// The program of its shell is gone; a connection that is lost is no other case.
async fn a_shell_that_cannot_be_started_anew_is_closed_and_says_so(kind: Kind) {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("own-shell");
    std::fs::copy(kind.program(), &program).unwrap();
    let mut config = config(kind, dir.path());
    config.program = Some(program.clone());
    config.limits = ShellLimits { shells_max: 2, ..ShellLimits::default() };
    let records = Arc::new(Records::default());
    let host = ShellHost::new(config, records.clone()).unwrap();
    let run = |id: &str, command: &str| {
        let request = ExecRequest { command: command.to_owned(), ..ExecRequest::default() };
        let (host, id) = (host.clone(), id.to_owned());
        async move { host.exec(&id, request, None).await }
    };
    let lost = host.create(CreateRequest::default()).await.unwrap();
    let other = host.create(CreateRequest::default()).await.unwrap();
    run(&other, "kept=here").await.unwrap();
    std::fs::remove_file(&program).unwrap();
    let ended = run(&lost, "echo last; exit 3").await.unwrap();
    assert_eq!((ended.stdout.as_str(), ended.exit_code), ("last\n", 3), "{ended:?}");
    assert!(ended.hint.as_ref().unwrap().contains("could not be started anew"), "{ended:?}");
    let error = run(&lost, "echo never").await.unwrap_err();
    assert_eq!(error.code(), Code::Ehostdown, "{error}");
    assert!(error.to_string().contains("session_create"), "{error}");
    eventually("the end of the shell", || host.list().len() == 1).await;
    let is_lost = |record: &ShellRecord| matches!(record, ShellRecord::Lost { .. });
    assert_eq!(records.0.lock().unwrap().iter().filter(|record| is_lost(record)).count(), 1);
    assert_eq!(run(&other, "echo $kept").await.unwrap().stdout, "here\n", "other shells go on");
    host.shutdown().await;
}
