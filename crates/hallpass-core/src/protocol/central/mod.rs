//! Scheme 1 of Bryant's 'Notes on Distributed Mutual Exclusion' (Carnegie Mellon, 15-440, 2012): a central mutex server.
//!
//! A process that asks to enter sends REQUEST to the server and waits for its GRANT; when it leaves, it sends RELEASE. The
//! server keeps a queue of the requests it has not granted yet. An entry costs three messages at any load. The server is
//! the bottleneck, and the policy of its queue decides who is served when.
//!
//! Where this differs from the printed text:
//!
//! - **T22**: the printed server does not record who holds the lock. It grants a REQUEST whenever the *queue* is empty, and
//!   so a second time while the first holder is inside. Here it records the holder.
//! - REQUEST, GRANT and RELEASE name the request they are about, so that one that comes late or twice has no effect.
//! - A caller that gives up withdraws its request by a RELEASE. If a GRANT crosses it, the RELEASE frees what was granted.
//! - A REQUEST also ends all earlier requests of its sender, in case it overtakes a RELEASE.
//! - A member that is alone enters without a message.
//! - Where the server cannot be a process of its own, the member with the lowest id is the server, too: [`Hosted`].
//! - Readers are not known to the notes: a shared request is served as an exclusive one.

mod hosted;
mod message;
#[cfg(test)]
mod tests;

use crate::protocol::constant::Constant;
use crate::protocol::{
    Caller, Capabilities, Effect, Effects, Input, Needs, NoTimer, OptionError, Options, Protocol, Trap, TrapSet,
    Variables,
};
use crate::{Fence, FenceCounter, Mode, NodeId, Setup};

pub use hosted::Hosted;
pub use message::CentralMessage;

/// A member or the server. They are one type, since a driver runs one protocol.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Central {
    role: Role,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Role {
    Member(Member),
    Server(Server),
}

/// 'Operation on process i'.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Member {
    /// There is no other member.
    alone: bool,
    /// The number of the last request; 0 before the first one.
    number: u64,
    caller: Caller,
    /// Used only by a member that is alone; otherwise the server counts.
    fences: FenceCounter,
}

/// 'Operation at server'.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Server {
    rules: Constant<CentralRules>,
    members: Constant<Box<[NodeId]>>,
    /// The members that are granted and have not released (T22). At most one, but for readers that held at the start.
    holders: Vec<(NodeId, u64)>,
    /// `Q`: requests that are not granted yet, in the order of arrival, at most one of each member.
    queue: Vec<(NodeId, u64)>,
    /// The highest request number received from each member. Messages about older requests are out of date.
    latest: Box<[u64]>,
    /// Round robin: the member that was granted last.
    turn: NodeId,
    fences: FenceCounter,
}

/// The options of [`Central`].
#[derive(Clone, Debug)]
pub struct CentralRules {
    queue: Policy,
    printed: TrapSet,
}

/// Which of the waiting requests is granted next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Policy {
    /// The one that has waited longest at the server.
    Fifo,
    /// The next one around from the last that was granted.
    RoundRobin,
    /// The lowest member: 'processes 1 & 2 could keep making requests & thereby exclude process 3'.
    LowestId,
}

type Out = Effects<CentralMessage, NoTimer>;

impl Protocol for Central {
    type Message = CentralMessage;
    type Timer = NoTimer;
    type Options = CentralRules;

    fn parse(options: &Options) -> Result<CentralRules, OptionError> {
        let mut parsed = options.read("central");
        let policies = [("fifo", Policy::Fifo), ("round-robin", Policy::RoundRobin), ("lowest-id", Policy::LowestId)];
        let queue = parsed.choice("queue", &policies)?;
        let printed = parsed.as_printed(&[Trap::ForgottenHolder])?;
        parsed.finish()?;
        Ok(CentralRules { queue, printed })
    }

    fn needs(_: &CentralRules) -> Needs {
        Needs { server: true, ..Needs::default() }
    }

    fn new(setup: &Setup<'_, CentralRules>) -> Self {
        let fences = setup.fences();
        let members = setup.view.members();
        let role = if setup.me == NodeId::SERVER {
            // Initial holders hold by request 0, which every member counts as made.
            let holders = setup.initial.holders.iter().filter(|_| members.len() > 1).map(|node| (*node, 0));
            Role::Server(Server {
                rules: Constant::new(setup.options.clone()),
                members: Constant::new(members.into()),
                holders: holders.collect(),
                queue: Vec::new(),
                latest: vec![0; members.len()].into(),
                turn: NodeId::SERVER,
                fences,
            })
        } else {
            let holds = setup.initial.held_by(setup.me).is_some();
            let caller = if holds { Caller::Inside } else { Caller::Nobody };
            Role::Member(Member { alone: members.len() < 2, number: 0, caller, fences })
        };
        Self { role }
    }

    fn handle(&mut self, input: Input<CentralMessage, NoTimer>, out: &mut Out) {
        match (&mut self.role, input) {
            (Role::Member(member), Input::Acquire { .. }) => member.on_acquire(out),
            (Role::Member(member), Input::Cancel | Input::Release) => member.on_release(out),
            (
                Role::Member(member),
                Input::Deliver { from: NodeId::SERVER, message: CentralMessage::Grant { number, fence } },
            ) => member.on_grant(number, fence, out),
            (Role::Server(server), Input::Deliver { from, message }) => match message {
                CentralMessage::Request { number } => server.on_request(from, number, out),
                CentralMessage::Release { number } => server.on_release(from, number, out),
                CentralMessage::Grant { .. } => {}
            },
            _ => {}
        }
    }

    fn variables(&self, out: &mut Variables) {
        match &self.role {
            Role::Member(member) => {
                out.set("request", member.number);
                out.flag("waiting", member.caller == Caller::Waiting);
                out.flag("inside", member.caller == Caller::Inside);
            }
            Role::Server(server) => {
                out.list("holder", server.holders.iter().map(|(node, _)| node));
                out.list("Q", server.queue.iter().map(|(node, _)| node));
                out.set("fence", server.fences.count());
            }
        }
    }

    /// A member that has asked must remember its numbers, and the server those it has received, since the other side does.
    fn is_idle(&self) -> bool {
        match &self.role {
            Role::Member(member) => member.caller == Caller::Nobody && member.number == 0,
            Role::Server(server) => server.holders.is_empty() && server.latest.iter().all(|number| *number == 0),
        }
    }

    /// A message about a request that is over. Numbers only rise, so it stays moot.
    fn is_moot(&self, from: NodeId, message: &CentralMessage) -> bool {
        match (&self.role, message) {
            (Role::Member(member), CentralMessage::Grant { number, .. }) => {
                *number <= member.number && !member.waits_for(*number)
            }
            (Role::Server(server), CentralMessage::Request { number }) => server.has_received(from, *number),
            (Role::Server(server), CentralMessage::Release { number }) => {
                let about = |(node, known): &(NodeId, u64)| *node == from && known <= number;
                let known = server.holders.iter().chain(&server.queue).any(about);
                !server.forgets_holder() && server.has_received(from, *number) && !known
            }
            _ => true,
        }
    }

    fn request_number(&self) -> Option<u64> {
        match &self.role {
            Role::Member(member) if member.caller != Caller::Nobody => Some(member.number),
            _ => None,
        }
    }
}

impl Capabilities for Central {}

impl Member {
    /// 'Send (Request, i) to manager'.
    fn on_acquire(&mut self, out: &mut Out) {
        debug_assert!(self.caller == Caller::Nobody, "the driver serialises local callers");
        self.number += 1;
        self.caller = Caller::Waiting;
        if !self.alone {
            return send(NodeId::SERVER, CentralMessage::Request { number: self.number }, out);
        }
        if let Some(fence) = self.fences.next(Mode::Exclusive) {
            self.enter(fence, out);
        }
    }

    /// 'Wait for reply'. A fence past the last one lets nobody in.
    fn on_grant(&mut self, number: u64, count: u64, out: &mut Out) {
        if let Some(fence) = Fence::compose(self.fences.epoch(), count)
            && self.waits_for(number)
        {
            self.enter(fence, out);
        }
    }

    fn enter(&mut self, fence: Fence, out: &mut Out) {
        self.caller = Caller::Inside;
        out.push(Effect::Enter { fence });
    }

    /// 'Send (Release) to manager', whether this member was inside or only waited.
    fn on_release(&mut self, out: &mut Out) {
        let was = std::mem::replace(&mut self.caller, Caller::Nobody);
        if was != Caller::Nobody && !self.alone {
            send(NodeId::SERVER, CentralMessage::Release { number: self.number }, out);
        }
    }

    fn waits_for(&self, number: u64) -> bool {
        self.caller == Caller::Waiting && self.number == number
    }
}

impl Server {
    /// 'If m == (Request, i)'.
    fn on_request(&mut self, from: NodeId, number: u64, out: &mut Out) {
        let Some(position) = self.position(from).filter(|_| !self.has_received(from, number)) else { return };
        self.latest[position] = number;
        if self.forgets_holder() {
            // As printed: 'if empty(Q): Send (Grant) to i'.
            let free = self.queue.is_empty();
            self.queue.push((from, number));
            if free {
                self.grant_next(out);
            }
            return;
        }
        self.forget(from, number);
        self.queue.push((from, number));
        self.grant_next(out);
    }

    /// 'If m == (Release)', from a member that held the lock or only waited.
    fn on_release(&mut self, from: NodeId, number: u64, out: &mut Out) {
        let Some(position) = self.position(from) else { return };
        self.latest[position] = self.latest[position].max(number);
        self.forget(from, number);
        self.grant_next(out);
    }

    /// Ends the requests of a member up to this one, whether they are granted or queued.
    fn forget(&mut self, node: NodeId, number: u64) {
        let stays = |(other, known): &(NodeId, u64)| *other != node || *known > number;
        self.holders.retain(stays);
        self.queue.retain(stays);
    }

    /// 'Remove ID j from Q; Send (Grant) to j', if nobody holds the lock.
    fn grant_next(&mut self, out: &mut Out) {
        if !self.holders.is_empty() {
            return;
        }
        let Some(next) = self.next_in_queue() else { return };
        let Some(fence) = self.fences.next(Mode::Exclusive) else { return };
        let (node, number) = self.queue.remove(next);
        if !self.forgets_holder() {
            self.holders.push((node, number));
        }
        if self.rules.queue == Policy::RoundRobin {
            self.turn = node;
        }
        send(node, CentralMessage::Grant { number, fence: fence.count() }, out);
    }

    /// The position in the queue of the request that is granted next.
    fn next_in_queue(&self) -> Option<usize> {
        let nodes = self.queue.iter().map(|(node, _)| *node).enumerate();
        let next = match self.rules.queue {
            Policy::Fifo => nodes.min_by_key(|(position, _)| *position),
            Policy::RoundRobin => nodes.min_by_key(|(_, node)| (*node <= self.turn, *node)),
            Policy::LowestId => nodes.min_by_key(|(_, node)| *node),
        };
        next.map(|(position, _)| position)
    }

    /// As printed (T22): who holds the lock is not recorded.
    fn forgets_holder(&self) -> bool {
        self.rules.printed.contains(Trap::ForgottenHolder)
    }

    fn position(&self, node: NodeId) -> Option<usize> {
        self.members.binary_search(&node).ok()
    }

    fn has_received(&self, node: NodeId, number: u64) -> bool {
        self.position(node).is_none_or(|position| number <= self.latest[position])
    }
}

fn send(to: NodeId, message: CentralMessage, out: &mut Out) {
    out.push(Effect::Send { to, message });
}
