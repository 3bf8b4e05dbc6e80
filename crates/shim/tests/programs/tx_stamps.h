/* What the programs about times of sending share: the error queue of a socket, entry by entry. */
#ifndef TX_STAMPS_H
#define TX_STAMPS_H
#include <linux/errqueue.h>
#include <linux/net_tstamp.h>

#define SCHED SOF_TIMESTAMPING_TX_SCHED
#define SND SOF_TIMESTAMPING_TX_SOFTWARE
#define ACK SOF_TIMESTAMPING_TX_ACK
#define SOFT SOF_TIMESTAMPING_SOFTWARE
#define ID SOF_TIMESTAMPING_OPT_ID
#define ID_TCP (1u << 16)
#define TSONLY SOF_TIMESTAMPING_OPT_TSONLY
#define CMSG SOF_TIMESTAMPING_OPT_CMSG

static long long clock_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int ask_for(const char *what, int fd, unsigned flags) {
    return (int)result(what, setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, &flags, sizeof flags));
}

static void says(const char *what, int fd) {
    unsigned flags[2] = {77, 77};
    socklen_t len = sizeof flags;
    int got = getsockopt(fd, SOL_SOCKET, SO_TIMESTAMPING, flags, &len);
    say("%s: %d, %#x, %#x, %u bytes", what, got, flags[0], flags[1], len);
}

/* What is in the queue before 'count' entries came, with at most 'room' bytes of what was sent. Times must not go back. */
static void entries(const char *what, int fd, int count, size_t room) {
    static long long last;
    /* Where nothing comes at all one wait is enough. */
    static int patience_ms = 5000;
    for (int i = 0; i < count; i++) {
        char control[300], bytes[3000];
        address_t name;
        memset(&name, 0x77, sizeof name);
        struct iovec part = {bytes, room};
        struct msghdr message = {.msg_name = &name, .msg_namelen = sizeof name, .msg_iov = &part, .msg_iovlen = 1,
                                 .msg_control = control, .msg_controllen = sizeof control};
        struct pollfd entry = {.fd = fd, .events = 0};
        if (poll(&entry, 1, patience_ms) < 1 || !(entry.revents & POLLERR)) {
            patience_ms = 0;
            say("%s: nothing came, events %#x", what, entry.revents);
            return;
        }
        long got = recvmsg(fd, &message, MSG_ERRQUEUE | MSG_DONTWAIT);
        if (got < 0) {
            result(what, got);
            return;
        }
        char line[400];
        int at = snprintf(line, sizeof line, "%s: %ld bytes, flags %#x, name %u", what, got, message.msg_flags, message.msg_namelen);
        for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
            size_t length = header->cmsg_len - CMSG_LEN(0);
            at += snprintf(line + at, sizeof line - (size_t)at, "; %d/%d %zu", header->cmsg_level, header->cmsg_type, length);
            if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_TIMESTAMPING) {
                struct scm_timestamping times;
                memcpy(&times, CMSG_DATA(header), sizeof times);
                long long ns = times.ts[0].tv_sec * 1000000000LL + times.ts[0].tv_nsec, age = clock_ns() - ns;
                at += snprintf(line + at, sizeof line - (size_t)at, " lately %d in order %d others %d", age >= 0 && age < 10000000000LL,
                               ns >= last, times.ts[1].tv_sec || times.ts[2].tv_sec || times.ts[2].tv_nsec);
                last = ns;
            } else if (header->cmsg_level == SOL_IP || header->cmsg_level == SOL_IPV6) {
                struct sock_extended_err error;
                if (length >= sizeof error && (header->cmsg_type == IP_RECVERR || header->cmsg_type == IPV6_RECVERR)) {
                    memcpy(&error, CMSG_DATA(header), sizeof error);
                    unsigned short offender;
                    memcpy(&offender, CMSG_DATA(header) + sizeof error, sizeof offender);
                    at += snprintf(line + at, sizeof line - (size_t)at, " %s origin %u type %u code %u info %u data %u offender %u",
                                   error_name((int)error.ee_errno), error.ee_origin, error.ee_type, error.ee_code, error.ee_info, error.ee_data, offender);
                }
            }
        }
        say("%s", line);
    }
}

static void no_more(const char *what, int fd) {
    char control[100];
    struct msghdr message = {.msg_control = control, .msg_controllen = sizeof control};
    long got = recvmsg(fd, &message, MSG_ERRQUEUE);
    struct pollfd entry = {.fd = fd, .events = 0};
    int ready = poll(&entry, 1, 0);
    say("%s: %s, poll %d %#x, error %d", what, got < 0 ? error_name(errno) : "one", ready, entry.revents, socket_error(fd));
}

/* sendmsg(2) with flags for this call alone. */
static long send_with(int fd, const void *bytes, size_t len, unsigned flags, int more) {
    char control[CMSG_SPACE(4)];
    memset(control, 0, sizeof control);
    struct iovec part = {(void *)bytes, len};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SO_TIMESTAMPING;
    header->cmsg_len = CMSG_LEN(4);
    memcpy(CMSG_DATA(header), &flags, 4);
    return sendmsg(fd, &message, more);
}
#endif
