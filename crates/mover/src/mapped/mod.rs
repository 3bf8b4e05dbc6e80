//! Received pages as memory, without a copy: TCP_ZEROCOPY_RECEIVE (`tcp_zerocopy_receive` of Linux, since 4.18).
//!
//! The kernel maps whole pages of what has come, if they belong to no file and to no larger block. Over loopback it has
//! such only of a sender that spliced them out of a pipe; from a network card that separates headers they come always.

mod sys;

pub use sys::{Got, Reception};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipe::Pipe;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    const PAGES: usize = 16;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (one, listener.accept().unwrap().0)
    }

    /// Pages of a pipe belong to no file and to no larger block, so that the kernel maps them over loopback too.
    #[test]
    fn pages_that_come_out_of_a_pipe_are_mapped_and_written_from_there() {
        let page_bytes = rustix::param::page_size();
        let (sender, mut receiver) = connected();
        let mut reception = match Reception::new(receiver.as_fd(), 64 * page_bytes) {
            Ok(reception) => reception,
            Err(error) => {
                let _ = writeln!(
                    std::io::stderr(),
                    "skipped: mapping received pages: {error}"
                );
                return;
            }
        };
        let sent: Vec<u8> = (0..PAGES * page_bytes)
            .map(|at| (at / 7).to_le_bytes()[0])
            .collect();
        let (pipe, mut into) = Pipe::with_input().unwrap();
        into.write_all(&sent).unwrap();
        let mut left = sent.len();
        while left > 0 {
            left -= pipe.empty(sender.as_fd(), None, left).unwrap();
        }
        drop(sender);
        let file = File::from(
            rustix::fs::memfd_create(c"mapped", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
        );
        let (mut done, mut mapped) = (0, 0);
        while done < sent.len() {
            let got = reception.receive(receiver.as_fd(), sent.len() - done);
            match got.unwrap() {
                Got { mapped: 0, to_read } => {
                    let mut bytes = vec![0; to_read.clamp(1, sent.len() - done)];
                    let count = receiver.read(&mut bytes).unwrap();
                    assert!(count > 0, "the end comes too early");
                    file.write_all_at(&bytes[..count], done as u64).unwrap();
                    done += count;
                }
                got => {
                    let count = reception.write(file.as_fd(), done as u64, 0, got.mapped);
                    assert_eq!(count.unwrap(), got.mapped);
                    done += got.mapped;
                    mapped += got.mapped;
                }
            }
        }
        let mut arrived = vec![0; sent.len()];
        file.read_exact_at(&mut arrived, 0).unwrap();
        assert!(arrived == sent);
        if mapped == 0 {
            let _ = writeln!(
                std::io::stderr(),
                "skipped: mapping received pages: this kernel maps none of a pipe's over loopback"
            );
            return;
        }
        assert!(mapped >= sent.len() / 2, "{mapped} of {}", sent.len());
    }

    #[test]
    fn what_is_no_connection_has_no_such_thing() {
        let file = File::open("/proc/self/exe").unwrap();
        if let Ok(mut reception) = Reception::new(file.as_fd(), 4_096) {
            assert!(reception.receive(file.as_fd(), 4_096).is_err());
        }
        let (_one, other) = connected();
        let mut reception = Reception::new(other.as_fd(), 4_096).unwrap();
        let got = reception.receive(other.as_fd(), 4_096).unwrap();
        assert_eq!(
            got,
            Got {
                mapped: 0,
                to_read: 0
            },
            "nothing has come"
        );
    }
}
