//! Names of the errors that socket calls give, see errno(3).

macro_rules! names {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name)),)*] };
}

const NAMES: &[(i32, &str)] = names! {
    EPERM EINTR EBADF EAGAIN EACCES EINVAL EPIPE EMSGSIZE ENOPROTOOPT EPROTO EOPNOTSUPP EADDRINUSE EADDRNOTAVAIL
    ENETDOWN ENETUNREACH ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ETIMEDOUT ECONNREFUSED EHOSTDOWN
    EHOSTUNREACH EALREADY EINPROGRESS EDESTADDRREQ ENOENT
};

/// The name of an error's number.
pub(super) fn name(errno: i32) -> String {
    let found = NAMES.iter().find(|(number, _)| *number == errno);
    found.map_or_else(|| format!("E{errno}"), |(_, name)| (*name).to_owned())
}
