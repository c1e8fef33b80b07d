//! Limits, freezing and the end of cages, with each means that this machine has.

use std::path::Path;
use std::time::{Duration, Instant};

use ctx_cage::{Base, Limit, Limits, Means, Version, find_bwrap, parent_of, sweep};
use testkit::until;
use testkit::users::{By, Place, by_both, by_one, processes_with, unique};

use super::support::{cage_of, run_with, start};

const MIB: u64 = 1 << 20;

fn limits() -> Limits {
    Limits { walltime: Some(Duration::from_secs(60)), ..Limits::default() }
}

/// The means of this machine, and those that it would have without others.
fn all_means() -> Vec<Means> {
    let all = Means::detect();
    assert!(
        all.memory.is_some() && all.processes.is_some() && all.freeze.is_some(),
        "this test needs root: {all}"
    );
    let freezer = Path::new("/sys/fs/cgroup/freezer");
    let v1 = freezer.is_dir().then(|| Base { version: Version::V1, dir: freezer.to_owned() });
    let with_freezer = v1.map(|base| Means { freeze: Some(base), ..all.clone() });
    [Some(all), with_freezer, Some(Means::default())].into_iter().flatten().collect()
}

/// With groups where there are some (root), and without (a plain user, and root in a container).
fn with_and_without_groups(work: impl Fn(&Means) + Sync) {
    by_both(|by| {
        work(&Means::detect());
        if by == By::Root {
            work(&Means::default());
        }
    });
}

#[test]
fn a_fork_bomb_ends_at_the_process_limit() {
    let place = Place::new();
    let mut cage = cage_of(&place);
    cage.limits = Limits { processes: 20, ..limits() };
    // One that goes on when it cannot start another, and one that gives up.
    for bomb in ["while :; do sleep 1000 & done", "dash -c 'while :; do sleep 1000 & done'"] {
        with_and_without_groups(|means| {
            let (ended, said) = run_with(&cage, means, bomb);
            // The second has ended by itself where it was told that there is no more room.
            assert_eq!(ended.limit, Some(Limit::Processes), "{means}: {said}");
        });
    }
}

#[test]
fn a_memory_bomb_ends_at_the_memory_limit() {
    let place = Place::new();
    let mut cage = cage_of(&place);
    cage.limits = Limits { memory_bytes: 64 * MIB, ..limits() };
    // One process with much, and many with little.
    for bomb in [
        "python3 -c 'x = bytearray(512 << 20)'; while :; do sleep 1000; done",
        "for i in $(seq 12); do python3 -c 'import time; x = bytearray(12 << 20); time.sleep(1000)' & done; wait",
    ] {
        with_and_without_groups(|means| {
            let (ended, said) = run_with(&cage, means, bomb);
            assert_eq!((ended.limit, ended.code), (Some(Limit::Memory), 137), "{means}: {said}");
        });
    }
}

#[test]
fn memory_that_processes_share_is_counted_once() {
    let place = Place::new();
    let mut cage = cage_of(&place);
    cage.limits = Limits { memory_bytes: 128 * MIB, ..limits() };
    let script = "python3 -c '
import os, time
x = bytearray(48 << 20)
for _ in range(3): os.fork()
time.sleep(0.7)
os._exit(0)
'; echo fine";
    with_and_without_groups(|means| {
        let (ended, said) = run_with(&cage, means, script);
        assert_eq!((ended.limit, ended.code, said.as_str()), (None, 0, "fine\n"), "{means}");
    });
}

#[test]
fn a_full_tmp_is_an_error_and_nothing_more() {
    let place = Place::new();
    let mut cage = cage_of(&place);
    cage.limits = Limits { tmp_bytes: MIB, ..limits() };
    by_both(|_| {
        let script = "for dir in /tmp /dev/shm /home/agent; do head -c 2M /dev/zero > $dir/x || echo full; done; exit 3";
        let (ended, said) = run_with(&cage, &Means::detect(), script);
        assert_eq!((ended.limit, ended.code, said.matches("full").count()), (None, 3, 3), "{said}");
    });
}

#[test]
fn the_wall_time_ends_a_cage_and_is_named() {
    let place = Place::new();
    let mut cage = cage_of(&place);
    cage.limits = Limits { walltime: Some(Duration::from_millis(300)), ..limits() };
    by_both(|_| {
        let (ended, said) = run_with(&cage, &Means::detect(), "trap '' TERM INT; while :; do :; done");
        assert_eq!((ended.limit, ended.code), (Some(Limit::Walltime), 137), "{said}");
    });
    // Who asks hears of it, though the thread of the cage was the first to see it.
    let running = start(&cage, &Means::detect(), "sleep 60");
    assert_eq!(running.wait().limit, Some(Limit::Walltime));
    assert!(running.kill_at_limit());
}

/// The processor time of all processes with this text in their command line, in ticks.
fn ticks(text: &str) -> u64 {
    let of = |pid: &i32| -> Option<u64> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split(' ').collect();
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    processes_with(text).iter().filter_map(of).sum()
}

#[test]
fn a_frozen_cage_uses_no_processor_and_goes_on_later() {
    let place = Place::new();
    for means in all_means() {
        let mark = unique();
        // One that ignores what a terminal would stop it with, and one in a session of its own.
        let busy = format!("exec -a busy{mark} bash -c 'trap \"\" TSTP; while :; do :; done' busy{mark}");
        let script = format!("setsid bash -c \"$(cat <<'E'\n{busy}\nE\n)\" & {busy}");
        let running = start(&cage_of(&place), &means, &script);
        let name = format!("busy{mark}");
        until("both to be busy", || (ticks(&name) > 5).then_some(()));
        let asked = Instant::now();
        running.freeze().unwrap();
        let took = asked.elapsed();
        // `bench` has the 200 ms that it may take on a quiet machine.
        assert!(took < Duration::from_secs(5), "{means}: {took:?}");
        let (frozen, since) = (ticks(&name), Instant::now());
        until("some time to pass", || (since.elapsed() > Duration::from_millis(150)).then_some(()));
        assert_eq!(ticks(&name), frozen, "{means}");
        running.thaw().unwrap();
        until("it to go on", || (ticks(&name) > frozen + 2).then_some(()));
        running.kill();
        assert_eq!(running.wait().limit, None);
        assert_eq!(processes_with(&name), [0; 0], "{means}");
    }
}

#[test]
fn frozen_time_is_no_wall_time() {
    let place = Place::new();
    let mut cage = cage_of(&place);
    cage.limits = Limits { walltime: Some(Duration::from_millis(400)), ..limits() };
    let running = start(&cage, &Means::detect(), "sleep 1000");
    running.freeze().unwrap();
    let since = Instant::now();
    until("more than the wall time to pass", || (since.elapsed() > Duration::from_millis(700)).then_some(()));
    assert_eq!(running.ended(), None);
    running.thaw().unwrap();
    assert_eq!(running.wait().limit, Some(Limit::Walltime));
}

/// Starts children that a signal to a group or a session would not reach.
fn hard_to_kill(mark: &str) -> String {
    format!(
        "setsid sleep {mark} & ( ( setsid sleep {mark} & ) & ) ; ( trap '' TERM HUP INT; sleep {mark} ) & \
         sleep {mark} & kill -STOP $!; nohup sleep {mark} >/dev/null & touch /work/{mark}; wait"
    )
}

#[test]
fn a_killed_cage_leaves_no_process_and_no_group() {
    let place = Place::new();
    for means in all_means() {
        for is_frozen in [false, true] {
            let mark = unique();
            let running = start(&cage_of(&place), &means, &hard_to_kill(&mark));
            until("all to be there", || {
                let all = place.path(&format!("project/{mark}")).exists() && processes_with(&mark).len() >= 6;
                all.then_some(())
            });
            if is_frozen {
                running.freeze().unwrap();
            }
            running.kill();
            assert_eq!(running.wait().code, 137);
            assert_eq!(processes_with(&mark), [0; 0], "{means}");
            for base in means.bases() {
                assert!(!base.dir.join(running.name()).exists(), "{}", base.dir.display());
            }
        }
    }
}

#[test]
fn the_end_of_the_command_ends_what_it_left_behind() {
    let place = Place::new();
    by_both(|_| {
        let mark = unique();
        let (ended, _) = run_with(
            &cage_of(&place),
            &Means::detect(),
            &format!("setsid sleep {mark} >/dev/null 2>&1 & exit 4"),
        );
        assert_eq!((ended.code, processes_with(&mark).len()), (4, 0));
    });
}

#[test]
fn a_dropped_cage_is_killed() {
    let place = Place::new();
    let mark = unique();
    let running = start(&cage_of(&place), &Means::detect(), &format!("sleep {mark}"));
    until("it to run", || (!processes_with(&format!("sleep\0{mark}")).is_empty()).then_some(()));
    drop(running);
    until("it to be gone", || processes_with(&mark).is_empty().then_some(()));
}

#[test]
fn a_sweep_ends_what_a_killed_parent_left_also_frozen() {
    for means in all_means().into_iter().filter(|means| means.freeze.is_some()) {
        let mut left = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let parent = format!("swept-{}", unique());
        let name = format!("ctx-cage-{parent}.1");
        assert_eq!(parent_of(&name), Some(parent.as_str()));
        for base in means.bases() {
            let dir = base.dir.join(&name);
            std::fs::create_dir(&dir).unwrap();
            std::fs::write(dir.join("cgroup.procs"), left.id().to_string()).unwrap();
        }
        let base = means.freeze.as_ref().unwrap();
        let (file, word) = match base.version {
            Version::V2 => ("cgroup.freeze", "1"),
            Version::V1 => ("freezer.state", "FROZEN"),
        };
        std::fs::write(base.dir.join(&name).join(file), word).unwrap();
        assert_eq!(sweep(&means, |other| other == "somebody else"), 0);
        assert_eq!(left.try_wait().unwrap(), None);
        assert_eq!(sweep(&means, |other| other == parent), means.bases().len());
        left.wait().unwrap();
        assert!(means.bases().iter().all(|base| !base.dir.join(&name).exists()));
    }
}

#[test]
fn without_bwrap_or_rights_the_reason_is_said() {
    let error = find_bwrap("/nowhere".as_ref()).unwrap_err();
    assert_eq!((error.code().exit(), error.hint().is_some_and(|hint| hint.contains("install"))), (69, true));
    let place = Place::new();
    let mut cage = cage_of(&place);
    cage.mounts.push(ctx_cage::Mount::ro(place.path("missing"), "/x"));
    let bwrap = find_bwrap(&std::env::var_os("PATH").unwrap()).unwrap();
    let io = || ctx_cage::Io {
        stdin: std::process::Stdio::null(),
        stdout: std::process::Stdio::null(),
        stderr: std::process::Stdio::null(),
    };
    let start =
        |cage| ctx_cage::RunningCage::start(&bwrap, cage, &Means::default(), "test", &["true".into()], io());
    let error = start(&cage).unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    let mut other = cage_of(&place);
    other.owner = ctx_cage::Owner::new(54_499, 54_499);
    let error = by_one(By::Ann, || start(&other).unwrap_err().to_string());
    assert!(error.contains("only root can"), "{error}");
}

#[test]
fn a_sweep_finds_what_bwrap_left_outside_of_all_groups() {
    let parent = format!("swept-{}", unique());
    let mut left = std::process::Command::new("sleep");
    std::os::unix::process::CommandExt::arg0(&mut left, format!("bwrap:ctx-cage-{parent}.1"));
    let mut left = left.arg("1000").spawn().unwrap();
    let name = format!("ctx-cage-{parent}");
    until("it to be there", || (!processes_with(&name).is_empty()).then_some(()));
    assert_eq!(sweep(&Means::default(), |other| other == parent), 1);
    left.wait().unwrap();
}
