/* Every call in every state of a stream socket: one line per case, and a fresh socket for each. */
#include "parity.h"

/* What the server's half is asked to do with a connection: the first byte that it gets. */
enum { HOLD = 'h', SEND = 's', CLOSE = 'c', SEND_AND_CLOSE = 'C', RESET = 'r', OVER = 'o' };

static const char DATA[] = "0123456789";

/* Ends that are kept open for a while: several cores do not hand connections out in the order in which they came. */
enum { HELD = 16 };

static void server(int listener) {
    int held[HELD], turn = 0;
    memset(held, -1, sizeof held);
    for (;; turn = (turn + 1) % HELD) {
        int fd = accepted(listener);
        char wish = HOLD;
        /* A client that resets at once may be faster than what it sent. */
        if (recv(fd, &wish, 1, 0) != 1 && errno != ECONNRESET)
            say("no wish: %s", error_name(errno));
        if (held[turn] >= 0)
            close(held[turn]);
        held[turn] = fd;
        if (wish == SEND || wish == SEND_AND_CLOSE)
            send(fd, DATA, 10, 0);
        if (wish == RESET) {
            struct linger now = {1, 0};
            setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        }
        if (wish != HOLD && wish != SEND) {
            close(fd);
            held[turn] = -1;
        }
        if (wish == OVER)
            return;
    }
}

/* The server's half, and a port of its host where nobody listens. */
static address_t there, nobody;
/* Another end, closed after the case. */
static int extra = -1;

static int asked(char wish) {
    int fd = connected(there);
    send(fd, &wish, 1, 0);
    nonblocking(fd);
    return fd;
}

static int asked_until(char wish, short events, int bytes) {
    int fd = asked(wish), waiting = 0;
    struct pollfd entry = {.fd = fd, .events = events};
    poll(&entry, 1, 5000);
    for (int i = 0; i < 500 && bytes && (ioctl(fd, FIONREAD, &waiting), waiting < bytes); i++)
        pause_ms(10);
    return fd;
}

static int fresh(void) { return socket(FAMILY, SOCK_STREAM | SOCK_NONBLOCK, 0); }

static int bound(void) {
    address_t own = there;
    own.PORT = 0;
    int fd = fresh();
    bind(fd, (struct sockaddr *)&own, sizeof own);
    return fd;
}

static int listens(void) {
    int fd = bound();
    listen(fd, 4);
    return fd;
}

static int one_waits(void) {
    int fd = listens();
    address_t own;
    socklen_t len = sizeof own;
    getsockname(fd, (struct sockaddr *)&own, &len);
    extra = connected(own);
    struct pollfd entry = {.fd = fd, .events = POLLIN};
    poll(&entry, 1, 5000);
    return fd;
}

static int refused(void) {
    int fd = fresh();
    connect(fd, (struct sockaddr *)&nobody, sizeof nobody);
    struct pollfd entry = {.fd = fd};
    poll(&entry, 1, 5000);
    return fd;
}

static int established(void) { return asked(HOLD); }
static int data_waits(void) { return asked_until(SEND, POLLIN, 10); }
static int peer_closed(void) { return asked_until(CLOSE, POLLRDHUP, 0); }
static int closed_with_data(void) { return asked_until(SEND_AND_CLOSE, POLLRDHUP, 10); }
static int reset(void) { return asked_until(RESET, 0, 0); }

/* Once the peer has acknowledged a FIN, which is news to epoll. */
static int after_shutdown(int how) {
    int fd = established();
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    shutdown(fd, how);
    for (int i = 0; i < 500 && how != SHUT_RD && info.tcpi_state != TCP_FIN_WAIT2; i++) {
        getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len);
        usleep(100);
    }
    return fd;
}

static int shut_rd(void) { return after_shutdown(SHUT_RD); }
static int shut_wr(void) { return after_shutdown(SHUT_WR); }
static int shut_both(void) { return after_shutdown(SHUT_RDWR); }

static int all_over(void) {
    int fd = peer_closed();
    shutdown(fd, SHUT_WR);
    for (int i = 0; i < 500 && shutdown(fd, SHUT_WR) == 0; i++)
        pause_ms(10);
    return fd;
}

/* ENDED: bind(2) on a socket whose connection has ended gives EINVAL over Shunt (README.md). GONE: the peer's
   reset decides whether a second message still goes. */
enum { ENDED = 1, GONE = 2 };

static const struct {
    const char *name;
    int (*make)(void);
    int kind;
} STATES[] = {
    {"fresh", fresh, 0},           {"bound", bound, 0},
    {"listens", listens, 0},       {"one waits", one_waits, 0},
    {"refused", refused, ENDED},   {"established", established, 0},
    {"data waits", data_waits, 0}, {"peer closed", peer_closed, GONE},
    {"closed with data", closed_with_data, GONE}, {"reset", reset, ENDED},
    {"shut rd", shut_rd, 0},       {"shut wr", shut_wr, 0},
    {"shut both", shut_both, 0},   {"all over", all_over, ENDED},
};

#include "table.h"

CALL(made_nonblocking, int on = 1; return ioctl(fd, FIONBIO, &on);)

static const struct call OWN_CALLS[] = {{"FIONBIO", made_nonblocking, 0}};

static const struct option OWN_OPTIONS[] = {
    {"TCP_CORK", IPPROTO_TCP, TCP_CORK, 1}, {"TCP_KEEPIDLE", IPPROTO_TCP, TCP_KEEPIDLE, 1},
    {"TCP_KEEPINTVL", IPPROTO_TCP, TCP_KEEPINTVL, 1}, {"TCP_KEEPCNT", IPPROTO_TCP, TCP_KEEPCNT, 1},
    {"TCP_SYNCNT", IPPROTO_TCP, TCP_SYNCNT, 1}, {"TCP_LINGER2", IPPROTO_TCP, TCP_LINGER2, 1},
    {"TCP_DEFER_ACCEPT", IPPROTO_TCP, TCP_DEFER_ACCEPT, 1}, {"TCP_USER_TIMEOUT", IPPROTO_TCP, TCP_USER_TIMEOUT, 1},
    {"TCP_MAXSEG", IPPROTO_TCP, TCP_MAXSEG, 0}, {"TCP unknown", IPPROTO_TCP, 9999, 1},
};

#include "table_walk.h"

static void client(address_t peer) {
    there = nobody = peer;
    /* Bound and never listened to. */
    int reserved = bound();
    socklen_t len = sizeof nobody;
    getsockname(reserved, (struct sockaddr *)&nobody, &len);
    walk();
    close(asked(OVER));
    close(reserved);
}
