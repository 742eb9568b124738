use hallpass_core::NodeId;

use super::{Event, EventKind};

/// Numbers the messages of a model's trace, whose packets have no ids: equal ones are taken to arrive in the order of sending.
pub fn link(events: &mut [Event]) {
    let mut sent: Vec<Sent> = Vec::new();
    for event in events {
        let node = event.node;
        match &mut event.kind {
            EventKind::Send { to, id, text, .. } => {
                *id = sent.len() as u64 + 1;
                sent.push(Sent { from: node, to: *to, text: text.clone(), id: *id, has_arrived: false });
            }
            EventKind::Deliver { from, id, text, .. } | EventKind::Lose { from, id, text, .. } => {
                let is_same = |sent: &&mut Sent| sent.from == *from && sent.to == node && sent.text == *text;
                match sent.iter_mut().filter(is_same).find(|sent| !sent.has_arrived) {
                    Some(first) => {
                        first.has_arrived = true;
                        *id = first.id;
                    }
                    // Duplicated by the network, or received by its own sender on a sequenced medium.
                    None => *id = sent.iter_mut().rfind(is_same).map_or(0, |last| last.id),
                }
            }
            _ => {}
        }
    }
}

/// A message that was sent.
struct Sent {
    from: NodeId,
    to: NodeId,
    text: String,
    id: u64,
    has_arrived: bool,
}
