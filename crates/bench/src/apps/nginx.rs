//! nginx with its packaged configuration, and curl: nginx under test serves curl, and curl under
//! test fetches from nginx.
//!
//! Only what must differ in a lab is changed in the packaged text: paths for what it writes, the
//! address, and the directory that it serves.

use std::{fs, net::Ipv4Addr, path::Path};

use anyhow::{Context as _, bail};

use super::{
    case::{Case, Measure, Sample},
    content::FILE_NAME,
    context::{Context, Server},
    side::Side,
};
use crate::{tools, unit::Better};

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

/// nginx is under test, curl is its peer.
pub const SERVES: Case = Case {
    title: "nginx serves curl",
    segment_bytes: lab::ORDINARY_SEGMENT_BYTES,
    tested: "nginx",
    tools: TOOLS,
    check: |context, side| {
        let (_server, url) = serve(context, side)?;
        context.check_fetched(None, &fetching(&url))
    },
    sample: |context, side| {
        let (_server, url) = serve(context, side)?;
        rate(context, &context.run(None, &discarding(&url))?.stdout)
    },
};

/// The same with [`BIG_SEGMENT_BYTES`].
pub const SERVES_BIG: Case = Case {
    title: "nginx serves curl, BIG TCP",
    segment_bytes: BIG_SEGMENT_BYTES,
    ..SERVES
};

/// curl is under test, nginx is its peer.
pub const IS_FETCHED: Case = Case {
    title: "curl fetches from nginx",
    tested: "curl",
    check: |context, side| {
        let (_server, url) = serve_peer(context, side)?;
        context.check_fetched(Some(side), &fetching(&url))
    },
    sample: |context, side| {
        let (_server, url) = serve_peer(context, side)?;
        rate(context, &context.run(Some(side), &discarding(&url))?.stdout)
    },
    ..SERVES
};

/// The same with [`BIG_SEGMENT_BYTES`].
pub const IS_FETCHED_BIG: Case = Case {
    title: "curl fetches from nginx, BIG TCP",
    segment_bytes: BIG_SEGMENT_BYTES,
    ..IS_FETCHED
};

fn serve(context: &Context, side: Side) -> anyhow::Result<(Server, String)> {
    let line = nginx(context, context.tested_address(side)?)?;
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    with_url(context.start_tested_server(side, PORT, &line)?)
}

fn serve_peer(context: &Context, side: Side) -> anyhow::Result<(Server, String)> {
    let line = nginx(context, context.peer_address()?)?;
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    with_url(context.start_peer_server(side, "curl", PORT, &line)?)
}

fn with_url(server: Server) -> anyhow::Result<(Server, String)> {
    let url = format!("http://{}/{FILE_NAME}", server.address);
    Ok((server, url))
}

fn fetching(url: &str) -> [&str; 4] {
    ["curl", "--silent", "--show-error", url]
}

/// A curl that throws away what it receives and says how long that took.
fn discarding(url: &str) -> [&str; 8] {
    let format = "%{http_code} %{size_download} %{time_total}";
    let quiet = ["--silent", "--show-error", "--output", "/dev/null"];
    let [silent, errors, output, null] = quiet;
    [
        "curl",
        silent,
        errors,
        output,
        null,
        "--write-out",
        format,
        url,
    ]
}

fn rate(context: &Context, written: &str) -> anyhow::Result<Vec<Sample>> {
    let fields: Vec<&str> = written.split_ascii_whitespace().collect();
    let [code, size, seconds] = fields.as_slice() else {
        bail!("curl wrote {written:?}")
    };
    if *code != "200" || size.parse() != Ok(context.common.content.bytes) {
        bail!(
            "curl got status {code} and {size} of {} bytes",
            context.common.content.bytes
        );
    }
    let seconds: f64 = seconds
        .parse()
        .with_context(|| format!("curl wrote {written:?}"))?;
    Ok(vec![Sample {
        measure: RATE,
        value: context.common.content.gigabits_per_second(seconds),
    }])
}

/// The command line of an nginx with a master and its workers, in the foreground.
fn nginx(context: &Context, address: Ipv4Addr) -> anyhow::Result<[String; 7]> {
    let prefix = package_prefix(&tools::find("nginx")?);
    let packaged = format!("{prefix}{PACKAGED_CONFIGURATION}");
    let text = fs::read_to_string(&packaged)
        .with_context(|| format!("{packaged}: run scripts/install-packages"))?;
    let text = text.replace("/etc/nginx/", &format!("{prefix}/etc/nginx/"));
    let scratch = context.scratch();
    let path = format!("{scratch}/nginx-{address}.conf");
    fs::write(&path, derived(&text, &scratch, address)).with_context(|| path.clone())?;
    let errors = format!("{scratch}/nginx-error.log");
    let words = ["nginx", "-e", &errors, "-c", &path, "-g", "daemon off;"];
    Ok(words.map(str::to_owned))
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
