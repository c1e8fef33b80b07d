//! A private key that was printed takes nothing with it: not behind it, not from later commands, not from what is kept.

use ctx_host::{Output, OutputRequest};

use super::support::{Bench, Kind};
use testkit::tokens::key_block;

struct Files {
    key: Vec<String>,
    public: String,
}

/// A whole key in `id`, without its last newline in `bare`, half of it in `half`, and the public one in `id.pub`.
fn files(bench: &Bench) -> Files {
    let (whole, key) = key_block("OPENSSH PRIVATE KEY");
    let whole = whole.trim_end();
    let public = format!("ssh-ed25519 AAAA{} me@host\n", "C3NzaC1lZDI1NTE5".repeat(4));
    for (name, text) in [
        ("id", format!("{whole}\n")),
        ("bare", whole.to_owned()),
        ("half", whole[..200].to_owned()),
        ("id.pub", public.clone()),
    ] {
        std::fs::write(bench.path(name), text).unwrap();
    }
    Files { key, public }
}

fn kept(bench: &Bench, call: u64) -> String {
    let request = OutputRequest {
        call,
        stream: Output::Stdout,
        offset: 0,
        limit: None,
        grep: None,
        ..OutputRequest::default()
    };
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
async fn a_key_takes_nothing_from_later_commands() {
    for kind in [Kind::Bash, Kind::Dash] {
        let bench = Bench::new(kind).await;
        let files = files(&bench);
        for print in ["printf %s \"$(cat bare)\"", "cat half"] {
            let shown = bench.out(print).await;
            assert!(shown.contains("[REDACTED:private-key]"), "{kind:?}: {shown}");
            assert!(files.key.iter().all(|line| !shown.contains(line)), "{kind:?}: {shown}");
            assert_eq!(bench.out("cat id.pub").await, files.public, "{kind:?}: behind {print}");
        }
        bench.end().await;
    }
}
