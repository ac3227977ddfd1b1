//! A term becomes a serde value.

use alloc::borrow::{Cow, ToOwned};
use alloc::format;
use alloc::string::{String, ToString};
use core::slice;

use serde::de::value::{MapDeserializer, SeqDeserializer, StringDeserializer};
use serde::de::{
    DeserializeSeed, EnumAccess, Error as _, IntoDeserializer, VariantAccess, Visitor,
};
use serde::{Deserializer, forward_to_deserialize_any};

use super::ValueError;
use crate::sl::{Arguments, FunctionalTerm, Parameter, Term};

fn members<'t, 'a>(
    terms: &'t [Term<'a>],
) -> SeqDeserializer<slice::Iter<'t, Term<'a>>, ValueError> {
    SeqDeserializer::new(terms.iter())
}

/// The kind of a term, for errors.
fn kind(term: &Term<'_>) -> Cow<'static, str> {
    match term {
        Term::Variable(_) => "a variable".into(),
        Term::Text(_) => "a string".into(),
        Term::Truth(_) => "a truth value".into(),
        Term::Bytes(_) => "bytes".into(),
        Term::Integer(_) => "an integer".into(),
        Term::Float(_) => "a float".into(),
        Term::DateTime(_) => "a date-time".into(),
        Term::Function(frame) => {
            let symbol: String = frame.symbol.chars().take(64).collect();
            format!("({symbol} …)").into()
        }
        Term::Sequence(_) => "a sequence".into(),
        Term::Set(_) => "a set".into(),
        Term::Action(_) => "an action".into(),
        Term::Identifying(_) => "an identifying expression".into(),
    }
}

/// The slots of a frame under the names of a struct's fields, which may differ in letter case or be given by position.
fn slots<'t, 'a, 'de, V: Visitor<'de>>(
    frame: &'t FunctionalTerm<'a>,
    fields: &'static [&'static str],
    visitor: V,
) -> Result<V::Value, ValueError> {
    match &frame.arguments {
        Arguments::Positional(terms) if terms.len() > fields.len() => Err(ValueError::custom(
            format!("expected {} slots, got {}", fields.len(), terms.len()),
        )),
        Arguments::Positional(terms) => {
            let named = fields.iter().copied().zip(terms);
            visitor.visit_map(MapDeserializer::new(named))
        }
        Arguments::Named(parameters) => {
            let named = parameters.iter().map(|Parameter { name, value }| {
                let field = fields.iter().find(|field| field.eq_ignore_ascii_case(name));
                (field.copied().unwrap_or(name.as_ref()), value)
            });
            visitor.visit_map(MapDeserializer::new(named))
        }
    }
}

impl<'de> IntoDeserializer<'de, ValueError> for &Term<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for &Term<'_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self {
            Term::Text(text) | Term::Variable(text) => visitor.visit_str(text),
            Term::Truth(truth) => visitor.visit_bool(*truth),
            Term::Bytes(bytes) => visitor.visit_bytes(bytes),
            Term::Integer(value) => visitor.visit_i64(*value),
            Term::Float(value) => visitor.visit_f64(value.get()),
            Term::DateTime(moment) => visitor.visit_string(moment.to_string()),
            Term::Sequence(terms) | Term::Set(terms) => visitor.visit_seq(members(terms)),
            Term::Function(frame) => match &frame.arguments {
                Arguments::Positional(terms) => visitor.visit_seq(members(terms)),
                Arguments::Named(_) => slots(frame, &[], visitor),
            },
            Term::Action(_) | Term::Identifying(_) => Err(ValueError::custom(format!(
                "expected a value, got {}",
                kind(self)
            ))),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self.as_text() {
            Some(text) if text.eq_ignore_ascii_case("true") => visitor.visit_bool(true),
            Some(text) if text.eq_ignore_ascii_case("false") => visitor.visit_bool(false),
            _ => Err(ValueError::custom(format!(
                "expected true or false, got {}",
                kind(self)
            ))),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        let symbol = match self {
            Term::Function(frame) if !frame.has_arguments() => frame.symbol.as_ref(),
            Term::Text(text) => text.as_ref(),
            _ => "",
        };
        if symbol.eq_ignore_ascii_case(name) {
            return visitor.visit_unit();
        }
        Err(ValueError::custom(format!(
            "expected {name}, got {}",
            kind(self)
        )))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self {
            Term::Function(frame) if frame.symbol.eq_ignore_ascii_case(name) => {
                slots(frame, fields, visitor)
            }
            // A symbol without slots is written bare.
            Term::Text(text) if text.eq_ignore_ascii_case(name) => visitor.visit_map(
                MapDeserializer::new(core::iter::empty::<(&str, &Term<'_>)>()),
            ),
            _ => Err(ValueError::custom(format!(
                "expected ({name} …), got {}",
                kind(self)
            ))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        let symbol = match self {
            Term::Function(frame) => &frame.symbol,
            Term::Text(text) => text,
            _ => {
                return Err(ValueError::custom(format!(
                    "expected one of {}, got {}",
                    variants.join(", "),
                    kind(self)
                )));
            }
        };
        let known = variants.iter().find(|it| it.eq_ignore_ascii_case(symbol));
        visitor.visit_enum(Variant {
            name: known.copied().unwrap_or(symbol),
            term: self,
        })
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        match self {
            // Others write the string `true` as the truth value.
            Term::Truth(truth) => visitor.visit_string(truth.to_string()),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.deserialize_str(visitor)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf seq tuple tuple_struct map
        identifier ignored_any
    }
}

/// A frame, or a word, as one of the variants of an enum.
struct Variant<'t, 'a> {
    name: &'t str,
    term: &'t Term<'a>,
}

impl<'de> EnumAccess<'de> for Variant<'_, '_> {
    type Error = ValueError;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self), ValueError> {
        let name: StringDeserializer<ValueError> = self.name.to_owned().into_deserializer();
        Ok((seed.deserialize(name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'_, '_> {
    type Error = ValueError;

    fn unit_variant(self) -> Result<(), ValueError> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(
        self,
        seed: T,
    ) -> Result<T::Value, ValueError> {
        seed.deserialize(VariantContent { frame: self.term })
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, ValueError> {
        self.term.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self.term {
            Term::Function(frame) => slots(frame, fields, visitor),
            other => other.deserialize_any(visitor),
        }
    }
}

/// The content of a variant: a struct, whose slots stand under the variant's name, or the only argument.
struct VariantContent<'t, 'a> {
    frame: &'t Term<'a>,
}

impl<'t, 'a> VariantContent<'t, 'a> {
    /// The only argument; without one, the frame itself.
    fn value(&self) -> &'t Term<'a> {
        match self.frame {
            Term::Function(frame) => match &frame.arguments {
                Arguments::Positional(terms) if terms.len() == 1 => &terms[0],
                _ => self.frame,
            },
            other => other,
        }
    }

    /// Whether the variant's name stands alone.
    fn is_bare(&self) -> bool {
        match self.frame {
            Term::Function(frame) => !frame.has_arguments(),
            _ => true,
        }
    }
}

impl<'de> Deserializer<'de> for VariantContent<'_, '_> {
    type Error = ValueError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.value().deserialize_any(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.value().deserialize_bool(visitor)
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.value().deserialize_str(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        self.value().deserialize_string(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        if self.is_bare() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, ValueError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        if self.is_bare() {
            visitor.visit_unit()
        } else {
            self.value().deserialize_unit_struct(name, visitor)
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        self.value().deserialize_enum(name, variants, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, ValueError> {
        match self.frame {
            Term::Function(frame) => slots(frame, fields, visitor),
            other => other.deserialize_struct(name, fields, visitor),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf seq tuple tuple_struct map
        identifier ignored_any
    }
}
