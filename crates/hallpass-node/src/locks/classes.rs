use std::cmp::Reverse;
use std::collections::BTreeSet;

use hallpass_core::protocol::{OptionError, Options, ProtocolKind};
use hallpass_core::{InitialHolders, NodeId, View};

use super::machine::{Factory, Machine, Made, Start};
use super::reopen::HeldLock;
use crate::config::Class;

/// The lock classes of a view: which protocol a lock of a given name starts as.
pub(crate) struct Classes {
    pub(crate) me: NodeId,
    view: View,
    /// The longest prefix first; the last one fits all names.
    templates: Vec<Template>,
    /// Locks that the last one serves in this view, whatever their names.
    exceptions: BTreeSet<Box<str>>,
}

/// How all locks of one class start.
pub(crate) struct Template {
    prefix: String,
    pub(crate) protocol: &'static str,
    start: Start,
    /// A lock that nobody holds, to be copied; `None` where every lock has a home of its own.
    unheld: Option<Machine>,
    /// Why shared entries are refused, if they are.
    pub(crate) no_shared: Option<&'static str>,
    /// At most one node may hold a lock at the start.
    one_holder: bool,
}

/// A class, by its position among the templates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClassIndex(u16);

impl ClassIndex {
    pub(crate) fn get(self) -> usize {
        self.0.into()
    }
}

impl Classes {
    /// The classes as this node runs them in a view. An error names the class that does not fit, and why.
    pub(crate) fn new(me: NodeId, view: &View, classes: &[Class]) -> Result<Self, OptionError> {
        let mut templates = Vec::new();
        for class in classes {
            let template = Template::new(class, me, view);
            templates
                .push(template.map_err(|error| OptionError(format!("lock class '{}': {}", class.prefix, error.0)))?);
        }
        Ok(Self::of(templates, me, view))
    }

    /// The same for a view of a running group. A class that does not fit its members, such as one with a number for each
    /// of them, is served by the default protocol: every member decides that alike.
    pub(crate) fn fitting(me: NodeId, view: &View, classes: &[Class]) -> Self {
        let template = |class: &Class| {
            let fallback = || Template::new(&Class::default_for(&class.prefix), me, view);
            Template::new(class, me, view).or_else(|_| fallback()).ok()
        };
        Self::of(classes.iter().filter_map(template).collect(), me, view)
    }

    /// Why these classes cannot be served here, if they cannot: a later version may have protocols that this one does not know. Those who
    /// know them run them, so that nothing may take their place.
    pub(crate) fn unknown(classes: &[Class]) -> Option<String> {
        let is_known = |class: &&Class| ProtocolKind::ALL.iter().any(|kind| kind.name() == class.protocol);
        let class = classes.iter().find(|class| !is_known(class))?;
        Some(format!(
            "this version does not know the protocol '{}' of lock class '{}': run the same version on all members, or give the class \
             another protocol with 'hallpass class set'; then start this member again",
            class.protocol, class.prefix
        ))
    }

    fn of(mut templates: Vec<Template>, me: NodeId, view: &View) -> Self {
        templates.push(Template::new(&Class::default_for(""), me, view).expect("the default protocol has no options"));
        // A stable sort: of two classes with one prefix the first counts, and the default comes last.
        templates.sort_by_key(|template| Reverse(template.prefix.len()));
        Self { me, view: view.clone(), templates, exceptions: BTreeSet::new() }
    }

    pub(crate) fn get(&self, class: ClassIndex) -> &Template {
        &self.templates[class.get()]
    }

    /// The machine of a lock that nobody holds.
    pub(crate) fn unheld(&self, class: ClassIndex, name: &str) -> Machine {
        let template = self.get(class);
        match &template.unheld {
            Some(machine) => machine.copy(),
            None => (template.start)(self.view.home_of(name), InitialHolders::NOBODY),
        }
    }

    /// The home of a lock, if its class has homes.
    pub(crate) fn home_of(&self, name: &str) -> Option<NodeId> {
        let has_homes = self.get(self.find(name)).unheld.is_none();
        has_homes.then(|| self.view.home_of(name))
    }

    /// The machine of a lock that is held at the start of the view.
    pub(crate) fn held(&self, class: ClassIndex, name: &str, initial: InitialHolders<'_>) -> Machine {
        let template = self.get(class);
        let home = if template.unheld.is_none() { self.view.home_of(name) } else { self.me };
        (template.start)(home, initial)
    }

    /// The class of a lock.
    pub(crate) fn find(&self, name: &str) -> ClassIndex {
        if !self.exceptions.is_empty() && self.exceptions.contains(name) {
            return ClassIndex(self.templates.len() as u16 - 1);
        }
        let found = self.templates.iter().position(|template| name.starts_with(&template.prefix));
        ClassIndex(found.expect("the last template fits all names") as u16)
    }

    /// The class of a lock that is held at the start of the view. If its class has been given a protocol that lets no two
    /// nodes in, and readers hold it together, the default protocol serves it until the next view: all members know the
    /// holders, so all of them do so.
    pub(crate) fn find_held(&mut self, held: &HeldLock) -> ClassIndex {
        let class = self.find(&held.name);
        if held.holders.len() < 2 || !self.get(class).one_holder {
            return class;
        }
        self.exceptions.insert(held.name.clone());
        self.find(&held.name)
    }
}

impl Template {
    fn new(class: &Class, me: NodeId, view: &View) -> Result<Self, OptionError> {
        let mut options = Options::from_words(class.options.iter().map(String::as_str))?;
        options.nodes = view.members().to_vec();
        options.tick = 1_000_000;
        if class.protocol == ProtocolKind::Central.name() && options.get("server").is_none() {
            // Every process of a group is a member.
            options.set("server", "member")?;
        }
        let kind = ProtocolKind::select(&class.protocol, &mut options)?;
        let Made { start, needs } = Factory { options: &options, me, view }.make(kind)?;
        let unheld = (!needs.home).then(|| start(me, InitialHolders::NOBODY));
        let (prefix, protocol) = (class.prefix.clone(), kind.name());
        Ok(Self { prefix, protocol, start, unheld, no_shared: needs.no_shared, one_holder: needs.one_holder })
    }
}
