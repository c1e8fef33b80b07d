//! Which session a chat is about: one that is there, or a new one. And what Tab can offer.

use std::collections::BTreeSet;
use std::path::Path;

use ctx_agent::nearest::nearest;
use ctx_api::http::{List, NewSession, Project, Session};
use ctx_session::{Code, Name, SessionId};
use ctx_views::read::SessionsDir;
use serde::Deserialize;

use super::editor::Words;
use crate::client::Api;
use crate::failure::Failure;
use crate::root::Root;
use crate::sessions;
use crate::{here, output};

/// Sessions of an agent among which a similar name is looked for.
const NAMES_MAX: usize = 1_000;

/// The session that a chat is about.
#[derive(Debug)]
pub struct Opened {
    pub id: SessionId,
    /// What is to be said of it, if it was made just now.
    pub news: Option<String>,
}

impl Opened {
    /// The session that a word names.
    pub fn existing(root: &Root, word: &str) -> Result<Opened, Failure> {
        Ok(Opened { id: sessions::find_id(root, word)?, news: None })
    }
}

/// The session that a word names, or a new one of that name: `agent/name`, a name of this directory's agent, an agent, or
/// nothing but this directory. `dir`: another directory in its place.
pub fn found_or_new(
    root: &Root,
    word: &str,
    cwd: Option<String>,
    dir: Option<&Path>,
) -> Result<Opened, Failure> {
    let is_agent = |name: &str| root.path.join("agent").join(format!("{name}.d")).exists();
    let of_dir = |agent: &Name| match word {
        sessions::HERE => agent.to_string(),
        word if word.contains('/') || is_agent(word) => word.to_owned(),
        word => format!("{agent}/{word}"),
    };
    let (mut here, mut warnings) = (None, Vec::new());
    if dir.is_some() || word == sessions::HERE {
        let (found, said) = Here::quietly(root, dir)?;
        (here, warnings) = (Some(found), said);
    }
    let asked = here.as_ref().map_or_else(|| word.to_owned(), |here| of_dir(&here.agent));
    if let Some(id) = found(root, &asked)? {
        if cwd.is_some() {
            let message = format!("{asked} has a working directory already");
            return Err(Failure::new(Code::Einval, message)
                .hint("--cwd is for a new session; `ctx send --cwd` changes it"));
        }
        if let Some(here) = &here {
            here.warn(root, &id.to_string(), &warnings);
        }
        return Ok(Opened { id, news: None });
    }
    warnings.iter().for_each(output::say);
    let here = match here {
        None if !asked.contains('/') && !is_agent(&asked) => Some(Here::of(root, dir)?),
        here => here,
    };
    let asked = here.as_ref().map_or(asked, |here| of_dir(&here.agent));
    let (agent, name) = asked.split_once('/').unwrap_or((&asked, sessions::DEFAULT_SESSION));
    let agent = sessions::agent_name(agent)?;
    // The agent of another directory works there, whatever directory we are in.
    let dir = match here.filter(|here| dir.is_some() || here.agent == agent) {
        Some(here) => Some(here.dir),
        None => {
            here::agent(&root.path).filter(|here| here.name == agent).map(|_| here::dir(None)).transpose()?
        }
    };
    let asks_here = dir.is_some();
    let name =
        Name::of_session(name).map_err(|rule| Failure::new(Code::Einval, format!("`{name}`: {rule}")))?;
    let news = news_of(root, &agent, &name);
    let new = NewSession {
        name: Some(name.to_string()),
        agent: Some(agent.to_string()),
        cwd,
        dir,
        ..NewSession::default()
    };
    let session: Session =
        Api::new(root).post_with(&format!("/projects/{}/sessions", project_of(root, &agent)?), &new)?;
    if !asks_here {
        output::say(format_args!("{agent} works {}, not in this directory", where_it_works(&session)));
    }
    Ok(Opened { id: session.id, news: Some(news) })
}

/// A session that was made because none has this name: perhaps another was meant.
fn news_of(root: &Root, agent: &Name, name: &Name) -> String {
    let known = || -> Result<Vec<String>, Failure> {
        let of_agent = SessionsDir::of_agent(sessions::own_uid(), agent.clone());
        let found = root.reader()?.newest_of_all(&of_agent, NAMES_MAX)?;
        Ok(found.iter().map(|session| sessions::plain_name(&session.dir_name).to_owned()).collect())
    };
    // A suggestion is a courtesy: what cannot be read is not suggested.
    let known = known().unwrap_or_default();
    match nearest(name.as_str(), known.iter().map(String::as_str)).filter(|near| *near != name.as_str()) {
        Some(near) => format!("new session (did you mean {near}?)"),
        None => "new session".to_owned(),
    }
}

/// This directory, or another in its place, and the agent of its project.
pub struct Here {
    pub dir: String,
    pub agent: Name,
}

impl Here {
    /// Its warnings are said.
    pub fn of(root: &Root, dir: Option<&Path>) -> Result<Here, Failure> {
        let (here, warnings) = Here::quietly(root, dir)?;
        warnings.iter().for_each(output::say);
        Ok(here)
    }

    /// With what is to be said of a new session there.
    pub fn quietly(root: &Root, dir: Option<&Path>) -> Result<(Here, Vec<String>), Failure> {
        let dir = here::dir(dir)?;
        let project = here::project_quietly(root, &dir)?;
        let Some(agent) = project.agent else {
            let error = project.errors.first();
            let error = error.map(|error| format!("{}:{}: {}", error.file, error.line, error.message));
            let message = format!(
                "the project file in {} is invalid: {}",
                project.directory,
                error.unwrap_or_default()
            );
            return Err(Failure::new(Code::Ebadmsg, message).hint("`ctx project check` shows every error"));
        };
        Ok((Here { dir, agent }, project.warnings))
    }

    /// Says the warnings for a session that `word` names. One that began in another directory has what it had there, so
    /// that they say nothing of it.
    pub fn warn(&self, root: &Root, word: &str, warnings: &[String]) {
        if warnings.is_empty() {
            return;
        }
        let began = || {
            let reader = root.reader().ok()?;
            let meta = reader.meta(&reader.resolve(sessions::own_uid(), word).ok()?).ok()?;
            meta.dir.filter(|_| !meta.state.is_over())
        };
        match began().filter(|dir| *dir != self.dir) {
            Some(dir) => output::say(format_args!(
                "this session began in {} and keeps the files it had there; `ctx chat NAME` starts another",
                output::one_line(&dir)
            )),
            None => warnings.iter().for_each(output::say),
        }
    }
}

fn where_it_works(session: &Session) -> String {
    match &session.workspace {
        Some(workspace) => format!("in {}", output::one_line(&workspace.directory)),
        None if session.dsl_hash.is_some() => "in its project's directory".to_owned(),
        None => "with the files that its mount table names".to_owned(),
    }
}

/// The session that a word names, if there is one that can go on. The name of one that is over is free again; its id means
/// nothing but itself.
fn found(root: &Root, word: &str) -> Result<Option<SessionId>, Failure> {
    let id = match sessions::find_id(root, word) {
        Ok(id) => id,
        Err(Failure::Said { code: Code::Enoent, .. }) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let session: Session = Api::new(root).get(&format!("/sessions/{id}"))?;
    match session.state.is_over() {
        false => Ok(Some(id)),
        true if is_called_by_id(&session, word) => {
            Err(over(id, &format!("the session has {}", session.state)))
        }
        true => Ok(None),
    }
}

/// Whether a word that a session was found by is its id, or the beginning or end of that, and not a name. A whole id is
/// no name, also where the session is called by it.
fn is_called_by_id(session: &Session, word: &str) -> bool {
    let (id, part) = (session.id.to_string(), word.to_ascii_uppercase());
    let is_agent = session.agent.as_ref().is_some_and(|agent| agent.as_str() == word);
    let is_name = is_agent || sessions::plain_name(session.name.as_str()) == word;
    id == part || !is_name && (id.starts_with(&part) || id.ends_with(&part))
}

/// The failure of what a session that is over no longer takes.
pub fn over(id: SessionId, why: &str) -> Failure {
    let hint = format!("`ctx fork {id}` copies it into a new session, `ctx history {id}` prints it");
    Failure::new(Code::Eshutdown, why).hint(hint)
}

/// The project whose primary an agent is.
fn project_of(root: &Root, agent: &Name) -> Result<String, Failure> {
    let file = root.path.join("agent").join(format!("{agent}.d/project"));
    match std::fs::read_to_string(&file) {
        Ok(project) => Ok(project.trim().to_owned()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Err(Failure::new(Code::Enoent, format!("no agent `{agent}`"))
                .hint(format!("the agents are described in {}", root.path.join("agent").display())))
        }
        Err(error) => Err(Failure::io(file.display(), error)),
    }
}

/// What can be completed. Who cannot be asked offers nothing.
pub fn words(root: &Root) -> Words {
    #[derive(Deserialize)]
    struct Named {
        name: String,
    }
    let api = Api::new(root);
    let models = api.get::<List<Named>>("/models").map(|list| list.items).unwrap_or_default();
    let mut all = BTreeSet::new();
    for project in api.get::<List<Project>>("/projects").map(|list| list.items).unwrap_or_default() {
        let of_it = api.get::<List<Session>>(&format!("/projects/{}/sessions?limit=100", project.id));
        all.extend(of_it.map(|list| list.items).unwrap_or_default().iter().map(sessions::label));
    }
    Words {
        sessions: all.into_iter().collect(),
        models: models.into_iter().map(|model| model.name).collect(),
    }
}
