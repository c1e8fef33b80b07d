//! Ranking: the matches that came into the index last are ranked together, as many as can be looked at within milliseconds.
//!
//! BM25 of the full text itself reads every match of every word, also of one in every message. Here a match is judged by its own
//! text: how often it has the words, and how long it is. What comes before the ranked ones follows behind them, ranked among itself.

use std::collections::HashMap;

use super::{Hit, LONG_BYTES, Page, Place, Queries, SearchQuery, SearchSort, TABLES, plain_words, wanted};
use crate::db::DbError;
use crate::db::query::{one_more, snippet};

/// Matches that are ranked together.
pub const RANKED_TOGETHER: usize = 2_000;
/// How often so many are looked at to fill a list of sessions.
const WINDOWS_MAX: usize = 10;

/// A session with matches.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionHits {
    /// The best of them, or the newest.
    pub hits: Vec<Hit>,
    /// How many there are, among those that were looked at.
    pub matches: u64,
}

/// A match before anything is shown of it.
struct Match {
    key: i64,
    score: f64,
    time: i64,
    session: String,
    seq: i64,
}

/// Matches that are ranked together, best first, and the key before which others are.
struct Window {
    matches: Vec<Match>,
    before: Option<i64>,
}

impl Queries<'_> {
    /// A page of the best.
    pub(super) fn best(
        &self,
        query: &SearchQuery,
        expression: &str,
        mut upto: i64,
        mut skipped: i64,
    ) -> Result<Page<Hit>, DbError> {
        let mut items = Vec::new();
        loop {
            let window = self.window(query, expression, upto)?;
            let passed = usize::try_from(skipped).unwrap_or(usize::MAX);
            let room = query.limit - items.len();
            let shown = window.matches.iter().skip(passed).take(room);
            let before = items.len();
            for found in shown {
                items.push(self.hit(query, expression, found.key)?);
            }
            let done = passed.saturating_add(items.len() - before);
            if done < window.matches.len() {
                let skipped = i64::try_from(done).unwrap_or(i64::MAX);
                return Ok(Page { items, next: Some(Place::Best { upto, skipped }.to_string()) });
            }
            let Some(older) = window.before else { return Ok(Page { items, next: None }) };
            (upto, skipped) = (older, 0);
            if items.len() >= query.limit {
                return Ok(Page { items, next: Some(Place::Best { upto, skipped }.to_string()) });
            }
        }
    }

    /// The sessions with the best matches, or with the newest, each with at most so many of them; and whether there are more
    /// sessions or matches than were looked at.
    pub fn search_sessions(
        &self,
        query: &SearchQuery,
        per_session: usize,
    ) -> Result<(Vec<SessionHits>, bool), DbError> {
        let moment = self.db.unchecked_transaction().map_err(|error| self.wrong(error))?;
        let found = self.sessions_now(query, per_session);
        drop(moment);
        found
    }

    fn sessions_now(
        &self,
        query: &SearchQuery,
        per_session: usize,
    ) -> Result<(Vec<SessionHits>, bool), DbError> {
        let expression = query.expression()?;
        let Place::Best { mut upto, .. } = self.beginning(SearchSort::Rank)? else {
            return Ok((Vec::new(), false));
        };
        let mut matches: Vec<Match> = Vec::new();
        let mut sessions: HashMap<String, u64> = HashMap::new();
        let mut is_cut = false;
        for nth in 1.. {
            let window = match query.sort {
                SearchSort::Rank => self.window(query, &expression, upto)?,
                // Time is no order of the full text: all matches are looked at.
                SearchSort::Newest => self.all_by_time(query, &expression)?,
            };
            for found in window.matches {
                *sessions.entry(found.session.clone()).or_default() += 1;
                matches.push(found);
            }
            let Some(before) = window.before else { break };
            if sessions.len() >= query.limit || (nth >= WINDOWS_MAX && query.limit < usize::MAX) {
                is_cut = true;
                break;
            }
            upto = before;
        }
        sort(&mut matches, query.sort);
        let is_cut = is_cut || sessions.len() > query.limit;
        let mut groups: Vec<(String, Vec<i64>)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        for found in matches {
            let known = places.get(&found.session).copied();
            if let Some((_, keys)) = known.and_then(|at| groups.get_mut(at)) {
                if keys.len() < per_session {
                    keys.push(found.key);
                }
            } else if groups.len() < query.limit {
                places.insert(found.session.clone(), groups.len());
                groups.push((found.session, vec![found.key]));
            }
        }
        let shown = groups.into_iter().map(|(session, keys)| {
            let hits = keys.into_iter().map(|key| self.hit(query, &expression, key));
            let hits = hits.collect::<Result<Vec<_>, _>>()?;
            Ok(SessionHits { hits, matches: sessions.get(&session).copied().unwrap_or_default() })
        });
        Ok((shown.collect::<Result<Vec<_>, DbError>>()?, is_cut))
    }

    /// The matches up to a key, from the newest on, ranked.
    fn window(&self, query: &SearchQuery, expression: &str, upto: i64) -> Result<Window, DbError> {
        let mut wanted = wanted(query, expression);
        Place::Best { upto, skipped: 0 }.wants(&mut wanted);
        let sql = format!(
            "SELECT f.rowid, m.created_at, s.id, m.seq, substr(m.content, 1, {LONG_BYTES})
             FROM {TABLES} WHERE {} ORDER BY f.rowid DESC LIMIT ?",
            wanted.condition()
        );
        wanted.values.push(one_more(RANKED_TOGETHER).into());
        let words = plain_words(&query.text);
        let mut matches = self.rows(&sql, wanted.values, |row| {
            let text = row.get_ref(4)?.as_str().unwrap_or_default();
            Ok(Match {
                key: row.get(0)?,
                time: row.get(1)?,
                session: row.get(2)?,
                seq: row.get(3)?,
                score: score(&words, text),
            })
        })?;
        let before = matches.get(RANKED_TOGETHER).map(|next| next.key);
        matches.truncate(RANKED_TOGETHER);
        sort(&mut matches, SearchSort::Rank);
        Ok(Window { matches, before })
    }

    /// All matches, with their times alone.
    fn all_by_time(&self, query: &SearchQuery, expression: &str) -> Result<Window, DbError> {
        let wanted = wanted(query, expression);
        let sql =
            format!("SELECT f.rowid, m.created_at, s.id, m.seq FROM {TABLES} WHERE {}", wanted.condition());
        let matches = self.rows(&sql, wanted.values, |row| {
            let (key, time, session, seq) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
            Ok(Match { key, time, session, seq, score: 0.0 })
        })?;
        Ok(Window { matches, before: None })
    }
}

fn sort(matches: &mut [Match], by: SearchSort) {
    matches.sort_unstable_by(|one, other| {
        let by_time = || other.time.cmp(&one.time);
        match by {
            SearchSort::Rank => {
                let place = (&one.session, one.seq).cmp(&(&other.session, other.seq));
                other.score.total_cmp(&one.score).then_with(by_time).then(place)
            }
            SearchSort::Newest => {
                by_time().then_with(|| (&other.session, other.seq).cmp(&(&one.session, one.seq)))
            }
        }
    });
}

/// How well a text matches the words: the more often it has each the better, less and less so, and the shorter the text is.
pub(super) fn score(words: &[snippet::Wanted], text: &str) -> f64 {
    /// The form of BM25, for a text of this length.
    const K: f64 = 1.2;
    const B: f64 = 0.75;
    const LENGTH: f64 = 100.0;
    let text = text.get(..text.floor_char_boundary(LONG_BYTES)).unwrap_or(text);
    let mut counts = vec![0u32; words.len()];
    let length = snippet::count(text, words, &mut counts);
    let norm = K * (1.0 - B + B * f64::from(length) / LENGTH);
    // The full text knows more forms of a letter than we do: what it found is there.
    counts
        .into_iter()
        .map(|count| f64::from(count.max(1)))
        .map(|count| count * (K + 1.0) / (count + norm))
        .sum()
}
