//! Ways out of a cage, each tried from inside. The walls must hold whoever started the cage.

use std::fs::Permissions;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use ctx_cage::{Access, Cage, Means, Mount, Net, Owner};
use nix::libc;

use testkit::users::{ANN, Place, by_both};

use super::support::{cage_of, run, run_with};

/// Runs each line in the cage; all of them must fail.
fn all_fail(place: &Place, lines: &[String]) {
    let cage = cage_of(place);
    let script: String = lines.iter().map(|line| format!("( {line} ) && echo 'DONE: {line}'\n")).collect();
    let (_, said) = run(&cage, &format!("{script}\necho end"));
    assert!(said.ends_with("end\n") && !said.contains("DONE"), "{said}");
}

#[test]
fn the_daemon_s_files_another_home_and_tokens_are_not_there() {
    let place = Place::new();
    let token = place.file("token", ANN, 0o600, "secret");
    let own_secret = place.file("project/of-root", 0, 0o600, "secret");
    std::fs::create_dir(place.path("project/.demo")).unwrap();
    place.file("project/.demo/token", ANN, 0o600, "secret");
    by_both(|_| {
        let mut cage = cage_of(&place);
        cage.covered.push("/work/.demo".into());
        let (_, said) = run(
            &cage,
            &format!(
                "cat {} ; cat /work/of-root; ls -A /work/.demo; cat /work/.demo/token; cat /etc/shadow; ls /root /ctx; \
                 cat /proc/1/environ; ls /home; echo end",
                token.display()
            ),
        );
        assert!(said.ends_with("agent\nend\n") && !said.contains("secret"), "{said}");
        assert_eq!(said.matches("No such file").count(), 5, "{said}");
        assert_eq!(said.matches("Permission denied").count(), 1, "{}: {said}", own_secret.display());
    });
}

#[test]
fn nothing_is_written_outside_of_writable_mounts() {
    let place = Place::new();
    let outside = place.file("outside", ANN, 0o666, "as it was");
    let open = place.path("open");
    by_both(|_| {
        let mut cage = cage_of(&place);
        cage.mounts.push(Mount::ro(&open, "/seen"));
        let (_, said) = run(
            &cage,
            &format!(
                "for place in / /usr /etc /seen /dev /run /var /proc /home /sys; do touch $place/x && echo DONE $place; done
                 ln -s {outside} /work/link && echo x > /work/link && echo DONE
                 echo x > /work/../../../../{outside} && echo DONE
                 ln /seen /work/hard && echo DONE; ln /usr/bin/env /work/hard && echo DONE
                 echo x > /proc/1/root/{outside} && echo DONE; echo x > /proc/self/cwd/../../{outside} && echo DONE
                 echo x > /proc/sys/kernel/hostname && echo DONE; echo x > /proc/sysrq-trigger && echo DONE
                 rm -f /work/link; touch /work/mine /tmp/mine /home/agent/mine && echo end",
                outside = outside.display()
            ),
        );
        assert!(said.ends_with("end\n") && !said.contains("DONE"), "{said}");
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "as it was");
        assert_eq!(std::fs::read_dir(&open).unwrap().count(), 0);
    });
}

#[test]
fn git_s_directory_is_read_only_where_it_is_mounted_so() {
    let place = Place::new();
    std::fs::create_dir(place.path("project/.git")).unwrap();
    std::os::unix::fs::chown(place.path("project/.git"), Some(ANN), Some(ANN)).unwrap();
    by_both(|_| {
        let mut cage = cage_of(&place);
        let write = "touch /work/.git/hook && echo written; rm -f /work/.git/hook; mv /work/.git /work/g || echo kept";
        let (_, said) = run(&cage, "touch /work/.git/hook && echo written; rm -f /work/.git/hook");
        assert_eq!(said, "written\n");
        cage.mounts.push(Mount::ro(place.path("project/.git"), "/work/.git"));
        let (_, said) = run(&cage, write);
        assert!(
            said.contains("Read-only file system") && said.contains("kept") && !said.contains("written"),
            "{said}"
        );
    });
}

#[test]
fn there_is_no_network_unless_asked_for() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    by_both(|_| {
        let mut cage = cage_of(&place);
        let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{port} && echo reached");
        let (code, said) = run(&cage, &connect);
        assert!(code != 0 && !said.contains("reached"), "{said}");
        cage.net = Net::Host;
        let (code, said) = run(&cage, &connect);
        assert_eq!((code, said.as_str()), (0, "reached\n"));
    });
}

#[test]
fn processes_of_the_host_are_neither_seen_nor_signalled() {
    let place = Place::new();
    let mut victim = Command::new("setpriv");
    victim.args(["--reuid", &ANN.to_string(), "--clear-groups", "sleep", "1000"]);
    let mut victim = victim.stdin(Stdio::null()).spawn().unwrap();
    let pid = victim.id();
    by_both(|_| {
        all_fail(&place, &[format!("kill -9 {pid}"), format!("kill -0 {pid}"), format!("ls /proc/{pid}")]);
        let (ended, _) = run_with(&cage_of(&place), &Means::detect(), "kill -9 -1; kill -9 -- -1; exit 7");
        assert_eq!(ended.code, 7);
    });
    assert_eq!(victim.try_wait().unwrap(), None, "the host's process lives");
    victim.kill().unwrap();
    victim.wait().unwrap();
}

#[test]
fn a_setuid_program_gives_no_rights() {
    let place = Place::new();
    place.file("project/id", 0, 0o755, "");
    std::fs::copy("/usr/bin/id", place.path("project/id")).unwrap();
    // After the copy, which brings the mode of its source.
    std::fs::set_permissions(place.path("project/id"), Permissions::from_mode(0o4755)).unwrap();
    by_both(|_| {
        let (code, said) = run(&cage_of(&place), "/work/id -u");
        assert_eq!((code, said.as_str()), (0, "1000\n"));
    });
}

#[test]
fn there_are_no_capabilities_and_none_can_be_had() {
    let place = Place::new();
    by_both(|_| {
        let (_, said) = run(&cage_of(&place), "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status");
        let wanted: String =
            ["Inh", "Prm", "Eff", "Bnd", "Amb"].map(|set| format!("Cap{set}:\t0000000000000000\n")).concat();
        assert_eq!(said, format!("{wanted}NoNewPrivs:\t1\nSeccomp:\t2\n"));
    });
}

/// What a system call answers inside, as the name of its error.
fn errno_of(place: &Place, call: &str) -> String {
    let script = format!(
        "python3 -c '
import ctypes, errno, fcntl
libc = ctypes.CDLL(None, use_errno=True)
def answer(code): return errno.errorcode[ctypes.get_errno()] if code < 0 else \"done\"
try: print(answer({call}))
except OSError as error: print(errno.errorcode[error.errno])
'"
    );
    run(&cage_of(place), &script).1.trim().to_owned()
}

fn call(number: libc::c_long, args: &str) -> String {
    format!("libc.syscall({number}{args})")
}

#[test]
fn no_process_is_traced() {
    let place = Place::new();
    by_both(|_| {
        assert_eq!(errno_of(&place, "libc.ptrace(0, 0, 0, 0)"), "EPERM");
        assert_eq!(errno_of(&place, &call(libc::SYS_process_vm_readv, ", 1, 0, 0, 0, 0, 0")), "EPERM");
    });
}

#[test]
fn nothing_is_mounted() {
    let place = Place::new();
    by_both(|_| {
        assert_eq!(errno_of(&place, "libc.mount(b\"none\", b\"/tmp\", b\"tmpfs\", 0, None)"), "EPERM");
        assert_eq!(errno_of(&place, &call(libc::SYS_fsopen, ", b\"tmpfs\", 0")), "EPERM");
        all_fail(&place, &["umount /work".to_owned(), "mount -o remount,rw /usr".to_owned()]);
    });
}

#[test]
fn no_namespace_is_made() {
    let place = Place::new();
    by_both(|_| {
        assert_eq!(errno_of(&place, "libc.unshare(0x10000000)"), "EPERM");
        assert_eq!(errno_of(&place, &call(libc::SYS_clone, ", 0x10000011, 0, 0, 0, 0")), "EPERM");
        assert_eq!(errno_of(&place, &call(libc::SYS_clone3, ", 0, 0")), "ENOSYS");
        assert_eq!(errno_of(&place, &call(libc::SYS_setns, ", 0, 0")), "EPERM");
        all_fail(&place, &["unshare -U true".to_owned(), "unshare -r true".to_owned()]);
    });
}

#[test]
fn parts_of_the_kernel_that_work_does_not_need_are_refused() {
    let place = Place::new();
    by_both(|_| {
        for number in [
            libc::SYS_bpf,
            libc::SYS_keyctl,
            libc::SYS_userfaultfd,
            libc::SYS_perf_event_open,
            libc::SYS_io_uring_setup,
        ] {
            assert_eq!(errno_of(&place, &call(number, ", 0, 0, 0, 0, 0")), "EPERM", "{number}");
        }
        assert_eq!(errno_of(&place, "fcntl.ioctl(0, 0x5412, b\"x\")"), "EPERM", "typing into a terminal");
        if cfg!(target_arch = "x86_64") {
            assert_eq!(errno_of(&place, &call(0x4000_0000 + libc::SYS_getpid, "")), "ENOSYS");
        }
    });
}

#[test]
fn the_environment_is_the_cage_s_alone() {
    let place = Place::new();
    by_both(|_| {
        let (_, said) =
            run(&cage_of(&place), "env | grep -vE '^(PWD|SHLVL|_)=' | cut -d= -f1 | sort | tr '\\n' ' '");
        assert_eq!(said, "HOME LANG LOGNAME PATH USER ");
        let (_, said) = run(&cage_of(&place), "tr '\\0' '\\n' < /proc/1/environ | wc -c");
        assert_eq!(said, "0\n", "bwrap's own");
    });
}

#[test]
fn roots_own_project_is_lent_to_a_cage_of_nobodys_and_nothing_else_of_roots_is() {
    let place = Place::new();
    // Nobody can reach it: it lies where only root may go.
    let hidden = place.path("of-root");
    std::fs::create_dir_all(hidden.join("project/.git")).unwrap();
    std::fs::set_permissions(&hidden, Permissions::from_mode(0o700)).unwrap();
    place.file("of-root/project/private", 0, 0o600, "mine");
    place.file("of-root/project/other", ANN, 0o600, "hers");
    let secret = place.file("open/secret", 0, 0o600, "secret");
    let project = hidden.join("project");
    let mut cage = Cage { owner: Owner::NOBODY, lent: vec![project.clone()], ..cage_of(&place) };
    cage.mounts
        .retain(|mount| mount.access == Access::Link || mount.target != std::path::Path::new(Cage::WORK));
    cage.mounts.insert(0, Mount::rw(&project, Cage::WORK));
    cage.mounts.push(Mount::ro(project.join(".git"), "/work/.git"));
    cage.mounts.push(Mount::ro(place.path("open"), "/seen"));
    let script = "cat private; echo made > made; mkdir -p a/b; stat -c %u private made a/b; \
                  touch .git/x || echo no; cat /seen/secret || echo no; cat other || echo no; grep Uid /proc/self/status";
    let (_, said) = run(&cage, script);
    assert!(said.starts_with("mine1000\n1000\n1000\n"), "{said}");
    assert_eq!(said.lines().filter(|line| *line == "no").count(), 3, "{said}");
    assert!(!said.contains("secret\n") && !said.contains("hers"), "{} is kept: {said}", secret.display());
    let made = std::fs::metadata(project.join("made")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&made), 0, "on the disk it is root's");
    assert_eq!(std::fs::read_to_string(project.join("made")).unwrap(), "made\n");
}
