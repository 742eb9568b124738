//! The clients of an agent, what they hold, events and counters. Nothing here knows a node.

mod clients;
pub(crate) mod counts;
mod events;

pub(crate) use self::clients::{ClientRegistration, Clients, LockClients, Origin, UseGuard};
pub(crate) use self::counts::Counts;
pub(crate) use self::events::{Event, EventKind, Events};
