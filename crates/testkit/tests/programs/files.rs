//! Programs that move files and sessions between hosts.

use testkit::rows::{End, Row, Server};

use crate::{CONTENT, Cores, Engine, HANDING_ON, Supervised, each};

/// Root as it is outside user namespaces: who changes root and user, and forgets groups.
const REAL_ROOT: &str = "[ $(id -u) = 0 ] || { echo needs root >&2; exit 1; }
grep -q ' 4294967295$' /proc/self/uid_map || { echo needs root outside a user namespace >&2; exit 1; }";

/// Each session goes through three processes, of which two have no privileges.
const VSFTPD: Server = Server::new(
    "cat >vsftpd.conf <<END
listen=YES
listen_address=$SERVER
listen_port=2121
background=NO
anonymous_enable=YES
ftp_username=daemon
anon_root=$HOME/www
secure_chroot_dir=$HOME/empty
write_enable=YES
anon_upload_enable=YES
anon_umask=022
connect_from_port_20=NO
END
    exec vsftpd vsftpd.conf",
    2121,
);

#[test]
fn vsftpd_and_lftp_passive_and_active() {
    Row {
        name: "ftp",
        needs: &["vsftpd", "lftp", "openssl"],
        possible: REAL_ROOT,
        before: "mkdir -p empty www/uploads; chown daemon www/uploads
        openssl enc -aes-128-ctr -K 00 -iv 00 -in /dev/zero 2>/dev/null | head -c 8000000 >www/content
        sha256sum www/content",
        servers: &[VSFTPD],
        clients: &[
            "for passive in yes no; do
                mkdir got-$passive
                lftp -c \"set net:timeout 10; set net:max-retries 1; set ftp:passive-mode $passive;
                    open ftp://$SERVER:2121; cls -1; cd uploads;
                    lcd $HOME; put www/content -o up-$passive; lcd got-$passive; get up-$passive; get ../content;
                    get ../absent\" || echo $?
                (cd got-$passive; sha256sum *)
            done",
            // Again where the end of lftp's own process for names, a signal, has interrupted a supervised connect.
            "for try in 1 2 3 4 5; do
                lftp -c \"set net:timeout 2; set net:max-retries 1; open ftp://$SERVER:1; ls\" 2>said && echo connected
                grep 'Connection refused' said && break
            done",
        ],
        tested: &[(End::Server, HANDING_ON), (End::Client, &[Engine, Cores, Supervised])],
        loopback: HANDING_ON,
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn openssh_both_ends_with_scp_and_a_forwarded_port() {
    Row {
        name: "ssh",
        needs: &["sshd", "ssh", "scp", "ssh-keygen", "openssl"],
        possible: REAL_ROOT,
        before: "mkdir -p /run/sshd
        ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -f own
        openssl enc -aes-128-ctr -K 00 -iv 00 -in /dev/zero 2>/dev/null | head -c 16000000 >content",
        servers: &[Server::new(
            "cat >sshd_config <<END
ListenAddress $SERVER
Port 2222
HostKey $HOME/host
AuthorizedKeysFile $HOME/own.pub
PermitRootLogin yes
StrictModes no
UsePAM no
PidFile none
Subsystem sftp internal-sftp
END
            exec $(command -v sshd) -D -e -f $HOME/sshd_config",
            2222,
        )],
        clients: &[
            r#"cat >config <<END
Host *
    User root
    IdentityFile $HOME/own
    UserKnownHostsFile $HOME/known
    StrictHostKeyChecking accept-new
    LogLevel ERROR
END
            ssh -F config -p 2222 $SERVER 'echo there; exit 3' </dev/null || echo $?
            seq 100000 | ssh -F config -p 2222 $SERVER sha256sum
            scp -q -F config -P 2222 content $SERVER:$HOME/up; scp -q -F config -P 2222 $SERVER:$HOME/up down
            sha256sum up down
            ssh -F config -p 1 $SERVER true </dev/null || echo $?"#,
        ],
        tested: &[(End::Server, HANDING_ON), (End::Client, &[Engine, Cores, Supervised])],
        loopback: HANDING_ON,
        ..Row::EMPTY
    }
    .check();
}

#[test]
fn rsync_and_its_daemon() {
    Row {
        name: "rsync",
        needs: &["rsync", "openssl"],
        before: CONTENT,
        servers: &[Server {
            ..Server::new(
                "mkdir there; cat >rsyncd.conf <<END
use chroot = no
uid = $(id -u)
gid = $(id -g)
[module]
path = $HOME/there
read only = no
END
                exec rsync --daemon --no-detach --address=$SERVER --port=8730 --config=rsyncd.conf",
                8730,
            )
        }],
        clients: &[
            "mkdir mine; mv content mine; for i in $(seq 200); do echo $i >mine/$i; done
            rsync -a mine/ rsync://$SERVER:8730/module/; diff -r mine there; echo up
            head -c 5000 mine/content >piece; dd if=piece of=mine/content bs=1 seek=4000000 conv=notrunc 2>/dev/null
            rsync -a --ignore-times mine/ rsync://$SERVER:8730/module/; diff -r mine there; echo changed
            rsync -a --delete rsync://$SERVER:8730/module/ back/; diff -r there back; echo down
            rsync rsync://$SERVER:8730/absent/ 2>&1 | sed 's/ at .*//' || true
            rsync rsync://$SERVER:1/module/ 2>&1 | sed 's/ at .*//' || true",
        ],
        tested: &each(&[Engine, Cores]),
        loopback: &[Engine],
        ..Row::EMPTY
    }
    .check();
}
