//! Checks the saved states of files: the line about each snapshot, and content against its name.

use super::finding::{Finding, Report};
use crate::commands::files::snapshots::{Source, all};
use crate::failure::Failure;
use crate::progress::Progress;
use crate::root::Root;

const FIX: &str = "restore it from a backup, or delete it: what needs it cannot be restored any more, and `ctx prune` removes \
                   nothing of a directory while a snapshot of it cannot be read";

/// The stores that this user may read; of others, the daemon's user can say more.
pub fn look(root: &Root, report: &mut Report) {
    if let Err(Failure::Said { message, .. }) = look_at_all(root, report) {
        report.problem(Finding::new(format!("the snapshots cannot be checked: {message}")));
    }
}

fn look_at_all(root: &Root, report: &mut Report) -> Result<(), Failure> {
    for source in all(root)? {
        let Source::Here(saved) = source else {
            report.note(Finding::new("not checked: the snapshots, only the daemon's user may read them"));
            continue;
        };
        let bar = Progress::new("reading snapshots");
        let damage = saved.damage(&mut |done, total| bar.show(done, total, ""));
        bar.clear();
        for error in damage? {
            report.problem(Finding::new(error.to_string()).fix(FIX));
        }
    }
    Ok(())
}
