//! Sizes, times and mounts as people write them.

use std::path::{Component, Path};
use std::time::Duration;

use super::error::CageError;
use super::value::{Access, Mount};

/// A size such as `512M` or `2G`; without a letter, bytes.
pub fn parse_size(text: &str) -> Result<u64, CageError> {
    let wrong = || CageError::Input(format!("`{text}` is not a size: write 512M, 2G or a number of bytes"));
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: u64 = match text.get(digits.len()..).unwrap_or_default() {
        "" => 1,
        "K" | "k" | "KiB" => 1 << 10,
        "M" | "m" | "MiB" => 1 << 20,
        "G" | "g" | "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    number.filter(|bytes| *bytes > 0).ok_or_else(wrong)
}

/// A time such as `10s`, `5m` or `1h`.
pub fn parse_time(text: &str) -> Result<Duration, CageError> {
    let wrong = || CageError::Input(format!("`{text}` is not a time: write 500ms, 10s, 5m or 1h"));
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let unit: u64 = match text.get(digits.len()..).unwrap_or_default() {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    number.filter(|millis| *millis > 0).map(Duration::from_millis).ok_or_else(wrong)
}

/// A mount as `SOURCE:TARGET:ro`; `ro` is also what holds without it.
pub fn parse_mount(text: &str) -> Result<Mount, CageError> {
    let wrong = |why: &str| Err(CageError::Input(format!("`{text}` is not a mount: {why}")));
    let parts: Vec<&str> = text.split(':').collect();
    let (source, target, access) = match parts.as_slice() {
        [source, target] | [source, target, "ro"] => (*source, *target, Access::Ro),
        [source, target, "rw"] => (*source, *target, Access::Rw),
        _ => return wrong("write SOURCE:TARGET:ro or SOURCE:TARGET:rw"),
    };
    let is_plain = |path: &str| {
        let mut parts = Path::new(path).components();
        path.starts_with('/') && parts.all(|part| matches!(part, Component::RootDir | Component::Normal(_)))
    };
    if !is_plain(source) || !is_plain(target) {
        return wrong("both paths must be absolute and without `..`");
    }
    match target.trim_end_matches('/') {
        "" | "/proc" | "/dev" => wrong("the cage has its own /, /proc and /dev"),
        inside if inside.starts_with("/proc/") || inside.starts_with("/dev/") => {
            wrong("the cage has its own /proc and /dev")
        }
        _ => Ok(Mount { source: source.into(), target: target.into(), access }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_read_as_people_write_them() {
        for (text, bytes) in [("512M", 512 << 20), ("2G", 2 << 30), ("4096", 4096), ("1KiB", 1024)] {
            assert_eq!(parse_size(text).ok(), Some(bytes), "{text}");
        }
        for (text, millis) in [("500ms", 500), ("10s", 10_000), ("5m", 300_000), ("1h", 3_600_000)] {
            assert_eq!(parse_time(text).ok(), Some(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "M", "0", "0M", "-1M", "1.5G", "1T", "99999999999999999999", "18446744073709551615G"]
        {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        for bad in ["", "10", "s", "0s", "-1s", "1d", "18446744073709551615h"] {
            assert!(parse_time(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_mount_names_two_plain_paths() {
        assert_eq!(parse_mount("/a:/b").ok(), Some(Mount::ro("/a", "/b")));
        assert_eq!(parse_mount("/a:/b:ro").ok(), Some(Mount::ro("/a", "/b")));
        assert_eq!(parse_mount("/a:/b:rw").ok(), Some(Mount::rw("/a", "/b")));
        for bad in
            ["", "/a", "a:/b", "/a:b", "/a:/b:x", "/a:/b:ro:", "/a:/../b", "/a:/", "/a:/proc/1", "/a:/dev"]
        {
            assert!(parse_mount(bad).is_err(), "{bad}");
        }
    }
}
