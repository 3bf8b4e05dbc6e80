//! Installing a filter, and the handler of the signal that it sends: seccomp(2), sigaction(2).

#![allow(unsafe_code)]

use std::io;

use bpf::classic::Instruction;

use crate::refused;

/// Installs a filter for this thread and what it starts from now on.
pub fn install_filter(program: &[Instruction]) -> io::Result<()> {
    const SET_MODE_FILTER: libc::c_long = 1;
    let len = u16::try_from(program.len());
    let program = libc::sock_fprog {
        len: len.map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?,
        filter: program.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel reads the program, which outlives the call, and no more than its length.
    let result =
        unsafe { libc::syscall(libc::SYS_seccomp, SET_MODE_FILTER, 0, &raw const program) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// From now on a call that a filter traps is noted and answered with EPERM.
pub fn on_refused() -> io::Result<()> {
    // SAFETY: all-zero bytes are a value of this plain structure.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
        handle_refused;
    action.sa_sigaction = handler as libc::sighandler_t;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    // SAFETY: the structure is a local; the handler has the form that SA_SIGINFO asks for and does only what a handler may.
    let result = unsafe { libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The kernel has undone the call: its number stands where the result will be, which is set here.
extern "C" fn handle_refused(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: of a handler with SA_SIGINFO the third argument is the interrupted thread's context, which is this
    // handler's to change until it returns.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let registers = &mut context.uc_mcontext;
    let refusal = -libc::EPERM;
    #[cfg(target_arch = "x86_64")]
    let number = {
        let result = usize::try_from(libc::REG_RAX).unwrap_or(0);
        std::mem::replace(&mut registers.gregs[result], refusal.into())
    };
    #[cfg(target_arch = "aarch64")]
    let number = {
        registers.regs[0] = i64::from(refusal).cast_unsigned();
        registers.regs[8]
    };
    refused::note(usize::try_from(number).unwrap_or(usize::MAX));
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt as _;

    use crate::filter::{Call, Check, install};

    #[test]
    fn a_refused_call_is_eperm_and_is_noted_and_the_thread_goes_on() {
        // A filter is for ever, and for a thread.
        std::thread::spawn(|| {
            let before = crate::refused();
            let mut calls = crate::calls::engine();
            calls.push(Call {
                constant: "SYS_getppid",
                number: libc::SYS_getppid,
                check: Check::Any,
                why: "to compare",
            });
            crate::capability::forgo_new_privileges().unwrap();
            install(&calls).unwrap();
            // SAFETY: the call takes no arguments and no memory.
            assert!(unsafe { libc::getppid() } > 0);
            let changed = std::env::set_current_dir("/");
            assert_eq!(changed.unwrap_err().raw_os_error(), Some(libc::EPERM));
            let executed = std::process::Command::new("/bin/true").exec();
            assert_eq!(executed.raw_os_error(), Some(libc::EPERM));
            assert!(crate::refused() >= before + 2);
        })
        .join()
        .unwrap();
    }
}
