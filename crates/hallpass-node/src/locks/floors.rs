use hallpass_core::protocol::Floor;

use crate::config::Digest;

/// What locks that were forgotten have left behind: no lock of the same name starts below.
///
/// A lock's floor is the highest of all locks whose names have the same digest here, so that a bounded table is enough for
/// any number of names. It is not one floor for all: what one busy lock has used up would be used up for every other.
/// Floors travel with the lock's messages, and all members use the same digest, so that what is high for one digest never
/// becomes so for another.
pub(crate) struct Floors([Floor; COUNT]);

/// One lock in this number shares its floor with a busy one.
const COUNT: usize = 1024;

impl Floors {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self([Floor::default(); COUNT]))
    }

    pub(crate) fn get(&self, name: &str) -> Floor {
        self.0[position(name)]
    }

    /// A new epoch: its fences are above all of the last one, whatever their counts. Request numbers go on rising.
    pub(crate) fn start_epoch(&mut self) {
        self.0.iter_mut().for_each(|floor| floor.fence = 0);
    }

    pub(crate) fn raise(&mut self, name: &str, floor: Floor) {
        self.0[position(name)].raise(floor);
    }
}

fn position(name: &str) -> usize {
    let mut digest = Digest::default();
    digest.add(name.as_bytes());
    (digest.0 ^ digest.0 >> 32) as usize % COUNT
}
