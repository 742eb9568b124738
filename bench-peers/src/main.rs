//! Clients of other lock services as workers of `hallpass bench`, which starts them itself:
//! `bench-peers worker etcd ADDRESS,..`.

mod etcd;

use std::process::ExitCode;

use hallpass_bench::{BenchError, serve};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["worker", "etcd", addresses] => {
            let addresses = addresses.split(',').map(str::to_owned).collect();
            serve(|| async { Ok(etcd::Etcd::new(addresses)) })
        }
        _ => Err(BenchError::new("this is for 'hallpass bench --peers etcd', which calls it")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-peers: {error}");
            ExitCode::from(64)
        }
    }
}
