//! Admission: how many sessions may run at once, and who gets the last slot.
//!
//! A small table of its own, so that no lock is held across two sessions: reserve a slot, append, then confirm
//! by keeping it or release it. The engine holds the table behind one short lock.
//!
//! A project that several operators use, as all use `default`, has its limit for each of them: what others run neither
//! takes a slot from an operator nor is told to them.

use std::collections::BTreeMap;

use crate::limits::Limits;
use crate::name::Name;
use crate::record::{LimitHit, LimitScope};

/// How many sessions run, as listeners are told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    pub total: u32,
    pub per_project: BTreeMap<Name, u32>,
    pub per_operator: BTreeMap<u32, u32>,
    /// Of each operator in each project.
    shares: BTreeMap<(u32, Name), u32>,
}

impl Counts {
    /// What one operator may know of them: their own sessions alone.
    pub fn of_operator(&self, operator: u32) -> Counts {
        let own = self.shares.iter().filter(|((whose, _), _)| *whose == operator);
        let per_project: BTreeMap<Name, u32> =
            own.clone().map(|((_, project), n)| (project.clone(), *n)).collect();
        let total = per_project.values().sum();
        let per_operator = if total > 0 { BTreeMap::from([(operator, total)]) } else { BTreeMap::new() };
        Counts { total, per_project, per_operator, shares: own.map(|(key, n)| (key.clone(), *n)).collect() }
    }
}

/// The running counts.
#[derive(Debug, Clone, Default)]
pub struct Admissions {
    /// Of each operator in each project; none is zero.
    shares: BTreeMap<(u32, Name), u32>,
}

impl Admissions {
    /// Takes a slot for a session of this project and operator, and says how many run then by each limit; or says which
    /// limit stands in the way.
    pub fn reserve(
        &mut self,
        project: &Name,
        operator: u32,
        limits: &Limits,
    ) -> Result<[LimitHit; 2], LimitHit> {
        let in_project = self.in_project(project, operator);
        let of_operator = self.of_operator(operator);
        let (project_limit, operator_limit) = (limits.running_per_project, limits.running_per_operator);
        let now = [
            LimitHit { scope: LimitScope::PerProject, running: in_project, limit: project_limit },
            LimitHit { scope: LimitScope::PerOperator, running: of_operator, limit: operator_limit },
        ];
        if let Some(hit) = now.iter().find(|count| count.running >= count.limit) {
            return Err(*hit);
        }
        *self.shares.entry((operator, project.clone())).or_insert(0) += 1;
        Ok(now.map(|count| LimitHit { running: count.running + 1, ..count }))
    }

    /// Gives a slot back. A count never goes below zero.
    pub fn release(&mut self, project: &Name, operator: u32) {
        if let Some(count) = self.shares.get_mut(&(operator, project.clone())) {
            *count = count.saturating_sub(1);
        }
        self.shares.retain(|_, count| *count > 0);
    }

    /// How many sessions of an operator run in a project.
    pub fn in_project(&self, project: &Name, operator: u32) -> u32 {
        self.shares.get(&(operator, project.clone())).copied().unwrap_or(0)
    }

    pub fn of_operator(&self, operator: u32) -> u32 {
        self.shares.iter().filter(|((whose, _), _)| *whose == operator).map(|(_, count)| count).sum()
    }

    /// Every count.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts { shares: self.shares.clone(), ..Counts::default() };
        for ((operator, project), count) in &self.shares {
            counts.total += count;
            *counts.per_project.entry(project.clone()).or_insert(0) += count;
            *counts.per_operator.entry(*operator).or_insert(0) += count;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_is_told_of_their_own_sessions_alone() {
        let (a, b) = (Name::new("a").unwrap(), Name::new("b").unwrap());
        let limits = Limits::default();
        let mut table = Admissions::default();
        for (project, operator) in [(&a, 1), (&a, 2), (&b, 1), (&a, 1)] {
            table.reserve(project, operator, &limits).unwrap();
        }
        table.release(&a, 1);
        let all = table.counts();
        assert_eq!((all.total, all.per_project.len(), all.per_operator.len()), (3, 2, 2));
        let own = all.of_operator(1);
        assert_eq!(own.total, 2);
        assert_eq!(own.per_project, BTreeMap::from([(a, 1), (b, 1)]));
        assert_eq!(own.per_operator, BTreeMap::from([(1, 2)]));
        assert_eq!(all.of_operator(3), Counts::default());
    }
    #[test]
    fn what_others_run_in_a_project_takes_no_slot_from_an_operator() {
        let project = Name::new("default").unwrap();
        let limits = Limits { running_per_project: 1, ..Limits::default() };
        let mut table = Admissions::default();
        table.reserve(&project, 1, &limits).unwrap();
        let [in_project, of_operator] = table.reserve(&project, 2, &limits).unwrap();
        assert_eq!((in_project.running, of_operator.running), (1, 1));
        assert_eq!(table.reserve(&project, 2, &limits).unwrap_err().running, 1);
    }
}
