//! What must be, each by its name, and whether it was.

/// One expectation.
#[derive(Clone, Debug)]
pub(crate) struct Expectation {
    /// Its name.
    pub(crate) name: String,
    /// What differed; `None` when all was as it must be.
    pub(crate) differs: Option<String>,
}

/// All of them, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Expectations(Vec<Expectation>);

impl Expectations {
    /// Notes an expectation; `detail` says what was seen when it does not hold.
    pub(crate) fn check(&mut self, name: &str, holds: bool, detail: impl FnOnce() -> String) {
        self.0.push(Expectation { name: name.to_owned(), differs: (!holds).then(detail) });
    }

    /// All, in order.
    pub(crate) fn all(&self) -> &[Expectation] {
        &self.0
    }

    /// Whether every one of them holds.
    pub(crate) fn hold(&self) -> bool {
        self.0.iter().all(|expectation| expectation.differs.is_none())
    }
}
