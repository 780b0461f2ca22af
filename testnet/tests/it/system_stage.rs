//! A small fleet of real agents for one test, and looking at it until something has come about.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

use groundswell_core::node::view::{ProductView, RolloutView};
use groundswell_core::record::status::Phase;
use groundswell_testnet::fleet::Fleet;
use groundswell_testnet::fleet::api::StatusView;
use groundswell_testnet::fleet::operator::Signed;
use groundswell_testnet::fleet::plan::{Links, Plan, PoolPlan, RolloutPlan};
use groundswell_testnet::fleet::service::Behaviour;
use groundswell_testnet::fleet::swell::Swell;
use groundswell_testnet::fleet::wait::until;
use groundswell_testnet::fleet::witness::Change;

/// Longer than anything may take on a busy machine, and than twice the longest pause after which anything here is tried again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// This crate's binary, which has the sample service.
pub(crate) fn program() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_groundswell-testnet"))
}

/// The real `swell`, built once for all tests.
pub(crate) fn swell() -> Swell {
    static BUILT: OnceLock<Swell> = OnceLock::new();
    BUILT.get_or_init(|| Swell::find_or_build(program()).expect("the swell binary is there or can be built")).clone()
}

/// A running fleet.
pub(crate) struct Stage {
    pub(crate) fleet: Fleet,
}

/// What each node says, by name.
pub(crate) type Sample = BTreeMap<String, StatusView>;

impl Stage {
    /// A fleet of one pool `edge` of so many nodes, with one slot. Nothing runs.
    pub(crate) async fn built(nodes: usize, links: Links) -> Self {
        let plan = Plan { links, ..Plan::new(vec![PoolPlan::new("edge", nodes, "1%")]) };
        Self { fleet: Fleet::build(swell(), program(), &plan).await.expect("the fleet is built") }
    }

    /// The same, with all agents running and knowing each other.
    pub(crate) async fn running(nodes: usize, links: Links) -> Self {
        let mut stage = Self::built(nodes, links).await;
        stage.fleet.start().await.expect("all agents start");
        stage.fleet.meets(PATIENCE).await.expect("all agents meet");
        stage
    }

    /// The same, on version 1 everywhere.
    pub(crate) async fn on_version_1(nodes: usize) -> Self {
        let mut stage = Self::running(nodes, Links::Hub).await;
        stage.roll("1.0.0", 1, Behaviour::Good, &RolloutPlan::waves(&[(100, 0)]), "edge-1").await;
        stage.everywhere("1.0.0").await;
        stage.fleet.witness().count();
        stage
    }

    /// Signs a version and a rollout of it, and hands both to one node.
    pub(crate) async fn roll(&self, version: &str, sequence: u64, behaviour: Behaviour, plan: &RolloutPlan, to: &str) -> Signed {
        let operator = self.fleet.operator();
        operator.release(version, sequence, behaviour).await.expect("the release is signed");
        let signed = operator.rollout(version, plan, "a test").await.expect("the rollout is signed");
        self.fleet.publish(to, version, &signed).await.expect("it is published");
        signed
    }

    /// Signs the next generation of a rollout and hands it to one node.
    pub(crate) async fn steer(&self, what: &str, rollout: &str, further: &[&str], to: &str) {
        let signed = self.fleet.operator().steer(what, rollout, further).await.expect("the generation is signed");
        let ran = self.fleet.try_publish(to, None, &signed).await.expect("swell runs");
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    }

    /// Looks at all nodes until `done`, which says what is missing otherwise.
    pub(crate) async fn sees(&mut self, what: &str, done: impl Fn(&Sample) -> Result<(), String>) -> Sample {
        let fleet = &mut self.fleet;
        let seen = until(what, PATIENCE, async || {
            fleet.check()?;
            let sample = fleet.sample().await?;
            Ok(done(&sample).map(|()| sample))
        })
        .await;
        match seen {
            Ok(sample) => sample,
            Err(error) => panic!("{error}\n{}", self.logs()),
        }
    }

    /// Waits until every running node runs `version` and has vouched for it.
    pub(crate) async fn everywhere(&mut self, version: &str) -> Sample {
        self.sees(&format!("{version} is everywhere"), |sample| all(sample, |product| soaked_on(product, version))).await
    }

    /// Waits until `node` is so.
    pub(crate) async fn node_is(&mut self, node: &str, what: &str, is: impl Fn(&ProductView) -> bool) -> Sample {
        self.sees(&format!("{node} is {what}"), |sample| all_of(sample.iter().filter(|(name, _)| *name == node), &is)).await
    }

    /// A rollout as a node sees it.
    pub(crate) async fn rollout(&self, node: &str, id: &str) -> RolloutView {
        let rollouts = self.fleet.agent(node).expect("it exists").api().rollouts().await.expect("it answers");
        rollouts.into_iter().find(|rollout| rollout.id == id).expect("the rollout is known there")
    }

    /// Waits until a rollout is so, as a node sees it.
    pub(crate) async fn rollout_is(&self, node: &str, id: &str, what: &str, is: impl Fn(&RolloutView) -> bool) -> RolloutView {
        let seen = until(what, PATIENCE, async || {
            let rollout = self.rollout(node, id).await;
            Ok(if is(&rollout) { Ok(rollout) } else { Err(format!("{rollout:?}")) })
        });
        seen.await.unwrap_or_else(|error| panic!("{error}\n{}", self.logs()))
    }

    /// How often the service of `node` was started in `version`.
    pub(crate) fn starts(&self, node: &str, version: &str) -> usize {
        let observed = self.fleet.witness().observed();
        let starts = observed.iter().filter(|it| it.node == node && it.version == version && it.change == Change::Started);
        starts.count()
    }

    /// Nobody ever had more than one service of the pool down, by the services' own word.
    pub(crate) fn stayed_within_budget(&self) {
        let most = self.fleet.witness().most_down();
        assert!(most.values().all(|most| *most <= 1), "{most:?}\n{}", self.logs());
    }

    /// The ends of all logs.
    pub(crate) fn logs(&self) -> String {
        self.fleet.agents().iter().map(|agent| format!("== {}\n{}\n", agent.name(), agent.last_lines())).collect()
    }

    /// Ends it all; nothing may be left.
    pub(crate) async fn end(self) {
        let left = self.fleet.shut_down().await;
        assert!(left.is_empty(), "left behind: {left:?}");
    }
}

/// Whether a product has soaked on a version.
pub(crate) fn soaked_on(product: &ProductView, version: &str) -> bool {
    product.phase == Phase::Soaked && product.version.as_deref() == Some(version)
}

/// Every node's product is so, or who is not.
pub(crate) fn all(sample: &Sample, is: impl Fn(&ProductView) -> bool) -> Result<(), String> {
    all_of(sample.iter(), is)
}

fn all_of<'a>(
    nodes: impl Iterator<Item = (&'a String, &'a StatusView)>,
    is: impl Fn(&ProductView) -> bool,
) -> Result<(), String> {
    let products = nodes.flat_map(|(name, status)| status.node.products.iter().map(move |product| (name, product)));
    let others = products.filter(|(_, product)| !is(product));
    let others: Vec<String> = others
        .map(|(name, product)| format!("{name} is {:?} on {:?}: {:?}", product.phase, product.version, product.hold))
        .collect();
    if others.is_empty() { Ok(()) } else { Err(others.join("; ")) }
}

/// Names of the nodes whose product is so.
pub(crate) fn which(sample: &Sample, is: impl Fn(&ProductView) -> bool) -> Vec<String> {
    sample.iter().filter(|(_, status)| status.node.products.iter().any(&is)).map(|(name, _)| name.clone()).collect()
}
