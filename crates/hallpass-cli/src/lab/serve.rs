//! `hallpass lab serve`: the laboratory in a browser, or as a folder of files.

use std::net::SocketAddr;
use std::path::Path;

use hallpass_lab_web::Settings;
use tokio::net::TcpListener;

use crate::cli::ServeArgs;
use crate::exit::{Fault, Outcome};
use crate::os;
use crate::terminal;

pub(super) fn run(args: &ServeArgs) -> Result<Outcome, Fault> {
    match &args.export {
        Some(folder) => export(folder),
        None => serve(args),
    }
}

/// Where the same can be seen in a browser.
pub(super) fn invitation(part: &str, words: &[String]) -> String {
    format!("\nto see it, run 'hallpass lab serve' and open\n  {}\n", hallpass_lab_web::link(part, words))
}

fn serve(args: &ServeArgs) -> Result<Outcome, Fault> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| Fault::Failed(format!("cannot start threads: {error}")))?;
    runtime.block_on(async {
        let listener = TcpListener::bind(&args.listen).await.map_err(|error| {
            Fault::Usage(format!("cannot listen on {}: {error}; give another --listen ADDR", args.listen))
        })?;
        let address = listener.local_addr().map_err(|error| Fault::Failed(error.to_string()))?;
        announce(address)?;
        let settings = Settings { hosts: args.hosts.clone() };
        let shutdown = os::shutdown_requested();
        let shutdown = shutdown.map_err(|error| Fault::Failed(format!("cannot watch for signals: {error}")))?;
        tokio::select! {
            ended = hallpass_lab_web::serve(listener, settings) => {
                ended.map_err(|error| Fault::Failed(format!("the laboratory stopped: {error}")))?;
            }
            () = shutdown => {}
        }
        Ok(Outcome::Fine)
    })
}

fn announce(address: SocketAddr) -> Result<(), Fault> {
    if !address.ip().is_loopback() {
        terminal::warn("anyone who can reach this address can use the laboratory, and this machine's processor time");
    }
    terminal::print(&format!("the laboratory is at http://{address}/ (Ctrl-C ends it)\n"))
}

fn export(folder: &str) -> Result<Outcome, Fault> {
    let bar = terminal::progress_bar("files");
    let written = hallpass_lab_web::export(Path::new(folder), |name| {
        bar.inc(1);
        bar.set_message(name.to_owned());
    });
    bar.finish_and_clear();
    let count = written.map_err(|error| Fault::Write { target: folder.to_owned(), error })?;
    terminal::print(&format!("{count} files in {folder}; any web server can show them\n"))?;
    Ok(Outcome::Fine)
}
