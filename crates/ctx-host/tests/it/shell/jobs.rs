//! What background jobs print while their shell tells its report: none of it is lost, and none of it spoils the report.

use super::support::{Bench, Kind};

/// Calls of one test: a job's output meets the report in about every other.
const ROUNDS: usize = 40;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_prints_into_the_report_is_heard_once_and_exports_survive() {
    for kind in [Kind::Bash, Kind::Dash] {
        let bench = Bench::new(kind).await;
        let mut heard = String::new();
        for round in 0..ROUNDS {
            for command in [format!("export Q=q{round}; (echo JOB{round}.) & :"), "true".to_owned()] {
                let result = bench.run(&command).await;
                heard.push_str(&result.stdout);
                heard.push_str(&result.late_output);
            }
        }
        for command in ["wait", ":"] {
            let result = bench.run(command).await;
            heard.push_str(&result.stdout);
            heard.push_str(&result.late_output);
        }
        let mut lines: Vec<&str> = heard.lines().collect();
        let mut want: Vec<String> = (0..ROUNDS).map(|round| format!("JOB{round}.")).collect();
        lines.sort_unstable();
        want.sort_unstable();
        assert_eq!(lines, want, "{kind:?}");
        bench.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_known_although_jobs_print_into_the_report() {
    let bench = Bench::new(Kind::Bash).await;
    for round in 0..ROUNDS {
        let value = format!("t0ken{round}Zq8Lw2Xv");
        std::fs::write(bench.path("tok"), &value).unwrap();
        let job = "(for n in 1 2 3 4 5 6 7 8; do echo job; done) & ";
        let shown = bench.run(&format!("{job}export API_TOKEN=$(cat tok); {job}echo v-$API_TOKEN")).await;
        assert!(!format!("{shown:?}").contains(&value), "{round}: {shown:?}");
        bench.run("wait").await;
        if round % 8 == 0 {
            bench.run(&format!("export KEPT={round}; {job}:")).await;
            bench.run("exit 3").await;
            assert_eq!(bench.out("echo $KEPT").await, format!("{round}\n"));
        }
    }
    bench.end().await;
}

/// The pipes are full whenever somebody looks, also where we mark the end of a command's stderr.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_floods_both_streams_holds_up_no_command() {
    for kind in [Kind::Bash, Kind::Dash] {
        let bench = Bench::new(kind).await;
        bench.run("yes late >&2 & yes late & true").await;
        for n in 0..20 {
            let result = bench.run("echo out; echo err >&2; (exit 3)").await;
            assert_eq!((result.exit_code, result.shell_restarted), (3, false), "{kind:?} {n}");
            for shown in [&result.stdout, &result.stderr, &result.late_output] {
                assert!(!shown.contains('\x1e'), "{kind:?} {n}: a mark is shown");
            }
        }
        bench.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_prints_while_its_shell_is_made_anew_is_heard() {
    for kind in [Kind::Bash, Kind::Dash] {
        let bench = Bench::new(kind).await;
        let print = "echo $n; echo $n >&2; n=$((n+1)); sleep 0.001";
        let job = format!("(n=0; while [ ! -e enough ]; do {print}; done; : >ended) & :");
        let mut heard = String::new();
        let end = [": >enough; until [ -e ended ]; do sleep 0.01; done", ":"];
        for command in [job.as_str()].into_iter().chain(["exit 3"; ROUNDS / 2]).chain(end) {
            let result = bench.run(command).await;
            heard.extend([result.stdout, result.stderr, result.late_output]);
        }
        let mut lines: Vec<u64> = heard.lines().map(|n| n.parse().unwrap()).collect();
        lines.sort_unstable();
        let want: Vec<u64> = (0..lines.len() as u64 / 2).flat_map(|n| [n, n]).collect();
        assert!(!want.is_empty());
        assert_eq!(lines, want, "{kind:?}");
        bench.end().await;
    }
}
