//! What a verdict tells of a way back, in one text of a reason's length: what was left printed, and what went badly.

use groundswell_core::limits::REASON_CHARS;
use groundswell_core::text::Reason;

use super::disk::Failure;

/// Most characters of what was left, and of what went badly on the way back, where a verdict tells both.
const OUTPUT_CHARS: usize = 150;
const TROUBLE_CHARS: usize = 300;
const _: () = assert!(OUTPUT_CHARS + TROUBLE_CHARS + 40 <= REASON_CHARS, "both fit a reason, with what joins them");

/// Of the last lines of output, those that the reason for going back does not give already.
pub(super) fn unsaid(output: &str, reason: &Reason) -> String {
    let is_news = |line: &&str| !reason.as_str().contains(Reason::lossy(line).as_str());
    output.split(" | ").filter(is_news).collect::<Vec<_>>().join(" | ")
}

/// What was left printed, and all that went badly on the way back: each with its share, so that none hides another.
pub(super) fn with_trouble(output: &str, trouble: &[Failure]) -> String {
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
    fn output_that_the_reason_gives_is_not_given_again() {
        let reason = Reason::lossy("unhealthy: the process ended with status 1: no database | giving up");
        assert_eq!(unsaid("no database | giving up | no database", &reason), "");
        assert_eq!(unsaid("no database | no route to host", &reason), "no route to host");
        assert_eq!(unsaid("", &reason), "");
    }
}
