//! The comparison measures what single runs measure.

use hallpass_lab::sweep::{SweepSpec, sweep, to_html};

fn small() -> SweepSpec {
    SweepSpec { nodes: vec![2, 5], loads: vec!["light".to_owned(), "saturated".to_owned()], ..SweepSpec::all() }
}

#[test]
fn every_protocol_has_a_cell_for_each_size_and_load() {
    let spec = small();
    let cells = sweep(&spec, |_, _, _| {}).unwrap();
    assert_eq!(cells.len(), spec.protocols.len() * 4);
    assert!(cells.iter().all(|cell| cell.violations == 0 && cell.entries == 1000));
    let plain = cells
        .iter()
        .find(|cell| cell.protocol == "ricart-agrawala" && cell.nodes == 5 && cell.load == "light")
        .unwrap();
    assert_eq!((plain.messages, plain.response_time), (8.0, 2.0));
    let page = to_html(&spec, &cells, "hallpass lab sweep <&>");
    assert!(page.contains("lab sweep &lt;&amp;&gt;"));
    assert!(page.contains("<td>8.00</td>"));
}

#[test]
fn a_violation_shows_in_the_page() {
    let mutation = Some(hallpass_core::protocol::Mutation::StuckFence);
    let spec = SweepSpec { protocols: vec!["ricart-agrawala".to_owned()], mutation, ..small() };
    let cells = sweep(&spec, |_, _, _| {}).unwrap();
    assert!(cells.iter().any(|cell| cell.violations > 0));
    assert!(to_html(&spec, &cells, "x").contains("violated"));
}

#[test]
fn sizes_are_ranges_or_lists() {
    assert_eq!(SweepSpec::parse_nodes("2..60").unwrap(), [2, 3, 5, 10, 20, 30, 50, 60]);
    assert_eq!(SweepSpec::parse_nodes("9,4,4").unwrap(), [4, 9]);
    for bad in ["", "0", "5..2", "2..", "2,x", "2..5000"] {
        assert!(SweepSpec::parse_nodes(bad).is_err(), "{bad}");
    }
    assert!(SweepSpec::parse_protocols("paxos").is_err());
}
