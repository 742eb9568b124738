//! Raymond 1989.

use super::Claim;

pub(super) const CLAIMS: &[Claim] = &[];
