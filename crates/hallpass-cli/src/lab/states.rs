//! `hallpass lab states`: the state diagrams of a node, drawn from the tables that its code keeps to.

use hallpass_lab::{state_charts, state_text};

use crate::cli::{StatesArgs, StatesFormat, StatesOf};
use crate::exit::{Fault, Outcome};
use crate::terminal;

pub(super) fn run(args: &StatesArgs) -> Result<Outcome, Fault> {
    let [(_, member), (_, installation)] = state_charts();
    let chart = match args.of {
        StatesOf::Member => member,
        StatesOf::Installation => installation,
    };
    let text = match args.format {
        StatesFormat::Text => state_text(&chart),
        StatesFormat::Svg => chart.to_svg() + "\n",
    };
    terminal::write(args.out.as_deref(), &text)?;
    Ok(Outcome::Fine)
}
