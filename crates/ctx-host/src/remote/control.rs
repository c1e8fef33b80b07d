//! Our end of the control channel: orders go out as lines, answers come back by their first letter.
//!
//! What the orders mean is in [`far`](super::far). An answer that will not come, because the channel is closed, is `None`.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long the other side may take to end a shell's processes.
const FINISH_MAX: Duration = Duration::from_secs(5);
/// What is still on its way from a side that is lost gets so long.
const LOST_GRACE: Duration = Duration::from_secs(1);
/// The longest answer.
const LINE_BYTES_MAX: u64 = 64 * 1024;

/// A handle on the channel. Dropping the last one closes it, and the other side ends the shell.
#[derive(Clone)]
pub(super) struct Control {
    orders: mpsc::UnboundedSender<String>,
    shared: Arc<Shared>,
}

struct Shared {
    waiting: Mutex<HashMap<char, VecDeque<oneshot::Sender<String>>>>,
    /// The n-th interpreter has ended with this exit code.
    ended: watch::Sender<(u64, i32)>,
    /// Whether the interpreter waited for a command when the other side was asked last.
    waits: AtomicBool,
    lost: CancellationToken,
}

impl Shared {
    fn waiting(&self) -> MutexGuard<'_, HashMap<char, VecDeque<oneshot::Sender<String>>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, line: &str) {
        let Some(letter) = line.chars().next() else { return };
        let rest = line.get(letter.len_utf8()..).unwrap_or_default().trim();
        match letter {
            'e' => {
                let mut words = rest.split(' ');
                let number = words.next().and_then(|word| word.parse().ok());
                let code = words.next().and_then(|word| word.parse().ok());
                if let (Some(number), Some(code)) = (number, code) {
                    self.ended.send_replace((number, code));
                }
            }
            'w' => self.waits.store(rest == "1", Ordering::Relaxed),
            letter => {
                let waiting = self.waiting().get_mut(&letter).and_then(VecDeque::pop_front);
                if let Some(waiting) = waiting {
                    // Whoever asked may have given up.
                    let _ = waiting.send(rest.to_owned());
                }
            }
        }
    }
}

impl Control {
    /// Speaks to the other side over these streams. Pings it, and kills the channel where no answer comes in time.
    pub fn start(
        mut child: Child,
        stdin: ChildStdin,
        stdout: BufReader<ChildStdout>,
        beat: Duration,
    ) -> (Control, JoinHandle<()>) {
        let (orders, queue) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            waiting: Mutex::default(),
            ended: watch::Sender::new((0, 0)),
            waits: AtomicBool::new(false),
            lost: CancellationToken::new(),
        });
        let control = Control { orders, shared: Arc::clone(&shared) };
        let pings = tokio::spawn(ping(control.orders.downgrade(), Arc::clone(&shared), beat));
        let task = tokio::spawn(async move {
            let writer = tokio::spawn(write(stdin, queue));
            tokio::select! {
                () = read(stdout, &shared) => {}
                () = shared.lost.cancelled() => tracing::warn!("the other side of a shell does not stop a command"),
                _ = pings => tracing::warn!("the other side of a shell does not answer"),
            }
            shared.lost.cancel();
            shared.waiting().clear();
            writer.abort();
            if let Err(error) = child.start_kill() {
                tracing::debug!(%error, "the control channel was closed already");
            }
            let _ = child.wait().await;
        });
        (control, task)
    }

    /// Gives an order that is not answered.
    pub fn order(&self, line: String) {
        // A closed channel is found out by whoever waits for something.
        let _ = self.orders.send(line);
    }

    /// Gives an order and waits for its answer.
    pub async fn ask(&self, letter: char, line: String) -> Option<String> {
        let (answer, answered) = oneshot::channel();
        self.shared.waiting().entry(letter).or_default().push_back(answer);
        // The channel may have been closed before we waited.
        if self.is_lost() {
            return None;
        }
        self.order(line);
        answered.await.ok()
    }

    pub fn is_lost(&self) -> bool {
        self.shared.lost.is_cancelled()
    }

    /// Takes the other side for lost.
    pub fn give_up(&self) {
        self.shared.lost.cancel();
    }

    /// Waits until the other side is lost and what was on its way has come.
    pub async fn lost(&self) {
        self.shared.lost.cancelled().await;
        tokio::time::sleep(LOST_GRACE).await;
    }

    /// Waits for the end of the n-th interpreter; for ever where the connection is lost, since nobody knows then.
    pub async fn ended(&self, number: u64) -> i32 {
        let mut ended = self.shared.ended.subscribe();
        match ended.wait_for(|(ended, _)| *ended >= number).await.map(|ended| ended.1) {
            Ok(code) => code,
            Err(_) => std::future::pending().await,
        }
    }

    pub fn has_ended(&self, number: u64) -> Option<i32> {
        Some(*self.shared.ended.borrow()).filter(|(ended, _)| *ended >= number).map(|(_, code)| code)
    }

    /// Whether the interpreter waited for a command when this was asked the last time; asks again.
    pub fn waits(&self) -> bool {
        self.order("w".to_owned());
        self.shared.waits.swap(false, Ordering::Relaxed)
    }
}

/// Ends the shell on the other side, and waits until it says so by closing the channel.
pub(super) async fn finish(control: Control, task: JoinHandle<()>) {
    control.order("q".to_owned());
    let abort = task.abort_handle();
    if tokio::time::timeout(FINISH_MAX, task).await.is_err() {
        tracing::warn!("the other side did not say that it has ended a shell's processes");
        abort.abort();
    }
}

async fn write(mut stdin: ChildStdin, mut queue: mpsc::UnboundedReceiver<String>) {
    while let Some(mut line) = queue.recv().await {
        line.push('\n');
        if stdin.write_all(line.as_bytes()).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
    }
}

async fn read(mut stdout: BufReader<ChildStdout>, shared: &Shared) {
    while let Ok(Some(line)) = next_line(&mut stdout).await {
        shared.take(&line);
    }
}

/// The next line of the other side, without its end; none at the end, an error where it has no end.
pub(super) async fn next_line(stdout: &mut BufReader<ChildStdout>) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    stdout.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => Ok(Some(String::from_utf8_lossy(&line).into_owned())),
        Some(_) => Err(io::Error::new(io::ErrorKind::InvalidData, "a line without end")),
    }
}

/// Sends signs of life. Ends when the other side has not answered for three of them.
async fn ping(orders: mpsc::WeakUnboundedSender<String>, shared: Arc<Shared>, beat: Duration) {
    // More often than the other side looks, so that one that is late does no harm.
    let pause = beat * 2 / 3;
    let mut missed = 0;
    loop {
        let (answer, answered) = oneshot::channel();
        shared.waiting().entry('p').or_default().push_back(answer);
        match orders.upgrade() {
            Some(orders) => drop(orders.send("p".to_owned())),
            // Nobody holds the channel any more; it is being closed.
            None => return std::future::pending().await,
        }
        let started = tokio::time::Instant::now();
        match tokio::time::timeout(pause, answered).await {
            Ok(_) => missed = 0,
            Err(_) => missed += 1,
        }
        if missed == 4 {
            return;
        }
        tokio::time::sleep_until(started + pause).await;
    }
}
