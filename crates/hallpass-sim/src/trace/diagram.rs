//! The body of the space-time diagram: lifelines, states, messages, events, labels.
//!
//! Every element that stands for an event carries `data-i`, the event's index, and what spans two events also `data-j`,
//! so that a script can find it.

use std::fmt::Write;

use hallpass_core::Mode;

use super::labels::{BOLD, Board, Rect, text_width};
use super::layout::{Arrow, Layout, Outcome, Span, State};
use super::svg::{colour, escape, px};
use super::text::{describe, timestamp};
use super::{EventKind, Trace};

const LABEL_FONT_PX: f64 = 11.0;
/// How many lines besides its own a label may cross. Across more it is unclear what it labels.
const CROSSINGS_MAX: usize = 1;
/// How many messages before a violation, or in a short trace, get a label even across other lines.
const EXPLAINED_MAX: usize = 8;
/// Half the height of the bar for the critical section.
const BAR_PX: f64 = 8.0;
/// The y coordinate of the lowest row of notes about the whole group, above the first lane.
const NOTE_Y: f64 = -34.0;
/// The distance between two rows of notes.
const NOTE_ROW_PX: f64 = 16.0;
/// The height of the diagram below its lowest lane.
pub(super) const FOOT_PX: f64 = 56.0;

/// The height of the diagram above its first lane.
pub(super) fn head_px(trace: &Trace) -> f64 {
    let has_notes =
        trace.events.iter().any(|event| matches!(event.kind, EventKind::Network(_) | EventKind::Violation(_)));
    if has_notes { 14.0 + NOTE_ROW_PX - NOTE_Y } else { 30.0 }
}

/// The diagram with its first lane at y = 0, for a picture of this width.
pub(super) fn draw(trace: &Trace, layout: &Layout, width: f64) -> String {
    let mut painter = Painter { trace, layout, width, board: Board::default(), out: String::new() };
    painter.axis();
    painter.lifelines();
    for span in &layout.spans {
        painter.span(span);
    }
    for arrow in &layout.arrows {
        painter.arrow(arrow);
    }
    for index in 0..trace.events.len() {
        painter.event(index);
    }
    painter.labels();
    painter.names();
    painter.out
}

struct Painter<'a> {
    trace: &'a Trace,
    layout: &'a Layout,
    width: f64,
    /// The areas that labels must avoid.
    board: Board,
    out: String,
}

impl Painter<'_> {
    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        self.out.write_fmt(element).expect("writing to a String cannot fail");
        self.out.push('\n');
    }

    fn axis(&mut self) {
        let (top, bottom) = (px(-22.0), px(self.layout.bottom() + 24.0));
        let text_y = px(self.layout.bottom() + 40.0);
        for (x, label) in &self.layout.marks {
            let x = px(*x);
            self.put(format_args!("<path class=\"grid\" d=\"M{x} {top}V{bottom}\"/>"));
            self.put(format_args!("<text class=\"mark\" x=\"{x}\" y=\"{text_y}\">{label}</text>"));
        }
    }

    fn lifelines(&mut self) {
        for row in 0..self.layout.rows.len() {
            let y = self.layout.y(row);
            self.board.block(Rect { x0: self.layout.left, y0: y - 2.0, x1: self.layout.right, y1: y + 2.0 });
            for (x0, x1) in self.layout.alive(row) {
                self.put(format_args!("<path class=\"life\" d=\"M{} {}H{}\"/>", px(x0), px(y), px(x1)));
            }
        }
    }

    fn span(&mut self, span: &Span) {
        let y = self.layout.y(span.row);
        let (class, half) = match span.state {
            State::Paused => ("paused", 12.0),
            State::Waiting => ("waiting", 3.5),
            State::Inside(Mode::Exclusive) => ("inside", BAR_PX),
            State::Inside(Mode::Shared) => ("inside shared", BAR_PX),
            State::Down => ("down", 12.0),
            State::Away => ("away", 0.0),
        };
        // A state without duration is drawn too, so it must be wide enough to be seen.
        let (x0, x1) = (span.x0, span.x1.max(span.x0 + 2.0));
        self.board.block(Rect { x0, y0: y - half, x1, y1: y + half });
        let (indices, title) = (self.indices(span), escape(&self.span_title(span)));
        if span.state == State::Away {
            let d = format!("M{} {}H{}", px(x0), px(y), px(x1));
            self.put(format_args!("<path class=\"{class}\"{indices} d=\"{d}\"><title>{title}</title></path>"));
            return;
        }
        let fill = if span.state == State::Paused { " fill=\"url(#hallpass-hatch)\"" } else { "" };
        self.put(format_args!(
            "<rect class=\"{class}\"{indices}{fill} x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\">\
             <title>{title}</title></rect>",
            px(x0),
            px(y - half),
            px(x1 - x0),
            px(half * 2.0)
        ));
        self.span_label(span);
    }

    fn indices(&self, span: &Span) -> String {
        let last = span.last.unwrap_or(self.trace.events.len());
        span.first.map_or(String::new(), |first| format!(" data-i=\"{first}\" data-j=\"{last}\""))
    }

    fn span_title(&self, span: &Span) -> String {
        let state = match span.state {
            State::Paused => "paused",
            State::Waiting => "waits",
            State::Inside(Mode::Exclusive) => "inside",
            State::Inside(Mode::Shared) => "inside, shared",
            State::Down => "down",
            State::Away => "not a member",
        };
        let fence = self.fence(span).map_or(String::new(), |fence| format!(", fence {fence}"));
        let time = |index: usize| timestamp(self.trace.scale, self.trace.events[index].at);
        let from = span.first.map_or("the start".into(), time);
        let to = span.last.map_or("the end".into(), time);
        format!("node {} {state}{fence}: {from} to {to}", self.layout.rows[span.row])
    }

    fn fence(&self, span: &Span) -> Option<u64> {
        match self.trace.events[span.first?].kind {
            EventKind::Enter { fence, .. } => Some(fence),
            _ => None,
        }
    }

    /// The fence is written into the bar if the bar is wide enough.
    fn span_label(&mut self, span: &Span) {
        let Some(fence) = self.fence(span) else { return };
        let texts = [format!("fence {fence}"), fence.to_string()];
        // The sign of a violation covers the beginning of the bar.
        let sign = span.first.filter(|first| self.is_violation(*first)).map_or(0.0, |_| 12.0);
        let room = span.x1 - span.x0 - 8.0 - sign;
        let Some(text) = texts.into_iter().find(|text| text_width(text, LABEL_FONT_PX) <= room) else { return };
        let (x, y) = (px((span.x0 + sign + span.x1) / 2.0), px(self.layout.y(span.row) + 4.0));
        let indices = self.indices(span);
        self.put(format_args!(
            "<text class=\"fence\"{indices} x=\"{x}\" y=\"{y}\" pointer-events=\"none\">{text}</text>"
        ));
    }

    /// True if an entry violates something: that is the next event.
    fn is_violation(&self, index: usize) -> bool {
        let mut next = self.trace.events[index..].iter().take(2);
        next.any(|event| matches!(event.kind, EventKind::Violation(_)))
    }

    fn arrow(&mut self, arrow: &Arrow) {
        let EventKind::Send { to, kind, text, .. } = &self.trace.events[arrow.send].kind else { return };
        let time = |index: usize| timestamp(self.trace.scale, self.trace.events[index].at);
        let end = match (arrow.outcome, arrow.end) {
            (Outcome::Delivered, Some(end)) => format!("arrives {}", time(end)),
            (Outcome::Lost, Some(end)) => format!("lost {}", time(end)),
            _ => "still in flight at the end".into(),
        };
        let from = self.trace.events[arrow.send].node;
        let title = escape(&format!("{text} from {from} to {to}: sent {}, {end}", time(arrow.send)));
        let class = match arrow.outcome {
            Outcome::Delivered => "message",
            Outcome::Lost => "message lost",
            Outcome::InFlight => "message flying",
        };
        let path = line_path(arrow);
        let indices = message_indices(arrow);
        let tip = match arrow.outcome {
            Outcome::Delivered => format!("<path class=\"head\" d=\"{}\"/>", head_path(arrow)),
            Outcome::Lost => format!("<path class=\"cross\" d=\"{}\"/>", cross_path(arrow.to, 5.0)),
            Outcome::InFlight => String::new(),
        };
        self.board.line(arrow.from, arrow.to);
        self.put(format_args!(
            "<g class=\"{class} k{}\"{indices}><title>{title}</title><path class=\"hit\" d=\"{path}\"/>\
             <path class=\"line\" d=\"{path}\"/>{tip}</g>",
            colour(&self.layout.kinds, kind)
        ));
    }

    fn event(&mut self, index: usize) {
        let event = &self.trace.events[index];
        let (x, y) = self.layout.positions[index];
        self.board.block(Rect::around((x, y), 8.0, 8.0));
        let shape = match &event.kind {
            EventKind::Request(_) | EventKind::Try(_) => {
                format!("<path class=\"ask\" d=\"M{} {}l-4 -9h8z\"/>", px(x), px(y - 3.0))
            }
            EventKind::Crash => format!("<path class=\"crash\" d=\"{}\"/>", cross_path((x, y), 7.0)),
            EventKind::Cancel => {
                format!("<path class=\"crash\" stroke-width=\"1.5\" d=\"{}\"/>", cross_path((x, y), 4.0))
            }
            EventKind::Restart
            | EventKind::Refused
            | EventKind::Downgrade
            | EventKind::Upgrade
            | EventKind::GiveBack
            | EventKind::Forget
            | EventKind::Join
            | EventKind::Joined
            | EventKind::Leave
            | EventKind::Left
            | EventKind::Pause
            | EventKind::Resume => {
                format!("<circle class=\"sign\" cx=\"{}\" cy=\"{}\" r=\"4\"/>", px(x), px(y))
            }
            EventKind::Timer(_) => format!("<path class=\"sign\" d=\"M{} {}l4 4l-4 4l-4 -4z\"/>", px(x), px(y - 4.0)),
            EventKind::Network(_) => self.vertical("network", x),
            EventKind::Violation(_) => {
                let ring = format!("<circle class=\"violation-ring\" cx=\"{}\" cy=\"{}\" r=\"10\"/>", px(x), px(y));
                let bang = format!("<text class=\"bang\" x=\"{}\" y=\"{}\">!</text>", px(x), px(y + 4.5));
                self.vertical("violation-line", x) + &ring + &bang
            }
            EventKind::Lose { .. } if y != self.layout.y(self.layout.row(event.node)) => {
                // The arrow already shows a cross. This only gives the mouse something to point at.
                format!("<circle class=\"dot\" fill-opacity=\"0\" cx=\"{}\" cy=\"{}\" r=\"5\"/>", px(x), px(y))
            }
            _ => format!("<circle class=\"dot\" cx=\"{}\" cy=\"{}\" r=\"2.4\"/>", px(x), px(y)),
        };
        let words = format!("{} node {} {}", timestamp(self.trace.scale, event.at), event.node, describe(&event.kind));
        self.put(format_args!("<g class=\"event\" data-i=\"{index}\"><title>{}</title>{shape}</g>", escape(&words)));
    }

    fn vertical(&self, class: &str, x: f64) -> String {
        format!("<path class=\"{class}\" d=\"M{} {}V{}\"/>", px(x), px(NOTE_Y + 4.0), px(self.layout.bottom() + 24.0))
    }

    /// Labels come last, when everything that they must avoid is known. Rare events are labelled before messages.
    fn labels(&mut self) {
        for index in 0..self.trace.events.len() {
            self.event_label(index);
        }
        let layout = self.layout;
        let mut arrows: Vec<&Arrow> = layout.arrows.iter().collect();
        // What comes just before a violation explains it: its messages have the first choice of places.
        let violation = self.trace.events.iter().position(|event| matches!(event.kind, EventKind::Violation(_)));
        if let Some(violation) = violation {
            arrows.sort_by_key(|arrow| {
                let explains = arrow.end.is_some_and(|end| end < violation);
                if explains { (0, violation - arrow.send) } else { (1, arrow.send) }
            });
        }
        for (number, arrow) in arrows.into_iter().enumerate() {
            // A way to a deadlock has no such moment; all of it explains it, if it is short.
            let explains = violation.is_some() || layout.arrows.len() <= EXPLAINED_MAX;
            self.arrow_label(arrow, explains && number < EXPLAINED_MAX);
        }
    }

    fn event_label(&mut self, index: usize) {
        let (x, y) = self.layout.positions[index];
        let (class, text, top) = match &self.trace.events[index].kind {
            EventKind::Violation(text) => ("note violation-note", text.as_str(), true),
            EventKind::Network(text) => ("note", text.as_str(), true),
            EventKind::Timer(name) => ("label", name.as_str(), false),
            EventKind::Crash => ("label", "crash", false),
            EventKind::Restart => ("label", "restart", false),
            EventKind::Cancel => ("label", "gives up", false),
            EventKind::Refused => ("label", "refused", false),
            EventKind::Try(_) => ("label", "tries", false),
            EventKind::Downgrade => ("label", "downgrade", false),
            EventKind::Upgrade => ("label", "upgrade", false),
            EventKind::GiveBack => ("label", "gives back", false),
            EventKind::Forget => ("label", "forgets", false),
            EventKind::Join => ("label", "join", false),
            EventKind::Joined => ("label", "joined", false),
            EventKind::Leave => ("label", "leave", false),
            EventKind::Left => ("label", "left", false),
            EventKind::Pause => ("label", "pause", false),
            EventKind::Resume => ("label", "resume", false),
            _ => return,
        };
        let bold = if top { BOLD } else { 1.0 };
        let width = text_width(text, LABEL_FONT_PX) * bold + 6.0;
        let place = |dx: f64, y: f64| Rect::around((x + dx, y), width, 13.0);
        // A note begins at its line, or ends there if there is no room on the right.
        let note = |dx: f64, row: f64| place(dx, NOTE_Y - 4.0 - row * NOTE_ROW_PX);
        let half = width / 2.0;
        let notes = [note(half, 0.0), note(half, 1.0), note(-half, 0.0), note(-half, 1.0)];
        let beside =
            [place(0.0, y + 20.0), place(0.0, y - 20.0), place(half - 8.0, y + 20.0), place(8.0 - half, y + 20.0)];
        let places = if top { &notes[..] } else { &beside[..] };
        let (left, right) = self.edges();
        let fits: Vec<Rect> = places.iter().filter_map(|place| place.within(left, right)).collect();
        if let Some(rect) = self.board.place(&fits, CROSSINGS_MAX) {
            self.text(&format!("label {class}"), &format!(" data-i=\"{index}\""), rect, text);
        }
    }

    /// Between these x coordinates a label is neither cut off nor hidden by the names.
    fn edges(&self) -> (f64, f64) {
        (self.layout.left - 6.0, self.width - 4.0)
    }

    /// With `always` it may lie beside its line and across others, if there is no better place.
    fn arrow_label(&mut self, arrow: &Arrow, always: bool) {
        let EventKind::Send { kind, text, .. } = &self.trace.events[arrow.send].kind else { return };
        let (width, height) = (text_width(text, LABEL_FONT_PX) + 4.0, 13.0);
        let at_fraction = |fraction: f64| {
            let (dx, dy) = (arrow.to.0 - arrow.from.0, arrow.to.1 - arrow.from.1);
            Rect::around((arrow.from.0 + dx * fraction, arrow.from.1 + dy * fraction), width, height)
        };
        let (left, right) = self.edges();
        let on_line = [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74].map(at_fraction);
        let beside = on_line.into_iter().flat_map(|place| [0.3, -0.3].map(|shift| place.moved(shift * width)));
        let inside = |place: Rect| place.within(left, right);
        let on_line: Vec<Rect> = on_line.into_iter().filter_map(inside).collect();
        // Its own line always counts as one crossing.
        let mut place = self.board.place(&on_line, CROSSINGS_MAX + 1);
        if always && place.is_none() {
            let anywhere: Vec<Rect> = on_line.into_iter().chain(beside.filter_map(inside)).collect();
            place = self.board.place(&anywhere, usize::MAX);
        }
        if let Some(rect) = place {
            let class = format!("label k{}", colour(&self.layout.kinds, kind));
            self.text(&class, &message_indices(arrow), rect, text);
        }
    }

    fn text(&mut self, class: &str, indices: &str, rect: Rect, text: &str) {
        let (x, y) = (px((rect.x0 + rect.x1) / 2.0), px(rect.y1 - 3.0));
        let text = escape(text);
        self.put(format_args!(
            "<text class=\"{class}\"{indices} x=\"{x}\" y=\"{y}\" pointer-events=\"none\">{text}</text>"
        ));
    }

    /// The names form one group, so that a script can keep them at the left edge while the diagram scrolls.
    fn names(&mut self) {
        let top = head_px(self.trace);
        let (width, height) = (px(self.layout.left - 8.0), px(top + self.layout.bottom() + FOOT_PX));
        self.put(format_args!("<g class=\"names\">"));
        self.put(format_args!(
            "<rect class=\"ground\" x=\"0\" y=\"{}\" width=\"{width}\" height=\"{height}\"/>",
            px(-top)
        ));
        for (row, node) in self.layout.rows.iter().enumerate() {
            let y = px(self.layout.y(row) + 4.5);
            self.put(format_args!("<text class=\"name\" x=\"16\" y=\"{y}\">{node}<title>node {node}</title></text>"));
        }
        self.put(format_args!("</g>"));
    }
}

fn message_indices(arrow: &Arrow) -> String {
    let end = arrow.end.map_or(String::new(), |end| format!(" data-j=\"{end}\""));
    format!(" data-i=\"{}\"{end}", arrow.send)
}

/// A straight line, or an arc for a message that a node sends to itself.
fn line_path(arrow: &Arrow) -> String {
    let ((x0, y0), (x1, y1)) = (arrow.from, arrow.to);
    if y0 == y1 {
        let (middle, height) = ((x0 + x1) / 2.0, y0 - 30.0);
        return format!("M{} {}Q{} {} {} {}", px(x0), px(y0), px(middle), px(height), px(x1), px(y1));
    }
    format!("M{} {}L{} {}", px(x0), px(y0), px(x1), px(y1))
}

/// The arrow's head, as a separate triangle: not every viewer draws SVG markers in the colour of their line.
fn head_path(arrow: &Arrow) -> String {
    let ((x0, y0), (x, y)) = (arrow.from, arrow.to);
    let angle = if y0 == y { 60_f64.to_radians() } else { (y - y0).atan2(x - x0) };
    let corner = |turn: f64| (x - 9.0 * (angle + turn).cos(), y - 9.0 * (angle + turn).sin());
    let ((ax, ay), (bx, by)) = (corner(0.36), corner(-0.36));
    format!("M{} {}L{} {}L{} {}z", px(x), px(y), px(ax), px(ay), px(bx), px(by))
}

fn cross_path((x, y): (f64, f64), half: f64) -> String {
    let (x0, x1, y0, y1) = (px(x - half), px(x + half), px(y - half), px(y + half));
    format!("M{x0} {y0}L{x1} {y1}M{x0} {y1}L{x1} {y0}")
}
