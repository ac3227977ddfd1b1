//! A serde value becomes a term.

use alloc::borrow::{Cow, ToOwned};
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;

use serde::ser::{
    Error as _, Impossible, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant,
};
use serde::{Serialize, Serializer};

use super::ValueError;
use crate::DateTime;
use crate::forms::DATE_TIME;
use crate::sl::{Float, Parameter, Term};

pub(super) fn term<T: Serialize + ?Sized>(value: &T) -> Result<Term<'static>, ValueError> {
    written(value.serialize(Writer::default())?)
}

/// A struct as a frame whose slots have no names.
pub(super) fn by_position<T: Serialize + ?Sized>(value: &T) -> Result<Term<'static>, ValueError> {
    let writer = Writer {
        by_position: true,
        ..Writer::default()
    };
    written(value.serialize(writer)?)
}

fn written(term: Option<Term<'static>>) -> Result<Term<'static>, ValueError> {
    term.ok_or_else(|| ValueError::custom("SL has no word for nothing: only a field can be None"))
}

/// Writes one value; `None` is no term.
#[derive(Clone, Copy, Default)]
struct Writer {
    /// Whether the slots of a struct have no names. The slots of structs in it have names.
    by_position: bool,
    /// Whether the value is the content of a variant, whose name a struct takes.
    in_variant: bool,
}

impl Writer {
    /// A variant keeps its own name in another one: it becomes the only argument of that one.
    fn variant(self, term: Term<'static>) -> Term<'static> {
        match self.in_variant {
            true => Term::function("", vec![term]),
            false => term,
        }
    }
}

type Written = Result<Option<Term<'static>>, ValueError>;

fn integer(value: impl TryInto<i64> + ToString + Copy) -> Written {
    match value.try_into() {
        Ok(value) => Ok(Some(Term::Integer(value))),
        Err(_) => Err(ValueError::custom(format!(
            "{} does not fit into an integer of 64 bits",
            value.to_string()
        ))),
    }
}

fn text(value: &str) -> Term<'static> {
    Term::Text(Cow::Owned(value.to_owned()))
}

macro_rules! integers {
    ($($method:ident $type:ty),*) => {$(
        fn $method(self, value: $type) -> Written {
            integer(value)
        }
    )*};
}

impl Serializer for Writer {
    type Ok = Option<Term<'static>>;
    type Error = ValueError;
    type SerializeSeq = Items;
    type SerializeTuple = Items;
    type SerializeTupleStruct = Items;
    type SerializeTupleVariant = Items;
    type SerializeMap = Impossible<Self::Ok, ValueError>;
    type SerializeStruct = ObjectSlots;
    type SerializeStructVariant = ObjectSlots;

    integers! {
        serialize_i8 i8, serialize_i16 i16, serialize_i32 i32, serialize_i64 i64, serialize_i128 i128,
        serialize_u8 u8, serialize_u16 u16, serialize_u32 u32, serialize_u64 u64, serialize_u128 u128
    }

    fn serialize_bool(self, value: bool) -> Written {
        Ok(Some(Term::Truth(value)))
    }

    fn serialize_f32(self, value: f32) -> Written {
        self.serialize_f64(value.into())
    }

    fn serialize_f64(self, value: f64) -> Written {
        match Float::new(value) {
            Some(float) => Ok(Some(Term::Float(float))),
            None => Err(ValueError::custom(format!("SL cannot write {value}"))),
        }
    }

    fn serialize_char(self, value: char) -> Written {
        Ok(Some(text(value.encode_utf8(&mut [0; 4]))))
    }

    fn serialize_str(self, value: &str) -> Written {
        Ok(Some(text(value)))
    }

    fn serialize_bytes(self, value: &[u8]) -> Written {
        Ok(Some(Term::Bytes(Cow::Owned(value.to_vec()))))
    }

    fn serialize_none(self) -> Written {
        Ok(None)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Written {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Written {
        Ok(None)
    }

    fn serialize_unit_struct(self, name: &'static str) -> Written {
        Ok(Some(Term::frame(name, Vec::new())))
    }

    fn serialize_unit_variant(self, _: &'static str, _: u32, variant: &'static str) -> Written {
        Ok(Some(text(variant)))
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        name: &'static str,
        value: &T,
    ) -> Written {
        let written = value.serialize(self)?;
        match &written {
            Some(Term::Text(moment)) if name == DATE_TIME => {
                let moment = DateTime::parse(moment.as_bytes()).map_err(ValueError::custom)?;
                Ok(Some(Term::DateTime(moment)))
            }
            _ => Ok(written),
        }
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        value: &T,
    ) -> Written {
        let content = Self {
            in_variant: true,
            ..self
        };
        let term = match value.serialize(content)? {
            Some(Term::Function(mut frame)) => {
                frame.symbol = Cow::Borrowed(variant);
                Term::Function(frame)
            }
            other => Term::function(variant, other.into_iter().collect()),
        };
        Ok(Some(self.variant(term)))
    }

    fn serialize_seq(self, length: Option<usize>) -> Result<Items, ValueError> {
        Ok(Items::new(None, length.unwrap_or(0), Self::default()))
    }

    fn serialize_tuple(self, length: usize) -> Result<Items, ValueError> {
        Ok(Items::new(None, length, Self::default()))
    }

    fn serialize_tuple_struct(
        self,
        name: &'static str,
        length: usize,
    ) -> Result<Items, ValueError> {
        Ok(Items::new(Some(name), length, Self::default()))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<Items, ValueError> {
        Ok(Items::new(Some(variant), length, self))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, ValueError> {
        Err(ValueError::custom(
            "SL has no maps: write a struct, or a sequence of pairs",
        ))
    }

    fn serialize_struct(
        self,
        name: &'static str,
        length: usize,
    ) -> Result<ObjectSlots, ValueError> {
        let writer = Self {
            in_variant: false,
            ..self
        };
        Ok(ObjectSlots::new(name, length, writer))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
        length: usize,
    ) -> Result<ObjectSlots, ValueError> {
        Ok(ObjectSlots::new(variant, length, self))
    }
}

/// Items of a sequence, or arguments of a symbol.
struct Items {
    symbol: Option<&'static str>,
    terms: Vec<Term<'static>>,
    writer: Writer,
}

impl Items {
    fn new(symbol: Option<&'static str>, length: usize, writer: Writer) -> Self {
        Self {
            symbol,
            terms: Vec::with_capacity(length),
            writer,
        }
    }

    fn add<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
        self.terms.push(term(value)?);
        Ok(())
    }

    fn finish(self) -> Written {
        let term = match self.symbol {
            Some(symbol) => Term::function(symbol, self.terms),
            None => Term::Sequence(self.terms),
        };
        Ok(Some(self.writer.variant(term)))
    }
}

macro_rules! items {
    ($($trait:ident $method:ident),*) => {$(
        impl $trait for Items {
            type Ok = Option<Term<'static>>;
            type Error = ValueError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), ValueError> {
                self.add(value)
            }

            fn end(self) -> Written {
                self.finish()
            }
        }
    )*};
}

items! {
    SerializeSeq serialize_element, SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field, SerializeTupleVariant serialize_field
}

/// Slots of an object.
struct ObjectSlots {
    symbol: &'static str,
    slots: Vec<(&'static str, Option<Term<'static>>)>,
    writer: Writer,
}

impl ObjectSlots {
    fn new(symbol: &'static str, length: usize, writer: Writer) -> Self {
        Self {
            symbol,
            slots: Vec::with_capacity(length),
            writer,
        }
    }

    fn add<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), ValueError> {
        let value = value.serialize(Writer::default())?;
        self.slots.push((name, value));
        Ok(())
    }

    fn finish(self) -> Written {
        let given = |(name, value): (&'static str, Option<_>)| Some(Parameter::new(name, value?));
        if !self.writer.by_position {
            let slots = self.slots.into_iter().filter_map(given).collect();
            return Ok(Some(self.writer.variant(Term::frame(self.symbol, slots))));
        }
        let mut slots = self.slots;
        while slots.pop_if(|(_, value)| value.is_none()).is_some() {}
        let terms = slots.into_iter().map(|(name, value)| {
            value.ok_or_else(|| {
                ValueError::custom(format!(
                    "{name} cannot be left out before slots that are there: they have no names"
                ))
            })
        });
        let terms = terms.collect::<Result<_, _>>()?;
        Ok(Some(
            self.writer.variant(Term::function(self.symbol, terms)),
        ))
    }
}

macro_rules! frames {
    ($($trait:ident),*) => {$(
        impl $trait for ObjectSlots {
            type Ok = Option<Term<'static>>;
            type Error = ValueError;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                name: &'static str,
                value: &T,
            ) -> Result<(), ValueError> {
                self.add(name, value)
            }

            fn skip_field(&mut self, name: &'static str) -> Result<(), ValueError> {
                self.slots.push((name, None));
                Ok(())
            }

            fn end(self) -> Written {
                self.finish()
            }
        }
    )*};
}

frames!(SerializeStruct, SerializeStructVariant);
