//! Every claim holds.

use hallpass_lab::claims::{ClaimsSpec, run};

#[test]
fn claims_hold() {
    let rows = run(&ClaimsSpec::default(), |_| {});
    let off: Vec<_> = rows.iter().filter(|row| !row.ok).collect();
    assert!(off.is_empty(), "{off:#?}");
    for number in 1..=24 {
        let id = format!("RA-{number}");
        let of_it = |row: &&hallpass_lab::claims::Row| row.id == id || row.id.starts_with(&format!("{id}/"));
        assert!(rows.iter().any(|row| of_it(&row)), "{id} has no row");
    }
}

#[test]
fn only_picks_an_id_or_a_row() {
    let ids = |only: &str| -> Vec<String> {
        let spec = ClaimsSpec { only: Some(only.to_owned()), ..ClaimsSpec::default() };
        run(&spec, |_| {}).into_iter().map(|row| row.id).collect()
    };
    assert_eq!(ids("RA-1"), ["RA-1", "RA-1/serialised"]);
    assert_eq!(ids("RA-3/order"), ["RA-3/order"]);
    assert!(ids("RA-99").is_empty());
}
