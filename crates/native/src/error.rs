//! Errno values as the standard library's errors, and back.

use std::io;

use client::{AttachError, Errno};

/// The error with that errno.
#[must_use]
pub fn from_errno(errno: Errno) -> io::Error {
    io::Error::from_raw_os_error(errno.raw_os_error())
}

/// The errno of an error of this crate. EIO where it has none, which no call of this crate returns.
#[must_use]
pub fn to_errno(error: &io::Error) -> Errno {
    if let Some(number) = error.raw_os_error() {
        return Errno::from_raw_os_error(number);
    }
    let inner = error.get_ref();
    match inner.and_then(|inner| inner.downcast_ref::<AttachError>()) {
        Some(AttachError::Absent { errno, .. } | AttachError::Channel(errno)) => *errno,
        Some(AttachError::Refused(_)) => Errno::ACCESS,
        Some(AttachError::Region(_)) => Errno::NOMEM,
        Some(_) => Errno::PROTO,
        None => Errno::IO,
    }
}

/// Why there is no engine, with the errno's kind and the whole sentence.
pub fn not_attached(error: AttachError) -> io::Error {
    let kind = match &error {
        AttachError::Absent { errno, .. } | AttachError::Channel(errno) => {
            from_errno(*errno).kind()
        }
        AttachError::Refused(_) => io::ErrorKind::PermissionDenied,
        AttachError::Region(_) => io::ErrorKind::OutOfMemory,
        _ => io::ErrorKind::InvalidData,
    };
    io::Error::new(kind, error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errno_survives_the_way_through_an_error() {
        for errno in [Errno::AGAIN, Errno::CONNRESET, Errno::TIMEDOUT] {
            assert_eq!(to_errno(&from_errno(errno)), errno);
        }
        assert_eq!(to_errno(&io::Error::other("nothing")), Errno::IO);
    }

    #[test]
    fn why_there_is_no_engine_keeps_its_errno_and_its_sentence() {
        let absent = AttachError::Absent {
            name: "@nobody".to_owned(),
            errno: Errno::CONNREFUSED,
        };
        let error = not_attached(absent);
        assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(to_errno(&error), Errno::CONNREFUSED);
        assert!(error.to_string().contains("@nobody"), "{error}");
        let refused = not_attached(AttachError::Refused("no".to_owned()));
        assert_eq!(to_errno(&refused), Errno::ACCESS);
    }
}
