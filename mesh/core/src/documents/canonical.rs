//! The one form of a body: canonical JSON (RFC 8785) of integers, strings, lists and objects.
//!
//! Keys are sorted here, explicitly, by UTF-16 code units as the RFC says; no feature of a library is trusted for it.
//! Reading is "parse, write again, compare bytes", so duplicate keys, blanks, other escapes, other spellings of a
//! number and absent fields that should be null all end here.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::rejection::{Reason, Rejection};
use crate::limits::{JSON_DEPTH, JSON_INTEGER};

/// Writes `value` in its one form.
///
/// # Panics
/// When `value` holds what no document can hold: a fraction, an integer beyond ±(2^53 − 1), a nesting beyond the limit.
/// Bodies that were parsed here or built by the tools and validated never do; use [`try_encode`] for anything else.
#[must_use]
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    try_encode(value).expect("a document holds only what canonical JSON can carry")
}

/// Writes `value` in its one form.
///
/// # Errors
/// `malformed` when it holds a fraction, an integer beyond ±(2^53 − 1), a key that is no string, or nests too deep.
pub fn try_encode<T: Serialize>(value: &T) -> Result<Vec<u8>, Rejection> {
    let value = serde_json::to_value(value).map_err(|error| Rejection::malformed("body", error.to_string()))?;
    let mut out = Vec::new();
    write(&value, 0, &mut out)?;
    Ok(out)
}

/// Reads a body that must be in its one form.
///
/// # Errors
/// `malformed` when it is not a `T`, naming the field; `not-canonical` when it is one in another form.
pub fn decode<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Result<T, Rejection> {
    let value: T = parse(bytes)?;
    if try_encode(&value)? == bytes {
        Ok(value)
    } else {
        let detail =
            "the body is not canonical JSON (RFC 8785): sorted keys, no blanks, every field once; sign it again with swell";
        Err(Rejection::new(Reason::NotCanonical, "body", detail))
    }
}

/// Strict JSON of one value and nothing after it, with the path of what is wrong.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Rejection> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let text = error.into_inner().to_string();
        Rejection::malformed(field(&path, &text), text)
    })?;
    json.end().map_err(|error| Rejection::malformed("body", error.to_string()))?;
    Ok(value)
}

/// `artifacts[2]` and "missing field `sha256`" are `artifacts[2].sha256`.
fn field(path: &str, error: &str) -> String {
    let path = if path == "." || path == "?" { "" } else { path };
    let missing = error.strip_prefix("missing field `").and_then(|rest| rest.split('`').next());
    match missing {
        Some(name) if path.is_empty() => name.to_string(),
        Some(name) => format!("{path}.{name}"),
        None if path.is_empty() => "body".to_string(),
        None => path.to_string(),
    }
}

fn write(value: &Value, depth: usize, out: &mut Vec<u8>) -> Result<(), Rejection> {
    if depth > JSON_DEPTH {
        return Err(Rejection::malformed("body", format!("nested deeper than {JSON_DEPTH}")));
    }
    match value {
        Value::Null => out.extend(b"null"),
        Value::Bool(true) => out.extend(b"true"),
        Value::Bool(false) => out.extend(b"false"),
        Value::Number(number) => {
            let size = number.as_i64().map(i64::unsigned_abs).or_else(|| number.as_u64());
            if size.is_none_or(|size| size > JSON_INTEGER) {
                return Err(Rejection::malformed("body", format!("{number} is not an integer within ±(2^53 − 1)")));
            }
            out.extend(number.to_string().bytes());
        }
        Value::String(text) => write_string(text, out),
        Value::Array(items) => {
            out.push(b'[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write(item, depth + 1, out)?;
            }
            out.push(b']');
        }
        Value::Object(fields) => {
            let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
            fields.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push(b'{');
            for (index, (key, item)) in fields.into_iter().enumerate() {
                if index > 0 {
                    out.push(b',');
                }
                write_string(key, out);
                out.push(b':');
                write(item, depth + 1, out)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}

/// The shortest escapes, lower-case hex, and nothing escaped that need not be.
fn write_string(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for c in text.chars() {
        match c {
            '"' => out.extend(b"\\\""),
            '\\' => out.extend(b"\\\\"),
            '\u{8}' => out.extend(b"\\b"),
            '\t' => out.extend(b"\\t"),
            '\n' => out.extend(b"\\n"),
            '\u{c}' => out.extend(b"\\f"),
            '\r' => out.extend(b"\\r"),
            c if c < ' ' => out.extend(format!("\\u{:04x}", u32::from(c)).bytes()),
            c => out.extend(c.encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (-9_007_199_254_740_991i64..=9_007_199_254_740_991).prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..6)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn the_form_is_that_of_an_rfc_8785_crate(value in any_value()) {
            prop_assert_eq!(String::from_utf8(encode(&value)).unwrap(), serde_jcs::to_string(&value).unwrap());
        }

        #[test]
        fn what_was_encoded_decodes_to_itself(value in any_value()) {
            prop_assert_eq!(decode::<Value>(&encode(&value)), Ok(value));
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode::<Value>(&bytes);
        }
    }

    #[test]
    fn keys_sort_as_in_the_vector_of_the_rfc() {
        let value = json!({
            "\u{20ac}": "Euro Sign", "\r": "Carriage Return", "\u{fb33}": "Hebrew Letter Dalet With Dagesh", "1": "One",
            "\u{1f600}": "Emoji: Grinning Face", "\u{80}": "Control", "\u{f6}": "Latin Small Letter O With Diaeresis"
        });
        let text = String::from_utf8(encode(&value)).unwrap();
        let order = ["\\r", "\"1\"", "\u{80}", "\u{f6}", "\u{20ac}", "\u{1f600}", "\u{fb33}"];
        let places: Vec<usize> = order.iter().map(|key| text.find(key).unwrap()).collect();
        assert!(places.is_sorted(), "{text}");
    }

    #[test]
    fn every_other_spelling_is_refused() {
        type Numbers = BTreeMap<String, i64>;
        assert!(decode::<Numbers>(br#"{"a":1,"b":-2}"#).is_ok());
        for (bad, reason) in [
            (&br#"{"b":-2,"a":1}"#[..], Reason::NotCanonical),
            (br#"{"a":1, "b":-2}"#, Reason::NotCanonical),
            (br#"{"a":1,"a":1}"#, Reason::NotCanonical),
            (br#"{"\u0061":1}"#, Reason::NotCanonical),
            (br#"{"a":-0}"#, Reason::Malformed),
            (br#"{"a":1e3}"#, Reason::Malformed),
            (br#"{"a":1.0}"#, Reason::Malformed),
            (br#"{"a":9007199254740993}"#, Reason::Malformed),
            (br#"{"a":1}{}"#, Reason::Malformed),
            (br#"{"\ud800":1}"#, Reason::Malformed),
            (b"{\"\xff\":1}", Reason::Malformed),
            (b"", Reason::Malformed),
        ] {
            let got = decode::<Numbers>(bad).map_err(|rejection| rejection.reason);
            assert_eq!(got, Err(reason), "{}", String::from_utf8_lossy(bad));
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = ["[".repeat(100), "]".repeat(100)].concat();
        assert_eq!(decode::<Value>(deep.as_bytes()).map_err(|r| r.reason), Err(Reason::Malformed));
        let endless = "[".repeat(100_000);
        assert_eq!(decode::<Value>(endless.as_bytes()).map_err(|r| r.reason), Err(Reason::Malformed));
    }

    #[test]
    fn a_missing_field_is_named_with_its_path() {
        #[derive(Debug, Serialize, serde::Deserialize)]
        struct Inner {
            sha256: u8,
        }
        let error = decode::<BTreeMap<String, Vec<Inner>>>(br#"{"artifacts":[{"sha256":1},{}]}"#).unwrap_err();
        assert_eq!(error.field, "artifacts[1].sha256");
    }
}
