//! Names of the errors that socket calls give, see errno(3).

const NAMES: &[(i32, &str)] = &[
    (libc::EPERM, "EPERM"),
    (libc::EINTR, "EINTR"),
    (libc::EBADF, "EBADF"),
    (libc::EAGAIN, "EAGAIN"),
    (libc::EACCES, "EACCES"),
    (libc::EINVAL, "EINVAL"),
    (libc::EPIPE, "EPIPE"),
    (libc::EMSGSIZE, "EMSGSIZE"),
    (libc::ENOPROTOOPT, "ENOPROTOOPT"),
    (libc::EPROTO, "EPROTO"),
    (libc::EOPNOTSUPP, "EOPNOTSUPP"),
    (libc::EADDRINUSE, "EADDRINUSE"),
    (libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (libc::ENETDOWN, "ENETDOWN"),
    (libc::ENETUNREACH, "ENETUNREACH"),
    (libc::ECONNABORTED, "ECONNABORTED"),
    (libc::ECONNRESET, "ECONNRESET"),
    (libc::ENOBUFS, "ENOBUFS"),
    (libc::EISCONN, "EISCONN"),
    (libc::ENOTCONN, "ENOTCONN"),
    (libc::ETIMEDOUT, "ETIMEDOUT"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::EHOSTDOWN, "EHOSTDOWN"),
    (libc::EHOSTUNREACH, "EHOSTUNREACH"),
    (libc::EALREADY, "EALREADY"),
    (libc::EINPROGRESS, "EINPROGRESS"),
    (libc::EDESTADDRREQ, "EDESTADDRREQ"),
    (libc::ENOENT, "ENOENT"),
];

/// The name of an error's number.
pub(super) fn name(errno: i32) -> String {
    let found = NAMES.iter().find(|(number, _)| *number == errno);
    found.map_or_else(|| format!("E{errno}"), |(_, name)| (*name).to_owned())
}
