//! `swell explain`: why this node is not moving, what it waits for, what would move it.

use std::fmt::Write as _;

use clap::Args;
use groundswell_core::node::view::Explanation;
use groundswell_core::text::Product;

use crate::failure::Failure;
use crate::online::socket::SocketArgs;
use crate::output::OutputArgs;

/// What is typed.
#[derive(Debug, Args)]
pub(crate) struct ExplainArgs {
    /// One product; all when left out.
    product: Option<Product>,
    #[command(flatten)]
    socket: SocketArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Does it.
pub(crate) fn run(args: &ExplainArgs) -> Result<(), Failure> {
    // A product's name is plain: letters, digits, `. _ + -`. Of these only the plus means something in a query.
    let query = args.product.as_ref().map_or_else(String::new, |product| format!("?product={}", product.replace('+', "%2B")));
    let explanations: Vec<Explanation> = args.socket.read(&format!("/v1/explain{query}"))?;
    let mut text = String::new();
    for explanation in &explanations {
        let _ = writeln!(text, "{}: {}", explanation.product, explanation.summary);
        if let Some(until) = explanation.hold.as_ref().and_then(|hold| hold.until) {
            let _ = writeln!(text, "  until {until}");
        }
        for fact in &explanation.facts {
            let _ = writeln!(text, "  {fact}");
        }
        for way in &explanation.ways_out {
            let _ = writeln!(text, "  -> {way}");
        }
    }
    if explanations.is_empty() {
        text.push_str("no product is configured on this node\n");
    }
    args.output.print(&text, &explanations);
    Ok(())
}
