//! What operators sign: the six kinds of document, their one canonical form and their envelope.
//!
//! Structs here mirror the JSON exactly and are parsed strictly (unknown fields are `malformed`).
//! Whether a document is *trusted* is decided in [`crate::trust`]; what it *means* in [`crate::rollout`].

pub mod canonical;
pub mod certificate;
pub mod envelope;
pub mod fleet;
pub mod rejection;
pub mod release;
pub mod rollout;
mod rollout_rules;
pub mod roster;
mod rule;
pub mod tag;
pub mod token;

use alloc::format;
use alloc::vec::Vec;

use rejection::Rejection;

use crate::digest::Digest;
use crate::time::Timestamp;

/// The kinds of document, by the `type` of their body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `groundswell.fleet`
    Fleet,
    /// `groundswell.release`
    Release,
    /// `groundswell.node`: a node certificate.
    Node,
    /// `groundswell.token`: the right to sign certificates within bounds.
    Token,
    /// `groundswell.roster`
    Roster,
    /// `groundswell.rollout`
    Rollout,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 6] = [Self::Fleet, Self::Release, Self::Node, Self::Token, Self::Roster, Self::Rollout];

    /// The body's `type`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fleet => "groundswell.fleet",
            Self::Release => "groundswell.release",
            Self::Node => "groundswell.node",
            Self::Token => "groundswell.token",
            Self::Roster => "groundswell.roster",
            Self::Rollout => "groundswell.rollout",
        }
    }
}

/// A parsed body of any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "bodies are few but for certificates; a box would show in every match")]
pub enum Body {
    /// See [`fleet::Fleet`].
    Fleet(fleet::Fleet),
    /// See [`release::Release`].
    Release(release::Release),
    /// See [`certificate::Certificate`].
    Node(certificate::Certificate),
    /// See [`token::Token`].
    Token(token::Token),
    /// See [`roster::Roster`].
    Roster(roster::Roster),
    /// See [`rollout::Rollout`].
    Rollout(rollout::Rollout),
}

impl Body {
    /// Reads a body of the kind that its envelope names: one canonical form, strict fields, every structural rule.
    ///
    /// # Errors
    /// `malformed`, `not-canonical` or `too-large`, naming the field.
    pub fn parse(kind: Kind, bytes: &[u8]) -> Result<Self, Rejection> {
        let body = match kind {
            Kind::Fleet => canonical::decode(bytes).map(Self::Fleet),
            Kind::Release => canonical::decode(bytes).map(Self::Release),
            Kind::Node => canonical::decode(bytes).map(Self::Node),
            Kind::Token => canonical::decode(bytes).map(Self::Token),
            Kind::Roster => canonical::decode(bytes).map(Self::Roster),
            Kind::Rollout => canonical::decode(bytes).map(Self::Rollout),
        };
        let body = body.map_err(|mut rejection| {
            if rejection.field == "type" {
                rejection.detail = format!("{} does not match the envelope's outer kind {}", rejection.field, kind.name());
            }
            rejection
        })?;
        body.validate()?;
        Ok(body)
    }

    /// The order in which a stranger can accept documents: fleet documents one after the other, then what keys sign that they
    /// name; predecessors before successors.
    #[must_use]
    pub fn order(&self) -> (u8, u64) {
        match self {
            Self::Fleet(fleet) => (0, fleet.version),
            Self::Roster(roster) => (1, roster.version),
            Self::Token(_) => (2, 0),
            Self::Node(certificate) => (3, certificate.serial),
            Self::Release(release) => (4, release.sequence.get()),
            Self::Rollout(rollout) => (5, rollout.generation.get()),
        }
    }

    /// Every structural rule of its kind that needs no other document. The tools call it before they sign.
    ///
    /// # Errors
    /// The first rule broken, naming the field.
    pub fn validate(&self) -> Result<(), Rejection> {
        match self {
            Self::Fleet(body) => body.validate(),
            Self::Release(body) => body.validate(),
            Self::Node(body) => body.validate(),
            Self::Token(body) => body.validate(),
            Self::Roster(body) => body.validate(),
            Self::Rollout(body) => body.validate(),
        }
    }

    /// Its canonical bytes: what is signed.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Fleet(body) => canonical::encode(body),
            Self::Release(body) => canonical::encode(body),
            Self::Node(body) => canonical::encode(body),
            Self::Token(body) => canonical::encode(body),
            Self::Roster(body) => canonical::encode(body),
            Self::Rollout(body) => canonical::encode(body),
        }
    }

    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Fleet(_) => Kind::Fleet,
            Self::Release(_) => Kind::Release,
            Self::Node(_) => Kind::Node,
            Self::Token(_) => Kind::Token,
            Self::Roster(_) => Kind::Roster,
            Self::Rollout(_) => Kind::Rollout,
        }
    }

    /// When it was issued, by its signers' clock.
    #[must_use]
    pub fn issued_at(&self) -> Timestamp {
        match self {
            Self::Fleet(body) => body.issued_at,
            Self::Release(body) => body.issued_at,
            Self::Node(body) => body.issued_at,
            Self::Token(body) => body.issued_at,
            Self::Roster(body) => body.issued_at,
            Self::Rollout(body) => body.issued_at,
        }
    }

    /// The fleet that it names; `None` for releases and a fleet's first version.
    #[must_use]
    pub fn fleet(&self) -> Option<Digest> {
        match self {
            Self::Fleet(body) => body.fleet,
            Self::Release(_) => None,
            Self::Node(body) => Some(body.fleet),
            Self::Token(body) => Some(body.fleet),
            Self::Roster(body) => Some(body.fleet),
            Self::Rollout(body) => Some(body.fleet),
        }
    }
}
