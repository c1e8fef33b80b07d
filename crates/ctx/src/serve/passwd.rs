//! Who a uid is on this machine: `/etc/passwd`, and behind it whatever `getent` asks.

use std::path::PathBuf;

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct User {
    pub uid: u32,
    pub gid: u32,
    pub name: String,
    pub home: PathBuf,
    pub shell: String,
}

/// The user with this uid. May start a program.
pub(super) fn user(uid: u32) -> Option<User> {
    let file = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    if let Some(user) = find(&file, uid) {
        return Some(user);
    }
    let asked = std::process::Command::new("getent").args(["passwd", &uid.to_string()]).output().ok()?;
    find(&String::from_utf8_lossy(&asked.stdout), uid)
}

fn find(text: &str, uid: u32) -> Option<User> {
    text.lines().filter_map(parse).find(|user| user.uid == uid)
}

fn parse(line: &str) -> Option<User> {
    let mut fields = line.split(':');
    let name = fields.next()?.to_owned();
    let uid = fields.nth(1)?.parse().ok()?;
    let gid = fields.next()?.parse().ok()?;
    let home = PathBuf::from(fields.nth(1)?);
    let shell = fields.next()?.to_owned();
    Some(User { uid, gid, name, home, shell })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_uid_and_lines_that_are_none_are_passed_over() {
        let text =
            "root:x:0:0:root:/root:/bin/bash\nbroken\n+::::::\nann:x:1000:1001:Ann,,,:/home/ann:/bin/sh\n";
        let ann = find(text, 1000).unwrap();
        assert_eq!((ann.name.as_str(), ann.gid, ann.shell.as_str()), ("ann", 1001, "/bin/sh"));
        assert_eq!(ann.home, PathBuf::from("/home/ann"));
        assert_eq!(find(text, 7), None);
    }
}
