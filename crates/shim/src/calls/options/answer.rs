//! What getsockopt(2) answers.

/// What a getsockopt(2) is answered with.
pub enum Answer {
    /// The value.
    Value(Vec<u8>),
    /// EINVAL, and a value needs so many bytes.
    Needs(usize),
}
