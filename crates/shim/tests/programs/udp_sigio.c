/* UDP: who is signalled of datagrams, by which signal. */
#define PARITY_UDP /* and PARITY_V6 */
#include "parity.h"
#include "signalled.h"

enum { ECHOES = 6 };

static void server(int fd) {
    address_t peer;
    char text[16];
    for (int n = 0; n < ECHOES; n++) {
        socklen_t len = sizeof peer;
        long got = recvfrom(fd, text, sizeof text, 0, (struct sockaddr *)&peer, &len);
        sendto(fd, text, (size_t)got, 0, (struct sockaddr *)&peer, len);
    }
    say("all echoed");
}

static void ask(int fd, const char *word, address_t peer) {
    result(word, sendto(fd, word, strlen(word), 0, (struct sockaddr *)&peer, sizeof peer));
}

static void client(address_t peer) {
    block();
    int fd = socket(FAMILY, SOCK_DGRAM, 0);
    own_by_thread(fd);
    ask(fd, "one", peer);
    readable(fd);
    comes_not("without O_ASYNC", SIGIO);
    take("recv", fd);

    async(fd, 1);
    ask(fd, "two", peer);
    comes("a datagram", SIGIO);
    readable(fd);
    take("recv", fd);
    ask(fd, "three", peer);
    comes("another", SIGIO);
    readable(fd);
    take("recv", fd);

    result("F_SETSIG", fcntl(fd, F_SETSIG, chosen()));
    ask(fd, "four", peer);
    tells("input", POLL_IN, POLLIN | POLLRDNORM, fd);
    readable(fd);
    take("recv", fd);
    flush();

    /* A thread that waits is signalled all the same: a datagram is not a stream's bytes. */
    result("connect", connect(fd, (struct sockaddr *)&peer, sizeof peer));
    char text[16];
    result("five", send(fd, "five", 4, 0));
    result("recv", recv(fd, text, sizeof text, 0));
    tells("input", POLL_IN, POLLIN | POLLRDNORM, fd);
    flush();

    result("F_SETSIG", fcntl(fd, F_SETSIG, 0));
    async(fd, 0);
    flush();
    result("six", send(fd, "six", 3, 0));
    readable(fd);
    comes_not("switched off", SIGIO);
    take("recv", fd);
    close(fd);
}
