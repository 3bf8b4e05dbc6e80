//! The page's server.

#![allow(dead_code)] // each test uses what it needs of it

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
};

const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

/// A running `shunt ui`, ended with the test.
pub struct Ui {
    /// The program.
    pub process: Child,
    /// What it printed.
    pub url: String,
}

impl Ui {
    pub fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(SHUNT);
        command
            .args(["ui", "--listen", "127.0.0.1:0"])
            .args(arguments);
        let mut process = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut url = String::new();
        let mut lines = BufReader::new(process.stdout.take().unwrap());
        lines.read_line(&mut url).unwrap();
        let url = url.trim().to_owned();
        assert!(url.starts_with("http://127.0.0.1:"), "{url}");
        Self { process, url }
    }

    /// `http://127.0.0.1:PORT/`, without the token.
    pub fn origin(&self) -> &str {
        self.url
            .split_once("?token=")
            .map_or(&self.url, |(origin, _)| origin)
    }

    pub fn address(&self) -> &str {
        self.origin()
            .trim_start_matches("http://")
            .trim_end_matches('/')
    }

    /// The status line of an answer to a request with these headers.
    pub fn status(&self, request: &str, headers: &str) -> String {
        let mut stream = TcpStream::connect(self.address()).unwrap();
        write!(
            stream,
            "{request} HTTP/1.1\r\n{headers}connection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.lines().next().unwrap_or_default().to_owned()
    }
}

impl Drop for Ui {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
