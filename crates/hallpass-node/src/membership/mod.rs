//! Who the members are, and when there is a view.

#[allow(missing_docs, reason = "public for explorations only")]
mod control;
mod engine;
#[allow(missing_docs, reason = "public for explorations only")]
mod founding;
#[allow(missing_docs, reason = "public for explorations only")]
mod group;
mod hello_error;
#[allow(missing_docs, reason = "public for explorations only")]
mod install;
pub mod keys;
mod recover;
mod rights;
#[allow(missing_docs, reason = "public for explorations only")]
mod session;
#[allow(missing_docs, reason = "public for explorations only")]
mod sessions;
#[allow(missing_docs, reason = "public for explorations only")]
mod steward;
mod views;

pub use hello_error::HelloError;
pub use recover::{RecoverError, last_members, recover};
pub(crate) use views::{Action, Views};

/// The parts of the view layer, to be explored around a model of everything else.
pub mod model {
    pub use super::control::Founder;
    pub use super::founding::{Founders, found, voters};
    pub use super::group::{Change, Command, Group, Member};
    pub use super::install::{Install, Installation, Prepare, STEPS, Step};
    pub use super::session::Session;
    pub use super::sessions::{Renewal, Sessions};
    pub use super::steward::{Candidate, Order, OrderState, Steward, Withdrawal};
    pub use super::views::life::{Life, TRANSITIONS};
    pub use crate::locks::{Held, HeldLock};
}

/// What a member of another version would say.
#[cfg(test)]
pub(crate) mod testing {
    use hallpass_core::NodeId;
    use hallpass_core::codec::Reader;

    pub(crate) use super::control::{Contacts, Control, Envelope, Founder};
    pub(crate) use super::group::{Group, Member, TTL_MAX};
    use crate::Incarnation;
    use crate::config::Class;
    use crate::output::Request;

    /// Has the next view prepared, with this class.
    pub(crate) fn with_class(stored: &[u8], class: Class) -> Vec<u8> {
        let mut group = Group::decode(&mut Reader::new(stored)).unwrap();
        group.epoch += 1;
        group.classes.push(class);
        let (group_id, voters) = (group.id, group.members.keys().copied().collect());
        Envelope { group_id, message: Control::Prepare { group, voters } }.encode()
    }

    /// Asks the steward for this class.
    pub(crate) fn asks_for_class(stored: &[u8], token: u64, class: Class) -> Vec<u8> {
        let group_id = Group::decode(&mut Reader::new(stored)).unwrap().id;
        Envelope { group_id, message: Control::Ask { token, request: Request::SetClass(class) } }.encode()
    }

    fn member(id: NodeId, name: &str) -> Member {
        let (name, address) = (name.to_owned(), format!("host-{id}:1"));
        Member { id, incarnation: Incarnation::FIRST, name, address, durable: true }
    }

    /// Wants to join this group, under this name.
    pub(crate) fn joins(group_id: u64, id: NodeId, name: &str) -> Vec<u8> {
        Envelope { group_id, message: Control::Join { member: member(id, name), reached: Vec::new() } }.encode()
    }

    /// Would found a group of two, and knows only itself, under this name.
    pub(crate) fn founds(id: NodeId, name: &str) -> Vec<u8> {
        let Member { id, incarnation, name, address, durable } = member(id, name);
        let founder = Founder { address, id, incarnation, name, durable, floor: 0, settings: 0 };
        Envelope { group_id: 0, message: Control::Founding { expect: 2, known: vec![founder] } }.encode()
    }
}
