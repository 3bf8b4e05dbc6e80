//! nginx with its packaged configuration, and curl: nginx under test serves curl, and curl under
//! test fetches from nginx.
//!
//! Only what must differ in a lab is changed in the packaged text: paths for what it writes, the
//! address, and the directory that it serves.

use std::{ffi::OsString, fs, net::Ipv4Addr, path::Path};

use anyhow::{Context as _, bail};

use super::{
    case::{Better, Case, Measure, Sample},
    content::FILE_NAME,
    context::{Context, Server, ServerSpec, words},
    side::Side,
};
use crate::tools;

const PACKAGED_CONFIGURATION: &str = "/etc/nginx/nginx.conf";
const PORT: u16 = 80;
const TOOLS: &[&str] = &["nginx", "curl", "sha256sum"];
const RATE: Measure = Measure {
    name: "rate",
    unit: "Gbit/s",
    better: Better::Higher,
};

/// What a cable passes in one piece where an administrator allows BIG TCP, as both stacks know it.
pub const BIG_SEGMENT_BYTES: u32 = 192 * 1024;

/// How large the packets are that cross the cable uncut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segments {
    /// 64 KiB, as interfaces come.
    Ordinary,
    /// [`BIG_SEGMENT_BYTES`].
    Big,
}

impl Segments {
    fn bytes(self) -> u32 {
        match self {
            Self::Ordinary => lab::ORDINARY_SEGMENT_BYTES,
            Self::Big => BIG_SEGMENT_BYTES,
        }
    }
}

/// nginx is under test, curl is its peer.
#[derive(Debug)]
pub struct Serves(pub Segments);

impl Case for Serves {
    fn title(&self) -> &'static str {
        match self.0 {
            Segments::Ordinary => "nginx serves curl",
            Segments::Big => "nginx serves curl, BIG TCP",
        }
    }

    fn segment_bytes(&self) -> u32 {
        self.0.bytes()
    }

    fn tested(&self) -> &'static str {
        "nginx"
    }

    fn tools(&self) -> &'static [&'static str] {
        TOOLS
    }

    fn check(&self, context: &Context, side: Side) -> anyhow::Result<()> {
        let server =
            context.start_tested_server(side, nginx(context, context.tested_address(side)?)?)?;
        context.check_fetched(
            None,
            "curl",
            &words([&"--silent", &"--show-error", &url(&server)]),
        )
    }

    fn sample(&self, context: &Context, side: Side) -> anyhow::Result<Vec<Sample>> {
        let server =
            context.start_tested_server(side, nginx(context, context.tested_address(side)?)?)?;
        let finished = context.run_peer_client("curl", &discarding(&server))?;
        rate(context, &finished.stdout)
    }
}

/// curl is under test, nginx is its peer.
#[derive(Debug)]
pub struct IsFetched(pub Segments);

impl Case for IsFetched {
    fn title(&self) -> &'static str {
        match self.0 {
            Segments::Ordinary => "curl fetches from nginx",
            Segments::Big => "curl fetches from nginx, BIG TCP",
        }
    }

    fn segment_bytes(&self) -> u32 {
        self.0.bytes()
    }

    fn tested(&self) -> &'static str {
        "curl"
    }

    fn tools(&self) -> &'static [&'static str] {
        TOOLS
    }

    fn check(&self, context: &Context, side: Side) -> anyhow::Result<()> {
        let server =
            context.start_peer_server(side, "curl", nginx(context, context.peer_address()?)?)?;
        context.check_fetched(
            Some(side),
            "curl",
            &words([&"--silent", &"--show-error", &url(&server)]),
        )
    }

    fn sample(&self, context: &Context, side: Side) -> anyhow::Result<Vec<Sample>> {
        let server =
            context.start_peer_server(side, "curl", nginx(context, context.peer_address()?)?)?;
        let finished = context.run_tested_client(side, "curl", &discarding(&server))?;
        rate(context, &finished.stdout)
    }
}

fn url(server: &Server) -> String {
    format!("http://{}/{FILE_NAME}", server.address)
}

/// Arguments of a curl that throws away what it receives and says how long that took.
fn discarding(server: &Server) -> Vec<OsString> {
    let format = "%{http_code} %{size_download} %{time_total}";
    words([
        &"--silent",
        &"--show-error",
        &"--output",
        &"/dev/null",
        &"--write-out",
        &format,
        &url(server),
    ])
}

fn rate(context: &Context, written: &str) -> anyhow::Result<Vec<Sample>> {
    let fields: Vec<&str> = written.split_ascii_whitespace().collect();
    let [code, size, seconds] = fields.as_slice() else {
        bail!("curl wrote {written:?}")
    };
    if *code != "200" || size.parse() != Ok(context.content().bytes()) {
        bail!(
            "curl got status {code} and {size} of {} bytes",
            context.content().bytes()
        );
    }
    let seconds: f64 = seconds
        .parse()
        .with_context(|| format!("curl wrote {written:?}"))?;
    Ok(vec![Sample {
        measure: RATE,
        value: context.content().gigabits_per_second(seconds),
    }])
}

/// nginx with a master and its workers, in the foreground.
fn nginx(context: &Context, address: Ipv4Addr) -> anyhow::Result<ServerSpec<'static>> {
    let prefix = package_prefix(&tools::find("nginx")?);
    let packaged = format!("{prefix}{PACKAGED_CONFIGURATION}");
    let text = fs::read_to_string(&packaged)
        .with_context(|| format!("{packaged}: run scripts/install-packages"))?;
    let text = text.replace("/etc/nginx/", &format!("{prefix}/etc/nginx/"));
    let scratch = context.scratch().display().to_string();
    let path = context.scratch().join(format!("nginx-{address}.conf"));
    fs::write(&path, derived(&text, &scratch, address))
        .with_context(|| path.display().to_string())?;
    let errors = format!("{scratch}/nginx-error.log");
    Ok(ServerSpec {
        name: "nginx",
        arguments: words([&"-e", &errors, &"-c", &path, &"-g", &"daemon off;"]),
        port: PORT,
        refuses_mapped_root: true,
    })
}

/// Where the package was unpacked: nothing for an installed one, see scripts/install-packages.
fn package_prefix(binary: &Path) -> String {
    let prefix = binary
        .to_str()
        .and_then(|path| path.strip_suffix("/usr/sbin/nginx"));
    prefix.unwrap_or_default().to_owned()
}

/// The packaged configuration with other paths and one server.
fn derived(packaged: &str, scratch: &str, address: Ipv4Addr) -> String {
    let mut text = String::new();
    for line in packaged.lines() {
        let directive = line.split_ascii_whitespace().next().unwrap_or_default();
        let value = line.split_ascii_whitespace().nth(1).unwrap_or_default();
        match directive {
            "pid" => text += &format!("pid {scratch}/nginx.pid;"),
            "error_log" => text += &format!("error_log {scratch}/nginx-error.log;"),
            "access_log" => text += &format!("access_log {scratch}/nginx-access.log;"),
            "include" if value.contains("/sites-enabled/") => {
                text += &server_block(scratch, address)
            }
            _ => text += line,
        }
        text.push('\n');
    }
    text
}

/// The one server, and places for temporary files that an ordinary user can write to.
fn server_block(scratch: &str, address: Ipv4Addr) -> String {
    let kinds = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let temporary: String = kinds
        .iter()
        .map(|kind| format!("\t{kind}_temp_path {scratch}/nginx-{kind};\n"))
        .collect();
    format!("{temporary}\tserver {{\n\t\tlisten {address}:{PORT};\n\t\troot {scratch};\n\t}}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_and_the_server_change_in_the_packaged_configuration() {
        let packaged = "user www-data;\npid /run/nginx.pid;\nhttp {\n\tsendfile on;\n\taccess_log /var/log/nginx/access.log;\n\tinclude /etc/nginx/sites-enabled/*;\n}\n";
        let text = derived(packaged, "/scratch", Ipv4Addr::new(10, 77, 0, 11));
        assert!(text.contains("user www-data;\npid /scratch/nginx.pid;\nhttp {\n\tsendfile on;\n"));
        assert!(text.contains("listen 10.77.0.11:80;") && text.contains("root /scratch;"));
        assert!(!text.contains("/var/log") && !text.contains("sites-enabled"));
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
