//! A trace as a self-contained HTML page: the diagram, and controls to step through it.
//!
//! The page's script knows no geometry. It reads what [`svg`](super::svg) drew: `data-i` and `data-j` say which events
//! an element belongs to, and each entry of the list has the coordinates of its event.

use std::fmt::Write;

use super::layout::Layout;
use super::svg::{draw, escape, px};
use super::text::{describe, one_line, timestamp};
use super::{EventKind, Trace, json};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const CONTROLS: &str = include_str!("page_controls.html");

/// The trace as an HTML page.
pub fn render(trace: &Trace) -> String {
    let layout = Layout::new(trace);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n{CONTROLS}\
         <main>\n<div id=\"diagram\">\n{diagram}</div>\n\
         <aside>\n<ul id=\"nodes\">{nodes}</ul>\n<ol id=\"events\">\n{events}</ol>\n</aside>\n</main>\n\
         <div id=\"tip\" hidden></div>\n\
         <script type=\"application/json\" id=\"trace\">\n{data}</script>\n\
         <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
        title = escape(&one_line(&trace.title)),
        diagram = draw(trace, &layout),
        nodes = nodes(&layout),
        events = events(trace, &layout),
        data = script_safe(&json::render(trace)),
    )
}

fn nodes(layout: &Layout) -> String {
    layout.rows.iter().map(|node| format!("<li data-node=\"{node}\"><b>{node}</b> <span></span></li>")).collect()
}

fn events(trace: &Trace, layout: &Layout) -> String {
    let mut out = String::new();
    for (event, (x, y)) in trace.events.iter().zip(&layout.positions) {
        let class = if matches!(event.kind, EventKind::Violation(_)) { " class=\"violation\"" } else { "" };
        writeln!(
            out,
            "<li{class} data-x=\"{}\" data-y=\"{}\"><time>{}</time> <b>{}</b> <span>{}</span></li>",
            px(*x),
            px(*y),
            timestamp(trace.scale, event.at),
            event.node,
            escape(&describe(&event.kind))
        )
        .expect("writing to a String cannot fail");
    }
    out
}

/// Escapes the JSON so that no text in it can end the script element or open a comment. It decodes to the same value.
fn script_safe(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::sample;

    /// The part of the page between two strings.
    fn between<'a>(page: &'a str, open: &str, close: &str) -> &'a str {
        let (_, rest) = page.split_once(open).expect("the opening string is there");
        rest.split_once(close).expect("the closing string is there").0
    }

    #[test]
    fn the_page_holds_the_same_diagram() {
        let trace = sample::everything();
        assert!(render(&trace).contains(&super::super::to_svg(&trace)));
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
    fn the_embedded_data_is_the_trace() {
        let trace = sample::two_nodes();
        let page = render(&trace);
        let data = between(&page, "id=\"trace\">", "</script>");
        let embedded: serde_json::Value = serde_json::from_str(data).expect("the data is JSON");
        let direct: serde_json::Value = serde_json::from_str(&json::render(&trace)).unwrap();
        assert_eq!(embedded, direct);
    }

    #[test]
    fn the_list_has_every_event_in_order() {
        let trace = sample::two_nodes();
        let page = render(&trace);
        let list = between(&page, "<ol id=\"events\">", "</ol>");
        assert_eq!(list.matches("<li").count(), trace.events.len());
        assert!(list.contains("<time>0.000 T</time> <b>1</b> <span>asks</span>"));
        assert!(list.contains("<span>loses PROBE&lt;&amp;&quot;&gt; from 2</span>"));
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere() {
        let page = render(&sample::everything()).replace("http://www.w3.org/2000/svg", "");
        assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("src="));
    }

    #[test]
    fn every_element_that_the_script_looks_up_exists() {
        let page = render(&sample::two_nodes());
        let ids: Vec<&str> =
            SCRIPT.split("find(\"#").skip(1).filter_map(|rest| rest.split(['"', ' ']).next()).collect();
        assert!(ids.len() > 5, "{ids:?}");
        for id in ids {
            assert!(page.contains(&format!(" id=\"{id}\"")), "nothing has the id '{id}'");
        }
    }

    #[test]
    fn the_same_trace_gives_the_same_page() {
        assert_eq!(render(&sample::everything()), render(&sample::everything()));
    }
}
