//! A way in words: what changed between two states.

use super::book::{Book, ClaimId, Contents};
use super::state::{Claimant, Keeper, Stage, Standing, State};

/// What happened between two states.
pub(super) fn tell(book: &Book, before: &State, after: &State) -> String {
    let mut told = Vec::new();
    for (at, (old, new)) in before.claimants.iter().zip(&after.claimants).enumerate() {
        told.extend(claimant(at, old, new));
    }
    for (at, (old, new)) in before.keepers.iter().zip(&after.keepers).enumerate() {
        told.extend(keeper(book, at, old, new));
    }
    for roster in 0..8 {
        if (before.rosters ^ after.rosters) >> roster & 1 == 1 {
            told.push(format!("roster v{roster} is signed"));
        }
    }
    told.join("; ")
}

fn letter(claimant: usize) -> &'static str {
    ["A", "B", "C"].get(claimant).copied().unwrap_or("?")
}

fn claim(id: &ClaimId) -> String {
    format!("{}.{} (slot {}, v{})", letter(id.claimant.into()), id.number, id.place.slot, id.place.roster)
}

fn claimant(at: usize, old: &Claimant, new: &Claimant) -> Option<String> {
    let name = letter(at);
    let number = old.made.max(new.made);
    if new.made > old.made {
        let place = new.place().unwrap_or_default();
        return Some(format!("{name} claims slot {} under v{} as {name}.{number}", place.slot, place.roster));
    }
    if new.written_off > old.written_off {
        return Some(format!("operators write off {name}.{}", new.written_off));
    }
    if old.standing == new.standing {
        return None;
    }
    Some(match (old.standing, new.standing) {
        (_, Standing::Fresh) => format!("{name} claims"),
        (_, Standing::Spent) => format!("{name} restarts, or waits too long: {name}.{number} may not start any more"),
        (Standing::Active, Standing::Ready) => format!("{name} is back on its old version and gives {name}.{number} back"),
        (_, Standing::Ready) => format!("{name} withdraws {name}.{number}"),
        (_, Standing::Active) => format!("{name} sees its grants and starts on {name}.{number}: disrupted"),
        (_, Standing::Done) => format!("{name} confirms and gives {name}.{number} back"),
        (_, Standing::Dead) => format!("{name} dies in its upgrade: disrupted still"),
        (_, Standing::GivenUp) => format!("{name}, dead, is presumed lost"),
    })
}

fn keeper(book: &Book, at: usize, old: &Keeper, new: &Keeper) -> Option<String> {
    if old == new {
        return None;
    }
    let says = |number: u16| &book.warden(number).1;
    let kept = match new.stage {
        Stage::Kept => ", on disk",
        Stage::Said => ", published",
        Stage::Settled => "",
    };
    if old.warden != new.warden {
        let what = if says(new.warden).amnesia && !says(old.warden).amnesia || new.blind > old.blind {
            "has its store set back, notices, and waits".to_owned()
        } else if new.stage == Stage::Settled && old.stage == Stage::Said {
            "loses power and what it had not made durable".to_owned()
        } else {
            changed(says(old.warden), says(new.warden))
        };
        return Some(format!("warden {at} {what}{kept}"));
    }
    match (old.stage, new.stage) {
        (Stage::Said, Stage::Settled) => Some(format!("warden {at} makes it durable")),
        (Stage::Kept, Stage::Settled) if new.said == old.said => {
            Some(format!("warden {at} says nothing that helps anybody, or loses power before it can"))
        }
        (Stage::Kept, Stage::Settled) => Some(format!("warden {at} publishes {}", listed(says(new.warden)))),
        _ => None,
    }
}

fn changed(old: &Contents, new: &Contents) -> String {
    let mut told = Vec::new();
    if old.declared != new.declared && new.declared > 0 {
        told.push(format!("declares v{}", new.declared - 1));
    }
    told.extend(
        old.promises.iter().filter(|id| !new.promises.contains(id)).map(|id| format!("ends its promise to {}", claim(id))),
    );
    if old.amnesia && !new.amnesia {
        told.push("takes part again".to_owned());
    }
    told.extend(new.promises.iter().filter(|id| !old.promises.contains(id)).map(|id| format!("grants {}", claim(id))));
    told.join(", ")
}

fn listed(contents: &Contents) -> String {
    let under = match contents.declared {
        0 => "no roster".to_owned(),
        declared => format!("v{}", declared - 1),
    };
    if contents.promises.is_empty() {
        return format!("{under} and no promise");
    }
    let claims: Vec<String> = contents.promises.iter().map(claim).collect();
    format!("{under} and its promise to {}", claims.join(" and "))
}
