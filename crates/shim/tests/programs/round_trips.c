/* Small messages there and back without TCP_NODELAY: each is one segment, and waits for none (RFC 1122 4.2.3.4). */
#include "parity.h"
#include "figures.h"

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

static void client(address_t peer) {
    int fd = connected(peer), rounds = 0;
    char bytes[BYTES] = "round";
    while (rounds < ROUNDS && send(fd, bytes, sizeof bytes, 0) == BYTES && recv(fd, bytes, sizeof bytes, MSG_WAITALL) == BYTES)
        rounds++;
    result("asked", rounds);
    struct figures of = info(fd);
    say("segments with data, each once: %u", of.tcpi_data_segs_out - of.tcpi_total_retrans);
    close(fd);
}
