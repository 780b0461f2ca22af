//! `swell node init`: the node's Ed25519 key and a request file, made on the device.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use groundswell_agent::identity;
use groundswell_core::limits::LABELS;
use groundswell_core::node_id::NodeId;
use groundswell_core::text::{NodeName, Platform, Pool};
use serde::Serialize;

use crate::authoring::attribute::Label;
use crate::authoring::files::Batch;
use crate::authoring::platform;
use crate::authoring::request::Request;
use crate::failure::Failure;
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// The folder for the key and the request.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// The node's name for people.
    #[arg(long)]
    name: NodeName,
    /// Its pool.
    #[arg(long, required_unless_present = "observer", conflicts_with = "observer")]
    pool: Option<Pool>,
    /// An observer: sees and publishes, is in no pool.
    #[arg(long)]
    observer: bool,
    /// Its platform; this machine's when left out.
    #[arg(long)]
    platform: Option<Platform>,
    /// A label; repeat for several.
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<Label>,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Made {
    node: NodeId,
    key: String,
    request: String,
}

/// Does it.
pub(crate) fn run(args: InitArgs) -> Result<(), Failure> {
    let mut labels = BTreeMap::new();
    for Label { key, value } in args.labels {
        if labels.insert(key.clone(), value).is_some() {
            return Err(Failure::invalid(format!("--label {key} is given twice")));
        }
    }
    if labels.len() > LABELS {
        return Err(Failure::invalid(format!("--label: at most {LABELS} labels")));
    }
    let secret = identity::generate().map_err(|source| Failure::failed("the operating system gives no randomness", source))?;
    let request = Request {
        node: identity::node_id(&secret),
        name: args.name,
        pool: args.pool,
        platform: args.platform.unwrap_or_else(platform::of_this_machine),
        labels,
    };
    let key = args.dir.join("node.key");
    let request_path = args.dir.join(format!("{}.req", request.name));
    let mut batch = Batch::default();
    batch.new_public(&request_path, request.sign(&secret));
    batch.check()?;
    std::fs::create_dir_all(&args.dir).map_err(|source| Failure::unwritable(&args.dir, source))?;
    // The key comes first: a request without its key would admit nobody.
    identity::write_key_file(&key, &secret).map_err(|error| Failure::invalid_by("nothing was written", error))?;
    batch.write()?;
    let made = Made { node: request.node, key: key.display().to_string(), request: request_path.display().to_string() };
    let text = format!(
        "node {}\n  {}\n  {}\nGive the request to an operator: swell node admit FLEET --key enroll.pem {}",
        made.node,
        made.key,
        made.request,
        request_path.display()
    );
    args.output.print(&text, &made);
    Ok(())
}
