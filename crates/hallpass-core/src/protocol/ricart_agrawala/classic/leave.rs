//! Section 7.3: leaving. It is serialised with joining, by mutual exclusion (T9).

use super::message::Body;
use super::task::Goal;
use super::{Change, Classic, Membership, Out};
use crate::NodeId;
use crate::protocol::{Effect, Trap};

impl Classic {
    pub(super) fn on_leave(&mut self, out: &mut Out) {
        match self.membership {
            Membership::Member => {
                self.pending.push(Change::Leave);
                self.make_next_request(out);
            }
            Membership::Leaving => {}
            Membership::Outside => {
                self.membership = Membership::Leaving;
                out.push(Effect::Left);
            }
            // It may be on lists already: it leaves them once it is a member.
            Membership::Returning { .. } | Membership::Joining { .. } | Membership::Learning { .. } => {
                self.pending.push(Change::Leave);
            }
        }
    }

    /// As printed (T9): leaves without mutual exclusion, at the same time as another node joins.
    pub(super) fn leaves_as_printed(&self) -> bool {
        self.printed(Trap::UnorderedLeave) && self.pending.first() == Some(&Change::Leave)
    }

    /// A node that joins while this one leaves must take it off its list, too.
    pub(super) fn leave_newcomer_too(&mut self, node: NodeId, out: &mut Out) {
        if let Some(task) = self.task.as_mut().filter(|task| task.goal == Goal::Leave && !task.missing.contains(&node))
        {
            task.missing.push(node);
            task.missing.sort_unstable();
            self.send(node, Body::Leave, out);
        }
    }
}
