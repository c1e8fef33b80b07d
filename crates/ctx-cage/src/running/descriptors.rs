//! Descriptors that this process was started with are not for its cages, nor for processes that outlive it.

use std::sync::Once;

use nix::libc;

/// Everything that this program opens closes by itself when another one begins; what it was given by whoever started it
/// does not, and would reach the command of a cage, or be kept open by a daemon. Done once, since it is given nothing later.
pub fn keep() {
    static KEPT: Once = Once::new();
    KEPT.call_once(mark);
}

#[expect(unsafe_code, reason = "no library of ours wraps this call; it closes nothing")]
fn mark() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: it takes numbers alone. With this flag descriptors stay open and only get the mark that Rust gives its own.
    let done =
        unsafe { libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done != 0 {
        tracing::warn!(
            "the kernel is too old to keep descriptors that ctx was started with from the processes that it starts"
        );
    }
}
