//! What programs send along with requests, looked at before it is believed.

use super::Refusal;
use super::users::ProgramFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, sockopt};

/// The engine asks backing sockets for their names and closes them: a descriptor of another kind could
/// make it wait there, on a remote file system for instance.
pub(crate) fn check_backings(
    descriptors: &[ProgramFd],
    kinds: &[SocketType],
) -> Result<(), Refusal> {
    let is_ip = |domain| domain == Ok(AddressFamily::INET) || domain == Ok(AddressFamily::INET6);
    let is_of_kind = |kind| kinds.contains(&kind);
    let is_backing = |fd: &ProgramFd| {
        is_ip(sockopt::socket_domain(&**fd)) && sockopt::socket_type(&**fd).is_ok_and(is_of_kind)
    };
    if descriptors.iter().all(is_backing) {
        Ok(())
    } else {
        let text = "a backing socket is an AF_INET or AF_INET6 socket: of type SOCK_STREAM for TCP, of SOCK_DGRAM \
                    for UDP"
            .to_owned();
        Err((Errno::NOTSOCK, text))
    }
}
