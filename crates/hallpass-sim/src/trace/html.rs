//! A trace as a self-contained HTML page: the diagram of the laboratory's page, with its controls to step through the run.
//!
//! The page draws with the same scripts as the laboratory. From here it gets the trace and the x coordinates.

use super::svg::escape;
use super::text::one_line;
use super::{Trace, columns_json, json};

/// The scripts, each after those that it imports from.
const SCRIPTS: &[(&str, &str)] = &[
    ("dom.js", hallpass_page::DOM),
    ("trace.js", hallpass_page::TRACE),
    ("viewport.js", hallpass_page::VIEWPORT),
    ("diagram.js", hallpass_page::DIAGRAM),
    ("player.js", hallpass_page::PLAYER),
    ("page.js", include_str!("page.js")),
];

/// The trace as an HTML page.
pub fn render(trace: &Trace) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>\n{diagram_style}{player_style}</style>\n</head>\n<body>\n<main id=\"main\"><noscript>This page needs JavaScript; --format svg draws without it.</noscript></main>\n\
         <div id=\"live\" class=\"unseen\" aria-live=\"polite\"></div>\n\
         <script type=\"application/json\" id=\"run\">\n{data}</script>\n\
         <script>\n{script}</script>\n</body>\n</html>\n",
        title = escape(&one_line(&trace.title)),
        diagram_style = hallpass_page::DIAGRAM_STYLE,
        player_style = hallpass_page::PLAYER_STYLE,
        data = script_safe(&data(trace)),
        script = hallpass_page::bundle(SCRIPTS),
    )
}

/// What the scripts take, as the laboratory's server answers it. The variables of the nodes are not part of a trace.
fn data(trace: &Trace) -> String {
    format!("{{\"trace\": {},\n\"x\": {},\n\"states\": []}}\n", json::render(trace), columns_json(trace))
}

/// Escapes the JSON so that no text in it can end the script element or open a comment. It decodes to the same value.
fn script_safe(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::layout::columns;
    use crate::trace::{EventKind, sample};

    /// The part of the page between two strings.
    fn between<'a>(page: &'a str, open: &str, close: &str) -> &'a str {
        let (_, rest) = page.split_once(open).expect("the opening string is there");
        rest.split_once(close).expect("the closing string is there").0
    }

    fn embedded(trace: &Trace) -> serde_json::Value {
        serde_json::from_str(between(&render(trace), "id=\"run\">", "</script>")).expect("the data is JSON")
    }

    #[test]
    fn no_text_escapes_from_its_place() {
        let mut trace = sample::two_nodes();
        trace.title = "</title><script>alert(1)</script><!--".into();
        if let EventKind::Send { text, .. } = &mut trace.events[1].kind {
            *text = "</script><img src=x onerror=alert(1)>".into();
        }
        let page = render(&trace);
        assert!(!page.contains("<script>alert") && !page.contains("<img") && !page.contains("<!--"));
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(page.contains("<title>&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&lt;!--</title>\n<style>"));
    }

    #[test]
    fn the_embedded_data_is_the_trace_at_the_places_of_the_svg() {
        let trace = sample::everything();
        let embedded = embedded(&trace);
        let direct: serde_json::Value = serde_json::from_str(&json::render(&trace)).unwrap();
        assert_eq!(embedded["trace"], direct);
        let x: Vec<f64> = embedded["x"].as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect();
        let drawn = columns(&trace);
        assert!(x.len() == drawn.len() && x.iter().zip(drawn).all(|(x, drawn)| (x - drawn).abs() <= 0.05), "{x:?}");
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = render(&sample::everything()).replace("http://www.w3.org/2000/svg", "");
        assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src="));
        assert!(!page.lines().any(|line| line.starts_with("import ")));
    }

    #[test]
    fn the_same_trace_gives_the_same_page() {
        assert_eq!(render(&sample::everything()), render(&sample::everything()));
    }
}
