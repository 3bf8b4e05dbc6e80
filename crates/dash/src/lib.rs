//! The web page of `shunt ui`: a small server on loopback, with a page of the simulator and one of the engines that run.
//!
//! Everything is embedded and nothing is fetched from elsewhere. Who may use it is decided in
//! `access`, what a request may take in `simulate`. docs/decisions/0021-the-page.md says why it is
//! built this way. It knows no engine and opens no file: what runs and what was saved its maker gives it.

#![forbid(unsafe_code)]

mod access;
mod api;
mod assets;
mod server;
mod simulate;
mod text;

pub use server::{Listening, Live, Reports, Server, Settings, Sources, StartError};
