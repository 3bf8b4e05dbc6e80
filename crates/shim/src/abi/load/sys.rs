//! The hooks of the loader and of fork(2).

#![allow(unsafe_code)]

use crate::{
    abi::entries,
    fd_table::inherited,
    process::{self, fork},
};

/// Runs when the loader has loaded the library: leads libc's own calls here, registers the fork handlers, notes which
/// descriptors are sockets, makes room for the library's own, and nothing else, since nothing may lock or allocate before `main` (DESIGN §8).
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

extern "C" fn at_load() {
    process::own_memory();
    process::environment::at_load();
    inherited::at_load();
    client::find_thread_states();
    client::enlarge_table();
    entries::replace();
    // SAFETY: the handlers live as long as the process: a preloaded library is never unloaded.
    unsafe {
        libc::pthread_atfork(Some(fork_prepare), Some(fork_parent), Some(fork_child));
    }
}

unsafe extern "C" fn fork_prepare() {
    fork::prepare();
}

unsafe extern "C" fn fork_parent() {
    fork::parent();
}

unsafe extern "C" fn fork_child() {
    fork::child();
}
