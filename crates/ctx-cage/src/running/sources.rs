//! What a cage shows of the host: whether its owner can reach it, and what of root's is lent to it.

use rustix::process::geteuid;

use super::lend;
use crate::error::CageError;
use crate::rights::Rights;
use crate::value::{Access, Cage};

/// Only root can start a process of somebody else, and each mount must be there for the owner.
pub(super) fn check_owner(cage: &Cage) -> Result<(), CageError> {
    let uid = cage.owner.uid();
    let own = geteuid().as_raw();
    if own != 0 && own != uid {
        return Err(CageError::Input(format!("uid {own} cannot start a cage of uid {uid}: only root can")));
    }
    let rights = Rights::of(uid).map_err(|error| CageError::NotStarted { detail: format!(": {error}") })?;
    let own = cage.mounts.iter().filter(|mount| mount.access != Access::Link);
    for mount in own.filter(|mount| !lend::is_placed(cage, mount)) {
        let found = rights.act(|| std::fs::metadata(&mount.source));
        let found = found.map_err(|error| CageError::NotStarted { detail: format!(": {error}") })?;
        found.map_err(|error| CageError::Source { path: mount.source.clone(), uid, error })?;
    }
    Ok(())
}

/// The cage with what is lent to it; this thread sees it then. Where nothing can be lent, the cage as it is without, if its
/// owner can reach what it shows.
pub(super) fn lend_to(cage: Cage) -> Result<Cage, CageError> {
    let (placed, places) = lend::with_places(&cage);
    if places.is_empty() {
        return Ok(cage);
    }
    match lend::mount(&places) {
        Ok(()) => Ok(placed),
        Err(error) => {
            tracing::warn!(
                error,
                "root's files cannot be lent to a cage, which can only read what all can read"
            );
            let cage = Cage { lent: Vec::new(), ..cage };
            check_owner(&cage).map(|()| cage)
        }
    }
}
