use super::lexer::{Lexer, Token};
use super::tree::{
    ActionExpression, Arguments, Connective, Content, ContentExpression, FunctionalTerm,
    IdentifyingExpression, ModalOperator, Parameter, Quantifier, ReferentialOperator, Term, Text,
    Wff,
};
use crate::{DecodeError, Limits};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

/// The deepest nesting that any [`Limits`] admit, so that no text can exhaust the stack.
const DEEPEST: usize = 128;

impl<'a> Content<'a> {
    /// Reads the content of a message.
    pub fn parse(
        text: &'a (impl AsRef<[u8]> + ?Sized),
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        let mut parser = Parser::new(text.as_ref(), limits)?;
        let content = parser.content()?;
        parser.end()?;
        Ok(content)
    }
}

impl<'a> Term<'a> {
    /// Reads a single term.
    pub fn parse(
        text: &'a (impl AsRef<[u8]> + ?Sized),
        limits: &Limits,
    ) -> Result<Self, DecodeError> {
        let mut parser = Parser::new(text.as_ref(), limits)?;
        let term = parser.term()?;
        parser.end()?;
        Ok(term)
    }
}

/// A word with a meaning of its own at the head of a list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Keyword {
    Action,
    Choice,
    Then,
    Sequence,
    Set,
    Referential(ReferentialOperator),
    Not,
    Connective(Connective),
    Quantifier(Quantifier),
    Modal(ModalOperator),
    Feasible,
    Done,
    Equals,
    Result,
}

impl Keyword {
    const ALL: [(&'static str, Keyword); 22] = [
        ("action", Self::Action),
        ("|", Self::Choice),
        (";", Self::Then),
        ("sequence", Self::Sequence),
        ("set", Self::Set),
        ("iota", Self::Referential(ReferentialOperator::Iota)),
        ("any", Self::Referential(ReferentialOperator::Any)),
        ("all", Self::Referential(ReferentialOperator::All)),
        ("not", Self::Not),
        ("and", Self::Connective(Connective::And)),
        ("or", Self::Connective(Connective::Or)),
        ("implies", Self::Connective(Connective::Implies)),
        ("equiv", Self::Connective(Connective::Equiv)),
        ("forall", Self::Quantifier(Quantifier::ForAll)),
        ("exists", Self::Quantifier(Quantifier::Exists)),
        ("B", Self::Modal(ModalOperator::Believes)),
        ("U", Self::Modal(ModalOperator::Uncertain)),
        ("PG", Self::Modal(ModalOperator::PersistentGoal)),
        ("I", Self::Modal(ModalOperator::Intends)),
        ("feasible", Self::Feasible),
        ("done", Self::Done),
        ("=", Self::Equals),
    ];
    const RESULT: &'static str = "result";

    pub(super) fn of(word: &str) -> Option<Self> {
        if word.len() > 8 {
            return None;
        }
        if word.eq_ignore_ascii_case(Self::RESULT) {
            return Some(Self::Result);
        }
        Self::ALL
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(word))
            .map(|(_, it)| *it)
    }

    /// The way it is written.
    pub(super) fn name(self) -> &'static str {
        Self::ALL
            .iter()
            .find(|(_, it)| *it == self)
            .map_or(Self::RESULT, |(name, _)| name)
    }
}

/// The head of a list: a keyword, or any other symbol.
enum Head<'a> {
    Keyword(Keyword),
    Symbol(Text<'a>),
}

/// A recursive descent over the tokens, with one token of look-ahead.
struct Parser<'a> {
    lexer: Lexer<'a>,
    ahead: Option<(usize, Token<'a>)>,
    depth: usize,
    depth_limit: usize,
    values: usize,
    values_limit: usize,
}

type Parsed<T> = Result<T, DecodeError>;

impl<'a> Parser<'a> {
    fn new(input: &'a [u8], limits: &Limits) -> Parsed<Self> {
        let longest = limits.message_length;
        if input.len() > longest {
            return Err(DecodeError::limit(longest, "bytes of SL", longest));
        }
        Ok(Self {
            lexer: Lexer::new(input),
            ahead: None,
            depth: 0,
            depth_limit: limits.depth.min(DEEPEST),
            values: 0,
            values_limit: limits.values,
        })
    }

    fn peek(&mut self) -> Parsed<&Token<'a>> {
        let token = match self.ahead.take() {
            Some(token) => token,
            None => self.lexer.next()?,
        };
        Ok(&self.ahead.insert(token).1)
    }

    fn next(&mut self) -> Parsed<(usize, Token<'a>)> {
        let (offset, token) = match self.ahead.take() {
            Some(token) => token,
            None => self.lexer.next()?,
        };
        match token {
            Token::Open => {
                self.depth += 1;
                if self.depth > self.depth_limit {
                    let what = "parentheses inside one another";
                    return Err(DecodeError::limit(offset, what, self.depth_limit));
                }
            }
            Token::Close => self.depth = self.depth.saturating_sub(1),
            _ => {
                self.values += 1;
                if self.values > self.values_limit {
                    return Err(DecodeError::limit(offset, "values", self.values_limit));
                }
            }
        }
        Ok((offset, token))
    }

    fn unexpected<T>(&self, offset: usize, expected: &'static str) -> Parsed<T> {
        Err(DecodeError::expected(self.lexer.input(), offset, expected))
    }

    fn close(&mut self) -> Parsed<()> {
        match self.next()? {
            (_, Token::Close) => Ok(()),
            (offset, _) => self.unexpected(offset, "')'"),
        }
    }

    fn end(&mut self) -> Parsed<()> {
        match self.lexer.next()? {
            (_, Token::End) => Ok(()),
            (offset, _) => self.unexpected(offset, "the end"),
        }
    }

    fn at_close(&mut self) -> Parsed<bool> {
        Ok(*self.peek()? == Token::Close)
    }

    fn content(&mut self) -> Parsed<Content<'a>> {
        match self.next()? {
            (_, Token::Open) => {}
            (offset, _) => return self.unexpected(offset, "'(' before the content"),
        }
        let mut expressions = vec![self.content_expression()?];
        while !self.at_close()? {
            expressions.push(self.content_expression()?);
        }
        self.close()?;
        Ok(Content { expressions })
    }

    fn content_expression(&mut self) -> Parsed<ContentExpression<'a>> {
        const EXPECTED: &str = "an action, a proposition or an identifying expression";
        let (offset, token) = self.next()?;
        if token != Token::Open {
            return self
                .atomic_wff(offset, token, EXPECTED)
                .map(ContentExpression::Proposition);
        }
        let (offset, head) = self.head()?;
        Ok(match head {
            Head::Keyword(keyword @ (Keyword::Action | Keyword::Choice | Keyword::Then)) => {
                ContentExpression::Action(self.action_after(offset, keyword)?)
            }
            Head::Keyword(Keyword::Referential(operator)) => {
                ContentExpression::Identifying(self.identifying_after(operator)?)
            }
            head => ContentExpression::Proposition(self.wff_after(offset, head, EXPECTED)?),
        })
    }

    /// The first member of a list whose parenthesis has been read.
    fn head(&mut self) -> Parsed<(usize, Head<'a>)> {
        let (offset, token) = self.next()?;
        Ok((
            offset,
            match token {
                Token::Word(word) => match Keyword::of(word) {
                    Some(keyword) => Head::Keyword(keyword),
                    None => Head::Symbol(Text::Borrowed(word)),
                },
                token => Head::Symbol(self.quoted(offset, token, "a symbol after '('")?),
            },
        ))
    }

    fn quoted(&self, offset: usize, token: Token<'a>, expected: &'static str) -> Parsed<Text<'a>> {
        match token {
            Token::Constant(Term::Text(text)) => Ok(text),
            Token::Constant(Term::Bytes(bytes)) => match String::from_utf8(bytes.into_owned()) {
                Ok(text) => Ok(Text::Owned(text)),
                Err(_) => Err(DecodeError::not_utf8(offset, expected)),
            },
            _ => self.unexpected(offset, expected),
        }
    }

    fn wff(&mut self) -> Parsed<Wff<'a>> {
        const EXPECTED: &str = "a proposition";
        let (offset, token) = self.next()?;
        if token != Token::Open {
            return self.atomic_wff(offset, token, EXPECTED);
        }
        let (offset, head) = self.head()?;
        self.wff_after(offset, head, EXPECTED)
    }

    fn atomic_wff(
        &mut self,
        offset: usize,
        token: Token<'a>,
        expected: &'static str,
    ) -> Parsed<Wff<'a>> {
        Ok(match token {
            Token::Word(word) if word.eq_ignore_ascii_case("true") => Wff::True,
            Token::Word(word) if word.eq_ignore_ascii_case("false") => Wff::False,
            Token::Word(word) => Wff::Symbol(Text::Borrowed(word)),
            token => Wff::Symbol(self.quoted(offset, token, expected)?),
        })
    }

    /// The rest of a formula whose parenthesis and head have been read.
    fn wff_after(
        &mut self,
        offset: usize,
        head: Head<'a>,
        expected: &'static str,
    ) -> Parsed<Wff<'a>> {
        let keyword = match head {
            Head::Keyword(keyword) => keyword,
            Head::Symbol(symbol) => {
                let arguments = self.arguments()?;
                return Ok(match arguments {
                    Arguments::Positional(none) if none.is_empty() => Wff::Symbol(symbol),
                    arguments => Wff::Predicate(Box::new(FunctionalTerm { symbol, arguments })),
                });
            }
        };
        let wff = match keyword {
            Keyword::Not => Wff::Not(Box::new(self.wff()?)),
            Keyword::Connective(connective) => {
                Wff::Connective(connective, Box::new((self.wff()?, self.wff()?)))
            }
            Keyword::Quantifier(quantifier) => {
                let variable = match self.next()? {
                    (_, Token::Variable(name)) => name,
                    (offset, _) => return self.unexpected(offset, "a variable"),
                };
                Wff::Quantified(quantifier, variable, Box::new(self.wff()?))
            }
            Keyword::Modal(operator) => Wff::Modal(operator, Box::new((self.term()?, self.wff()?))),
            Keyword::Feasible => Wff::Feasible(Box::new((self.action()?, self.condition()?))),
            Keyword::Done => Wff::Done(Box::new((self.action()?, self.condition()?))),
            Keyword::Equals => Wff::Equals(Box::new((self.term()?, self.term()?))),
            Keyword::Result => Wff::Result(Box::new((self.term()?, self.term()?))),
            Keyword::Action
            | Keyword::Choice
            | Keyword::Then
            | Keyword::Sequence
            | Keyword::Set
            | Keyword::Referential(_) => {
                return self.unexpected(offset, expected);
            }
        };
        self.close()?;
        Ok(wff)
    }

    fn condition(&mut self) -> Parsed<Option<Wff<'a>>> {
        if self.at_close()? {
            Ok(None)
        } else {
            self.wff().map(Some)
        }
    }

    fn action(&mut self) -> Parsed<ActionExpression<'a>> {
        const EXPECTED: &str = "an action, (action …), (| …) or (; …)";
        match self.next()? {
            (_, Token::Open) => {}
            (offset, _) => return self.unexpected(offset, EXPECTED),
        }
        match self.head()? {
            (offset, Head::Keyword(keyword)) => self.action_after(offset, keyword),
            (offset, Head::Symbol(_)) => self.unexpected(offset, EXPECTED),
        }
    }

    fn action_after(&mut self, offset: usize, keyword: Keyword) -> Parsed<ActionExpression<'a>> {
        let action = match keyword {
            Keyword::Action => ActionExpression::new(self.term()?, self.term()?),
            Keyword::Choice => ActionExpression::Choice(Box::new((self.action()?, self.action()?))),
            Keyword::Then => ActionExpression::Sequence(Box::new((self.action()?, self.action()?))),
            _ => {
                return self.unexpected(offset, "'action', '|' or ';'");
            }
        };
        self.close()?;
        Ok(action)
    }

    fn identifying_after(
        &mut self,
        operator: ReferentialOperator,
    ) -> Parsed<IdentifyingExpression<'a>> {
        let expression = IdentifyingExpression {
            operator,
            term: self.term()?,
            condition: self.wff()?,
        };
        self.close()?;
        Ok(expression)
    }

    fn term(&mut self) -> Parsed<Term<'a>> {
        match self.next()? {
            (_, Token::Word("true")) => Ok(Term::Truth(true)),
            (_, Token::Word("false")) => Ok(Term::Truth(false)),
            (_, Token::Word(word)) => Ok(Term::Text(Text::Borrowed(word))),
            (_, Token::Constant(constant)) => Ok(constant),
            (_, Token::Variable(name)) => Ok(Term::Variable(name)),
            (_, Token::Open) => {
                let (offset, head) = self.head()?;
                self.term_after(offset, head)
            }
            (offset, _) => self.unexpected(offset, "a term"),
        }
    }

    fn term_after(&mut self, offset: usize, head: Head<'a>) -> Parsed<Term<'a>> {
        let symbol = match head {
            Head::Symbol(symbol) => symbol,
            Head::Keyword(keyword) => match keyword {
                Keyword::Sequence => return self.terms().map(Term::Sequence),
                Keyword::Set => return self.terms().map(Term::Set),
                Keyword::Action | Keyword::Choice | Keyword::Then => {
                    return Ok(Term::Action(Box::new(self.action_after(offset, keyword)?)));
                }
                Keyword::Referential(operator) => {
                    return Ok(Term::Identifying(Box::new(
                        self.identifying_after(operator)?,
                    )));
                }
                // The remaining keywords begin formulas only. Here the word is a function.
                other => Text::Borrowed(other.name()),
            },
        };
        let arguments = self.arguments()?;
        Ok(Term::Function(Box::new(FunctionalTerm {
            symbol,
            arguments,
        })))
    }

    /// Reads terms up to and including the closing parenthesis.
    fn terms(&mut self) -> Parsed<Vec<Term<'a>>> {
        let mut terms = Vec::new();
        while !self.at_close()? {
            terms.push(self.term()?);
        }
        self.close()?;
        Ok(terms)
    }

    /// Reads arguments up to and including the closing parenthesis.
    fn arguments(&mut self) -> Parsed<Arguments<'a>> {
        if !matches!(self.peek()?, Token::ParameterName(_)) {
            return self.terms().map(Arguments::Positional);
        }
        let mut parameters = Vec::new();
        loop {
            match self.next()? {
                (_, Token::ParameterName(name)) => {
                    parameters.push(Parameter {
                        name,
                        value: self.term()?,
                    });
                }
                (_, Token::Close) => return Ok(Arguments::Named(parameters)),
                (offset, _) => {
                    return self.unexpected(offset, "a parameter name such as :name, or ')'");
                }
            }
        }
    }
}
