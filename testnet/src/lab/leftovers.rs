//! What a bench that was killed left behind: namespaces and bridges under the number of a process that is gone.

use std::collections::BTreeSet;
use std::fs;

use super::{LABS, run};

/// Takes down labs whose benches are gone. What cannot be taken down stays.
pub(super) fn take_down() {
    let (Ok(names), Ok(links)) = (run(&["ip", "netns", "list"]), run(&["ip", "-o", "link", "show", "type", "bridge"])) else {
        return;
    };
    let running = running();
    let is_left = |name: &&str| number_of(name).is_some_and(|number| !running.contains(&number));
    for name in names.lines().filter_map(|line| line.split_whitespace().next()).filter(is_left) {
        let _ = run(&["ip", "netns", "del", name]);
    }
    // `7: gs123br: <…`
    let bridges = links.lines().filter_map(|line| line.split_whitespace().nth(1)).map(|name| name.trim_end_matches(':'));
    for name in bridges.filter(is_left) {
        let _ = run(&["ip", "link", "del", name]);
    }
}

/// The numbers that labs of the processes that run would have. One number too many leaves something for another time.
fn running() -> BTreeSet<u32> {
    let pids =
        fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    pids.map(|pid| pid % LABS).collect()
}

/// The number of the lab that a namespace (`gs123n10`) or bridge (`gs123br`) belongs to; `None` for what is no lab's.
fn number_of(name: &str) -> Option<u32> {
    let rest = name.strip_prefix("gs")?;
    let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, what) = rest.split_at(digits);
    let is_host = what.strip_prefix('n').is_some_and(|last| !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()));
    (is_host || what == "br").then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_lab_is_named_is_taken_for_one() {
        for (name, number) in [("gs123n10", 123), ("gs0n254", 0), ("gs9999br", 9_999)] {
            assert_eq!(number_of(name), Some(number), "{name}");
        }
        for name in ["gs", "gsn10", "gs123", "gs123n", "gs123nx", "gs123bridge", "gs123v10x", "lo", "other", "gs99999999999n1"] {
            assert_eq!(number_of(name), None, "{name}");
        }
    }
}
