//! With the feature `dpdk`: finds the system's libdpdk by pkg-config and compiles the C code next to the driver.
//! Otherwise nothing.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk::build();
}

#[cfg(feature = "dpdk")]
mod dpdk {
    const GLUE: &str = "src/dpdk/glue.c";
    /// Libraries whose functions the C calls; drivers are loaded when the program starts.
    const LIBRARIES: [&str; 5] = [
        "rte_ethdev",
        "rte_mempool",
        "rte_mbuf",
        "rte_ring",
        "rte_eal",
    ];
    /// The first release with the functions that tell a device's bus.
    const OLDEST: &str = "22.11";

    pub fn build() {
        println!("cargo::rerun-if-changed={GLUE}");
        let found = pkg_config::Config::new()
            .atleast_version(OLDEST)
            .cargo_metadata(false)
            .probe("libdpdk");
        let library = match found {
            Ok(library) => library,
            Err(error) => {
                println!(
                    "cargo::error=the feature dpdk needs libdpdk {OLDEST} or newer and pkg-config (Debian: apt-get install libdpdk-dev pkg-config): {error}"
                );
                return;
            }
        };
        let mut compiler = cc::Build::new();
        compiler
            .file(GLUE)
            .includes(&library.include_paths)
            .flag("-include")
            .flag("rte_config.h")
            .flag("-std=gnu11");
        // DPDK's inlines need the instructions that the library was built for, and no more.
        if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
            compiler.flag("-march=corei7");
        }
        compiler.compile("shunt_dpdk");
        for path in &library.link_paths {
            println!("cargo::rustc-link-search=native={}", path.display());
        }
        for name in LIBRARIES {
            println!("cargo::rustc-link-lib=dylib={name}");
        }
    }
}
