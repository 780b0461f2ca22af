//! Labels as they are typed: `key=value`.

use groundswell_core::text::{LabelKey, LabelValue};

/// One label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// Its key.
    pub(crate) key: LabelKey,
    /// Its value.
    pub(crate) value: LabelValue,
}

impl std::str::FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("a label is written key=value")?;
        let key = LabelKey::new(key).map_err(|error| error.to_string())?;
        let value = LabelValue::new(value).map_err(|error| error.to_string())?;
        Ok(Self { key, value })
    }
}
