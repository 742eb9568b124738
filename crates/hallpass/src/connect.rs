//! From a member's address to a TCP connection.

use std::io::{Error, ErrorKind};
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// No address may take longer to be connected. The system asks a second time after a second, and a third time two seconds later: too late
/// after a partition, when the next attempt of ours could have been answered at once.
const CONNECT_TIME: Duration = Duration::from_secs(1);
/// How long to wait for an answer before the next address is tried.
const NEXT_AFTER: Duration = Duration::from_millis(250);

/// Looks an address up. A name may have moved since the last time.
pub(crate) async fn resolve(address: &str) -> std::io::Result<Vec<SocketAddr>> {
    #[cfg(test)]
    if let Some(known) = testing::known(address) {
        return Ok(known);
    }
    Ok(lookup_host(address).await?.collect())
}

/// Connects with the first of these addresses that answers. One that does not answer at all does not keep the others from being
/// tried: names often have an IPv6 address that nothing can be sent to.
pub(crate) async fn connect(addresses: Vec<SocketAddr>) -> std::io::Result<TcpStream> {
    let mut addresses = addresses.into_iter();
    let mut attempts = JoinSet::new();
    let mut last = Error::new(ErrorKind::NotFound, "its name has no address");
    loop {
        let next = addresses.next();
        let more = next.is_some();
        if let Some(address) = next {
            attempts.spawn(async move {
                timeout(CONNECT_TIME, TcpStream::connect(address))
                    .await
                    .unwrap_or_else(|_| Err(Error::new(ErrorKind::TimedOut, format!("no answer from {address}"))))
            });
        } else if attempts.is_empty() {
            return Err(last);
        }
        tokio::select! {
            Some(ended) = attempts.join_next() => match ended {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(failed) => last = Error::other(failed),
            },
            () = sleep(NEXT_AFTER), if more => {}
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    use std::collections::BTreeMap;
    use std::sync::{Mutex, PoisonError};

    use super::*;

    static NAMES: Mutex<BTreeMap<String, Vec<SocketAddr>>> = Mutex::new(BTreeMap::new());

    /// From now on the name has these addresses.
    pub(crate) fn set(name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
        NAMES.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), addresses);
    }

    pub(super) fn known(name: &str) -> Option<Vec<SocketAddr>> {
        NAMES.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU16, Ordering};

    use tokio::net::TcpListener;

    use super::*;
    use crate::{Builder, Node, StartError};

    /// Two free ports on loopback, and the builders of two nodes on them. The first one calls the second by this name, and
    /// the second one does not find the first.
    fn pair(name: &str) -> (Vec<String>, [Builder; 2]) {
        static NEXT: AtomicU16 = AtomicU16::new(31_000);
        // Below the ports that systems give to connections.
        let free = std::iter::repeat_with(|| format!("127.0.0.1:{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let mut free = free.filter(|address| std::net::TcpListener::bind(address).is_ok());
        let addresses = [(); 2].map(|()| free.next().expect("a free port"));
        let peers = [format!("a@{}", addresses[0]), format!("b@{name}")];
        let a = Node::builder().name("a").listen(&addresses[0]).peers(&peers);
        let nobody = ["a@127.0.0.1:1".to_owned(), peers[1].clone()];
        let b = Node::builder().name("b").listen(&addresses[1]).advertise(name).peers(nobody);
        (addresses.to_vec(), [a, b])
    }

    async fn trouble(node: &Node, expected: &str) {
        let trouble = || node.status().members.iter().find_map(|member| member.trouble.clone()).unwrap_or_default();
        for _ in 0..3000 {
            if trouble().contains(expected) {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
        panic!("{}", trouble());
    }

    #[tokio::test]
    async fn a_name_that_moves_is_found_again() {
        let (addresses, [a, b]) = pair("moves.test:7400");
        testing::set("moves.test:7400", &["127.0.0.1:1"]);
        let (a, b) = (a.start().await.unwrap(), b.start().await.unwrap());
        trouble(&a, "refused").await;
        testing::set("moves.test:7400", &[&addresses[1]]);
        a.ready().await;
        b.ready().await;
    }

    /// As the name of a headless service has one address a node.
    #[tokio::test]
    async fn nodes_found_a_group_by_a_name_that_they_share_and_others_join_it() {
        let (mut addresses, _) = pair("unused.test:7400");
        addresses.extend(pair("unused.test:7400").0);
        let start = |index: usize| {
            let address = &addresses[index];
            let builder = Node::builder().name(format!("n{index}")).listen(address).peers(["shared.test:7400"]);
            builder.expect(3).start()
        };
        testing::set("shared.test:7400", &["127.0.0.1:1"]);
        let mut nodes = vec![start(0).await.unwrap(), start(1).await.unwrap(), start(2).await.unwrap()];
        assert!(timeout(Duration::from_millis(200), nodes[0].ready()).await.is_err(), "nobody has found three");
        let waits_for = nodes[0].status().waits_for.unwrap_or_default();
        assert!(waits_for.contains("of 3 nodes have found each other"), "{waits_for}");
        // It has several addresses now, and one of them is each node's own.
        testing::set("shared.test:7400", &[&addresses[0], &addresses[1], &addresses[2]]);
        for node in &nodes {
            timeout(PATIENCE, node.ready()).await.expect("the group is founded");
        }
        // One that comes later finds the same name.
        testing::set("shared.test:7400", &[&addresses[0], &addresses[1], &addresses[2], &addresses[3]]);
        nodes.push(start(3).await.unwrap());
        for node in &nodes {
            timeout(PATIENCE, node.ready()).await.expect("it has joined");
        }
        let views: Vec<usize> =
            nodes.iter().map(|node| node.members().iter().filter(|member| member.in_view).count()).collect();
        assert_eq!(views, [4; 4]);
    }

    const PATIENCE: Duration = Duration::from_secs(30);

    #[tokio::test]
    async fn nothing_is_sent_to_other_machines_without_keys() {
        let (addresses, [a, b]) = pair("exposed.test:7400");
        testing::set("exposed.test:7400", &["192.0.2.1:7400"]);
        let error = a.clone().start().await.err().unwrap();
        assert!(matches!(&error, StartError::Setting(why) if why.contains("hallpass init")), "{error}");
        let numeric = Node::builder().peers(["192.0.2.1:7400"]).listen(&addresses[0]).start().await.err().unwrap();
        assert!(numeric.to_string().contains("on another machine"), "{numeric}");
        // It may move there later.
        testing::set("exposed.test:7400", &["127.0.0.1:1"]);
        let a = a.start().await.unwrap();
        testing::set("exposed.test:7400", &["192.0.2.1:7400"]);
        trouble(&a, "192.0.2.1:7400 is on another machine").await;
        testing::set("exposed.test:7400", &["192.0.2.1:7400", &addresses[1]]);
        let b = b.start().await.unwrap();
        a.ready().await;
        b.ready().await;
    }

    #[tokio::test]
    async fn this_node_by_another_name_is_not_another_member() {
        let (addresses, [a, _]) = pair("own.test:7400");
        testing::set("own.test:7400", &[&addresses[0]]);
        let error = a.start().await.err().unwrap().to_string();
        assert!(error.contains("own.test:7400 in the list of members is this node itself"), "{error}");
    }

    /// An address where connections are neither made nor refused, like one behind a firewall: a full queue.
    #[cfg(target_os = "linux")]
    async fn black_hole() -> (SocketAddr, Vec<TcpStream>, TcpListener) {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut queued = Vec::new();
        while let Ok(stream) = timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
            queued.push(stream.unwrap());
            assert!(queued.len() < 100, "the queue has no end");
        }
        (address, queued, listener)
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn an_address_that_does_not_answer_hides_no_other() {
        let (hole, _queued, _listener) = black_hole().await;
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let good = open.local_addr().unwrap();
        // Tried one after the other, the first would use up the time of all.
        let stream = timeout(CONNECT_TIME, connect(vec![hole, good])).await.expect("in time").unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
    }

    #[tokio::test]
    async fn an_address_that_refuses_is_followed_by_the_next() {
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let open = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = connect(vec![closed, open.local_addr().unwrap()]).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), open.local_addr().unwrap());
        assert_eq!(connect(vec![closed]).await.unwrap_err().kind(), ErrorKind::ConnectionRefused);
        assert!(connect(Vec::new()).await.unwrap_err().to_string().contains("no address"));
    }
}
