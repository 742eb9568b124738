//! Clients of other lock services as worker processes of `hallpass bench`, which builds and starts this program itself:
//! `bench-peers worker SYSTEM ARGUMENTS`.

#[cfg(feature = "etcd")]
mod etcd;
mod postgres;
mod redis;
mod redlock;
mod zookeeper;

use std::process::ExitCode;

use hallpass_bench::{BenchError, serve};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["worker", "redis", "poll", address] => serve(async || Ok(redis::Redis::polling(address))),
        ["worker", "redis", "pub-sub", address] => serve(async || Ok(redis::Redis::subscribing(address))),
        ["worker", "redlock", addresses @ ..] => serve(async || Ok(redlock::Redlock::new(addresses))),
        ["worker", "postgres", address] => serve(async || Ok(postgres::Postgres::new(address))),
        ["worker", "zookeeper", addresses @ ..] => serve(async || Ok(zookeeper::Ensemble::new(addresses))),
        #[cfg(feature = "etcd")]
        ["worker", "etcd", addresses @ ..] => serve(async || Ok(etcd::Etcd::new(addresses))),
        _ => Err(BenchError::new("this is for 'hallpass bench --peers ..', which calls it")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-peers: {error}");
            ExitCode::from(64)
        }
    }
}

/// Callers on one host talk to one server, as they would where each host has one.
fn nearest(addresses: &[String], caller: u32) -> &str {
    &addresses[caller as usize % addresses.len()]
}

fn owned(addresses: &[&str]) -> Vec<String> {
    addresses.iter().map(|&address| address.to_owned()).collect()
}
