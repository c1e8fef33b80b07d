//! Finding sessions: those of an agent, the current one, and the one that a text names.

use std::collections::HashSet;
use std::path::Path;

use ctx_session::{Name, StateName, Timestamp, Ulid};

use super::{Object, Place, ReadError, Reader, SessionRef, SessionsDir};
use crate::dir::Dir;
use crate::error::ViewError;
use crate::files;
use crate::index::{CURRENT, INDEX, LIST};

/// Models are one or two names deep; nothing looks further.
const MODEL_DEPTH_MAX: usize = 4;
/// The session that a client means when it names none.
const DEFAULT: &str = "default";

impl Reader {
    /// The sessions of one directory that can go on, newest first, at most `max` of them.
    pub fn newest(&self, sessions: &SessionsDir, max: usize) -> Result<Vec<SessionRef>, ReadError> {
        let Some(dir) = self.root.dir_if_there(&sessions.path())? else { return Ok(Vec::new()) };
        let goes_on = |name: &String| dir.dir(name).is_ok_and(|session| !is_over(&session));
        let names = match listed(&dir)? {
            // A name that is gone means that the list was written a moment too early.
            Some(names) if names.iter().take(max).all(|name| dir.dir(name).is_ok()) => names,
            Some(_) | None => newest_by_files(&dir)?,
        };
        Ok(names.into_iter().filter(goes_on).take(max).map(|name| sessions.session(&name)).collect())
    }

    /// The same with those that are over. All of their directories are looked at.
    pub fn newest_of_all(&self, sessions: &SessionsDir, max: usize) -> Result<Vec<SessionRef>, ReadError> {
        let Some(dir) = self.root.dir_if_there(&sessions.path())? else { return Ok(Vec::new()) };
        let names = newest_by_files(&dir)?.into_iter();
        Ok(names.take(max).map(|name| sessions.session(&name)).collect())
    }

    /// How many sessions a directory has, with those that are over.
    pub fn count(&self, sessions: &SessionsDir) -> Result<usize, ReadError> {
        let dir = self.root.dir_if_there(&sessions.path())?;
        Ok(dir.map(|dir| session_names(&dir)).transpose()?.map_or(0, |names| names.len()))
    }

    /// The session last posted to of those that can go on; if there is none, the one called `default`, if there is one.
    pub fn current(&self, sessions: &SessionsDir) -> Result<Option<SessionRef>, ReadError> {
        let Some(dir) = self.root.dir_if_there(&sessions.path())? else { return Ok(None) };
        let current = match dir.dir(INDEX) {
            Ok(index) => index.contents(CURRENT)?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        let names = current.iter().map(|name| name.trim_end_matches('\n')).chain([DEFAULT]);
        let mut there = names.filter(|name| is_session_name(name) && dir.dir(name).is_ok());
        Ok(there.next().map(|name| sessions.session(name)))
    }

    /// Every place whose sessions a user may read: their own, and the spaces that let them in.
    pub fn places(&self, uid: u32) -> Result<Vec<Place>, ReadError> {
        let mut places = vec![Place::Private { uid }];
        if let Some(shared) = self.root.dir_if_there(Path::new("shared"))? {
            let spaces = names_of(&shared)?.into_iter().filter(|space| shared.dir(space.as_str()).is_ok());
            places.extend(spaces.map(|space| Place::Shared { space }));
        }
        Ok(places)
    }

    /// The agents and models that have sessions in a place.
    pub fn session_dirs(&self, place: &Place) -> Result<Vec<SessionsDir>, ReadError> {
        let mut found = Vec::new();
        if let Some(agents) = self.root.dir_if_there(&place.path().join("agent"))? {
            let agents = names_of(&agents)?.into_iter().map(Object::Agent);
            found.extend(agents.map(|object| SessionsDir { place: place.clone(), object }));
        }
        if let Some(models) = self.root.dir_if_there(&place.path().join("model"))? {
            model_dirs(&models, &mut Vec::new(), &mut |names| {
                found.push(SessionsDir { place: place.clone(), object: Object::Model(names) });
            })?;
        }
        found.sort();
        Ok(found)
    }

    /// Whether the root describes an agent of this name; it may have no session yet.
    pub fn is_agent(&self, agent: &Name) -> bool {
        let dir = Path::new("agent").join(format!("{agent}.d"));
        self.root.dir_if_there(&dir).is_ok_and(|dir| dir.is_some())
    }

    /// The session that a user means by `agent/name`, `model/provider/model/name`, an id, or the beginning or the end of
    /// one. A name means the session that has it now, which may be over, and if none has, the last one that had it.
    pub fn resolve(&self, uid: u32, text: &str) -> Result<SessionRef, ReadError> {
        match text.rsplit_once('/') {
            Some((object, name)) => self.resolve_name(uid, text, object, name),
            None => self.resolve_id(uid, text),
        }
    }

    fn resolve_name(&self, uid: u32, text: &str, object: &str, name: &str) -> Result<SessionRef, ReadError> {
        let bad = || ReadError::BadName { text: text.to_owned() };
        let object = match object.strip_prefix("model/") {
            Some(model) => Object::Model(
                model.split('/').map(Name::new).collect::<Result<Vec<_>, _>>().map_err(|_| bad())?,
            ),
            None => Object::Agent(Name::new(object).map_err(|_| bad())?),
        };
        if !is_session_name(name) {
            return Err(bad());
        }
        for place in self.places(uid)? {
            let sessions = SessionsDir { place, object: object.clone() };
            let Some(dir) = self.root.dir_if_there(&sessions.path())? else { continue };
            if dir.dir(name).is_ok() {
                return Ok(sessions.session(name));
            }
            let over =
                session_names(&dir)?.into_iter().filter(|dir_name| name_before_id(dir_name) == Some(name));
            if let Some(newest) = over.max() {
                return Ok(sessions.session(&newest));
            }
        }
        Err(ReadError::NotFound { text: text.to_owned() })
    }

    fn resolve_id(&self, uid: u32, text: &str) -> Result<SessionRef, ReadError> {
        let wanted = text.to_ascii_uppercase();
        let is_id = |c: char| c.is_ascii_digit() || (c.is_ascii_uppercase() && !"ILOU".contains(c));
        if wanted.is_empty() || wanted.len() > 26 || !wanted.chars().all(is_id) {
            return Err(ReadError::BadName { text: text.to_owned() });
        }
        if wanted.len() < ID_PART_MIN {
            return Err(ReadError::NotFound { text: text.to_owned() });
        }
        let mut matches = Vec::new();
        for place in self.places(uid)? {
            for sessions in self.session_dirs(&place)? {
                let Some(dir) = self.root.dir_if_there(&sessions.path())? else { continue };
                for name in session_names(&dir)? {
                    let session = sessions.session(&name);
                    // One that cannot be read is not the one that is meant.
                    let Ok(meta) = self.meta(&session) else { continue };
                    let id = meta.id.to_string();
                    if id.starts_with(&wanted) || id.ends_with(&wanted) {
                        matches.push((meta.id.to_string(), session));
                    }
                }
            }
        }
        match matches.as_slice() {
            [] => Err(ReadError::NotFound { text: text.to_owned() }),
            [(_, one)] => Ok(one.clone()),
            many => Err(ReadError::Ambiguous {
                text: text.to_owned(),
                matches: many.iter().take(5).map(|(id, session)| format!("{id} ({session})")).collect(),
            }),
        }
    }
}

/// The shortest beginning or end of an id that names something. Every id of a decade begins with the same character, and a
/// short word is more likely the name of what is not there yet.
pub const ID_PART_MIN: usize = 6;

/// A name that stays one directory: those of sessions whose name another has now are longer than others.
fn is_session_name(name: &str) -> bool {
    let plain = name_before_id(name).unwrap_or(name);
    Name::of_session(plain).is_ok()
}

/// The `<name>` of `<name>+<ulid>`.
fn name_before_id(dir_name: &str) -> Option<&str> {
    let (name, id) = dir_name.rsplit_once('+')?;
    id.parse::<Ulid>().is_ok().then_some(name)
}

fn session_names(dir: &Dir) -> Result<Vec<String>, ViewError> {
    let names = dir.names()?.into_iter();
    Ok(names.filter(|(name, is_dir)| *is_dir && is_session_name(name)).map(|(name, _)| name).collect())
}

fn names_of(dir: &Dir) -> Result<Vec<Name>, ViewError> {
    let names = dir.names()?.into_iter();
    Ok(names.filter(|(_, is_dir)| *is_dir).filter_map(|(name, _)| Name::new(&name).ok()).collect())
}

/// The names in `index/list`, if no session came or went since it was written.
fn listed(dir: &Dir) -> Result<Option<Vec<String>>, ViewError> {
    let index = match dir.dir(INDEX) {
        Ok(index) => index,
        Err(error) if error.is_not_found() => return Ok(None),
        Err(error) => return Err(error),
    };
    let (Some(bytes), Some(written)) = (index.contents(LIST)?, index.changed_at(LIST)?) else {
        return Ok(None);
    };
    if dir.changed_at(".")?.is_none_or(|changed| changed >= written) {
        return Ok(None);
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut seen = HashSet::new();
    let names = text.lines().filter(|name| is_session_name(name) && seen.insert(*name));
    Ok(Some(names.map(str::to_owned).collect()))
}

/// Whether a session's files say that it is over.
fn is_over(session: &Dir) -> bool {
    let mut over = StateName::ALL.into_iter().filter(|state| state.is_over());
    over.any(|state| session.holds(files::STATE, format!("{}\n", state.file_word()).as_bytes()))
}

/// The names of all sessions, the newest first by their own files.
fn newest_by_files(dir: &Dir) -> Result<Vec<String>, ViewError> {
    let updated_at = |name: &str| -> Option<Timestamp> {
        let bytes = dir.dir(name).ok()?.contents(files::UPDATED_AT).ok()??;
        String::from_utf8(bytes).ok()?.trim_end().parse().ok()
    };
    let mut names: Vec<_> = session_names(dir)?.into_iter().map(|name| (updated_at(&name), name)).collect();
    names.sort_by(|a, b| b.cmp(a));
    Ok(names.into_iter().map(|(_, name)| name).collect())
}

fn model_dirs(dir: &Dir, above: &mut Vec<Name>, found: &mut dyn FnMut(Vec<Name>)) -> Result<(), ViewError> {
    for (name, is_dir) in dir.names()? {
        if !is_dir {
            continue;
        }
        let last = name.strip_suffix(".d");
        let Ok(checked) = Name::new(last.unwrap_or(&name)) else { continue };
        above.push(checked);
        if last.is_some() {
            found(above.clone());
        } else if above.len() < MODEL_DEPTH_MAX {
            model_dirs(&dir.dir(&name)?, above, found)?;
        }
        above.pop();
    }
    Ok(())
}
