//! A swarm: random runs, each decided by its seed. `HALLPASS_SWARM_SEEDS` says how many.

use hallpass_lab::{RunSpec, simulate};
use hallpass_sim::{Order, Rng};

/// A run that must hold, whatever the seed makes of it.
fn draw(seed: u64) -> RunSpec {
    let mut rng = Rng::new(seed);
    let mut pick = |words: &[&str]| words[rng.below(words.len() as u64) as usize].to_owned();
    let (protocol, options): (&str, String) = match pick(&[
        "plain",
        "plain",
        "implicit",
        "ring",
        "medium",
        "modulo",
        "classic",
        "classic",
        "central",
        "lamport",
        "lamport-fifo",
        "token-ring",
        "permissions",
        "directory",
    ])
    .as_str()
    {
        "central" => ("central", pick(&["queue=fifo", "queue=round-robin", "queue=lowest-id"])),
        "lamport" => ("lamport", String::new()),
        "lamport-fifo" => ("lamport-fifo", String::new()),
        "token-ring" => ("token-ring", String::new()),
        "directory" => ("directory", pick(&["", "", "block=1", "block-chained=2", "give-back=when-asked", "home=1"])),
        "permissions" => ("carvalho-roucairol", pick(&["", "", "cache-idle=3T"])),
        "plain" => (
            "ricart-agrawala",
            pick(&[
                "",
                "reply-number=false",
                "request=broadcast",
                "request=broadcast release=broadcast",
                "increment=random:9",
                "clock=lamport",
            ]),
        ),
        "implicit" => (
            "ricart-agrawala",
            pick(&["reply=implicit", "reply=implicit request=broadcast", "reply=implicit release=broadcast"]),
        ),
        "ring" => ("ricart-agrawala-ring", pick(&["ring=echo", "ring=annotate"])),
        "medium" => ("ricart-agrawala", "medium=sequenced".to_owned()),
        "modulo" => ("ricart-agrawala", "modulo".to_owned()),
        _ => (
            "ricart-agrawala",
            format!(
                "membership=classic {} {}",
                pick(&["", "hsn=ask", "hsn=each", "hsn=quiet"]),
                pick(&["", "insert=broadcast"])
            ),
        ),
    };
    let classic = options.contains("classic");
    let exact = options.contains("implicit") || options.contains("sequenced") || options == "modulo";
    let ordered = ["lamport-fifo", "directory"].contains(&protocol);
    let exact = exact || ordered;
    let faults = match (classic, exact) {
        (true, _) => pick(&[
            "",
            "crash:1",
            "crash:1,restart:1",
            "join:2",
            "leave:1",
            "join:1,leave:1",
            "crash:1,restart:1,join:1,leave:1",
            "dup:0.05",
        ]),
        (false, true) => String::new(),
        (false, false) => pick(&["", "", "dup:0.1"]),
    };
    let load = pick(&["saturated", "saturated", "light", "0.3", "2", "hotspot:0.8"]);
    let latency = pick(&["1ms", "200us..3ms", "900us..1100us", "links:1-2=9ms,else=1ms"]);
    let hold = pick(&["0ns", "100us", "1ms", "7ms"]);
    let order = if ordered || pick(&["any", "any", "fifo"]) == "fifo" { Order::Fifo } else { Order::Any };
    let readers = if options == "modulo" { 0.0 } else { pick(&["0", "0", "0.5", "0.95"]).parse().unwrap() };
    let nodes = if classic { 3 + rng.below(5) } else { 1 + rng.below(12) } as u32;
    let options = options.replace("modulo", &format!("numbers=modulo:{}", 2 * nodes - 1));
    let latency = if nodes < 2 { "1ms".to_owned() } else { latency };
    RunSpec {
        nodes,
        entries: 120,
        seed,
        load,
        hold: Some(hold),
        latency,
        order,
        readers,
        faults,
        ..RunSpec::of(protocol)
    }
    .with(&options)
}

/// The same for tokens and quorums.
fn draw_tokens_and_quorums(seed: u64) -> RunSpec {
    let mut rng = Rng::new(seed);
    let mut pick = |words: &[&str]| words[rng.below(words.len() as u64) as usize].to_owned();
    let protocol = pick(&["token", "token", "suzuki-kasami", "naimi-trehel", "maekawa", "maekawa"]);
    let options = if protocol == "token" { pick(&["", "start=ricart-agrawala"]) } else { String::new() };
    let faults = if protocol == "naimi-trehel" { String::new() } else { pick(&["", "", "dup:0.1"]) };
    let latency = pick(&["1ms", "200us..3ms", "exp:1ms", "links:1-2=9ms,else=1ms"]);
    let order = if pick(&["any", "any", "fifo"]) == "fifo" { Order::Fifo } else { Order::Any };
    let load = pick(&["saturated", "saturated", "light", "0.3", "2", "hotspot:0.8"]);
    let (hold, readers) = (Some(pick(&["0ns", "100us", "1ms", "7ms"])), pick(&["0", "0.5"]).parse().unwrap());
    let nodes = 2 + rng.below(24) as u32;
    let spec = RunSpec::of(&protocol).with(&options);
    RunSpec { nodes, entries: 150, seed, load, hold, latency, order, readers, faults, ..spec }
}

/// The same for Raymond's trees, a third of them with nodes that crash and come back.
fn draw_raymond(seed: u64) -> RunSpec {
    let mut rng = Rng::new(seed);
    let mut pick = |words: &[&str]| words[rng.below(words.len() as u64) as usize].to_owned();
    let variant = pick(&["", "start=initialize", "recovery=classic", "recovery=classic fence-reserve=2"]);
    let recovers = variant.contains("recovery");
    let options = [
        pick(&["tree=line", "tree=star:3", "tree=star:5", "tree=random tree-seed=4"]),
        pick(&["", "piggyback=true"]),
        pick(&["", "greedy=true"]),
        variant,
    ]
    .join(" ");
    let faults = if recovers { pick(&["", "crash:1,restart:1", "crash:5,restart:5"]) } else { String::new() };
    let unbounded = if recovers { "1ms" } else { "exp:1ms" };
    let order = if pick(&["any", "any", "fifo"]) == "fifo" { Order::Fifo } else { Order::Any };
    let spec = RunSpec {
        entries: 120,
        seed,
        load: pick(&["saturated", "saturated", "light", "0.3", "2", "hotspot:0.8"]),
        hold: Some(pick(&["0ns", "100us", "1ms", "7ms"])),
        latency: pick(&["1ms", "200us..3ms", "links:1-2=9ms,else=1ms", unbounded]),
        order,
        readers: pick(&["0", "0", "0.5"]).parse().unwrap(),
        faults,
        ..RunSpec::of("raymond")
    };
    RunSpec { nodes: 2 + rng.below(12) as u32, ..spec }.with(&options)
}

#[test]
fn the_swarm_notices_a_planted_bug() {
    use hallpass_core::protocol::Mutation::{HalfDone, NeverDefer, StuckFence};
    for mutation in [NeverDefer, HalfDone, StuckFence] {
        let broken = |seed| simulate(&RunSpec { mutation: Some(mutation), ..draw(seed) }).unwrap();
        assert!((1..=60).any(|seed| !broken(seed).violations.is_empty()), "{mutation:?}");
    }
}

/// Links between whole nodes keep the order of messages and deliver each once: there a REPLY without its request's number does
/// no harm, and only runs without such links notice it.
#[test]
fn the_swarm_notices_replies_without_the_number_of_their_request() {
    let run = |seed, options| {
        let (latency, faults) = ("200us..3ms".to_owned(), "dup:0.1".to_owned());
        let spec = RunSpec { nodes: 3, entries: 200, seed, latency, faults, ..RunSpec::of("carvalho-roucairol") };
        let spec = RunSpec { order: Order::Any, load: "saturated".to_owned(), ..spec };
        simulate(&spec.with(options)).unwrap().violations
    };
    assert!((1..=60).any(|seed| !run(seed, "as-printed=T6").is_empty()));
    assert!((1..=60).all(|seed| run(seed, "").is_empty()));
}

#[test]
fn random_runs_hold() {
    let seeds = std::env::var("HALLPASS_SWARM_SEEDS")
        .map_or(400, |text| text.parse().expect("HALLPASS_SWARM_SEEDS is a number"));
    let mut entries = 0;
    for seed in 1..=seeds {
        let spec = match seed % 8 {
            0 | 4 => draw_tokens_and_quorums(seed),
            2 => draw_raymond(seed),
            _ => draw(seed),
        };
        let report = simulate(&spec).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(report.violations.is_empty(), "{}\nreproduce: {}", report.violations[0], spec.command());
        entries += report.entries;
    }
    println!("{seeds} runs, {entries} entries, no violation");
}
