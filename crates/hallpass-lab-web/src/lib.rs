//! The laboratory in a browser.
//!
//! [`serve`] answers on a listener: a page that is part of the program, and what the laboratory computes for it. Nothing is
//! kept between two requests: a request names all that it is about, so that a link shows the same again. [`export`] writes
//! the page and what it can show without a server to a folder.
//!
//! - `answer`: pure functions from a request to a JSON document.
//! - `jobs`: a bounded number of them at a time, each with a time limit, and none for a client that has gone.
//! - `guard`: who may ask at all.

mod answer;
mod export;
mod guard;
mod jobs;
mod link;
mod menu;
mod page;
mod query;
mod router;
mod stream;

use std::io;

use tokio::net::TcpListener;

pub use export::export;
pub use link::link;
pub use query::{MAX_EVENTS, MAX_NODES};

/// Where the laboratory listens unless it is told otherwise, which is also where the links in reports point.
pub const LISTEN: &str = "127.0.0.1:8700";

/// Who may ask, and how much.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Host names by which the page may be reached, besides `localhost` and addresses.
    pub hosts: Vec<String>,
}

/// Answers until the process ends, or the listener fails.
pub async fn serve(listener: TcpListener, settings: Settings) -> io::Result<()> {
    axum::serve(listener, router::router(settings)).await
}
