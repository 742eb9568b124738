use hallpass_core::protocol::{Comer, Floor};

use crate::config::Digest;

/// What locks that were forgotten have left behind: no lock of the same name starts below.
///
/// A lock's floor is the highest of all locks whose names have the same digest here, so that a bounded table is enough for
/// any number of names. It is not one floor for all: what one busy lock has used up would be used up for every other.
/// Floors travel with the lock's messages, and all members use the same digest, so that what is high for one digest never
/// becomes so for another.
pub(crate) struct Floors([Left; COUNT]);

/// What is left of the locks of one digest.
#[derive(Clone, Copy, Default)]
struct Left {
    floor: Floor,
    /// Who used one of them last, where this node is its home. With another lock's it gets more or less at once, and nothing else differs.
    comer: Option<Comer>,
}

/// One lock in this number shares its floor with a busy one.
const COUNT: usize = 1024;

impl Floors {
    pub(crate) fn new() -> Box<Self> {
        Box::new(Self([Left::default(); COUNT]))
    }

    pub(crate) fn get(&self, name: &str) -> Floor {
        self.0[position(name)].floor
    }

    pub(crate) fn comer(&self, name: &str) -> Option<Comer> {
        self.0[position(name)].comer
    }

    pub(crate) fn keep_comer(&mut self, name: &str, comer: Comer) {
        self.0[position(name)].comer = Some(comer);
    }

    /// A new epoch: its fences are above all of the last one, whatever their counts. Request numbers go on rising.
    pub(crate) fn start_epoch(&mut self) {
        for left in &mut self.0 {
            left.floor.fence = 0;
            left.comer = None;
        }
    }

    pub(crate) fn raise(&mut self, name: &str, floor: Floor) {
        self.0[position(name)].floor.raise(floor);
    }
}

fn position(name: &str) -> usize {
    let mut digest = Digest::default();
    digest.add(name.as_bytes());
    (digest.0 ^ digest.0 >> 32) as usize % COUNT
}
