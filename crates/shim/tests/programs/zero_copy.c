/* MSG_ZEROCOPY: every call is told to be complete on the error queue, once, where SO_ZEROCOPY is set. */
#include "parity.h"
#include <linux/errqueue.h>

static char large[100000];

/* Takes what the error queue has; the last call that was told of, or -1. */
static long told(int fd) {
    char control[200];
    struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
    long count = recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
    if (count < 0)
        return -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || !(message.msg_flags & MSG_ERRQUEUE)) {
        say("no control message");
        return 1000;
    }
    struct sock_extended_err error;
    memcpy(&error, CMSG_DATA(header), sizeof error);
    if (error.ee_errno || error.ee_origin != SO_EE_ORIGIN_ZEROCOPY || error.ee_code != SO_EE_CODE_ZEROCOPY_COPIED)
        say("errno %u, origin %u, code %u", error.ee_errno, error.ee_origin, error.ee_code);
    return error.ee_data;
}

static void server(int listener) {
    int on = 1, fd;
    result("of a listener", setsockopt(listener, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on));
    fd = accepted(listener);
    long total = 0, count;
    char text[4096];
    while ((count = recv(fd, text, sizeof text, 0)) > 0)
        total += count;
    say("received %ld", total);
    close(fd);
    fd = accepted(listener);
    result("as its listener", send(fd, large, 1000, MSG_ZEROCOPY));
    struct pollfd entry = {.fd = fd, .events = 0};
    result("told", poll(&entry, 1, 1000));
    result("up to", told(fd));
    await(fd);
    close(fd);
}

static void client(address_t peer) {
    int fd = connected(peer), on = 1, value = -1;
    socklen_t len = sizeof value;
    result("not asked for", send(fd, large, 1000, MSG_ZEROCOPY));
    struct pollfd before = {.fd = fd, .events = 0};
    result("not told", poll(&before, 1, 0));
    result("nothing", told(fd));
    result("SO_ZEROCOPY", setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on));
    getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &value, &len);
    say("is %d", value);
    long bytes = 1000;
    for (int i = 0; i < 3; i++)
        for (size_t sent = 0; sent < sizeof large;) {
            ssize_t count = send(fd, large + sent, sizeof large - sent, MSG_ZEROCOPY);
            if (count < 0) {
                result("send", count);
                return;
            }
            sent += (size_t)count;
            bytes += count;
        }
    say("sent %ld", bytes);
    long last = -1;
    while (last < 2) {
        struct pollfd entry = {.fd = fd, .events = 0};
        if (poll(&entry, 1, 10000) < 1) {
            say("nothing came");
            break;
        }
        if (entry.revents != POLLERR)
            events("not an error alone", (unsigned)entry.revents);
        long up_to = told(fd);
        last = up_to > last ? up_to : last;
    }
    say("up to %ld", last);
    result("no more", told(fd));
    struct pollfd entry = {.fd = fd, .events = 0};
    result("no error", poll(&entry, 1, 0));
    say("error %d", socket_error(fd));
    close(fd);

    fd = connected(peer);
    result("of the other end", recv(fd, large, 1000, MSG_WAITALL));
    step(fd);
    close(fd);
}
