//! One state of the small world: plain numbers, compared and copied by the million.

/// Most claimants of a world.
pub const CLAIMANTS: usize = 3;
/// Most wardens of a world, over all its rosters.
pub const WARDENS: usize = 8;
/// Most claims of one claimant.
pub const CLAIMS: usize = 3;

/// Everything that decides what can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Those who want to disrupt themselves.
    pub claimants: [Claimant; CLAIMANTS],
    /// Those who promise; liars have no state.
    pub keepers: [Keeper; WARDENS],
    /// Rosters that were signed, one bit each.
    pub rosters: u8,
    /// Faults that can still come.
    pub left: Left,
}

/// Faults that can still come: the dear ones are counted, the cheap ones are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Holders that die in their upgrade.
    pub deaths: u8,
    /// Stores that are set back.
    pub set_backs: u8,
    /// Claims, over all claimants.
    pub claims: u8,
}

/// A node that wants to disrupt itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claimant {
    /// Where its claims were made, in their order; only the first [`Self::made`] count.
    pub places: [Place; CLAIMS],
    /// Claims made so far.
    pub made: u8,
    /// How it stands to the last of them.
    pub standing: Standing,
    /// The highest of its claims that is written off, counted from 1; 0: none.
    pub written_off: u8,
}

/// What a claim is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Number of the slot.
    pub slot: u8,
    /// Index of the roster.
    pub roster: u8,
}

/// How a claimant stands to the last claim that it made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// It has none, or gave it back.
    #[default]
    Ready,
    /// It was disrupted, confirmed, and gave the slot back.
    Done,
    /// It has claimed and may start.
    Fresh,
    /// It has claimed, and restarted or waited too long: it may not start any more.
    Spent,
    /// `activating` is durable: disrupted.
    Active,
    /// It died while disrupted and does not come back: still disrupted.
    Dead,
    /// It died while disrupted, and was written off or presumed lost: not disrupted any more (S1).
    GivenUp,
}

/// An honest warden.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeper {
    /// What it decided, as a number of the book.
    pub warden: u16,
    /// What survives a crash, as a number of the book.
    pub durable: u16,
    /// Where it stands between a decision and the next look.
    pub stage: Stage,
    /// The record that it published last, as a number of the book.
    pub latest: u8,
    /// Every record that it ever published, one bit each: whatever was published can be read for ever.
    pub said: u128,
    /// Claimants whose claim stood when its store was set back, and stands or was died on: one bit each.
    pub blind: u8,
}

/// Between a decision and the next look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Nothing is owed.
    #[default]
    Settled,
    /// Durable, not published yet.
    Kept,
    /// Published, not durable yet: only where the order is broken on purpose.
    Said,
}

impl Claimant {
    /// Where the last claim was made; `None`: none was.
    #[must_use]
    pub fn place(&self) -> Option<Place> {
        self.places.get(usize::from(self.made).checked_sub(1)?).copied()
    }

    /// Whether its last claim is not given back.
    #[must_use]
    pub fn stands(&self) -> bool {
        !matches!(self.standing, Standing::Ready | Standing::Done)
    }

    /// Whether claim `number`, counted from 1, is one that it may be disrupted on, now or later.
    #[must_use]
    pub fn is_live(&self, number: u8) -> bool {
        number == self.made && matches!(self.standing, Standing::Fresh | Standing::Active)
    }

    /// Whether the last claim that it made says `activating` in its newest record.
    #[must_use]
    pub fn is_active(&self) -> bool {
        matches!(self.standing, Standing::Active | Standing::Dead | Standing::GivenUp)
    }

    /// Whether it counts as disrupted.
    #[must_use]
    pub fn is_disrupted(&self) -> bool {
        matches!(self.standing, Standing::Active | Standing::Dead)
    }
}
