//! The lines that `run` and its supervisor exchange.

use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::str::FromStr;

use crate::os::ReceivedSignal;

/// What `run` tells the supervisor, one line each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Signal(ReceivedSignal),
    /// SIGKILL for the command and everything it started.
    Kill,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(ReceivedSignal { number, from_terminal }) => write!(f, "signal {number} {from_terminal}"),
            Self::Kill => f.write_str("kill"),
        }
    }
}

impl FromStr for Order {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["signal", number, from_terminal] => Ok(Self::Signal(ReceivedSignal {
                number: number.parse().map_err(drop)?,
                from_terminal: from_terminal.parse().map_err(drop)?,
            })),
            ["kill"] => Ok(Self::Kill),
            _ => Err(()),
        }
    }
}

/// What the supervisor tells `run`, one line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::commands) enum Report {
    /// Until when the lock is held; `None` if nothing can take it away.
    Until(Option<u64>),
    /// The command has ended. This is the last line.
    Ended(Ended),
}

/// How the command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::commands) struct Ended {
    /// `None` if the supervisor has killed it.
    pub(in crate::commands) status: Option<ExitStatus>,
    /// Processes that the command started are still running.
    pub(in crate::commands) left_running: bool,
    /// Why the lock was lost, if it was.
    pub(in crate::commands) lost: Option<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(until) => write!(f, "until {}", until.map_or("unknown".to_owned(), |until| until.to_string())),
            Self::Ended(Ended { status, left_running, lost }) => {
                let status = status.map_or("unknown".to_owned(), |status| status.into_raw().to_string());
                write!(f, "ended {status} {left_running} {}", lost.as_deref().unwrap_or_default())
            }
        }
    }
}

impl FromStr for Report {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.trim_end_matches('\n').splitn(4, ' ');
        let mut next = || words.next().ok_or(());
        match next()? {
            "until" => Ok(Self::Until(known(next()?)?)),
            "ended" => Ok(Self::Ended(Ended {
                status: known(next()?)?.map(ExitStatus::from_raw),
                left_running: next()?.parse().map_err(drop)?,
                lost: Some(next()?.to_owned()).filter(|why| !why.is_empty()),
            })),
            _ => Err(()),
        }
    }
}

/// Reads a value, or the word for an unknown one.
fn known<T: FromStr>(word: &str) -> Result<Option<T>, ()> {
    if word == "unknown" { Ok(None) } else { word.parse().map(Some).map_err(drop) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_between_run_and_its_supervisor_are_read_as_they_were_written() {
        let signal = ReceivedSignal { number: 2, from_terminal: true };
        for order in [Order::Signal(signal), Order::Kill] {
            assert_eq!(order.to_string().parse(), Ok(order));
        }
        for (status, lost) in [(None, Some("it was lost, forever")), (Some(0), None), (Some(9), Some("why"))] {
            let (status, lost) = (status.map(ExitStatus::from_raw), lost.map(str::to_owned));
            let report = Report::Ended(Ended { status, left_running: status.is_some(), lost });
            assert_eq!(report.to_string().parse(), Ok(report));
        }
        for until in [None, Some(7)] {
            assert_eq!(Report::Until(until).to_string().parse(), Ok(Report::Until(until)));
        }
        for line in ["", "signal", "signal x true", "ended", "ended 0", "until", "until x"] {
            assert!(line.parse::<Order>().is_err() && line.parse::<Report>().is_err(), "{line:?}");
        }
    }
}
