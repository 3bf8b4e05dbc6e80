//! The secret that both ends of a transfer know: 128 random bits that Shunt makes, never a word that somebody chose.
//!
//! As text it is 36 hexadecimal digits: 32 of the secret and four of a checksum. The checksum tells a mistyped token from a
//! wrong one, and keeps words out that people make up (docs/decisions/0062-tokens-are-made.md).

use std::fmt;

use crate::error::Error;

const SECRET_BYTES: usize = 16;
/// Bytes of the checksum behind it.
const CHECK_BYTES: usize = 2;

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; SECRET_BYTES]);

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> Result<Self, Error> {
        super::random().map(Self)
    }

    /// From its text.
    ///
    /// # Errors
    /// [`Error::NoToken`]: it is none that was made here, or it was mistyped.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let digits: Option<Vec<u8>> = text
            .trim()
            .chars()
            .map(|digit| {
                digit
                    .to_digit(16)
                    .and_then(|digit| u8::try_from(digit).ok())
            })
            .collect();
        let digits = digits.ok_or(Error::NoToken)?;
        if digits.len() != 2 * (SECRET_BYTES + CHECK_BYTES) {
            return Err(Error::NoToken);
        }
        let bytes: Vec<u8> = digits.chunks(2).map(|two| two[0] << 4 | two[1]).collect();
        let (secret, check) = bytes.split_at(SECRET_BYTES);
        let token = Self(secret.try_into().map_err(|_| Error::NoToken)?);
        if token.check() != check {
            return Err(Error::NoToken);
        }
        Ok(token)
    }

    /// What proofs are made with.
    pub(super) fn key(&self) -> [u8; 32] {
        blake3::derive_key("shunt mover 3 token", &self.0)
    }

    fn check(&self) -> [u8; CHECK_BYTES] {
        let hash = blake3::derive_key("shunt mover 3 token check", &self.0);
        [hash[0], hash[1]]
    }
}

/// The text that [`Token::parse`] takes.
impl fmt::Display for Token {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .chain(&self.check())
            .try_for_each(|byte| write!(to, "{byte:02x}"))
    }
}

/// Without the secret, which has no business in a log.
impl fmt::Debug for Token {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_what_its_text_says_and_no_two_are_the_same() {
        let (one, other) = (Token::random().unwrap(), Token::random().unwrap());
        assert_ne!(one, other);
        assert_eq!(Token::parse(&one.to_string()).unwrap(), one);
        assert_eq!(Token::parse(&one.to_string().to_uppercase()).unwrap(), one);
        assert_eq!(format!("{one:?}"), "Token");
    }

    #[test]
    fn what_people_make_up_or_mistype_is_no_token() {
        for text in [
            "",
            "word",
            "correct horse battery staple",
            "0123456789abcdef0123456789abcdef",
            "000000000000000000000000000000000000",
            "0123456789abcdef0123456789abcdef0123",
            "ẞ23456789abcdef0123456789abcdef0123",
        ] {
            assert!(matches!(Token::parse(text), Err(Error::NoToken)), "{text}");
        }
        let token = Token::random().unwrap().to_string();
        let mut one_digit_changed = 0;
        for at in 0..token.len() {
            let digit = if token.as_bytes()[at] == b'0' {
                "1"
            } else {
                "0"
            };
            let mut changed = token.clone();
            changed.replace_range(at..=at, digit);
            one_digit_changed += usize::from(Token::parse(&changed).is_err());
        }
        // A change of the secret meets the same checksum once in 65,536.
        assert!(one_digit_changed >= token.len() - 1);
    }
}
