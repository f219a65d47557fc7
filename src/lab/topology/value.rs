//! Values of a topology file: quantities with units, written as text.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Unexpected, Visitor};
use toml::Spanned;

use crate::units::Bytes;

/// A value with its place in the file.
pub(super) type S<T> = Spanned<T>;
/// A value that is written as text, with its place in the file.
pub(super) type Q<T> = Spanned<Text<T>>;

/// A value that is written as text, such as `"10Gbps"`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<T>(pub(super) T);

struct TextVisitor<T>(PhantomData<T>);

impl<T> Visitor<'_> for TextVisitor<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    type Value = Text<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quoted value with its unit")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        text.parse().map(Text).map_err(E::custom)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        // The unit's own error names the units that fit.
        match number.to_string().parse::<T>() {
            Err(error) => Err(E::custom(error)),
            Ok(_) => Err(E::invalid_type(Unexpected::Signed(number), &self)),
        }
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<Self::Value, E> {
        match number.to_string().parse::<T>() {
            Err(error) => Err(E::custom(error)),
            Ok(_) => Err(E::invalid_type(Unexpected::Float(number), &self)),
        }
    }
}

impl<'de, T> Deserialize<'de> for Text<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor(PhantomData))
    }
}

/// One value or a list of them, each written as text.
#[derive(Clone, Debug)]
pub(super) struct OneOrMany<T>(pub(super) Vec<T>);

struct OneOrManyVisitor<T>(PhantomData<T>);

impl<'de, T> Visitor<'de> for OneOrManyVisitor<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    type Value = OneOrMany<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a quoted value or a list of them")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        TextVisitor(PhantomData).visit_str(text).map(|Text(value)| OneOrMany(vec![value]))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        TextVisitor(PhantomData).visit_i64(number).map(|Text(value)| OneOrMany(vec![value]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Text(value)) = items.next_element()? {
            all.push(value);
        }
        Ok(OneOrMany(all))
    }
}

impl<'de, T> Deserialize<'de> for OneOrMany<T>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OneOrManyVisitor(PhantomData))
    }
}

/// A number of bytes where the field's habit is a bare number (MTU, frame length): `1500` or
/// `"9000B"`.
#[derive(Clone, Copy, Debug)]
pub(super) struct ByteCount(pub(super) u32);

struct ByteCountVisitor;

impl Visitor<'_> for ByteCountVisitor {
    type Value = ByteCount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of bytes such as 1500 or \"9000B\"")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        u32::try_from(number)
            .map(ByteCount)
            .map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let Bytes(bytes) = text.parse().map_err(E::custom)?;
        u32::try_from(bytes)
            .map(ByteCount)
            .map_err(|_| E::invalid_value(Unexpected::Str(text), &self))
    }
}

impl<'de> Deserialize<'de> for ByteCount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ByteCountVisitor)
    }
}

/// A probability in parts of 1,000,000,000, written `1%`, `20ppm` or `5ppb`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ppb(pub u32);

/// Parts per billion that make certainty.
pub(super) const PPB_ONE: u32 = 1_000_000_000;

/// Why a probability could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a share like 1%, 20ppm or 5ppb, at most 100%")]
pub struct PpbError(String);

impl FromStr for Ppb {
    type Err = PpbError;
    fn from_str(text: &str) -> Result<Self, PpbError> {
        let refused = || PpbError(text.to_owned());
        let trimmed = text.trim();
        let (number, decimals) = [("%", 7_usize), ("ppm", 3), ("ppb", 0)]
            .iter()
            .find_map(|(unit, n)| trimmed.strip_suffix(unit).map(|number| (number.trim(), *n)))
            .ok_or_else(refused)?;
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let fraction = fraction.trim_end_matches('0');
        if whole.is_empty() || fraction.len() > decimals {
            return Err(refused());
        }
        let digits = format!("{whole}{fraction:0<decimals$}");
        if !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refused());
        }
        digits.parse().ok().filter(|ppb| *ppb <= PPB_ONE).map(Self).ok_or_else(refused)
    }
}

impl fmt::Display for Ppb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000_000, self.0 % 10_000_000);
        if rest == 0 {
            return write!(f, "{whole}%");
        }
        write!(f, "{whole}.{}%", format!("{rest:07}").trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_exact_and_reads_back() {
        for (text, ppb) in [
            ("1%", 10_000_000),
            ("100%", PPB_ONE),
            ("0.0000001%", 1),
            ("20ppm", 20_000),
            ("0.5 ppm", 500),
            ("7ppb", 7),
        ] {
            assert_eq!(text.parse(), Ok(Ppb(ppb)), "{text}");
            assert_eq!(Ppb(ppb).to_string().parse(), Ok(Ppb(ppb)));
        }
        for bad in ["1", "101%", "0.00000001%", "0.5ppb", "%", "-1%", "1.2.3%", "one%"] {
            assert!(bad.parse::<Ppb>().is_err(), "{bad}");
        }
    }
}
