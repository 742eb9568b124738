//! The Carnegie Mellon notes.

use super::Claim;

pub(super) const CLAIMS: &[Claim] = &[];
