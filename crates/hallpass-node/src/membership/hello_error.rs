use std::fmt;

use hallpass_core::NodeId;

use crate::links::LinkError;

/// Why a peer's greeting is rejected. The connection is to be closed; nothing else has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HelloError {
    /// It is of another group.
    Group(String),
    /// It acknowledges frames that were never sent.
    Link(LinkError),
    /// It is this node.
    Itself,
    /// It is in another group of the same name.
    OtherGroup,
    /// A later start of it is known.
    Outdated,
    /// It is not a member: not yet, or not any more.
    Unknown,
    /// Its name is banned.
    Banned,
    /// Its id belongs to a node of this name.
    Name(String),
    /// It looks for this node where another one was before.
    Elsewhere(NodeId),
}

impl HelloError {
    /// The same for people, in words that are true for both sides, since both read them. `here` is who rejects, `peer` who
    /// is rejected.
    pub fn explain(&self, here: &str, peer: &str) -> String {
        match self {
            Self::Group(group) => {
                format!("{peer} is of group '{group}', {here} is not: give all members of a group the same group name")
            }
            Self::Itself => format!("{here} has called itself: an address in its list of peers is its own"),
            Self::OtherGroup => format!(
                "{peer} and {here} are in two groups of the same name: give one of them another name, or one of the nodes an \
                 empty data directory"
            ),
            Self::Outdated => {
                format!("a later start of {peer} is known to {here}: an old process of it is still there")
            }
            Self::Unknown => {
                format!("{here} does not know {peer} as a member, not yet or not any more: it joins automatically")
            }
            Self::Banned => {
                format!(
                    "{peer} was evicted from the group for good: to undo that, run 'hallpass evict NAME --admit' on a member, \
                     with its name"
                )
            }
            Self::Name(name) => {
                format!("{peer} is called '{name}' in the list of members of {here}: correct the list or its name")
            }
            Self::Elsewhere(node) => {
                format!("{peer} looks for node {node} at the address of {here}: it hears of the change from the group")
            }
            Self::Link(error) => {
                format!("{peer} does not keep to the protocol: {error}; restart all members of the group")
            }
        }
    }
}

impl fmt::Display for HelloError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.explain("this node", "the peer"))
    }
}

impl std::error::Error for HelloError {}

#[cfg(test)]
mod tests {
    use super::HelloError;

    /// 'evict' needs the name, or '--admit' is a wrong call.
    #[test]
    fn a_banned_peer_is_told_a_command_that_works() {
        let why = HelloError::Banned.explain("'a'", "'b'");
        assert!(why.contains("'hallpass evict NAME --admit'"), "{why}");
    }
}
