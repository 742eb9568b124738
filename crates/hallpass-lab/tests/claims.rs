//! Every claim holds.
use hallpass_lab::claims::{ClaimsSpec, run};
#[test]
fn claims_hold() {
    let began = std::time::Instant::now();
    let rows = run(&ClaimsSpec { only: std::env::var("ONLY").ok(), ..Default::default() }, |p| {
        eprintln!("{:?} {}/{} {}", began.elapsed(), p.done, p.total, p.current)
    });
    for row in &rows {
        println!(
            "{} {:<18} {:<80} | {} | {}",
            if row.ok { "ok " } else { "OFF" },
            row.id,
            row.claim,
            row.expected,
            row.measured
        );
    }
    println!("{:?}", began.elapsed());
    assert!(rows.iter().all(|row| row.ok));
}
