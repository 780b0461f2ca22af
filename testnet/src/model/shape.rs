//! How large a small world is, what can go wrong in it, and what is broken in it on purpose.

use std::collections::BTreeSet;

/// A count that never runs out.
pub const ENDLESS: u8 = u8::MAX;

/// A world to explore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is about, in one line.
    pub about: &'static str,
    /// Its rosters; the first is in force at the beginning.
    pub rosters: Vec<RosterShape>,
    /// Claimants.
    pub claimants: u8,
    /// Claims that each may make; where it forgets, those that are forgotten do not count.
    pub claims_each: u8,
    /// Claims that all may make together, or [`ENDLESS`]: only where it forgets.
    pub claims: u8,
    /// Whether what can help nobody any more is left out of its states (`super::forget`).
    pub forgets: bool,
    /// Wardens that lie, by index.
    pub liars: Vec<u8>,
    /// Holders that may die in their upgrade, or [`ENDLESS`].
    pub deaths: u8,
    /// Times that the store of a warden may be set back, and that is noticed, or [`ENDLESS`].
    pub set_backs: u8,
    /// Whether operators write off claims that may not start any more, and dead holders.
    pub write_offs: bool,
    /// What is broken on purpose.
    pub mutant: Option<Mutant>,
}

/// One roster: one pool whose nodes are the wardens of all its slots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RosterShape {
    /// Its version, from 1; rivals have the same.
    pub version: u8,
    /// Indices of the rosters before it.
    pub previous: Vec<u8>,
    /// The version up to which all that is older has ended: it is signed only once the tools would say so.
    pub settled: u8,
    /// Its nodes: 1, 3, 4, 7 or 9 of them, so that each is a warden of every slot.
    pub wardens: Vec<u8>,
    /// Slots of its budget.
    pub slots: u8,
}

/// A rule broken on purpose, to see that the search finds what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Holders start with one grant too few.
    QuorumOneLower,
    /// Wardens presume holders lost that are alive: a grant ends before its release is seen.
    EndsEarly,
    /// Holders take any grant to them on the slot for one of this claim.
    NameIgnored,
    /// A warden whose store was set back goes on at once.
    AmnesiaIgnored,
    /// A warden publishes a promise before it is durable.
    PublishedFirst,
    /// A holder starts on a claim from before a restart, or on one that is too old.
    SpentStarts,
    /// The tools raise `settled` over promises that stand.
    SettledEarly,
    /// A warden that lost power before it published says nothing of it after the start.
    WordForgotten,
}

impl Mutant {
    /// All of them, with their names on the command line.
    pub const ALL: [(Self, &str); 8] = [
        (Self::QuorumOneLower, "quorum-one-lower"),
        (Self::EndsEarly, "ends-early"),
        (Self::NameIgnored, "name-ignored"),
        (Self::AmnesiaIgnored, "amnesia-ignored"),
        (Self::PublishedFirst, "published-first"),
        (Self::SpentStarts, "spent-starts"),
        (Self::SettledEarly, "settled-early"),
        (Self::WordForgotten, "word-forgotten"),
    ];

    /// The smallest world that shows what follows.
    #[must_use]
    pub fn shape(self) -> Shape {
        let shape = match self {
            Self::AmnesiaIgnored => Shape::set_back(),
            Self::SettledEarly | Self::WordForgotten => Shape::chain_of_three(),
            Self::NameIgnored | Self::PublishedFirst => Shape::names(),
            Self::QuorumOneLower | Self::EndsEarly | Self::SpentStarts => Shape::one_slot(),
        };
        Shape { mutant: Some(self), ..shape }
    }
}

impl RosterShape {
    /// A first roster.
    fn first(wardens: &[u8], slots: u8) -> Self {
        Self::after(1, &[], 1, wardens, slots)
    }

    /// A roster with forerunners.
    fn after(version: u8, previous: &[u8], settled: u8, wardens: &[u8], slots: u8) -> Self {
        Self { version, previous: previous.to_vec(), settled, wardens: wardens.to_vec(), slots }
    }
}

impl Shape {
    /// Every world that has a name.
    #[must_use]
    pub fn all() -> Vec<Self> {
        vec![
            Self::one_slot(),
            Self::two_slots(),
            Self::set_back(),
            Self::names(),
            Self::no_trap(),
            Self::two_liars(),
            Self::other_wardens(),
            Self::change_with_liar(),
            Self::shrinks(),
            Self::grows(),
            Self::chain_of_three(),
            Self::rivals(),
            Self::rivals_joined(),
        ]
    }

    /// One slot and four wardens, one of them a liar; anybody claims any number of times.
    #[must_use]
    pub fn one_slot() -> Self {
        Self {
            name: "one-slot",
            about: "1 slot, 4 wardens of which 1 lies, 3 claimants with claims without end, deaths, entries of operators",
            rosters: vec![RosterShape::first(&[0, 1, 2, 3], 1)],
            claimants: 3,
            claims_each: 3,
            claims: ENDLESS,
            forgets: true,
            liars: vec![3],
            deaths: ENDLESS,
            set_backs: 0,
            write_offs: true,
            mutant: None,
        }
    }

    /// Two slots with the same four wardens.
    #[must_use]
    pub fn two_slots() -> Self {
        Self {
            name: "two-slots",
            about: "as one-slot, with 2 slots",
            rosters: vec![RosterShape::first(&[0, 1, 2, 3], 2)],
            ..Self::one_slot()
        }
    }

    /// The stores of honest wardens are set back beside the liar.
    #[must_use]
    pub fn set_back() -> Self {
        Self {
            name: "set-back",
            about: "as one-slot with 2 claimants, and an honest warden is set back beside the liar",
            claimants: 2,
            set_backs: 1,
            ..Self::one_slot()
        }
    }

    /// Nothing is forgotten: a claim is one of several of its node, and old grants and records stay in sight.
    #[must_use]
    pub fn names() -> Self {
        Self {
            name: "names",
            about: "1 slot, 4 wardens of which 1 lies, 2 claimants, 3 claims, every old record stays in sight",
            claimants: 2,
            claims_each: 2,
            claims: 3,
            forgets: false,
            deaths: 0,
            write_offs: false,
            ..Self::one_slot()
        }
    }

    /// Everybody gets through once faults stop: looked for from every state.
    #[must_use]
    pub fn no_trap() -> Self {
        Self {
            name: "no-trap",
            about: "1 slot, 3 wardens, 2 claimants, 2 claims, 1 death, 1 set-back: from every state all get through",
            rosters: vec![RosterShape::first(&[0, 1, 2], 1)],
            liars: Vec::new(),
            deaths: 1,
            set_backs: 1,
            claims: 2,
            ..Self::names()
        }
    }

    /// One liar more than section 7 allows: a violation is expected.
    #[must_use]
    pub fn two_liars() -> Self {
        Self {
            name: "two-liars",
            about: "as one-slot, and 2 liars where 1 may lie: must break",
            liars: vec![2, 3],
            ..Self::one_slot()
        }
    }

    /// One roster change: other wardens.
    #[must_use]
    pub fn other_wardens() -> Self {
        Self {
            name: "other-wardens",
            about: "a roster change from 3 wardens to 3, of which 2 are others, 1 slot, 2 claimants, a death",
            rosters: vec![RosterShape::first(&[0, 1, 2], 1), RosterShape::after(2, &[0], 1, &[2, 3, 4], 1)],
            claimants: 2,
            deaths: 1,
            liars: Vec::new(),
            write_offs: false,
            ..Self::one_slot()
        }
    }

    /// One roster change beside a liar that is a warden before and after it.
    #[must_use]
    pub fn change_with_liar() -> Self {
        Self {
            name: "change-with-liar",
            about: "a roster change from 4 wardens to 4, of which 1 lies and 2 are others, 2 claimants, a death",
            rosters: vec![RosterShape::first(&[0, 1, 2, 3], 1), RosterShape::after(2, &[0], 1, &[2, 3, 4, 5], 1)],
            liars: vec![3],
            ..Self::other_wardens()
        }
    }

    /// One roster change from two slots to one.
    #[must_use]
    pub fn shrinks() -> Self {
        Self {
            name: "shrinks",
            about: "a roster change from 2 slots to 1 with the same 3 wardens",
            rosters: vec![RosterShape::first(&[0, 1, 2], 2), RosterShape::after(2, &[0], 1, &[0, 1, 2], 1)],
            ..Self::other_wardens()
        }
    }

    /// One roster change from one slot to two.
    #[must_use]
    pub fn grows() -> Self {
        Self {
            name: "grows",
            about: "a roster change from 1 slot to 2, with other wardens",
            rosters: vec![RosterShape::first(&[0, 1, 2], 1), RosterShape::after(2, &[0], 1, &[1, 2, 3], 2)],
            ..Self::other_wardens()
        }
    }

    /// Three rosters, the third of which calls the second settled.
    #[must_use]
    pub fn chain_of_three() -> Self {
        Self {
            name: "chain",
            about: "a chain of 3 rosters with one warden each, the last with settled raised",
            rosters: vec![
                RosterShape::first(&[0], 1),
                RosterShape::after(2, &[0], 1, &[1], 1),
                RosterShape::after(3, &[1], 2, &[2], 1),
            ],
            ..Self::other_wardens()
        }
    }

    /// Two rivals, for which half of the wardens may go each.
    #[must_use]
    pub fn rivals() -> Self {
        Self {
            name: "rivals",
            about: "2 rival rosters after one with 3 wardens, with one other warden each, 2 claimants",
            rosters: vec![
                RosterShape::first(&[0, 1, 2], 1),
                RosterShape::after(2, &[0], 1, &[3], 1),
                RosterShape::after(2, &[0], 1, &[4], 1),
            ],
            deaths: 0,
            ..Self::other_wardens()
        }
    }

    /// Two rivals and the roster that names both, with a single warden each.
    #[must_use]
    pub fn rivals_joined() -> Self {
        Self {
            name: "rivals-joined",
            about: "2 rival rosters and one that follows both, one warden each, 2 claimants, a death",
            rosters: vec![
                RosterShape::first(&[0], 1),
                RosterShape::after(2, &[0], 1, &[1], 1),
                RosterShape::after(2, &[0], 1, &[2], 1),
                RosterShape::after(3, &[1, 2], 1, &[3], 1),
            ],
            ..Self::other_wardens()
        }
    }

    /// The rosters before `roster` and itself, one bit each.
    #[must_use]
    pub fn chain(&self, roster: usize) -> u8 {
        let before = self.rosters.get(roster).map_or(&[][..], |shape| &shape.previous);
        before.iter().fold(1 << roster, |set, previous| set | self.chain((*previous).into()))
    }

    /// Whether the search must find a violation, or a state from which not everybody gets through.
    #[must_use]
    pub fn must_break(&self) -> bool {
        self.mutant.is_some() || self.liars.len() > 1
    }

    /// Whether it is also looked for states from which not everybody gets through.
    #[must_use]
    pub fn asks_for_traps(&self) -> bool {
        [Self::no_trap().name, Self::chain_of_three().name].contains(&self.name)
    }

    /// Whether a warden lies.
    #[must_use]
    pub fn is_liar(&self, warden: usize) -> bool {
        self.liars.iter().any(|liar| usize::from(*liar) == warden)
    }

    /// The honest wardens of all rosters.
    #[must_use]
    pub fn keepers(&self) -> Vec<usize> {
        let listed: BTreeSet<u8> = self.rosters.iter().flat_map(|roster| roster.wardens.iter().copied()).collect();
        listed.into_iter().filter(|warden| !self.liars.contains(warden)).map(usize::from).collect()
    }
}
