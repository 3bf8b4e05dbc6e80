//! How an exported symbol serves its call, or passes it on. The safety of it is the C caller's contract with libc, as in `exports.rs`.

#![allow(unsafe_code)]

/// Exports functions that serve a call if it concerns the switch, and else pass it on unchanged. First how they are served:
/// as cancellation points of pthreads(7), or not.
macro_rules! switched {
    ($edge:ident: $(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty, if $concerned:expr => $serve:expr;)*) => {$(
        /// As libc's function of this name.
        ///
        /// # Safety
        /// As libc's: pointers are valid for what the call does with them.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($arg: $type),*) -> $ret {
            #[inline(never)]
            #[allow(clippy::too_many_arguments)]
            unsafe fn pass_on($($arg: $type),*) -> $ret {
                real!($name($($arg: $type),*) -> $ret)
            }
            /// Where `again` is given it tells whether the call is to be made once more.
            #[inline(never)]
            #[allow(unused_unsafe, clippy::too_many_arguments)]
            unsafe fn serve($($arg: $type,)* again: Option<&mut bool>) -> $ret {
                // SAFETY: the C caller vouches for the arguments, as it does to libc.
                match $edge(|| unsafe { $serve }) {
                    Some(Some(result)) => result,
                    // SAFETY: the same arguments.
                    Some(None) => unsafe { pass_on($($arg),*) },
                    None => match again {
                        Some(again) => {
                            *again = true;
                            <$ret as Failure>::FAILED
                        }
                        // SAFETY: the same arguments.
                        None => unsafe { serve_again($($arg),*) },
                    },
                }
            }
            #[cold]
            #[inline(never)]
            unsafe fn serve_again($($arg: $type),*) -> $ret {
                loop {
                    let mut again = false;
                    // SAFETY: the same arguments.
                    let result = unsafe { serve($($arg,)* Some(&mut again)) };
                    if !again {
                        return result;
                    }
                }
            }
            // The last call in either case: this function keeps nothing.
            if $concerned {
                // SAFETY: the same arguments.
                return unsafe { serve($($arg,)* None) };
            }
            // SAFETY: the same arguments.
            unsafe { pass_on($($arg),*) }
        }
    )*};
}

pub(crate) use switched;
