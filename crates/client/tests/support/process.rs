//! The fake engine as a process of its own, for tests that fork or kill.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use client::Session;

use super::engine::{FakeEngine, small_layout};

const NAME: &str = "SHUNT_TEST_ENGINE_NAME";

/// A name that no other test uses.
pub fn unique_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "@shunt/test/{}/{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// An engine process; killed when dropped.
pub struct EngineProcess {
    child: Child,
    pub name: String,
}

impl EngineProcess {
    /// Starts this test binary again, as an engine. The binary needs a test `engine_process` that calls
    /// `serve`.
    pub fn start() -> EngineProcess {
        let name = unique_name();
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["engine_process", "--exact", "--ignored", "--nocapture"])
            .env(NAME, &name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // It says when it listens; the test harness speaks first.
        let mut said = Vec::new();
        let mut byte = [0];
        let stdout = child.stdout.as_mut().unwrap();
        while !said.ends_with(b"listening") {
            assert_eq!(
                stdout.read(&mut byte).unwrap(),
                1,
                "the engine process ended"
            );
            said.push(byte[0]);
        }
        EngineProcess { child, name }
    }

    pub fn attach(&self) -> &'static Session {
        Session::attach(&self.name).unwrap()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for EngineProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The body of the test `engine_process`: serves until stdin closes.
pub fn serve() {
    let Ok(name) = std::env::var(NAME) else {
        return;
    };
    let _engine = FakeEngine::start_named(&name, small_layout());
    println!("listening");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
