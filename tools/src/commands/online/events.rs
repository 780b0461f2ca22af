//! `swell events`: what happened since the agent started, and what happens now.

use std::io::Write as _;

use clap::Args;
use groundswell_agent::events::Entry;

use crate::failure::Failure;
use crate::online::block_on;
use crate::online::socket::{self, SocketArgs};
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct EventsArgs {
    /// Go on with what happens from now, one line each, until the agent ends. With --json: one object on each line.
    #[arg(long)]
    follow: bool,
    /// Only events after this number.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    after: u64,
    #[command(flatten)]
    socket: SocketArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Does it.
pub(crate) fn run(args: &EventsArgs) -> Result<(), Failure> {
    if !args.follow {
        let entries: Vec<Entry> = args.socket.read(&format!("/v1/events?after={}", args.after))?;
        let text: String = entries.iter().map(|entry| format!("{}\n", line(entry))).collect();
        args.output.print(&text, &entries);
        return Ok(());
    }
    block_on(async {
        let client = args.socket.client();
        let print = |entry: Entry| {
            let text = if args.output.json { json(&entry) } else { line(&entry) };
            // A reader that has gone ends the command.
            writeln!(std::io::stdout(), "{text}").is_ok()
        };
        client.follow(args.after, print).await.map_err(|error| socket::failure("the request", error))
    })
}

fn json(entry: &Entry) -> String {
    serde_json::to_string(entry).expect("an event has a JSON form")
}

/// Number, time, kind, then the fields in their order.
fn line(entry: &Entry) -> String {
    let value = serde_json::to_value(&entry.told).expect("an event has a JSON form");
    let mut kind = String::new();
    let mut fields = String::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        match value {
            serde_json::Value::String(text) if name == "kind" => kind.clone_from(text),
            serde_json::Value::Null => {}
            serde_json::Value::String(text) if text.is_empty() => {}
            serde_json::Value::String(text) if text.contains(' ') => fields.push_str(&format!(" {name}={text:?}")),
            serde_json::Value::String(text) => fields.push_str(&format!(" {name}={text}")),
            other => fields.push_str(&format!(" {name}={other}")),
        }
    }
    format!("{:>5}  {}  {kind:17} {}", entry.number, entry.at, fields.trim_start()).trim_end().to_owned()
}
