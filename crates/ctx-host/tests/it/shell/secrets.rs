//! No secret gets out of a shell, through whichever opening: both streams, late output, kept output, the log, the
//! directory's name, refusals and errors.

use std::collections::BTreeSet;
use std::sync::Arc;

use ctx_host::{
    CreateRequest, ExecRequest, LogError, Output, OutputRequest, ShellError, ShellHost, ShellLog, ShellRecord,
};
use ctx_session::Ulid;

use super::support::{Bench, Kind, Records, config, eventually};
use testkit::tokens::{EXAMPLES, key_block};

fn command(command: impl Into<String>) -> ExecRequest {
    ExecRequest { command: command.into(), ..ExecRequest::default() }
}

fn page(bench: &Bench, call: u64, stream: Output) -> String {
    let request = OutputRequest {
        call,
        stream,
        offset: 0,
        limit: Some(256 << 10),
        grep: None,
        ..OutputRequest::default()
    };
    format!("{:?}", bench.host.output(&bench.id, &request).unwrap())
}

/// Whether the token is seen, or the end of it.
fn shows(seen: &str, token: &str) -> bool {
    seen.contains(&token[token.len() - 8..])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_of_every_kind_is_hidden_in_whatever_prints_it() {
    let bench = Bench::new(Kind::Bash).await;
    let mut names = 0;
    let mut kinds = BTreeSet::new();
    for (n, (kind, token)) in EXAMPLES.iter().filter(|(kind, _)| kinds.insert(*kind)).enumerate() {
        std::fs::write(bench.path("it"), format!("found {token} there\n")).unwrap();
        let shown = bench.run("cat it; cat it >&2; { sleep 0.001; cat it; touch done; } &").await;
        eventually("the job", || bench.path("done").exists()).await;
        let late = bench.run("rm done; wait").await;
        let late = format!("{late:?}{}", bench.run("wait").await.late_output);
        let call = shown.call;
        let kept = format!("{}{}", page(&bench, call, Output::Stdout), page(&bench, call, Output::Stderr));
        let kept_late =
            format!("{}{}", page(&bench, call + 1, Output::Late), page(&bench, call + 2, Output::Late));
        let mut seen = vec![format!("{shown:?}"), late, kept, kept_late];
        // As the name of a directory, where it can be one.
        let name = *token;
        if name.len() < 200 && !name.contains('/') {
            names += 1;
            let there =
                bench.run(&format!("mkdir -p '{n}' && cd '{n}' && mkdir '{name}' && cd '{name}'")).await;
            assert_eq!(there.exit_code, 0, "{there:?}");
            seen.push(format!("{there:?}{:?}", bench.host.list()));
            bench.run("exit 1").await;
            bench.run("cd ../..").await;
            let missing = CreateRequest { cwd: Some(format!("no/{name}")), ..CreateRequest::default() };
            let error = bench.host.create(missing).await.unwrap_err();
            seen.push(bench.host.shown(&error.to_string()));
        }
        for seen in seen {
            assert!(!shows(&seen, token), "{kind} got through: {seen}");
        }
    }
    assert!(names > 30, "{names} names");
    let records = format!("{:?}", bench.records.0.lock().unwrap());
    for (kind, token) in EXAMPLES {
        assert!(!shows(&records, token), "{kind} is in the log");
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_in_small_writes_are_hidden_in_both_streams_and_the_log() {
    let bench = Bench::new(Kind::Bash).await;
    for (n, examples) in EXAMPLES.chunks(40).enumerate() {
        let text: String = examples.iter().map(|(_, token)| format!("found {token} there\n")).collect();
        std::fs::write(bench.path("it"), text).unwrap();
        let bytes = 7 + 30 * n;
        let shown =
            bench.run(&format!("dd if=it bs={bytes} status=none; dd if=it bs={bytes} status=none >&2")).await;
        let call = shown.call;
        let kept = format!("{}{}", page(&bench, call, Output::Stdout), page(&bench, call, Output::Stderr));
        let records = format!("{:?}", bench.records.0.lock().unwrap());
        for (kind, token) in examples {
            for seen in [&shown.stdout, &shown.stderr, &kept, &records] {
                assert!(!shows(seen, token), "{kind} got through");
            }
        }
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_recorded_without_its_secrets() {
    let dir = tempfile::tempdir().unwrap();
    let records = Arc::new(Records::default());
    let host = ShellHost::new(config(Kind::Bash, dir.path()), records.clone()).unwrap();
    let env = vec![("DEPLOY_PASSWORD".to_owned(), "correct-horse-battery-9".to_owned())];
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    let deny = vec!["rm".to_owned(), token.clone()];
    let id = host.create(CreateRequest { env, deny, ..CreateRequest::default() }).await.unwrap();
    for refused in ["rm correct-horse-battery-9".to_owned(), format!("{token} x")] {
        let error = host.exec(&id, command(refused), None).await.unwrap_err();
        assert!(matches!(error, ShellError::Denied { .. }));
        assert!(!error.to_string().contains(&token), "{error}");
    }
    let log = format!("{:?}", records.0.lock().unwrap());
    assert!(!log.contains("correct-horse") && !log.contains(&token), "{log}");
    assert!(log.contains("ExecRefused") && log.contains("[REDACTED:"), "{log}");
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_output_is_redacted_before_it_is_cut_and_none_of_it_is_lost() {
    let bench = Bench::new(Kind::Bash).await;
    let (key, lines) = key_block("RSA PRIVATE KEY");
    std::fs::write(bench.path("key"), key).unwrap();
    // Not before the command that starts it has its answer.
    let job = "until [ -e go ]; do sleep 0.01; done; cat key; head -c 64336 /dev/zero | tr '\\0' .; echo; seq 100000";
    bench.run(&format!("{{ {job}; touch done; }} &")).await;
    std::fs::write(bench.path("go"), "").unwrap();
    eventually("the job", || bench.path("done").exists()).await;
    let told = bench.run("wait").await;
    let after = bench.run(":").await;
    assert!(told.truncated && told.hint.as_deref().unwrap_or_default().contains("late_output"), "{told:?}");
    let (mut kept, mut offset) = (String::new(), Some(0));
    while let Some(at) = offset {
        let request = OutputRequest {
            call: told.call,
            stream: Output::Late,
            offset: at,
            limit: Some(256 << 10),
            grep: None,
            ..OutputRequest::default()
        };
        let page = bench.host.output(&bench.id, &request).unwrap();
        kept.push_str(&page.text);
        offset = page.next_offset;
    }
    kept.push_str(&after.late_output);
    assert!(kept[..200].contains("[REDACTED:private-key]"), "{}", &kept[..200]);
    assert!(kept.contains("\n1\n2\n3\n") && kept.contains("\n65536\n") && kept.ends_with("\n100000\n"));
    for line in &lines {
        assert!(!told.late_output.contains(line) && !kept.contains(line), "{line}");
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_a_command_sets_and_prints_at_once_is_not_shown() {
    for kind in [Kind::Bash, Kind::Dash] {
        let bench = Bench::new(kind).await;
        std::fs::write(bench.path(".env"), "SERVICE_TOKEN=just-some-words-77\n").unwrap();
        let result =
            bench.run("set -a; . ./.env; set +a; echo $SERVICE_TOKEN; echo err $SERVICE_TOKEN >&2").await;
        let seen =
            format!("{result:?}{}{:?}", page(&bench, 1, Output::Stdout), bench.records.0.lock().unwrap());
        assert!(!seen.contains("just-some-words"), "{kind:?}: {seen}");
        assert!(result.stdout.starts_with("[REDACTED:") && result.stderr.starts_with("err [REDACTED:"));
        bench.end().await;
    }
}

/// What a command sets a variable to stands in the command: it is known whatever becomes of the shell.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_stands_in_a_command_is_not_shown_by_it_nor_by_those_after_it() {
    for kind in [Kind::Bash, Kind::Dash] {
        let bench = Bench::new(kind).await;
        for (n, set) in [
            "export MY_TOKEN=word-@-77; echo $MY_TOKEN; echo err $MY_TOKEN >&2; exit 3",
            "MY_TOKEN='word-@-77'; set -e; echo $MY_TOKEN; echo err $MY_TOKEN >&2; false",
            "MY_TOKEN=\"word-@-77\"; echo $MY_TOKEN; echo err $MY_TOKEN >&2",
            "MY_TOKEN=word-@-77 sh -c 'echo $MY_TOKEN; echo err $MY_TOKEN >&2; kill -9 $PPID'",
            "env MY_TOKEN=word-@-77 sh -c 'echo $MY_TOKEN; echo err $MY_TOKEN >&2'",
        ]
        .into_iter()
        .enumerate()
        {
            let (secret, call) = (format!("word-{n}-77"), 2 * n as u64 + 1);
            let result = bench.run(&set.replace("word-@-77", &secret)).await;
            let after = bench.run(&format!("echo {secret}; echo fine")).await;
            let seen = format!(
                "{result:?}{after:?}{}{}{:?}",
                page(&bench, call, Output::Stdout),
                page(&bench, call, Output::Stderr),
                bench.records.0.lock().unwrap()
            );
            assert!(!seen.contains(&secret), "{kind:?}: {set}: {seen}");
            assert!(result.stdout.starts_with("[REDACTED:env:MY_TOKEN]"), "{result:?}");
            assert!(result.stderr.starts_with("err [REDACTED:"), "{result:?}");
            assert!(after.stdout.ends_with("\nfine\n"), "{after:?}");
        }
        // Neither short nor plain words, nor names that are none of a secret.
        let plain = bench
            .out("API_KEY=short; SORT_KEY=created_at; NAME=word-of-mine; echo $API_KEY $SORT_KEY $NAME")
            .await;
        assert_eq!(plain, "short created_at word-of-mine\n");
        bench.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_in_colour_is_not_shown_by_what_is_kept() {
    let bench = Bench::new(Kind::Bash).await;
    let token = format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8");
    std::fs::write(bench.path("file"), format!("before\nkey {token}\nafter\n")).unwrap();
    let result = bench.run("grep --color=always ghp_ file; printf 'x\\n'").await;
    assert!(!result.stdout.contains("a1B2c3D4"), "{result:?}");
    let kept = page(&bench, 1, Output::Stdout);
    assert!(!kept.contains("a1B2c3D4") && kept.contains("[REDACTED:"), "{kept}");
    bench.end().await;
}

/// A log whose disk is full from the nth record on, for a while.
struct Full {
    records: Records,
    from: usize,
}

impl ShellLog for Full {
    fn record(&self, log: Ulid, record: &ShellRecord) -> Result<(), LogError> {
        self.records.record(log, record)?;
        let written = self.records.0.lock().unwrap().len();
        if written == self.from + 1 || written == self.from + 2 {
            return Err(LogError { message: "no space left on device".to_owned() });
        }
        Ok(())
    }

    fn close(&self, _log: Ulid) {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_cannot_be_recorded_does_not_run_and_an_end_that_cannot_is_said() {
    let dir = tempfile::tempdir().unwrap();
    // Created, started, then finished and the next start fail.
    let log = Arc::new(Full { records: Records::default(), from: 2 });
    let host = ShellHost::new(config(Kind::Bash, dir.path()), log).unwrap();
    let id = host.create(CreateRequest::default()).await.unwrap();
    let first = host.exec(&id, command("echo one"), None).await.unwrap();
    assert_eq!(first.stdout, "one\n");
    assert!(first.hint.as_deref().unwrap_or_default().contains("no space left"), "{first:?}");
    let second = host.exec(&id, command("touch ran"), None).await.unwrap_err();
    assert!(matches!(second, ShellError::Log { .. }), "{second:?}");
    assert!(!dir.path().join("ran").exists());
    let third = host.exec(&id, command("echo three"), None).await.unwrap();
    assert_eq!((third.stdout.as_str(), third.call, third.hint), ("three\n", 2, None));
    host.shutdown().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_at_a_command_s_end_adds_nothing_to_the_next_command_and_takes_nothing_from_it() {
    let lines: Vec<String> = (0..20).map(|n| format!("{n:02}kA9/zQ").repeat(8)).collect();
    let (open, close) = ("-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----");
    let cases = [
        ("a key that is cut", format!("{open}\n{}\n", lines[..2].join("\n"))),
        ("a key without a last newline", format!("{open}\n{}\n{close}", lines.join("\n"))),
        ("a long token without a newline", format!("ghp_{}", "a1B2c3D4e5F6g7H8i9J0".repeat(10))),
    ];
    for kind in [Kind::Bash, Kind::Dash] {
        let bench = Bench::new(kind).await;
        for (case, secret) in &cases {
            std::fs::write(bench.path("secret"), secret).unwrap();
            let first = bench.run("cat secret; cat secret >&2").await;
            let next = bench.run("echo hi; echo ho >&2").await;
            let seen = (next.stdout.as_str(), next.stderr.as_str(), next.late_output.as_str());
            assert_eq!(seen, ("hi\n", "ho\n", ""), "{kind:?}: {case}");
            assert!(first.stdout.contains("[REDACTED:"), "{kind:?}: {case}: {first:?}");
            assert!(!format!("{first:?}").contains("c3D4e5F6") && !format!("{first:?}").contains(&lines[1]));
            let kept = page(&bench, next.call, Output::Stdout);
            assert!(kept.contains("\"hi\\n\"") && !kept.contains("PRIVATE"), "{kind:?}: {case}: {kept}");
        }
        bench.end().await;
    }
}

/// bash keeps what has no name for a variable from its own list, and passes it on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_the_shell_does_not_list_is_still_known() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(Kind::Bash, dir.path());
    config.env.push(("spring.datasource.password".to_owned(), b"correct-horse-battery-9".to_vec()));
    let host = ShellHost::new(config, Arc::new(Records::default())).unwrap();
    let id = host.create(CreateRequest::default()).await.unwrap();
    for before in ["", "export A=1; "] {
        let ask = format!("{before}env | sed -n 's/^spring.datasource.password=/it: /p'");
        let shown = host.exec(&id, command(ask), None).await.unwrap();
        assert!(shown.stdout.starts_with("it: [REDACTED:"), "{shown:?}");
    }
    host.shutdown().await;
}

/// A host whose operator has a secret, and a shell that was asked for with more variables.
async fn of_operator(kind: Kind, env: &[(&str, &str)]) -> Bench {
    let dir = tempfile::tempdir().unwrap();
    let mut config = config(kind, dir.path());
    config.env.push(("DEPLOY_TOKEN".to_owned(), b"operatorvalue4711x".to_vec()));
    let records = Arc::new(Records::default());
    let host = ShellHost::new(config, records.clone()).unwrap();
    let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let id = host.create(CreateRequest { env, ..CreateRequest::default() }).await.unwrap();
    Bench { host, id, dir, records }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_stays_one_when_its_variable_is_gone() {
    for kind in [Kind::Bash, Kind::Dash] {
        for env in [&[][..], &[("DEPLOY_TOKEN", "y")], &[("DEPLOY_TOKEN", "another-value-9")]] {
            let bench = of_operator(kind, env).await;
            for (name, value) in [
                ("operator", "operatorvalue4711x"),
                ("caller", "callervalue4712x"),
                ("computed", "computed-4713-x"),
            ] {
                std::fs::write(bench.path(name), value).unwrap();
            }
            bench.run("export MY_TOKEN=callervalue4712x; export LATER_TOKEN=$(cat computed)").await;
            for (n, change) in [
                ":",
                "unset DEPLOY_TOKEN MY_TOKEN LATER_TOKEN",
                "export DEPLOY_TOKEN=x MY_TOKEN=x LATER_TOKEN=x",
                "export DEPLOY_TOKEN=other-4714-x MY_TOKEN=other-4714-x",
                "unset DEPLOY_TOKEN",
                "exit 3",
            ]
            .into_iter()
            .enumerate()
            {
                bench.run(change).await;
                let shown = bench.run("cat operator; echo; cat caller computed >&2; pwd >/dev/null").await;
                let kept = page(&bench, shown.call, Output::Stdout);
                let seen = format!("{shown:?}{kept}{:?}", bench.records.0.lock().unwrap());
                for value in ["operatorvalue4711x", "callervalue4712x", "computed-4713-x"] {
                    assert!(!seen.contains(value), "{kind:?} {env:?} after {n} `{change}`: {seen}");
                }
                assert_eq!(shown.stdout, "[REDACTED:env:DEPLOY_TOKEN]\n", "{shown:?}");
                assert_eq!(shown.stderr, "[REDACTED:env:MY_TOKEN][REDACTED:env:LATER_TOKEN]", "{shown:?}");
            }
            bench.end().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operator_s_secrets_are_known_in_every_shell_and_a_shell_s_own_in_it_alone() {
    let bench = of_operator(Kind::Bash, &[("MY_TOKEN", "callervalue4712x")]).await;
    let other = bench.host.create(CreateRequest::default()).await.unwrap();
    let both = "unset DEPLOY_TOKEN MY_TOKEN; echo operatorvalue4711x callervalue4712x";
    let first = bench.run(both).await;
    assert_eq!(first.stdout, "[REDACTED:env:DEPLOY_TOKEN] [REDACTED:env:MY_TOKEN]\n");
    let second = bench.host.exec(&other, command(both), None).await.unwrap();
    assert_eq!(second.stdout, "[REDACTED:env:DEPLOY_TOKEN] callervalue4712x\n");
    bench.end().await;
}
