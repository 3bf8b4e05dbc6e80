//! Gives the shared library its name with the version of the interface, `SHUNT_VERSION_MAJOR` of `shunt.h`: a program that was
//! linked with one version does not start with another.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libshunt_native.so.0");
}
