//! What the view layer has a node do to its locks, links and callers.

use hallpass_core::{Fence, View};

use super::{Checked, Node};
use crate::config::Class;
use crate::faults::{Conduct, Sabotage};
use crate::locks::{Classes, HeldLock};
use crate::membership::Action;
use crate::output::{Ordered, Output, Stage};
use crate::status::ViewState;

impl<C, F: Conduct> Node<C, F> {
    /// Carries out what the view layer asks for.
    pub(super) fn apply_actions(&mut self, now: Checked) {
        while let Some(action) = self.views.poll_action() {
            match action {
                Action::Persist(write) => self.writes.push_back(write),
                Action::Send { to, bytes } => self.controls.push_back(Output::Control { to, bytes }),
                Action::Peers => {
                    for gone in self.views.update_links(&mut self.links, now.ticks()) {
                        self.controls.push_back(Output::Disconnect(gone));
                    }
                    self.notices.push_back(Output::View);
                }
                Action::Close => {
                    self.locks.close();
                    self.links.close();
                    self.views.on_closed(self.locks.held(), now);
                }
                Action::Open(opening) => {
                    self.views_opened += 1;
                    self.links.open(opening.sender);
                    self.open(&opening.view, opening.classes, &opening.holders, now);
                    self.notices.push_back(Output::View);
                }
                Action::Lapse => {
                    self.locks.lapse();
                    self.links.close();
                    self.lapse_count += 1;
                    self.lapses += 1;
                    self.notices.push_back(Output::Lapsed);
                    self.notices.push_back(Output::View);
                }
                Action::BeginLinks => {
                    for link in 0..self.links.len() {
                        self.controls.push_back(Output::Disconnect(self.links[link].peer));
                        self.links[link].reset();
                    }
                }
                Action::Break { from, token, lock, at } => {
                    let told = self.views.on_break(from, token, &self.locks.holders_of(&lock), at);
                    if !told.is_empty() {
                        let by = self.views.member_name(from);
                        let ordered = Ordered { by, action: "break", what: lock, stage: Stage::PartBegun };
                        self.notices.push_back(Output::Ordered(ordered));
                    }
                    self.notices.extend(told.into_iter().map(|ticket| Output::Revoked { ticket, at }));
                }
                Action::Revoke(ticket) => {
                    if self.locks.revoke(ticket, now.ticks(), &mut self.links) {
                        self.notices.push_back(Output::Lost(ticket));
                    }
                }
                Action::Refuse(peer) => self.refuse(peer, now),
                Action::Denied { from, name, message } => {
                    self.notices.push_back(Output::Denied { from, name, message });
                }
                Action::Ordered(ordered) => self.notices.push_back(Output::Ordered(ordered)),
                Action::Done { token, result } => self.notices.push_back(Output::Done { token, result }),
                Action::View => self.notices.push_back(Output::View),
            }
        }
        self.valid_until = self.views.valid_until();
        self.assert_invariants();
    }

    /// What must hold after every input, in release builds, too: it costs a look at a few fields, and only when membership had something to do.
    fn assert_invariants(&self) {
        let state = self.views.state();
        assert_eq!(
            state == ViewState::Open,
            self.locks.is_open(),
            "locks are open exactly when the view is: {state:?}"
        );
        let can_hold = matches!(state, ViewState::Open | ViewState::Changing);
        assert!(!can_hold || self.valid_until > 0, "a node in a view that is not alone has a deadline: {state:?}");
    }

    /// A new view begins: what has waited for it happens, in order.
    fn open(&mut self, view: &View, classes: Vec<Class>, holders: &[HeldLock], now: Checked) {
        let classes = Classes::fitting(self.config.me, view, &classes);
        for lost in self.locks.reopen(classes, holders, now.ticks(), &mut self.links) {
            self.notices.push_back(Output::Lost(lost));
        }
        for link in 0..self.links.len() {
            let mut bytes = std::mem::take(&mut self.links[link].inbound);
            // An error here will come again with the next bytes, and close the connection then.
            if let Ok(taken) = self.handle_frames(link, &bytes, now) {
                bytes.drain(..taken);
            }
            self.links[link].inbound = bytes;
        }
        // Among that may have been what acknowledges messages of the view before, and nothing else may ever come.
        self.retry_backpressured(now);
    }

    /// Peers may have taken messages: what was held up by those is asked for.
    pub(super) fn retry_backpressured(&mut self, now: Checked) {
        if !self.conduct.breaks(Sabotage::ForgetHeldUp) {
            self.locks.retry_backpressured(now.ticks(), &mut self.links);
        }
    }

    /// Long before the fences of a view are used up the group begins another one.
    pub(super) fn look_at_fences(&mut self, now: Checked) {
        if self.locks.fences_used() > Fence::COUNT_MAX / 2 {
            self.views.ask_for_new_epoch(now);
            self.apply_actions(now);
        }
    }
}
