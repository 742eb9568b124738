use hallpass_core::NodeId;

use super::{Event, EventKind};

/// Gives each message its own id. A model knows its packets only by what they say: equal ones arrive in order of sending.
pub fn link(events: &mut [Event]) {
    let mut sent: Vec<(NodeId, NodeId, String, u64, bool)> = Vec::new();
    let mut next = 0;
    for event in events {
        let node = event.node;
        match &mut event.kind {
            EventKind::Send { to, id, text, .. } => {
                next += 1;
                *id = next;
                sent.push((node, *to, text.clone(), next, false));
            }
            EventKind::Deliver { from, id, text, .. } | EventKind::Lose { from, id, text, .. } => {
                let same = |sending: &&mut (NodeId, NodeId, String, u64, bool)| {
                    sending.0 == *from && sending.1 == node && sending.2 == *text
                };
                let fresh = sent.iter_mut().filter(same).find(|sending| !sending.4);
                match fresh {
                    Some(sending) => {
                        sending.4 = true;
                        *id = sending.3;
                    }
                    // Repeated by the network, or heard by its own sender on a medium.
                    None => *id = sent.iter_mut().rfind(same).map_or(0, |sending| sending.3),
                }
            }
            _ => {}
        }
    }
}
