use axum::extract::Path;
use axum::extract::rejection::PathRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;

use super::Fault;
use super::answer::typed;

/// Nothing from elsewhere is loaded, no script stands in the page itself, and no other page may show it in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

/// One file of the dashboard: its name, its type and its content.
type File = (&'static str, &'static str, &'static str);

/// The files that the page loads.
const FILES: &[File] = &[
    ("api.js", SCRIPT, include_str!("../../dashboard/api.js")),
    ("app.js", SCRIPT, include_str!("../../dashboard/app.js")),
    ("diagram.css", STYLE, hallpass_page::DIAGRAM_STYLE),
    ("diagram.js", SCRIPT, hallpass_page::DIAGRAM),
    ("dom.js", SCRIPT, hallpass_page::DOM),
    ("events.js", SCRIPT, include_str!("../../dashboard/events.js")),
    ("group.js", SCRIPT, include_str!("../../dashboard/group.js")),
    ("icon.svg", "image/svg+xml", include_str!("../../dashboard/icon.svg")),
    ("live.js", SCRIPT, include_str!("../../dashboard/live.js")),
    ("lock.js", SCRIPT, include_str!("../../dashboard/lock.js")),
    ("locks.js", SCRIPT, include_str!("../../dashboard/locks.js")),
    ("parts.js", SCRIPT, include_str!("../../dashboard/parts.js")),
    ("style.css", STYLE, include_str!("../../dashboard/style.css")),
    ("trace.js", SCRIPT, hallpass_page::TRACE),
    ("viewport.js", SCRIPT, hallpass_page::VIEWPORT),
];

/// The page that shows the group. It needs no right: it asks for what it shows with the token of its user.
pub(super) async fn page() -> Response {
    protected(HTML, include_str!("../../dashboard/index.html"))
}

/// Serves a file that the page loads.
pub(super) async fn file(name: Result<Path<String>, PathRejection>) -> Result<Response, Fault> {
    // A name that is not text is not one of our files.
    let found = name.ok().and_then(|Path(name)| FILES.iter().find(|(file, ..)| *file == name));
    let (_, kind, content) =
        found.ok_or_else(|| Fault::new(StatusCode::NOT_FOUND, "the dashboard has no such file"))?;
    Ok(protected(kind, content))
}

fn protected(kind: &'static str, content: &'static str) -> Response {
    let mut page = typed(kind, content);
    let headers = page.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_that_is_loaded_is_there_and_from_here() {
        let mut pages = vec![include_str!("../../dashboard/index.html")];
        pages.extend(FILES.iter().map(|(.., content)| *content));
        let mut loaded = 0;
        for page in pages {
            // An address elsewhere would make the page depend on it, and tell it who looks. The name of SVG's elements is none.
            let addresses = page.matches("://").count() - page.matches("http://www.w3.org/2000/svg").count();
            assert_eq!(addresses, 0, "{page}");
            for mark in ["\"/dashboard/", "from \"./"] {
                for after in page.split(mark).skip(1) {
                    let name = after.split('"').next().unwrap();
                    assert!(FILES.iter().any(|(file, ..)| *file == name), "{name} is not embedded");
                    loaded += 1;
                }
            }
            assert!(!page.contains(" style=\"") && !page.contains("onclick=\""), "the policy forbids it");
        }
        assert!(loaded >= FILES.len(), "files that nobody loads");
    }
}
