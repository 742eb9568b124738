use std::fmt::{Display, Write};

use crate::NodeId;

/// More items than this of a list are not written out: nobody reads them, and a run of a thousand nodes has a million.
const ITEMS_MAX: usize = 24;

/// The state of a protocol instance for people: the names of its paper's variables, with their values as text.
///
/// The order is the protocol's own, and stays the same from one look to the next.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Variables(Vec<(&'static str, String)>);

impl Variables {
    /// Adds a variable.
    pub fn set(&mut self, name: &'static str, value: impl Display) {
        self.0.push((name, value.to_string()));
    }

    /// Adds a variable that is TRUE or FALSE, as the papers write it.
    pub fn flag(&mut self, name: &'static str, value: bool) {
        self.set(name, if value { "TRUE" } else { "FALSE" });
    }

    /// Adds a variable that may have no value.
    pub fn optional(&mut self, name: &'static str, value: Option<impl Display>) {
        match value {
            Some(value) => self.set(name, value),
            None => self.set(name, "-"),
        }
    }

    /// Adds a list or a set, its items separated by spaces.
    pub fn list(&mut self, name: &'static str, items: impl IntoIterator<Item = impl Display>) {
        let (mut text, mut count) = (String::new(), 0);
        for item in items {
            count += 1;
            if count <= ITEMS_MAX {
                let space = if count > 1 { " " } else { "" };
                write!(text, "{space}{item}").expect("writing to a String cannot fail");
            }
        }
        match count {
            0 => text.push('-'),
            1..=ITEMS_MAX => {}
            _ => write!(text, " .. ({count} in all)").expect("writing to a String cannot fail"),
        }
        self.0.push((name, text));
    }

    /// Adds an array with an element for each of these nodes, as `1:4 2:0`.
    pub fn array(&mut self, name: &'static str, nodes: &[NodeId], values: &[u64]) {
        // Items that are not shown are not formatted either: a run has one list for every message.
        self.list(name, nodes.iter().zip(values).take(ITEMS_MAX).map(|(node, value)| format!("{node}:{value}")));
        if let Some((_, text)) = self.0.last_mut().filter(|_| nodes.len() > ITEMS_MAX) {
            write!(text, " .. ({} in all)", nodes.len()).expect("writing to a String cannot fail");
        }
    }

    /// The names and values, in order.
    pub fn pairs(&self) -> &[(&'static str, String)] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Options, Protocol, ProtocolKind, Visitor};
    use crate::{Bounds, InitialHolders, Setup, View};

    #[test]
    fn lists_are_cut_and_counted() {
        let mut variables = Variables::default();
        variables.list("none", [0u8; 0]);
        variables.list("some", [3, 1, 2]);
        variables.list("many", 0..1000);
        variables.array("array", &[NodeId(1), NodeId(7)], &[4, 0]);
        let texts: Vec<&str> = variables.pairs().iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!((texts[0], texts[1], texts[3]), ("-", "3 1 2", "1:4 7:0"));
        let nodes: Vec<NodeId> = (0..100).map(NodeId).collect();
        let mut large = Variables::default();
        large.array("large", &nodes, &[7; 100]);
        assert!(large.pairs()[0].1.ends_with(" 23:7 .. (100 in all)"), "{:?}", large.pairs());
        assert!(texts[2].starts_with("0 1 2 ") && texts[2].ends_with("23 .. (1000 in all)"), "{}", texts[2]);
    }

    struct Names;

    impl Visitor for Names {
        type Output = Vec<&'static str>;

        fn visit<P: Protocol + 'static>(self) -> Self::Output {
            let nodes = [NodeId(1), NodeId(2), NodeId(3)];
            let mut options = Options::default();
            (options.nodes, options.tick) = (nodes.to_vec(), 1);
            let (options, view) = (P::parse(&options).expect("no option is needed"), View::new(nodes));
            let (initial, bounds) = (InitialHolders::NOBODY, Bounds { transit_max: 1, section_max: 1 });
            let home = NodeId(1);
            let setup = Setup { me: NodeId(2), view: &view, initial, home, incarnation: 0, bounds, options: &options };
            let mut variables = Variables::default();
            P::new(&setup).variables(&mut variables);
            variables.pairs().iter().map(|(name, _)| *name).collect()
        }
    }

    #[test]
    fn every_protocol_shows_its_variables_each_once() {
        for kind in ProtocolKind::ALL {
            let mut names = kind.visit(Names);
            let count = names.len();
            assert!(count >= 2, "{kind}: {names:?}");
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "{kind} names a variable twice");
        }
    }
}
