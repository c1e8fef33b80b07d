//! Gives memory back to the system that the daemon no longer uses.
//!
//! glibc keeps what was freed, for each thread apart, so that a start with many sessions, a rebuild or a busy hour would
//! stay in the daemon's size for good. It is told to give it back, soon after the start and then now and then, but only when
//! the daemon is larger than the smallest it ever was after that: what was in use the last time may be free by now, and its
//! size does not tell. Not a limit: what is in use stays.

use std::time::Duration;

/// The first look; the pauses between the next ones double up to the longest.
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);
/// Less than this is not worth it.
const GROWN_BYTES: u64 = 1 << 20;

/// Looks after it until the runtime ends.
pub async fn keep_small() {
    let (mut pause, mut smallest) = (FIRST, None);
    loop {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST);
        let Some(now) = resident().filter(|now| is_larger(smallest, *now)) else { continue };
        if tokio::task::spawn_blocking(trim).await.is_err() {
            return;
        }
        let left = resident().unwrap_or(now);
        smallest = Some(smallest.map_or(left, |before: u64| before.min(left)));
    }
}

/// Whether there may be something to give back.
fn is_larger(smallest: Option<u64>, now: u64) -> bool {
    smallest.is_none_or(|smallest| now >= smallest.saturating_add(GROWN_BYTES))
}

/// Bytes of this process that are in memory; none where the system does not tell.
fn resident() -> Option<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "no library wraps this call; it takes a number and touches only free memory")]
fn trim() {
    // SAFETY: glibc documents it as safe to call from any thread at any time.
    let _ = unsafe { libc::malloc_trim(0) };
}

/// Other C libraries give memory back by themselves.
#[cfg(not(target_env = "gnu"))]
fn trim() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_larger_daemon_is_a_reason_to_look_for_free_memory() {
        assert!(is_larger(None, 40 << 20));
        assert!(is_larger(Some(40 << 20), 41 << 20));
        assert!(!is_larger(Some(40 << 20), (41 << 20) - 1));
        assert!(!is_larger(Some(40 << 20), 20 << 20));
    }

    #[test]
    fn what_was_freed_is_given_back() {
        // Small pieces, one in 64 kept: freeing the rest leaves holes that glibc does not give back by itself.
        let mut pieces: Vec<Option<Vec<u8>>> = (0..40_000).map(|n| Some(vec![n as u8; 1500])).collect();
        for group in pieces.chunks_mut(64) {
            for piece in group.iter_mut().skip(1) {
                *piece = None;
            }
        }
        let before = resident().expect("this process's size");
        trim();
        let after = resident().expect("this process's size");
        assert!(after + (20 << 20) < before, "{before} before, {after} after, {} kept", pieces.len());
    }
}
