//! How the library is linked.

fn main() {
    // Its own functions are those that libc's entries lead to, whatever library was loaded before it with functions of the same names.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo:rerun-if-changed=build.rs");
}
