//! Members whose messages take one T each, for what one request after the other costs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use hallpass_core::protocol::directory::{Directory, DirectoryMessage};
use hallpass_core::protocol::{
    Bounds, Capabilities, Effect, Effects, Input, Mode, Mutant, Mutation, NoTimer, Options, Protocol,
};
use hallpass_core::{InitialHolders, NodeId, Setup, View};

/// Member 1 is the home. A member that does not keep the lock gives it back as soon as nobody there uses it.
pub(super) struct Group {
    members: Vec<Mutant<Directory>>,
    in_flight: VecDeque<(u64, NodeId, NodeId, DirectoryMessage)>,
    now: u64,
    sent: u64,
    /// Who was let in or refused since it asked.
    answered: BTreeSet<u32>,
    /// How each member last asked.
    modes: BTreeMap<u32, Mode>,
    last_exclusive: u64,
    /// A fence was not above the last exclusive one.
    is_wrong: bool,
}

/// Messages, and the T from the beginning to the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    pub(super) messages: u64,
    pub(super) trips: u64,
}

/// A planted bug may send messages without end.
const MESSAGES_MAX: u64 = 1000;

impl Group {
    pub(super) fn new(members: u32, words: &str, mutation: Option<Mutation>) -> Self {
        let mut options = Options::from_words(words.split_whitespace()).expect("a claim uses valid options");
        options.nodes = (1..=members).map(NodeId).collect();
        let options = (Directory::parse(&options).expect("a claim uses existing options"), mutation);
        let view = View::new((1..=members).map(NodeId));
        let new = |me: &NodeId| {
            Mutant::<Directory>::new(&Setup {
                me: *me,
                view: &view,
                initial: InitialHolders::NOBODY,
                home: NodeId(1),
                incarnation: 0,
                bounds: Bounds::NONE,
                options: &options,
            })
        };
        Self {
            members: view.members().iter().map(new).collect(),
            in_flight: VecDeque::new(),
            now: 0,
            sent: 0,
            answered: BTreeSet::new(),
            modes: BTreeMap::new(),
            last_exclusive: 0,
            is_wrong: false,
        }
    }

    pub(super) fn is_wrong(&self) -> bool {
        self.is_wrong
    }

    /// A caller asks, and all messages arrive. The T are those until it is let in or refused.
    pub(super) fn ask(&mut self, member: u32, mode: Mode) -> Cost {
        self.cost(member, Input::Acquire { mode, draw: 0 })
    }

    /// The same, without waiting for a holder.
    pub(super) fn attempt(&mut self, member: u32, mode: Mode) -> Cost {
        self.cost(member, Input::Try { mode })
    }

    /// A reader inside asks to be alone.
    pub(super) fn upgrade(&mut self, member: u32) -> Cost {
        self.cost(member, Input::Upgrade)
    }

    /// A writer inside goes on reading.
    pub(super) fn downgrade(&mut self, member: u32) -> Cost {
        self.cost(member, Input::Downgrade)
    }

    /// A caller gives up.
    pub(super) fn cancel(&mut self, member: u32) {
        self.give(member, Input::Cancel);
        self.settle();
    }

    /// A caller leaves, and all messages arrive. The T are those until somebody enters, if anybody does.
    pub(super) fn exit(&mut self, member: u32) -> Cost {
        let (sent, start) = (self.sent, self.now);
        self.answered.clear();
        self.give(member, Input::Release);
        self.give_back(member);
        let mut trips = 0;
        while self.step() {
            if !self.answered.is_empty() && trips == 0 {
                trips = self.now - start;
            }
        }
        Cost { messages: self.sent - sent, trips }
    }

    /// A caller asks, enters and leaves.
    pub(super) fn visit(&mut self, member: u32, mode: Mode) -> Cost {
        let asked = self.ask(member, mode);
        let left = self.exit(member);
        Cost { messages: asked.messages + left.messages, ..asked }
    }

    fn cost(&mut self, member: u32, input: Input<DirectoryMessage, NoTimer>) -> Cost {
        let (sent, start) = (self.sent, self.now);
        self.answered.remove(&member);
        self.give(member, input);
        let mut trips = self.answered.contains(&member).then_some(0);
        while self.step() {
            if trips.is_none() && self.answered.contains(&member) {
                trips = Some(self.now - start);
            }
        }
        Cost { messages: self.sent - sent, trips: trips.unwrap_or(0) }
    }

    fn settle(&mut self) {
        while self.step() {}
    }

    /// The next message arrives. False if none is under way.
    fn step(&mut self) -> bool {
        let Some((at, from, to, message)) = self.in_flight.pop_front() else { return false };
        self.now = at;
        self.give(to.0, Input::Deliver { from, message });
        self.give_back(to.0);
        true
    }

    fn give_back(&mut self, member: u32) {
        if self.members[member as usize - 1].gives_back() {
            self.give(member, Input::GiveBack);
        }
    }

    fn give(&mut self, member: u32, input: Input<DirectoryMessage, NoTimer>) {
        let mode = match &input {
            Input::Acquire { mode, .. } | Input::Try { mode } => Some(*mode),
            Input::Upgrade => Some(Mode::Exclusive),
            Input::Downgrade => Some(Mode::Shared),
            _ => None,
        };
        self.modes.extend(mode.map(|mode| (member, mode)));
        let mut out = Effects::new();
        self.members[member as usize - 1].handle(input, &mut out);
        for effect in out {
            match effect {
                Effect::Send { to, message } if (self.in_flight.len() as u64) < MESSAGES_MAX => {
                    self.sent += 1;
                    self.in_flight.push_back((self.now + 1, NodeId(member), to, message));
                }
                Effect::Enter { fence } => {
                    // Readers of one batch have the same one, and the next writer may have it, too.
                    self.is_wrong |= fence.get() <= self.last_exclusive;
                    if self.modes.get(&member) == Some(&Mode::Exclusive) {
                        self.last_exclusive = fence.get();
                    }
                    self.answered.insert(member);
                }
                Effect::Busy | Effect::Refused => drop(self.answered.insert(member)),
                _ => {}
            }
        }
    }
}
