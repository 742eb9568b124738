//! A member of a group: what callers, the disk and the clock tell it, and what it asks its driver to do. Its connections, what its view
//! layer has it do, the session that every input looks at, and what it shows are in files of their own.

mod actions;
mod connections;
mod getters;
mod session;

use std::collections::VecDeque;
use std::fmt;

use hallpass_core::protocol::OptionError;
use hallpass_core::{Mode, NodeId, Ticks, View};

use crate::config::NodeConfig;
#[cfg(any(test, feature = "planted-bugs"))]
use crate::faults::Planted;
use crate::faults::{Conduct, Honest, Sabotage};
use crate::links::Links;
use crate::locks::{Classes, Locks, Slot};
use crate::membership::Views;
use crate::output::{Answer, Grant, Output, Patience, Refusal, Request, Ticket, Write};
pub(crate) use session::Checked;

/// One member of a group. `C` is what the driver knows a waiting caller by. The second parameter is [`Honest`] for every node that runs
/// for real; the laboratory alone has another.
///
/// - **Inputs** of callers: [`handle_acquire`](Self::handle_acquire), [`handle_fast_acquire`](Self::handle_fast_acquire),
///   [`handle_release`](Self::handle_release), [`handle_cancel`](Self::handle_cancel),
///   [`handle_request`](Self::handle_request).
/// - **Inputs** of connections: [`handle_hello`](Self::handle_hello), [`handle_other_group`](Self::handle_other_group); [`handle_bytes`](Self::handle_bytes),
///   [`handle_writable`](Self::handle_writable), [`handle_disconnect`](Self::handle_disconnect);
///   [`handle_control`](Self::handle_control), [`handle_control_disconnect`](Self::handle_control_disconnect), [`handle_seed`](Self::handle_seed).
/// - **Inputs** of disk and clock: [`handle_persisted`](Self::handle_persisted), [`handle_timeout`](Self::handle_timeout).
/// - **Outputs**: [`poll_output`](Self::poll_output), with [`poll_transmit`](Self::poll_transmit) and
///   [`handle_transmitted`](Self::handle_transmitted); [`poll_timeout`](Self::poll_timeout).
/// - **Getters**: [`hello`](Self::hello), [`control_hello`](Self::control_hello), [`contacts`](Self::contacts),
///   [`needs_seeds`](Self::needs_seeds), [`is_complete`](Self::is_complete), [`valid_until`](Self::valid_until),
///   [`lapse_count`](Self::lapse_count), [`status`](Self::status), [`members`](Self::members), [`locks`](Self::locks),
///   [`lock_status`](Self::lock_status), [`messages`](Self::messages).
/// - **Watching** a lock's messages: [`open_tap`](Self::open_tap), [`take_traced`](Self::take_traced),
///   [`close_tap`](Self::close_tap).
///
/// The [crate's front page](crate) gives the order in which they are called.
pub struct Node<C, F = Honest> {
    config: NodeConfig,
    views: Box<Views<F>>,
    conduct: F,
    links: Links,
    pub(crate) locks: Locks<C>,
    /// Writes to persist, in order.
    writes: VecDeque<Write>,
    /// What callers and the driver must know, in order, before anything is sent.
    notices: VecDeque<Output<C>>,
    /// Control messages and connections to close, in order.
    controls: VecDeque<Output<C>>,
    /// How often everything that was granted has been lost.
    lapse_count: u64,
    /// Views that were opened here, and sessions that ran out.
    views_opened: u64,
    lapses: u64,
    /// Until when what is held here is held for certain; 0 without a session.
    valid_until: Ticks,
}

impl<C> Node<C> {
    /// A node that has no connections yet.
    pub fn new(config: NodeConfig) -> Result<Self, OptionError> {
        Self::with_conduct(config, Honest)
    }
}

#[cfg(any(test, feature = "planted-bugs"))]
impl<C> Node<C, Planted> {
    /// A node that breaks this rule: for tests of what finds bugs.
    pub fn with_bug(config: NodeConfig, bug: Option<Sabotage>) -> Result<Self, OptionError> {
        Self::with_conduct(config, Planted(bug))
    }
}

impl<C, F: Conduct> Node<C, F> {
    fn with_conduct(config: NodeConfig, conduct: F) -> Result<Self, OptionError> {
        config.check()?;
        // Classes that do not fit are reported now, not when the group is founded.
        Classes::new(config.me, &View::new([config.me]), &config.classes)?;
        let mut node = Self {
            views: Box::new(Views::new(&config, &config.views, conduct)?),
            links: Links::new(std::iter::empty()),
            locks: Locks::new(&config),
            writes: VecDeque::new(),
            notices: VecDeque::new(),
            controls: VecDeque::new(),
            lapse_count: 0,
            views_opened: 0,
            lapses: 0,
            valid_until: Ticks::MAX,
            conduct,
            config,
        };
        node.apply_actions(Checked::at_the_start());
        Ok(node)
    }

    // ---- callers ----

    /// A caller wants a lock. `caller` is called only if it has to wait.
    pub fn handle_acquire(
        &mut self,
        lock: &str,
        mode: Mode,
        patience: Patience,
        now: Ticks,
        caller: impl FnOnce() -> C,
    ) -> Result<Answer, Refusal> {
        let now = self.begin(now);
        let answer = self.locks.acquire(lock, mode, patience, now.ticks(), &mut self.links, caller);
        self.look_at_fences(now);
        answer
    }

    /// The fast path for a lock that is free and whose permissions are here. It was found in this
    /// [`slot`](Ticket::slot) not long ago. With `None` nothing has changed, and [`handle_acquire`](Self::handle_acquire)
    /// is the way.
    #[inline]
    pub fn handle_fast_acquire(&mut self, slot: Slot, lock: &str, mode: Mode, now: Ticks) -> Option<Grant> {
        self.assert_drained();
        if now >= self.valid_until {
            return None;
        }
        let grant = self.locks.acquire_fast(slot, lock, mode, now)?;
        self.links.offer_leftovers();
        Some(grant)
    }

    /// True if a caller of this lock certainly has to wait, for another caller or for messages. False is always right.
    pub fn must_wait(&self, slot: Slot, lock: &str, mode: Mode) -> bool {
        self.locks.must_wait(slot, lock, mode)
    }

    /// A caller releases its lock; false if it does not hold it.
    #[inline]
    pub fn handle_release(&mut self, ticket: Ticket, now: Ticks) -> bool {
        let now = self.begin(now);
        self.locks.release(ticket, now.ticks(), &mut self.links)
    }

    /// Asks whom the callers of a lock wait for. What is found out is shown by [`lock_status`](Self::lock_status) a little later.
    pub fn handle_inquiry(&mut self, lock: &str, now: Ticks) {
        let now = self.begin(now);
        self.locks.inquire(lock, now.ticks(), &mut self.links);
    }

    /// A waiting caller gives up, wherever it is in the queue. If it holds the lock by now, it releases it. False if it
    /// neither waits nor holds.
    pub fn handle_cancel(&mut self, ticket: Ticket, now: Ticks) -> bool {
        let now = self.begin(now);
        self.locks.cancel(ticket, now.ticks(), &mut self.links)
    }

    // ---- the group ----

    /// Asks something of the whole group. The answer is an [`Output::Done`] with this token.
    pub fn handle_request(&mut self, request: Request, token: u64, now: Ticks) {
        let now = self.begin(now);
        self.views.on_request(request, token, now);
        self.apply_actions(now);
    }

    /// Nobody waits for the answer to this request any longer. What it asked for may still happen.
    pub fn handle_request_cancel(&mut self, token: u64) {
        self.views.forget_request(token);
    }

    // ---- disk and time ----

    /// A write of [`Output::Persist`] is on disk. Also between two outputs: a driver may write while it takes them.
    pub fn handle_persisted(&mut self, write: Write, now: Ticks) {
        let forgets = self.conduct.breaks(Sabotage::ForgetSessionOnDisk);
        let now = if forgets { Checked::not_at_all(now) } else { self.lapse_if_expired(now) };
        self.views.on_persisted(write.number, now);
        self.apply_actions(now);
    }

    /// It is time: at least as late as [`poll_timeout`](Self::poll_timeout) said. Too early does no harm.
    pub fn handle_timeout(&mut self, now: Ticks) {
        let now = self.begin(now);
        self.locks.handle_timeout(now.ticks(), &mut self.links);
        self.views.on_timeout(now, &self.links);
        self.apply_actions(now);
        self.links.shrink();
    }

    // ---- outputs ----

    /// The next thing to do: what must be on disk comes first, then what callers must know, then messages to peers.
    pub fn poll_output(&mut self) -> Option<Output<C>> {
        if let Some(write) = self.writes.pop_front() {
            return Some(Output::Persist(write));
        }
        if let Some(notice) = self.notices.pop_front() {
            return Some(notice);
        }
        if let Some((caller, outcome)) = self.locks.poll_answer() {
            return Some(Output::Answer { caller, outcome });
        }
        if let Some(control) = self.controls.pop_front() {
            return Some(control);
        }
        self.links.poll_offer().map(Output::Transmit)
    }

    /// False if [`poll_output`](Self::poll_output) would return `None`; true if it might not.
    #[inline]
    pub fn has_output(&self) -> bool {
        self.locks.has_answers()
            || self.links.has_offers()
            || !(self.writes.is_empty() && self.notices.is_empty() && self.controls.is_empty())
    }

    /// What to send to this peer now.
    pub fn poll_transmit(&self, peer: NodeId) -> &[u8] {
        self.links.position(peer).map_or(&[], |link| self.links[link].transmit())
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) at the latest.
    pub fn poll_timeout(&self) -> Option<Ticks> {
        let views = self.views.timeout();
        let session = (self.valid_until != Ticks::MAX && self.valid_until != 0).then_some(self.valid_until);
        self.locks.poll_timeout().into_iter().chain(views).chain(session).min()
    }
}

impl<C, F: Conduct> fmt::Debug for Node<C, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("me", &self.config.me).field("locks", &self.len()).finish_non_exhaustive()
    }
}
