//! A browser without a window, driven over a pipe by the DevTools protocol
//! (<https://chromedevtools.github.io/devtools-protocol/>): messages of JSON, each ended by a zero byte.

#![allow(clippy::unwrap_used)] // a failure here ends the test, as it should

pub mod served;

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc::{Receiver, channel},
    },
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// How long the browser may take for one thing; the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(90);
const PROGRAMS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The browser's program, where one is installed.
fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let candidates = PROGRAMS
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    candidates.into_iter().find(|candidate| candidate.is_file())
}

/// A browser with one page.
pub struct Browser {
    process: Child,
    commands: ChildStdin,
    messages: Receiver<Value>,
    events: Vec<Value>,
    next: u64,
    session: Option<String>,
    folder: PathBuf,
}

impl Browser {
    /// Starts one, or says that none is installed.
    pub fn start(test: &str) -> Option<Self> {
        let Some(program) = program() else {
            let text = format!(
                "skipped: {test}: chromium is not installed (scripts/install-packages matrix)"
            );
            let _ = writeln!(std::io::stderr(), "{text}");
            return None;
        };
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("shunt-browser-{}-{number}", std::process::id()));
        let mut command = Command::new("sh");
        // The protocol is spoken on descriptors 3 and 4.
        command.args([
            "-c",
            "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>&1",
        ]);
        command.arg(program).args([
            "--headless",
            "--remote-debugging-pipe",
            // Tests run as root in containers, where its own sandbox cannot; the page is ours.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-first-run",
            "--hide-scrollbars",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]);
        command.arg(format!("--user-data-dir={}", folder.display()));
        command
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let (commands, answers) = (
            process.stdin.take().unwrap(),
            process.stdout.take().unwrap(),
        );
        let (sender, messages) = channel();
        thread::spawn(move || {
            for message in BufReader::new(answers).split(0).map_while(Result::ok) {
                let Ok(value) = serde_json::from_slice(&message) else {
                    break;
                };
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let mut browser = Self {
            process,
            commands,
            messages,
            events: Vec::new(),
            next: 0,
            session: None,
            folder,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.call("Target.attachToTarget", attach);
        browser.session = Some(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Calls a method of the protocol and waits for its result; keeps events for later.
    pub fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.commands.write_all(&bytes).unwrap();
        loop {
            let answer = self
                .messages
                .recv_timeout(PATIENCE)
                .unwrap_or_else(|error| panic!("{method}: {error}"));
            if answer["id"] == self.next {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].clone();
            }
            if answer["method"].is_string() {
                self.events.push(answer);
            }
        }
    }

    /// The value of an expression in the page; a promise is waited for.
    pub fn value(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true });
        let result = self.call("Runtime.evaluate", parameters);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {result}"
        );
        result["result"]["value"].clone()
    }

    /// Opens an address, in an empty page: nothing of the page before is taken for it.
    pub fn open(&mut self, address: &str) {
        for next in ["about:blank", address] {
            let result = self.call("Page.navigate", json!({ "url": next }));
            assert!(result["errorText"].is_null(), "{next}: {result}");
        }
    }

    /// Waits until an expression is true.
    pub fn wait_for(&mut self, expression: &str) {
        let end = Instant::now() + PATIENCE;
        while self.value(expression) != true {
            let state = "document.documentElement?.dataset.state + ': ' + (document.getElementById('alert')?.textContent ?? '')";
            assert!(Instant::now() < end, "{expression} ({})", self.value(state));
            thread::sleep(Duration::from_millis(30));
        }
    }

    /// The size of the window, and whether the system prefers dark pages.
    pub fn look(&mut self, width: u32, height: u32, dark: bool) {
        let size = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 });
        self.call("Emulation.setDeviceMetricsOverride", size);
        let value = if dark { "dark" } else { "light" };
        let media = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.call("Emulation.setEmulatedMedia", media);
    }

    /// A picture of what the window shows, as a PNG file.
    pub fn picture(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        base64(shot["data"].as_str().unwrap())
    }

    /// Everything the page complained of.
    pub fn complaints(&mut self) -> Vec<String> {
        self.value("0"); // what was said before this has arrived
        let bad = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => event["params"]["type"] == "error",
            // A scenario that cannot be is answered with this status, of which the browser makes a note.
            Some("Log.entryAdded") => {
                let entry = &event["params"]["entry"];
                let text = entry["text"].as_str().unwrap_or_default();
                entry["level"] == "error" && !text.contains("status of 422")
            }
            _ => false,
        };
        self.events
            .iter()
            .filter(bad)
            .map(Value::to_string)
            .collect()
    }

    /// Every address that the page asked for.
    pub fn requests(&mut self) -> Vec<String> {
        self.value("0");
        let sent = |event: &&Value| event["method"] == "Network.requestWillBeSent";
        let address = |event: &Value| {
            event["params"]["request"]["url"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        self.events.iter().filter(sent).map(address).collect()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        // Asked to close it takes its helpers along; they end with it in any case, when the pipe does.
        let _ = self
            .commands
            .write_all(b"{\"id\":0,\"method\":\"Browser.close\"}\0");
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end && matches!(self.process.try_wait(), Ok(None)) {
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn base64(text: &str) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::with_capacity(text.len());
    let (mut bits, mut held) = (0_u32, 0);
    for digit in text
        .bytes()
        .filter_map(|c| DIGITS.iter().position(|d| *d == c))
    {
        bits = bits << 6 | u32::try_from(digit).unwrap();
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).unwrap());
        }
    }
    bytes
}
