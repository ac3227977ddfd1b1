//! Conversion of parameter values and date-times to Python and back.

use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDateTime, PyDelta, PyFloat, PyInt, PyList, PyString, PyTuple,
    PyTzInfo,
};
use sealbus_fipa::{DateTime, Expression, Number, Origin};

use crate::error;

/// The deepest nesting of a list accepted from Python. By default no decoder reads deeper lists.
const DEPTH: usize = 32;

pub(crate) fn to_python<'py>(
    py: Python<'py>,
    expression: &Expression,
) -> PyResult<Bound<'py, PyAny>> {
    Ok(match expression {
        Expression::Word(text) | Expression::String(text) => PyString::new(py, text).into_any(),
        Expression::Number(number) => number_to_python(py, number)?,
        Expression::DateTime(moment) => date_time_to_python(py, moment)?,
        Expression::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
        Expression::List(items) => {
            let items: PyResult<Vec<_>> = items.iter().map(|item| to_python(py, item)).collect();
            PyList::new(py, items?)?.into_any()
        }
    })
}

pub(crate) fn from_python(value: &Bound<'_, PyAny>) -> PyResult<Expression> {
    nested(value, DEPTH)
}

fn nested(value: &Bound<'_, PyAny>, depth: usize) -> PyResult<Expression> {
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(Expression::from(text.extract::<String>()?));
    }
    if let Some(bytes) = bytes_from_python(value)? {
        return Ok(Expression::Bytes(bytes));
    }
    let is_number = value.is_instance_of::<PyInt>() || value.is_instance_of::<PyFloat>();
    if is_number && !value.is_instance_of::<PyBool>() {
        let digits: String = value.str()?.extract()?;
        let number = Number::parse(&digits)
            .ok_or_else(|| error::acl(format!("{digits} is not a number FIPA can write")))?;
        return Ok(Expression::Number(number));
    }
    if value.is_instance_of::<PyDateTime>() || value.is_instance_of::<PyDelta>() {
        return Ok(Expression::DateTime(date_time_from_python(value)?));
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        if depth == 0 {
            return Err(error::acl(format!(
                "lists are nested more than {DEPTH} deep"
            )));
        }
        let items: PyResult<Vec<_>> = value
            .try_iter()?
            .map(|item| nested(&item?, depth - 1))
            .collect();
        return Ok(Expression::List(items?));
    }
    Err(error::acl(format!(
        "a parameter's value is a str, int, float, bytes, datetime, timedelta or list of these, not {}",
        value.get_type().name()?
    )))
}

/// The bytes of a `bytes` or `bytearray`.
pub(crate) fn bytes_from_python(value: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return Ok(Some(bytes.as_bytes().to_vec()));
    }
    if value.is_instance_of::<PyByteArray>() {
        return Ok(Some(value.extract()?));
    }
    Ok(None)
}

/// An int or float, if Python writes the number in exactly the same form. Otherwise the text, because `007` and
/// `12345E67` are more likely identifiers.
fn number_to_python<'py>(py: Python<'py>, number: &Number) -> PyResult<Bound<'py, PyAny>> {
    let text = number.as_str();
    if let Some(value) = number.as_hexadecimal() {
        return Ok(PyInt::new(py, value).into_any());
    }
    let value = match number.as_i64() {
        Some(value) => PyInt::new(py, value).into_any(),
        None => PyFloat::new(py, number.as_f64()).into_any(),
    };
    if value.str()?.to_str()? == text {
        return Ok(value);
    }
    Ok(PyString::new(py, text).into_any())
}

/// Turns UTC into an aware `datetime`, local time into a naive one, and a relative token into a `timedelta`. A token
/// without a Python type, such as another time zone's letter, stays a token.
pub(crate) fn date_time_to_python<'py>(
    py: Python<'py>,
    moment: &DateTime,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(amount) = moment.amount() {
        let days = i32::try_from(amount.as_secs() / 86_400).unwrap_or(i32::MAX);
        let seconds = i32::try_from(amount.as_secs() % 86_400).unwrap_or_default();
        let micros = i32::try_from(amount.subsec_micros()).unwrap_or_default();
        let delta = PyDelta::new(py, days, seconds, micros, true)?.into_any();
        return match moment.origin() {
            Origin::Before => delta.neg(),
            _ => Ok(delta),
        };
    }
    let zone = match moment.designator() {
        None => None,
        Some(b'Z' | b'z') => Some(PyTzInfo::utc(py)?.to_owned()),
        Some(_) => return token(py, moment),
    };
    let digits = moment.digits();
    let field = |from: usize, to: usize| {
        digits[from..to]
            .iter()
            .fold(0i32, |value, digit| value * 10 + i32::from(digit - b'0'))
    };
    let small = |from: usize, to: usize| u8::try_from(field(from, to)).unwrap_or_default();
    let micros = u32::try_from(field(14, 17) * 1000).unwrap_or_default();
    PyDateTime::new(
        py,
        field(0, 4),
        small(4, 6),
        small(6, 8),
        small(8, 10),
        small(10, 12),
        small(12, 14),
        micros,
        zone.as_ref(),
    )
    .map(Bound::into_any)
    .or_else(|_| token(py, moment))
}

fn token<'py>(py: Python<'py>, moment: &DateTime) -> PyResult<Bound<'py, PyAny>> {
    Ok(PyString::new(py, &moment.to_string()).into_any())
}

/// Reads a `datetime` (an aware one is written in UTC, a naive one without a zone), a `timedelta` from reception, or a
/// token.
pub(crate) fn date_time_from_python(value: &Bound<'_, PyAny>) -> PyResult<DateTime> {
    if let Ok(text) = value.extract::<String>() {
        return DateTime::parse(text.as_bytes()).map_err(error::acl);
    }
    if value.is_instance_of::<PyDelta>() {
        let amount = milliseconds(value)?;
        let length = std::time::Duration::from_millis(amount.unsigned_abs());
        let token = if amount < 0 {
            DateTime::before(length)
        } else {
            DateTime::after(length)
        };
        return token.map_err(error::acl);
    }
    if !value.is_instance_of::<PyDateTime>() {
        return Err(error::acl(format!(
            "a date-time is a datetime, a timedelta or a FIPA token, not {}",
            value.get_type().name()?
        )));
    }
    if value.getattr("tzinfo")?.is_none() {
        let text: String = value
            .call_method1("strftime", ("%Y%m%dT%H%M%S",))?
            .extract()?;
        let micros: u32 = value.getattr("microsecond")?.extract()?;
        let token = format!("{text:0>15}{:03}", micros / 1000);
        return DateTime::parse(token.as_bytes()).map_err(error::acl);
    }
    let py = value.py();
    let utc = PyTzInfo::utc(py)?.to_owned();
    let epoch = PyDateTime::new(py, 1970, 1, 1, 0, 0, 0, 0, Some(&utc))?;
    DateTime::from_unix_ms(milliseconds(&value.sub(epoch)?)?).map_err(error::acl)
}

/// The whole milliseconds of a `timedelta`.
fn milliseconds(delta: &Bound<'_, PyAny>) -> PyResult<i64> {
    let millisecond = PyDelta::new(delta.py(), 0, 0, 1000, false)?;
    delta.floor_div(millisecond)?.extract()
}
