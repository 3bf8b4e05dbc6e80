//! Congestion controls as they travel: a number for each name that `TCP_CONGESTION` knows (tcp(7)).

/// The names; the number of one is its place here.
pub const NAMES: [&str; 4] = ["reno", "cubic", "bbr", "dctcp"];

/// The number of a name, which may end with zeros.
#[must_use]
pub fn code(name: &[u8]) -> Option<u8> {
    let name = name.split(|&byte| byte == 0).next().unwrap_or_default();
    let place = NAMES.iter().position(|one| one.as_bytes() == name)?;
    u8::try_from(place).ok()
}

/// The name of a number.
#[must_use]
pub fn name(code: u8) -> Option<&'static str> {
    NAMES.get(usize::from(code)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_and_strangers_have_no_number() {
        for (place, one) in NAMES.iter().enumerate() {
            assert_eq!(code(one.as_bytes()).map(usize::from), Some(place));
            assert_eq!(name(code(one.as_bytes()).unwrap()), Some(*one));
        }
        assert_eq!(code(b"cubic\0\0\0"), Some(1));
        assert_eq!(code(b"cubicle"), None);
        assert_eq!(code(b""), None);
        assert_eq!(name(200), None);
    }
}
