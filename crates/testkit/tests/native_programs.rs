//! Programs of the native interface, in Rust and C, as the examples of docs/native.md have them: compiled, linked in both
//! ways, and run over two engines on one wire. Without a C compiler those in C are skipped, and that is said.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

mod engine_support;

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use engine_support::{ADDRESSES, EngineThread, PATIENCE, backing, engines};
use testkit::{is_native_built, native_example, native_library, workspace, world};

const BYTES: usize = 3_000_007;

/// By which programs ask for the library: its version is in it.
const NAME: &str = "libshunt_native.so.0";

/// Where programs are compiled, and find the library by its name. Removed with the value.
struct Folder {
    path: PathBuf,
    programs: PathBuf,
    include: PathBuf,
    libraries: PathBuf,
}

impl Folder {
    fn new(test: &str) -> Folder {
        let name = format!("shunt-{test}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        let libraries = native_library().to_owned();
        let library = libraries.join("libshunt_native.so");
        std::os::unix::fs::symlink(library, path.join(NAME)).unwrap();
        Folder {
            programs: path.clone(),
            path,
            include: workspace::root().join("crates/capi/include"),
            libraries,
        }
    }

    /// With what `make install-native` installs, and nothing else of this repository.
    fn installed(test: &str) -> Folder {
        let built = native_library();
        let path = std::env::temp_dir().join(format!("shunt-{test}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        let libraries = path.join("opt/shunt/lib");
        let folder = Folder {
            programs: libraries.clone(),
            include: path.join("opt/shunt/include"),
            path,
            libraries,
        };
        let profile = match built.file_name().and_then(|name| name.to_str()).unwrap() {
            "debug" => "dev",
            other => other,
        };
        let cargo = match std::env::var("CARGO") {
            _ if is_native_built() => "true".to_owned(),
            cargo => cargo.unwrap_or_else(|_| "cargo".to_owned()),
        };
        let output = Command::new("make")
            .arg("install-native")
            .arg(format!("DESTDIR={}", folder.path.display()))
            .args(["PREFIX=/opt/shunt", &format!("PROFILE={profile}")])
            .arg(format!("CARGO={cargo} --quiet"))
            .arg(format!(
                "CARGO_TARGET_DIR={}",
                built.parent().unwrap().display()
            ))
            .current_dir(workspace::root())
            .env_remove("MAKEFLAGS")
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        folder
    }

    /// Compiles a program of `crates/capi` against the header, with warnings as errors.
    fn compile(&self, source: &str, links: &[&str]) -> PathBuf {
        let program = self.programs.join(source.replace('/', "-"));
        let output = Command::new("cc")
            .args([
                "-std=c11",
                "-D_DEFAULT_SOURCE",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-O1",
                "-I",
            ])
            .arg(&self.include)
            .arg(workspace::root().join("crates/capi").join(source))
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(&self.libraries)
            .args(links)
            .output()
            .unwrap();
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{source}: {complaints}");
        program
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

const SHARED: &[&str] = &["-lshunt_native"];
const STATIC: &[&str] = &["-l:libshunt_native.a", "-lpthread", "-ldl", "-lm"];

fn command(program: &Path, engine: &EngineThread, words: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(words)
        .env("SHUNT_ENGINE", &engine.name)
        .env("LD_LIBRARY_PATH", program.parent().unwrap());
    command
}

/// Runs a program to its end.
fn run(program: &Path, engine: &EngineThread, words: &[&str]) -> Output {
    let mut child = command(program, engine, words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut ended = false;
    let deadline = std::time::Instant::now() + PATIENCE;
    while !ended && std::time::Instant::now() < deadline {
        ended = child.try_wait().unwrap().is_some();
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    if !ended {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(ended, "{} hangs: {output:?}", program.display());
    output
}

/// A server that has said that it listens; killed when dropped.
struct Server(Child);

impl Server {
    fn start(program: &Path, engine: &EngineThread, words: &[&str]) -> Server {
        let mut child = command(program, engine, words)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "listening\n");
        Server(child)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn asks_and_is_answered(
    engines: &[EngineThread; 2],
    (server, server_words): (&Path, &[&str]),
    (client, client_words): (&Path, &[&str]),
) {
    let _server = Server::start(server, &engines[1], server_words);
    for _ in 0..2 {
        let output = run(client, &engines[0], client_words);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(said, format!("{BYTES} bytes came back\n"));
    }
    let copies = engines[0].status()["copies"].clone();
    assert_eq!(copies["copied_to_send_bytes"], 0, "{copies}");
    assert_eq!(copies["copied_to_receive_bytes"], copies["received_bytes"]);
}

/// A port that no other test has: the kernel sockets behind those of engines share one host.
fn free_port() -> u16 {
    let name = rustix::net::getsockname(backing()).unwrap();
    SocketAddr::try_from(name).unwrap().port()
}

fn words_of_c(role: &'static str, port: u16) -> Vec<String> {
    let address = Ipv4Addr::to_string(&ADDRESSES[1]);
    [
        role.to_owned(),
        address,
        port.to_string(),
        BYTES.to_string(),
    ]
    .into()
}

fn words_of_rust(role: &'static str, port: u16) -> Vec<String> {
    let mut words = vec![role.to_owned(), format!("{}:{port}", ADDRESSES[1])];
    if role == "client" {
        words.push(BYTES.to_string());
    }
    words
}

fn borrowed(words: &[String]) -> Vec<&str> {
    words.iter().map(String::as_str).collect()
}

#[test]
fn the_examples_in_rust_answer_each_other() {
    let engines = engines();
    let port = free_port();
    let (server, client) = (words_of_rust("server", port), words_of_rust("client", port));
    asks_and_is_answered(
        &engines,
        (native_example(), &borrowed(&server)),
        (native_example(), &borrowed(&client)),
    );
}

#[test]
fn the_examples_in_c_and_rust_answer_each_other() {
    if !world::missing(&["cc"]).is_empty() {
        return world::skip("native_programs: C", "not installed: cc");
    }
    let folder = Folder::new("native-c");
    let port = free_port();
    let (c_server, c_client) = (words_of_c("server", port), words_of_c("client", port));
    let rust = words_of_rust("client", port);
    for links in [SHARED, STATIC] {
        let program = folder.compile("examples/echo.c", links);
        for (client, words) in [(program.as_path(), &c_client), (native_example(), &rust)] {
            let engines = engines();
            asks_and_is_answered(
                &engines,
                (&program, &borrowed(&c_server)),
                (client, &borrowed(words)),
            );
        }
    }
}

#[test]
fn what_is_installed_is_enough_to_compile_and_run_a_program() {
    let missing = world::missing(&["cc", "make", "install"]);
    if !missing.is_empty() {
        return world::skip(
            "native_programs: installed",
            &format!("not installed: {missing:?}"),
        );
    }
    let folder = Folder::installed("native-installed");
    let port = free_port();
    let (server, client) = (words_of_c("server", port), words_of_c("client", port));
    for links in [SHARED, STATIC] {
        let program = folder.compile("examples/echo.c", links);
        if links == STATIC {
            // It has to do without.
            for name in [NAME, "libshunt_native.so"] {
                std::fs::remove_file(folder.libraries.join(name)).unwrap();
            }
        }
        let engines = engines();
        asks_and_is_answered(
            &engines,
            (&program, &borrowed(&server)),
            (&program, &borrowed(&client)),
        );
    }
}

#[test]
fn a_careless_or_hostile_caller_in_c_gets_errors() {
    if !world::missing(&["cc"]).is_empty() {
        return world::skip("native_programs: hostile caller in C", "not installed: cc");
    }
    let folder = Folder::new("native-hostile");
    let program = folder.compile("tests/hostile.c", SHARED);
    let engines = engines();
    let address = Ipv4Addr::to_string(&ADDRESSES[0]);
    let output = run(&program, &engines[0], &[&address]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_fork_shares_the_sockets_and_no_set() {
    if !world::missing(&["cc"]).is_empty() {
        return world::skip("native_programs: fork in C", "not installed: cc");
    }
    let folder = Folder::new("native-fork");
    let program = folder.compile("tests/fork.c", SHARED);
    let engines = engines();
    let address = Ipv4Addr::to_string(&ADDRESSES[0]);
    let output = run(&program, &engines[0], &[&address]);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(output.stdout, b"as it should be\n");
}

#[test]
fn a_program_in_c_whose_engine_ends_says_so_and_ends() {
    if !world::missing(&["cc"]).is_empty() {
        return world::skip("native_programs: death in C", "not installed: cc");
    }
    let folder = Folder::new("native-death");
    let program = folder.compile("examples/echo.c", SHARED);
    let [near, far] = engines();
    let words = words_of_c("server", free_port());
    let mut server = Server::start(&program, &far, &borrowed(&words));
    drop(far);
    let mut status = None;
    testkit::wait_for("end of the program", PATIENCE, || {
        status = server.0.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.and_then(|status| status.code()), Some(1));
    drop(near);
}

#[test]
fn the_header_declares_what_the_library_exports() {
    if !world::missing(&["nm"]).is_empty() {
        return world::skip("native_programs: exports", "not installed: nm");
    }
    let header = workspace::root().join("crates/capi/include/shunt.h");
    let header = std::fs::read_to_string(header).unwrap();
    let declared: BTreeSet<&str> = header
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '(')
        .filter_map(|word| word.split_once('(').map(|(name, _)| name))
        .filter(|name| name.starts_with("shunt_"))
        .collect();
    let output = Command::new("nm")
        .args(["-D", "--defined-only", "--format=posix"])
        .arg(native_library().join("libshunt_native.so"))
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let exported: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(exported, declared);
}

#[test]
fn the_page_shows_the_examples_that_are_run_here() {
    let read = |path: &str| std::fs::read_to_string(workspace::root().join(path)).unwrap();
    let page = read("docs/native.md");
    for path in [
        "crates/native/examples/echo.rs",
        "crates/capi/examples/echo.c",
    ] {
        assert!(
            page.contains(&read(path)),
            "docs/native.md is not up to date with {path}"
        );
    }
}
