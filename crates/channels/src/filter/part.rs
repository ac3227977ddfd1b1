//! The parts of an expression while it is parsed: their depth, and the types that they cannot have.

use super::text_pattern::TextPattern;
use super::{Arithmetic, Conversion, DEEPEST_FILTER, FilterProblem, Literal, Node, Variable};

/// A result, or a problem with its place.
pub(super) type At<T> = Result<T, (usize, FilterProblem)>;

/// A part of the expression, and the known facts about it.
pub(super) struct Part {
    pub(super) node: Node,
    pub(super) at: usize,
    pub(super) depth: usize,
}

/// A part that is one level above the deepest of its own parts.
pub(super) fn part(node: Node, at: usize, depth_below: usize) -> At<Part> {
    let depth = depth_below + 1;
    if depth > DEEPEST_FILTER {
        return Err((at, FilterProblem::TooDeep));
    }
    Ok(Part { node, at, depth })
}

pub(super) fn deepest(parts: &[&Part]) -> usize {
    parts.iter().map(|part| part.depth).max().unwrap_or(0)
}

pub(super) fn arithmetic(operation: Arithmetic, left: Part, right: Part) -> At<Part> {
    let (at, depth) = (left.at, deepest(&[&left, &right]));
    let nodes = [left.node, right.node];
    part(Node::Arithmetic(operation, Box::new(nodes)), at, depth)
}

/// `room`: the bytes that this pattern and later ones may take.
pub(super) fn matches(text: Part, pattern: Part, room: &mut usize) -> At<Part> {
    let Node::Literal(Literal::Text(source)) = &pattern.node else {
        let expected = "a pattern that is a literal text";
        let function = "matches";
        return Err((pattern.at, FilterProblem::Arguments { function, expected }));
    };
    let compiled = TextPattern::new(source, room).map_err(|problem| (pattern.at, problem))?;
    let (at, depth) = (text.at, text.depth);
    part(
        Node::Matches(Box::new(text.node), Box::new(compiled)),
        at,
        depth,
    )
}

/// Refuses a part that can never be true or false.
pub(super) fn condition(part: &Part) -> At<()> {
    let what = match &part.node {
        Node::Literal(Literal::Bool(_)) => return Ok(()),
        Node::Literal(Literal::Text(_)) => "a text",
        Node::Literal(Literal::Null) => "null",
        Node::Literal(_) | Node::Negate(_) => "a number",
        Node::Arithmetic(..) => "the result of a calculation",
        Node::List(_) | Node::Variable(Variable::Receivers | Variable::ReplyTo) => "a list",
        Node::Variable(Variable::Persistent) => return Ok(()),
        Node::Variable(Variable::Priority | Variable::Number | Variable::Published) => "a number",
        Node::Variable(Variable::Properties) => "all properties; write properties.NAME",
        Node::Variable(_) => "a text",
        Node::Convert(Conversion::String, _) => "a text",
        Node::Convert(..) => "a number",
        _ => return Ok(()),
    };
    Err((part.at, FilterProblem::NoCondition(what)))
}
