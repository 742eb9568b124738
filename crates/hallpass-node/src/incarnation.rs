use std::fmt;
use std::num::NonZeroU32;

use hallpass_core::Fence;

/// How often a node has been started: a counter from 1 that rises with every start. It is bounded
/// like an epoch, since it began as one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Incarnation(NonZeroU32);

impl Incarnation {
    /// The first start.
    pub const FIRST: Self = Self(NonZeroU32::MIN);
    /// The largest one.
    pub const MAX: u32 = Fence::EPOCH_MAX as u32;

    /// The incarnation of this number, if it is from 1 to [`MAX`](Self::MAX).
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(number) if number.get() <= Self::MAX => Some(Self(number)),
            _ => None,
        }
    }

    /// The number.
    pub fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
