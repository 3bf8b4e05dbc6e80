//! recvmsg(2), sendmsg(2) and their kin for several messages. Those of other sockets are libc's own, but for the
//! descriptors that they carry (`inherited`).

pub mod sys;
