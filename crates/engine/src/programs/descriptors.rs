//! What programs send along with requests, looked at before it is believed.

use super::Refusal;
use super::users::ProgramFd;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

fn is_socket(fd: &OwnedFd, family: AddressFamily, kind: SocketType) -> bool {
    sockopt::socket_domain(fd) == Ok(family) && sockopt::socket_type(fd) == Ok(kind)
}

/// Whether this is a file to send from rather than a backing socket.
pub(crate) fn is_file(descriptors: &[ProgramFd]) -> bool {
    matches!(descriptors, [one] if sockopt::socket_type(&**one) == Err(Errno::NOTSOCK))
}

/// The engine asks backing sockets for their names and closes them: a descriptor of another kind could
/// make it wait there, on a remote file system for instance.
pub(crate) fn check_backings(descriptors: &[ProgramFd]) -> Result<(), Refusal> {
    let is_backing = |fd: &ProgramFd| {
        let families = [AddressFamily::INET, AddressFamily::INET6];
        let is = |family, kind| is_socket(fd, family, kind);
        families
            .into_iter()
            .any(|family| is(family, SocketType::STREAM) || is(family, SocketType::DGRAM))
    };
    if descriptors.iter().all(is_backing) {
        Ok(())
    } else {
        let text =
            "a backing socket is an AF_INET or AF_INET6 socket of type SOCK_STREAM or SOCK_DGRAM"
                .to_owned();
        Err((Errno::NOTSOCK, text))
    }
}
