//! Steps of a model as commands of a scenario, so that whatever was played or explored can be played again.

use hallpass_core::{Message, Mode, NodeId, Protocol};
use hallpass_sim::{InFlight, Model, ModelConfig, Step};

/// A step that may come next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The command that takes it.
    pub command: String,
    /// What kind of step it is: the command's first word.
    pub kind: &'static str,
    /// The node it happens at; for a message its receiver. None if time passes.
    pub node: Option<NodeId>,
    /// The message it is about: sender, receiver and text.
    pub message: Option<(NodeId, NodeId, String)>,
    /// It happens sooner or later; otherwise it is a caller's choice, or a fault.
    pub must_happen: bool,
}

/// How a message is named in a command.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// By its kind, if that is enough, as people write it.
    Brief,
    /// With its contents, so that the command means the same where other messages are in flight, too.
    Full,
}

/// A step as a command.
pub(crate) fn describe<P: Protocol>(
    config: &ModelConfig<P>,
    model: &Model<P>,
    possible: &[Step],
    step: Step,
    naming: Naming,
) -> Choice {
    let id = |node: u8| config.ids()[usize::from(node)];
    let of_node = |kind: &'static str, node: u8| (kind, format!("{kind} {}", id(node)), Some(id(node)), None);
    let of_message = |kind: &'static str, index: u16, make: fn(u16) -> Step| {
        let packet = model.packets().nth(index.into()).expect("a step names a message in flight");
        let same_step = |other: &InFlight<'_, P::Message>| possible.contains(&make(other.index));
        let name = name(model, &packet, same_step, naming);
        let (from, to) = (id(packet.from), id(packet.to));
        let nth = if name.1 > 1 { format!(" #{}", name.1) } else { String::new() };
        let command = format!("{kind} {} {from} -> {to}{nth}", name.0);
        (kind, command, Some(to), Some((from, to, packet.message.to_string())))
    };
    let (kind, command, node, message) = match step {
        Step::Request { node, mode, draw } => {
            let mode = if mode == Mode::Shared { " shared" } else { "" };
            let draw = if draw > 0 { format!(" draw={draw}") } else { String::new() };
            ("ask", format!("ask {}{mode}{draw}", id(node)), Some(id(node)), None)
        }
        Step::Cancel(node) => of_node("cancel", node),
        Step::Exit(node) => of_node("exit", node),
        Step::Drop(node) => of_node("forget", node),
        Step::Crash(node) => of_node("crash", node),
        Step::Restart(node) => of_node("restart", node),
        Step::Try { node, mode } => {
            let shared = if mode == Mode::Shared { " shared" } else { "" };
            ("try", format!("try {}{shared}", id(node)), Some(id(node)), None)
        }
        Step::Downgrade(node) => of_node("downgrade", node),
        Step::Upgrade(node) => of_node("upgrade", node),
        Step::Reenter(node) => of_node("reenter", node),
        Step::GiveBack(node) => of_node("give-back", node),
        Step::Join(node) => of_node("join", node),
        Step::Leave(node) => of_node("leave", node),
        Step::Deliver(index) => of_message("deliver", index, Step::Deliver),
        Step::Lose(index) => of_message("lose", index, Step::Lose),
        Step::Duplicate(index) => of_message("repeat", index, Step::Duplicate),
        Step::Tick => ("tick", "tick".to_owned(), None, None),
        Step::Timeout { node, timer } => {
            let name = model.timers(node).nth(timer.into()).map(|timer| format!("{timer:?}")).unwrap_or_default();
            ("timeout", format!("timeout {} {name}", id(node)), Some(id(node)), None)
        }
    };
    Choice { command, kind, node, message, must_happen: step.must_happen() }
}

/// The shortest name that tells a message from the others on its link, and its position among those of the same name.
fn name<P: Protocol>(
    model: &Model<P>,
    packet: &InFlight<'_, P::Message>,
    is_possible: impl Fn(&InFlight<'_, P::Message>) -> bool,
    naming: Naming,
) -> (String, usize) {
    let on_link = || {
        model
            .packets()
            .filter(|other| (other.from, other.to) == (packet.from, packet.to))
            .filter(|other| is_possible(other))
    };
    let (kind, text) = (packet.message.kind(), packet.message.to_string());
    let of_kind = on_link().filter(|other| other.message.kind() == kind).count();
    if of_kind <= 1 && naming == Naming::Brief {
        return (kind.to_owned(), 1);
    }
    let before = on_link().filter(|other| other.index <= packet.index && other.message.to_string() == text).count();
    (text, before.max(1))
}

/// Which message a command names: `KIND A -> B`, `KIND(..) A -> B`, and `#2` for the second of them.
pub(super) struct Named<'a> {
    pub(super) text: String,
    pub(super) from: &'a str,
    pub(super) to: &'a str,
    nth: usize,
}

impl<'a> Named<'a> {
    /// Parses the words after the command's first one.
    pub(super) fn parse(words: &[&'a str]) -> Option<Self> {
        let (words, nth) = match words {
            [rest @ .., last] if last.starts_with('#') => (rest, last[1..].parse().ok().filter(|nth| *nth > 0)?),
            _ => (words, 1),
        };
        match words {
            [text @ .., from, "->", to] if !text.is_empty() => Some(Self { text: text.join(" "), from, to, nth }),
            _ => None,
        }
    }

    /// The message it means, among those that are possible.
    pub(super) fn find<M: Message>(
        &self,
        link: (u8, u8),
        mut possible: impl Iterator<Item = (u16, u8, u8, M)>,
    ) -> Option<u16> {
        let is_meant = |(_, from, to, message): &(u16, u8, u8, M)| {
            (*from, *to) == link && (message.kind() == self.text || message.to_string() == self.text)
        };
        possible.by_ref().filter(is_meant).nth(self.nth - 1).map(|(index, ..)| index)
    }
}
