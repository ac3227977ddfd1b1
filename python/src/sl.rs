//! FIPA-SL as Python values, whose classes are in `sealbus/sl.py`.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyDateTime, PyDelta, PyDict, PyFloat, PyFrozenSet, PyInt, PyList,
    PySet, PyString, PyTuple,
};
use sealbus::body::LIMITS;
use sealbus_fipa::sl::{
    ActionExpression, Arguments, Connective, Content, ContentExpression, Float, FunctionalTerm,
    IdentifyingExpression, ModalOperator, Parameter, Quantifier, ReferentialOperator, Term, Wff,
};

use crate::acl::aid::PyAid;
use crate::acl::expression::{date_time_from_python, date_time_to_python};
use crate::error;

type Any<'py> = Bound<'py, PyAny>;

/// The operators, by the words with which Python names them.
const CONNECTIVES: [(&str, Connective); 4] = [
    ("and", Connective::And),
    ("or", Connective::Or),
    ("implies", Connective::Implies),
    ("equiv", Connective::Equiv),
];
const QUANTIFIERS: [(&str, Quantifier); 2] = [
    ("forall", Quantifier::ForAll),
    ("exists", Quantifier::Exists),
];
const MODALS: [(&str, ModalOperator); 4] = [
    ("B", ModalOperator::Believes),
    ("U", ModalOperator::Uncertain),
    ("PG", ModalOperator::PersistentGoal),
    ("I", ModalOperator::Intends),
];
const REFERENTIALS: [(&str, ReferentialOperator); 3] = [
    ("iota", ReferentialOperator::Iota),
    ("any", ReferentialOperator::Any),
    ("all", ReferentialOperator::All),
];

fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    let found = words.iter().find(|(_, each)| each == value);
    found.map_or("", |(word, _)| word)
}

fn operator<T: Copy>(words: &[(&'static str, T)], value: &Any<'_>) -> PyResult<T> {
    let name: String = value.getattr("operator")?.extract()?;
    let found = words.iter().find(|(word, _)| *word == name);
    found.map(|(_, operator)| *operator).ok_or_else(|| {
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        PyValueError::new_err(format!("'{name}' is none of {}", known.join(", ")))
    })
}

/// Reads content in SL.
#[pyfunction]
pub(crate) fn read_sl<'py>(py: Python<'py>, text: &Any<'py>) -> PyResult<Any<'py>> {
    let bytes: Vec<u8> = match text.cast::<PyString>() {
        Ok(text) => text.extract::<String>()?.into_bytes(),
        Err(_) => text.cast::<PyBytes>()?.as_bytes().to_vec(),
    };
    let content = Content::parse(&bytes, &LIMITS).map_err(|problem| error::decode(&problem))?;
    let tree = Tree::new(py)?;
    let expressions: PyResult<Vec<_>> = content
        .expressions
        .iter()
        .map(|expression| match expression {
            ContentExpression::Identifying(it) => tree.identifying(it),
            ContentExpression::Action(it) => tree.action(it),
            ContentExpression::Proposition(it) => tree.wff(it),
        })
        .collect();
    tree.node("Content", (PyTuple::new(py, expressions?)?,))
}

/// Writes content in SL as text, or as bytes if it contains bytes that are not text. `plain` turns other values into
/// terms.
#[pyfunction]
pub(crate) fn write_sl<'py>(content: &Any<'py>, plain: &Any<'py>) -> PyResult<Any<'py>> {
    let py = content.py();
    let source = Source { plain };
    let mut expressions = Vec::new();
    for expression in content.getattr("expressions")?.try_iter()? {
        expressions.push(source.expression(&expression?)?);
    }
    if expressions.is_empty() {
        return Err(PyValueError::new_err(
            "content in SL has at least one expression",
        ));
    }
    let content = Content { expressions };
    Ok(match content.into() {
        sealbus_fipa::Content::Text(text) => PyString::new(py, &text).into_any(),
        sealbus_fipa::Content::Bytes(bytes) => PyBytes::new(py, &bytes).into_any(),
    })
}

/// Turns a tree into Python values. The reader has limited the depth of the tree.
struct Tree<'py> {
    py: Python<'py>,
    module: Any<'py>,
}

impl<'py> Tree<'py> {
    fn new(py: Python<'py>) -> PyResult<Self> {
        static MODULE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let module = MODULE.get_or_try_init(py, || {
            py.import("sealbus.sl").map(|it| it.into_any().unbind())
        })?;
        Ok(Self {
            py,
            module: module.bind(py).clone(),
        })
    }

    fn node(&self, class: &str, arguments: impl pyo3::call::PyCallArgs<'py>) -> PyResult<Any<'py>> {
        self.module.getattr(class)?.call1(arguments)
    }

    fn terms(&self, terms: &[Term<'_>]) -> PyResult<Bound<'py, PyTuple>> {
        let terms: PyResult<Vec<_>> = terms.iter().map(|term| self.term(term)).collect();
        PyTuple::new(self.py, terms?)
    }

    fn arguments(&self, arguments: &Arguments<'_>) -> PyResult<Any<'py>> {
        match arguments {
            Arguments::Positional(terms) => Ok(self.terms(terms)?.into_any()),
            Arguments::Named(parameters) => {
                let slots = PyDict::new(self.py);
                for Parameter { name, value } in parameters {
                    slots.set_item(&**name, self.term(value)?)?;
                }
                Ok(slots.into_any())
            }
        }
    }

    fn term(&self, term: &Term<'_>) -> PyResult<Any<'py>> {
        let py = self.py;
        Ok(match term {
            Term::Variable(name) => self.node("Variable", (&**name,))?,
            Term::Text(text) => PyString::new(py, text).into_any(),
            Term::Truth(truth) => PyBool::new(py, *truth).to_owned().into_any(),
            Term::Bytes(bytes) => PyBytes::new(py, bytes).into_any(),
            Term::Integer(value) => value.into_pyobject(py)?.into_any(),
            Term::Float(value) => PyFloat::new(py, value.get()).into_any(),
            Term::DateTime(moment) => date_time_to_python(py, moment)?,
            Term::Function(it) => {
                self.node("Function", (&*it.symbol, self.arguments(&it.arguments)?))?
            }
            Term::Sequence(terms) => self.terms(terms)?.to_list().into_any(),
            Term::Set(terms) => self.node("SetOf", (self.terms(terms)?,))?,
            Term::Action(action) => self.action(action)?,
            Term::Identifying(it) => self.identifying(it)?,
        })
    }

    fn action(&self, action: &ActionExpression<'_>) -> PyResult<Any<'py>> {
        match action {
            ActionExpression::Action { agent, act } => {
                self.node("Action", (self.term(agent)?, self.term(act)?))
            }
            ActionExpression::Choice(it) => {
                self.node("Choice", (self.action(&it.0)?, self.action(&it.1)?))
            }
            ActionExpression::Sequence(it) => {
                self.node("Then", (self.action(&it.0)?, self.action(&it.1)?))
            }
        }
    }

    fn identifying(&self, it: &IdentifyingExpression<'_>) -> PyResult<Any<'py>> {
        let operator = word(&REFERENTIALS, &it.operator);
        let (term, condition) = (self.term(&it.term)?, self.wff(&it.condition)?);
        self.node("Identifying", (operator, term, condition))
    }

    fn wff(&self, wff: &Wff<'_>) -> PyResult<Any<'py>> {
        let condition = |it: &Option<Wff<'_>>| it.as_ref().map(|it| self.wff(it)).transpose();
        match wff {
            Wff::True => Ok(PyBool::new(self.py, true).to_owned().into_any()),
            Wff::False => Ok(PyBool::new(self.py, false).to_owned().into_any()),
            Wff::Symbol(symbol) => self.node("Predicate", (&**symbol, PyTuple::empty(self.py))),
            Wff::Predicate(it) => {
                self.node("Predicate", (&*it.symbol, self.arguments(&it.arguments)?))
            }
            Wff::Equals(it) => self.node("Equals", (self.term(&it.0)?, self.term(&it.1)?)),
            Wff::Result(it) => self.node("Result", (self.term(&it.0)?, self.term(&it.1)?)),
            Wff::Not(it) => self.node("Not", (self.wff(it)?,)),
            Wff::Connective(connective, it) => {
                let operator = word(&CONNECTIVES, connective);
                self.node("Connective", (operator, self.wff(&it.0)?, self.wff(&it.1)?))
            }
            Wff::Quantified(quantifier, variable, it) => {
                let variable = self.node("Variable", (&**variable,))?;
                let operator = word(&QUANTIFIERS, quantifier);
                self.node("Quantified", (operator, variable, self.wff(it)?))
            }
            Wff::Modal(modal, it) => {
                let operator = word(&MODALS, modal);
                self.node("Modal", (operator, self.term(&it.0)?, self.wff(&it.1)?))
            }
            Wff::Feasible(it) => self.node("Feasible", (self.action(&it.0)?, condition(&it.1)?)),
            Wff::Done(it) => self.node("Done", (self.action(&it.0)?, condition(&it.1)?)),
        }
    }
}

/// The deepest nesting of Python values.
const DEPTH: usize = 128;

/// Turns Python values into a tree.
struct Source<'s, 'py> {
    plain: &'s Any<'py>,
}

/// The name of a class of `sealbus.sl`, or nothing for other values.
fn class_of(value: &Any<'_>) -> PyResult<Option<String>> {
    match value.getattr_opt("_sl")? {
        Some(class) => class.extract().map(Some),
        None => Ok(None),
    }
}

impl Source<'_, '_> {
    fn expression(&self, value: &Any<'_>) -> PyResult<ContentExpression<'static>> {
        Ok(match class_of(value)?.as_deref() {
            Some("Action" | "Choice" | "Then") => self.action(value, DEPTH)?.into(),
            Some("Identifying") => self.identifying(value, DEPTH)?.into(),
            _ => self.wff(value, DEPTH)?.into(),
        })
    }

    fn field(&self, value: &Any<'_>, name: &str, depth: usize) -> PyResult<Term<'static>> {
        self.term(&value.getattr(name)?, depth)
    }

    fn formula(&self, value: &Any<'_>, name: &str, depth: usize) -> PyResult<Wff<'static>> {
        self.wff(&value.getattr(name)?, depth)
    }

    fn arguments(&self, value: &Any<'_>, depth: usize) -> PyResult<Arguments<'static>> {
        let arguments = value.getattr("arguments")?;
        let Ok(slots) = arguments.cast::<PyDict>() else {
            return Ok(Arguments::Positional(self.terms(&arguments, depth)?));
        };
        let mut parameters = Vec::with_capacity(slots.len());
        // Iterates over a copy: code of a value may change the dictionary, and the iteration would panic.
        for (name, value) in slots.copy()?.iter() {
            // A slot without a value is left out.
            if !value.is_none() {
                let name: String = name.extract()?;
                parameters.push(Parameter::new(name, self.term(&value, depth)?));
            }
        }
        Ok(match parameters.is_empty() {
            true => Arguments::Positional(Vec::new()),
            false => Arguments::Named(parameters),
        })
    }

    fn terms(&self, values: &Any<'_>, depth: usize) -> PyResult<Vec<Term<'static>>> {
        values
            .try_iter()?
            .map(|value| self.term(&value?, depth))
            .collect()
    }

    fn term(&self, value: &Any<'_>, depth: usize) -> PyResult<Term<'static>> {
        let depth = deeper(depth)?;
        if let Ok(text) = value.cast::<PyString>() {
            return Ok(Term::text(text.extract::<String>()?));
        }
        if let Ok(truth) = value.cast::<PyBool>() {
            return Ok(Term::Truth(truth.is_true()));
        }
        if value.is_instance_of::<PyInt>() {
            let number = value
                .extract()
                .map_err(|_| PyValueError::new_err("an integer in SL has no more than 64 bits"))?;
            return Ok(Term::Integer(number));
        }
        if let Ok(number) = value.cast::<PyFloat>() {
            let number = number.value();
            let float = Float::new(number)
                .ok_or_else(|| PyValueError::new_err(format!("SL cannot write {number}")))?;
            return Ok(Term::Float(float));
        }
        if value.is_instance_of::<PyBytes>() || value.is_instance_of::<PyByteArray>() {
            return Ok(Term::Bytes(value.extract::<Vec<u8>>()?.into()));
        }
        if value.is_instance_of::<PyDateTime>() || value.is_instance_of::<PyDelta>() {
            return Ok(Term::DateTime(date_time_from_python(value)?));
        }
        if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
            return Ok(Term::Sequence(self.terms(value, depth)?));
        }
        if value.is_instance_of::<PySet>() || value.is_instance_of::<PyFrozenSet>() {
            return Ok(Term::Set(self.terms(value, depth)?));
        }
        if let Ok(aid) = value.cast::<PyAid>() {
            return Ok(aid.get().0.to_term().into_owned());
        }
        match class_of(value)?.as_deref() {
            Some("Variable") => Ok(Term::Variable(name(value)?.into())),
            Some("Function") => Ok(Term::Function(Box::new(self.function(value, depth)?))),
            Some("SetOf") => Ok(Term::Set(self.terms(&value.getattr("members")?, depth)?)),
            Some("Action" | "Choice" | "Then") => {
                Ok(Term::Action(Box::new(self.action(value, depth)?)))
            }
            Some("Identifying") => Ok(Term::Identifying(Box::new(self.identifying(value, depth)?))),
            Some(class) => Err(PyTypeError::new_err(format!("a {class} is no term of SL"))),
            None => self.term(&self.plain.call1((value,))?, depth),
        }
    }

    fn function(&self, value: &Any<'_>, depth: usize) -> PyResult<FunctionalTerm<'static>> {
        Ok(FunctionalTerm {
            symbol: value.getattr("symbol")?.extract::<String>()?.into(),
            arguments: self.arguments(value, depth)?,
        })
    }

    fn action(&self, value: &Any<'_>, depth: usize) -> PyResult<ActionExpression<'static>> {
        let depth = deeper(depth)?;
        let both = || -> PyResult<_> {
            let first = self.action(&value.getattr("first")?, depth)?;
            Ok(Box::new((
                first,
                self.action(&value.getattr("second")?, depth)?,
            )))
        };
        match class_of(value)?.as_deref() {
            Some("Action") => Ok(ActionExpression::new(
                self.field(value, "agent", depth)?,
                self.field(value, "act", depth)?,
            )),
            Some("Choice") => Ok(ActionExpression::Choice(both()?)),
            Some("Then") => Ok(ActionExpression::Sequence(both()?)),
            _ => Err(PyTypeError::new_err(format!(
                "{} is no action of SL: that is Action(agent, act), Choice or Then",
                value.get_type().name()?
            ))),
        }
    }

    fn identifying(
        &self,
        value: &Any<'_>,
        depth: usize,
    ) -> PyResult<IdentifyingExpression<'static>> {
        let depth = deeper(depth)?;
        Ok(IdentifyingExpression {
            operator: operator(&REFERENTIALS, value)?,
            term: self.field(value, "term", depth)?,
            condition: self.formula(value, "condition", depth)?,
        })
    }

    fn wff(&self, value: &Any<'_>, depth: usize) -> PyResult<Wff<'static>> {
        let depth = deeper(depth)?;
        if let Ok(truth) = value.cast::<PyBool>() {
            return Ok(if truth.is_true() {
                Wff::True
            } else {
                Wff::False
            });
        }
        let with_condition = || -> PyResult<_> {
            let action = self.action(&value.getattr("action")?, depth)?;
            let condition = value.getattr("condition")?;
            Ok(Box::new((
                action,
                match condition.is_none() {
                    true => None,
                    false => Some(self.wff(&condition, depth)?),
                },
            )))
        };
        let two_terms = |left: &str, right: &str| -> PyResult<_> {
            let left = self.field(value, left, depth)?;
            Ok(Box::new((left, self.field(value, right, depth)?)))
        };
        Ok(match class_of(value)?.as_deref() {
            Some("Predicate" | "Function") => {
                let predicate = self.function(value, depth)?;
                match &predicate.arguments {
                    Arguments::Positional(none) if none.is_empty() => Wff::Symbol(predicate.symbol),
                    _ => Wff::Predicate(Box::new(predicate)),
                }
            }
            Some("Equals") => Wff::Equals(two_terms("left", "right")?),
            Some("Result") => Wff::Result(two_terms("action", "value")?),
            Some("Not") => Wff::Not(Box::new(self.formula(value, "formula", depth)?)),
            Some("Connective") => Wff::Connective(
                operator(&CONNECTIVES, value)?,
                Box::new((
                    self.formula(value, "left", depth)?,
                    self.formula(value, "right", depth)?,
                )),
            ),
            Some("Quantified") => Wff::Quantified(
                operator(&QUANTIFIERS, value)?,
                name(&value.getattr("variable")?)?.into(),
                Box::new(self.formula(value, "formula", depth)?),
            ),
            Some("Modal") => Wff::Modal(
                operator(&MODALS, value)?,
                Box::new((
                    self.field(value, "agent", depth)?,
                    self.formula(value, "formula", depth)?,
                )),
            ),
            Some("Feasible") => Wff::Feasible(with_condition()?),
            Some("Done") => Wff::Done(with_condition()?),
            Some(class) => {
                return Err(PyTypeError::new_err(format!(
                    "a {class} is no formula of SL"
                )));
            }
            None => return self.wff(&self.plain.call1((value,))?, depth),
        })
    }
}

fn name(variable: &Any<'_>) -> PyResult<String> {
    variable.getattr("name")?.extract()
}

fn deeper(depth: usize) -> PyResult<usize> {
    depth.checked_sub(1).ok_or_else(|| {
        PyValueError::new_err("the expression is nested too deep for SL, or contains itself")
    })
}
