//! What is stored under which number: see [`Write`](crate::Write).

/// The driver's own: the node's id, and on which machine it ran.
pub const IDENTITY: u64 = 0;
/// The last incarnation that was used: four bytes, big endian. The driver counts starts here, and the node its lapses.
pub const INCARNATION: u64 = 1;
/// The group as it was last seen, for those who do not vote.
pub const GROUP: u64 = 2;
/// With whom this node has founded a group that it does not vote in, until it is in a view of it.
pub const FOUNDERS: u64 = 3;
/// An operator founded the group again from here: until the first view nothing is granted before the sessions of the lost group are over.
pub const RECOVERED: u64 = 4;
/// The group of this node has had more than one member.
pub const SHARED: u64 = 5;
/// Why this node grants nothing in its group: others are in another one of the same name.
pub const HELD_BACK: u64 = 6;
