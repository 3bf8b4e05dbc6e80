//! An engine over DPDK's virtual devices, met by the kernel: unmodified curl and iperf3 both ways. The driver by itself
//! is in `nic/src/dpdk/tests.rs`.
//!
//! Without the cargo feature the tests are skipped, and say so past libtest's capture; then what the driver's name
//! is answered is tested instead.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

#[cfg(not(feature = "dpdk"))]
mod without {
    use std::io::Write as _;
    use std::process::Command;

    fn refusal(arguments: &[&str]) -> String {
        let output = Command::new(super::SHUNT)
            .args(["engine", "--address", "198.51.100.7/24"])
            .args(arguments)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    }

    #[test]
    fn a_binary_without_dpdk_says_how_to_build_one_with_it() {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: dpdk: built without the cargo feature; `make dpdk` runs these tests where libdpdk is installed"
        );
        let error = refusal(&["--nic", "net_tap0", "--driver", "dpdk"]);
        for part in ["--driver dpdk", "libdpdk-dev", "--features dpdk"] {
            assert!(error.contains(part), "no {part:?} in {error}");
        }
    }

    #[test]
    fn its_options_are_for_no_other_driver() {
        let error = refusal(&["--nic", "eth0", "--dpdk-args=-m 64"]);
        assert!(error.contains("--dpdk-args needs --driver dpdk"), "{error}");
    }
}

#[cfg(feature = "dpdk")]
mod with {
    use std::fs;
    use std::io::Write as _;
    use std::path::PathBuf;
    use std::process::Command;

    use rustix::process::Signal;
    use serde_json::Value;
    use testkit::{Finished, Lab, LabSpec, PATIENCE, Program, host, wait_for};

    use super::SHUNT;

    /// More than windows, rings and pools hold together.
    const FILE_BYTES: u32 = 40_000_000;
    const IPERF_BYTES: u64 = 50_000_000;

    fn skip(test: &str, reason: &str) {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: {reason}");
    }

    fn is_installed(test: &str, program: &str) -> bool {
        let is = Command::new(program).arg("--version").output().is_ok();
        if !is {
            skip(test, &format!("{program} is not installed"));
        }
        is
    }

    /// An engine on host `a`, and where the kernel is that it talks to.
    struct World {
        engine: Program,
        lab: Lab,
        engine_address: String,
        kernel: &'static str,
        kernel_address: String,
        folder: PathBuf,
    }

    impl Drop for World {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }

    impl World {
        /// With the lab's cable between engine and kernel, or by net_tap on one host.
        fn new(test: &str, device: &str, flags: &[&str]) -> Option<Self> {
            if !["python3", "curl", "iperf3", "ethtool"]
                .iter()
                .all(|program| is_installed(test, program))
            {
                return None;
            }
            let lab = match Lab::temporary(&format!("t-{test}"), &LabSpec::default()) {
                Ok(lab) => lab,
                Err(error) => {
                    skip(test, &error.to_string());
                    return None;
                }
            };
            let is_tap = device.starts_with("net_tap");
            let (engine_address, kernel, kernel_address) = if is_tap {
                ("10.99.0.2/24".to_owned(), "a", "10.99.0.1".to_owned())
            } else {
                let own = host(&lab, "a").spec().engine_address;
                let peer = host(&lab, "b").spec().address.address.to_string();
                (format!("{}/{}", own.address, own.prefix_len), "b", peer)
            };
            if !is_tap {
                // On a veth the kernel leaves checksums and cutting to a device that is none; those drivers of
                // DPDK do not look for what was left.
                let line = ["-K", "eth0", "tx", "off"];
                if let Err(error) = testkit::start(host(&lab, "b"), "ethtool", &line)
                    .finish(PATIENCE, || false)
                    .and_then(Finished::success)
                {
                    skip(test, &error.to_string());
                    return None;
                }
            }
            let address = ["--nic", device, "--address", &engine_address];
            let line = [&["engine", "--driver", "dpdk"], &address[..], flags].concat();
            let engine = testkit::once_serving(testkit::start(host(&lab, "a"), SHUNT, &line));
            if is_tap {
                let line = "address add 10.99.0.1/24 dev shunt0";
                let line: Vec<&str> = line.split(' ').collect();
                testkit::run(host(&lab, "a"), "ip", &line);
            }
            let folder = std::env::temp_dir().join(format!("shunt-{test}-{}", std::process::id()));
            fs::create_dir_all(&folder).unwrap();
            let data: Vec<u8> = (0..FILE_BYTES)
                .map(|at| at.wrapping_mul(0x9e37_79b1).to_be_bytes()[0])
                .collect();
            fs::write(folder.join("data"), data).unwrap();
            let (engine_address, _) = engine_address.split_once('/').unwrap();
            Some(Self {
                engine,
                lab,
                engine_address: engine_address.to_owned(),
                kernel,
                kernel_address,
                folder,
            })
        }

        /// A program on the engine, or at the kernel's side.
        fn start(&self, is_on_engine: bool, line: &[&str]) -> Program {
            let prefix = [SHUNT, "run", "--policy", "engine-only", "--"];
            if is_on_engine {
                let line = [&prefix[1..], line].concat();
                testkit::start(host(&self.lab, "a"), SHUNT, &line)
            } else {
                testkit::start(host(&self.lab, self.kernel), line[0], &line[1..])
            }
        }

        fn run(&self, is_on_engine: bool, line: &[&str]) -> Finished {
            let finished = self.start(is_on_engine, line).finish(PATIENCE, || false);
            finished.unwrap().success().unwrap()
        }

        fn address(&self, is_of_engine: bool) -> &str {
            if is_of_engine {
                &self.engine_address
            } else {
                &self.kernel_address
            }
        }

        /// Fetches the file `count` times at once from a server on one side by curl on the other.
        fn fetches(&self, engine_serves: bool, count: usize) {
            let address = self.address(engine_serves);
            let folder = self.folder.to_str().unwrap();
            let line = [
                "python3",
                "-u",
                "-m",
                "http.server",
                "-b",
                address,
                "-d",
                folder,
                "8000",
            ];
            let mut server = self.start(engine_serves, &line);
            server
                .wait_until("server", PATIENCE, |one| one.stdout().contains("Serving"))
                .unwrap();
            let url = format!("http://{address}:8000/data");
            let clients: Vec<(Program, PathBuf)> = (0..count)
                .map(|number| {
                    let copy = self.folder.join(format!("copy-{number}"));
                    let to = copy.to_str().unwrap();
                    let line = ["curl", "-sS", "--max-time", "60", "-o", to, &url];
                    (self.start(!engine_serves, &line), copy)
                })
                .collect();
            let wanted = fs::read(self.folder.join("data")).unwrap();
            for (client, copy) in clients {
                client
                    .finish(PATIENCE, || false)
                    .unwrap()
                    .success()
                    .unwrap();
                assert!(fs::read(copy).unwrap() == wanted, "other bytes");
            }
        }

        /// Moves bytes to or from a server on the engine.
        fn moves(&self, way: &str) {
            let address = self.address(true);
            let line = ["iperf3", "--server", "--one-off", "--bind", address];
            let mut server = self.start(true, &[&line[..], &["--forceflush"]].concat());
            server
                .wait_until("iperf3", PATIENCE, |one| one.stdout().contains("listening"))
                .unwrap();
            let bytes = IPERF_BYTES.to_string();
            let mut line = vec!["iperf3", "--json", "-c", address, "-n", &bytes];
            line.extend((!way.is_empty()).then_some(way));
            let told = self.run(false, &line).stdout;
            let told: Value = serde_json::from_str(&told).unwrap();
            let sent = told["end"]["sum_sent"]["bytes"].as_u64().unwrap();
            let received = told["end"]["sum_received"]["bytes"].as_u64().unwrap();
            assert!(sent >= IPERF_BYTES && received >= IPERF_BYTES / 2, "{told}");
        }

        fn status(&self) -> Value {
            let told = testkit::start(host(&self.lab, "a"), SHUNT, &["status", "--json"]);
            let told = told.finish(PATIENCE, || false).unwrap();
            serde_json::from_str(&told.success().unwrap().stdout).unwrap()
        }

        fn has_interface(&self, name: &str) -> bool {
            let line = ["link", "show", name];
            let told = testkit::start(host(&self.lab, "a"), "ip", &line);
            let told = told.finish(PATIENCE, || false).unwrap();
            told.status.success()
        }

        /// Ends the engine as Ctrl-C does.
        fn interrupt(&mut self) {
            self.engine.signal(Signal::INT).unwrap();
            let engine = &mut self.engine;
            wait_for("end", PATIENCE, || engine.try_wait().unwrap().is_some());
            let status = engine.try_wait().unwrap().unwrap();
            assert_eq!(status.code(), Some(0), "{}", engine.stderr());
        }
    }

    fn passes_everything(world: &World) {
        world.fetches(true, 1);
        // To an address of their own host programs go by its kernel.
        if world.kernel == "b" {
            world.fetches(false, 1);
        }
        world.fetches(true, 8);
        world.moves("");
        world.moves("--reverse");
    }

    #[test]
    fn over_net_tap_the_kernel_gets_and_sends_what_it_should_and_the_interface_goes_at_the_end() {
        let device = "net_tap0,iface=shunt0";
        let Some(mut world) = World::new("dpdk-tap", device, &[]) else {
            return;
        };
        assert!(world.has_interface("shunt0"));
        passes_everything(&world);
        let status = world.status();
        assert_eq!(status["driver"], "dpdk");
        assert_eq!(status["driver_mode"], "net_tap");
        assert_eq!(status["complaints"], Value::Array(Vec::new()));
        assert_eq!(status["driver_counters"]["rx_dropped"], 0);
        assert_eq!(status["driver_counters"]["tx_dropped"], 0);
        world.interrupt();
        assert!(!world.has_interface("shunt0"));
    }

    #[test]
    fn over_net_af_packet_a_cable_carries_what_it_should() {
        let device = "net_af_packet0,iface=eth0";
        let Some(mut world) = World::new("dpdk-packet", device, &[]) else {
            return;
        };
        passes_everything(&world);
        assert_eq!(world.status()["driver_mode"], "net_af_packet");
        world.interrupt();
    }

    #[test]
    fn two_cores_with_a_queue_each_serve_connections_wherever_their_frames_arrive() {
        for (test, device) in [
            ("dpdk-tap-cores", "net_tap0,iface=shunt0"),
            ("dpdk-packet-cores", "net_af_packet0,iface=eth0,qpairs=2"),
        ] {
            let Some(mut world) = World::new(test, device, &["--cores", "2"]) else {
                return;
            };
            passes_everything(&world);
            assert_eq!(world.status()["cores"], 2);
            world.interrupt();
        }
    }

    #[test]
    fn software_does_what_the_device_may_not() {
        let device = "net_tap0,iface=shunt0";
        let flags = ["--no-checksum-offload"];
        let Some(world) = World::new("dpdk-plain", device, &flags) else {
            return;
        };
        world.fetches(true, 1);
        world.moves("");
    }

    #[test]
    fn what_cannot_be_is_refused_naming_the_flag_and_the_next_step() {
        let lab = match Lab::temporary("t-dpdk-refusals", &LabSpec::default()) {
            Ok(lab) => lab,
            Err(error) => return skip("dpdk-refusals", &error.to_string()),
        };
        let address = ["engine", "--driver", "dpdk", "--address", "10.77.0.11/24"];
        for (arguments, expected) in [
            (&["--nic", "eth0"][..], &["eth0", "PCI address"][..]),
            (&["--nic", "net_none0"], &["net_none0", "librte-net-none"]),
            (&["--nic", "net_af_packet0"], &["net_af_packet0", "options"]),
            (&["--nic", "ff:1f.7"], &["0000:ff:1f.7", "vfio-pci"]),
            (
                &["--nic", "net_af_packet0,iface=eth0", "--cores", "2"],
                &["1 receive and 1 transmit", "--cores 1"],
            ),
            (
                &["--nic", "net_ring0", "--dpdk-args=--no-huge -m 4"],
                &["memory", "-m"],
            ),
            (
                &["--nic", "net_ring0", "--dpdk-args=--nonsense"],
                &["--nonsense", "--dpdk-args"],
            ),
        ] {
            let line = [&address[..], arguments].concat();
            let told = testkit::start(host(&lab, "a"), SHUNT, &line);
            let told = told.finish(PATIENCE, || false).unwrap();
            assert_eq!(told.status.code(), Some(2), "{}", told.stderr);
            for part in expected {
                let error = &told.stderr;
                assert!(
                    error.contains(part),
                    "{arguments:?}: no {part:?} in {error}"
                );
            }
        }
        let mut shared = testkit::command(host(&lab, "a"), SHUNT, &address[..3]);
        shared
            .args(["--nic", "net_ring0"])
            .env_remove("SHUNT_ADDRESS");
        let told = Program::start("shunt", shared).unwrap();
        let told = told.finish(PATIENCE, || false).unwrap();
        assert!(told.stderr.contains("--driver dpdk needs --address"));
    }
}
