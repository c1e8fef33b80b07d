//! The broker's own rules, on planted directories and holders.

use std::os::unix::net::UnixListener;

use ctx_session::{Code, Timestamp};

use super::*;
use crate::protocol::{Decoder, Waiting};

const ID: u128 = 1 << 80;

fn plant(home: &Path, id: u128, name: &str, is_over: bool) -> PathBuf {
    let about = About {
        id: Ulid(id),
        name: Some(name.to_owned()),
        command: vec!["cat".to_owned()],
        cwd: home.to_owned(),
        created_at: Timestamp::from_millis(0),
        session: None,
        is_agents: false,
        is_caged: false,
    };
    let dir = home.join(about.id.to_string());
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("about.json"), serde_json::to_vec(&about).unwrap()).unwrap();
    let end = End {
        reason: EndReason::Exited,
        exit_code: Some(0),
        ended_at: about.created_at,
        bytes: 0,
        lines: 0,
        screen: Screen::default(),
        transcript_error: None,
    };
    if is_over {
        std::fs::write(dir.join("end.json"), serde_json::to_vec(&end).unwrap()).unwrap();
    }
    dir
}

/// Says hello to each client and nothing more.
fn answer(listener: &UnixListener) {
    let status = Status {
        version: VERSION,
        state: State::Detached,
        size: Size::new(80, 24),
        attached: 0,
        waiting: Some(Waiting::Input),
        title: String::new(),
        pid: 1,
        bytes: 0,
        lines: 0,
        scrollback: 0,
        has_application_cursor: false,
        idle_ms: 0,
        transcript_error: None,
    };
    for mut client in listener.incoming().map_while(Result::ok) {
        let (mut decoder, mut buffer) = (Decoder::default(), [0; 1024]);
        while decoder.take().unwrap().is_none() {
            let n = client.read(&mut buffer).unwrap();
            decoder.push(&buffer[..n]);
        }
        client.write_all(&FromHolder::Welcome(status.clone()).encode()).unwrap();
    }
}

#[test]
fn a_live_terminal_is_found_however_many_newer_ones_have_ended_and_its_name_is_taken() {
    let root = tempfile::tempdir().unwrap();
    let uid = rustix::process::geteuid().as_raw();
    let terminals = Terminals::new(root.path(), &Limits::default());
    let home = terminals.dir_of(uid);
    let kept = plant(&home, ID, "keep", false);
    let listener = UnixListener::bind(kept.join(SOCKET)).unwrap();
    std::thread::spawn(move || answer(&listener));
    for number in 1..=u128::try_from(ENDED_MAX).unwrap() + 10 {
        plant(&home, ID + number, "over", true);
    }
    // Its holder was killed.
    plant(&home, ID - 1, "over", false);
    let listed = terminals.list(uid).unwrap();
    let live: Vec<u128> =
        listed.iter().filter(|one| one.state != State::Closed).map(|one| one.about.id.0).collect();
    assert_eq!((live, listed.len()), (vec![ID], ENDED_MAX + 2));
    assert_eq!(terminals.find(uid, "keep").unwrap().state, State::Detached);
    let newest = ID + u128::try_from(ENDED_MAX).unwrap() + 10;
    assert_eq!(terminals.find(uid, "over").unwrap().about.id.0, newest);
    let again = NewTerminal {
        name: Some("keep".to_owned()),
        command: vec!["cat".to_owned()],
        cwd: None,
        env: None,
        size: Size::new(80, 24),
        created_at: Timestamp::from_millis(0),
        of: None,
    };
    assert!(matches!(terminals.check(uid, &again), Err(TerminalError::NameTaken(_))));
}

#[test]
fn a_holder_that_does_not_answer_is_called_so() {
    let terminal = Terminal {
        about: place::read_about(&plant(tempfile::tempdir().unwrap().path(), ID, "quiet", false)).unwrap(),
        dir: PathBuf::new(),
        state: State::Detached,
        status: None,
        end: None,
    };
    for kind in [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut] {
        let said = terminal.unanswered("read the screen")(kind.into()).to_string();
        assert!(said.starts_with("the holder of the terminal `quiet` does not answer"), "{said}");
    }
    let refused = terminal.unanswered("type")(io::Error::other(Refused("no".to_owned())));
    assert_eq!(refused.code(), Code::Eagain);
}
