use std::cmp::Reverse;

use hallpass_core::View;
use hallpass_core::protocol::{Kind, OptionError, Options};

use super::machine::{Factory, Machine};
use crate::config::{Class, NodeConfig};

/// The lock classes of a view: which protocol a lock of a given name starts as.
pub(crate) struct Classes {
    /// The longest prefix first; the last one fits all names.
    templates: Vec<Template>,
}

/// What all locks of one class start as.
pub(crate) struct Template {
    prefix: String,
    pub(crate) protocol: &'static str,
    pub(crate) machine: Machine,
    /// Why shared entries are refused, if they are.
    pub(crate) no_shared: Option<&'static str>,
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
    pub(crate) fn new(config: &NodeConfig, epoch: u64) -> Result<Self, OptionError> {
        let view = View::new(config.members.iter().copied()).with_epoch(epoch);
        let fallback = Class { prefix: String::new(), protocol: "carvalho-roucairol".to_owned(), options: Vec::new() };
        let mut templates = Vec::new();
        for class in config.classes.iter().chain([&fallback]) {
            let template = Template::new(class, config, &view);
            templates
                .push(template.map_err(|error| OptionError(format!("lock class '{}': {}", class.prefix, error.0)))?);
        }
        // A stable sort: of two classes with one prefix the first counts, and the fallback comes last.
        templates.sort_by_key(|template| Reverse(template.prefix.len()));
        Ok(Self { templates })
    }

    pub(crate) fn get(&self, class: ClassIndex) -> &Template {
        &self.templates[class.get()]
    }

    /// The class of a lock.
    pub(crate) fn find(&self, name: &str) -> ClassIndex {
        let found = self.templates.iter().position(|template| name.starts_with(&template.prefix));
        ClassIndex(found.expect("the last template fits all names") as u16)
    }
}

impl Template {
    fn new(class: &Class, config: &NodeConfig, view: &View) -> Result<Self, OptionError> {
        let mut options = Options::from_words(class.options.iter().map(String::as_str))?;
        options.nodes = view.members().to_vec();
        options.tick = 1_000_000;
        let kind = Kind::select(&class.protocol, &mut options)?;
        let made = Factory { options: &options, me: config.me, view }.make(kind)?;
        let (machine, no_shared) = (made.machine, made.no_shared);
        Ok(Self { prefix: class.prefix.clone(), protocol: kind.name(), machine, no_shared })
    }
}
