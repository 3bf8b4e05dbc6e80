//! Options of a received IPv4 header (RFC 791 §3.1, RFC 7126): which of them make a packet one that a host must not take.
//!
//! Nothing is done for an option, so all others are as if they were not there.

use crate::Error;

const END: u8 = 0;
const NO_OPERATION: u8 = 1;
/// Loose and strict source and record route (RFC 791 §3.1).
const SOURCE_ROUTES: [u8; 2] = [131, 137];

/// Goes through what stands behind the fixed part of a header.
///
/// # Errors
/// [`Error::Malformed`] where an option ends before it begins or outside the header, [`Error::Unsupported`] for a route
/// that the sender has chosen, be it at its end.
pub fn judge(mut options: &[u8]) -> Result<(), Error> {
    while let [kind, rest @ ..] = options {
        options = match *kind {
            END => return Ok(()),
            NO_OPERATION => rest,
            kind if SOURCE_ROUTES.contains(&kind) => return Err(Error::Unsupported),
            _ => {
                let len = rest.first().map_or(0, |len| usize::from(*len));
                // The length counts the bytes of kind and length.
                let after = options.get(len..).filter(|_| len >= 2);
                after.ok_or(Error::Malformed)?
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_and_impossible_lengths_are_refused_and_all_else_is_not() {
        let cases: [(&str, &[u8], Result<(), Error>); 12] = [
            ("none", &[], Ok(())),
            ("router alert", &[0x94, 4, 0, 0], Ok(())),
            ("record route", &[7, 7, 4, 0, 0, 0, 0, 0], Ok(())),
            ("forty times nothing", &[1; 40], Ok(())),
            ("unknown", &[30, 4, 1, 2], Ok(())),
            ("behind the end", &[0, 131, 3, 4], Ok(())),
            (
                "loose route",
                &[131, 7, 4, 10, 0, 0, 1, 0],
                Err(Error::Unsupported),
            ),
            (
                "strict route at its end",
                &[1, 137, 7, 8, 10, 0, 0, 1],
                Err(Error::Unsupported),
            ),
            ("length 0", &[30, 0, 1, 2], Err(Error::Malformed)),
            ("length 1", &[30, 1, 1, 2], Err(Error::Malformed)),
            ("no length", &[1, 1, 1, 30], Err(Error::Malformed)),
            ("beyond the header", &[30, 5, 1, 2], Err(Error::Malformed)),
        ];
        for (name, options, expected) in cases {
            assert_eq!(judge(options), expected, "{name}");
        }
    }
}
