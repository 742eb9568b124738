//! The document around a chart: size, colours, and text that cannot break out of its element.

use std::fmt::Write;

/// How many series have a colour of their own.
pub const PALETTE_LENGTH: usize = 12;

/// A series' colour on white and on black: apart in lightness too, for readers who see few colours.
const PALETTE: [(&str, &str); PALETTE_LENGTH] = [
    ("#1f6fc4", "#6cb0f5"),
    ("#c2410c", "#fb923c"),
    ("#15803d", "#4ade80"),
    ("#9333ea", "#c084fc"),
    ("#0aa5b8", "#67e8f9"),
    ("#be185d", "#f472b6"),
    ("#b7860b", "#facc15"),
    ("#111827", "#f3f4f6"),
    ("#7f1d1d", "#f87171"),
    ("#65a30d", "#bef264"),
    ("#1e3a8a", "#818cf8"),
    ("#9ca3af", "#9ca3af"),
];

/// The class that gives an element the colour of this series. Later series use the colours again.
pub(crate) fn class(series: usize) -> String {
    format!("c{}", series % PALETTE_LENGTH)
}

/// Puts the drawing into a document of this size.
pub(crate) fn document(width: f64, height: f64, body: &str) -> String {
    let light = theme(|(light, _)| light, "#fff", "#111827", "#4b5563", "#e5e7eb");
    let dark = theme(|(_, dark)| dark, "#0d1117", "#e5e7eb", "#9ca3af", "#30363d");
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         width=\"{width:.0}\" height=\"{height:.0}\" font-family=\"system-ui, sans-serif\" font-size=\"11\">\
         <style>{light}@media(prefers-color-scheme:dark){{{dark}}}{FIXED}</style>\
         <rect class=\"paper\" width=\"100%\" height=\"100%\"/>{body}</svg>"
    )
}

/// The rules that depend on the background. Where two rules fit an element the later one counts.
fn theme(
    colour: fn((&'static str, &'static str)) -> &'static str,
    paper: &str,
    ink: &str,
    faint: &str,
    grid: &str,
) -> String {
    let mut rules = String::new();
    for (index, colours) in PALETTE.into_iter().enumerate() {
        let colour = colour(colours);
        let _ = write!(rules, ".chart .c{index}{{stroke:{colour};fill:{colour}}}");
    }
    let _ = write!(
        rules,
        ".chart text{{fill:{ink}}}.chart .faint{{fill:{faint}}}.chart .grid{{stroke:{grid}}}\
         .chart .paper,.chart .hollow{{fill:{paper}}}"
    );
    rules
}

/// What is the same on any background.
const FIXED: &str = ".chart .line{fill:none;stroke-width:2.2}.chart .bar{stroke:none}\
    .chart .title{font-size:13px;font-weight:600}.chart .leader{opacity:.6;stroke-width:1}";

/// Text in an element or in an attribute.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// Adds a text with these classes.
pub(crate) fn text(svg: &mut String, x: f64, y: f64, anchor: Anchor, class: &str, text: &str) {
    let anchor = match anchor {
        Anchor::Start => "",
        Anchor::Middle => " text-anchor=\"middle\"",
        Anchor::End => " text-anchor=\"end\"",
    };
    let _ = write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\"{anchor}>{}</text>", escape(text));
}

/// Adds a straight line with these classes.
pub(crate) fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), class: &str) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = write!(svg, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_out() {
        let mut svg = String::new();
        text(&mut svg, 1.0, 2.0, Anchor::End, "", "<i> & \"x\"");
        assert!(svg.contains(">&lt;i&gt; &amp; &quot;x&quot;</text>"), "{svg}");
    }

    #[test]
    fn colours_are_given_twice_and_used_again() {
        let svg = document(10.0, 20.0, "");
        for (light, dark) in PALETTE {
            assert!(svg.contains(light) && svg.contains(dark));
        }
        assert_eq!(class(1), class(1 + PALETTE_LENGTH));
    }
}
