//! The state diagrams in the documentation are what the code's tables of transitions give.

use hallpass_lab::state_charts;

#[test]
fn the_state_diagrams_are_those_of_the_code() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/generated/states");
    for (name, chart) in state_charts() {
        let (path, drawn) = (format!("{folder}/{name}.svg"), chart.to_svg() + "\n");
        if std::env::var_os("HALLPASS_REWRITE").is_some() {
            std::fs::create_dir_all(folder).unwrap();
            std::fs::write(&path, &drawn).unwrap();
        }
        let shown = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(shown == drawn, "{path} is out of date: run this test with HALLPASS_REWRITE=1");
    }
}
