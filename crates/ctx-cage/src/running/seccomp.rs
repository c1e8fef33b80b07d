//! The system calls that no cage may make, as programs for the kernel's filter.
//!
//! The namespaces are the wall; the filter removes parts of the kernel that work does not need and that have let others
//! out before. All other calls are allowed: a list of allowed ones would break programs with every new kernel.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch,
};

use crate::error::CageError;

const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// Flags of `clone` and `unshare` that make namespaces.
const NEW_NAMESPACES: [u64; 8] = [
    0x0000_0080, // time
    0x0002_0000, // mount
    0x0200_0000, // cgroup
    0x0400_0000, // uts
    0x0800_0000, // ipc
    0x1000_0000, // user
    0x2000_0000, // pid
    0x4000_0000, // net
];
/// Terminal requests that type into the terminal of somebody else.
const TYPING: [u64; 2] = [0x5412, 0x541c];

/// The filters of a cage, each as `bwrap` reads it. The strictest answer of all filters holds.
pub fn filters() -> Result<Vec<Vec<u8>>, CageError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        call::REFUSED.iter().map(|number| (*number, Vec::new())).collect();
    for call in [call::CLONE, call::UNSHARE] {
        let flags = NEW_NAMESPACES.iter().map(|flag| argument(0, SeccompCmpOp::MaskedEq(*flag), *flag));
        rules.insert(call, flags.collect::<Result<_, _>>()?);
    }
    let typing = TYPING.iter().map(|request| argument(1, SeccompCmpOp::Eq, *request));
    rules.insert(call::IOCTL, typing.collect::<Result<_, _>>()?);
    // The flags of clone3 are in memory, where no filter sees them. Without it, libraries use clone.
    let no_clone3 = BTreeMap::from([(call::CLONE3, Vec::new())]);
    let mut filters = vec![program(rules, EPERM)?, program(no_clone3, ENOSYS)?];
    filters.extend(no_second_table());
    Ok(filters)
}

fn argument(index: u8, compare: SeccompCmpOp, value: u64) -> Result<SeccompRule, CageError> {
    let condition = SeccompCondition::new(index, SeccompCmpArgLen::Dword, compare, value).map_err(refused)?;
    SeccompRule::new(vec![condition]).map_err(refused)
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: u32) -> Result<Vec<u8>, CageError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(refused)?;
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(errno), arch);
    let program: BpfProgram = filter.map_err(refused)?.try_into().map_err(refused)?;
    let instructions = program.iter().map(|step| instruction(step.code, step.jt, step.jf, step.k));
    Ok(instructions.flatten().collect())
}

fn instruction(code: u16, if_true: u8, if_false: u8, value: u32) -> [u8; 8] {
    let ([a, b], [c, d, e, f]) = (code.to_ne_bytes(), value.to_ne_bytes());
    [a, b, if_true, if_false, c, d, e, f]
}

fn refused(error: seccompiler::BackendError) -> CageError {
    CageError::Filter(error.to_string())
}

/// x86-64 has a second table of the same calls, under numbers with this bit; the rules above know the first only.
fn no_second_table() -> Option<Vec<u8>> {
    const SECOND_TABLE: u32 = 0x4000_0000;
    let (load, at_least, answer) = (0x20, 0x35, 0x06);
    let (allow, errno) = (0x7fff_0000, 0x0005_0000);
    let steps = [
        instruction(load, 0, 0, 0),
        instruction(at_least, 0, 1, SECOND_TABLE),
        instruction(answer, 0, 0, errno | ENOSYS),
        instruction(answer, 0, 0, allow),
    ];
    cfg!(target_arch = "x86_64").then(|| steps.concat())
}

/// The numbers of system calls, which differ between architectures.
mod call {
    use nix::libc;

    pub type Call = libc::c_long;

    pub const CLONE: Call = libc::SYS_clone;
    pub const CLONE3: Call = libc::SYS_clone3;
    pub const UNSHARE: Call = libc::SYS_unshare;
    pub const IOCTL: Call = libc::SYS_ioctl;

    pub const REFUSED: &[Call] = &[
        // Mounts and other roots.
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_fsconfig,
        libc::SYS_fsmount,
        libc::SYS_fspick,
        libc::SYS_mount_setattr,
        libc::SYS_setns,
        libc::SYS_open_by_handle_at,
        libc::SYS_name_to_handle_at,
        // Other processes' memory.
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_kcmp,
        libc::SYS_pidfd_getfd,
        // Parts of the kernel with a history.
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_io_uring_setup,
        libc::SYS_io_uring_enter,
        libc::SYS_io_uring_register,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        // The machine itself.
        libc::SYS_kexec_load,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_acct,
        libc::SYS_quotactl,
        libc::SYS_syslog,
        libc::SYS_settimeofday,
        libc::SYS_clock_settime,
        libc::SYS_adjtimex,
        libc::SYS_clock_adjtime,
    ];
}
