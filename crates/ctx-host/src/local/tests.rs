//! The transport of this machine: which program it runs, and what a shell holds.

use super::*;

fn transport(program: Option<&str>, path: &str, scratch: &Path) -> Result<LocalTransport, ShellError> {
    let scratch = ScratchDir { path: scratch.to_owned(), reader: None, inside: None };
    LocalTransport::new(program.map(Path::new), OsStr::new(path), None, MarkPrefix::new(1), scratch)
}

const PATH: &str = "/usr/bin:/bin";

#[test]
fn an_operator_s_program_decides_the_dialect() {
    let transport = |program, path| transport(program, path, Path::new("/nonexistent"));
    let dialect = |program| transport(program, PATH).unwrap().program.dialect;
    assert_eq!(dialect(None), Dialect::Bash);
    assert_eq!(dialect(Some("/usr/bin/dash")), Dialect::Posix);
    assert_eq!(dialect(Some("dash")), Dialect::Posix, "looked for in PATH");
    assert!(matches!(transport(None, "/nonexistent"), Err(ShellError::NoInterpreter)));
    for program in ["/nonexistent/bash", "/usr/bin", "no-such-shell"] {
        let error = transport(Some(program), PATH).unwrap_err().to_string();
        assert!(error.contains(program), "{error}");
    }
}

#[tokio::test]
async fn only_a_bash_with_thousands_of_variables_holds_much() {
    use tokio::io::AsyncReadExt;
    let dir = tempfile::tempdir().unwrap();
    let transport = transport(Some("bash"), PATH, &dir.path().join("scratch")).unwrap();
    let mut connection = transport.connect(1, None).unwrap();
    let place = StartPlace { cwd: dir.path().to_owned(), env: Vec::new() };
    let mut streams = connection.start(&place).await.unwrap();
    let mut held = vec![connection.holds_much()];
    for script in
        ["", "export A=1; f() { echo; }; x=$(seq 500);", "for ((n=0;n<5000;n++));do export V$n=value;done;"]
    {
        streams.stdin.write_all(format!("{script}echo done\n").as_bytes()).await.unwrap();
        let mut line = [0; 5];
        streams.stdout.read_exact(&mut line).await.unwrap();
        held.push(connection.holds_much());
    }
    connection.close().await;
    assert_eq!(held, [false, false, false, true]);
}
