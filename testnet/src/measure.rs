//! Measurements by hand: how fast one agent fetches and verifies an artifact from another.

use std::path::Path;
use std::time::{Duration, Instant};

use groundswell_testnet::fleet::Fleet;
use groundswell_testnet::fleet::error::FleetError;
use groundswell_testnet::fleet::plan::{Plan, PoolPlan, RolloutPlan};
use groundswell_testnet::fleet::service::Behaviour;
use groundswell_testnet::fleet::swell::Swell;

/// Longest that a fetch may take.
const WITHIN: Duration = Duration::from_secs(300);
/// How soon one looks again: far below what is measured.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// Two agents; one has a release of so many megabytes, the other one comes and fetches it.
pub(crate) async fn fetch(megabytes: u32) -> Result<(), FleetError> {
    let program =
        std::env::current_exe().map_err(|source| FleetError::Io { what: "cannot find this program".to_owned(), source })?;
    let bytes = usize::try_from(megabytes).unwrap_or(usize::MAX).saturating_mul(1_000_000);
    let plan = Plan { padding_bytes: bytes, ..Plan::new(vec![PoolPlan::new("edge", 2, "1%")]) };
    let mut fleet = Fleet::build(Swell::find_or_build(&program)?, &program, &plan).await?;
    fleet.start_one("edge-1").await?;
    let operator = fleet.operator().clone();
    let folder = operator.release("1.0.0", 1, Behaviour::Good).await?;
    operator.rollout("1.0.0", &RolloutPlan::waves(&[(100, 0)]), "a measurement").await?;
    let socket = fleet.agent("edge-1")?.api().socket().display().to_string();
    let paths = (operator.fleet_folder().display().to_string(), folder.display().to_string());
    fleet.swell().text(["publish", &paths.0, &paths.1, "--socket", &socket]).await?;
    let size = size_of_largest(&folder);

    fleet.spawn("edge-2")?;
    let (mut began, started) = (None, Instant::now());
    loop {
        if started.elapsed() > WITHIN {
            return Err(FleetError::Late { what: "the fetch".to_owned(), within: WITHIN, seen: format!("{began:?}") });
        }
        if let Ok(status) = fleet.agent("edge-2")?.api().status().await {
            if !status.agent.downloads.is_empty() {
                began.get_or_insert_with(Instant::now);
            }
            if let (Some(began), false) = (began, status.agent.blobs.is_empty()) {
                let took = began.elapsed().as_secs_f64();
                println!(
                    "{size} bytes in {took:.3} s: {:.0} MB/s, each piece and the whole verified and made durable",
                    size / took / 1e6
                );
                break;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    fleet.shut_down().await;
    Ok(())
}

fn size_of_largest(folder: &Path) -> f64 {
    let sizes = std::fs::read_dir(folder).into_iter().flatten().flatten().filter_map(|entry| Some(entry.metadata().ok()?.len()));
    f64::from(u32::try_from(sizes.max().unwrap_or(0)).unwrap_or(u32::MAX))
}
