//! The bytes that nodes write and the results of their runs must be as recorded.
//!
//! `HALLPASS_REWRITE=1 cargo test -p hallpass-sim --test all -- wire::` records them again. Do that only if the wire format is meant to
//! change: members of different versions must understand each other.

use std::fmt::Write;
use std::path::Path;

use hallpass_sim::cluster::Cut;

/// Every protocol, fault, kind of frame and control message occurs in these.
const SEEDS: std::ops::Range<u64> = 0..120;

#[test]
fn nodes_write_the_same_bytes_as_recorded() {
    let of_run = |seed| {
        let report = hallpass_sim::cluster::run(seed, &Cut::default());
        format!("{seed} {:016x} {:016x} {} {}", report.wire, report.hash, report.grants, report.epoch)
    };
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/wire/cluster-runs.txt");
    let mut found = String::from("# seed, digest of all bytes written, digest of the run, grants, last epoch\n");
    SEEDS.map(of_run).for_each(|line| writeln!(found, "{line}").unwrap());
    if std::env::var_os("HALLPASS_REWRITE").is_some() {
        return std::fs::write(file, found).unwrap();
    }
    let recorded = std::fs::read_to_string(file).unwrap();
    for (found, recorded) in found.lines().zip(recorded.lines()) {
        assert_eq!(found, recorded, "the wire format or the simulation has changed");
    }
    assert_eq!(found.len(), recorded.len());
}
