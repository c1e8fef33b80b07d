//! The cage of an agent as a value: what the operator, the project file and the run say of it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ctx_agent::cage::Ground;
use ctx_agent::project::{Cage as Wishes, Git};
use ctx_agent::{Ask, CageAsk, prepare};
use ctx_cage::rights::Rights;
use ctx_cage::{Access, Mount, Net, Owner, Toolchains};
use ctx_session::{Code, Name};

use crate::support::{Root, usual_cage};

fn ground() -> Ground {
    Ground {
        owner: Owner::new(1000, 1000),
        mounts: vec![Mount::rw("/src/app", "/work"), Mount::ro("/data", "/data")],
        home: Some("/root/home".into()),
        system: vec![Mount::ro("/usr", "/usr")],
        system_net: vec![Mount::ro("/usr", "/usr"), Mount::ro("/etc/hosts", "/etc/hosts")],
        toolchains: Toolchains {
            mounts: vec![Mount::ro("/home/me/.cargo/bin", "/home/agent/.cargo/bin")],
            paths: vec!["/home/agent/.cargo/bin".into()],
        },
        git: Some("/src/app/.git".into()),
        covered: Some("/work/.demo".into()),
        lent: Vec::new(),
    }
}

fn targets(mounts: &[Mount], access: Access) -> Vec<&str> {
    mounts.iter().filter(|mount| mount.access == access).map(|mount| mount.target.to_str().unwrap()).collect()
}

#[test]
fn a_cage_has_the_project_a_home_and_the_system() {
    let cage = ground().cage(&[]);
    assert_eq!(targets(&cage.mounts, Access::Rw), ["/work", "/home/agent"]);
    assert_eq!(targets(&cage.mounts, Access::Ro), ["/data", "/usr", "/home/agent/.cargo/bin", "/work/.git"]);
    assert_eq!((cage.net, cage.limits.walltime), (Net::None, None));
    assert_eq!((cage.limits.memory_bytes, cage.limits.processes), (2 << 30, 512));
    assert_eq!(cage.covered, [PathBuf::from("/work/.demo")]);
    assert!(cage.env["PATH"].starts_with("/home/agent/.cargo/bin:/usr/local/sbin"));
    assert_eq!(cage.cwd, Path::new("/work"));
    let without = Ground { mounts: Vec::new(), git: None, home: None, ..ground() }.cage(&[]);
    assert_eq!(without.cwd, Path::new("/"));
}

#[test]
fn a_later_wish_holds_before_an_earlier_one() {
    let operator = Wishes {
        net: Some(Net::None),
        memory_bytes: Some(1),
        path: vec!["/opt/a".to_owned()],
        env: [("A".to_owned(), "1".to_owned()), ("B".to_owned(), "1".to_owned())].into(),
        ..Wishes::default()
    };
    let project = Wishes {
        net: Some(Net::Host),
        memory_bytes: Some(2),
        processes: Some(7),
        tmp_bytes: Some(3),
        walltime_ms: Some(5_000),
        mounts: vec![Mount::ro("/sdk", "/opt/sdk")],
        path: vec!["/opt/sdk/bin".to_owned()],
        env: [("B".to_owned(), "2".to_owned())].into(),
        git: Some(Git::Rw),
    };
    let cage = ground().cage(&[&operator, &project, &Wishes::default()]);
    assert_eq!((cage.net, cage.limits.memory_bytes, cage.limits.processes), (Net::Host, 2, 7));
    assert_eq!((cage.limits.tmp_bytes, cage.limits.walltime), (3, Some(Duration::from_secs(5))));
    assert_eq!((cage.env["A"].as_str(), cage.env["B"].as_str()), ("1", "2"));
    assert!(cage.env["PATH"].starts_with("/opt/sdk/bin:/opt/a:/home/agent/.cargo/bin:"));
    let read_only = targets(&cage.mounts, Access::Ro);
    assert!(read_only.contains(&"/etc/hosts") && read_only.contains(&"/opt/sdk"), "{read_only:?}");
    assert!(!read_only.contains(&"/work/.git"), "asked for");
}

/// A project of which this is the file, and whether it is trusted.
fn prepared(file: &str, cage: CageAsk<'_>) -> ctx_agent::Prepared {
    use ctx_agent::project::{Trust, read_project};
    let root = Root::new();
    std::fs::create_dir_all(root.work().join(".ctx")).unwrap();
    std::fs::write(root.work().join(".ctx/project.yaml"), file).unwrap();
    let now = ctx_session::Timestamp::from_millis(u64::MAX);
    let looked = read_project(&root.work(), Trust::Anyone, 1 << 20, now);
    let found = looked.found.unwrap();
    let agent = Name::new("music").unwrap();
    let ask = Ask {
        root: &root.path(),
        agent: &agent,
        snapshot: Some(&found.snapshot),
        owner: 1000,
        rights: &Rights::own(),
        model_override: None,
        cwd: None,
        prompts: &[],
        recorded: None,
        wishes: &Default::default(),
        cage,
        limits: &root.limits,
        place: ctx_agent::Place::default(),
        own_servers: &std::collections::BTreeMap::new(),
    };
    prepare(&ask, &root.models()).unwrap()
}

const FILE: &str = "version: 1\nproject: music\nprimary: {model: \"debug:echo\"}\n\
    subagents: {t: {model: \"debug:echo\", cage: {memory: 64M}}, u: {model: \"debug:echo\"}}\n";

#[test]
fn what_a_project_file_asks_for_holds_once_it_is_trusted() {
    let file = format!("{FILE}cage: {{net: host, env: {{RUST_LOG: debug}}, git: rw}}\n");
    let refused = prepared(&file, usual_cage());
    let refusal = refused.agent.cages.own().unwrap_err();
    assert_eq!(refusal.code, Code::Eacces);
    assert!(refusal.message.contains("ctx project trust"), "{refusal}");
    assert!(refused.context.cage.unwrap().starts_with("refused: "));
    let trusted = prepared(&file, CageAsk { is_trusted: true, ..usual_cage() });
    let cage = trusted.agent.cages.own().unwrap().unwrap();
    assert_eq!((cage.net, cage.env["RUST_LOG"].as_str()), (Net::Host, "debug"));
    let words = trusted.context.cage.unwrap();
    assert!(words.contains("net=host") && words.contains("RUST_LOG") && !words.contains("debug"), "{words}");
}

#[test]
fn a_subagent_has_a_cage_of_its_own() {
    let prepared = prepared(FILE, CageAsk { is_trusted: true, net: Some(Net::Host), ..usual_cage() });
    let cages = &prepared.agent.cages;
    let of = |name: &str| {
        let subagents = &prepared.agent.description.settings.subagents;
        cages.of_subagent(&subagents[&Name::new(name).unwrap()].cage, 1_800_000).unwrap().unwrap()
    };
    assert_eq!((of("t").limits.memory_bytes, of("u").limits.memory_bytes), (64 << 20, 2 << 30));
    assert_eq!(of("u").limits.walltime, Some(Duration::from_secs(30 * 60)));
    assert_eq!((of("u").net, cages.own().unwrap().unwrap().limits.walltime), (Net::Host, None));
}

#[test]
fn an_untrusted_file_that_asks_for_nothing_has_the_usual_cage() {
    let prepared = prepared(FILE, usual_cage());
    let cages = &prepared.agent.cages;
    assert!(cages.own().is_ok());
    let asks = Wishes { net: Some(Net::None), ..Wishes::default() };
    assert_eq!(cages.of_subagent(&asks, 1).unwrap_err().code, Code::Eacces);
    assert!(cages.of_subagent(&Wishes::default(), 1).is_ok());
}
