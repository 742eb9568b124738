//! Carvalho and Roucairol 1983, with the authors' response, and Table I.

use super::Claim;

pub(super) const CLAIMS: &[Claim] = &[];
