//! Faults that belong together: each scene is a few of them at about the moment and with about the nodes that make it hard.
//! Every one of them was a hole once, or could have been.

use hallpass_core::Ticks;

use super::faults::{Aim, Fault, FaultKind, NOISE};
use super::plan::MS;
use crate::Rng;

/// Some scenes one after the other, with pauses in which the group comes to rest, and until when they last.
pub(super) fn draw(rng: &mut Rng, ttl: Ticks, nodes: usize) -> (Vec<Fault>, Ticks) {
    let mut scenes = Scenes { rng, ttl, at: ttl + ttl / 2, faults: Vec::new() };
    if nodes == 1 {
        scenes.lone_founder();
    } else {
        for _ in 0..1 + scenes.rng.below(3) {
            scenes.next();
        }
    }
    let Scenes { at, mut faults, .. } = scenes;
    let until = at + 2 * ttl;
    if rng.chance(0.2) {
        let kind = NOISE[rng.below(NOISE.len() as u64) as usize];
        faults.push(Fault::chosen(rng, kind, None, 0, until));
    }
    for _ in 0..[0, 0, 2, 6][rng.below(4) as usize] {
        let kinds = [FaultKind::Break, FaultKind::Pause, FaultKind::DiskSlow, FaultKind::ClockDrift];
        let (kind, from) = (kinds[rng.below(4) as usize], rng.below(until));
        let lasts = 1 + rng.below(ttl / 2);
        faults.push(Fault::chosen(rng, kind, None, from, (from + lasts).min(until)));
    }
    faults.sort_by_key(|fault| fault.at);
    (faults, until)
}

struct Scenes<'a> {
    rng: &'a mut Rng,
    ttl: Ticks,
    /// When the next one begins.
    at: Ticks,
    faults: Vec<Fault>,
}

impl Scenes<'_> {
    fn next(&mut self) {
        match self.rng.below(9) {
            0 => self.vote_goes_to_the_dead(),
            1 => self.heir_does_not_hear(),
            2 => self.write_ends_after_a_pause(),
            3 => self.busy_while_it_comes_back(),
            4 => self.banned_while_a_view_begins(),
            5 => self.recovered_while_others_live(),
            6 => self.directory_moves(),
            7 => self.blackout(),
            _ => self.all_go_at_once(),
        }
        self.at += self.ttl * (2 + self.rng.below(3));
    }

    fn add(&mut self, kind: FaultKind, aim: Aim, from: Ticks, lasts: Ticks) {
        let fault = Fault::chosen(self.rng, kind, Some(aim), from, from + lasts);
        self.faults.push(fault);
    }

    /// A little before or after, at most by so much.
    fn about(&mut self, at: Ticks, by: Ticks) -> Ticks {
        (at + self.rng.below(2 * by + 1)).saturating_sub(by)
    }

    fn part(&mut self, of: Ticks) -> Ticks {
        1 + self.rng.below(of)
    }

    fn one_of(&mut self, kinds: &[FaultKind]) -> FaultKind {
        kinds[self.rng.below(kinds.len() as u64) as usize]
    }

    /// One that voted is out of the view and comes back, another one dies, and the steward goes within moments.
    fn vote_goes_to_the_dead(&mut self) {
        let kind = self.one_of(&[FaultKind::Pause, FaultKind::Partition]);
        let lasts = self.ttl + self.ttl / 2 + self.part(2 * self.ttl);
        self.add(kind, Aim::Follower(0), self.at, lasts);
        let back = self.about(self.at + lasts, self.ttl / 10);
        let kind = self.one_of(&[FaultKind::DiskLoss, FaultKind::DiskLoss, FaultKind::Crash]);
        let gone = self.ttl * (5 + self.rng.below(20));
        self.add(kind, Aim::Follower(1), back, gone);
        let leaves = back + self.part(self.ttl / 5);
        let kind = self.one_of(&[FaultKind::Leave, FaultKind::Leave, FaultKind::Stop]);
        self.add(kind, Aim::Steward, leaves, 3 * self.ttl);
        self.at = leaves + 2 * self.ttl;
    }

    /// The steward goes, and what it says then is lost.
    fn heir_does_not_hear(&mut self) {
        let kind = self.one_of(&[FaultKind::Stop, FaultKind::Stop, FaultKind::Leave]);
        let lasts = self.part(3 * self.ttl);
        self.add(kind, Aim::Steward, self.at, lasts);
        for _ in 0..1 + self.rng.below(3) {
            let kind = self.one_of(&[FaultKind::Partition, FaultKind::OneWayPartition, FaultKind::Break]);
            let (from, lasts) = (self.about(self.at, 5 * MS), self.part(self.ttl / 4));
            self.add(kind, Aim::Steward, from, lasts);
        }
        self.at += self.ttl;
    }

    /// The others go, and the steward stands still while the view without them is being written. One of them is back by then, and votes, but
    /// waits for the session of its predecessor.
    fn write_ends_after_a_pause(&mut self) {
        if self.rng.chance(0.6) {
            self.add(FaultKind::Stop, Aim::Follower(0), self.at, self.ttl / 10);
            let goes = self.at + self.ttl / 5 + self.part(self.ttl / 5);
            self.add(FaultKind::Stop, Aim::Follower(1), goes, self.ttl / 10);
            self.add(FaultKind::DiskSlow, Aim::Steward, goes - 2 * MS, 10 * MS);
            let (from, lasts) = (goes + 10 * MS + self.part(50 * MS), self.ttl + self.part(2 * self.ttl));
            self.add(FaultKind::Pause, Aim::Steward, from, lasts);
            self.at = from + lasts;
            return;
        }
        for follower in 0..2 {
            let kind = self.one_of(&[FaultKind::Crash, FaultKind::Crash, FaultKind::Stop]);
            let (from, lasts) = (self.about(self.at, self.ttl / 10), self.part(self.ttl / 2));
            self.add(kind, Aim::Follower(follower), from, lasts);
        }
        let slow = self.at + self.part(self.ttl);
        self.add(FaultKind::DiskSlow, Aim::Steward, slow, self.ttl);
        let (from, lasts) = (self.about(self.at + self.ttl, self.ttl / 3), self.ttl + self.part(2 * self.ttl));
        self.add(FaultKind::Pause, Aim::Steward, from, lasts);
        let cut = self.about(from + lasts, self.ttl / 10);
        let lasts = self.part(4 * self.ttl);
        self.add(FaultKind::Partition, Aim::Steward, cut, lasts);
        self.at = cut + lasts;
    }

    /// One comes back while the others go, and is busy again and again for some moments.
    fn busy_while_it_comes_back(&mut self) {
        let lasts = self.ttl + self.part(self.ttl);
        self.add(FaultKind::Pause, Aim::Machine(0), self.at, lasts);
        for machine in 1..3 {
            let kind = self.one_of(&[FaultKind::Leave, FaultKind::Stop, FaultKind::Crash]);
            let (from, lasts) = (self.at + self.part(lasts), self.part(4 * self.ttl));
            self.add(kind, Aim::Machine(machine), from, lasts);
        }
        let mut from = self.at + lasts;
        for _ in 0..4 + self.rng.below(12) {
            from += self.part(60 * MS);
            let busy = 5 * MS + self.part(40 * MS);
            self.add(FaultKind::Pause, Aim::Machine(0), from, busy);
            from += busy;
        }
        self.at = from;
    }

    /// Somebody joins, and a member is banned while the view with the newcomer begins.
    fn banned_while_a_view_begins(&mut self) {
        let kind = self.one_of(&[FaultKind::Join, FaultKind::Join, FaultKind::Stop]);
        self.add(kind, Aim::Follower(0), self.at, self.ttl / 10);
        let (aim, from) = (self.rng.below(6) as usize, self.at + self.part(self.ttl / 10));
        self.add(FaultKind::Ban, Aim::Machine(aim), from, 0);
        self.at += self.ttl;
    }

    /// The majority is lost for good, and an operator goes on with one that is left while others still hold what they hold.
    fn recovered_while_others_live(&mut self) {
        if self.rng.chance(0.7) {
            let (from, lasts) = (self.about(self.at, self.ttl / 10), self.part(3 * self.ttl));
            self.add(FaultKind::Partition, Aim::Follower(0), from, lasts);
        }
        let (follower, lasts) = (self.rng.below(3) as usize, self.part(4 * self.ttl));
        self.add(FaultKind::Recover, Aim::Follower(follower), self.at, lasts);
        self.at += 2 * self.ttl;
    }

    /// A directory is attached to another machine, and the process that had it goes on, cut off from all.
    fn directory_moves(&mut self) {
        let aim = if self.rng.chance(0.8) {
            self.add(FaultKind::Join, Aim::Newest, self.at, 0);
            Aim::Newest
        } else {
            Aim::Follower(0)
        };
        let lasts = self.part(2 * self.ttl);
        self.add(FaultKind::DiskSlow, aim, self.at + 1, lasts);
        let from = self.at + self.part(self.ttl);
        self.add(FaultKind::Move, aim, from, 0);
        self.at = from + 2 * self.ttl;
    }

    /// Views change fast, and then everything is restarted.
    fn blackout(&mut self) {
        let mut from = self.at;
        for _ in 0..self.rng.below(8) {
            let kind =
                self.one_of(&[FaultKind::ClassChange, FaultKind::ClassChange, FaultKind::Evict, FaultKind::Join]);
            self.add(kind, Aim::Steward, from, 0);
            from += self.part(self.ttl / 4);
        }
        let lasts = self.part(self.ttl);
        self.add(FaultKind::Blackout, Aim::Steward, from, lasts);
        self.at = from + lasts;
    }

    /// Several go within moments, each in its own way.
    fn all_go_at_once(&mut self) {
        use FaultKind::{Crash, DiskLoss, Evict, Leave, Pause, Stop};
        for follower in 0..2 + self.rng.below(2) as usize {
            let kind = self.one_of(&[Crash, DiskLoss, Evict, Leave, Pause, Stop]);
            let aim = if follower == 0 { Aim::Steward } else { Aim::Follower(follower - 1) };
            let (from, lasts) = (self.about(self.at, self.ttl / 5), self.part(4 * self.ttl));
            self.add(kind, aim, from, lasts);
        }
        self.at += self.ttl;
    }

    /// A group that one has begun alone, with others since then, and the founder's disk is lost.
    fn lone_founder(&mut self) {
        for _ in 0..2 + self.rng.below(3) {
            let at = self.about(self.at, self.ttl / 2);
            self.add(FaultKind::Join, Aim::Newest, at, 0);
        }
        self.at += self.ttl * (2 + self.rng.below(4));
        if self.rng.chance(0.5) {
            let (from, lasts) = (self.about(self.at, self.ttl), self.part(2 * self.ttl));
            self.add(FaultKind::Partition, Aim::Machine(0), from, lasts);
        }
        let lasts = self.part(self.ttl);
        self.add(FaultKind::DiskLoss, Aim::Machine(0), self.at, lasts);
        self.at += 3 * self.ttl;
    }
}
