//! What a verdict tells of a way back, in one text of a reason's length: what was left printed, and what went badly.

use groundswell_core::limits::REASON_CHARS;
use groundswell_core::text::Reason;

use super::disk::Failure;

/// Most characters of what was left, and of what went badly on the way back, where a verdict tells both.
const OUTPUT_CHARS: usize = 150;
const TROUBLE_CHARS: usize = 300;
const _: () = assert!(OUTPUT_CHARS + TROUBLE_CHARS + 40 <= REASON_CHARS, "both fit a reason, with what joins them");
/// Of the reason for a way back at least so much is told at start-up.
const LEAST_REASON_CHARS: usize = 100;

/// So much of what went badly is kept: starts and hooks, each said once however often it was tried.
const TROUBLES: usize = 8;

/// What went badly on a way back, in order.
#[derive(Debug, Default)]
pub(super) struct Trouble(Vec<Failure>);

impl Trouble {
    /// One more, if it was not there already.
    pub(super) fn add(&mut self, failure: Failure) {
        if self.0.len() < TROUBLES && self.0.iter().all(|known| known.reason != failure.reason) {
            self.0.push(failure);
        }
    }

    /// All of it: it is told now.
    pub(super) fn take(&mut self) -> Vec<Failure> {
        std::mem::take(&mut self.0)
    }
}

/// Of the last lines of output, those that the reason for going back does not give already.
pub(super) fn unsaid(output: &str, reason: &Reason) -> String {
    let is_news = |line: &&str| !reason.as_str().contains(Reason::lossy(line).as_str());
    output.split(" | ").filter(is_news).collect::<Vec<_>>().join(" | ")
}

/// What was left printed, with what went badly on the way back, if anything did.
pub(super) fn told_of_way(output: &str, trouble: &[Failure]) -> String {
    if trouble.is_empty() { output.to_owned() } else { with_trouble(output, trouble) }
}

/// The same behind the reason for a way back that start-up took, in one text of a reason's length: of the reason as much as
/// leaves room for the rest.
pub(super) fn told_at_start(reason: &Reason, output: &str, trouble: Vec<Failure>) -> Reason {
    let told = told_of_way(output, &trouble);
    if told.is_empty() {
        return reason.clone();
    }
    let room = REASON_CHARS.saturating_sub(told.chars().count() + 2).max(LEAST_REASON_CHARS);
    let reason: String = reason.as_str().chars().take(room).collect();
    Reason::lossy(&format!("{reason}: {told}"))
}

/// What was left printed, and all that went badly on the way back: each with its share, so that none hides another.
fn with_trouble(output: &str, trouble: &[Failure]) -> String {
    let share = TROUBLE_CHARS / trouble.len().max(1);
    let told = trouble.iter().map(|failure| failure.with_output().as_str().chars().take(share).collect::<String>());
    let told = told.collect::<Vec<_>>().join("; ");
    let surplus = output.chars().count().saturating_sub(OUTPUT_CHARS);
    let end: String = output.chars().skip(surplus).collect();
    let semicolon = if end.is_empty() { "" } else { "; and " };
    format!("{end}{semicolon}going back: {told}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_trouble_on_the_way_back_hides_another_however_long_they_are() {
        let failure = |name: &str| Failure { output: "é".repeat(400), ..Failure::broken(format!("hook {name}: failed")) };
        let trouble = ["before-revert", "start", "after-revert"].map(failure);
        let text = with_trouble(&format!("{} the end", "x".repeat(400)), &trouble);
        assert!(Reason::new(text.clone()).is_ok(), "{} characters", text.chars().count());
        for told in
            ["the end; and going back: ", "hook before-revert: failed: é", "; hook start: failed", "; hook after-revert: failed"]
        {
            assert!(text.contains(told), "{text}");
        }
        assert_eq!(with_trouble("", &[Failure::broken("no")]), "going back: no");
    }

    #[test]
    fn start_up_tells_the_reason_what_was_left_printed_and_what_went_badly() {
        let reason = Reason::lossy("started 3 times without being confirmed");
        assert_eq!(told_at_start(&reason, "", Vec::new()), reason);
        assert_eq!(told_at_start(&reason, "no database", Vec::new()).as_str(), format!("{reason}: no database"));
        let long = Reason::lossy(&"r".repeat(REASON_CHARS));
        let told = told_at_start(&long, "no database", vec![Failure::broken("it does not start")]);
        assert!(told.as_str().ends_with("r: no database; and going back: it does not start"), "{told}");
    }

    #[test]
    fn each_trouble_is_told_once_however_often_it_was_met() {
        let mut trouble = Trouble::default();
        for _ in 0..3 {
            (0..2 * TROUBLES).for_each(|number| trouble.add(Failure::broken(format!("trouble {number}"))));
        }
        assert_eq!(trouble.take().len(), TROUBLES);
        assert_eq!(trouble.take(), []);
    }

    #[test]
    fn output_that_the_reason_gives_is_not_given_again() {
        let reason = Reason::lossy("unhealthy: the process ended with status 1: no database | giving up");
        assert_eq!(unsaid("no database | giving up | no database", &reason), "");
        assert_eq!(unsaid("no database | no route to host", &reason), "no route to host");
        assert_eq!(unsaid("", &reason), "");
    }
}
