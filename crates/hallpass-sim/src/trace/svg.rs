//! A trace as a space-time diagram in one self-contained SVG.
//!
//! Each node has a lifeline, time runs from left to right, and messages are slanted arrows in the colour of their kind.
//! A thin bar is waiting, a thick one the critical section; violations are red. Every element has a tooltip. This file draws the frame, title and legend; [`diagram`](super::diagram) draws the rest.

use std::fmt::Write;

use hallpass_core::Mode;

use super::labels::{BOLD, text_width};
use super::layout::{Layout, Outcome, State};
use super::text::{describe, one_line, timestamp};
use super::{EventKind, Trace, diagram};

const STYLE: &str = include_str!("diagram.css");
const HATCH: &str = "<defs><pattern id=\"hallpass-hatch\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\" \
                     patternTransform=\"rotate(45)\"><path class=\"hatch\" d=\"M0 0V6\"/></pattern></defs>\n";
/// No line of the head is wider, so that all of it is visible beside the list of events.
const SCREEN_PX: f64 = 960.0;
/// How many colours there are for messages. If there are more kinds, some share a colour.
const COLOURS: usize = 8;

/// The trace as an SVG.
pub fn render(trace: &Trace) -> String {
    draw(trace, &Layout::new(trace))
}

/// The trace as an SVG with this geometry.
pub(super) fn draw(trace: &Trace, layout: &Layout) -> String {
    let head = Head::new(trace, layout);
    let top = head.height + diagram::head_px(trace);
    let (width, height) = (px(head.width), px(top + layout.bottom() + diagram::FOOT_PX));
    let title = escape(&one_line(&trace.title));
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"hallpass-trace\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}\">\n"
    );
    write!(out, "<style>\n{STYLE}</style>\n{HATCH}").expect("writing to a String cannot fail");
    writeln!(out, "<rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>")
        .expect("writing to a String cannot fail");
    writeln!(out, "<g class=\"body\" transform=\"translate(0 {})\">", px(top))
        .expect("writing to a String cannot fail");
    out.push_str(&diagram::draw(trace, layout, head.width));
    writeln!(out, "</g>\n<g class=\"top\">\n{}</g>\n</svg>", head.out).expect("writing to a String cannot fail");
    out
}

/// The colour of a kind of message. REQUEST and REPLY, which most protocols have, look the same in all diagrams.
pub(super) fn colour(kinds: &[&str], kind: &str) -> usize {
    match kind {
        "REQUEST" => 0,
        "REPLY" => 1,
        _ => {
            let others = kinds.iter().filter(|kind| !["REQUEST", "REPLY"].contains(kind));
            2 + others.take_while(|other| **other != kind).count() % (COLOURS - 2)
        }
    }
}

/// A length, with no more digits than are visible.
pub(super) fn px(length: f64) -> String {
    let text = format!("{length:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".into() } else { text.into() }
}

/// Escapes a text for an element or an attribute.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // XML cannot represent these, not even escaped.
            '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}

/// Title, violations and legend.
struct Head {
    out: String,
    width: f64,
    height: f64,
    /// The x coordinate of the legend's next entry.
    x: f64,
}

impl Head {
    fn new(trace: &Trace, layout: &Layout) -> Self {
        let mut head = Head { out: String::new(), width: (layout.right + 24.0).max(480.0), height: 4.0, x: 16.0 };
        for line in wrapped(&one_line(&trace.title), 15.0) {
            head.height += 22.0;
            head.width = head.width.max(text_width(&line, 15.0) * BOLD + 32.0);
            head.text("title", 16.0, &line);
        }
        if let Some(alarm) = alarm(trace) {
            head.height += 22.0;
            head.width = head.width.max(text_width(&alarm, 13.0) * BOLD + 32.0);
            head.text("alarm", 16.0, &alarm);
        }
        head.height += 24.0;
        for kind in &layout.kinds {
            let line = "<path class=\"line\" d=\"M0 0H22\"/><path class=\"head\" d=\"M26 0l-8 -3.5v7z\"/>";
            head.entry(&format!("k{}", colour(&layout.kinds, kind)), line, kind);
        }
        head.states(trace, layout);
        head.height += 8.0;
        head
    }

    /// The legend of what occurs in the trace, besides kinds of messages.
    fn states(&mut self, trace: &Trace, layout: &Layout) {
        let bar = |class: &str, half: f64| {
            let fill = if class == "paused" { " fill=\"url(#hallpass-hatch)\"" } else { "" };
            format!(
                "<rect class=\"{class}\"{fill} x=\"0\" y=\"{}\" width=\"26\" height=\"{}\"/>",
                px(-half),
                px(half * 2.0)
            )
        };
        let entries = [
            (State::Waiting, bar("waiting", 3.5), "waiting"),
            (State::Inside(Mode::Exclusive), bar("inside", 6.0), "inside"),
            (State::Inside(Mode::Shared), bar("inside shared", 6.0), "inside, shared"),
            (State::Paused, bar("paused", 6.0), "paused"),
            (State::Down, bar("down", 6.0), "down"),
            (State::Away, "<path class=\"away\" d=\"M0 0H26\"/>".into(), "not a member"),
        ];
        for (state, shape, name) in entries {
            if layout.spans.iter().any(|span| span.state == state) {
                self.entry("", &shape, name);
            }
        }
        if layout.arrows.iter().any(|arrow| arrow.outcome == Outcome::Lost) {
            self.entry(
                "k7",
                "<path class=\"line\" d=\"M0 0H20\"/><path class=\"cross\" d=\"M16 -4l8 8M16 4l8 -8\"/>",
                "lost",
            );
        }
        if layout.arrows.iter().any(|arrow| arrow.outcome == Outcome::InFlight) {
            self.entry("k7 flying", "<path class=\"line\" d=\"M0 0H26\"/>", "never arrives");
        }
        if trace.events.iter().any(|event| matches!(event.kind, EventKind::Timer(_))) {
            self.entry("", "<path class=\"sign\" d=\"M13 -4l4 4l-4 4l-4 -4z\"/>", "timer");
        }
    }

    fn text(&mut self, class: &str, x: f64, text: &str) {
        let (x, y, text) = (px(x), px(self.height), escape(text));
        writeln!(self.out, "<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>")
            .expect("writing to a String cannot fail");
    }

    fn entry(&mut self, class: &str, shape: &str, name: &str) {
        let width = 32.0 + text_width(name, 11.0) + 20.0;
        if self.x > 16.0 && self.x + width > self.width.min(SCREEN_PX) {
            self.x = 16.0;
            self.height += 20.0;
        }
        let (x, y) = (px(self.x), px(self.height - 4.0));
        writeln!(self.out, "<g class=\"{class}\" transform=\"translate({x} {y})\">{shape}</g>")
            .expect("writing to a String cannot fail");
        self.text("legend", self.x + 32.0, name);
        self.x += width;
    }
}

/// A text in lines that fit a screen.
fn wrapped(text: &str, font_px: f64) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_inclusive(' ') {
        let line = lines.last_mut().expect("there is always one");
        if !line.is_empty() && text_width(line, font_px) + text_width(word, font_px) > SCREEN_PX - 32.0 {
            lines.push(word.to_owned());
        } else {
            line.push_str(word);
        }
    }
    lines
}

/// A line about the violations, because they may be far to the right.
fn alarm(trace: &Trace) -> Option<String> {
    let mut violations = trace.events.iter().filter(|event| matches!(event.kind, EventKind::Violation(_)));
    let first = violations.next()?;
    let (time, words) = (timestamp(trace.scale, first.at), describe(&first.kind));
    let more = match violations.count() {
        0 => String::new(),
        count => format!(" (and {count} more)"),
    };
    Some(format!("{words}, node {} at {time}{more}", first.node))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::sample;

    fn count(text: &str, part: &str) -> usize {
        text.matches(part).count()
    }

    #[test]
    fn one_arrow_a_delivered_message_and_a_cross_a_lost_one() {
        let svg = render(&sample::two_nodes());
        assert_eq!(count(&svg, "<g class=\"message k"), 2);
        assert_eq!(count(&svg, "<g class=\"message k0\" data-i=\"1\" data-j=\"2\">"), 1);
        assert_eq!(count(&svg, "<g class=\"message k1\" data-i=\"3\" data-j=\"4\">"), 1);
        let lost =
            svg.lines().find(|line| line.contains("class=\"message lost k2\"")).expect("the lost message is drawn");
        assert!(lost.contains("<path class=\"cross\"") && !lost.contains("class=\"head\""));
    }

    #[test]
    fn every_event_can_be_found_by_its_index() {
        let trace = sample::everything();
        let svg = render(&trace);
        for index in 0..trace.events.len() {
            assert_eq!(count(&svg, &format!("<g class=\"event\" data-i=\"{index}\">")), 1);
        }
    }

    #[test]
    fn each_state_looks_different() {
        let svg = render(&sample::everything());
        for class in ["waiting", "inside", "inside shared", "paused", "down"] {
            assert!(svg.contains(&format!("<rect class=\"{class}\" data-i")), "{class} is missing");
        }
        assert!(svg.contains("<path class=\"away\""));
        assert!(svg.contains("<title>node 1 inside, fence 1: 7 to 9</title>"));
    }

    #[test]
    fn violations_are_marked_and_named_in_the_head() {
        let svg = render(&sample::everything());
        assert_eq!(count(&svg, "<path class=\"violation-line\""), 1);
        assert!(svg.contains(
            "<text class=\"alarm\" x=\"16\" y=\"48\">VIOLATION: nodes 1 &amp; 2 are inside, node 2 at 8</text>"
        ));
        assert!(!render(&sample::two_nodes()).contains("class=\"alarm\""));
    }

    #[test]
    fn text_is_escaped() {
        let mut trace = sample::two_nodes();
        trace.title = "a<b & \"c\" </title>\u{0}".into();
        let svg = render(&trace);
        assert!(svg.contains("aria-label=\"a&lt;b &amp; &quot;c&quot; &lt;/title&gt; \""));
        assert!(svg.contains("PROBE&lt;&amp;&quot;&gt;"));
        assert!(!svg.contains("PROBE<&") && !svg.contains('\0'));
    }

    #[test]
    fn the_same_trace_gives_the_same_picture() {
        assert_eq!(render(&sample::everything()), render(&sample::everything()));
    }

    /// The x coordinates between which each text of a class lies.
    fn extents(svg: &str, class: &str, font_px: f64) -> Vec<(f64, f64, String)> {
        let of = |line: &str| {
            let x: f64 = line.split(" x=\"").nth(1)?.split('"').next()?.parse().ok()?;
            let text = line.split_once('>')?.1.split('<').next()?.to_owned();
            let half = text_width(&text, font_px) / 2.0;
            Some((x - half, x + half, text))
        };
        svg.lines().filter(|line| line.contains(&format!("<text class=\"{class}"))).filter_map(of).collect()
    }

    #[test]
    fn in_the_picture_of_a_violation_no_label_is_cut_off_and_every_message_has_one() {
        let trace = sample::violation();
        let layout = Layout::new(&trace);
        let svg = draw(&trace, &layout);
        let width: f64 = svg.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap();
        let labels = extents(&svg, "label", 11.0);
        for (x0, x1, text) in &labels {
            assert!(*x0 >= layout.left - 8.0 && *x1 <= width, "'{text}' from {x0} to {x1} of {width}");
        }
        let count = |wanted: &str| labels.iter().filter(|(.., text)| text == wanted).count();
        for (message, times) in [("REQUEST(1, shared)", 1), ("REQUEST(0)", 1), ("REPLY(1)", 1), ("REPLY(0)", 1)] {
            assert_eq!(count(message), times, "{message}");
        }
        assert_eq!(count("exclusion: node 2 entered exclusively while 1 reader was inside"), 1);
    }

    #[test]
    fn a_long_title_has_several_lines() {
        let trace = Trace { title: "word ".repeat(100), ..sample::two_nodes() };
        let svg = render(&trace);
        assert!(count(&svg, "<text class=\"title\"") > 1);
        let lines = wrapped(&trace.title, 15.0);
        assert_eq!(lines.concat(), trace.title);
        assert!(lines.iter().all(|line| text_width(line, 15.0) <= SCREEN_PX));
    }

    #[test]
    fn kinds_keep_their_colours() {
        let kinds = ["PROBE", "REPLY", "ACK"];
        assert_eq!(["REQUEST", "REPLY", "PROBE", "ACK"].map(|kind| colour(&kinds, kind)), [0, 1, 2, 3]);
    }

    #[test]
    fn labels_do_not_overlap() {
        let mut trace = sample::two_nodes();
        // The same message again at the same time: there is no room for its label, but it keeps its tooltip.
        trace.events.insert(2, sample::event(0, 1, sample::send(2, 9, "REQUEST", "REQUEST(1)")));
        trace.events.insert(3, sample::event(1000, 2, sample::deliver(1, 9, "REQUEST", "REQUEST(1)")));
        let svg = render(&trace);
        let labels: Vec<&str> = svg.lines().filter(|line| line.contains("class=\"label k0\"")).collect();
        let places: std::collections::BTreeSet<&str> =
            labels.iter().map(|line| &line[line.find(" x=").unwrap()..line.find(" pointer").unwrap()]).collect();
        assert_eq!(places.len(), labels.len());
        assert_eq!(count(&svg, "<title>REQUEST(1) from 1 to 2: sent 0.000 T, arrives 1.000 T</title>"), 2);
    }
}
