//! `groundswell-testnet model`: visits every state of small worlds of the lease protocol. Exit 0 only when all is as it must be.

use std::process::ExitCode;
use std::time::Instant;

use groundswell_testnet::model::explore::{Bounds, Found, explore};
use groundswell_testnet::model::lease::Leases;
use groundswell_testnet::model::shape::{Mutant, Shape};

/// What to explore.
#[derive(Debug, clap::Args)]
pub(crate) struct ModelArgs {
    /// One world alone; without it all of them in turn.
    #[arg(long)]
    config: Option<String>,
    /// A rule broken on purpose: the search must find what follows.
    #[arg(long, conflicts_with = "config")]
    mutant: Option<String>,
    /// Stop each search after so many states.
    #[arg(long, default_value_t = 2_000_000)]
    max_states: usize,
}

/// Explores.
#[must_use]
pub(crate) fn run(args: &ModelArgs) -> ExitCode {
    let chosen = match chosen(args) {
        Ok(chosen) => chosen,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    let wrong = chosen.into_iter().filter(|shape| !as_it_must_be(shape, args.max_states)).count();
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn chosen(args: &ModelArgs) -> Result<Vec<Shape>, String> {
    if let Some(name) = &args.mutant {
        let found = Mutant::ALL.iter().find(|(_, known)| known == name);
        let names = Mutant::ALL.map(|(_, name)| name).join(", ");
        return found.map(|(mutant, _)| vec![mutant.shape()]).ok_or_else(|| format!("--mutant {name}: there are {names}"));
    }
    let Some(name) = &args.config else { return Ok(Shape::all()) };
    let names: Vec<&str> = Shape::all().iter().map(|shape| shape.name).collect();
    let found: Vec<Shape> = Shape::all().into_iter().filter(|shape| shape.name == name).collect();
    if found.is_empty() { Err(format!("--config {name}: there are {}", names.join(", "))) } else { Ok(found) }
}

/// Explores one world and tells of it.
fn as_it_must_be(shape: &Shape, most: usize) -> bool {
    println!("{}: {}", shape.name, shape.about);
    if let Some(mutant) = shape.mutant {
        println!("  broken on purpose: {mutant:?}");
    }
    let begun = Instant::now();
    let found = explore(&mut Leases::new(shape.clone()), Bounds { states: most, traps: shape.asks_for_traps() });
    let Found { states, depth, moves, complete, .. } = found;
    let how_far = if complete { "complete" } else { "not complete" };
    println!("  {states} states, depth {depth}, {moves} moves, {how_far}, {:.1} s", begun.elapsed().as_secs_f64());
    for way in found.broken.iter().chain(&found.trap) {
        println!("{way}");
    }
    let right = (found.broken.is_some() || found.trap.is_some()) == shape.must_break();
    println!("  {}", if right { "as it must be" } else { "NOT as it must be" });
    right
}
