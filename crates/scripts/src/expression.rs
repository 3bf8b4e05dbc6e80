//! Numbers in scripts: sums of products of numbers, `MSS` and remembered values, such as `1+MSS*3`
//! or `$ts+200`.

use std::collections::HashMap;

/// A sum of products.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Expression {
    terms: Vec<Term>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Term {
    negative: bool,
    factors: Vec<Factor>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Factor {
    Number(i64),
    Mss,
    Name(String),
}

/// What the names in an expression stand for.
#[derive(Clone, Debug)]
pub struct Values {
    /// The largest payload of the cable's MTU without options.
    mss: i64,
    names: HashMap<String, i64>,
}

impl Values {
    /// Nothing is remembered yet.
    pub fn new(mss: i64) -> Self {
        Self {
            mss,
            names: HashMap::new(),
        }
    }

    /// Remembers a value.
    pub fn bind(&mut self, name: &str, value: i64) {
        self.names.insert(name.to_owned(), value);
    }

    /// A remembered value.
    pub fn value(&self, name: &str) -> Option<i64> {
        self.names.get(name).copied()
    }
}

impl From<i64> for Expression {
    fn from(number: i64) -> Self {
        Self {
            terms: vec![Term {
                negative: number < 0,
                factors: vec![Factor::Number(number.saturating_abs())],
            }],
        }
    }
}

impl Expression {
    /// Reads an expression that takes the whole text.
    ///
    /// # Errors
    /// A sentence that says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut terms = Vec::new();
        let mut rest = text;
        let mut negative = false;
        if let Some(after) = rest.strip_prefix('-') {
            (negative, rest) = (true, after);
        }
        loop {
            let end = rest.find(['+', '-']).unwrap_or(rest.len());
            let factors: Result<Vec<Factor>, String> =
                rest[..end].split('*').map(Factor::parse).collect();
            terms.push(Term {
                negative,
                factors: factors.map_err(|why| format!("{text:?}: {why}"))?,
            });
            let Some(sign) = rest[end..].chars().next() else {
                return Ok(Self { terms });
            };
            negative = sign == '-';
            rest = &rest[end + 1..];
        }
    }

    /// The difference of two expressions.
    pub fn minus(mut self, other: &Self) -> Self {
        self.terms.extend(other.terms.iter().map(|term| Term {
            negative: !term.negative,
            factors: term.factors.clone(),
        }));
        self
    }

    /// Its value.
    ///
    /// # Errors
    /// A sentence that names what has no value yet, or that it is too large.
    pub fn value(&self, values: &Values) -> Result<i64, String> {
        let mut sum = 0_i64;
        for term in &self.terms {
            let mut product = if term.negative { -1_i64 } else { 1 };
            for factor in &term.factors {
                let value = match factor {
                    Factor::Number(number) => *number,
                    Factor::Mss => values.mss,
                    Factor::Name(name) => values
                        .value(name)
                        .ok_or_else(|| format!("${name} stands for nothing yet"))?,
                };
                product = product
                    .checked_mul(value)
                    .ok_or("the number is too large")?;
            }
            sum = sum.checked_add(product).ok_or("the number is too large")?;
        }
        Ok(sum)
    }
}

impl Factor {
    fn parse(text: &str) -> Result<Self, String> {
        if text == "MSS" {
            return Ok(Self::Mss);
        }
        if let Some(name) = text.strip_prefix('$') {
            let plain =
                !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            return if plain {
                Ok(Self::Name(name.to_owned()))
            } else {
                Err(format!("{text:?} is no name"))
            };
        }
        text.parse::<u32>()
            .map(|number| Self::Number(number.into()))
            .map_err(|_| format!("{text:?} is no number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<i64, String> {
        let mut values = Values::new(1460);
        values.bind("ts", 5000);
        Expression::parse(text)?.value(&values)
    }

    #[test]
    fn products_bind_before_sums() {
        assert_eq!(value("1+MSS*3"), Ok(4381));
        assert_eq!(value("$ts+200-50"), Ok(5150));
        assert_eq!(value("-1"), Ok(-1));
    }

    #[test]
    fn what_is_no_number_or_unknown_is_an_error_with_its_words() {
        assert!(value("1+").unwrap_err().contains("no number"));
        assert!(value("$nobody").unwrap_err().contains("nobody"));
        assert!(value("$").unwrap_err().contains("no name"));
        assert!(value("99999999999").is_err());
    }

    #[test]
    fn large_products_are_errors_and_not_panics() {
        assert!(value("4000000000*4000000000*4000000000").is_err());
    }
}
