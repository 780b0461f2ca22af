//! The command `self-upgrade`: twelve real agents under their supervisors replace themselves, and leave broken builds; one of
//! them is left behind by the mesh and catches up through outer doors.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use groundswell_testnet::fleet::Fleet;
use groundswell_testnet::fleet::builds::{Build, alone};
use groundswell_testnet::fleet::error::FleetError;
use groundswell_testnet::fleet::plan::{Plan, PoolPlan};
use groundswell_testnet::fleet::swell::Swell;
use groundswell_testnet::self_upgrade::{Check, left_behind, play};

/// What can be typed.
#[derive(Debug, Args)]
pub(crate) struct SelfUpgradeArgs {
    /// The broken builds, in this order.
    #[arg(long, value_delimiter = ',', default_values_t = [Build::Panics, Build::Hangs, Build::Lonely], value_enum)]
    broken: Vec<Build>,
}

/// Runs it.
pub(crate) async fn run(args: SelfUpgradeArgs) -> ExitCode {
    let began = Instant::now();
    let checks = match tell(&args, began).await {
        Ok(checks) => checks,
        Err(error) => {
            eprintln!("it failed: {error}");
            return ExitCode::FAILURE;
        }
    };
    println!("\nWhat must be:");
    for (name, differs) in &checks {
        match differs {
            None => println!("  yes  {name}"),
            Some(seen) => println!("  NO   {name}: {seen}"),
        }
    }
    println!("  in {:.0} s", began.elapsed().as_secs_f64());
    if checks.iter().all(|(_, differs)| differs.is_none()) {
        println!("All was as it must be.");
        ExitCode::SUCCESS
    } else {
        println!("Something differs from what must be.");
        ExitCode::FAILURE
    }
}

async fn tell(args: &SelfUpgradeArgs, began: Instant) -> Result<Vec<Check>, FleetError> {
    let what_else = |what: &str, source| FleetError::Io { what: what.to_owned(), source };
    let program = std::env::current_exe().map_err(|source| what_else("cannot find this program", source))?;
    if args.broken.contains(&Build::Lonely) && alone().is_none() {
        let source = std::io::Error::from(std::io::ErrorKind::PermissionDenied);
        return Err(what_else("`unshare --net` does not work here: run it as root, or leave `lonely` out of --broken", source));
    }
    let swell = Swell::find_or_build(&program)?;
    let pools = vec![PoolPlan::new("core", 3, "34%"), PoolPlan::new("edge", 6, "34%"), PoolPlan::new("lab", 3, "34%")];
    let plan = Plan { agents: true, ..Plan::new(pools) };
    let mut fleet = Fleet::build(swell, &program, &plan).await?;
    println!("Everything is in {}.", fleet.folder().display());
    let mut say = |line: &str| println!("{:5.0} s  {line}", began.elapsed().as_secs_f64());
    let mut checks = play(&mut fleet, &args.broken, &mut say).await?;
    // After two good builds, the broken ones and the way forward.
    let number = u64::try_from(args.broken.len()).unwrap_or_default() + 4;
    checks.extend(left_behind(&mut fleet, number, &mut say).await?);
    let left = fleet.shut_down().await;
    checks.push(("no process is left behind".to_owned(), (!left.is_empty()).then(|| format!("{left:?}"))));
    Ok(checks)
}
