//! A listed node as waves see it, and whether a rollout's scope has it.
//!
//! Attributes come from the certificate that the rollout's roster names, never from a newer one:
//! so every node computes the same waves from the same two documents.

use alloc::borrow::Cow;
use alloc::collections::BTreeMap;
use alloc::string::ToString;

use crate::documents::certificate::Certificate;
use crate::documents::rollout::{Hosts, Scope};
use crate::node_id::NodeId;
use crate::text::{LabelKey, LabelValue};

/// A node of a roster with the certificate that this roster names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member<'a> {
    /// The node.
    pub id: NodeId,
    /// Its certificate by that roster.
    pub certificate: &'a Certificate,
    /// Unheard of for 7 days when the roster was cut: last in every order.
    pub dormant: bool,
}

/// Whether `certificate` lies in `scope`: in one of its pools (none named: any), carrying all its labels.
/// An observer, which has no pool, lies in no scope.
#[must_use]
pub fn in_scope(scope: &Scope, certificate: &Certificate) -> bool {
    let Some(pool) = &certificate.pool else { return false };
    (scope.pools.is_empty() || scope.pools.contains(pool)) && carries(certificate, &scope.labels)
}

/// Whether some certificate could lie in both scopes. Judged on the two scopes alone, so that every node
/// agrees whichever rosters it has: only different pools, or one label with two values, keep them apart.
#[must_use]
pub fn scopes_overlap(one: &Scope, other: &Scope) -> bool {
    let pools = one.pools.is_empty() || other.pools.is_empty() || one.pools.iter().any(|pool| other.pools.contains(pool));
    pools && one.labels.iter().all(|(key, value)| other.labels.get(key).is_none_or(|theirs| theirs == value))
}

/// Whether `certificate` carries all of `labels`.
#[must_use]
pub fn carries(certificate: &Certificate, labels: &BTreeMap<LabelKey, LabelValue>) -> bool {
    labels.iter().all(|(key, value)| certificate.labels.get(key) == Some(value))
}

/// Whether `hosts` names the node by its attribute.
#[must_use]
pub fn named(certificate: &Certificate, hosts: &Hosts) -> bool {
    attribute(certificate, &hosts.attribute).is_some_and(|value| hosts.values.iter().any(|named| *named == value))
}

/// The attribute `name` of a node: `name`, `node`, `pool`, `platform`, or a label; `None` where it has none.
/// The four fixed names win over labels of the same key.
#[must_use]
pub fn attribute<'a>(certificate: &'a Certificate, name: &str) -> Option<Cow<'a, str>> {
    match name {
        "name" => Some(Cow::Borrowed(certificate.name.as_str())),
        "node" => Some(Cow::Owned(certificate.node.to_string())),
        "pool" => certificate.pool.as_ref().map(|pool| Cow::Borrowed(pool.as_str())),
        "platform" => Some(Cow::Borrowed(certificate.platform.as_str())),
        label => certificate.labels.iter().find(|(key, _)| key.as_str() == label).map(|(_, value)| Cow::Borrowed(value.as_str())),
    }
}
