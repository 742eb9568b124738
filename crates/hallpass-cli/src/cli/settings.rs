//! The arguments that `lab run` and `lab trace` share, made from the laboratory's table of settings.

use clap::builder::{PossibleValuesParser, ValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};
use hallpass_lab::{RunSpec, SETTINGS, Setting, Values};

/// The argument for options of the protocol.
const OPTION: &str = "option";

/// The names of all these arguments, for others that conflict with them.
pub(super) fn keys() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().map(|setting| setting.key).chain([OPTION])
}

/// The settings of a run. `ENTRIES` is the default number of requests.
#[derive(Clone, Debug)]
pub(crate) struct RunSettings<const ENTRIES: u64>(RunSpec);

impl<const ENTRIES: u64> RunSettings<ENTRIES> {
    fn defaults() -> RunSpec {
        RunSpec { entries: ENTRIES, ..RunSpec::of("") }
    }

    /// The run of a protocol with these settings.
    pub(crate) fn of(&self, protocol: &str) -> RunSpec {
        RunSpec { protocol: protocol.to_owned(), ..self.0.clone() }
    }
}

impl<const ENTRIES: u64> Args for RunSettings<ENTRIES> {
    fn augment_args(command: Command) -> Command {
        let defaults = Self::defaults();
        command.args(SETTINGS.iter().map(|setting| argument(setting, &defaults))).arg(
            Arg::new(OPTION)
                .long(OPTION)
                .value_name("KEY=VALUE")
                .action(ArgAction::Append)
                .help("An option of the protocol; may be given several times"),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl<const ENTRIES: u64> FromArgMatches for RunSettings<ENTRIES> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut settings = Self(Self::defaults());
        settings.update_from_arg_matches(matches)?;
        Ok(settings)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        for Setting { key, .. } in SETTINGS {
            let Some(value) = matches.get_raw(key).and_then(|mut values| values.next()) else { continue };
            let word = format!("{key}={}", value.to_string_lossy());
            self.0.set(&word).map_err(|error| Error::raw(ErrorKind::ValueValidation, format!("{error}\n")))?;
        }
        self.0.options = matches.get_many::<String>(OPTION).into_iter().flatten().cloned().collect();
        Ok(())
    }
}

fn argument(setting: &'static Setting, defaults: &RunSpec) -> Arg {
    let parser = match setting.values {
        Values::Whole(max) => ValueParser::from(value_parser!(u64).range(..=max)),
        Values::Fraction => ValueParser::from(value_parser!(f64)),
        Values::OneOf(words) => ValueParser::from(PossibleValuesParser::new(words)),
        Values::Text(_) => ValueParser::string(),
    };
    let argument = Arg::new(setting.key)
        .long(setting.key)
        .value_name(setting.value_name)
        .value_parser(parser)
        .hide_possible_values(true)
        .help(setting.help);
    match setting.value(defaults) {
        default if default.is_empty() => argument,
        default => argument.default_value(default),
    }
}
