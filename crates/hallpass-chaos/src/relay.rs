//! Delays packets: those of slow links go through this process, which passes them on later.
//!
//! Every host has a TUN device whose other end is here. A route sends a packet into it. The relay keeps the packet for the delay of its
//! link. Then it writes the packet to the device of the receiver, whose kernel treats it as received.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fs::File;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sched::{CloneFlags, setns};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::ChaosError;
use crate::network::DELAYED;

const PACKET_BYTES_MAX: usize = 1500;
/// More packets are dropped, as a router does. TCP sends them again.
const QUEUE_MAX: usize = 10_000;

type Delays = BTreeMap<(usize, usize), Duration>;

/// When the packet is due, its number, its receiver, and its bytes.
type Packet = (Instant, u64, usize, Vec<u8>);

pub(crate) struct Relay(Arc<Shared>);

struct Shared {
    devices: Vec<SyncDevice>,
    queue: Mutex<DelayQueue>,
    changed: Condvar,
}

/// Packets that wait for their time.
#[derive(Default)]
struct DelayQueue {
    delays: Delays,
    /// The earliest packet first. Packets of the same moment keep the order of their arrival.
    packets: BinaryHeap<Reverse<Packet>>,
    arrived: u64,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Relay of {} hosts", self.0.devices.len())
    }
}

impl Relay {
    pub(crate) fn start(names: &[String]) -> Result<Self, ChaosError> {
        let devices = names.iter().map(|name| device(name)).collect::<Result<Vec<_>, _>>()?;
        let shared = Arc::new(Shared { devices, queue: Mutex::default(), changed: Condvar::new() });
        for from in 0..names.len() {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.receive(from));
        }
        let sender = Arc::clone(&shared);
        thread::spawn(move || sender.send());
        Ok(Self(shared))
    }

    pub(crate) fn set_delays(&self, delays: Delays) {
        self.0.queue().delays = delays;
    }
}

impl Shared {
    fn receive(&self, from: usize) {
        let mut packet = vec![0; PACKET_BYTES_MAX];
        loop {
            let Ok(length) = self.devices[from].recv(&mut packet) else {
                // The device is not up yet.
                thread::sleep(Duration::from_millis(10));
                continue;
            };
            let Some(to) = receiver(&packet[..length]).filter(|to| *to < self.devices.len()) else { continue };
            let mut queue = self.queue();
            let delay = queue.delays.get(&(from, to)).copied().unwrap_or_default();
            if queue.packets.len() < QUEUE_MAX {
                queue.arrived += 1;
                let packet = (Instant::now() + delay, queue.arrived, to, packet[..length].to_vec());
                queue.packets.push(Reverse(packet));
                self.changed.notify_one();
            }
        }
    }

    fn send(&self) {
        let mut queue = self.queue();
        loop {
            let wait = match queue.packets.peek() {
                None => Duration::from_secs(1),
                Some(Reverse((due, ..))) => due.saturating_duration_since(Instant::now()),
            };
            if !wait.is_zero() {
                queue = self.changed.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            if let Some(Reverse((_, _, to, packet))) = queue.packets.pop() {
                drop(queue);
                // A packet that the device refuses is lost. TCP sends it again.
                let _ = self.devices[to].send(&packet);
                queue = self.queue();
            }
        }
    }

    fn queue(&self) -> MutexGuard<'_, DelayQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The receiver of an IPv4 packet: the last byte of its address, counted from 1.
fn receiver(packet: &[u8]) -> Option<usize> {
    let is_ipv4 = packet.first().is_some_and(|first| first >> 4 == 4);
    packet.get(19).filter(|_| is_ipv4).and_then(|last| usize::from(*last).checked_sub(1))
}

/// Makes a device in a host's namespace. Only the thread that opens it enters the namespace.
fn device(name: &str) -> Result<SyncDevice, ChaosError> {
    let path = format!("/run/netns/{name}");
    let open = move || {
        let namespace = File::open(&path)?;
        setns(namespace, CloneFlags::CLONE_NEWNET)?;
        DeviceBuilder::new().name(DELAYED).build_sync()
    };
    let opened = thread::spawn(open).join().unwrap_or_else(|_| Err(std::io::Error::other("a panic")));
    opened.map_err(|error| ChaosError::Failed(format!("cannot make a TUN device for the relay: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_receiver_is_read_from_the_packet() {
        let mut packet = vec![0; 40];
        packet[0] = 0x45;
        packet[16..20].copy_from_slice(&[10, 77, 0, 3]);
        assert_eq!(receiver(&packet), Some(2));
        packet[0] = 0x60;
        assert_eq!(receiver(&packet), None);
        assert_eq!(receiver(&[]), None);
    }
}
