//! The node's contract: give it an input, then carry out every output in order.

use std::sync::MutexGuard;
use std::time::Duration;

use hallpass_core::{NodeId, Ticks};
use hallpass_node::{Ordered, Outcome, Output, Stage, Write};

use super::{Driver, Granted, State, Storage, TICK};
use crate::AcquireError;
use crate::certificate::KeyDigest;
use crate::clock::sleep_before;
use crate::disk::Job;
use crate::os::now;
use crate::waiter::Wakers;

impl Driver {
    /// Gives the node an input and carries out the outputs, unless it has not begun or is closed. The next deadline may have changed.
    pub(super) fn input<T>(&self, input: impl FnOnce(&mut State) -> T) -> Option<T> {
        let mut state = self.state();
        if self.is_closed() || matches!(state.storage, Storage::NotBegun) {
            return None;
        }
        state.read_clock();
        let result = input(&mut state);
        self.drain_and_schedule(state);
        Some(result)
    }

    #[inline]
    pub(super) fn drain_if_needed(&self, state: MutexGuard<'_, State>) {
        if state.node.has_output() {
            self.drain(state);
        }
    }

    /// Carries out the outputs after a message of a lock: it brings no deadline that cannot wait for the next [`TICK`].
    pub(super) fn drain(&self, state: MutexGuard<'_, State>) {
        self.carry_out(state, false);
    }

    pub(super) fn drain_and_schedule(&self, state: MutexGuard<'_, State>) {
        self.carry_out(state, true);
    }

    /// Carries out all outputs, in order. Answers are given under the lock, so that none comes later than a message that was sent after it.
    /// Tasks are woken without the lock, since they may want it at once.
    fn carry_out(&self, mut state: MutexGuard<'_, State>, schedule: bool) {
        let mut wakers = Wakers::default();
        let mut guards_changed = false;
        while let Some(output) = state.node.poll_output() {
            match output {
                Output::Persist(write) => state.persist(write),
                Output::Answer { caller, outcome } => {
                    let lapse_count = state.node.lapse_count();
                    state.grants += u64::from(matches!(outcome, Outcome::Granted(_)));
                    let verdict = match outcome {
                        _ if self.is_stopped() => Err(AcquireError::Stopped),
                        Outcome::Granted(grant) => Ok(Granted { grant, lapse_count }),
                        Outcome::Busy => Err(AcquireError::Busy),
                        Outcome::Refused(refusal) => Err(refusal.into()),
                    };
                    wakers.add(caller.answer(verdict));
                }
                Output::Transmit(peer) => state.transmit(peer),
                Output::Control { to, bytes } => {
                    if let Some(outbox) = state.controls.get(&to).and_then(|outboxes| outboxes.last()) {
                        outbox.push(bytes);
                    }
                }
                Output::Disconnect(peer) => {
                    state.lock_connections.remove(peer).into_iter().for_each(|connection| connection.close());
                }
                Output::Refuse(peer) => state.refuse(peer),
                Output::Denied { from, name, message } => self.report_denied(from, &name, message),
                Output::Lapsed => {
                    state.revoked.clear();
                    guards_changed = true;
                }
                Output::Lost(ticket) => {
                    state.revoked.insert(ticket, 0);
                    guards_changed = true;
                }
                Output::Revoked { ticket, at } => {
                    state.revoked.insert(ticket, at);
                    guards_changed = true;
                }
                Output::Done { token, result } => {
                    if let Some(asked) = state.requests.remove(&token) {
                        let _ = asked.send(result);
                    }
                }
                Output::Ordered(ordered) => self.log_order(&ordered),
                Output::View => state.view_changed = true,
                other => tracing::error!(?other, "unknown output of the node"),
            }
        }
        let mut wake = state.view_changed;
        if schedule || wake {
            let is_revocable = state.node.valid_until() != Ticks::MAX;
            guards_changed |= is_revocable && !state.is_revocable;
            state.is_revocable = is_revocable;
            let next = state.node.poll_timeout().unwrap_or(Ticks::MAX);
            wake |= next < state.wakes_at;
            state.wakes_at = state.wakes_at.min(next);
        }
        let is_complete = state.node.is_complete();
        let completed = !state.is_complete && is_complete;
        state.is_complete = is_complete;
        if completed && !state.was_complete {
            state.was_complete = true;
            if let Storage::Thread(disk) = &state.storage {
                drop(disk.send(Job::Settle));
            }
        }
        drop(state);
        wakers.wake();
        if guards_changed {
            self.session.notify_waiters();
        }
        if completed {
            self.completed.notify_waiters();
        }
        if wake {
            self.wake.notify_one();
        }
    }

    /// Names the member that has asked for something, in the form of the agent's audit lines.
    fn log_order(&self, ordered: &Ordered) {
        let (action, what) = in_audit_words(ordered.action, &ordered.what);
        let who = format!("member {}", ordered.by);
        let result = match ordered.stage {
            Stage::Begun => "begun",
            Stage::PartBegun => "begun for holders here",
            _ => "done",
        };
        if let Some(left_out) = self.limits.of_order(ordered.action).pass_change() {
            tracing::warn!(target: "audit", what, who, from = "the group", result, left_out, "audit: {action}");
        }
    }

    /// Tells the node that these changes are on disk.
    pub(crate) fn persisted(&self, writes: Vec<Write>) {
        for write in writes {
            self.input(|state| state.node.handle_persisted(write, state.now));
        }
    }

    /// Tells the node what time it is.
    pub(crate) fn tick(&self) {
        self.input(|state| state.node.handle_timeout(state.now));
    }

    /// Returns how long the node's own thread may sleep.
    pub(crate) fn sleep_for(&self) -> Duration {
        let mut state = self.state();
        let now = now();
        let tick = now + TICK.as_nanos() as Ticks;
        state.wakes_at = state.node.poll_timeout().unwrap_or(Ticks::MAX).min(tick);
        let left = state.wakes_at.saturating_sub(now);
        // Only the end of the session must not wait for a timer that is late.
        if state.wakes_at < state.node.valid_until() { Duration::from_nanos(left) } else { sleep_before(left) }
    }
}

/// The action and what it is done to. The group knows a banned key by a name that its digest makes.
fn in_audit_words<'a>(action: &'a str, what: &str) -> (&'a str, String) {
    match (action, KeyDigest::of_label(what)) {
        ("ban", Some(key)) => ("ban key", key.to_string()),
        ("admit", Some(key)) => ("admit key", key.to_string()),
        (action, _) => (action, what.to_owned()),
    }
}

impl State {
    fn transmit(&mut self, peer: NodeId) {
        let Some(connection) = self.lock_connections.get_mut(peer) else { return };
        let taken = connection.write(self.node.poll_transmit(peer));
        self.node.handle_transmitted(peer, taken);
    }

    fn persist(&mut self, write: Write) {
        match &self.storage {
            Storage::Thread(disk) => drop(disk.send(Job::Write(write))),
            Storage::Nowhere => self.node.handle_persisted(write, self.now),
            Storage::NotBegun | Storage::Closed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn audit_lines_tell_keys_from_names() {
        let label = "0f".repeat(32);
        let key = format!("sha256:{label}");
        assert_eq!(in_audit_words("ban", &label), ("ban key", key.clone()));
        assert_eq!(in_audit_words("admit", &label), ("admit key", key));
        for (action, what) in [("ban", "b"), ("admit", "b"), ("break", &label)] {
            assert_eq!(in_audit_words(action, what), (action, what.to_owned()));
        }
    }
}
