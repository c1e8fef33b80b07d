//! Ctrl-C, counted: the first one cancels the run, the second one leaves.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

pub struct Interrupts {
    signal: Signal,
    count: usize,
}

impl Interrupts {
    /// From here on SIGINT does not end the process. Needs a runtime.
    pub fn new() -> Result<Interrupts, Failure> {
        let signal = signal(SignalKind::interrupt())
            .map_err(|error| Failure::io("cannot listen for Ctrl-C", error))?;
        Ok(Interrupts { signal, count: 0 })
    }

    /// Returns when Ctrl-C is pressed.
    pub async fn next(&mut self) {
        if self.signal.recv().await.is_none() {
            // Nobody will ever press it again.
            std::future::pending::<()>().await;
        }
        self.count += 1;
    }

    /// How often it was pressed .
    pub fn count(&self) -> usize {
        self.count
    }
}
