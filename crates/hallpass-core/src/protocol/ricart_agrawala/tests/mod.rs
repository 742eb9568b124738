mod classic_failure;
mod classic_join;
mod classic_leave;
mod classic_ways;
mod fences;
mod moot;
mod numbers;
mod readers;
mod regressions;
mod ring;
mod section_2;
mod sequenced;
mod variants;

use super::{Body, Classic, ClassicMessage, ClassicTimer, RaMessage, RaTimer, RicartAgrawala, Ring, Sequenced};
use crate::protocol::testing::{NOTHING, Net, initial};
use crate::protocol::{Effects, Input, Message, Mode, Protocol};
use crate::{Fence, InitialHolders, NodeId, View};

#[test]
fn alone_every_machine_enters_at_once_and_sends_nothing() {
    fn check<P: Protocol>(words: &str) {
        for mode in [Mode::Exclusive, Mode::Shared] {
            let mut net = Net::<P>::new([7], words);
            for _ in 0..2 {
                let effects = net.acquire_as(7, mode);
                assert_eq!(effects.iter().filter(|text| *text == "enter").count(), 1, "{words}: {effects:?}");
                assert!(net.in_flight.is_empty() && net.timers.is_empty(), "{words}: {effects:?}");
                net.release(7);
                assert!(net.in_flight.is_empty() && net.timers.is_empty() && net.nodes[&7].is_idle(), "{words}");
            }
        }
    }
    for words in ["", "reply=implicit", "request=broadcast release=broadcast", "clock=lamport", "increment=random:3"] {
        check::<RicartAgrawala>(words);
    }
    check::<Ring>("ring=echo");
    check::<Ring>("ring=annotate");
    check::<Sequenced>("");
    check::<Classic>("");
    check::<Classic>("hsn=quiet insert=broadcast");
}
