use std::fmt;

use super::carvalho_roucairol::{AsPrinted, CarvalhoRoucairol};
use super::directory::{Directory, IncompleteDirectory};
use super::maekawa::Maekawa;
use super::naimi_trehel::NaimiTrehel;
use super::raymond::Raymond;
use super::ricart_agrawala::{Classic, RicartAgrawala, Ring, Sequenced};
use super::suzuki_kasami::SuzukiKasami;
use super::token::TokenAlgorithm;
use super::{OptionError, Options, Protocol};

/// An action on a protocol that was chosen at run time.
pub trait Visitor {
    /// What the action returns.
    type Output;
    /// Runs the action for the protocol's type.
    fn visit<P: Protocol + 'static>(self) -> Self::Output;
}

/// Makes the enum of all protocols and the one place where a run-time choice becomes a type.
macro_rules! roster {
    ($($(#[$doc:meta])* $kind:ident: $protocol:ty = $name:literal $(where $key:literal $(is $value:literal)?)?;)*) => {
        /// Every protocol. A user picks one by name; some options select another state machine under the same name.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum ProtocolKind { $($(#[$doc])* $kind),* }

        impl ProtocolKind {
            /// All protocols.
            pub const ALL: &[ProtocolKind] = &[$(ProtocolKind::$kind),*];

            /// The name users type.
            pub fn name(self) -> &'static str {
                match self { $(ProtocolKind::$kind => $name),* }
            }

            /// The option that selects this state machine among those of one name, with one value or with any.
            fn selector(self) -> Option<(&'static str, Option<&'static str>)> {
                match self { $(ProtocolKind::$kind => [$(($key, None $(.or(Some($value)))?))?].first().copied()),* }
            }

            /// Calls the visitor with the protocol's type.
            pub fn visit<V: Visitor>(self, visitor: V) -> V::Output {
                match self { $(ProtocolKind::$kind => visitor.visit::<$protocol>()),* }
            }
        }
    };
}

roster! {
    /// Ricart and Agrawala 1981, sections 2 and 6.
    RicartAgrawala: RicartAgrawala = "ricart-agrawala";
    /// Ricart and Agrawala 1981, section 7: joining, leaving, failures.
    RicartAgrawalaClassic: Classic = "ricart-agrawala" where "membership" is "classic";
    /// Ricart and Agrawala 1981, section 6.2.1: the medium's order instead of sequence numbers.
    RicartAgrawalaSequenced: Sequenced = "ricart-agrawala" where "medium" is "sequenced";
    /// Ricart and Agrawala 1981, section 6.3: requests travel around a ring.
    RicartAgrawalaRing: Ring = "ricart-agrawala-ring";
    /// The Carnegie Mellon notes: a central server.
    Central: super::central::Central = "central";
    /// The same, where a member is the server.
    CentralHosted: super::central::Hosted = "central" where "server" is "member";
    /// The Carnegie Mellon notes: Lamport's algorithm, for messages in any order.
    Lamport: super::lamport::Lamport = "lamport";
    /// Lamport 1978 as first published, for links that keep order.
    LamportFifo: super::lamport_fifo::LamportFifo = "lamport-fifo";
    /// The Carnegie Mellon notes: a token ring.
    TokenRing: super::token_ring::TokenRing = "token-ring";
    /// Carvalho and Roucairol 1983: permissions that stay valid until asked for.
    CarvalhoRoucairol: CarvalhoRoucairol = "carvalho-roucairol";
    /// Carvalho and Roucairol 1983 with traps put back.
    CarvalhoRoucairolAsPrinted: AsPrinted = "carvalho-roucairol" where "as-printed";
    /// Ricart and Agrawala 1983, the appendix: an explicit token.
    Token: TokenAlgorithm = "token";
    /// Naimi and Trehel: path reversal.
    NaimiTrehel: NaimiTrehel = "naimi-trehel";
    /// Suzuki and Kasami: the queue in the token.
    SuzukiKasami: SuzukiKasami = "suzuki-kasami";
    /// Maekawa: grid quorums.
    Maekawa: Maekawa = "maekawa";
    /// Raymond 1989: a token on a tree.
    Raymond: Raymond = "raymond";
    /// A home for each lock, which keeps the order of the requests.
    Directory: Directory = "directory";
    /// The same, where the laboratory may leave a rule out.
    DirectoryIncomplete: IncompleteDirectory = "directory" where "leave-out";
}

impl ProtocolKind {
    /// Finds the protocol for a name and its options. An option whose value selected it is taken out of them.
    pub fn select(name: &str, options: &mut Options) -> Result<Self, OptionError> {
        let mut named = Self::ALL.iter().copied().filter(|kind| kind.name() == name);
        let Some(plain) = named.next() else {
            let mut names: Vec<&str> = Self::ALL.iter().map(|kind| kind.name()).collect();
            names.dedup();
            return Err(OptionError(format!("there is no protocol '{name}'; there are {}", names.join(", "))));
        };
        let selected = named.find(|kind| kind.is_selected_by(options));
        if let Some((key, Some(_))) = selected.and_then(Self::selector) {
            options.take(key);
        }
        Ok(selected.unwrap_or(plain))
    }

    fn is_selected_by(self, options: &Options) -> bool {
        let Some((key, value)) = self.selector() else { return false };
        options.get(key).is_some_and(|given| value.is_none_or(|value| value == given))
    }
}

impl fmt::Display for ProtocolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.selector() {
            None => f.write_str(self.name()),
            Some((key, None)) => write!(f, "{} {key}", self.name()),
            Some((key, Some(value))) => write!(f, "{} {key}={value}", self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_select_the_machine_behind_a_name() {
        let mut options = Options::from_words(["membership=classic", "hsn=ask"]).unwrap();
        assert_eq!(ProtocolKind::select("ricart-agrawala", &mut options), Ok(ProtocolKind::RicartAgrawalaClassic));
        assert_eq!(options.pairs().collect::<Vec<_>>(), [("hsn", "ask")]);
        assert_eq!(ProtocolKind::select("ricart-agrawala", &mut Options::default()), Ok(ProtocolKind::RicartAgrawala));
        let mut options = Options::from_words(["as-printed=T15"]).unwrap();
        assert_eq!(
            ProtocolKind::select("carvalho-roucairol", &mut options),
            Ok(ProtocolKind::CarvalhoRoucairolAsPrinted)
        );
        assert_eq!(options.get("as-printed"), Some("T15"), "which traps is for the protocol to read");
        let error = ProtocolKind::select("paxos", &mut Options::default()).unwrap_err().to_string();
        assert!(error.starts_with("there is no protocol 'paxos'; there are ricart-agrawala, ricart-agrawala-ring"));
    }
}
