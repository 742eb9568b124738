//! Two groups of one name, and what the node does that is alone in one of them: it may have founded that by mistake.

use super::Views;
use super::base::Purpose;
use crate::config::{Founding, ViewsConfig};
use crate::faults::Conduct;
use crate::membership::keys;
use crate::wire::Hello;

/// Why a node that could decide alone grants nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HeldBack {
    /// It was told to join a group, and has stored one of its own. It waits until it meets a member of that.
    Joins(String),
    /// Others are in another group of the same name. Only an operator can tell which one is to go on.
    Elsewhere(String),
}

impl HeldBack {
    pub(super) fn why(&self) -> &str {
        let (Self::Joins(why) | Self::Elsewhere(why)) = self;
        why
    }
}

impl<F: Conduct> Views<F> {
    /// No other node was ever in the group that this node is in.
    fn has_always_been_alone(&self) -> bool {
        let others = |id| id != self.base.me.id;
        let known = self.base.known.members.iter().chain(&self.base.known.absent).any(|member| others(member.id));
        let group = self.replica().into_iter().chain(self.member.install().group());
        let agreed = group.flat_map(|group| group.members.keys().chain(group.absent.keys())).any(|id| others(*id));
        self.is_in_group() && !self.base.is_shared && !known && !agreed
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.base.is_shared
    }

    /// At the start: whether the group that is stored is the right one cannot be told yet, or was told before.
    pub(super) fn hold_back(&self, views: &ViewsConfig) -> Option<HeldBack> {
        if !self.has_always_been_alone() {
            return None;
        }
        if let Some(why) = views.stored.get(&keys::HELD_BACK) {
            return Some(HeldBack::Elsewhere(String::from_utf8_lossy(why).into_owned()));
        }
        let why = "it was told to join a group, and its data directory belongs to a group of its own, in which nobody else ever \
                   was: to give that up run 'hallpass join ADDRESS'; to go on with it start it without addresses to join";
        (views.founding == Founding::Never).then(|| HeldBack::Joins(why.to_owned()))
    }

    /// A node that was told to join a group has met a member of it, and it is the group that is stored.
    pub(super) fn find_own_group(&mut self, hello: &Hello) {
        // One that has been told of this group here was never in it with others.
        let is_own = hello.group_id != 0 && hello.group_id == self.base.group_id && hello.config_digest == 1;
        if is_own && matches!(self.outside.held_back, Some(HeldBack::Joins(_))) {
            self.outside.held_back = None;
        }
    }

    /// A member of another group of the same name has greeted. If others are in that one, and in this one nobody ever was but this node, it
    /// is the wrong one, most likely founded because a directory was lost: what is held here may be held there, too.
    pub(crate) fn on_other_group(&mut self, hello: &Hello) {
        let is_other = hello.group == self.base.label && hello.group_id != 0 && hello.group_id != self.base.group_id;
        let is_shared = hello.config_digest == 1;
        let knows = matches!(self.outside.held_back, Some(HeldBack::Elsewhere(_)));
        if !is_other || !is_shared || knows || !self.has_always_been_alone() {
            return;
        }
        let why = format!(
            "'{}' ({}) is in a group of the same name that others are in, and this node has founded one alone: was its data \
             directory lost? To join them run 'hallpass join {}'",
            hello.name, hello.address, hello.address
        );
        self.base.persist(Purpose::Nothing, 0..0, vec![(keys::HELD_BACK, why.clone().into_bytes())]);
        self.outside.held_back = Some(HeldBack::Elsewhere(why));
        self.end_view();
    }
}
