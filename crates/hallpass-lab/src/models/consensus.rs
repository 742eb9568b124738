//! Consensus among three voters, as far as the view layer sees it: a log with terms, in which proposing, storing, committing
//! and applying are steps of their own. A new leader has whatever its voters allow: it may inherit or overwrite what was
//! proposed before it.

use std::sync::Arc;

use hallpass_node::model::{Command, Group};

/// The voters.
pub(super) const VOTERS: usize = 3;
pub(super) const QUORUM: usize = 2;

/// One replica of the log.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Replica {
    pub(super) term: u64,
    /// Whom it has voted for in this term.
    voted: Option<usize>,
    pub(super) log: Vec<LogEntry>,
    /// How many entries are on its disk.
    synced: usize,
    committed: usize,
    applied: usize,
    /// The group after all entries that were applied.
    pub(super) group: Arc<Group>,
    /// It leads in its term, as far as it knows.
    pub(super) lead: Option<Lead>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct LogEntry {
    term: u64,
    /// `None` for the entry with which a leader begins its term.
    command: Option<Command>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Lead {
    /// How much of its log each voter has said that it has.
    matched: [usize; VOTERS],
}

/// What applying an entry has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Applied {
    Nothing,
    /// The leader has applied the first entry of its own term.
    OwnTerm,
    /// There is a new view.
    View,
}

/// What is planted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Faults {
    /// A voter acknowledges entries that are not on its disk yet.
    pub(super) sends_before_sync: bool,
    /// A voter that is started again has forgotten its term and its vote.
    pub(super) forgets_vote: bool,
    /// A command is applied in any term.
    pub(super) any_term: bool,
}

/// All replicas.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Consensus {
    pub(super) replicas: [Replica; VOTERS],
}

impl Consensus {
    /// The first voter leads in term 1, and everybody knows.
    pub(super) fn new(group: Group) -> Self {
        let entry = LogEntry { term: 1, command: None };
        let replica = Replica {
            term: 1,
            voted: Some(0),
            log: vec![entry],
            synced: 1,
            committed: 1,
            applied: 1,
            group: Arc::new(group),
            lead: None,
        };
        let mut replicas = [replica.clone(), replica.clone(), replica];
        replicas[0].lead = Some(Lead { matched: [1; VOTERS] });
        Self { replicas }
    }

    /// Nobody has led yet.
    pub(super) fn without_leader(group: Group) -> Self {
        let replica = Replica {
            term: 0,
            voted: None,
            log: Vec::new(),
            synced: 0,
            committed: 0,
            applied: 0,
            group: Arc::new(group),
            lead: None,
        };
        Self { replicas: [replica.clone(), replica.clone(), replica] }
    }

    /// True if the candidate can win its next term with the vote of this one voter: two of three are a quorum.
    pub(super) fn can_elect(&self, candidate: usize, voter: usize) -> bool {
        let term = self.replicas[candidate].term + 1;
        let (mine, theirs) = (&self.replicas[candidate], &self.replicas[voter]);
        let last = |replica: &Replica| (replica.log.last().map_or(0, |entry| entry.term), replica.log.len());
        let may_vote = theirs.term < term || theirs.term == term && theirs.voted.is_none_or(|voted| voted == candidate);
        candidate != voter && mine.lead.is_none() && may_vote && last(mine) >= last(theirs)
    }

    /// Elects the candidate, and appends the entry that begins its term.
    pub(super) fn elect(&mut self, candidate: usize, voter: usize) {
        let term = self.replicas[candidate].term + 1;
        for id in [candidate, voter] {
            let replica = &mut self.replicas[id];
            (replica.term, replica.voted, replica.lead) = (term, Some(candidate), None);
        }
        let leader = &mut self.replicas[candidate];
        leader.lead = Some(Lead::default());
        self.append(candidate, None);
    }

    /// A leader appends to its own log.
    pub(super) fn append(&mut self, leader: usize, command: Option<Command>) {
        let replica = &mut self.replicas[leader];
        replica.log.push(LogEntry { term: replica.term, command });
        // Its own disk is as fast as the others': what it sends depends on none of it.
        replica.synced = replica.log.len();
        let length = replica.log.len();
        if let Some(lead) = &mut replica.lead {
            lead.matched[leader] = length;
        }
    }

    /// A voter hears from a leader, and follows it unless it knows of a later term.
    pub(super) fn hear(&mut self, leader: usize, voter: usize) -> bool {
        let term = self.replicas[leader].term;
        let hears = self.replicas[leader].lead.is_some() && self.replicas[voter].term <= term;
        let replica = &mut self.replicas[voter];
        if hears && replica.term < term {
            (replica.term, replica.voted, replica.lead) = (term, None, None);
        }
        hears
    }

    /// A voter takes over the leader's log. True if something has changed.
    pub(super) fn replicate(&mut self, leader: usize, voter: usize) -> bool {
        let before = self.replicas[voter].clone();
        if !self.hear(leader, voter) {
            return false;
        }
        let (log, committed) = (self.replicas[leader].log.clone(), self.replicas[leader].committed);
        let replica = &mut self.replicas[voter];
        let same = replica.log.iter().zip(&log).take_while(|(ours, theirs)| ours.term == theirs.term).count();
        replica.synced = replica.synced.min(same);
        replica.log = log;
        replica.committed = replica.committed.max(committed);
        *replica != before
    }

    /// The voter's disk has everything.
    pub(super) fn sync(&mut self, voter: usize) -> bool {
        let replica = &mut self.replicas[voter];
        let before = std::mem::replace(&mut replica.synced, replica.log.len());
        before != replica.synced
    }

    /// The voter tells its leader how much it has stored.
    pub(super) fn acknowledge(&mut self, voter: usize, leader: usize, faults: Faults) -> bool {
        if self.replicas[voter].term != self.replicas[leader].term {
            return false;
        }
        let replica = &self.replicas[voter];
        let stored = if faults.sends_before_sync { replica.log.len() } else { replica.synced };
        let ours = &self.replicas[leader].log;
        let same = replica.log[..stored].iter().zip(ours).take_while(|(a, b)| a.term == b.term).count();
        let Some(lead) = &mut self.replicas[leader].lead else { return false };
        let before = lead.matched[voter];
        lead.matched[voter] = before.max(same);
        before != lead.matched[voter]
    }

    /// The leader finds that a quorum has another entry: only one of its own term counts, with all before it.
    pub(super) fn commit(&mut self, leader: usize) -> bool {
        let replica = &mut self.replicas[leader];
        let Some(lead) = &replica.lead else { return false };
        let mut matched = lead.matched;
        matched.sort_unstable();
        let stored = matched[VOTERS - QUORUM];
        let is_own = stored > 0 && replica.log[stored - 1].term == replica.term;
        if !is_own || stored <= replica.committed {
            return false;
        }
        replica.committed = stored;
        true
    }

    pub(super) fn can_apply(&self, voter: usize) -> bool {
        let replica = &self.replicas[voter];
        replica.applied < replica.committed.min(replica.log.len())
    }

    /// Applies the next entry that is committed.
    pub(super) fn apply(&mut self, voter: usize, faults: Faults) -> Applied {
        let replica = &mut self.replicas[voter];
        let entry = &replica.log[replica.applied];
        replica.applied += 1;
        let Some(command) = &entry.command else {
            let is_own = replica.lead.is_some() && entry.term == replica.term;
            return if is_own { Applied::OwnTerm } else { Applied::Nothing };
        };
        let term = if faults.any_term { command.term } else { entry.term };
        let applied = Arc::make_mut(&mut replica.group).apply(term, command);
        if applied { Applied::View } else { Applied::Nothing }
    }

    /// The voter is started again: it has what is on its disk, and begins with the first group.
    pub(super) fn restart(&mut self, voter: usize, first: &Arc<Group>, faults: Faults) {
        let replica = &mut self.replicas[voter];
        replica.log.truncate(replica.synced);
        (replica.committed, replica.applied, replica.lead) = (0, 0, None);
        replica.group = Arc::clone(first);
        if faults.forgets_vote {
            (replica.term, replica.voted) = (replica.log.last().map_or(0, |entry| entry.term), None);
        }
    }

    /// The entries that a replica has applied.
    pub(super) fn applied(&self, voter: usize) -> &[LogEntry] {
        let replica = &self.replicas[voter];
        &replica.log[..replica.applied]
    }
}
