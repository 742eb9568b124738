//! A network that a test can cut.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hallpass::Node;
use hallpass_node::wire::Hello;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use super::{addresses, complete, named};

/// Every byte that nodes exchange goes through a relay in front of the one that was dialed. Nothing goes on to or from a node
/// that is cut off, and nobody is told.
#[derive(Clone, Default)]
pub struct Network {
    cut_off: Arc<Mutex<BTreeSet<String>>>,
}

impl Network {
    /// A group of three, each behind a relay of its own.
    pub async fn of_three(ttl: Duration) -> (Self, Vec<Node>) {
        let network = Self::default();
        let (fronts, backs) = (addresses(3), addresses(3));
        let mut nodes = Vec::new();
        for (index, (front, back)) in fronts.iter().zip(backs).enumerate() {
            let name = format!("n{index}");
            network.relay(&name, front, back.clone()).await;
            let builder = Node::builder().name(name).listen(back).advertise(front).peers(named(&fronts));
            nodes.push(builder.ttl(ttl).start().await.unwrap());
        }
        complete(&[&nodes[0], &nodes[1], &nodes[2]], 3).await;
        (network, nodes)
    }

    /// These are cut off from now on, and no others.
    pub fn cut_off(&self, names: &[&str]) {
        *self.cut_off.lock().unwrap() = names.iter().map(|name| (*name).to_owned()).collect();
    }

    fn is_cut(&self, ends: &[String; 2]) -> bool {
        let cut_off = self.cut_off.lock().unwrap();
        ends.iter().any(|end| cut_off.contains(end))
    }

    async fn relay(&self, name: &str, front: &str, back: String) {
        let (network, name) = (self.clone(), name.to_owned());
        let listener = TcpListener::bind(front).await.unwrap();
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (network, name, back) = (network.clone(), name.clone(), back.clone());
                tokio::spawn(async move { network.connect(name, near, &back).await });
            }
        });
    }

    /// The greeting says who dials.
    async fn connect(self, name: String, mut near: TcpStream, back: &str) -> Option<()> {
        let mut first = vec![0; 1024];
        let mut length = 0;
        let caller = loop {
            length += near.read(&mut first[length..]).await.ok().filter(|length| *length > 0)?;
            if let Ok((hello, _)) = Hello::decode(&first[..length]) {
                break hello.name;
            }
        };
        let ends = [name, caller];
        while self.is_cut(&ends) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut far = TcpStream::connect(back).await.ok()?;
        far.write_all(&first[..length]).await.ok()?;
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        tokio::spawn(self.clone().pass(ends.clone(), near_in, far_out));
        tokio::spawn(self.pass(ends, far_in, near_out));
        Some(())
    }

    async fn pass(self, ends: [String; 2], mut from: OwnedReadHalf, mut to: OwnedWriteHalf) {
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length) = from.read(&mut buffer).await {
            if length == 0 {
                return;
            }
            while self.is_cut(&ends) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if to.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    }
}
