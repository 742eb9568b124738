//! A real agent in a thread of its own, with a runtime of its own.

use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hallpass::{Builder, Node};
use hallpass_agent::{Agent, AgentOptions, Ended, ServeError};
use hallpass_testkit::{LIMIT, wait_until};

/// Long enough to see that something does not happen at once.
pub(crate) const AWHILE: Duration = Duration::from_secs(1);

/// What asks an agent to end, and its node.
type Started = (Box<dyn Fn() + Send>, Node);

/// An agent that may not be ready yet, in a thread of its own.
pub(crate) struct Starting {
    started: Receiver<Result<Started, ServeError>>,
    thread: JoinHandle<Option<Result<Ended, ServeError>>>,
}

/// An agent that serves.
pub(crate) struct Serving {
    stop: Box<dyn Fn() + Send>,
    pub(crate) node: Node,
    /// The address of its node.
    pub(crate) address: String,
    pub(crate) thread: JoinHandle<Option<Result<Ended, ServeError>>>,
}

impl Starting {
    pub(crate) fn new(options: AgentOptions) -> Self {
        Self::with(Node::builder().group("g").name("n").listen("127.0.0.1:0"), options)
    }

    pub(crate) fn with(builder: Builder, options: AgentOptions) -> Self {
        let (sender, started) = channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                match Agent::start(builder, options).await {
                    Ok(agent) => {
                        let stop: Box<dyn Fn() + Send> = Box::new(agent.stopper());
                        sender.send(Ok((stop, agent.node()))).ok()?;
                        Some(agent.serve().await)
                    }
                    Err(error) => {
                        let _ = sender.send(Err(error));
                        None
                    }
                }
            })
        });
        Self { started, thread }
    }

    /// True if it is not ready after a while.
    pub(crate) fn waits(&self) -> bool {
        self.started.recv_timeout(AWHILE).is_err()
    }

    pub(crate) fn wait(self) -> Result<Serving, ServeError> {
        let (stop, node) = self.started.recv_timeout(LIMIT).expect("it starts or fails")?;
        Ok(Serving { stop, address: node.address().to_string(), node, thread: self.thread })
    }

    #[track_caller]
    pub(crate) fn fails(self) -> ServeError {
        self.wait().map(|_| ()).expect_err("it does not start")
    }
}

impl Serving {
    pub(crate) fn ask_to_end(&self) {
        (self.stop)();
    }

    /// Waits until it has ended.
    pub(crate) fn ended(self) -> Result<Ended, ServeError> {
        wait_until("it ends", || self.thread.is_finished());
        self.thread.join().expect("it does not panic").expect("it was started")
    }

    #[track_caller]
    pub(crate) fn stop(self) {
        self.ask_to_end();
        assert_eq!(self.ended().unwrap(), Ended::Stopped);
    }
}
