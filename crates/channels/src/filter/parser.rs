//! The parser: it reads an expression, and makes all checks that do not need a message.

use super::part::{At, Part, arithmetic, condition, deepest, matches, part};
use super::token::{Kind, Token, tokens};
use super::{
    Arithmetic, Comparison, Conversion, DEEPEST_FILTER, FilterProblem, LARGEST_PATTERN,
    LONGEST_FILTER, Literal, Node, TextTest, Variable, excerpt,
};

/// Words that CEL reserves.
const RESERVED: [&str; 18] = [
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Reads a condition. Also returns the bytes that its patterns take.
pub(super) fn parse(text: &str) -> At<(Node, usize)> {
    let (part, pattern_bytes) = read(text)?;
    condition(&part)?;
    Ok((part.node, pattern_bytes))
}

/// Reads an expression whose value need not be a truth value.
pub(super) fn parse_value(text: &str) -> At<Node> {
    Ok(read(text)?.0.node)
}

fn read(text: &str) -> At<(Part, usize)> {
    if text.len() > LONGEST_FILTER {
        return Err((0, FilterProblem::TooLong));
    }
    let tokens = tokens(text)?;
    let mut parser = Parser {
        tokens: &tokens,
        next: 0,
        nesting: 0,
        locals: Vec::new(),
        room: LARGEST_PATTERN,
    };
    let part = parser.expression()?;
    parser.end()?;
    Ok((part, LARGEST_PATTERN - parser.room))
}

struct Parser<'a> {
    tokens: &'a [Token<'a>],
    next: usize,
    /// The present depth of the parser's recursion.
    nesting: usize,
    /// The variables of the surrounding `all` and `exists`.
    locals: Vec<&'a str>,
    /// The bytes that further patterns may take.
    room: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> &'a Token<'a> {
        // The last token is the end, which is never passed.
        &self.tokens[self.next.min(self.tokens.len() - 1)]
    }

    fn at(&self) -> usize {
        self.peek().at
    }

    fn is_sign(&self, wanted: &str) -> bool {
        matches!(self.peek().kind, Kind::Sign(sign) if sign == wanted)
    }

    fn take_sign(&mut self, wanted: &str) -> bool {
        let is_there = self.is_sign(wanted);
        if is_there {
            self.next += 1;
        }
        is_there
    }

    fn expect_sign(&mut self, wanted: &str, expected: &'static str) -> At<()> {
        if self.take_sign(wanted) {
            Ok(())
        } else {
            Err(self.unexpected(expected))
        }
    }

    fn unexpected(&self, expected: &'static str) -> (usize, FilterProblem) {
        let found = match &self.peek().kind {
            Kind::Name(name) => format!("{:?}", excerpt(name)),
            Kind::Literal(Literal::Text(text)) => format!("the text {:?}", excerpt(text)),
            Kind::Literal(_) => "a value".to_owned(),
            Kind::Sign(sign) => format!("'{sign}'"),
            Kind::End => "the end".to_owned(),
        };
        (self.at(), FilterProblem::Expected { expected, found })
    }

    fn end(&self) -> At<()> {
        match self.peek().kind {
            Kind::End => Ok(()),
            _ => Err(self.unexpected("an operator or the end")),
        }
    }

    /// Reads a part that is one level deeper.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> At<T>) -> At<T> {
        if self.nesting == DEEPEST_FILTER {
            return Err((self.at(), FilterProblem::TooDeep));
        }
        self.nesting += 1;
        let result = read(self);
        self.nesting -= 1;
        result
    }

    fn expression(&mut self) -> At<Part> {
        self.nested(|parser| {
            let first = parser.any()?;
            if !parser.take_sign("?") {
                return Ok(first);
            }
            condition(&first)?;
            let yes = parser.any()?;
            parser.expect_sign(":", "':' and what else")?;
            let no = parser.expression()?;
            let (at, depth) = (first.at, deepest(&[&first, &yes, &no]));
            let nodes = [first.node, yes.node, no.node];
            part(Node::Conditional(Box::new(nodes)), at, depth)
        })
    }

    fn any(&mut self) -> At<Part> {
        self.joined("||", Self::all, Node::Any)
    }

    fn all(&mut self) -> At<Part> {
        self.joined("&&", Self::relation, Node::All)
    }

    /// Conditions joined by one operator: a chain of any length is one level.
    fn joined(
        &mut self,
        sign: &str,
        mut operand: impl FnMut(&mut Self) -> At<Part>,
        join: fn(Vec<Node>) -> Node,
    ) -> At<Part> {
        let first = operand(self)?;
        if !self.is_sign(sign) {
            return Ok(first);
        }
        condition(&first)?;
        let (at, mut depth) = (first.at, first.depth);
        let mut nodes = vec![first.node];
        while self.take_sign(sign) {
            let next = operand(self)?;
            condition(&next)?;
            depth = depth.max(next.depth);
            nodes.push(next.node);
        }
        part(join(nodes), at, depth)
    }

    fn relation(&mut self) -> At<Part> {
        let mut left = self.sum()?;
        loop {
            let comparison = match self.peek().kind {
                Kind::Sign("==") => Some(Comparison::Equal),
                Kind::Sign("!=") => Some(Comparison::NotEqual),
                Kind::Sign("<") => Some(Comparison::Less),
                Kind::Sign("<=") => Some(Comparison::LessOrEqual),
                Kind::Sign(">") => Some(Comparison::Greater),
                Kind::Sign(">=") => Some(Comparison::GreaterOrEqual),
                Kind::Name("in") => None,
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.sum()?;
            let (at, depth) = (left.at, deepest(&[&left, &right]));
            let nodes = Box::new([left.node, right.node]);
            let node = match comparison {
                Some(comparison) => Node::Compare(comparison, nodes),
                None => Node::In(nodes),
            };
            left = part(node, at, depth)?;
        }
    }

    fn sum(&mut self) -> At<Part> {
        let mut left = self.product()?;
        loop {
            let operation = match self.peek().kind {
                Kind::Sign("+") => Arithmetic::Add,
                Kind::Sign("-") => Arithmetic::Subtract,
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.product()?;
            left = arithmetic(operation, left, right)?;
        }
    }

    fn product(&mut self) -> At<Part> {
        let mut left = self.unary()?;
        loop {
            let operation = match self.peek().kind {
                Kind::Sign("*") => Arithmetic::Multiply,
                Kind::Sign("/") => Arithmetic::Divide,
                Kind::Sign("%") => Arithmetic::Remainder,
                _ => return Ok(left),
            };
            self.next += 1;
            let right = self.unary()?;
            left = arithmetic(operation, left, right)?;
        }
    }

    fn unary(&mut self) -> At<Part> {
        let at = self.at();
        if self.take_sign("!") {
            let operand = self.nested(Self::unary)?;
            condition(&operand)?;
            return part(Node::Not(Box::new(operand.node)), at, operand.depth);
        }
        if !self.take_sign("-") {
            return self.member();
        }
        // A minus belongs to the number behind it, so that the smallest number can be written.
        if let Kind::Literal(literal) = &self.peek().kind {
            let negative = match literal {
                Literal::Int(value) => Some(Literal::Int(-value)),
                Literal::Double(value) => Some(Literal::Double(-value)),
                Literal::MinimumWithoutSign => Some(Literal::Int(i64::MIN)),
                _ => None,
            };
            if let Some(negative) = negative {
                self.next += 1;
                let number = part(Node::Literal(negative), at, 0)?;
                return self.selections(number);
            }
        }
        let operand = self.nested(Self::unary)?;
        part(Node::Negate(Box::new(operand.node)), at, operand.depth)
    }

    fn member(&mut self) -> At<Part> {
        let primary = self.primary()?;
        self.selections(primary)
    }

    /// `.name`, `.function(…)` and `[…]` behind a value.
    fn selections(&mut self, mut left: Part) -> At<Part> {
        loop {
            if self.take_sign(".") {
                let (at, name) = self.name("a name behind the dot")?;
                left = if self.take_sign("(") {
                    self.method(left, name, at)?
                } else if matches!(left.node, Node::Variable(Variable::Properties)) {
                    part(Node::Property(name.into()), left.at, 0)?
                } else {
                    return Err((
                        at,
                        FilterProblem::Unsupported("a field of anything but properties"),
                    ));
                };
            } else if self.take_sign("[") {
                let index = self.expression()?;
                self.expect_sign("]", "']'")?;
                left = match (left.node, index.node) {
                    (Node::Variable(Variable::Properties), Node::Literal(Literal::Text(name))) => {
                        part(Node::Property(name.into()), left.at, 0)?
                    }
                    (node, of) => {
                        let depth = left.depth.max(index.depth);
                        part(Node::Index(Box::new([node, of])), left.at, depth)?
                    }
                };
            } else if self.is_sign("{") {
                return Err((self.at(), FilterProblem::Unsupported("a structure")));
            } else {
                return Ok(left);
            }
        }
    }

    fn primary(&mut self) -> At<Part> {
        let token = self.peek();
        let at = token.at;
        match &token.kind {
            Kind::Literal(Literal::MinimumWithoutSign) => Err((at, FilterProblem::Number)),
            Kind::Literal(literal) => {
                self.next += 1;
                part(Node::Literal(literal.clone()), at, 0)
            }
            Kind::Sign("(") => {
                self.next += 1;
                let inner = self.expression()?;
                self.expect_sign(")", "')'")?;
                Ok(inner)
            }
            Kind::Sign("[") => {
                self.next += 1;
                let items = self.items("]", "',' or ']'")?;
                let depth = items.iter().map(|item| item.depth).max().unwrap_or(0);
                let nodes = items.into_iter().map(|item| item.node).collect();
                part(Node::List(nodes), at, depth)
            }
            Kind::Sign("{") => Err((at, FilterProblem::Unsupported("a map"))),
            Kind::Name(name) => {
                let literal = match *name {
                    "true" => Literal::Bool(true),
                    "false" => Literal::Bool(false),
                    "null" => Literal::Null,
                    _ => return self.named(),
                };
                self.next += 1;
                part(Node::Literal(literal), at, 0)
            }
            _ => Err(self.unexpected("a value, a variable or '('")),
        }
    }

    /// A name that CEL does not reserve.
    fn name(&mut self, expected: &'static str) -> At<(usize, &'a str)> {
        let token = self.peek();
        match token.kind {
            Kind::Name(name) if !RESERVED.contains(&name) => {
                self.next += 1;
                Ok((token.at, name))
            }
            _ => Err(self.unexpected(expected)),
        }
    }

    /// A variable or a function.
    fn named(&mut self) -> At<Part> {
        let (at, name) = self.name("a value, a variable or '('")?;
        if self.take_sign("(") {
            return self.function(name, at);
        }
        let local = self.locals.iter().rposition(|local| *local == name);
        match (local, Variable::named(name)) {
            (Some(index), _) => part(Node::Local(index), at, 0),
            (None, Some(variable)) => part(Node::Variable(variable), at, 0),
            (None, None) => Err((at, FilterProblem::Variable(excerpt(name).into_owned()))),
        }
    }

    /// The items up to the closing sign.
    fn items(&mut self, closing: &str, expected: &'static str) -> At<Vec<Part>> {
        let mut items = Vec::new();
        while !self.take_sign(closing) {
            if !items.is_empty() {
                self.expect_sign(",", expected)?;
                // CEL allows a comma behind the last item of a list.
                if closing == "]" && self.take_sign(closing) {
                    break;
                }
            }
            items.push(self.expression()?);
        }
        Ok(items)
    }

    fn arguments<const N: usize>(
        &mut self,
        at: usize,
        function: &'static str,
        expected: &'static str,
    ) -> At<[Part; N]> {
        let items = self.items(")", "',' or ')'")?;
        items
            .try_into()
            .map_err(|_| (at, FilterProblem::Arguments { function, expected }))
    }

    /// A function that stands alone. Its opening parenthesis has been read.
    fn function(&mut self, name: &str, at: usize) -> At<Part> {
        let conversion = match name {
            "has" => {
                let [argument] = self.arguments(at, "has", "a property: has(properties.NAME)")?;
                return match argument.node {
                    Node::Property(name) => part(Node::Has(name), at, 0),
                    _ => Err((
                        argument.at,
                        FilterProblem::Arguments {
                            function: "has",
                            expected: "a property: has(properties.NAME)",
                        },
                    )),
                };
            }
            "matches" => {
                let [text, pattern] = self.arguments(at, "matches", "a text and a pattern")?;
                return matches(text, pattern, &mut self.room);
            }
            "int" => Conversion::Int,
            "uint" => Conversion::Uint,
            "double" => Conversion::Double,
            "string" => Conversion::String,
            "size" => Conversion::Size,
            _ => return Err((at, FilterProblem::Function(excerpt(name).into_owned()))),
        };
        let [argument] = self.arguments(at, "the function", "one argument")?;
        let depth = argument.depth;
        part(
            Node::Convert(conversion, Box::new(argument.node)),
            at,
            depth,
        )
    }

    /// A function behind a value. Its opening parenthesis has been read.
    fn method(&mut self, target: Part, name: &'a str, at: usize) -> At<Part> {
        let test = match name {
            "size" => {
                let [] = self.arguments(at, "size", "no argument here")?;
                let node = Node::Convert(Conversion::Size, Box::new(target.node));
                return part(node, target.at, target.depth);
            }
            "matches" => {
                let [pattern] = self.arguments(at, "matches", "a pattern")?;
                return matches(target, pattern, &mut self.room);
            }
            "all" | "exists" => return self.quantified(target, name == "all"),
            "startsWith" => TextTest::StartsWith,
            "endsWith" => TextTest::EndsWith,
            "contains" => TextTest::Contains,
            _ => return Err((at, FilterProblem::Function(excerpt(name).into_owned()))),
        };
        let [argument] = self.arguments(at, "the test of a text", "one text")?;
        let depth = deepest(&[&target, &argument]);
        let nodes = [target.node, argument.node];
        part(Node::Text(test, Box::new(nodes)), target.at, depth)
    }

    fn quantified(&mut self, list: Part, is_all: bool) -> At<Part> {
        let (_, variable) = self.name("a name for the items")?;
        self.expect_sign(",", "',' and a condition")?;
        self.locals.push(variable);
        let inner = self.expression();
        self.locals.pop();
        let inner = inner?;
        condition(&inner)?;
        self.expect_sign(")", "')'")?;
        let (at, depth) = (list.at, deepest(&[&list, &inner]));
        let node = Node::Quantified {
            is_all,
            list: Box::new(list.node),
            condition: Box::new(inner.node),
        };
        part(node, at, depth)
    }
}
