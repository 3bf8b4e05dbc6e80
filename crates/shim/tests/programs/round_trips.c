/* Small messages there and back without TCP_NODELAY: each is one segment, and waits for none (RFC 1122 4.2.3.4). */
#include "parity.h"

enum { ROUNDS = 300, BYTES = 6 };

static int answer(int fd) {
    char bytes[BYTES];
    return recv(fd, bytes, sizeof bytes, MSG_WAITALL) == BYTES && send(fd, bytes, sizeof bytes, 0) == BYTES;
}

static void server(int listener) {
    int fd = accepted(listener), rounds = 0;
    while (answer(fd))
        rounds++;
    result("answered", rounds);
    close(fd);
}

/* What struct tcp_info of linux/tcp.h has at these places, which that of the C library may not. */
static unsigned word_at(const unsigned char *info, unsigned at) {
    unsigned word;
    memcpy(&word, info + at, sizeof word);
    return word;
}

static void client(address_t peer) {
    enum { TOTAL_RETRANS = 100, DATA_SEGS_OUT = 156 };
    int fd = connected(peer), rounds = 0;
    char bytes[BYTES] = "round";
    while (rounds < ROUNDS && send(fd, bytes, sizeof bytes, 0) == BYTES && recv(fd, bytes, sizeof bytes, MSG_WAITALL) == BYTES)
        rounds++;
    result("asked", rounds);
    unsigned char info[512] = "";
    socklen_t len = sizeof info;
    worked("TCP_INFO", getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &len));
    say("segments with data, each once: %u", word_at(info, DATA_SEGS_OUT) - word_at(info, TOTAL_RETRANS));
    close(fd);
}
