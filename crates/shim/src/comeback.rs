//! Engines that end and come back (docs/decisions/0051-listeners-outlive-engines.md): what this process listens with, or
//! has bound, on one that is gone is put on the next one of the same name. When: `wait::lost_engines`.

use std::collections::HashSet;
use std::os::fd::RawFd;
use std::sync::Arc;

use switch::attached;

use crate::calls::datagram;
use crate::calls::sigio;
use crate::fd_table::descriptors;
use crate::fd_table::file::File;
use crate::socket::Socket;
use crate::sys;

/// Looks for what has lost an engine; whether nothing is missing any more.
pub fn bring_all_back() -> bool {
    missing().is_empty() || {
        attached::attach_again();
        let lost = missing();
        lost.iter()
            .filter(|(fd, file)| !bring_back(*fd, file))
            .count()
            == 0
    }
}

/// The sockets that have lost an engine, each with one of its numbers.
fn missing() -> Vec<(RawFd, Arc<File>)> {
    let mut seen = HashSet::new();
    descriptors::tracked_in(0, RawFd::MAX)
        .filter_map(|fd| Some((fd, descriptors::known(fd)?)))
        .filter(|(_, file)| file.socket().is_some_and(misses_engine))
        .filter(|(_, file)| seen.insert(Arc::as_ptr(file)))
        .collect()
}

fn misses_engine(socket: &Socket) -> bool {
    let stream = socket.borrow_stream();
    stream.as_ref().is_some_and(|stream| {
        if socket.is_datagram() {
            stream.has_lost_part()
        } else {
            stream.misses_engine() && !socket.receive_shut()
        }
    })
}

/// Brings one back; whether it misses no engine any more.
fn bring_back(fd: RawFd, file: &File) -> bool {
    let Some(socket) = file.socket() else {
        return true;
    };
    if socket.is_datagram() {
        return datagram::come_back(fd, socket).is_ok();
    }
    let (Some(stream), Ok(backing)) = (socket.stream(), sys::borrow(fd)) else {
        return true;
    };
    let is_whole = stream.listen_again(backing);
    socket.log.apply(&stream);
    sigio::apply(fd, socket, &stream);
    if !socket.watchers.is_empty() {
        crate::epoll::observe(&stream, &socket.watchers);
        socket.watchers.notify(u32::MAX);
    }
    is_whole
}
