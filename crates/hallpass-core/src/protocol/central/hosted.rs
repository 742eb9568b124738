use super::{Central, CentralMessage, CentralRules, Out};
use crate::protocol::{Capabilities, Effect, Input, Needs, NoTimer, OptionError, Options, Protocol, Trap, Variables};
use crate::{NodeId, Setup};

/// `server=member`: there is no process for the server. It is a second role of the member with the lowest id, and what
/// goes between the two roles of that member is handled in the same step.
///
/// An entry of that member costs no message, one of any other member three.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Hosted {
    me: NodeId,
    /// The member that is the server, too.
    host: NodeId,
    member: Central,
    /// The second role, on the host.
    server: Option<Central>,
}

impl Protocol for Hosted {
    type Message = CentralMessage;
    type Timer = NoTimer;
    type Options = CentralRules;

    fn parse(options: &Options) -> Result<CentralRules, OptionError> {
        let rules = Central::parse(options)?;
        if rules.printed.contains(Trap::ForgottenHolder) {
            return Err(OptionError("as-printed=T22 is about a server of its own: leave server=member out".to_owned()));
        }
        Ok(rules)
    }

    fn needs(_: &CentralRules) -> Needs {
        Needs::default()
    }

    fn new(setup: &Setup<'_, CentralRules>) -> Self {
        let host = setup.view.members().first().copied().unwrap_or(setup.me);
        let server = Setup { me: NodeId::SERVER, ..*setup };
        Self {
            me: setup.me,
            host,
            member: Central::new(setup),
            server: (host == setup.me).then(|| Central::new(&server)),
        }
    }

    /// Members talk to the server only, so the host's other role is the one that a message is for.
    fn handle(&mut self, input: Input<CentralMessage, NoTimer>, out: &mut Out) {
        let first = out.len();
        match (input, &mut self.server) {
            (Input::Deliver { from, message }, Some(server)) => {
                if from != NodeId::SERVER && from != self.me {
                    server.handle(Input::Deliver { from, message }, out);
                }
            }
            (Input::Deliver { from, message }, None) => {
                if from == self.host {
                    self.member.handle(Input::Deliver { from: NodeId::SERVER, message }, out);
                }
            }
            (input, _) => self.member.handle(input, out),
        }
        self.route(first, out);
    }

    fn variables(&self, out: &mut Variables) {
        if let Some(server) = &self.server {
            server.variables(out);
        }
        self.member.variables(out);
    }

    fn is_idle(&self) -> bool {
        self.member.is_idle() && self.server.as_ref().is_none_or(Central::is_idle)
    }

    fn is_moot(&self, from: NodeId, message: &CentralMessage) -> bool {
        match &self.server {
            Some(server) => server.is_moot(from, message),
            None => from != self.host || self.member.is_moot(NodeId::SERVER, message),
        }
    }

    fn request_number(&self) -> Option<u64> {
        self.member.request_number()
    }
}

impl Capabilities for Hosted {}

impl Hosted {
    /// Sends what is for the server to its host. On the host, hands what its two roles say to each other over at once.
    fn route(&mut self, first: usize, out: &mut Out) {
        let mut next = first;
        while next < out.len() {
            let Effect::Send { to, message } = &mut out[next] else {
                next += 1;
                continue;
            };
            match (*to, &mut self.server) {
                (NodeId::SERVER, None) => *to = self.host,
                (NodeId::SERVER, Some(server)) => {
                    let input = Input::Deliver { from: self.me, message: message.clone() };
                    out.remove(next);
                    server.handle(input, out);
                    continue;
                }
                (to, Some(_)) if to == self.me => {
                    let input = Input::Deliver { from: NodeId::SERVER, message: message.clone() };
                    out.remove(next);
                    self.member.handle(input, out);
                    continue;
                }
                _ => {}
            }
            next += 1;
        }
    }
}
