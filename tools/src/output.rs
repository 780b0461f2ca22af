//! What commands print: text for people, or one JSON object with a stable schema.

use std::io::Write as _;

use clap::Args;
use serde::Serialize;

/// Arguments of every command that reads.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct OutputArgs {
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

impl OutputArgs {
    /// Prints `text`, or `value` as JSON.
    pub(crate) fn print(self, text: &str, value: &impl Serialize) {
        let line = if self.json {
            serde_json::to_string_pretty(value).expect("what commands print always has a JSON form")
        } else {
            text.trim_end().to_owned()
        };
        // A reader that has gone (`| head`) has seen what it wanted.
        let _ = writeln!(std::io::stdout(), "{line}");
    }
}

/// `1 document`, `2 documents`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}
