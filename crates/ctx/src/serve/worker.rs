//! The agents of a root behind the engine's port. What a run says to its session goes through [`RunPort`], which both
//! sides know.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ctx_agent::mcp::{McpGround, McpServers};
use ctx_agent::model::Turn;
use ctx_agent::project::{directory_of, shown_for};
use ctx_agent::shells::{AgentShells, CageGround, ShellGround};
use ctx_agent::tool::terminal::{Wanted, starter, uncaged};
use ctx_agent::{Ask, BoxFuture, CageAsk, CageRules, Guard, Guarded, JobKind, Models, Place, Services};
use ctx_cage::rights::{self, Rights, RightsError};
use ctx_cage::{Means, Net};
use ctx_engine::port::{Job, OperatorsTerminal, Prepare, Prepared, ProcessAct, TerminalAsk, Worker};
use ctx_host::HostConfig;
use ctx_journal::Owner;
use ctx_session::command::{Outcome, RunNet};
use ctx_session::conversation::Part;
use ctx_session::object::Earlier;
use ctx_session::port::{RunPort, TerminalStart};
use ctx_session::record::{RunKind, TerminalEnd};
use ctx_session::{Code, Limits, Object, Refusal, SessionId, TerminalId};
use ctx_snapshot::runs::RunFiles;
use ctx_terminal::{ASK, EndReason, FromHolder, Size, Terminals, speak};
use tokio_util::sync::CancellationToken;

use super::mcp::Servers;
use super::{passwd, projects, shells};
use crate::commands::hidden::guard;
use crate::config::Shells;
use crate::failure::Failure;
use crate::root::Root;
use crate::shell_host::host_config;
use crate::words;

/// The agents of a root.
pub(super) struct Agents {
    root: PathBuf,
    models: Arc<Models>,
    cages: CageRules,
    limits: Arc<Limits>,
    services: Services,
    /// Whose entries and variables the MCP servers have.
    servers: Arc<Servers>,
    terminals: Arc<Terminals>,
    files: Arc<RunFiles>,
    /// Users whose directories are there.
    homes: Mutex<HashSet<u32>>,
}

impl Agents {
    #[expect(clippy::too_many_arguments, reason = "each is a part of the daemon that agents use")]
    pub(super) fn new(
        root: &Path,
        models: Arc<Models>,
        cages: CageRules,
        services: Services,
        servers: Arc<Servers>,
        terminals: Arc<Terminals>,
        limits: Arc<Limits>,
        files: Arc<RunFiles>,
    ) -> Agents {
        let (root, homes) = (root.to_owned(), Mutex::default());
        Agents { root, models, cages, limits, services, servers, terminals, files, homes }
    }
}

impl Agents {
    /// The directories that a user keeps things in themselves, once for each.
    fn make_home(&self, uid: u32) {
        let mut made = ctx_journal::lock(&self.homes);
        if !made.contains(&uid) {
            let gid = passwd::user(uid).map_or(uid, |user| user.gid);
            match super::tree::prepare_home(&self.root, Owner::user(uid, gid)) {
                Ok(()) => drop(made.insert(uid)),
                Err(error) => tracing::warn!(uid, %error, "the directories of a user could not be made"),
            }
        }
    }
}

impl Agents {
    /// The directory of the project that a session belongs to; None where its agent is no project's.
    fn project_dir(&self, owner: u32, session: SessionId) -> Option<PathBuf> {
        let reader = Root { path: self.root.clone() }.reader().ok()?;
        let found = reader.resolve(owner, &session.to_string()).and_then(|found| reader.meta(&found)).ok()?;
        let agent = found.agent?;
        // Another project may have an agent of that name by now.
        shown_for(&self.root, &agent).filter(|project| *project == found.project)?;
        directory_of(&self.root, &agent).map(|(directory, _)| directory.into())
    }
}

/// Where a user's toolchains are. May ask the network.
fn user_home(uid: u32) -> Option<PathBuf> {
    let own = rustix::process::geteuid().as_raw() == uid;
    let named = if own { std::env::var_os("HOME").map(PathBuf::from) } else { None };
    named.or_else(|| passwd::user(uid).map(|user| user.home)).filter(|home| home.is_absolute())
}

/// How commands of this user are started: as them, and with nothing of the daemon's.
fn guarded(uid: u32) -> Result<Guarded, String> {
    // This very program, whatever was installed in its place meanwhile.
    let mut words: Vec<OsString> = vec!["/proc/self/exe".into(), guard::NAME.into()];
    let own = rustix::process::geteuid().as_raw();
    if uid == own {
        let kept = |name: &str| Some((name.into(), std::env::var_os(name)?));
        let env = ["PATH", "HOME", "LANG", "LC_ALL", "TMPDIR"].into_iter().filter_map(kept).collect();
        return Ok(Guarded { words, env });
    }
    if own != 0 {
        return Err(format!("this daemon does not run as root, so it cannot run a command as uid {uid}"));
    }
    let user = passwd::user(uid);
    let user = user.ok_or_else(|| {
        format!("uid {uid} is not a user of this machine, so no command can run as this user")
    })?;
    let refused = |error: RightsError| error.to_string();
    let groups = rights::groups_of(uid).map_err(refused)?;
    let home = Rights::of(uid).and_then(|rights| rights.act(|| shells::home_of(&user))).map_err(refused)?;
    let run_as = guard::User { uid, gid: user.gid, groups };
    words.extend(["--as".into(), run_as.to_string().into()]);
    let env = shells::clean_env(&user, &home)
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    Ok(Guarded { words, env })
}

impl Worker for Agents {
    fn prepare(&self, ask: &Prepare) -> Result<Prepared, Refusal> {
        let snapshot = ask.snapshot.as_deref().map(projects::snapshot).transpose()?;
        let rights = Rights::of(ask.owner)?;
        self.make_home(ask.owner);
        let (user_home, own_servers) = (user_home(ask.owner), self.servers.of(ask.owner));
        let (object, earlier) = (&ask.object, &ask.earlier);
        let ask = Ask {
            root: &self.root,
            agent: match object {
                Object::Agent(agent) => agent,
                Object::Model { model, .. } => model,
            },
            snapshot: snapshot.as_ref(),
            owner: ask.owner,
            rights: &rights,
            model_override: ask.model_override.as_deref(),
            cwd: ask.cwd.as_deref(),
            prompts: &ask.prompts,
            wishes: &ask.wishes,
            recorded: ask.recorded.as_ref(),
            cage: CageAsk {
                rules: &self.cages,
                user_home: user_home.as_deref(),
                // The engine gives us a project file only if the session's owner has agreed to what it grants.
                is_trusted: true,
                net: ask.wishes.net.map(|net| match net {
                    RunNet::None => Net::None,
                    RunNet::Host => Net::Host,
                }),
            },
            limits: &self.limits,
            place: Place {
                workspace: ask.place.workspace.as_ref(),
                offered: ask.place.offered.as_ref(),
                dir: ask.place.dir.as_deref(),
            },
            own_servers: &own_servers,
        };
        let prepared = match object {
            Object::Agent(_) => ctx_agent::prepare(&ask, &self.models)?,
            Object::Model { .. } => {
                let turn = |said: &Earlier| {
                    let content = vec![Part::Text { text: said.content.clone() }];
                    Turn { role: said.role, content }
                };
                let earlier = earlier.iter().map(turn).collect();
                ctx_agent::prepare_model(&ask, &object.to_string(), earlier, &self.models)?
            }
        };
        Ok(Prepared {
            project: prepared.agent.description.project.clone(),
            context: prepared.context.clone(),
            prompts: prepared
                .prompts
                .iter()
                .map(|prompt| &prompt.text)
                .chain(prepared.instructions.iter().map(|file| &file.text))
                .cloned()
                .collect(),
            delegates: prepared.agent.description.settings.compaction.delegate.is_some(),
            workspace: prepared.workspace.clone(),
            handle: Arc::new(prepared),
        })
    }

    fn run(&self, job: Job, port: Arc<dyn RunPort>, stop: CancellationToken) -> BoxFuture<'static, Outcome> {
        let (models, services) = (self.models.clone(), self.services.clone());
        let owner = job.owner;
        let guard: Guard = Arc::new(move || guarded(owner));
        Box::pin(async move {
            let kind = match job.kind {
                RunKind::Message | RunKind::Continuation => JobKind::Message,
                RunKind::Compaction => JobKind::Compaction { strategy: job.strategy },
            };
            let (session, run, limits) = (job.session, job.run, job.limits);
            let subagent = None;
            let job = ctx_agent::Job { session, run, kind, limits, guard, services, subagent, stop };
            ctx_agent::run(job, &models, port).await
        })
    }

    fn terminal(&self, ask: TerminalAsk) -> Result<TerminalStart, Refusal> {
        let TerminalAsk { session, owner, new, prepared, dir } = ask;
        let OperatorsTerminal { name, command, cols, rows, caged: _ } = new;
        let lost = || Refusal::new(Code::Eio, "the agent was not prepared");
        let want = match prepared {
            Some(prepared) => {
                let prepared = prepared.handle.downcast::<ctx_agent::Prepared>().map_err(|_| lost())?;
                ctx_agent::own_want(&prepared)?
            }
            None => {
                let dir = dir.map(PathBuf::from).or_else(|| self.project_dir(owner, session));
                uncaged(owner, dir, user_home(owner))
            }
        };
        let size = Size::new(cols, rows);
        let wanted = Wanted { session, want, name, command, size, is_agents: false, now: words::now };
        let shells = self.services.shells.as_ref().ok_or_else(lost)?;
        starter(Arc::clone(&self.terminals), shells, wanted)
    }

    fn terminal_ended(
        &self,
        owner: u32,
        id: TerminalId,
    ) -> BoxFuture<'static, (TerminalEnd, Option<i32>, u64)> {
        let terminals = Arc::clone(&self.terminals);
        Box::pin(async move {
            let ended = terminals.clone();
            let connected = tokio::task::spawn_blocking(move || {
                terminals.connect(owner, &terminals.find(owner, &id.to_string())?)
            });
            if let Ok(Ok(stream)) = connected.await
                && let Ok((mut holder, _asking)) = speak(stream, ASK).await
            {
                while let Ok(Some(said)) = holder.hear().await {
                    if matches!(said, FromHolder::End(_)) {
                        break;
                    }
                }
            }
            let how = tokio::task::spawn_blocking(move || ended.how_it_ended(owner, id.0)).await;
            let (reason, exit_code, lines) = how.unwrap_or((EndReason::HolderLost, None, 0));
            let reason = match reason {
                EndReason::Exited => TerminalEnd::Exited,
                EndReason::Closed => TerminalEnd::Closed,
                EndReason::HolderLost => TerminalEnd::HolderLost,
            };
            (reason, exit_code, lines)
        })
    }

    fn close_terminal(&self, owner: u32, id: TerminalId) -> BoxFuture<'static, Result<(), Refusal>> {
        let terminals = Arc::clone(&self.terminals);
        Box::pin(async move {
            let closed = tokio::task::spawn_blocking(move || terminals.close(owner, &id.to_string())).await;
            let closed = closed.map_err(|error| Refusal::new(Code::Eio, error.to_string()))?;
            closed.map(drop).map_err(|error| Refusal::new(error.code(), error.to_string()))
        })
    }

    fn terminals_without_end(&self) -> Vec<(u32, SessionId, TerminalId)> {
        let left = self.terminals.without_recorded_end().into_iter();
        left.map(|(owner, session, id)| (owner, session, TerminalId(id))).collect()
    }

    fn mark_terminal_ended(&self, owner: u32, id: TerminalId) {
        if let Err(error) = self.terminals.mark_ended(owner, id.0) {
            tracing::debug!(%id, %error, "a terminal that has ended was not marked");
        }
    }

    fn forget_terminals(&self, owner: u32, session: SessionId) {
        if let Err(error) = self.terminals.forget(owner, session) {
            tracing::warn!(%session, %error, "the terminals of a purged session are left");
        }
    }

    fn processes(&self, owner: u32, session: SessionId, act: ProcessAct) -> BoxFuture<'static, ()> {
        let (services, grace) = (self.services.clone(), Duration::from_millis(self.limits.stop_grace_ms));
        let files = Arc::clone(&self.files);
        Box::pin(async move {
            match act {
                // What is there while nothing moves belongs to the checkpoint, and what others change until the session goes
                // on is not its doing.
                ProcessAct::Freeze => {
                    let saved = move || {
                        services.freeze(owner, session);
                        files.pause(session.0);
                    };
                    off_thread(saved).await;
                }
                ProcessAct::Thaw => {
                    let saved = move || {
                        files.resumed(session.0);
                        services.thaw(owner, session);
                    };
                    off_thread(saved).await;
                }
                ProcessAct::End => {
                    // A terminal of the operator's goes on.
                    let thawed = services.clone();
                    off_thread(move || thawed.thaw(owner, session)).await;
                    services.end(session, grace).await;
                }
                ProcessAct::EndForGood => {
                    let terminals = services.terminals.clone();
                    off_thread(move || {
                        terminals.iter().for_each(|terminals| terminals.close_all(owner, session))
                    })
                    .await;
                    services.end(session, grace).await;
                    services.forget_session(session).await;
                }
            }
        })
    }
}

/// The kernel may take a while to freeze something.
async fn off_thread(work: impl FnOnce() + Send + 'static) {
    if tokio::task::spawn_blocking(work).await.is_err() {
        tracing::error!("freezing or thawing a session's processes broke");
    }
}

/// What the agents of this root have for shells and MCP servers. What an earlier daemon of this root has left is ended and removed: the root
/// is ours alone now.
pub(super) fn services(
    root: &Path,
    servers: Arc<Servers>,
    terminals: &Arc<Terminals>,
    settings: &Shells,
) -> Result<Services, Failure> {
    let means = Means::detect();
    let name = ctx_agent::sha256_hex(root.as_os_str().as_encoded_bytes());
    let parent = format!("daemon-{}", name.get(..12).unwrap_or_default());
    // The cages of terminals whose holder answers are not left: they go on.
    let left = ctx_cage::sweep(&means, |other| other == parent) + terminals.sweep(&means);
    if left > 0 {
        tracing::warn!(left, "ended what an earlier daemon left in cages");
    }
    let state = root.join(".state");
    let (spool_dir, scratch_dir) = (state.join("agent-shells"), state.join("scratch"));
    for dir in [&spool_dir, &scratch_dir] {
        let _ = std::fs::remove_dir_all(dir);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let app = concat!("ctx ", env!("CARGO_PKG_VERSION")).to_owned();
    let cages = CageGround { path, means, parent, scratch_dir };
    let mcp = McpServers::new(McpGround { cages: cages.clone(), variables: servers });
    let HostConfig { remote, policy, .. } = host_config(spool_dir.clone(), settings)?;
    let shells = AgentShells::new(ShellGround { cages, spool_dir, app, remote, policy });
    Ok(Services {
        shells: Some(Arc::new(shells)),
        mcp: Some(Arc::new(mcp)),
        terminals: Some(Arc::clone(terminals)),
        now: Some(words::now),
        ..Services::default()
    })
}
