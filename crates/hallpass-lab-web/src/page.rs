//! The page: files that are part of the program. Those after the semicolon are shared with other pages.

macro_rules! files {
    ($($name:literal: $kind:literal),* ; $($shared:literal: $of:literal = $text:expr),* $(,)?) => {
        /// Every file of the page: its path, its type and its contents.
        pub(crate) const FILES: &[(&str, &str, &[u8])] =
            &[$(($name, $kind, include_bytes!(concat!("../page/", $name))),)* $(($shared, $of, $text.as_bytes())),*];
    };
}

files! {
    "index.html": "text/html; charset=utf-8",
    "style.css": "text/css; charset=utf-8",
    "main.js": "text/javascript; charset=utf-8",
    "api.js": "text/javascript; charset=utf-8",
    "form.js": "text/javascript; charset=utf-8",
    "chart.js": "text/javascript; charset=utf-8",
    "home.js": "text/javascript; charset=utf-8",
    "run.js": "text/javascript; charset=utf-8",
    "tour.js": "text/javascript; charset=utf-8",
    "trap.js": "text/javascript; charset=utf-8",
    "play.js": "text/javascript; charset=utf-8",
    "compare.js": "text/javascript; charset=utf-8",
    "check.js": "text/javascript; charset=utf-8",
    "views.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml";
    "dom.js": "text/javascript; charset=utf-8" = hallpass_page::DOM,
    "trace.js": "text/javascript; charset=utf-8" = hallpass_page::TRACE,
    "viewport.js": "text/javascript; charset=utf-8" = hallpass_page::VIEWPORT,
    "diagram.js": "text/javascript; charset=utf-8" = hallpass_page::DIAGRAM,
    "player.js": "text/javascript; charset=utf-8" = hallpass_page::PLAYER,
    "diagram.css": "text/css; charset=utf-8" = hallpass_page::DIAGRAM_STYLE,
    "player.css": "text/css; charset=utf-8" = hallpass_page::PLAYER_STYLE,
}

/// The file at a path; the page itself at the root.
pub(crate) fn find(path: &str) -> Option<(&'static str, &'static [u8])> {
    let name = match path.trim_start_matches('/') {
        "" => "index.html",
        name => name,
    };
    FILES.iter().find(|(known, ..)| *known == name).map(|(_, kind, bytes)| (*kind, *bytes))
}
