//! Where a page of a search begins.

use ctx_session::SessionId;
use rusqlite::types::Value;

use super::{Hit, SearchSort};
use crate::db::DbError;
use crate::db::column::millis;
use crate::db::query::Wanted;

/// Where a page begins, so that what is said meanwhile neither repeats nor hides anything on the pages behind it.
pub(super) enum Place {
    /// Among what was known when the first page was asked for, and is ranked together: keys are given in order, and never
    /// twice.
    Best {
        upto: i64,
        skipped: i64,
    },
    Newest,
    Before {
        time: i64,
        session: SessionId,
        seq: i64,
    },
}

impl Place {
    pub(super) fn parse(sort: SearchSort, cursor: &str) -> Result<Place, DbError> {
        let parts: Vec<&str> = cursor.split(':').collect();
        let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
        let place = match (sort, parts.as_slice()) {
            (SearchSort::Rank, [upto, skipped]) => {
                number(upto).zip(number(skipped)).map(|(upto, skipped)| Place::Best { upto, skipped })
            }
            (SearchSort::Newest, [time, session, seq]) => number(time)
                .zip(session.parse().ok())
                .zip(number(seq))
                .map(|((time, session), seq)| Place::Before { time, session, seq }),
            _ => None,
        };
        place.ok_or_else(|| DbError::BadCursor { cursor: cursor.chars().take(100).collect() })
    }

    pub(super) fn wants(&self, wanted: &mut Wanted) {
        match self {
            Place::Best { upto, .. } => wanted.and("f.rowid <= ?", [Value::from(*upto)]),
            Place::Newest => {}
            Place::Before { time, session, seq } => wanted.and(
                "(m.created_at, s.id, m.seq) < (?, ?, ?)",
                [Value::from(*time), session.to_string().into(), Value::from(*seq)],
            ),
        }
    }

    /// Behind a page that ends so.
    pub(super) fn before(last: &Hit) -> Place {
        Place::Before {
            time: millis(last.time),
            session: last.session,
            seq: i64::try_from(last.seq).unwrap_or(i64::MAX),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Best { upto, skipped } => write!(f, "{upto}:{skipped}"),
            Place::Newest => Ok(()),
            Place::Before { time, session, seq } => write!(f, "{time}:{session}:{seq}"),
        }
    }
}
