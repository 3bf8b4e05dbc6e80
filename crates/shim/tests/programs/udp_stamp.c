/* SIOCGSTAMP and SIOCGSTAMPNS, under both of their numbers: when the last datagram that was received has arrived. */
#define PARITY_UDP
#include "parity.h"

/* linux/sockios.h: the old numbers, and the new ones, which have a size. */
#define STAMP_OLD 0x8906
#define STAMPNS_OLD 0x8907
#define STAMP_NEW _IOR(0x89, 0x06, long long[2])
#define STAMPNS_NEW _IOR(0x89, 0x07, long long[2])

static const struct {
    const char *name;
    unsigned long request;
    long long unit;
} requests[] = {
    {"SIOCGSTAMP_OLD", STAMP_OLD, 1000000},
    {"SIOCGSTAMPNS_OLD", STAMPNS_OLD, 1000000000},
    {"SIOCGSTAMP_NEW", STAMP_NEW, 1000000},
    {"SIOCGSTAMPNS_NEW", STAMPNS_NEW, 1000000000},
};

static long long clock_ns(void) {
    struct timespec time;
    clock_gettime(CLOCK_REALTIME, &time);
    return time.tv_sec * 1000000000LL + time.tv_nsec;
}

/* What one of them says, in ns; -1: nothing. */
static long long stamp(const char *what, int which, int fd) {
    long long time[2] = {-1, -1};
    if (ioctl(fd, requests[which].request, time) < 0) {
        say("%s, %s: %s, %d", what, requests[which].name, error_name(errno), time[0] == -1 && time[1] == -1);
        return -1;
    }
    long long unit = requests[which].unit, ns = time[0] * 1000000000LL + time[1] * (1000000000LL / unit);
    long long age = clock_ns() - ns;
    say("%s, %s: a part %d, lately %d", what, requests[which].name, time[1] >= 0 && time[1] < unit,
        age >= 0 && age < 3000000000LL);
    return ns;
}

static void all(const char *what, int fd) {
    long long first = 0;
    for (int i = 0; i < 4; i++) {
        long long ns = stamp(what, i, fd);
        if (i && ns / 1000 != first / 1000)
            say("another time");
        first = ns;
    }
}

static void await_one(int fd) { result("one is there", poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 2000)); }

static void take(const char *what, int fd, int flags) {
    char text[16];
    result(what, recv(fd, text, sizeof text, flags));
}

static void ask(int fd, address_t peer, int count) {
    for (int i = 0; i < count; i++)
        sendto(fd, "go", 2, 0, (struct sockaddr *)&peer, sizeof peer);
}

static void server(int fd) {
    for (;;) {
        address_t peer;
        socklen_t len = sizeof peer;
        char text[16];
        if (recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&peer, &len) != 2)
            return;
        sendto(fd, "answer", 6, 0, (struct sockaddr *)&peer, len);
    }
}

static void client(address_t peer) {
    int fd = socket(FAMILY, SOCK_DGRAM, 0), on = 1, off = 0;
    ask(fd, peer, 1);
    all("nothing received", fd);
    take("received", fd, 0);
    long long one = stamp("after one", 1, fd);
    all("after one", fd);
    pause_ms(20);
    if (stamp("later", 1, fd) != one)
        say("another time");

    ask(fd, peer, 1);
    await_one(fd);
    pause_ms(50);
    long long before = clock_ns() - 40000000;
    if (stamp("not taken yet", 1, fd) != one)
        say("another time");
    take("looked at", fd, MSG_PEEK);
    long long two = stamp("looked at", 1, fd);
    say("when it arrived %d", two > one && two < before);
    take("received", fd, 0);
    if (stamp("received", 1, fd) != two)
        say("another time");

    ask(fd, peer, 1);
    await_one(fd);
    result("no address of ours", ioctl(fd, STAMP_OLD, NULL));
    result("nor here", ioctl(fd, STAMPNS_NEW, (void *)8));
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on);
    char control[64], text[16];
    struct iovec part = {text, sizeof text};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    result("with SO_TIMESTAMP", recvmsg(fd, &message, 0));
    say("the old one %d", stamp("with SO_TIMESTAMP", 1, fd) == two);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMP, &off, sizeof off);
    if (stamp("without", 1, fd) != two)
        say("another time");
    close(fd);

    fd = socket(FAMILY, SOCK_DGRAM, 0);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
    ask(fd, peer, 1);
    take("a socket with SO_TIMESTAMPNS", fd, 0);
    all("a socket with SO_TIMESTAMPNS", fd);
    setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &off, sizeof off);
    ask(fd, peer, 1);
    take("without", fd, 0);
    all("without", fd);
    close(fd);

    fd = socket(FAMILY, SOCK_DGRAM, 0);
    all("not bound", fd);
    connect(fd, (struct sockaddr *)&peer, sizeof peer);
    all("connected", fd);
    send(fd, "go", 2, 0);
    take("received", fd, 0);
    before = clock_ns();
    pause_ms(20);
    say("when it arrived %d", stamp("asked for before", 3, fd) <= before);
    take("empty", fd, MSG_DONTWAIT);
    result("another socket", dup2(fd, 100));
    stamp("a duplicate", 0, 100);
    send(fd, "the end", 7, 0);
    close(100);
    close(fd);
}
