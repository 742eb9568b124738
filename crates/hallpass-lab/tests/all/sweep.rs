//! The comparison measures what single runs measure.

use hallpass_lab::sweep::{SweepSpec, pictures, sweep, to_html};

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
fn every_chart_is_a_picture_of_its_own() {
    let spec = small();
    let cells = sweep(&spec, |_, _, _| {}).unwrap();
    let pictures = pictures(&spec, &cells);
    let names: Vec<&str> = pictures.iter().map(|(name, _)| name.as_str()).collect();
    for name in ["messages-light.svg", "sync-delay-saturated.svg", "fairness-saturated.svg", "messages-over-load-5.svg"]
    {
        assert!(names.contains(&name), "{names:?}");
    }
    for (name, svg) in &pictures {
        assert_well_formed(name, svg);
        assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""), "{name}");
        // A series of one point has a marker and no line.
        assert!(svg.contains("class=\"line") || svg.contains("<path"), "{name}");
        for protocol in &spec.protocols {
            assert!(svg.contains(&format!(">{protocol}</text>")), "{name}: {protocol}");
        }
        assert!(!svg.contains("NaN"), "{name}");
    }
    let only = SweepSpec { loads: vec!["light".to_owned()], ..spec };
    let light: Vec<_> = cells.into_iter().filter(|cell| cell.load == "light").collect();
    let over_load = |(name, _): &(String, String)| name.contains("over-load");
    assert!(!hallpass_lab::sweep::pictures(&only, &light).iter().any(over_load), "one load is not a line");
}

/// Every element that is opened is closed, in the right order, and no attribute is left open.
fn assert_well_formed(name: &str, svg: &str) {
    let mut open = Vec::new();
    for tag in svg.split('<').skip(1) {
        let (tag, text) = tag.split_once('>').unwrap_or_else(|| panic!("{name}: '<{tag}' has no end"));
        assert!(!text.contains('>'), "{name}: '{text}' is not escaped");
        assert_eq!(tag.matches('"').count() % 2, 0, "{name}: <{tag}>");
        match tag.strip_prefix('/') {
            Some(closed) => assert_eq!(open.pop(), Some(closed), "{name}"),
            None if tag.ends_with('/') => {}
            None => open.extend(tag.split_whitespace().next()),
        }
    }
    assert!(open.is_empty(), "{name}: {open:?} is left open");
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
