//! The list of members as it was written down, and what can be wrong with it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use crate::StartError;
use crate::certificate::is_reserved;
use crate::peer::Peer;
use crate::text::printable;

/// A member of the list: `name@host:port` or `host:port`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ListedMember {
    pub(crate) name: Option<String>,
    pub(crate) address: String,
}

impl ListedMember {
    pub(crate) fn into_peer(self) -> Arc<Peer> {
        Arc::new(Peer::new(self.name, self.address))
    }
}

/// This node, as the other members know it.
pub(crate) struct Own<'a> {
    pub(crate) name: &'a str,
    pub(crate) address: &'a str,
    pub(crate) has_keys: bool,
}

/// The members beside this node. All of them are told apart by their addresses, so these must be right.
pub(crate) fn others(peers: &[String], own: &Own<'_>) -> Result<Vec<ListedMember>, StartError> {
    let wrong = |why: String| Err(StartError::Setting(why));
    let list = peers.iter().map(|peer| parse(peer)).collect::<Result<Vec<_>, _>>()?;
    if list.is_empty() && own.has_keys {
        return wrong(
            "there are keys, but no peers, and a node without peers is a group of its own: list the members".into(),
        );
    }
    check_twice(&list)?;
    for ListedMember { name, address } in &list {
        let is_own_name = name.as_deref() == Some(own.name);
        if *address == own.address {
            if let Some(name) = name.as_ref().filter(|_| !is_own_name) {
                return wrong(format!(
                    "{address} is the address of '{name}' in the list of members, and this is '{}': \
                     listen on this node's own address",
                    own.name
                ));
            }
        } else if is_own_name {
            return wrong(format!(
                "the list of members has '{name}' at {address}, but it is known as {}: correct the list, \
                 or advertise {address}",
                own.address,
                name = own.name
            ));
        } else if canonical(address) == canonical(own.address) {
            return wrong(other_spelling(address, own.address));
        } else if name.is_none() && own.has_keys {
            return wrong(format!(
                "with keys every member has a name, so that none can pass for another: \
                 write {address} as NAME@{address}"
            ));
        }
    }
    let (mine, others): (Vec<ListedMember>, Vec<ListedMember>) =
        list.into_iter().partition(|entry| entry.address == own.address);
    if !others.is_empty() {
        check_known(own.address)?;
        if mine.is_empty() {
            tracing::warn!(
                address = own.address,
                "this node is not in its own list of members; the others must list it so"
            );
        }
    }
    Ok(others)
}

/// Two spellings of one address are two members to everybody else.
pub(crate) fn other_spelling(listed: &str, own: &str) -> String {
    format!(
        "{listed} in the list of members is this node itself, which is known as {own}: write it in the same way, here \
         and on all members"
    )
}

/// The name that all certificates of a group share is no member's.
pub(crate) fn check_name(name: &str) -> Result<(), StartError> {
    if is_reserved(name) {
        let why =
            format!("no member can have the name '{}': certificates of all members are valid for it", printable(name));
        return Err(StartError::Setting(why));
    }
    Ok(())
}

pub(crate) fn parse(peer: &str) -> Result<ListedMember, StartError> {
    let (name, address) = match peer.split_once('@') {
        Some((name, address)) => (Some(name.to_owned()), address),
        None => (None, peer),
    };
    if name.as_deref() == Some("") {
        return Err(StartError::Setting(format!("'{}' has no name before the @", printable(peer))));
    }
    name.iter().try_for_each(|name| check_name(name))?;
    if port(address).ok_or_else(|| StartError::Address(printable(address)))? == 0 {
        return Err(StartError::Setting(format!("{address} has port 0: write the port that this member listens on")));
    }
    Ok(ListedMember { name, address: address.to_owned() })
}

/// The port of `host:port`. A numeric IPv6 host is in brackets.
fn port(address: &str) -> Option<u16> {
    let (host, port) = address.rsplit_once(':')?;
    let is_host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').is_some_and(|inside| inside.parse::<std::net::Ipv6Addr>().is_ok()),
        None => !host.is_empty() && !host.contains([':', '@']) && !host.contains(char::is_whitespace),
    };
    port.parse().ok().filter(|_| is_host)
}

fn check_twice(list: &[ListedMember]) -> Result<(), StartError> {
    for (index, entry) in list.iter().enumerate() {
        let before = &list[..index];
        let address = canonical(&entry.address);
        if let Some(other) = before.iter().find(|other| canonical(&other.address) == address) {
            let (one, two) = (&other.address, &entry.address);
            return Err(StartError::Setting(format!("the list of members has one address twice: {one} and {two}")));
        }
        if let Some(name) = &entry.name
            && before.iter().any(|other| other.name.as_ref() == Some(name))
        {
            return Err(StartError::Setting(format!(
                "the list of members has '{name}' twice: give each a name of its own"
            )));
        }
    }
    Ok(())
}

/// The other members must be able to list this node by its address.
pub(crate) fn check_known(own: &str) -> Result<(), StartError> {
    let advertise = "advertise the one that is in the list of members";
    match port(own) {
        None => Err(StartError::Address(printable(own))),
        Some(0) => Err(StartError::Setting(format!("the others cannot know the port of {own}: {advertise}"))),
        Some(_) if own.parse::<SocketAddr>().is_ok_and(|address| address.ip().is_unspecified()) => {
            Err(StartError::Setting(format!("the others cannot reach this node at {own}: {advertise}")))
        }
        Some(_) => Ok(()),
    }
}

/// The same for all spellings of a numeric address or name.
fn canonical(address: &str) -> String {
    address.parse::<SocketAddr>().map_or_else(|_| address.to_ascii_lowercase(), |address| address.to_string())
}

/// True if a connection to this address would reach a socket that is bound to the other one.
pub(crate) fn reaches(address: SocketAddr, bound: SocketAddr) -> bool {
    // Only an address of this machine can be bound.
    let is_local = |ip: IpAddr| std::net::UdpSocket::bind((ip, 0)).is_ok();
    address.port() == bound.port()
        && (address.ip() == bound.ip() || (bound.ip().is_unspecified() && is_local(address.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(peers: &[&str], own: &str, has_keys: bool) -> Result<usize, String> {
        let peers: Vec<String> = peers.iter().map(|peer| (*peer).to_owned()).collect();
        let found = others(&peers, &Own { name: "a", address: own, has_keys });
        found.map(|others| others.len()).map_err(|error| error.to_string())
    }

    #[test]
    fn lists_that_work_are_accepted() {
        assert_eq!(check(&[], "127.0.0.1:1", false), Ok(0));
        assert_eq!(check(&["127.0.0.1:2"], "127.0.0.1:1", false), Ok(1));
        assert_eq!(check(&["127.0.0.1:1", "127.0.0.1:2", "host:2"], "127.0.0.1:1", false), Ok(2));
        assert_eq!(check(&["a@[::1]:1", "b@[::1]:2"], "[::1]:1", true), Ok(1));
        assert_eq!(check(&["a@host:1"], "host:1", true), Ok(0));
    }

    #[test]
    fn every_wrong_list_is_one_line_that_names_the_entry() {
        let own = "127.0.0.1:1";
        for (peers, own, has_keys, expected) in [
            (&["host"][..], own, false, "'host' is not an address"),
            (&["::1:7400"], own, false, "'::1:7400' is not an address"),
            (&[":7400"], own, false, "':7400' is not an address"),
            (&["host:http"], own, false, "'host:http' is not an address"),
            (&["host:70000"], own, false, "'host:70000' is not an address"),
            (&["@host:1"], own, false, "no name before the @"),
            (&["host:0"], own, false, "host:0 has port 0"),
            (&["h:2", "h:2"], own, false, "one address twice: h:2 and h:2"),
            (&["[::1]:2", "[0::1]:2"], own, false, "one address twice"),
            (&["b@h:2", "b@h:3"], own, false, "'b' twice"),
            (&["b@127.0.0.1:1"], own, false, "is the address of 'b'"),
            (&["a@127.0.0.1:3"], own, false, "advertise 127.0.0.1:3"),
            (&["[0::1]:1", "h:2"], "[::1]:1", false, "is this node itself"),
            (&["LOCALHOST:1", "h:2"], "localhost:1", false, "is this node itself"),
            (&["a@127.0.0.1:1", "h:2"], own, true, "write h:2 as NAME@h:2"),
            (&[], own, true, "there are keys, but no peers"),
            (&["h:2"], "0.0.0.0:1", false, "cannot reach this node at 0.0.0.0:1"),
            (&["h:2"], "[::]:1", false, "cannot reach this node at [::]:1"),
            (&["h:2"], "host:0", false, "cannot know the port"),
        ] {
            let error = check(peers, own, has_keys).expect_err(expected);
            assert!(error.contains(expected) && !error.contains('\n'), "{peers:?}: {error}");
        }
    }

    #[test]
    fn an_address_reaches_what_is_bound_to_it() {
        let reaches = |to: &str, bound: &str| reaches(to.parse().unwrap(), bound.parse().unwrap());
        assert!(reaches("127.0.0.1:1", "127.0.0.1:1") && reaches("127.0.0.1:1", "0.0.0.0:1"));
        assert!(!reaches("127.0.0.1:2", "127.0.0.1:1") && !reaches("192.0.2.1:1", "0.0.0.0:1"));
    }
}
