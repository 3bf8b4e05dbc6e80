/* UDP: a closed port, on connected sockets and in the error queue; datagrams that are too long. */
#define PARITY_UDP /* and PARITY_V6 */
#include "parity.h"
#include <linux/errqueue.h>
#ifdef PARITY_V6
#define RECVERR IPPROTO_IPV6, IPV6_RECVERR
#define MTU IPPROTO_IPV6, IPV6_MTU
#define TOO_LONG 65530
#else
#define RECVERR IPPROTO_IP, IP_RECVERR
#define MTU IPPROTO_IP, IP_MTU
#define TOO_LONG 65510
#endif

/* Set once it is known: errors of the host itself tell it, and it is not the same on every link. */
static unsigned mtu = 1;

static void server(int fd) {
    char text[8];
    result("the last word", recv(fd, text, sizeof text, 0));
}

static address_t closed_port(address_t peer) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    socklen_t len = sizeof peer;
    peer.PORT = 0;
    bind(fd, (struct sockaddr *)&peer, sizeof peer);
    getsockname(fd, (struct sockaddr *)&peer, &len);
    close(fd);
    return peer;
}

static void error_queue(int fd, const char *what) {
    char text[64] = {0}, control[256];
    struct iovec part = {text, sizeof text};
    address_t name = {0};
    struct msghdr message = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &part, .msg_iovlen = 1,
                             .msg_control = control, .msg_controllen = sizeof control};
    long got = result(what, recvmsg(fd, &message, MSG_ERRQUEUE));
    if (got < 0)
        return;
    say("payload %s, flags %s%s, name of %d", text, message.msg_flags & MSG_ERRQUEUE ? "ERRQUEUE" : "",
        message.msg_flags & MSG_TRUNC ? " TRUNC" : "", (int)message.msg_namelen);
    for (struct cmsghdr *one = CMSG_FIRSTHDR(&message); one; one = CMSG_NXTHDR(&message, one)) {
        struct sock_extended_err *error = (void *)CMSG_DATA(one);
        address_t *offender = (void *)SO_EE_OFFENDER(error);
        say("level %d type %d: %s origin %d type %d code %d info %u%s, offender family %d is the peer: %d",
            one->cmsg_level, one->cmsg_type, error_name((int)error->ee_errno), error->ee_origin, error->ee_type,
            error->ee_code, error->ee_info / mtu, mtu > 1 ? " MTU" : "", ((struct sockaddr *)offender)->sa_family,
            same_host(*offender, name));
        say("name with a port: %d", name.PORT != 0);
    }
}

static void client(address_t peer) {
    address_t nobody = closed_port(peer);
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    char text[8];
    result("unconnected", sendto(fd, "x", 1, 0, (struct sockaddr *)&nobody, sizeof nobody));
    pause_ms(50);
    poll_now("unconnected hears nothing", fd, 0);
    result("recv", recv(fd, text, sizeof text, MSG_DONTWAIT));

    result("connect", connect(fd, (struct sockaddr *)&nobody, sizeof nobody));
    result("send", send(fd, "x", 1, 0));
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    poll(&entry, 1, 2000);
    events("refused", (unsigned)entry.revents);
    result("recv", recv(fd, text, sizeof text, 0));
    result("recv again", recv(fd, text, sizeof text, MSG_DONTWAIT));
    result("send", send(fd, "x", 1, 0));
    poll(&entry, 1, 2000);
    result("send after it", send(fd, "x", 1, 0));
    poll(&entry, 1, 200);
    result("send", send(fd, "x", 1, 0));
    poll(&entry, 1, 2000);
    say("SO_ERROR %s", error_name(socket_error(fd)));
    say("SO_ERROR %s", error_name(socket_error(fd)));

    int on = 1;
    result("IP_RECVERR", setsockopt(fd, RECVERR, &on, sizeof on));
    error_queue(fd, "empty queue");
    result("send", send(fd, "question", 8, 0));
    poll(&entry, 1, 2000);
    events("refused", (unsigned)entry.revents);
    result("recv", recv(fd, text, sizeof text, 0));
    entry.revents = 0;
    poll(&entry, 1, 0);
    events("still queued", (unsigned)entry.revents);
    error_queue(fd, "queue");
    error_queue(fd, "empty queue");
    poll_now("over", fd, 0);
    close(fd);

    fd = socket(FAMILY, SOCK_DGRAM, 0);
    result("IP_RECVERR", setsockopt(fd, RECVERR, &on, sizeof on));
    result("unconnected", sendto(fd, "other", 5, 0, (struct sockaddr *)&nobody, sizeof nobody));
    entry.fd = fd;
    poll(&entry, 1, 2000);
    events("unconnected with a queue", (unsigned)entry.revents);
    error_queue(fd, "queue");
    result("recv", recv(fd, text, sizeof text, MSG_DONTWAIT));
    result("recv", recv(fd, text, sizeof text, MSG_DONTWAIT));
    static char long_one[70000];
    int connected = socket(FAMILY, SOCK_DGRAM, 0);
    socklen_t len = sizeof mtu;
    result("connect", connect(connected, (struct sockaddr *)&peer, sizeof peer));
    result("without a queue", send(connected, long_one, TOO_LONG, 0));
    poll_now("without a queue", connected, 0);
    result("MTU", getsockopt(connected, MTU, &mtu, &len));
    result("IP_RECVERR", setsockopt(connected, RECVERR, &on, sizeof on));
    result("too long", send(connected, long_one, TOO_LONG, 0));
    poll_now("told", connected, 0);
    error_queue(connected, "queue");
    poll_now("over", connected, 0);
    close(connected);
    result("too long", sendto(fd, long_one, TOO_LONG, 0, (struct sockaddr *)&peer, sizeof peer));
    error_queue(fd, "queue");
    result("much too long", sendto(fd, long_one, sizeof long_one, 0, (struct sockaddr *)&peer, sizeof peer));
    error_queue(fd, "queue");
    result("recv", recv(fd, text, sizeof text, MSG_DONTWAIT));

    result("to the server", sendto(fd, "bye", 3, 0, (struct sockaddr *)&peer, sizeof peer));
    close(fd);

    fd = socket(FAMILY, SOCK_DGRAM, 0);
#ifndef PARITY_V6
    peer.sin_addr.s_addr = 0xffffffff;
    result("broadcast without leave", sendto(fd, "x", 1, 0, (struct sockaddr *)&peer, sizeof peer));
    result("connect to everybody", connect(fd, (struct sockaddr *)&peer, sizeof peer));
#endif
    close(fd);
}
