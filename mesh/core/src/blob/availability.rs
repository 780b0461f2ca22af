//! How many whole copies of a blob several holders have together, piece by piece.

use super::piece_set::PieceSet;
use alloc::vec::Vec;

/// The distributed copies in `sets`, all of one blob, in parts per million: how many of them have the rarest piece, and the
/// share of the pieces that more of them have. From 1,000,000 on they can complete each other without anybody else.
#[must_use]
pub fn distributed_ppm<'a>(sets: impl IntoIterator<Item = &'a PieceSet>) -> u64 {
    let mut owners: Vec<u64> = Vec::new();
    for set in sets {
        owners.resize(owners.len().max(usize::try_from(set.count()).unwrap_or(0)), 0);
        for (piece, count) in (0_u32..).zip(&mut owners) {
            *count += u64::from(set.contains(piece));
        }
    }
    let Some(rarest) = owners.iter().copied().min() else { return 0 };
    let more = owners.iter().filter(|count| **count > rarest).count();
    let share = u64::try_from(more).unwrap_or(0) * 1_000_000 / u64::try_from(owners.len()).unwrap_or(1);
    rarest * 1_000_000 + share
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blob::Layout;

    #[test]
    fn the_rarest_piece_decides_and_what_is_less_rare_is_a_share() {
        let layout = Layout::of(4 * 65_536).unwrap();
        let of = |pieces: &[u32]| {
            let mut set = PieceSet::empty(layout);
            for piece in pieces {
                set.insert(*piece);
            }
            set
        };
        assert_eq!(distributed_ppm([]), 0);
        assert_eq!(distributed_ppm([&of(&[]), &of(&[])]), 0);
        assert_eq!(distributed_ppm([&of(&[0, 1, 2])]), 750_000);
        assert_eq!(distributed_ppm([&of(&[0, 1]), &of(&[0, 1])]), 500_000, "twice the same half is half a copy");
        assert_eq!(distributed_ppm([&of(&[0, 1]), &of(&[2, 3])]), 1_000_000, "two halves are a copy");
        assert_eq!(distributed_ppm([&of(&[0, 1, 2, 3]), &of(&[3])]), 1_250_000);
        assert_eq!(distributed_ppm([&PieceSet::full(layout), &PieceSet::full(layout)]), 2_000_000);
    }
}
