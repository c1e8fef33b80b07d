//! A private key that was printed takes nothing with it: not behind it, not from later commands, not from what is kept.

use ctx_host::shell::{Output, OutputRequest};

use super::support::{Bench, Kind};
use crate::text_redact_corpus::{BASE64, Letters};

struct Files {
    key: Vec<String>,
    public: String,
}

/// A whole key in `id`, without its last newline in `bare`, half of it in `half`, and the public one in `id.pub`.
fn files(bench: &Bench) -> Files {
    let mut l = Letters(21);
    let key: Vec<String> = [70, 70, 70, 70, 46].map(|len| l.take(BASE64, len)).into();
    let label = concat!("OPENSSH PRI", "VATE KEY");
    let whole = format!("-----BEGIN {label}-----\n{}\n-----END {label}-----", key.join("\n"));
    let public = format!("ssh-ed25519 AAAA{} me@host\n", l.take(BASE64, 64));
    for (name, text) in [
        ("id", format!("{whole}\n")),
        ("bare", whole.clone()),
        ("half", whole[..200].to_owned()),
        ("id.pub", public.clone()),
    ] {
        std::fs::write(bench.path(name), text).unwrap();
    }
    Files { key, public }
}

fn kept(bench: &Bench, call: u64) -> String {
    let request = OutputRequest { call, stream: Output::Stdout, offset: 0, limit: None, grep: None };
    bench.host.output(&bench.id, &request).unwrap().text
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_printed_behind_a_whole_key_is_shown_and_kept() {
    for kind in [Kind::Bash, Kind::Dash] {
        let bench = Bench::new(kind).await;
        let files = files(&bench);
        for before in [
            "",
            "printf '\\033[32mhi\\033[0m\\n';",
            "printf 'hi\\r\\n';",
            "printf '\\a';",
            "printf '1%%\\r2%%\\n';",
        ] {
            let seen =
                bench.run(&format!("{before} cat id; printf '\\033[32mho\\033[0m\\n'; cat id.pub")).await;
            let page = kept(&bench, seen.call);
            for text in [&seen.stdout, &page] {
                assert!(files.key.iter().all(|line| !text.contains(line)), "{kind:?} {before}: {text}");
                assert!(text.contains("[REDACTED:private-key]"), "{kind:?} {before}: {text}");
                assert!(text.ends_with(&files.public), "{kind:?} {before}: {text}");
                assert!(text.contains("ho"), "{kind:?} {before}: {text}");
            }
        }
        bench.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_takes_nothing_from_later_commands_when_it_has_ended_or_a_few_lines_were_shown() {
    for kind in [Kind::Bash, Kind::Dash] {
        let bench = Bench::new(kind).await;
        let files = files(&bench);
        let whole = bench.out("printf %s \"$(cat bare)\"").await;
        assert!(
            whole.contains("[REDACTED:private-key]") && files.key.iter().all(|line| !whole.contains(line))
        );
        assert_eq!(bench.out("cat id.pub").await, files.public, "{kind:?}: behind a whole key");
        bench.run("cat half").await;
        for _ in 0..6 {
            assert_eq!(bench.out("echo done").await, "done\n");
        }
        assert_eq!(bench.out("cat id.pub").await, files.public, "{kind:?}: behind half a key");
        // What goes on with it is hidden.
        bench.run("cat half").await;
        let rest = bench.out("tail -c +201 id; cat id.pub").await;
        assert!(files.key.iter().all(|line| !rest.contains(&line[line.len() - 20..])), "{kind:?}: {rest}");
        assert!(rest.ends_with(&files.public), "{kind:?}: {rest}");
        bench.end().await;
    }
}
