//! How etcd's gateway writes messages as JSON: 64-bit numbers as text, since JavaScript's cannot hold them; bytes in base64; what has its
//! default value is left out. Numbers are read from text and from numbers.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserializer, Error, Visitor};
use serde::ser::Serializer;

pub(super) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

pub(super) fn write_number<S: Serializer>(number: &impl ToString, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&number.to_string())
}

pub(super) fn write_bytes<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

pub(super) fn write_list<S: Serializer>(list: &[Vec<u8>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(list.iter().map(|bytes| STANDARD.encode(bytes)))
}

pub(super) fn read_number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    struct Number;

    impl Visitor<'_> for Number {
        type Value = i64;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("a whole number of 64 bits, as a number or in quotes")
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
            Ok(number)
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<i64, E> {
            i64::try_from(number).map_err(|_| E::custom(format!("{number} is too large")))
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<i64, E> {
            text.parse().map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self))
        }
    }

    deserializer.deserialize_any(Number)
}

pub(super) fn read_bytes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    struct Base64;

    impl Visitor<'_> for Base64 {
        type Value = Vec<u8>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("bytes in base64")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<Vec<u8>, E> {
            STANDARD.decode(text).map_err(|error| E::custom(format!("illegal base64 data: {error}")))
        }
    }

    deserializer.deserialize_str(Base64)
}
