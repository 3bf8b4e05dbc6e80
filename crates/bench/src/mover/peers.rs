//! What people use instead, on the same job: the file arrives in the target folder, one stream, and is synced.

use std::{
    fs::{self, File},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

use super::{
    case::{Case, Group, Ran, quiet},
    pair::{Pair, free_port},
    site::Site,
};
use crate::tools;

/// All of them; those that are not installed are skipped, and named.
pub fn cases() -> Vec<Case> {
    let case = |title: &str, tools, pair: fn(&Site) -> anyhow::Result<Pair>| Case {
        key: format!("peer-{title}"),
        title: title.to_owned(),
        group: Group::Peer,
        tools,
        stores: true,
        run: Box::new(move |site| {
            let took = pair(site)?.run(site)?;
            Ok(Ran::of(site.bytes, took.seconds, Some(took.cpu_s)))
        }),
    };
    vec![
        case("rsync daemon, --whole-file", &["rsync"], rsync),
        case("nginx and curl", &["nginx", "curl"], nginx),
        case("socat -b 1048576", &["socat"], socat),
        case("nuttcp -l 1m", &["nuttcp"], nuttcp),
        case("iperf3 -F", &["iperf3"], iperf3),
        case("scp, aes128-gcm", &["scp", "sshd", "ssh-keygen"], scp),
        case(
            "GridFTP",
            &["globus-gridftp-server", "globus-url-copy"],
            gridftp,
        ),
    ]
}

fn command(name: &str) -> anyhow::Result<Command> {
    Ok(quiet(tools::find(name)?))
}

fn rsync(site: &Site) -> anyhow::Result<Pair> {
    let port = free_port()?;
    let configuration = site.aside("rsyncd.conf");
    let user = if rustix::process::geteuid().is_root() {
        "uid = root\ngid = root\n"
    } else {
        ""
    };
    let text = format!(
        "use chroot = no\n{user}[target]\npath = {}\nread only = no\n",
        site.target().display()
    );
    fs::write(&configuration, text)?;
    let mut server = command("rsync")?;
    server.args(["--daemon", "--no-detach", "--address=127.0.0.1"]);
    server.arg(format!("--port={port}")).arg("--config");
    server.arg(configuration);
    let mut client = command("rsync")?;
    client
        .args(["--whole-file", "--inplace"])
        .arg(site.source());
    client.arg(format!("rsync://127.0.0.1:{port}/target/source"));
    Ok(Pair::lasting(server, port, client))
}

fn nginx(site: &Site) -> anyhow::Result<Pair> {
    let port = free_port()?;
    let configuration = site.aside("nginx.conf");
    // One process, everything that it writes in the folder.
    let text = format!(
        "daemon off; master_process off; pid {pid}; error_log {log};\n\
         events {{ }}\n\
         http {{ access_log off; sendfile on; client_body_temp_path {temp}; proxy_temp_path {temp};\n\
         fastcgi_temp_path {temp}; uwsgi_temp_path {temp}; scgi_temp_path {temp};\n\
         server {{ listen 127.0.0.1:{port}; root {root}; }} }}\n",
        pid = site.aside("nginx.pid").display(),
        log = site.aside("nginx.log").display(),
        temp = site.aside("nginx-temp").display(),
        root = site.aside("").display(),
    );
    fs::write(&configuration, text)?;
    let mut server = command("nginx")?;
    server.arg("-c").arg(configuration);
    server.arg("-e").arg(site.aside("nginx.log"));
    let mut client = command("curl")?;
    client.args(["--silent", "--show-error", "--fail", "--output"]);
    client.arg(site.stored());
    client.arg(format!("http://127.0.0.1:{port}/source"));
    Ok(Pair::lasting(server, port, client))
}

fn socat(site: &Site) -> anyhow::Result<Pair> {
    let port = free_port()?;
    let end = || {
        let mut command = command("socat")?;
        command.args(["-u", "-b", "1048576"]);
        anyhow::Ok(command)
    };
    let (mut server, mut client) = (end()?, end()?);
    server.arg(format!("TCP-LISTEN:{port},bind=127.0.0.1"));
    server.arg(format!("OPEN:{},creat,trunc", site.stored().display()));
    client.arg(format!("OPEN:{},rdonly", site.source().display()));
    client.arg(format!("TCP:127.0.0.1:{port}"));
    Ok(Pair::once(server, port, client))
}

fn nuttcp(site: &Site) -> anyhow::Result<Pair> {
    let port = free_port()?;
    let (mut server, mut client) = (command("nuttcp")?, command("nuttcp")?);
    let text = port.to_string();
    // One connection for words, one for bytes.
    let data = free_port()?.to_string();
    server.args(["-1", "--nofork", "-s", "-P", &text, "-p", &data]);
    server.stdout(File::create(site.stored())?);
    client.args(["-t", "-s", "-l1m", "-P", &text, "-p", &data, "127.0.0.1"]);
    client.stdin(File::open(site.source())?);
    Ok(Pair::once(server, port, client))
}

fn iperf3(site: &Site) -> anyhow::Result<Pair> {
    let port = free_port()?;
    let (mut server, mut client) = (command("iperf3")?, command("iperf3")?);
    let text = port.to_string();
    server.args(["--server", "--one-off", "--port", &text, "-F"]);
    server.arg(site.stored());
    client.args(["--client", "127.0.0.1", "--port", &text, "--length", "1M"]);
    client.arg("-F").arg(site.source());
    Ok(Pair::once(server, port, client))
}

fn scp(site: &Site) -> anyhow::Result<Pair> {
    let port = free_port()?;
    let (host_key, user_key) = (site.aside("host-key"), site.aside("user-key"));
    for key in [&host_key, &user_key] {
        if key.exists() {
            continue;
        }
        let mut generator = command("ssh-keygen")?;
        generator
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(key);
        if !generator.stderr(Stdio::null()).status()?.success() {
            bail!("ssh-keygen made no key");
        }
    }
    // What its service would make for it; without it sshd does not start.
    let privileges = Path::new("/run/sshd");
    if rustix::process::geteuid().is_root() && !privileges.exists() {
        fs::create_dir(privileges).context("making /run/sshd")?;
    }
    let allowed = site.aside("authorized-keys");
    fs::copy(user_key.with_extension("pub"), &allowed)?;
    fs::set_permissions(&allowed, fs::Permissions::from_mode(0o600))?;
    let mut server = command("sshd")?;
    server
        .args(["-D", "-e", "-f", "/dev/null", "-h"])
        .arg(host_key);
    server.args(["-p", &port.to_string()]);
    let allowed = format!("AuthorizedKeysFile={}", allowed.display());
    for option in [
        "ListenAddress=127.0.0.1",
        "StrictModes=no",
        "UsePAM=no",
        "PidFile=none",
        "PermitRootLogin=prohibit-password",
        "Subsystem=sftp internal-sftp",
        &allowed,
    ] {
        server.args(["-o", option]);
    }
    let user = user()?;
    let mut client = command("scp")?;
    client.args(["-q", "-P", &port.to_string()]);
    for option in [
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "IdentitiesOnly=yes",
        "BatchMode=yes",
        "Ciphers=aes128-gcm@openssh.com",
        "Compression=no",
    ] {
        client.args(["-o", option]);
    }
    client.arg("-i").arg(user_key).arg(site.source());
    client.arg(format!("{user}@127.0.0.1:{}", site.stored().display()));
    Ok(Pair::lasting(server, port, client))
}

/// The name of whoever runs this.
fn user() -> anyhow::Result<String> {
    let output = Command::new("id").arg("-un").output().context("id -un")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

fn gridftp(site: &Site) -> anyhow::Result<Pair> {
    let port = free_port()?;
    let mut server = command("globus-gridftp-server")?;
    // Anonymous, one process, this host only.
    server.args(["-aa", "-no-fork", "-p", &port.to_string()]);
    server.args(["-control-interface", "127.0.0.1", "-anonymous-user"]);
    server.arg(user()?);
    if rustix::process::geteuid().is_root() {
        server.arg("-allow-root");
    }
    let mut client = command("globus-url-copy")?;
    client.arg(format!("file://{}", site.source().display()));
    client.arg(format!("ftp://127.0.0.1:{port}{}", site.stored().display()));
    Ok(Pair::lasting(server, port, client))
}
