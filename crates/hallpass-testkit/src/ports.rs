use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

/// The first of several consecutive ports that are free now, for IPv4 and IPv6.
///
/// Tests of one process get different ports, and processes that follow each other get distant ones. The ports are below those that
/// systems give to connections: a connection could take one before the test uses it.
pub fn free_ports(count: u16) -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = 10_000 + std::process::id() % 200 * 100;
    let next = || first + NEXT.fetch_add(count.into(), Ordering::Relaxed) % 10_000;
    let candidates = std::iter::repeat_with(|| u16::try_from(next()).expect("below 40,000"));
    // A machine without IPv6 has nothing that could be in the way there.
    let has_ipv6 = TcpListener::bind("[::]:0").is_ok();
    let is_free = |port: u16| {
        TcpListener::bind(("127.0.0.1", port)).is_ok() && (!has_ipv6 || TcpListener::bind(("::", port)).is_ok())
    };
    let mut free = candidates.take(5000).filter(|base| (0..count).all(|offset| is_free(base + offset)));
    free.next().expect("some ports are free")
}

/// A port that is free now.
pub fn free_port() -> u16 {
    free_ports(1)
}

/// Addresses on loopback whose ports are free now, in rising order.
pub fn free_addresses(count: usize) -> Vec<String> {
    let mut ports: Vec<u16> = std::iter::repeat_with(free_port).take(count).collect();
    ports.sort_unstable();
    ports.into_iter().map(|port| format!("127.0.0.1:{port}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_free_and_given_once() {
        let (first, second) = (free_ports(3), free_ports(3));
        assert!(first.abs_diff(second) >= 3, "{first} and {second}");
        let taken = TcpListener::bind(("127.0.0.1", free_port())).expect("it is free");
        let taken = taken.local_addr().expect("it has an address").to_string();
        let others = free_addresses(20);
        assert!(others.is_sorted() && !others.contains(&taken), "{others:?}");
    }
}
