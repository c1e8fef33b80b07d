//! Checks that the derived files of each session match its log.

use std::time::Duration;

use ctx_journal::LogPath;
use ctx_views::files::Disagreement;
use ctx_views::identity::Place;
use ctx_views::read::Reader;

use super::finding::{Finding, Report};
use super::logs::Looked;
use crate::failure::Failure;
use crate::root::Root;

/// How long a daemon may take to show what it has written.
const IN_FLIGHT: Duration = Duration::from_millis(200);
const FIX: &str = "nothing is lost, the log has it: the file is rewritten when the session is next used; or delete it, and \
                   the daemon rewrites it at its next start";

pub fn look(root: &Root, is_up: bool, looked: &Looked, report: &mut Report) -> Result<(), Failure> {
    let reader = root.reader()?;
    for log in looked.logs.iter().filter(|log| Place::of(log).is_some()) {
        for Disagreement { file, line } in wrong(&reader, log, is_up) {
            let finding = Finding::new("its content differs from the log").fix(FIX);
            let finding = finding.at(format!("{}/{file}", log.dir()));
            report.problem(line.into_iter().fold(finding, Finding::line));
        }
    }
    Ok(())
}

/// What is wrong and stays so. A log that cannot be read has been told of.
fn wrong(reader: &Reader, log: &LogPath, is_up: bool) -> Vec<Disagreement> {
    let look = || reader.disagreements(log).unwrap_or_default();
    let found = look();
    if found.is_empty() || !is_up {
        return found;
    }
    std::thread::sleep(IN_FLIGHT);
    let again = look();
    found.into_iter().filter(|finding| again.contains(finding)).collect()
}
